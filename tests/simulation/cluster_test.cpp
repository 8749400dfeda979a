// Seeded runs of a cluster's members against a model etcd. A failure prints its seed.
//
//   SYNCD_PROPERTY_RUNS=<n>   n times as many runs
//   SYNCD_PROPERTY_FIRST=<n>  the first seed (1): long runs can be cut in pieces
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cluster_world.h"
#include "tests/support/property_runs.h"
#include "violation.h"

namespace syncd::simulation {
namespace {

constexpr std::uint64_t kSeeds = 100;

TEST(ClusterSimulation, HoldsWhateverGoesWrong) {
  ClusterFigures sum;
  const auto add = [](std::uint64_t& to, std::uint64_t from) { to += from; };
  const std::uint64_t runs = kSeeds * test::property_runs();
  const char* text = std::getenv("SYNCD_PROPERTY_FIRST");
  const std::uint64_t first = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    try {
      const ClusterFigures one = run_cluster(seed);
      add(sum.acknowledged, one.acknowledged);
      add(sum.terms, one.terms);
      add(sum.entries, one.entries);
      add(sum.removals, one.removals);
      add(sum.rebuilt, one.rebuilt);
      add(sum.deposed, one.deposed);
      add(sum.unknown, one.unknown);
      add(sum.late, one.late);
      add(sum.failed, one.failed);
      add(sum.large, one.large);
      add(sum.given, one.given);
    } catch (const Violation& violation) {
      FAIL() << violation.what() << ", seed " << seed;
    }
  }
  // What a run is about did happen.
  std::printf(
      "%llu runs: acknowledged %llu, terms %llu, entries %llu, removals %llu, rebuilt %llu, "
      "deposed %llu, unknown %llu, late %llu, failed %llu, large %llu, given %llu\n",
      static_cast<unsigned long long>(runs), static_cast<unsigned long long>(sum.acknowledged),
      static_cast<unsigned long long>(sum.terms), static_cast<unsigned long long>(sum.entries),
      static_cast<unsigned long long>(sum.removals), static_cast<unsigned long long>(sum.rebuilt),
      static_cast<unsigned long long>(sum.deposed), static_cast<unsigned long long>(sum.unknown),
      static_cast<unsigned long long>(sum.late), static_cast<unsigned long long>(sum.failed),
      static_cast<unsigned long long>(sum.large), static_cast<unsigned long long>(sum.given));
  EXPECT_GT(sum.acknowledged, 100 * runs);
  EXPECT_GT(sum.entries, 100 * runs);
  EXPECT_GT(sum.terms, 5 * runs);
  EXPECT_GT(sum.removals, runs);
  for (const std::uint64_t figure : {sum.rebuilt, sum.deposed, sum.unknown, sum.late}) {
    EXPECT_GT(figure, runs);
  }
  EXPECT_GT(sum.failed, runs / 4);
  EXPECT_GT(sum.large, runs / 25);
  EXPECT_GT(sum.given, runs);
}

// Mistakes that the runs must notice.
void must_fail(ClusterMistake mistake) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    try {
      run_cluster(seed, mistake);
    } catch (const Violation& violation) {
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), violation.what());
      return;
    }
  }
  FAIL() << "nothing was noticed";
}

TEST(ClusterSimulation, NoticesALogWithoutItsFence) {
  must_fail(ClusterMistake::kSkipsTheFence);
}
TEST(ClusterSimulation, NoticesALogWithoutItsTail) {
  must_fail(ClusterMistake::kSkipsTheTail);
}
TEST(ClusterSimulation, NoticesALeaseThatCountsFromItsAnswer) {
  must_fail(ClusterMistake::kGrantsTooLong);
}
TEST(ClusterSimulation, NoticesALeaderThatServesWhileItHandsOver) {
  must_fail(ClusterMistake::kServesOn);
}

}  // namespace
}  // namespace syncd::simulation
