// See the header. Constructor, start() and stop() run on the callers' threads, all else on its own.
#include "daemon/edge/server/server_thread.h"

#include <pthread.h>

#include <csignal>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "daemon/edge/net/loop_guard.h"
#include "daemon/edge/server/from_config.h"
#include "proto/base/check.h"
#include "proto/base/thread.h"

namespace syncd::server {

ServerThread::ServerThread(config::Config config, std::string version, Server::LogSink log)
    : config_(std::move(config)),
      version_(std::move(version)),
      log_(std::move(log)),
      machine_(std::make_unique<Machine>()) {}

ServerThread::~ServerThread() {
  if (!thread_.joinable()) return;
  std::string ignored;
  stop(config_.shutdown_timeout_us, ignored);
}

Status ServerThread::start(std::string& error) {
  if (!start_without_signals(
          thread_, [this] { run(); }, error)) {
    error = "cannot start a thread: " + error;
    return Status::kLimit;
  }
  started_.get_future().wait();
  if (status_ == Status::kOk) return status_;
  join();
  error = error_;
  return status_;
}

Status ServerThread::stop(Micros timeout_us, std::string& problem) {
  stop_timeout_us_ = timeout_us;
  {
    const std::lock_guard lock(failing_);
    if (!failed_) uv_async_send(&machine_->stop_request);
  }
  join();
  problem = problem_;
  if (failed_) return Status::kInternal;
  return problem_.empty() ? Status::kOk : Status::kStore;
}

void ServerThread::join() {
  thread_.join();
  if (failed_) static_cast<void>(machine_.release());
}

void ServerThread::run() noexcept {
  pthread_setname_np(pthread_self(), "syncd-server");
  try {
    status_ = prepare(error_);
  } catch (const std::bad_alloc&) {
    status_ = Status::kNoMemory;
    error_ = "out of memory";
  } catch (const std::exception& failure) {
    status_ = Status::kInternal;
    error_ = failure.what();
    if (loop_open_) fail(failure.what());
  }
  const bool good = status_ == Status::kOk;
  if (good) started_.set_value();
  try {
    if (loop_open_ && !failed_) {
      if (!good) stop_on_loop("it could not start", config_.shutdown_timeout_us);
      serve();
    }
  } catch (const std::exception& failure) {
    fail(failure.what());
  }
  if (!good) started_.set_value();
}

// The program that it is part of goes on. Clients see that the daemon is gone, and another one can
// open the store.
void ServerThread::fail(const char* why) noexcept {
  {
    const std::lock_guard lock(failing_);
    failed_ = true;
  }
  net::close_all_handles(&machine_->loop);
  try {
    problem_ = std::string("the server has ended early: ") + why;
    if (machine_->server) machine_->server->close_store_after_failure(config_.shutdown_timeout_us);
    log_({LogLevel::kError, "server_failed", {{"reason", why}}});
  } catch (...) {  // the status says enough
  }
  uv_loop_close(&machine_->loop);
}

Status ServerThread::prepare(std::string& error) {
  const int code = uv_loop_init(&machine_->loop);
  if (code != 0) {
    error = std::string("cannot make an event loop: ") + uv_strerror(code);
    return Status::kLimit;
  }
  loop_open_ = true;
  machine_->stop_request.data = this;
  uv_async_init(&machine_->loop, &machine_->stop_request, net::guarded([](uv_async_t* handle) {
    auto* self = static_cast<ServerThread*>(handle->data);
    self->stop_on_loop("the program that it is part of stops it", self->stop_timeout_us_);
  }));
  std::unique_ptr<store::Store> store = open_store(config_, error);
  if (!store) return Status::kStore;
  machine_->server = std::make_unique<Server>(&machine_->loop, server_options(config_, version_),
                                              std::move(store), log_);
  const Status status = start_server(error);
  if (status == Status::kOk) endpoints_ = machine_->server->endpoints();
  return status;
}

Status ServerThread::start_server(std::string& error) {
  switch (machine_->server->start(error)) {
    case StartError::kNone:
      return Status::kOk;
    case StartError::kStore:
      return Status::kStore;
    case StartError::kJob:
      return Status::kInvalid;
    case StartError::kListen:
      return Status::kListen;
  }
  return Status::kInternal;
}

// Until nothing of the loop is left.
void ServerThread::serve() {
  net::run_loop(&machine_->loop);
  SYNCD_CHECK(!machine_->server || machine_->server->is_over());
  machine_->server.reset();
  uv_loop_close(&machine_->loop);
  loop_open_ = false;
}

void ServerThread::stop_on_loop(const std::string& reason, Micros timeout_us) {
  uv_close(reinterpret_cast<uv_handle_t*>(&machine_->stop_request), nullptr);
  if (!machine_->server) return;
  machine_->server->set_shutdown_timeout(timeout_us);
  machine_->server->stop(reason, [this](const std::string& problem) { problem_ = problem; });
}

}  // namespace syncd::server
