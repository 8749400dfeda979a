// Seeded runs of a cluster's members with daemons and clients, under every policy. A failure prints
// its seed.
//
//   SYNCD_PROPERTY_RUNS=<n>  n times as many runs
//
// tests/simulation/soak --cluster runs for as long as one likes. One thread.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>

#include "tests/support/property_runs.h"
#include "violation.h"
#include "world.h"

namespace syncd::simulation {
namespace {

// Of each policy.
#if defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kSeedsOfDaemons = 3;
#else
constexpr std::uint64_t kSeedsOfDaemons = 24;
#endif

TEST(SimulationOfDaemons, HoldsWhateverGoesWrong) {
  std::map<std::string, std::uint64_t> counts;
  std::uint64_t runs = 0;
  for (const Workload& workload : workloads()) {
    for (std::uint64_t seed = 1; seed <= kSeedsOfDaemons * test::property_runs(); ++seed, ++runs) {
      try {
        for (const auto& [what, count] : run_cluster_world(workload, seed).counts) {
          counts[what] += count;
        }
      } catch (const Violation& violation) {
        FAIL() << violation.what() << "\n  tests/simulation/soak --cluster --policy '"
               << workload.name << "' --seed " << seed << " brings it back";
      }
    }
  }
  // The runs are worth what they come across.
  std::printf("%llu runs\n", static_cast<unsigned long long>(runs));
  for (const char* what : {"acknowledged",
                           "granted",
                           "view granted",
                           "members",
                           "waits",
                           "worker_lost",
                           "cluster terms",
                           "cluster entries",
                           "cluster removals",
                           "cluster unknown",
                           "cluster late",
                           "cluster failed",
                           "cluster given",
                           "take-over",
                           "take-over while workers wait",
                           "push sent again",
                           "never committed: push",
                           "never committed: worker_lost",
                           "lease over",
                           "answers of a stale leader",
                           "copy rebuilt",
                           "fault copy lost",
                           "fault copy cut",
                           "fault leader frozen",
                           "fault member cut off from clients"}) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(counts[what]), what);
    EXPECT_GT(counts[what], 0U) << "never came across: " << what;
  }
}

TEST(SimulationOfDaemons, IsTheSameForTheSameSeed) {
  const Workload& workload = workloads().front();
  const Outcome one = run_cluster_world(workload, 7);
  const Outcome other = run_cluster_world(workload, 7);
  EXPECT_EQ(one.fingerprint, other.fingerprint);
  EXPECT_EQ(one.events, other.events);
  EXPECT_EQ(one.counts, other.counts);
}

// Mistakes that the runs must notice.
void daemons_must_fail(ClusterMistake mistake) {
  std::uint64_t runs = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    for (const Workload& workload : workloads()) {
      ++runs;
      try {
        run_cluster_world(workload, seed, false, mistake);
      } catch (const Violation& violation) {
        std::printf("run %llu, %s, seed %llu: %s\n", static_cast<unsigned long long>(runs),
                    workload.name.c_str(), static_cast<unsigned long long>(seed), violation.what());
        return;
      }
    }
  }
  FAIL() << "nothing was noticed";
}

TEST(SimulationOfDaemons, NoticesALogWithoutItsFence) {
  daemons_must_fail(ClusterMistake::kSkipsTheFence);
}
TEST(SimulationOfDaemons, NoticesALogWithoutItsTail) {
  daemons_must_fail(ClusterMistake::kSkipsTheTail);
}
TEST(SimulationOfDaemons, NoticesALeaderThatOutlivesItsLease) {
  daemons_must_fail(ClusterMistake::kOutlivesLease);
}

}  // namespace
}  // namespace syncd::simulation
