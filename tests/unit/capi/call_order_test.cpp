// Calls of the C interface in whatever order, with whatever numbers: each answers a code of the
// header's with a sentence, leaves what it must leave alone, and nothing breaks or hangs.
// SYNCD_PROPERTY_RUNS=N makes N times as many. Made for the sanitizers; tests/fuzz/capi_calls.cpp
// makes the same calls.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "support/files.h"
#include "tests/support/capi_calls.h"
#include "tests/support/choices.h"
#include "tests/support/property_runs.h"

namespace syncd::test {
namespace {

void fail(const std::string& what) {
  ADD_FAILURE() << what;
}

TEST(CallOrder, AnyOrderIsAnswered) {
  std::uint64_t granted = 0;
  std::uint64_t failed = 0;
  // A call may time out before a slow machine grants it: there, more seeds come to as many grants.
  const auto enough = [&](std::uint64_t seeds) {
    return seeds > 160 * property_runs() || (seeds > 40 * property_runs() && granted > 200);
  };
  for (std::uint64_t seed = 1; !enough(seed) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const TempDir directory;
    SeededChoices choices(seed);
    CapiCalls calls(directory.file("socket"), choices, fail);
    if (seed % 4 == 0) calls.with_servers();
    for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) calls.call();
    granted += calls.granted();
    failed += calls.failed();
  }
  EXPECT_GT(granted, 200U);
  EXPECT_GT(failed, 500U);
}

}  // namespace
}  // namespace syncd::test
