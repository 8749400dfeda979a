// RocksDB on a disk that loses its power, for many seeds; see rocks_world.h. A failure prints its
// seed.
//
//   SYNCD_PROPERTY_RUNS=<n>   n times as many runs
#include <gtest/gtest.h>

#include "rocks_world.h"
#include "tests/support/property_runs.h"
#include "violation.h"

namespace syncd::simulation {
namespace {

// Each part in a test of its own, so that they run beside each other.
constexpr std::uint64_t kSeeds = 1000;

class RocksOnADisk : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RocksOnADisk, KeepsWhatWasCommitted) {
  RocksCounts counts;
  const std::uint64_t seeds = kSeeds * test::property_runs();
  for (std::uint64_t seed = 1 + GetParam() * seeds; seed <= (GetParam() + 1) * seeds; ++seed) {
    try {
      for (const auto& [what, count] : run_rocks_world(seed)) counts[what] += count;
    } catch (const Violation& violation) {
      FAIL() << violation.what() << "\n  simulation_rocks_soak --seed " << seed
             << " --runs 1 brings it back";
    }
  }
  // The runs are worth what they come across.
  for (const char* what : {"opened",
                           "did not open, with a reason",
                           "more than was reported",
                           "lost what was not committed",
                           "commit failed",
                           "closed in good order",
                           "power cut",
                           "kill",
                           "cut at append",
                           "cut at sync",
                           "cut at create",
                           "cut at rename",
                           "cut at directory sync",
                           "failed append",
                           "failed sync",
                           "partial append",
                           "disk full",
                           "slow sync",
                           "torn file",
                           "lost change of a directory"}) {
    EXPECT_GT(counts[what], 0U) << "never came across: " << what;
  }
  if (HasFailure()) {
    for (const auto& [what, count] : counts) printf("%s: %lu\n", what.c_str(), count);
  }
}

INSTANTIATE_TEST_SUITE_P(Part, RocksOnADisk, testing::Values(0U, 1U, 2U));

}  // namespace
}  // namespace syncd::simulation
