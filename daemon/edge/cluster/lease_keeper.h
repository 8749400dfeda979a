// Keeps a member's lease alive, on a thread of its own, and says until when the member may grant.
//
// A keep-alive counts only once etcd's quorum has answered a read after it, in the same raft term:
// an etcd leader that has lost the others answers keep-alives for some time (3.5.16 for more than a
// second, without asking anybody), while its successor may let the lease expire.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/core/cluster/lease.h"
#include "daemon/edge/cluster/etcd.h"

namespace syncd::cluster {

// What the clocks say now.
Clocks read_clocks();

class LeaseKeeper {
 public:
  struct Options {
    Micros lease = 0;
    std::string read_key;  // for that read
  };

  LeaseKeeper(Options options, LeaseId id, Etcd& etcd);
  ~LeaseKeeper();
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;

  // ---- any thread

  LeaseId id() const { return id_; }
  bool may_grant() const { return left() > 0; }
  // For how long it may.
  Micros left() const;
  // etcd has said that there is no such lease: it does not come back.
  bool is_lost() const;
  // Why the latest attempt to keep it did not count; empty: it did, or there was none.
  std::string problem() const;
  // The loop has turned. If it has not for a third of the lease, the lease is not kept alive: a
  // loop that hangs must not hold its shards.
  void turned() { turned_us_.store(boot_us(), std::memory_order_relaxed); }
  // While `held`, turned() may be called seldom: the loop's thread reads a large store. One that
  // does not come on must not hold its shards either: its disk may hang.
  void hold(bool held);

 private:
  static Micros boot_us();
  void run();
  Etcd::LeaseAnswer ask(bool granted);
  bool loop_turns() const;

  const Options options_;
  const LeaseId id_;
  Etcd& etcd_;
  std::atomic<Micros> turned_us_;
  std::atomic<bool> held_{false};

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  Lease lease_;
  std::string problem_;
  bool stop_ = false;

  std::thread thread_;  // last
};

}  // namespace syncd::cluster
