// The connections of one client. The jobs of a cluster may be spread over shards, each with a
// daemon of its own: the first driver serves the shard that it meets, and one more is made for each
// other shard when one of its jobs is named. With one shard there is one driver. In a child of
// fork() every call answers kForked, and the last reference leaks what belongs to the parent.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "libclient/driver.h"
#include "libclient/endpoint.h"
#include "libclient/fork_mark.h"
#include "proto/transport/tls.h"

namespace syncd::client {

struct ClientOptions {
  std::vector<Endpoint> endpoints;  // at least one
  SessionOptions session;
  tls::ClientSettings tls;  // for endpoints of kind kTls
  std::string server_name;  // for which their certificates must be made out; empty: their hosts
  TimeUs connect_timeout_us = 10'000'000;  // kNever: no limit
};

class Drivers final {
 public:
  // Makes the first driver, connects, and waits for the daemon's welcome. On success `drivers` is
  // set; otherwise the completion has the reason: kInvalid (files of `tls` that cannot be used),
  // kUnreachable, kProtocol, kAuth, kLimit (also one of this process: no descriptors or threads
  // left), or whatever else a daemon refused us for.
  static Completion open(ClientOptions options, std::shared_ptr<Drivers>& drivers);
  // The same, where the files are read already.
  static Completion open(std::vector<Endpoint> endpoints, SessionOptions session, DriverTls tls,
                         TimeUs connect_timeout_us, std::shared_ptr<Drivers>& drivers);

  // Any thread, without waiting.
  const std::shared_ptr<Driver>& first() const { return first_; }
  std::uint32_t first_shard() const { return first_shard_; }
  std::uint32_t shards() const { return shards_; }  // of the cluster; 1: all jobs are with first()

  // Any thread: the driver for the job of this name, or "#ID". One that has not been connected yet
  // is waited for, for at most `timeout_us` and the connect timeout. On success `driver` is set;
  // otherwise the completion has the reason, as open(), or kClosed, kCancelled, kForked, and kState
  // in a callback.
  Completion driver_for(std::string_view job, TimeUs timeout_us, std::shared_ptr<Driver>& driver);
  // The same for a shard. Precondition: shard < shards().
  Completion driver_of(std::uint32_t shard, TimeUs timeout_us, std::shared_ptr<Driver>& driver);

  // As the driver's, of all of them.
  void stop() noexcept;
  void silence() noexcept;
  bool on_loop_thread() const noexcept { return first_->on_loop_thread(); }
  bool forked() const noexcept { return fork_mark_.forked(); }

 private:
  struct Entry {
    std::shared_ptr<Driver> driver;
    bool was_connected = false;
  };

  Drivers(std::vector<Endpoint> endpoints, SessionOptions session, DriverTls tls,
          TimeUs connect_timeout_us);
  Completion make(std::int32_t shard, std::shared_ptr<Driver>& driver) const;
  Completion find(std::uint32_t shard, Entry& entry);
  template <typename Do>
  void for_each(const Do& act) {
    act(*first_);
    for (auto& [shard, entry] : others_) act(*entry.driver);
  }

  const ForkMark fork_mark_;
  const std::vector<Endpoint> endpoints_;
  const SessionOptions session_;
  const DriverTls tls_;
  const TimeUs connect_timeout_us_;

  // As open() left them.
  std::shared_ptr<Driver> first_;
  std::uint32_t first_shard_ = 0;
  std::uint32_t shards_ = 1;

  std::mutex mutex_;
  std::map<std::uint32_t, Entry> others_;  // by shard; nothing is added once it is closed
  bool closed_ = false;
};

}  // namespace syncd::client
