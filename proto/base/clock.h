// Readings of the system's clocks, and moments as text. Any thread.
#pragma once

#include <time.h>

#include <cstdint>
#include <string>

namespace syncd {

inline std::int64_t clock_ns(clockid_t clock) {
  timespec at{};
  clock_gettime(clock, &at);
  return std::int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

// Since 1970.
inline std::int64_t wall_clock_us() {
  return clock_ns(CLOCK_REALTIME) / 1000;
}

// "2026-11-01T00:00:00Z"; with 3 or 6 decimals "2026-11-01T00:00:00.000Z".
std::string utc_text(std::int64_t wall_clock_us, int decimals = 0);

}  // namespace syncd
