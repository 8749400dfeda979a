#include "daemon/core/topology/graph.h"

#include <gmock/gmock.h>

#include <numeric>
#include <random>

#include "tests/unit/topology/support.h"

namespace syncd::topology {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Graph, SortsNeighboursAndDropsRepeatsAndSelfLoops) {
  const Graph graph = from_edges(4, {{2, 0}, {1, 0}, {2, 0}, {0, 0}, {0, 3}});
  EXPECT_EQ(graph.size(), 4u);
  EXPECT_EQ(graph.edges(), 3u);
  EXPECT_THAT(graph.in(0), ElementsAre(1, 2));
  EXPECT_THAT(graph.out(0), ElementsAre(3));
  EXPECT_THAT(graph.in(3), ElementsAre(0));
  EXPECT_THAT(graph.out(3), IsEmpty());
  EXPECT_THAT(graph.out(2), ElementsAre(0));
}

TEST(Graph, SubgraphRenamesWhatStays) {
  const Graph graph = from_edges(5, {{0, 1}, {1, 2}, {2, 4}, {4, 0}, {4, 1}});
  EXPECT_EQ(graph.subgraph(std::vector<Node>{1, 2, 4}), from_edges(3, {{0, 1}, {1, 2}, {2, 0}}));
  EXPECT_EQ(graph.subgraph({}), Graph());
  EXPECT_EQ(graph.subgraph(std::vector<Node>{0, 1, 2, 3, 4}), graph);
}

TEST(Graph, KnowsDegrees) {
  const Graph star = make("star", 5);
  const DegreeRange range = degree_range(star);
  EXPECT_EQ(range.in_min, 1u);
  EXPECT_EQ(range.in_max, 4u);
  EXPECT_EQ(range.out_min, 1u);
  EXPECT_EQ(range.out_max, 4u);
  EXPECT_FALSE(is_regular(star));
  EXPECT_TRUE(is_regular(make("ring_directed", 5)));
  // The same numbers on either side, but not the same number everywhere.
  EXPECT_FALSE(is_regular(from_edges(2, {{0, 1}})));
}

TEST(Graph, TellsDirections) {
  EXPECT_TRUE(is_undirected(make("ring", 5)));
  EXPECT_FALSE(is_undirected(make("ring_directed", 5)));
  EXPECT_TRUE(is_undirected(make("ring_directed", 2)));
}

TEST(Graph, TellsWhetherEveryNodeReachesEveryOther) {
  EXPECT_TRUE(is_strongly_connected(Graph()));
  EXPECT_TRUE(is_strongly_connected(Graph(1, {})));
  EXPECT_FALSE(is_strongly_connected(Graph(2, {})));
  EXPECT_FALSE(is_strongly_connected(from_edges(3, {{0, 1}, {1, 2}})));          // none back to 0
  EXPECT_FALSE(is_strongly_connected(from_edges(3, {{1, 0}, {2, 1}, {1, 2}})));  // 0 reaches none
  EXPECT_TRUE(is_strongly_connected(from_edges(3, {{0, 1}, {1, 2}, {2, 0}})));
}

TEST(Graph, MeasuresDistances) {
  const Graph graph = from_edges(4, {{0, 1}, {1, 2}, {2, 0}, {2, 3}});
  EXPECT_EQ(diameter(graph), std::nullopt);
  const Distances all(graph);
  for (Node to = 0; to < 4; ++to) {
    EXPECT_EQ(all(0, to), to);
    EXPECT_EQ(all(3, to), to == 3 ? 0 : kUnreachable);
  }
  EXPECT_EQ(diameter(Graph(1, {})), 0u);
  EXPECT_EQ(diameter(make("ring_directed", 6)), 5u);
  EXPECT_EQ(diameter(make("ring", 7)), 3u);
  EXPECT_EQ(diameter(make("complete", 9)), 1u);
  EXPECT_EQ(diameter(make("ring_based", 8)), 2u);
}

// Floyd and Warshall's way gives the same on graphs made at random.
TEST(Graph, DistancesAgreeWithAnotherAlgorithm) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    const std::size_t n = 1 + random() % 12;
    std::vector<Edge> edges;
    std::vector<std::vector<std::uint64_t>> far(n, std::vector<std::uint64_t>(n, kUnreachable));
    for (Node i = 0; i < n; ++i) {
      far[i][i] = 0;
      for (Node j = 0; j < n; ++j) {
        if (i == j || random() % 4 != 0) continue;
        edges.push_back({i, j});
        far[i][j] = 1;
      }
    }
    for (Node k = 0; k < n; ++k) {
      for (Node i = 0; i < n; ++i) {
        for (Node j = 0; j < n; ++j) far[i][j] = std::min(far[i][j], far[i][k] + far[k][j]);
      }
    }
    const Graph graph(n, edges);
    const Distances distances(graph);
    std::uint64_t longest = 0;
    for (Node i = 0; i < n; ++i) {
      for (Node j = 0; j < n; ++j) {
        EXPECT_EQ(distances(i, j), std::min<std::uint64_t>(far[i][j], kUnreachable));
        longest = std::max(longest, far[i][j]);
      }
    }
    EXPECT_EQ(is_strongly_connected(graph), longest < kUnreachable);
    EXPECT_EQ(diameter(graph),
              longest < kUnreachable ? std::optional<std::uint32_t>(longest) : std::nullopt);
  }
}

