// A smoke set of simulated runs: every policy, many seeds, and the program's own engine, session,
// codec and commit gate in a world in which everything goes wrong. A failure prints its seed.
//
//   SYNCD_PROPERTY_RUNS=<n>   n times as many runs
//
// tests/simulation/soak runs for as long as one likes. One thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "tests/support/property_runs.h"
#include "violation.h"
#include "world.h"

namespace syncd::simulation {

void PrintTo(const Workload& workload, std::ostream* out) {
  *out << workload.name;
}

namespace {

constexpr std::uint64_t kSeeds = 60;

class Simulation : public testing::TestWithParam<Workload> {};

TEST_P(Simulation, HoldsWhateverGoesWrong) {
  for (std::uint64_t seed = 1; seed <= kSeeds * test::property_runs(); ++seed) {
    try {
      run_world(GetParam(), seed);
    } catch (const Violation& violation) {
      FAIL() << violation.what() << "\n  tests/simulation/soak --policy '" << GetParam().name
             << "' --seed " << seed << " brings it back";
    }
  }
}

std::string label(const testing::TestParamInfo<Workload>& info) {
  std::string text = info.param.name;
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return text;
}

INSTANTIATE_TEST_SUITE_P(Policies, Simulation, testing::ValuesIn(workloads()), label);

// What longer runs have found; each failed once.
TEST(SimulationItself, SeedsThatFailedOnceDoNotAnyMore) {
  constexpr std::pair<const char*, std::uint64_t> kFound[] = {
      // A worker far ahead of those whose history a power cut had taken was granted one more.
      {"elastic_bsp:5", 77000391},
      {"elastic_bsp:1", 77000487},
      // A worker that was told of an end which its daemon then lost came back and began no more.
      {"ssp:0", 123000284},
  };
  for (const auto& [policy, seed] : kFound) {
    const auto& all = workloads();
    const auto found = std::find_if(all.begin(), all.end(), [name = policy](const Workload& one) {
      return std::string(name) == one.name;
    });
    ASSERT_NE(found, all.end()) << policy;
    EXPECT_NO_THROW(run_world(*found, seed)) << policy << " --seed " << seed;
  }
}

TEST(SimulationItself, IsTheSameForTheSameSeed) {
  for (const std::size_t index : {1U, 9U, 12U, 16U, 17U, 19U}) {
    const Workload& workload = workloads()[index];
    const Outcome one = run_world(workload, 7);
    const Outcome other = run_world(workload, 7);
    EXPECT_EQ(one.fingerprint, other.fingerprint) << workload.name;
    EXPECT_EQ(one.events, other.events) << workload.name;
    EXPECT_EQ(one.counts, other.counts) << workload.name;
    EXPECT_NE(one.fingerprint, run_world(workload, 8).fingerprint) << workload.name;
  }
}

// The runs are worth what they come across.
TEST(SimulationItself, ComesAcrossEverything) {
  std::map<std::string, std::uint64_t> counts;
  for (const Workload& workload : workloads()) {
    for (std::uint64_t seed = 1; seed <= 15; ++seed) {
      for (const auto& [what, count] : run_world(workload, seed).counts) counts[what] += count;
    }
  }
  for (const char* what : {"fault cut",
                           "fault partition",
                           "fault client killed",
                           "fault client frozen",
                           "fault daemon killed",
                           "fault power cut",
                           "fault daemon stopped",
                           "fault daemon frozen",
                           "fault disk slow",
                           "fault disk full",
                           "fault job stopped",
                           "fault policy switched",
                           "policy_switched",
                           "fault worker drained",
                           "fault worker kicked",
                           "fault worker leased",
                           "worker_draining",
                           "worker_leased",
                           "acknowledged",
                           "collected",
                           "granted",
                           "waits",
                           "advised",
                           "dropped",
                           "skip",
                           "worker_joined",
                           "worker_left",
                           "worker_lost",
                           "barrier",
                           "plan",
                           "push",
                           "view granted",
                           "members",
                           "log store_not_writable",
                           "log store_writable"}) {
    EXPECT_GT(counts[what], 0U) << "never came across: " << what;
  }
  if (HasFailure()) {
    for (const auto& [what, count] : counts) printf("%s: %lu\n", what.c_str(), count);
  }
}

}  // namespace
}  // namespace syncd::simulation
