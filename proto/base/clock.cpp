// See clock.h.
#include "proto/base/clock.h"

#include <cstdio>

namespace syncd {

std::string utc_text(std::int64_t wall_clock_us, int decimals) {
  const std::int64_t us = ((wall_clock_us % 1'000'000) + 1'000'000) % 1'000'000;
  const time_t seconds = (wall_clock_us - us) / 1'000'000;
  tm utc{};
  if (gmtime_r(&seconds, &utc) == nullptr) return {};
  char text[64];
  std::size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  if (decimals > 0) {
    char fraction[16];
    std::snprintf(fraction, sizeof fraction, ".%06d", static_cast<int>(us));
    return std::string(text, length).append(fraction, static_cast<std::size_t>(decimals) + 1) + "Z";
  }
  return std::string(text, length) + "Z";
}

}  // namespace syncd
