#include "daemon/core/topology/graph_spec.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tests/unit/topology/support.h"

namespace syncd::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

MembershipGraph membership(const std::string& text, std::size_t active,
                           const std::vector<std::string>& hosts = {}) {
  std::vector<Node> ranks(active);
  for (std::size_t i = 0; i < active; ++i) ranks[i] = static_cast<Node>(3 * i + 1);
  std::string error;
  const auto made = generate_for_membership(spec_of(text), ranks, hosts, error);
  EXPECT_TRUE(made) << error;
  return made.value_or(MembershipGraph{});
}

TEST(GraphSpec, ParsesEveryNameAndWritesItAgain) {
  for (const char* text :
       {"complete", "ring", "ring_directed", "ring_based", "double_ring", "root_expander", "star",
        "halton", "clustered", "clustered_links", "file:/a/b.csv"}) {
    EXPECT_EQ(spec_of(text).text(), text);
    EXPECT_THAT(known_graphs(), HasSubstr(std::string(text).substr(0, 5)));
  }
}

TEST(GraphSpec, RefusesUnknownNames) {
  std::string error;
  for (const char* text : {"", "Ring", "ring ", "file", "rings"}) {
    EXPECT_FALSE(parse_graph_spec(text, error)) << text;
    EXPECT_EQ(error, "graph '" + std::string(text) + "' is unknown: allowed are " + known_graphs());
  }
  EXPECT_FALSE(parse_graph_spec("file:", error));
  EXPECT_THAT(error, HasSubstr("names no file"));
}

TEST(Generate, Complete) {
  const Graph graph = make("complete", 4);
  EXPECT_THAT(graph.out(2), ElementsAre(0, 1, 3));
  EXPECT_EQ(graph.edges(), 12u);
}

TEST(Generate, Rings) {
  EXPECT_THAT(make("ring", 5).out(0), ElementsAre(1, 4));
  EXPECT_THAT(make("ring_directed", 5).out(4), ElementsAre(0));
  EXPECT_THAT(make("ring_directed", 5).in(4), ElementsAre(3));
}

TEST(Generate, RingBasedJoinsTheMostDistantNode) {
  EXPECT_THAT(make("ring_based", 8).out(1), ElementsAre(0, 2, 5));
  EXPECT_THAT(make("ring_based", 8).in(6), ElementsAre(2, 5, 7));
  EXPECT_EQ(make("ring_based", 4), make("complete", 4));
  EXPECT_EQ(make("ring_based", 2), make("complete", 2));
}

TEST(Generate, DoubleRingJoinsTwoRingBasedGraphsNodeToNode) {
  const Graph graph = make("double_ring", 16);
  EXPECT_THAT(graph.out(0), ElementsAre(1, 4, 7, 8));
  EXPECT_THAT(graph.out(8), ElementsAre(0, 9, 12, 15));
  EXPECT_THAT(graph.out(13), ElementsAre(5, 9, 12, 14));
  EXPECT_TRUE(is_undirected(graph));
  EXPECT_EQ(degree_range(make("double_ring", 4)).out_max, 2u);
}

TEST(Generate, RootExpander) {
  EXPECT_THAT(make("root_expander", 6).out(5), ElementsAre(0, 1));
  EXPECT_THAT(make("root_expander", 25).out(0), ElementsAre(1, 5));
  EXPECT_THAT(make("root_expander", 7).out(0), ElementsAre(1, 3));  // sqrt 7 = 2.65
}

TEST(Generate, Star) {
  EXPECT_THAT(make("star", 4).out(0), ElementsAre(1, 2, 3));
  EXPECT_THAT(make("star", 4).in(2), ElementsAre(0));
}

TEST(Generate, HaltonCountsItsOffsetsFromTheNextNode) {
  EXPECT_THAT(make("halton", 8).out(0), ElementsAre(3, 5));
  EXPECT_THAT(make("halton", 10).out(0), ElementsAre(3, 6));
  // What the ASAP paper says of it (section 6): some sizes fall into two groups.
  EXPECT_FALSE(is_strongly_connected(make("halton", 6)));
  EXPECT_FALSE(is_strongly_connected(make("halton", 14)));
  EXPECT_TRUE(is_strongly_connected(make("halton", 16)));
}

