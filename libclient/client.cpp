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
  explicit DetachedCall(std::function<void(Completion)> done) : done_(std::move(done)) {}

 private:
  void finish(Completion&& completion) noexcept override {
    done_(std::move(completion));
    delete this;
  }

  std::function<void(Completion)> done_;
};

Completion failure(Status status, std::string message) {
  return {0, status, std::move(message)};
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
  Completion completion = opened->call(options.connect_timeout_us,
                                       [](Session& made, const Ask& ask) { made.connect(ask); });
  if (completion.status == Status::kOk) client = std::move(opened);
  return completion;
}

Completion Client::perform(const MakeCall& make, TimeUs timeout_us) {
  if (forked()) return failure(Status::kForked, kForkedText);
  if (driver_->on_loop_thread()) {
    return failure(Status::kState, "an event's callback must not call a function that may block");
  }
  return driver_->perform(make, timeout_us);
}

void Client::begin_then(WorkerId worker, std::function<void(Completion)> done) {
  if (forked()) return done(failure(Status::kForked, kForkedText));
  auto call = std::make_unique<DetachedCall>(std::move(done));
  driver_->submit(*call,
                  [worker](Session& session, const Ask& ask) { session.begin(ask, worker); });
  static_cast<void>(call.release());  // submitted, it frees itself
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
