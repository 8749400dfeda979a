// Measures how long a libuv loop is busy between two waits. Loop thread.
#pragma once

#include <uv.h>

#include <cstdint>

#include "daemon/edge/admin/snapshot.h"

namespace syncd::admin {

class LoopMonitor {
 public:
  // Before the loop runs.
  explicit LoopMonitor(uv_loop_t* loop);
  LoopMonitor(const LoopMonitor&) = delete;
  LoopMonitor& operator=(const LoopMonitor&) = delete;
  // The object may be destroyed when the loop has closed the handle.
  void close();

  const LoopFigures& figures() const { return figures_; }

 private:
  void on_turn();

  uv_prepare_t prepare_{};
  LoopFigures figures_;
  std::uint64_t last_ns_ = 0;
  std::uint64_t last_idle_ns_ = 0;
};

}  // namespace syncd::admin
