// Blocking calls over the driver. Any thread.
#include "libclient/client.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "libclient/driver.h"

namespace syncd::client {
namespace {

// Only the back-off's jitter depends on it.
std::uint64_t make_seed() {
  std::uint64_t seed = static_cast<std::uint64_t>(Driver::now_us());
  seed ^= static_cast<std::uint64_t>(getpid()) << 40;
  try {
    std::random_device device;
    seed ^= (std::uint64_t{device()} << 32) | device();
  } catch (const std::exception&) {  // time and pid differ between workers well enough
  }
  return seed;
}

// A call that nobody waits for: it frees itself.
class DetachedCall final : public Call {
 public:
  DetachedCall(Command command, std::function<void(Completion)> done)
      : Call(std::move(command), Timeout{}), done_(std::move(done)) {}

 private:
  void finish(Completion completion) noexcept override {
    done_(std::move(completion));
    delete this;
  }

  std::function<void(Completion)> done_;
};

Completion failure(Status status, std::string message) {
  Completion completion;
  completion.status = status;
  completion.message = std::move(message);
  return completion;
}

Completion forked_failure() {
  return failure(Status::kForked, kForkedText);
}

}  // namespace

Client::Client(std::unique_ptr<Driver> driver) : driver_(std::move(driver)) {}

// A forked child has no loop thread to end, and the loop's descriptors are its parent's: all of it
// is left alone.
Client::~Client() {
  if (forked()) {
    static_cast<void>(driver_.release());
  } else {
    close();
  }
}

Completion Client::open(ClientOptions options, std::shared_ptr<Client>& client) {
  SessionOptions session;
  for (const Endpoint& endpoint : options.endpoints) {
    session.link.endpoints.push_back(endpoint.text());
  }
  session.link.client_name = std::move(options.client_name);
  session.link.client_version = std::move(options.client_version);
  session.link.token = std::move(options.token);
  session.link.seed = make_seed();
  session.reconnect_timeout_us = options.reconnect_timeout_us;
  std::string error;
  DriverTls tls{nullptr, std::move(options.server_name)};
  const auto is_tls = [](const Endpoint& endpoint) {
    return endpoint.kind == Endpoint::Kind::kTls;
  };
  if (std::any_of(options.endpoints.begin(), options.endpoints.end(), is_tls)) {
    tls.context = tls::Context::client(options.tls, error);
    if (tls.context == nullptr) return failure(Status::kInvalid, std::move(error));
  }
  auto driver =
      std::make_unique<Driver>(std::move(options.endpoints), std::move(session), std::move(tls));
  if (!driver->start(error)) {
    return failure(Status::kLimit, "the client's thread cannot be started: " + error);
  }
  std::shared_ptr<Client> opened;
  Driver* started = driver.get();
  try {
    opened.reset(new Client(std::move(driver)));
  } catch (...) {
    if (driver) started->stop();
    throw;
  }
  Completion completion = opened->call(ConnectCommand{}, options.connect_timeout_us);
  if (completion.status == Status::kOk) client = std::move(opened);
  return completion;
}

template <typename Given>
Completion Client::call(Given&& command, TimeUs timeout_us) {
  if (forked()) return forked_failure();
  if (driver_->on_loop_thread()) {
    return failure(Status::kState, "an event's callback must not call a function that may block");
  }
  Call call(Command(std::forward<Given>(command)), Timeout::after(timeout_us, Driver::now_us()));
  return driver_->perform(call);
}

Completion Client::join(JoinRequest request, TimeUs timeout_us) {
  return call(std::move(request), timeout_us);
}

Completion Client::begin(WorkerId worker, TimeUs timeout_us) {
  return call(BeginCommand{worker}, timeout_us);
}

void Client::begin_then(WorkerId worker, std::function<void(Completion)> done) {
  if (forked()) return done(forked_failure());
  auto call = std::make_unique<DetachedCall>(BeginCommand{worker}, std::move(done));
  driver_->submit(*call);
  static_cast<void>(call.release());  // submitted, it frees itself
}

Completion Client::push(WorkerId worker, std::int64_t iteration, const PushInfo& info,
                        TimeUs timeout_us) {
  return call(PushCommand{worker, iteration, info}, timeout_us);
}

Completion Client::targets(WorkerId worker, std::int64_t iteration, TimeUs timeout_us) {
  return call(IterationCommand{worker, iteration, &Session::targets}, timeout_us);
}

Completion Client::collect(WorkerId worker, std::int64_t iteration, TimeUs timeout_us) {
  return call(IterationCommand{worker, iteration, &Session::collect}, timeout_us);
}

Completion Client::consumed(WorkerId worker, std::int64_t iteration, TimeUs timeout_us) {
  return call(IterationCommand{worker, iteration, &Session::consumed}, timeout_us);
}

Completion Client::restarted(WorkerId worker, std::int64_t iteration, TimeUs timeout_us) {
  return call(IterationCommand{worker, iteration, &Session::restarted}, timeout_us);
}

Completion Client::phase(WorkerId worker, std::string name, TimeUs lease_us, TimeUs timeout_us) {
  return call(PhaseCommand{worker, std::move(name), lease_us}, timeout_us);
}

Completion Client::leave(WorkerId worker, TimeUs timeout_us) {
  return call(LeaveCommand{worker}, timeout_us);
}

Completion Client::explain(WorkerId worker, TimeUs timeout_us) {
  return call(ExplainCommand{worker}, timeout_us);
}

Completion Client::members(WorkerId worker, TimeUs timeout_us) {
  return call(MembersCommand{worker}, timeout_us);
}

Completion Client::cancel_begin(WorkerId worker, TimeUs timeout_us) {
  return call(CancelBeginCommand{worker}, timeout_us);
}

void Client::release(WorkerId worker) noexcept {
  if (!forked()) driver_->release(worker);
}

bool Client::on_own_thread() const noexcept {
  return driver_->on_loop_thread();
}

void Client::silence() noexcept {
  driver_->silence();
}

void Client::close() noexcept {
  if (!forked()) driver_->stop();
}

}  // namespace syncd::client
