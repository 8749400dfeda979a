// What a daemon's service manager hears of it, from its start to its end. Loop thread.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <string>

#include "daemon/core/engine/types.h"
#include "daemon/edge/admin/notify.h"

namespace syncd::admin {

class ManagerReports {
 public:
  // `status`: a line that says what the daemon does. Called from ready() on.
  explicit ManagerReports(std::function<std::string()> status) : status_(std::move(status)) {}
  ManagerReports(const ManagerReports&) = delete;
  ManagerReports& operator=(const ManagerReports&) = delete;

  // Call it again and again while the store is read: each time extends the manager's patience.
  void recovering();
  // From now on the loop tells the status, and feeds the watchdog: one that is stalled is noticed.
  // Another call tells the status at once.
  void ready(uv_loop_t* loop);
  void reloading() const { manager_.tell_reloading(); }
  void reloaded() const { tell_status("READY=1\n"); }
  void stopping(Micros timeout_us, const std::string& reason);
  // The object may be destroyed when the loop has closed the handle.
  void close();

 private:
  void tell_status(const std::string& before) const;

  const std::function<std::string()> status_;
  ServiceManager manager_;
  uv_timer_t timer_{};
  bool is_open_ = false;
  std::uint64_t told_ns_ = 0;
};

}  // namespace syncd::admin
