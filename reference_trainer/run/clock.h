// Time as the worker loop sees it: a seam, so that tests run without sleeping. The system's clock
// may be used from any thread.
#pragma once

#include <cstdint>

namespace syncd::trainer {

class Clock {
 public:
  virtual ~Clock() = default;
  // Microseconds since an arbitrary moment that all processes of this machine share.
  virtual std::int64_t now_us() = 0;
  // Waits; may return early (a signal).
  virtual void sleep_us(std::int64_t us) = 0;
};

// CLOCK_MONOTONIC.
class SystemClock : public Clock {
 public:
  std::int64_t now_us() override;
  void sleep_us(std::int64_t us) override;
};

}  // namespace syncd::trainer
