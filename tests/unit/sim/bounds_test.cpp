// The iterations of two workers of a decentralized job never get further apart than Hop's table 1
// says, whatever the times; and where times are uneven enough the bounds are reached.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "daemon/core/topology/bounds.h"
#include "daemon/core/topology/graph_spec.h"
#include "tests/unit/sim/checker.h"

namespace syncd::sim {
namespace {

class BoundsObserver final : public Observer {
 public:
  explicit BoundsObserver(topology::GapBounds bounds)
      : bounds_(std::move(bounds)), clocks_(bounds_.size(), -1) {}

  void after_event(Simulation& simulation, const Event* event, const Effects& effects) override {
    (void)event;
    for (const Reply& reply : effects.replies) {
      const auto* granted = std::get_if<wire::Granted>(&reply.body);
      if (granted == nullptr) continue;
      const Rank i = static_cast<Rank>(reply.to.connection & UINT32_MAX) - 1;
      clocks_[i] = granted->iteration;
      for (Rank j = 0; j < clocks_.size(); ++j) {
        const auto& bound = bounds_(i, j);
        if (!bound || j == i) continue;
        const std::int64_t gap = clocks_[i] - clocks_[j];
        reached_ = reached_ || gap == *bound;
        if (gap > *bound && breaches_++ < 3) {
          ADD_FAILURE() << "at " << simulation.now() << " us worker " << i << " is " << gap
                        << " ahead of " << j << ", the bound is " << *bound;
        }
      }
    }
  }
  bool reached() const { return reached_; }

 private:
  topology::GapBounds bounds_;
  std::vector<Iteration> clocks_;
  bool reached_ = false;
  int breaches_ = 0;
};

struct Case {
  const char* policy;   // without the graph's name: "hop:%" has it for %
  const char* setting;  // as topology::parse_gap_setting reads it
  std::int64_t max_ig;  // 0: no token queues
};

constexpr Case kCases[] = {
    {"hop:%,max_ig=1", "standard", 1},
    {"hop:%,max_ig=4", "standard", 4},
    {"hop:%,max_ig=3,staleness=2", "staleness:2", 3},
    {"hop:%,max_ig=2,backup=1", "backup", 2},
    {"hop:%,max_ig=3,backup=1,skip=6", "backup", 3},
    {"hop:%,max_ig=3,backup=1,staleness=1", "hybrid", 3},
    {"notify_ack:%", "notify_ack", 0},
};

class Bounds : public testing::TestWithParam<Case> {};

TEST_P(Bounds, HoldAtEveryGrant) {
  bool reached = false;
  for (const char* graph_name : {"ring", "complete", "ring_directed", "root_expander"}) {
    std::string error;
    const auto spec = topology::parse_graph_spec(graph_name, error);
    ASSERT_TRUE(spec) << error;
    constexpr std::uint32_t kWorkers = 8;
    const std::vector<std::string> hosts(kWorkers);
    const auto graph = topology::generate(*spec, kWorkers, hosts, error);
    ASSERT_TRUE(graph) << error;
    const auto setting = topology::parse_gap_setting(GetParam().setting, error);
    ASSERT_TRUE(setting) << error;
    const std::optional<std::int64_t> max_ig =
        GetParam().max_ig > 0 ? std::optional(GetParam().max_ig) : std::nullopt;
    Options options;
    options.policy = GetParam().policy;
    options.policy.replace(options.policy.find('%'), 1, graph_name);
    SCOPED_TRACE(options.policy);
    options.workers = kWorkers;
    options.duration_us = 100'000'000;
    if (std::string wrong = check_options(options); !wrong.empty()) {
      // As many backup workers as a node of this graph has in-neighbours.
      ASSERT_NE(wrong.find("backup is 1 for worker 0, which has 1 in-neighbour"), std::string::npos)
          << wrong;
      EXPECT_STREQ(graph_name, "ring_directed");
      continue;
    }
    for (const char* slowdown : {"random:30x@0.05", "fixed:2=9x"}) {
      for (const bool serial : {false, true}) {
        BoundsObserver observer(topology::gap_bounds(*graph, *setting, max_ig));
        options.observer = &observer;
        options.iteration_time = *parse_iteration_time("lognormal:100,0.5", error);
        options.slowdown = *parse_slowdown(slowdown, error);
        options.serial = serial;
        const Result result = Simulation(options).run();
        EXPECT_FALSE(result.stalled);
        EXPECT_EQ(result.missing_updates, 0U);
        EXPECT_TRUE(result.refused.empty());
        reached = reached || observer.reached();
      }
    }
  }
  // A bound that nothing comes near would be a bound of something else.
  EXPECT_TRUE(reached);
}

std::string case_name(const testing::TestParamInfo<Case>& tested) {
  std::string name = tested.param.policy;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Table1, Bounds, testing::ValuesIn(kCases), case_name);

}  // namespace
}  // namespace syncd::sim
