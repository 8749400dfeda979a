// What a daemon's service manager hears of it, from its start to its end. Loop thread.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/edge/admin/notify.h"
#include "daemon/edge/server/server_view.h"

namespace syncd::admin {

class ManagerReports {
 public:
  // `view` is called from ready() on.
  explicit ManagerReports(std::function<server::ServerView()> view) : view_(std::move(view)) {}
  ManagerReports(const ManagerReports&) = delete;
  ManagerReports& operator=(const ManagerReports&) = delete;

  // Call it again and again while the store is read: each time extends the manager's patience.
  void recovering();
  // The daemon is there, and waits for its turn to serve. Call it again and again.
  void waiting(const std::string& status);
  // From now on the loop tells the status, and feeds the watchdog: one that is stalled is noticed.
  void ready(uv_loop_t* loop);
  void reloading() const { manager_.tell_reloading(); }
  void reloaded() const { tell_status("READY=1\n"); }
  void stopping(Micros timeout_us, const std::string& reason);
  // The object may be destroyed when the loop has closed the handle.
  void close();

 private:
  void tell_status(const std::string& before) const;

  const std::function<server::ServerView()> view_;
  ServiceManager manager_;
  uv_timer_t timer_{};
  bool is_open_ = false;
  bool is_stopping_ = false;
  std::uint64_t told_ns_ = 0;
};

}  // namespace syncd::admin
