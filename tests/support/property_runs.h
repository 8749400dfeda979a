// How many times as many random runs as usual the environment asks of a test. Any thread.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace syncd::test {

// SYNCD_PROPERTY_RUNS=<n>; 1 where it is not set, or is no number.
inline std::uint64_t property_runs() {
  const char* text = std::getenv("SYNCD_PROPERTY_RUNS");
  const std::uint64_t runs = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  return runs == 0 ? 1 : runs;
}

}  // namespace syncd::test
