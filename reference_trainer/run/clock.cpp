// The system's monotonic clock: see clock.h. No thread of its own.
#include "reference_trainer/run/clock.h"

#include <ctime>

namespace syncd::trainer {

std::int64_t SystemClock::now_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
}

void SystemClock::sleep_us(std::int64_t us) {
  if (us <= 0) return;
  const timespec span{.tv_sec = us / 1'000'000, .tv_nsec = us % 1'000'000 * 1'000};
  ::clock_nanosleep(CLOCK_MONOTONIC, 0, &span, nullptr);
}

}  // namespace syncd::trainer