TEST(Weights, EqualOnesShareAlike) {
  const RowWeights row = row_weights(make("ring", 5), Weighting::kEqual, 2);
  EXPECT_DOUBLE_EQ(row.own, 1.0 / 3);
  EXPECT_THAT(row.in, ElementsAre(DoubleEq(1.0 / 3), DoubleEq(1.0 / 3)));
  EXPECT_DOUBLE_EQ(row_weights(Graph(1, {}), Weighting::kEqual, 0).own, 1);
}

TEST(Weights, MetropolisOnesOfAStar) {
  const Graph star = make("star", 4);
  const RowWeights centre = row_weights(star, Weighting::kMetropolis, 0);
  EXPECT_DOUBLE_EQ(centre.own, 0.25);
  EXPECT_THAT(centre.in, ElementsAre(DoubleEq(0.25), DoubleEq(0.25), DoubleEq(0.25)));
  const RowWeights leaf = row_weights(star, Weighting::kMetropolis, 3);
  EXPECT_DOUBLE_EQ(leaf.own, 0.75);
  EXPECT_THAT(leaf.in, ElementsAre(DoubleEq(0.25)));
}

TEST(Weights, MetropolisOnesAreSymmetricAndSumToOne) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const std::size_t n = 2 + random() % 10;
    std::vector<Edge> edges;
    for (Node i = 0; i < n; ++i) {
      for (Node j = 0; j < i; ++j) {
        if (random() % 2 == 0) continue;
        edges.push_back({i, j});
        edges.push_back({j, i});
      }
    }
    const Graph graph(n, edges);
    std::vector<std::vector<double>> matrix(n, std::vector<double>(n, 0));
    for (Node i = 0; i < n; ++i) {
      const RowWeights row = row_weights(graph, Weighting::kMetropolis, i);
      ASSERT_EQ(row.in.size(), graph.in(i).size());
      for (std::size_t k = 0; k < row.in.size(); ++k) matrix[i][graph.in(i)[k]] = row.in[k];
      matrix[i][i] = row.own;
      EXPECT_GT(row.own, 0);
      EXPECT_NEAR(std::accumulate(matrix[i].begin(), matrix[i].end(), 0.0), 1, 1e-12);
    }
    for (Node i = 0; i < n; ++i) {
      for (Node j = 0; j < n; ++j) EXPECT_DOUBLE_EQ(matrix[i][j], matrix[j][i]);
    }
  }
}

TEST(Acceptance, RegularGraphsGetEqualWeights) {
  for (const char* name : {"complete", "ring", "ring_directed", "ring_based", "double_ring",
                           "root_expander", "halton"}) {
    const Acceptance answer = accept_for_job(make(name, 8));
    EXPECT_TRUE(answer.accepted) << name;
    EXPECT_EQ(answer.weighting, Weighting::kEqual);
    EXPECT_EQ(answer.reason, "");
    EXPECT_TRUE(is_doubly_stochastic(make(name, 8))) << name;
  }
}

TEST(Acceptance, UndirectedGraphsOfUnequalDegreesGetMetropolisWeights) {
  const Acceptance answer = accept_for_job(make("star", 5));
  EXPECT_TRUE(answer.accepted);
  EXPECT_EQ(answer.weighting, Weighting::kMetropolis);
  EXPECT_THAT(answer.reason, HasSubstr("Metropolis"));
  EXPECT_FALSE(is_doubly_stochastic(make("star", 5)));
}

TEST(Acceptance, RefusesWhatIsNotStronglyConnected) {
  const Acceptance answer = accept_for_job(from_edges(3, {{0, 1}, {1, 0}, {1, 2}}), true);
  EXPECT_FALSE(answer.accepted);
  EXPECT_THAT(answer.reason, HasSubstr("what worker 2 learns never reaches worker 0"));
  EXPECT_THAT(accept_for_job(from_edges(3, {{1, 2}})).reason,
              HasSubstr("what worker 0 learns never reaches worker 1"));
  EXPECT_EQ(
      accept_for_job(Graph(2, {}), true).reason,
      "the graph has no edges, so no worker would send to any other: each needs one to it and "
      "one from it");
}

TEST(Acceptance, TakesUnevenDirectedGraphsByForceAlone) {
  const Graph uneven = from_edges(3, {{0, 1}, {1, 2}, {2, 0}, {0, 2}});
  Acceptance answer = accept_for_job(uneven);
  EXPECT_FALSE(answer.accepted);
  EXPECT_THAT(answer.reason, HasSubstr("worker 0 receives from 1 and sends to 2"));
  answer = accept_for_job(uneven, true);
  EXPECT_TRUE(answer.accepted);
  EXPECT_EQ(answer.weighting, Weighting::kEqual);
  EXPECT_THAT(answer.reason, HasSubstr("by force"));
}

TEST(Acceptance, RefusesDirectedGraphsWhoseWorkersDiffer) {
  // Two directed triangles that share node 0: as many in as out everywhere, but not equally many.
  const Graph graph = from_edges(5, {{0, 1}, {1, 2}, {2, 0}, {0, 3}, {3, 4}, {4, 0}});
  const Acceptance answer = accept_for_job(graph);
  EXPECT_FALSE(answer.accepted);
  EXPECT_THAT(answer.reason, HasSubstr("degrees differ"));
}

TEST(Acceptance, OneWorkerNeedsNobody) {
  EXPECT_TRUE(accept_for_job(Graph(1, {})).accepted);
  EXPECT_TRUE(accept_for_job(Graph()).accepted);
}

}  // namespace
}  // namespace syncd::topology