TEST(Generate, ClusteredIsCompleteWithinAHostAndARingBetweenThem) {
  const Graph graph = make("clustered", 8, {"a", "b", "a", "a", "c", "b", "c", "d"});
  EXPECT_THAT(graph.out(2), ElementsAre(0, 3));
  EXPECT_THAT(graph.out(5), ElementsAre(1));
  EXPECT_THAT(graph.out(0), ElementsAre(1, 2, 3, 7));  // a's lowest: its host, then b's and d's
  EXPECT_THAT(graph.out(4), ElementsAre(1, 6, 7));
  EXPECT_TRUE(is_undirected(graph));
  EXPECT_EQ(make("clustered", 3, {"a", "a", "a"}), make("complete", 3));
  EXPECT_EQ(make("clustered", 4, {"", "", "", ""}), make("ring", 4));
  EXPECT_THAT(refused("clustered", 3, {"a"}), HasSubstr("host name of each of the 3 workers"));
}

TEST(Generate, ClusteredLinksLeaveAHostElsewhereThanTheyEnterIt) {
  const Graph graph = make("clustered_links", 8, {"a", "a", "a", "a", "b", "b", "c", "c"});
  EXPECT_THAT(graph.out(0), ElementsAre(1, 2, 3, 7));
  EXPECT_THAT(graph.out(3), ElementsAre(0, 1, 2, 4));
  EXPECT_THAT(graph.out(5), ElementsAre(4, 6));
  EXPECT_TRUE(is_undirected(graph));
  EXPECT_EQ(make("clustered_links", 3, {"a", "a", "a"}), make("complete", 3));
  EXPECT_EQ(make("clustered_links", 4, {"", "", "", ""}), make("ring", 4));
  EXPECT_EQ(make("clustered_links", 4, {"a", "a", "b", "b"}), make("ring", 4));
}

TEST(Generate, SmallNumbersAreSensible) {
  for (const char* name :
       {"complete", "ring", "ring_directed", "root_expander", "star", "halton"}) {
    EXPECT_EQ(make(name, 1), Graph(1, {})) << name;
    EXPECT_EQ(make(name, 2), make("complete", 2)) << name;
    EXPECT_TRUE(is_strongly_connected(make(name, 3))) << name;
    EXPECT_EQ(make(name, 3).size(), 3u) << name;
  }
}

TEST(Generate, NamesTheNearestNumbersThatDo) {
  EXPECT_EQ(refused("ring_based", 7),
            "graph 'ring_based': the number of workers must be a multiple of 2, not 7; the nearest "
            "are 6 and 8");
  EXPECT_THAT(refused("ring_based", 1), HasSubstr("the nearest is 2"));
  EXPECT_THAT(refused("double_ring", 2), HasSubstr("the nearest is 4"));
  EXPECT_THAT(refused("double_ring", 10), HasSubstr("the nearest are 8 and 12"));
  EXPECT_THAT(refused("ring", 0), HasSubstr("at least one worker"));
  EXPECT_THAT(refused("ring", kNodesMax + 1), HasSubstr("at most 1000000 workers"));
  EXPECT_THAT(refused("complete", 5000), HasSubstr("edges"));
  EXPECT_THAT(refused("clustered", 5000, std::vector<std::string>(5000, "h")), HasSubstr("edges"));
  EXPECT_THAT(refused("file:/nowhere", 3), HasSubstr("not loaded"));
}

TEST(Generate, NamesTheNearestNumbersThatAJobTakes) {
  for (const std::size_t nodes : {6, 14, 22, 30, 38}) {
    EXPECT_FALSE(accept_for_job(make("halton", nodes)).accepted);
    EXPECT_TRUE(accept_for_job(make("halton", nodes - 1)).accepted);
    EXPECT_TRUE(accept_for_job(make("halton", nodes + 1)).accepted);
    EXPECT_EQ(
        nearest_for_job(spec_of("halton"), nodes, false),
        "; the nearest are " + std::to_string(nodes - 1) + " and " + std::to_string(nodes + 1));
  }
  // From a number that a generator does not take at all, too.
  EXPECT_EQ(nearest_for_job(spec_of("double_ring"), 2, false), "; the nearest is 4");
  EXPECT_EQ(nearest_for_job(spec_of("clustered"), 6, false), "");
  EXPECT_EQ(nearest_for_job(spec_of("file:/nowhere"), 6, false), "");
}

