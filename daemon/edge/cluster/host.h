// A daemon's process as a member of a cluster. It follows on a thread of its own until the member
// leads, and hands out the store that is then served. A member that leads no longer starts
// the program anew in the same process: nothing of an engine that others have overtaken can be left
// then. Loop thread but where noted.
#pragma once

#include <uv.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/cluster/member_view.h"
#include "daemon/edge/cluster/membership.h"
#include "daemon/edge/config/config.h"
#include "daemon/edge/store/store.h"

namespace syncd::cluster {

class Host {
 public:
  struct Options {
    std::string version;
    store::Options store;
    std::function<void(const LogLine&)> log;  // any thread
    // Any thread, before the program is started anew.
    std::function<void()> on_restart;
    // Once, while this member leads: it is to stop serving, and to call follow_again(), so that the
    // member that is named can lead. After give_away() it is to end instead; the name may be empty,
    // because no other could lead.
    std::function<void(const std::string& member)> on_hand_over;
  };
  // A store: this member leads; the store is opened and nothing else done with it. Null: it was
  // told to stop, or, with a sentence in `error`, cannot take part.
  using OnEnd = std::function<void(std::unique_ptr<store::Store> store, const std::string& error)>;

  Host(const config::Config& config, Options options);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Begins to follow; `on_end` is called once. False, with a sentence in `error`: it cannot.
  bool follow(uv_loop_t* loop, OnEnd on_end, std::string& error);
  // This configuration was read anew, and is in force.
  void reloaded(const config::Config& config);
  // The daemon stops. `on_end` comes soon, if it has not been called; if the member is deposed from
  // now on, the process ends with this status instead of starting anew.
  void stop(int exit_code) {
    exit_code_ = exit_code;
    is_stopping_ = true;
  }
  bool is_following() const { return thread_.joinable(); }
  // In `on_end`, without a store: what is wrong is in the configuration.
  bool is_misconfigured() const { return membership_->is_misconfigured(); }
  // watch() has succeeded, and close() was not called.
  bool is_watching() const { return is_watched_ && attending_.joinable(); }
  // The daemon that leads, and watches, is to stop: on_hand_over() comes soon. If it is deposed
  // before, the process ends with this status.
  void give_away(int exit_code) {
    exit_code_ = exit_code;
    is_going_ = true;
  }

  // The store has been read: from now on the loop must turn, and does so without traffic, too.
  // False, with a sentence in `error`: it cannot watch the cluster.
  bool watch(std::string& error);
  // Before anything leaves. If this member leads no longer, it does not return.
  void check() {
    if (!membership_->may_answer()) restart("it leads no longer");
  }
  // The object may be destroyed when the loop has closed the handle.
  void close();
  // Before watch(): some of the store has been read.
  void recovering() { membership_->turned(); }
  // Before watch(): a job, which another member may be able to read. This one starts anew, and from
  // then on leads only where no other member is fit; if it has done that, the call returns.
  void cannot_read(const std::string& why);
  // After the store was closed: the next leader need not wait for the lease.
  void leave();
  // The same, for the member that on_hand_over() has named; and the program starts anew and
  // follows.
  [[noreturn]] void follow_again();

  // Any thread, after follow().
  MemberView view() const { return membership_->view(); }
  // Of who leads.
  Shard shards() const { return membership_->shards(); }
  std::string whereabouts(Shard shard) const { return membership_->whereabouts(shard); }

 private:
  void run();
  void on_end();
  void attend();
  void on_attended();
  [[noreturn]] void restart(const std::string& reason, bool is_unfit = false);
  [[noreturn]] void start_anew();
  Micros unfit_for(bool is_unfit) const;

  const config::Config config_;
  const Options options_;
  OnEnd on_end_;
  std::unique_ptr<Etcd> etcd_;
  std::unique_ptr<Membership> membership_;
  uv_loop_t* loop_ = nullptr;
  uv_async_t ended_{};
  uv_timer_t timer_{};
  bool is_watched_ = false;
  std::atomic<std::int64_t> watched_at_ns_{0};
  Micros unfit_for_ = 0;  // of this process, from its beginning
  bool cannot_read_ = false;
  std::atomic<int> exit_code_{0};
  std::atomic<bool> is_stopping_{false};

  // That attends to the cluster while this member leads.
  std::thread attending_;
  std::atomic<bool> is_leaving_{false};
  std::atomic<bool> is_going_{false};
  uv_async_t attended_{};
  std::string successor_;  // for the loop, from the thread that attends

  std::thread thread_;  // that follows; joined before the loop's thread reads what it has left
  std::unique_ptr<store::Store> store_;
  std::string error_;
  std::exception_ptr failure_;
};

// Keeps the command line and the environment for Host, and the process's name when the program was
// started anew. Call first in main(), once.
void keep_command_line(char** argv, char** environment);

}  // namespace syncd::cluster
