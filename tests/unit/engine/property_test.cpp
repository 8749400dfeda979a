// Random runs of the engine: joins, begins, pushes, repeats, withdrawals, cut connections, deaths,
// returns, losses, stops, a store that fails and a daemon that dies, under every policy, each step
// judged by a naive model. A failure prints its seed and its last events.
//
//   SYNCD_PROPERTY_SEED=<n>  runs that one seed only    SYNCD_PROPERTY_RUNS=<n>  n times as many
//   runs
//
// One thread.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/support/property_runs.h"
#include "world.h"

namespace syncd::test {

// For GoogleTest's messages.
void PrintTo(const Rules& rules, std::ostream* out) {
  *out << rules.text;
}

namespace {

using Kind = Rules::Kind;

const std::vector<Rules> kPolicies = {
    {"asp", Kind::kAsp, 0, 1, 0, {}},
    {"ssp:0", Kind::kSsp, 0, 1, 0, {}},
    {"ssp:1", Kind::kSsp, 1, 1, 0, {}},
    {"ssp:3", Kind::kSsp, 3, 1, 0, {}},
    {"bsp", Kind::kBsp, 0, 1, 0, {}},
    {"bsp:3", Kind::kBsp, 0, 3, 0, {}},
    {"bsp,backup=1", Kind::kBsp, 0, 1, 1, {}},
    {"bsp:2,backup=1", Kind::kBsp, 0, 2, 1, {}},
    {"bsp:3,backup=2", Kind::kBsp, 0, 3, 2, {}},
    {"naive_wait:50+asp", Kind::kAsp, 0, 1, 0, 50'000},
    {"naive_wait:20+ssp:1", Kind::kSsp, 1, 1, 0, 20'000},
    {"naive_wait:0+bsp", Kind::kBsp, 0, 1, 0, 0},
    {"naive_wait:30+bsp:2,backup=1", Kind::kBsp, 0, 2, 1, 30'000},
};

std::uint64_t environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
}

WorldOptions with_seed(WorldOptions options, std::uint64_t seed) {
  options.seed = seed;
  options.durable = seed % 4 != 0;
  options.processes = static_cast<int>(1 + seed % 6);
  return options;
}

// False: it failed, and has said so.
bool run_one(const WorldOptions& options) {
  try {
    World(options).run();
    return true;
  } catch (const Violation& violation) {
    ADD_FAILURE() << violation.what() << "\nseed " << options.seed
                  << " (SYNCD_PROPERTY_SEED=" << options.seed << ")";
  }
  // Once more, for what led to it.
  WorldOptions traced = options;
  traced.traced = true;
  World world(traced);
  try {
    world.run();
  } catch (const Violation&) {
    ADD_FAILURE() << "last events: " << world.trace();
  }
  return false;
}

class EngineProperty : public testing::TestWithParam<Rules> {
 protected:
  // Runs `runs` seeds, or the one that the environment names.
  void run_all(WorldOptions options, std::uint64_t first_seed, std::uint64_t runs) {
    options.rules = GetParam();
    runs *= property_runs();
    if (std::getenv("SYNCD_PROPERTY_SEED") != nullptr) {
      first_seed = environment("SYNCD_PROPERTY_SEED", 0);
      runs = 1;
    }
    for (std::uint64_t seed = first_seed; seed < first_seed + runs; ++seed) {
      if (!run_one(with_seed(options, seed))) return;
    }
  }
};

TEST_P(EngineProperty, HoldsInManyShortRuns) {
  WorldOptions options;
  options.steps = 150;
  run_all(options, 1, 200);
}

TEST_P(EngineProperty, HoldsInLongRuns) {
  WorldOptions options;
  options.steps = 4000;
  run_all(options, 100'000, 6);
}

// The runs above are worth what they come across: everything that the engine can answer and record
// about these policies, and every fault.
TEST(EnginePropertyCoverage, RandomRunsComeAcrossEverything) {
  std::map<std::string, std::uint64_t> counts;
  WorldOptions options;
  options.steps = 400;
  options.rules = kPolicies[7];
  ASSERT_EQ(options.rules.text, "bsp:2,backup=1");
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    World world(with_seed(options, seed));
    ASSERT_NO_THROW(world.run()) << "seed " << seed;
    for (const auto& [kind, count] : world.counts()) counts[kind] += count;
  }
  for (const char* kind : {"job_created",
                           "job_started",
                           "job_stopped",
                           "job_reassembling",
                           "job_started resumed",
                           "worker_joined returned",
                           "Granted PULL RESUMED",
                           "Granted PULL SKIP RESUMED",
                           "worker_joined",
                           "worker_joined resumed",
                           "worker_replaced",
                           "worker_resumed",
                           "worker_disconnected",
                           "worker_slow",
                           "worker_left",
                           "worker_lost",
                           "push",
                           "push LATE",
                           "Joined",
                           "Joined resumed",
                           "Granted ",
                           "Granted PULL",
                           "Granted PULL SKIP",
                           "Granted STOP",
                           "Pushed",
                           "Pushed LATE",
                           "Pushed duplicate",
                           "Pushed LATE duplicate",
                           "Ok",
                           "Explanation",
                           "SYNCD_E_CANCELLED",
                           "SYNCD_E_CLOSED",
                           "SYNCD_E_FENCED",
                           "SYNCD_E_RANK_TAKEN",
                           "SYNCD_E_STATE",
                           "SYNCD_E_STORE",
                           "SYNCD_E_WRONG_ITERATION",
                           "crash",
                           "crash with a snapshot",
                           "crash with an empty store",
                           "replay",
                           "phase",
                           "manage",
                           "worker_draining",
                           "worker_leased",
                           "MembersReply",
                           "MembersNotice"}) {
    EXPECT_GT(counts[kind], 0U) << "never came across: " << kind;
  }
}

std::string policy_label(const testing::TestParamInfo<Rules>& info) {
  std::string label = info.param.text;
  for (char& c : label) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return label;
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineProperty, testing::ValuesIn(kPolicies), policy_label);

}  // namespace
}  // namespace syncd::test