TEST(Outline, SaysOfAGraphWhatTheGraphSays) {
  for (const char* name : {"complete", "ring", "ring_directed", "ring_based", "double_ring",
                           "root_expander", "star", "halton", "clustered", "clustered_links"}) {
    for (std::size_t nodes = 0; nodes <= 130; ++nodes) {
      const std::string about = name + (" of " + std::to_string(nodes));
      std::string error;
      std::string graph_error;
      const std::vector<std::string> hosts(nodes);
      const auto told = outline(spec_of(name), nodes, false, error);
      const auto graph = generate(spec_of(name), nodes, hosts, graph_error);
      EXPECT_EQ(error, graph_error) << about;
      ASSERT_EQ(told.has_value(), graph.has_value()) << about;
      if (!graph) continue;
      EXPECT_EQ(told->nodes, nodes) << about;
      const Acceptance acceptance = accept_for_job(*graph);
      EXPECT_EQ(told->acceptance.accepted, acceptance.accepted) << about;
      EXPECT_EQ(told->acceptance.weighting, acceptance.weighting) << about;
      EXPECT_EQ(told->acceptance.reason, acceptance.reason) << about;
      ASSERT_FALSE(told->degrees.empty()) << about;
      EXPECT_EQ(told->degrees.front().first, 0U) << about;
      for (std::size_t i = 0; i < told->degrees.size(); ++i) {
        const bool last = i + 1 == told->degrees.size();
        const auto end = last ? static_cast<Node>(nodes) : told->degrees[i + 1].first;
        for (Node node = told->degrees[i].first; node < end; ++node) {
          EXPECT_EQ(told->degrees[i].in, graph->in(node).size()) << about << ", node " << node;
        }
      }
    }
  }
}

TEST(Outline, OfAFileIsThatOfItsGraph) {
  GraphSpec spec = spec_of("file:/a/b");
  const Graph graph = from_edges(4, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 2}});
  spec.loaded = std::make_shared<const Graph>(graph);
  std::string error;
  const auto refused = outline(spec, 4, false, error);
  ASSERT_TRUE(refused) << error;
  EXPECT_EQ(refused->acceptance.reason, accept_for_job(graph).reason);
  EXPECT_FALSE(refused->acceptance.accepted);
  EXPECT_THAT(refused->degrees, ElementsAre(GraphOutline::Degree{0, 1}, GraphOutline::Degree{2, 2},
                                            GraphOutline::Degree{3, 1}));
  EXPECT_TRUE(outline(spec, 4, true, error)->acceptance.accepted);
  EXPECT_FALSE(outline(spec, 5, false, error));
  EXPECT_THAT(error, HasSubstr("exactly 4 workers"));
}

TEST(Membership, IsTheGraphItselfWhereItCanBe) {
  for (const char* name : {"complete", "ring", "ring_directed", "ring_based", "double_ring",
                           "root_expander", "star", "halton"}) {
    const MembershipGraph made = membership(name, 8);
    EXPECT_EQ(made.graph, make(name, 8)) << name;
    EXPECT_EQ(made.note, "");
  }
}

TEST(Membership, ARelativeStandsInWhereItCannot) {
  MembershipGraph made = membership("ring_based", 7);
  EXPECT_EQ(made.graph, make("ring", 7));
  EXPECT_THAT(made.note, HasSubstr("ring stands in"));
  made = membership("double_ring", 6);
  EXPECT_EQ(made.graph, make("ring_based", 6));
  EXPECT_THAT(made.note, HasSubstr("ring_based stands in"));
  EXPECT_EQ(membership("double_ring", 7).graph, make("ring", 7));
  made = membership("halton", 6);
  EXPECT_EQ(made.graph, make("ring_directed", 6));
  EXPECT_THAT(made.note, HasSubstr("not strongly connected with 6 workers; ring_directed"));
}

