// Measures how long a libuv loop is busy between two waits. Loop thread.
#pragma once

#include <uv.h>

#include <cstdint>

#include "daemon/core/engine/counters.h"
#include "daemon/edge/net/loop_guard.h"

namespace syncd::admin {

class LoopMonitor {
 public:
  // Before the loop runs.
  explicit LoopMonitor(uv_loop_t* loop) {
    uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
    uv_prepare_init(loop, &prepare_);
    prepare_.data = this;
    uv_prepare_start(&prepare_, net::guarded([](uv_prepare_t* handle) {
      static_cast<LoopMonitor*>(handle->data)->on_turn();
    }));
    uv_unref(reinterpret_cast<uv_handle_t*>(&prepare_));
  }
  LoopMonitor(const LoopMonitor&) = delete;
  LoopMonitor& operator=(const LoopMonitor&) = delete;
  // The object may be destroyed when the loop has closed the handle.
  void close() { uv_close(reinterpret_cast<uv_handle_t*>(&prepare_), nullptr); }

  const SpanHistogram& turns() const { return turns_; }

 private:
  // Just before the loop waits: what has passed since the last time here, without the waiting.
  void on_turn() {
    const std::uint64_t now_ns = uv_hrtime();
    const std::uint64_t idle_ns = uv_metrics_idle_time(prepare_.loop);
    const std::uint64_t passed_ns = now_ns - last_ns_;
    const std::uint64_t waited_ns = idle_ns - last_idle_ns_;
    if (last_ns_ != 0 && passed_ns > waited_ns) {
      turns_.add(static_cast<Micros>((passed_ns - waited_ns) / 1000));
    }
    last_ns_ = now_ns;
    last_idle_ns_ = idle_ns;
  }

  uv_prepare_t prepare_{};
  SpanHistogram turns_;
  std::uint64_t last_ns_ = 0;
  std::uint64_t last_idle_ns_ = 0;
};

}  // namespace syncd::admin
