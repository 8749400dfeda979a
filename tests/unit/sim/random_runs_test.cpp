// Random runs of every policy with losses, leaves, joins, returns and switches: what all policies
// keep must hold at every event, and nothing may come to a stand.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/random.h"
#include "tests/unit/sim/checker.h"

namespace syncd::sim {
namespace {

using test::Random;

const std::vector<std::string> kParameterServer = {
    "asp",
    "bsp",
    "bsp:3",
    "bsp,backup=1",
    "bsp:2,backup=2",
    "ssp:0",
    "ssp:3",
    "naive_wait:40+ssp:2",
    "dssp:1-4",
    "dssp:0-8",
    "dssp:3-3",
    "naive_wait:20+dssp:1-5",
    "specsync:fixed,60,0.2+asp",
    "specsync:fixed,40,0.1,max_restarts=3+ssp:2",
    "specsync:adaptive+dssp:1-4",
    "specsync:adaptive,scope=worker,auto_off=off+asp",
    "elastic_bsp:1",
    "elastic_bsp:5",
    "elastic_bsp:15",
    "elastic_bsp:10,ewma,objective=rate,beta=4",
};
const std::vector<std::string> kDecentralized = {
    "hop:ring",
    "hop:complete,max_ig=2",
    "hop:ring,max_ig=1",
    "hop:ring,max_ig=4,backup=1",
    "hop:complete,max_ig=3,backup=2,skip=5",
    "hop:ring,max_ig=4,staleness=3",
    "hop:ring,max_ig=4,staleness=2,skip=10",
    "hop:ring_directed,max_ig=3",
    "hop:star,max_ig=3",
    "notify_ack:ring",
    "notify_ack:complete",
    "notify_ack:ring_directed",
};

const char* const kTimes[] = {"constant:100", "uniform:50-200", "uniform_each:50-200",
                              "lognormal:100,0.8"};
const char* const kSlowdowns[] = {"none", "random:6x@1/n", "random:20x@0.02", "fixed:1=4x"};

// A job of 3 to 10 workers of whom at least `fewest` are there at any time.
Options random_options(Random& random, const std::vector<std::string>& policies,
                       std::uint32_t fewest) {
  Options options;
  std::string error;
  options.seed = random.next();
  options.policy = random.pick(const_cast<std::vector<std::string>&>(policies));
  options.workers = static_cast<std::uint32_t>(random.between(4, 10));
  options.iteration_time = *parse_iteration_time(kTimes[random.below(4)], error);
  options.slowdown = *parse_slowdown(kSlowdowns[random.below(4)], error);
  options.delay_us = random.one_in(2) ? 0 : random.between(1, 50'000);
  options.plan_delay_us = random.one_in(2) ? 0 : random.between(1, 500'000);
  options.duration_us = 60'000'000;
  options.worker_grace_us = random.between(0, 3'000'000);
  options.serial = policies == kDecentralized && random.one_in(3);

  std::vector<Rank> there;
  for (Rank rank = 0; rank < options.workers; ++rank) there.push_back(rank);
  std::vector<Rank> away;
  Rank next_rank = options.workers;
  Micros at = random.between(3'000'000, 8'000'000);  // after the job has started
  while (at < options.duration_us) {
    if (random.one_in(3) && there.size() > fewest) {
      const std::size_t which = random.below(there.size());
      const auto kind = random.one_in(2) ? TimedEvent::Kind::kFail : TimedEvent::Kind::kLeave;
      options.events.push_back({at, kind, there[which], {}});
      away.push_back(there[which]);
      there.erase(there.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (random.one_in(2) && !away.empty()) {
      // At times at once: before it was missed.
      const std::size_t which = random.below(away.size());
      options.events.push_back({at, TimedEvent::Kind::kJoin, away[which], {}});
      there.push_back(away[which]);
      away.erase(away.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (random.one_in(3) && there.size() < 14) {
      there.push_back(next_rank);
      options.events.push_back({at, TimedEvent::Kind::kJoin, next_rank++, {}});
    } else if (policies == kParameterServer && random.one_in(2)) {
      options.events.push_back({at, TimedEvent::Kind::kSwitch, 0,
                                random.pick(const_cast<std::vector<std::string>&>(policies))});
    }
    at += random.one_in(4) ? 0 : random.between(1, 6'000'000);
  }
  return options;
}

std::string describe(const Options& options) {
  std::string text = options.policy + ", " + std::to_string(options.workers) + " workers, delay " +
                     std::to_string(options.delay_us) + " us, seed " + std::to_string(options.seed);
  for (const TimedEvent& event : options.events) {
    const char* names[] = {"fail", "leave", "join", "switch"};
    text += "\n  " + std::to_string(event.at) +
            " us: " + names[static_cast<std::size_t>(event.kind)] + " " +
            (event.policy.empty() ? std::to_string(event.rank) : event.policy);
  }
  return text;
}

class RandomRuns : public testing::TestWithParam<std::uint64_t> {};

TEST_P(RandomRuns, ParameterServerPoliciesKeepTheirPromises) {
  Random random(GetParam());
  for (int run = 0; run < 60; ++run) {
    const Options options = random_options(random, kParameterServer, 3);
    SCOPED_TRACE(describe(options));
    const Result result = test::run_checked(options);
    // Nobody starves: 20 slow iterations in a row would be shorter.
    EXPECT_LT(result.longest_wait_us, 40'000'000);
    if (HasFailure()) return;
  }
}

TEST_P(RandomRuns, DecentralizedPoliciesKeepTheirPromises) {
  Random random(GetParam() + 1000);
  for (int run = 0; run < 60; ++run) {
    const Options options = random_options(random, kDecentralized, 4);
    SCOPED_TRACE(describe(options));
    test::run_checked(options);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRuns, testing::Range<std::uint64_t>(0, 6));

}  // namespace
}  // namespace syncd::sim