// A job that shrinks to any number keeps a graph that it may run on, with the same kind of weights.
TEST(Membership, IsAlwaysAcceptable) {
  for (const char* name : {"complete", "ring", "ring_directed", "ring_based", "double_ring",
                           "root_expander", "star", "halton", "clustered", "clustered_links"}) {
    for (std::size_t n = 0; n <= 40; ++n) {
      std::vector<std::string> hosts;
      for (std::size_t i = 0; i < n; ++i) hosts.push_back(std::string(1, "abc"[i * i % 3]));
      const MembershipGraph made = membership(name, n, hosts);
      EXPECT_EQ(made.graph.size(), n);
      const Acceptance answer = accept_for_job(made.graph);
      EXPECT_TRUE(answer.accepted) << name << " of " << n << ": " << answer.reason;
      EXPECT_TRUE(n > 1 || made.note.empty()) << name;
    }
  }
}

// The job goes on, over a graph that can be made in no time.
TEST(Membership, ARingStandsInForAGraphOfTooManyEdges) {
  std::vector<Node> many(5000);
  std::iota(many.begin(), many.end(), 0);
  const std::vector<std::string> one_host(many.size(), "a");
  std::string error;
  for (const char* name : {"complete", "clustered", "clustered_links"}) {
    const auto made = generate_for_membership(spec_of(name), many, one_host, error);
    ASSERT_TRUE(made) << error;
    EXPECT_EQ(made->graph, make("ring", many.size()));
    EXPECT_THAT(made->note,
                AllOf(HasSubstr("more than 16777216 edges"), HasSubstr("ring stands in for it")));
  }
}

TEST(Generate, DenseEdgesAreAsManyAsAreMade) {
  std::string error;
  GraphSpec file = spec_of("file:mine");
  file.loaded = std::make_shared<const Graph>(make("ring", 10));
  const std::vector<std::string> hosts = {"a", "a", "a", "a", "b", "b", "b", "", "", "c"};
  for (const GraphSpec& spec :
       {spec_of("complete"), spec_of("clustered"), spec_of("clustered_links"), file}) {
    EXPECT_EQ(dense_edges(spec, 10, hosts), generate(spec, 10, hosts, error)->edges());
  }
  EXPECT_EQ(dense_edges(spec_of("complete"), 0, {}), 0U);
  EXPECT_EQ(dense_edges(spec_of("clustered"), 10, {}), 0U) << "not known yet";
  EXPECT_EQ(dense_edges(spec_of("ring_based"), 10, {}), 0U) << "not dense";
}

TEST(Membership, FilesOnlyLoseNodes) {
  GraphSpec spec = spec_of("file:mine");
  std::string error;
  const std::vector<Node> all{0, 1, 2, 3};
  EXPECT_FALSE(generate_for_membership(spec, all, {}, error));
  EXPECT_THAT(error, HasSubstr("not loaded"));
  spec.loaded = std::make_shared<const Graph>(make("ring", 4));
  auto made = generate_for_membership(spec, all, {}, error);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->graph, make("ring", 4));
  EXPECT_EQ(made->note, "");

  made = generate_for_membership(spec, std::vector<Node>{0, 1, 3}, {}, error);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->graph, from_edges(3, {{0, 1}, {1, 0}, {0, 2}, {2, 0}}));
  EXPECT_EQ(made->note, "");

  made = generate_for_membership(spec, std::vector<Node>{0, 2}, {}, error);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->graph, Graph(2, {}));
  EXPECT_THAT(made->note, HasSubstr("not strongly connected"));

  EXPECT_FALSE(generate_for_membership(spec, std::vector<Node>{0, 4}, {}, error));
  EXPECT_THAT(error, HasSubstr("for 4 workers, so worker 4 has no place in it"));
  EXPECT_THAT((generate(spec, 3, {}, error), error), HasSubstr("exactly 4 workers, not for 3"));
}

}  // namespace
}  // namespace syncd::topology
