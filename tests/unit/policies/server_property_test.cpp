// dssp, elastic_bsp and specsync in random worlds: their bounds at every grant, and no deadlock,
// whatever becomes of workers and daemon. SYNCD_PROPERTY_RUNS=N runs N times as many.
#include <gtest/gtest.h>

#include "server_world.h"
#include "tests/support/property_runs.h"

namespace syncd::test {
namespace {

PolicyUnderTest dssp(std::int64_t lower, std::int64_t upper) {
  return {"dssp:" + std::to_string(lower) + "-" + std::to_string(upper), upper, false, {}, 0, 0};
}

PolicyUnderTest elastic(std::int64_t horizon, const std::string& more = {}) {
  return {"elastic_bsp:" + std::to_string(horizon) + more,
          std::max(horizon, 2 * horizon - 1),
          true,
          {},
          0,
          0};
}

PolicyUnderTest specsync(const std::string& how, const PolicyUnderTest& base,
                         std::uint32_t max_restarts = 1) {
  PolicyUnderTest policy = base;
  policy.text = "specsync" + how + "+" + base.text;
  policy.max_restarts = max_restarts;
  return policy;
}

PolicyUnderTest fixed_pair(Micros time, double rate, const PolicyUnderTest& base,
                           std::uint32_t max_restarts = 1) {
  std::string how = ":fixed," + std::to_string(time / 1000) + "," + std::to_string(rate);
  how += ",max_restarts=" + std::to_string(max_restarts);
  PolicyUnderTest policy = specsync(how, base, max_restarts);
  policy.abort_time = time;
  policy.abort_rate = rate;
  return policy;
}

const PolicyUnderTest kAsp{"asp", {}, false, {}, 0, 0};
const PolicyUnderTest kSsp2{"ssp:2", 2, false, {}, 0, 0};

struct Totals {
  std::uint64_t grants = 0, at_bound = 0, barriers = 0, resyncs = 0, tunings = 0;
};

// Each policy in turn, with every mixture of trouble.
Totals run_all(const std::vector<PolicyUnderTest>& policies, bool switches, std::uint64_t seeds) {
  Totals totals;
  std::uint64_t seed = 0;
  for (std::uint64_t round = 0; round < seeds * property_runs(); ++round) {
    for (std::size_t first = 0; first < policies.size(); ++first) {
      std::mt19937_64 random(++seed * 31);
      ServerWorldOptions options;
      options.seed = seed;
      options.workers = 1 + static_cast<std::uint32_t>(random() % 8);
      options.membership = random() % 3 != 0;
      options.restarts = random() % 2 == 0;
      options.switches = switches;
      options.policies = {policies[first]};
      if (switches) {
        options.policies.insert(options.policies.end(), policies.begin(), policies.end());
      }
      try {
        ServerWorld world(options);
        world.run();
        totals.grants += world.grants();
        totals.at_bound += world.at_bound();
        totals.barriers += world.barriers();
        totals.resyncs += world.resyncs();
        totals.tunings += world.tunings();
      } catch (const ServerViolation& violation) {
        ADD_FAILURE() << violation.what();
        return totals;
      }
    }
  }
  return totals;
}

TEST(ServerProperty, DsspNeverExceedsItsUpperBound) {
  const Totals totals =
      run_all({dssp(0, 0), dssp(0, 3), dssp(1, 2), dssp(2, 9), dssp(3, 3)}, false, 40);
  EXPECT_GT(totals.grants, 10'000U);
  EXPECT_GT(totals.at_bound, 100U);  // the worlds come to where it matters
}

TEST(ServerProperty, ElasticBspKeepsParticipantsTogether) {
  const Totals totals =
      run_all({elastic(1), elastic(2), elastic(4, ",zipline_linked,ewma"), elastic(15, ",median"),
               elastic(6, ",objective=rate"), elastic(8, ",grid_scan,objective=rate,beta=3")},
              false, 40);
  EXPECT_GT(totals.grants, 10'000U);
  EXPECT_GT(totals.at_bound, 20U);
  EXPECT_GT(totals.barriers, 500U);
}

TEST(ServerProperty, SpecSyncTellsOnlyWhomItMay) {
  const Totals fixed = run_all({fixed_pair(5000, 0.1, kAsp), fixed_pair(8000, 0.3, kSsp2, 3),
                                fixed_pair(3000, 0, dssp(1, 5), 2)},
                               false, 40);
  EXPECT_GT(fixed.resyncs, 1000U);
  const Totals adaptive =
      run_all({specsync("", kAsp), specsync(":adaptive,auto_off=off", kAsp),
               specsync(":adaptive,scope=worker,cap=authors,max_restarts=2", kSsp2, 2),
               specsync(":adaptive,scope=worker,auto_off=off", dssp(0, 4))},
              false, 40);
  EXPECT_GT(adaptive.tunings, 500U);
  EXPECT_GT(adaptive.resyncs, 100U);
}

TEST(ServerProperty, JobsGoOnThroughPolicySwitches) {
  const std::vector<PolicyUnderTest> policies{dssp(1, 4), elastic(3), kSsp2, kAsp,
                                              specsync(":adaptive,auto_off=off", kAsp)};
  EXPECT_GT(run_all(policies, true, 40).barriers, 50U);
}

}  // namespace
}  // namespace syncd::test
