// Time as the worker loop sees it: a seam, so that tests run without sleeping. The system's clock
// may be used from any thread.
#pragma once

#include <cstdint>
#include <ctime>

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
  std::int64_t now_us() override {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
  }
  void sleep_us(std::int64_t us) override {
    if (us <= 0) return;
    const timespec span{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1'000};
    ::clock_nanosleep(CLOCK_MONOTONIC, 0, &span, nullptr);
  }
};

}  // namespace syncd::trainer
