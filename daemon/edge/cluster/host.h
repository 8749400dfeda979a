// A daemon's process as a member of a cluster. It waits until the member leads, and hands out the
// store that main.cpp then serves. A member that leads no longer starts the program anew in the
// same process: nothing of an engine that others have overtaken can be left then.
#pragma once

#include <uv.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/edge/cluster/etcd.h"
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
    // Several times a second while it waits.
    std::function<void(const std::string& status)> on_waiting;
    std::function<void()> on_hangup;  // it got SIGHUP while it waits
    // Any thread, before the program is started anew.
    std::function<void()> on_restart;
  };
  Host(const config::Config& config, Options options);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Blocks until this member leads; the store is opened and nothing else done with it. Null: it got
  // SIGTERM or SIGINT, or, with a sentence in `error`, cannot take part.
  std::unique_ptr<store::Store> lead(std::string& error);

  // The store has been read: from now on the loop must turn, and does so without traffic, too.
  void watch(uv_loop_t* loop);
  // Before anything leaves. If this member leads no longer, it does not return.
  void check() {
    if (!membership_->may_answer()) restart("it leads no longer");
  }
  // The loop takes signals now: those that came since lead() began are raised again.
  void raise_signals();
  // The daemon stops: if it is deposed from now on, it ends instead of starting anew.
  void stopping() { is_stopping_ = true; }
  // The object may be destroyed when the loop has closed the handle.
  void close();
  // After the store was closed: the next leader need not wait for the lease.
  void leave() { membership_->leave(); }

 private:
  [[noreturn]] void restart(const std::string& reason);

  const config::Config config_;
  const Options options_;
  std::unique_ptr<Etcd> etcd_;
  std::unique_ptr<Membership> membership_;
  uv_timer_t timer_{};
  bool is_open_ = false;
  bool hung_up_ = false;  // while it waited
  std::atomic<bool> is_stopping_{false};
};

// Keeps the command line and the environment for Host. Call first in main(), once.
void keep_command_line(char** argv, char** environment);

}  // namespace syncd::cluster
