// See the header.
#include "daemon/edge/admin/manager_reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "daemon/edge/net/loop_guard.h"

namespace syncd::admin {
namespace {

constexpr std::uint64_t kRecoveringNs = 1'000'000'000;
// What a stop may take beyond timeouts.shutdown_timeout: the store's last writes, and its closing.
constexpr Micros kStopMarginUs = 20'000'000;
constexpr std::uint64_t kStatusMs = 10'000;

}  // namespace

void ManagerReports::recovering() {
  const std::uint64_t now_ns = uv_hrtime();
  if (told_ns_ != 0 && now_ns < told_ns_ + kRecoveringNs) return;
  told_ns_ = now_ns;
  manager_.tell("EXTEND_TIMEOUT_USEC=60000000\nWATCHDOG=1\nSTATUS=recovering from the store");
}

void ManagerReports::ready(uv_loop_t* loop) {
  if (!manager_.is_there()) return;
  tell_status("READY=1\n");
  if (std::exchange(is_open_, true)) return;
  uv_timer_init(loop, &timer_);
  timer_.data = this;
  const std::uint64_t watchdog_ms = manager_.watchdog_us() / 1000;
  const std::uint64_t every_ms =
      watchdog_ms == 0 ? kStatusMs : std::clamp<std::uint64_t>(watchdog_ms / 2, 1, kStatusMs);
  uv_timer_start(&timer_, net::guarded([](uv_timer_t* timer) {
    auto* self = static_cast<ManagerReports*>(timer->data);
    self->tell_status(self->manager_.watchdog_us() != 0 ? "WATCHDOG=1\n" : "");
  }),
                 every_ms, every_ms);
}

void ManagerReports::tell_status(const std::string& before) const {
  if (!manager_.is_there()) return;
  std::string status = status_();
  std::replace(status.begin(), status.end(), '\n', ' ');
  manager_.tell(fmt::format("{}STATUS={}", before, status));
}

void ManagerReports::stopping(Micros timeout_us, const std::string& reason) {
  // The service manager's own patience may be shorter than the time that a user has set.
  manager_.tell(fmt::format("STOPPING=1\nEXTEND_TIMEOUT_USEC={}\nSTATUS=stopping: {}",
                            timeout_us + kStopMarginUs, reason));
}

void ManagerReports::close() {
  if (is_open_) uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
}

}  // namespace syncd::admin
