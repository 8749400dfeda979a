// The loop thread: libuv on one side, the session on the other.
#include "libclient/driver.h"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <new>
#include <system_error>
#include <utility>

namespace syncd::client {
namespace {

// A timer this late means that the process was stopped: what the daemon sent meanwhile lies in the
// socket and is read before time is held against it.
constexpr TimeUs kSuspendedUs = 1'000'000;

OpId op_of(Call& call) {
  return reinterpret_cast<std::uintptr_t>(&call);
}
Call& call_of(OpId op) {
  return *reinterpret_cast<Call*>(static_cast<std::uintptr_t>(op));
}

}  // namespace

// ---- Calls -------------------------------------------------------------------------------------

Completion Call::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return done_; });
  return std::move(completion_);
}

// The caller's stack may be gone as soon as the mutex is free, so that notifying comes before.
void Call::finish(Completion completion) noexcept {
  const std::lock_guard lock(mutex_);
  completion_ = std::move(completion);
  done_ = true;
  ended_.notify_one();
}

void Driver::submit(Call& call) {
  Completion refusal;
  {
    const std::lock_guard lock(mutex_);
    if (refused_ == Status::kOk) {
      submitted_.push_back(&call);
      if (submitted_.size() == 1) uv_async_send(&wake_);
      return;
    }
    refusal.status = refused_;
    refusal.message = refusal_;
  }
  call.finish(std::move(refusal));
}

void Driver::release(WorkerId worker) {
  const std::lock_guard lock(mutex_);
  if (refused_ != Status::kOk) return;
  released_.push_back(worker);
  uv_async_send(&wake_);
}

// ---- Start and stop ----------------------------------------------------------------------------

Driver::Driver(std::vector<Endpoint> endpoints, SessionOptions options)
    : endpoints_(std::move(endpoints)),
      session_(std::move(options), now_us()),
      lookups_(endpoints_.size()) {}

Driver::~Driver() = default;

bool Driver::open_loop(std::string& error) {
  int code = uv_loop_init(&loop_);
  if (code != 0) {
    error = uv_strerror(code);
    return false;
  }
  code = uv_async_init(&loop_, &wake_, on_wake);
  if (code != 0) {
    error = uv_strerror(code);
    uv_loop_close(&loop_);
    return false;
  }
  wake_.data = this;
  uv_timer_init(&loop_, &timer_);  // cannot fail
  timer_.data = this;
  return true;
}

void Driver::close_loop() noexcept {
  close_handles();
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

bool Driver::start(std::string& error) {
  if (!open_loop(error)) return false;
  // The loop thread takes no signals: they are the program's, and a write to a socket that the peer
  // has closed must not raise SIGPIPE in anybody.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& failure) {
    error = failure.what();
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!started) close_loop();
  return started;
}

void Driver::run() noexcept {
  pthread_setname_np(pthread_self(), "syncd-client");
  try {
    settle();  // the first connection
  } catch (...) {
    stream_failed();
  }
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

void Driver::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    uv_async_send(&wake_);
  }
  thread_.join();
}

// ---- Libuv callbacks ---------------------------------------------------------------------------

void Driver::on_wake(uv_async_t* handle) {
  auto* self = static_cast<Driver*>(handle->data);
  try {
    self->take_submitted();
  } catch (...) {
    self->stream_failed();
  }
}

void Driver::take_submitted() {
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    if (broken_) {
      if (stopping_) close_handles();
      return;
    }
    taken_.swap(submitted_);
    taken_released_.swap(released_);
    stopping = stopping_;
    if (stopping && refused_ == Status::kOk) {
      refused_ = Status::kClosed;
      refusal_ = "the client is closed";
    }
  }
  // Linked first: whatever happens below, each of them is finished.
  for (Call* call : taken_) link(*call);
  // Before the calls: a join may be meant to take over the name of a worker that was just freed,
  // and no call is under way for that one.
  for (const WorkerId worker : taken_released_) session_.release(worker, now_us());
  for (Call* call : taken_) dispatch(*call);
  taken_.clear();
  taken_released_.clear();
  if (stopping) return shut_down();
  take_looked_up();
  settle();
}

