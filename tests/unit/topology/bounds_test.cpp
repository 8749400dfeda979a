#include "daemon/core/topology/bounds.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <queue>
#include <random>
#include <set>

#include "tests/unit/topology/support.h"

namespace syncd::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GapSetting setting(const std::string& text) {
  std::string error;
  const auto parsed = parse_gap_setting(text, error);
  EXPECT_TRUE(parsed) << error;
  return parsed.value_or(GapSetting{});
}

// Row i as numbers; -1: unbounded.
std::vector<std::int64_t> row(const GapBounds& bounds, Node i) {
  std::vector<std::int64_t> values;
  for (Node j = 0; j < bounds.size(); ++j) values.push_back(bounds(i, j).value_or(-1));
  return values;
}

TEST(GapSetting, ParsesEverySettingAndRefusesOthers) {
  EXPECT_EQ(setting("staleness:5").staleness, 5);
  EXPECT_EQ(setting("staleness:0").kind, GapSetting::Kind::kStaleness);
  EXPECT_EQ(setting("hybrid").kind, GapSetting::Kind::kHybrid);
  std::string error;
  EXPECT_FALSE(parse_gap_setting("bounded", error));
  EXPECT_EQ(error,
            "setting 'bounded' is unknown: allowed are standard, staleness:S, backup, hybrid, "
            "notify_ack");
  for (const char* text : {"staleness:", "staleness:-1", "staleness:2x", "staleness:9999999999"}) {
    EXPECT_FALSE(parse_gap_setting(text, error)) << text;
    EXPECT_THAT(error, HasSubstr("allowed are whole numbers from 0 to 1000000000"));
  }
}

// Directed ring 0 -> 1 -> 2 -> 3 -> 0: |P(j->i)| = (i - j) mod 4.
TEST(GapBounds, OfADirectedRing) {
  const Graph ring = make("ring_directed", 4);
  EXPECT_THAT(row(gap_bounds(ring, setting("standard")), 1), ElementsAre(1, 0, 3, 2));
  EXPECT_THAT(row(gap_bounds(ring, setting("staleness:2")), 1), ElementsAre(3, 0, 9, 6));
  EXPECT_THAT(row(gap_bounds(ring, setting("backup")), 1), ElementsAre(-1, 0, -1, -1));
  EXPECT_THAT(row(gap_bounds(ring, setting("hybrid")), 1), ElementsAre(-1, 0, -1, -1));
  // |P(1->j)|: 3 to 0, 1 to 2, 2 to 3.
  EXPECT_THAT(row(gap_bounds(ring, setting("notify_ack")), 1), ElementsAre(1, 0, 2, 2));
  EXPECT_THAT(row(gap_bounds(ring, setting("standard"), 2), 1), ElementsAre(1, 0, 2, 2));
  EXPECT_THAT(row(gap_bounds(ring, setting("staleness:2"), 4), 1), ElementsAre(3, 0, 4, 6));
  EXPECT_THAT(row(gap_bounds(ring, setting("backup"), 4), 1), ElementsAre(12, 0, 4, 8));
  EXPECT_THAT(row(gap_bounds(ring, setting("hybrid"), 4), 1), ElementsAre(12, 0, 4, 8));
}

TEST(GapBounds, WithoutAPathAreUnboundedThatWay) {
  const Graph chain = from_edges(2, {{0, 1}});
  EXPECT_THAT(row(gap_bounds(chain, setting("standard")), 0), ElementsAre(0, -1));
  EXPECT_THAT(row(gap_bounds(chain, setting("standard")), 1), ElementsAre(1, 0));
  EXPECT_THAT(row(gap_bounds(chain, setting("standard"), 3), 0), ElementsAre(0, 3));
  EXPECT_THAT(row(gap_bounds(chain, setting("notify_ack")), 0), ElementsAre(0, 2));
  EXPECT_EQ(gap_bounds(Graph(1, {}), setting("backup"))(0, 0), 0);
}

// All states that workers can reach when they step by the rule itself, counted from the slowest
// and cut off where nothing new can come, against the table. `enter` says whether worker i, at
// clocks c, may enter c_i + 1.
template <class Enter>
std::vector<std::vector<std::int64_t>> widest_gaps(const Graph& graph, Enter enter) {
  const std::size_t n = graph.size();
  using State = std::vector<std::int64_t>;
  std::set<State> seen{State(n, 0)};
  std::queue<State> open;
  open.push(State(n, 0));
  std::vector<std::vector<std::int64_t>> widest(n, std::vector<std::int64_t>(n, 0));
  while (!open.empty()) {
    const State state = open.front();
    open.pop();
    for (Node i = 0; i < n; ++i) {
      for (Node j = 0; j < n; ++j) widest[i][j] = std::max(widest[i][j], state[i] - state[j]);
      if (!enter(state, i)) continue;
      State next = state;
      ++next[i];
      const std::int64_t least = *std::min_element(next.begin(), next.end());
      for (std::int64_t& clock : next) clock -= least;
      if (seen.insert(next).second) open.push(next);
    }
  }
  return widest;
}

void expect_tight(const Graph& graph, const GapBounds& bounds,
                  const std::vector<std::vector<std::int64_t>>& widest) {
  for (Node i = 0; i < graph.size(); ++i) {
    for (Node j = 0; j < graph.size(); ++j) {
      EXPECT_EQ(bounds(i, j), widest[i][j]) << "c_" << i << " - c_" << j << "\n"
                                            << to_edge_list(graph);
    }
  }
}

// Theorems 1 and 2 say "at most"; on these rules the bounds are also reached.
TEST(GapBounds, AreTheWidestGapsThatTheRulesThemselvesAllow) {
  std::mt19937 random(11);
  for (int round = 0; round < 30; ++round) {
    const std::size_t n = 2 + random() % 3;
    std::vector<Edge> edges;
    for (Node i = 0; i < n; ++i) {
      edges.push_back({i, static_cast<Node>((i + 1) % n)});
      for (Node j = 0; j < n; ++j) {
        if (random() % 4 == 0) edges.push_back({i, j});
      }
    }
    const Graph graph(n, edges);
    const auto forward = [&](const std::vector<std::int64_t>& c, Node i, std::int64_t slack) {
      for (const Node j : graph.in(i)) {
        if (c[i] + 1 - c[j] > slack) return false;
      }
      return true;
    };
    const auto backward = [&](const std::vector<std::int64_t>& c, Node i, std::int64_t slack) {
      for (const Node j : graph.out(i)) {
        if (c[i] + 1 - c[j] > slack) return false;
      }
      return true;
    };
    expect_tight(graph, gap_bounds(graph, setting("standard")),
                 widest_gaps(graph, [&](const auto& c, Node i) { return forward(c, i, 1); }));
    expect_tight(graph, gap_bounds(graph, setting("staleness:1")),
                 widest_gaps(graph, [&](const auto& c, Node i) { return forward(c, i, 2); }));
    expect_tight(graph, gap_bounds(graph, setting("backup"), 2),
                 widest_gaps(graph, [&](const auto& c, Node i) { return backward(c, i, 2); }));
    // With both rules a path may mix steps of either kind, so the table is a bound, not always
    // reached.
    const GapBounds both = gap_bounds(graph, setting("staleness:1"), 3);
    const auto widest = widest_gaps(
        graph, [&](const auto& c, Node i) { return forward(c, i, 2) && backward(c, i, 3); });
    for (Node i = 0; i < n; ++i) {
      for (Node j = 0; j < n; ++j) EXPECT_LE(widest[i][j], both(i, j).value());
    }
  }
}

}  // namespace
}  // namespace syncd::topology
