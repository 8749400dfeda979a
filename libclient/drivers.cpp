// See drivers.h.
#include "libclient/drivers.h"

#include <algorithm>
#include <utility>

#include "proto/base/shard.h"

namespace syncd::client {
namespace {

// A forked child has no loop thread to end, the loop's descriptors are its parent's, and a thread
// of the parent's may have held a lock: all of it is left alone.
template <typename Made>
std::shared_ptr<Made> share(Made* made) {
  return {made, [](Made* last) {
            if (!last->forked()) delete last;
          }};
}

Completion connect(Driver& driver, TimeUs timeout_us) {
  return driver.perform([](Session& session, const Ask& ask) { session.connect(ask); }, timeout_us);
}

}  // namespace

Drivers::Drivers(std::vector<Endpoint> endpoints, SessionOptions session, DriverTls tls,
                 TimeUs connect_timeout_us)
    : endpoints_(std::move(endpoints)),
      session_(std::move(session)),
      tls_(std::move(tls)),
      connect_timeout_us_(connect_timeout_us) {}

Completion Drivers::open(ClientOptions options, std::shared_ptr<Drivers>& drivers) {
  std::string error;
  DriverTls tls{nullptr, std::move(options.server_name)};
  if (!make_tls(options.endpoints, options.tls, tls, error)) return {0, Status::kInvalid, error};
  return open(std::move(options.endpoints), std::move(options.session), std::move(tls),
              options.connect_timeout_us, drivers);
}

Completion Drivers::open(std::vector<Endpoint> endpoints, SessionOptions session, DriverTls tls,
                         TimeUs connect_timeout_us, std::shared_ptr<Drivers>& drivers) {
  std::shared_ptr<Drivers> opened = share(
      new Drivers(std::move(endpoints), std::move(session), std::move(tls), connect_timeout_us));
  Completion completion = opened->make(opened->session_.link.shard, opened->first_);
  if (completion.status != Status::kOk) return completion;
  completion = connect(*opened->first_, connect_timeout_us);
  if (completion.status != Status::kOk) return completion;
  if (const auto* connected = std::get_if<ConnectResult>(&completion.result)) {
    opened->first_shard_ = connected->shard;
    opened->shards_ = connected->shards;
  }
  drivers = std::move(opened);
  return completion;
}

Completion Drivers::make(std::int32_t shard, std::shared_ptr<Driver>& driver) const {
  SessionOptions session = session_;
  session.link.shard = shard;
  std::shared_ptr<Driver> made = share(new Driver(endpoints_, std::move(session), tls_, this));
  std::string error;
  if (!made->start(error)) {
    return {0, Status::kLimit, "the client's thread cannot be started: " + error};
  }
  driver = std::move(made);
  return {};
}

Completion Drivers::driver_for(std::string_view job, TimeUs timeout_us,
                               std::shared_ptr<Driver>& driver) {
  return driver_of(shard_of(job, shards_), timeout_us, driver);
}

// A driver stays, also where it could not be connected in time: it goes on trying, and the next
// call for its shard waits for it.
Completion Drivers::driver_of(std::uint32_t shard, TimeUs timeout_us,
                              std::shared_ptr<Driver>& driver) {
  if (shards_ == 1 || shard == first_shard_) {
    driver = first_;
    return {};
  }
  if (forked()) return {0, Status::kForked, kForkedText};
  Entry entry;
  Completion completion = find(shard, entry);
  if (completion.status == Status::kOk && !entry.was_connected) {
    completion = connect(*entry.driver, std::min(timeout_us, connect_timeout_us_));
  }
  if (completion.status != Status::kOk) {
    completion.message = "shard " + std::to_string(shard) + ": " + completion.message;
    return completion;
  }
  if (!entry.was_connected) {
    const std::lock_guard lock(mutex_);
    others_[shard].was_connected = true;
  }
  driver = std::move(entry.driver);
  return completion;
}

Completion Drivers::find(std::uint32_t shard, Entry& entry) {
  const std::lock_guard lock(mutex_);
  const auto found = others_.find(shard);
  if (found != others_.end()) {
    entry = found->second;
    return {};
  }
  if (closed_) return {0, Status::kClosed, "the client is closed"};
  Completion completion = make(static_cast<std::int32_t>(shard), entry.driver);
  if (completion.status == Status::kOk) others_.emplace(shard, entry);
  return completion;
}

// All are told before one is waited for: a callback of one may wait for a thread that is in a call
// of another.
void Drivers::stop() noexcept {
  if (forked()) return;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for_each([](Driver& driver) { driver.cancel(); });
  }
  for_each([](Driver& driver) { driver.stop(); });
}

void Drivers::silence() noexcept {
  if (forked()) return;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for_each([](Driver& driver) { driver.silence(); });
}

}  // namespace syncd::client