void Driver::dispatch(Call& call) {
  const OpId op = op_of(call);
  const Timeout timeout = call.timeout_;
  const TimeUs now = now_us();
  std::visit(
      [&](auto& command) {
        using Given = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Given, ConnectCommand>) {
          session_.connect(op, timeout);
        } else if constexpr (std::is_same_v<Given, JoinRequest>) {
          session_.join(op, std::move(command), timeout, now);
        } else if constexpr (std::is_same_v<Given, BeginCommand>) {
          session_.begin(op, command.worker, timeout, now);
        } else if constexpr (std::is_same_v<Given, PushCommand>) {
          session_.push(op, command.worker, command.iteration, command.info, timeout, now);
        } else if constexpr (std::is_same_v<Given, IterationCommand>) {
          (session_.*command.call)(op, command.worker, command.iteration, timeout, now);
        } else if constexpr (std::is_same_v<Given, LeaveCommand>) {
          session_.leave(op, command.worker, timeout, now);
        } else if constexpr (std::is_same_v<Given, ExplainCommand>) {
          session_.explain(op, command.worker, timeout, now);
        } else {
          session_.cancel_begin(op, command.worker, timeout, now);
        }
      },
      call.command_);
}

void Driver::on_timer(uv_timer_t* handle) {
  auto* self = static_cast<Driver*>(handle->data);
  try {
    const TimeUs now = now_us();
    const bool suspended = now - self->timer_at_us_ > kSuspendedUs;
    self->timer_at_us_ = kNever;
    if (suspended) {
      uv_timer_start(&self->timer_, on_timer, 1, 0);
      self->timer_at_us_ = now + 1000;
      return;
    }
    self->session_.on_time(now);
    self->settle();
  } catch (...) {
    self->stream_failed();
  }
}

void Driver::stream_connected() {
  addresses_.clear();
  next_address_ = 0;
  session_.on_connected(connection_, now_us());
  settle();
}

void Driver::stream_bytes(std::span<const std::uint8_t> bytes) {
  session_.on_bytes(connection_, bytes, now_us());
  settle();
}

void Driver::stream_closed(std::string_view reason) {
  // A name may have several addresses, of which only some are served.
  if (next_address_ < addresses_.size()) {
    connect_next_address(reason);
  } else {
    session_.on_disconnected(connection_, reason, now_us());
  }
  settle();
}

// An exception, which is memory that ran out or a defect, reached a callback. The session may be
// between two states, so nothing more is asked of it: every call ends, and so does every later one.
void Driver::stream_failed() noexcept {
  Status status = Status::kInternal;
  const char* reason = "the client library failed inside";
  try {
    throw;
  } catch (const std::bad_alloc&) {
    status = Status::kNoMemory;
    reason = "out of memory";
  } catch (...) {
  }
  drop_connection();
  uv_timer_stop(&timer_);
  taken_.clear();
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
    refused_ = status;
    try {
      refusal_ = reason;
    } catch (...) {  // the status says enough
    }
    for (Call* call : submitted_) link(*call);
    submitted_.clear();
    if (stopping_) close_handles();
  }
  finish_all(status, reason);
}

void Driver::shut_down() {
  session_.close();
  deliver();
  finish_all(Status::kCancelled, "");
  drop_connection();
  close_handles();
}

void Driver::close_handles() noexcept {
  if (std::exchange(handles_closed_, true)) return;
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
}

// ---- After every callback ----------------------------------------------------------------------

void Driver::settle() {
  do {
    apply_wish();
    flush();
  } while (session_.wish().number != connection_);
  deliver();
  arm_timer();
}

void Driver::apply_wish() {
  while (session_.wish().number != connection_) {
    drop_connection();
    const LinkWish wish = session_.wish();
    connection_ = wish.number;
    if (wish.up) connect(wish.endpoint);
  }
}

void Driver::connect(std::size_t index) {
  const Endpoint& endpoint = endpoints_[index];
  std::string error;
  if (endpoint.kind == Endpoint::Kind::kUnix) {
    stream_ = Stream::connect_unix(loop_, *this, endpoint.path, error);
    if (stream_ == nullptr) session_.on_disconnected(connection_, error, now_us());
    return;
  }
  sockaddr_storage address;
  if (!numeric_address(endpoint.host, endpoint.port, address)) return look_up(index);
  addresses_.assign(1, address);
  connect_next_address({});
}

void Driver::look_up(std::size_t index) {
  const Endpoint& endpoint = endpoints_[index];
  std::shared_ptr<Lookup>& lookup = lookups_[index];
  std::string error;
  if (lookup == nullptr) lookup = Lookup::start(endpoint.host, endpoint.port, error);
  if (lookup == nullptr) return session_.on_disconnected(connection_, error, now_us());
  looking_up_ = &lookup;
  lookup->notify(&wake_);
}

void Driver::take_looked_up() {
  Lookup::Result result;
  if (looking_up_ == nullptr || !(*looking_up_)->take(result)) return;
  std::exchange(looking_up_, nullptr)->reset();
  addresses_ = std::move(result.addresses);
  next_address_ = 0;
  connect_next_address(result.reason);
}

// `reason`: why there is no address left, if there is none.
void Driver::connect_next_address(std::string_view reason) {
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->close();
  std::string error(reason);
  while (next_address_ < addresses_.size()) {
    const sockaddr_storage& address = addresses_[next_address_++];
    stream_ = Stream::connect_tcp(loop_, *this, reinterpret_cast<const sockaddr&>(address), error);
    if (stream_ != nullptr) return;
  }
  session_.on_disconnected(connection_, error, now_us());
}

void Driver::drop_connection() noexcept {
  if (stream_ != nullptr) std::exchange(stream_, nullptr)->close();
  if (looking_up_ != nullptr) (*std::exchange(looking_up_, nullptr))->notify(nullptr);
  addresses_.clear();
  next_address_ = 0;
}

void Driver::flush() {
  if (stream_ == nullptr || session_.output().empty()) return;
  std::string error;
  if (!stream_->write(session_.output(), error)) {
    session_.on_disconnected(connection_, error, now_us());
  }
}

void Driver::deliver() {
  delivering_.swap(session_.completions());
  for (Completion& completion : delivering_) {
    Call& call = call_of(completion.op);
    unlink(call);
    call.finish(std::move(completion));
  }
  delivering_.clear();
}

// A timer that is due too early only looks again, so that the usual exchange, which moves the next
// heartbeat a little, does not touch the timer at all.
void Driver::arm_timer() {
  const TimeUs at_us = session_.next_deadline();
  if (at_us >= timer_at_us_) return;
  timer_at_us_ = at_us;
  const TimeUs wait_us = at_us - now_us();
  uv_update_time(&loop_);
  uv_timer_start(&timer_, on_timer,
                 wait_us <= 0 ? 0 : static_cast<std::uint64_t>(wait_us + 999) / 1000, 0);
}

void Driver::link(Call& call) noexcept {
  call.next_ = calls_;
  call.previous_ = nullptr;
  if (calls_ != nullptr) calls_->previous_ = &call;
  calls_ = &call;
}

void Driver::unlink(Call& call) noexcept {
  (call.previous_ != nullptr ? call.previous_->next_ : calls_) = call.next_;
  if (call.next_ != nullptr) call.next_->previous_ = call.previous_;
}

// `reason` is short enough for a string that allocates nothing.
void Driver::finish_all(Status status, const char* reason) noexcept {
  while (calls_ != nullptr) {
    Call& call = *calls_;
    unlink(call);
    Completion completion;
    completion.status = status;
    try {
      completion.message = reason;
    } catch (...) {  // the status says enough
    }
    call.finish(std::move(completion));
  }
}

}  // namespace syncd::client
