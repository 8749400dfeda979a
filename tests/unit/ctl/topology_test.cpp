#include "daemon/tools/ctl/topology.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "daemon/tools/ctl/commands.h"

namespace syncd::ctl {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TopologyQuery query(const std::string& graph, std::uint32_t workers) {
  TopologyQuery made;
  made.graph = graph;
  made.workers = workers;
  return made;
}

Json analyzed(const TopologyQuery& asked) {
  std::string error;
  const auto json = analyze_topology(asked, error);
  EXPECT_TRUE(json) << error;
  return json ? Json::parse(json->dump()) : Json();
}

Json bounded(TopologyQuery asked, const std::string& setting,
             std::optional<std::int64_t> max_ig = std::nullopt) {
  asked.setting = setting;
  asked.max_ig = max_ig;
  std::string error;
  const auto json = bound_topology(asked, error);
  EXPECT_TRUE(json) << error;
  return json ? Json::parse(json->dump()) : Json();
}

std::string analysis_error(const TopologyQuery& asked) {
  std::string error;
  EXPECT_FALSE(analyze_topology(asked, error));
  return error;
}

std::string bounds_error(TopologyQuery asked, const std::string& setting,
                         std::optional<std::int64_t> max_ig = std::nullopt) {
  asked.setting = setting;
  asked.max_ig = max_ig;
  std::string error;
  EXPECT_FALSE(bound_topology(asked, error));
  return error;
}

class TopologyFile : public ::testing::Test {
 protected:
  TopologyFile() {
    path_ = ::testing::TempDir() + "syncd_ctl_topology_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ofstream(path_) << "0,1,0\n0,0,1\n1,1,0\n";
  }
  ~TopologyFile() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST(TopologyAnalyze, SaysAllThereIsToKnow) {
  Json json = analyzed(query("ring_based", 8));
  EXPECT_NEAR(json["eigen_gap_no_self_loop"].get<double>(), 0.6667, 5e-5);
  EXPECT_NEAR(json["spectral_gap"].get<double>(), 0.5, 1e-9);
  json.erase("eigen_gap_no_self_loop");
  json.erase("spectral_gap");
  EXPECT_EQ(json, Json::parse(R"({
    "graph": "ring_based", "workers": 8, "edges": 24, "in_degree": {"min": 3, "max": 3},
    "out_degree": {"min": 3, "max": 3}, "diameter": 2, "strongly_connected": true,
    "undirected": true, "regular": true, "doubly_stochastic": true, "accepted": true,
    "weights": "equal", "reason": ""})"));
}

TEST(TopologyAnalyze, NamesEveryKeyInItsHelp) {
  const Json json = analyzed(query("ring", 3));
  for (const auto& item : json.items()) {
    EXPECT_THAT(topology_analyze_keys(), HasSubstr(item.key()));
  }
}

TEST(TopologyAnalyze, TellsWhatAJobGets) {
  Json json = analyzed(query("star", 5));
  EXPECT_EQ(json["weights"], "metropolis");
  EXPECT_EQ(json["in_degree"], Json::parse(R"({"min": 1, "max": 4})"));
  EXPECT_EQ(json["doubly_stochastic"], false);
  json = analyzed(query("halton", 6));
  EXPECT_EQ(json["accepted"], false);
  EXPECT_EQ(json["weights"], nullptr);
  EXPECT_EQ(json["diameter"], nullptr);
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("not strongly connected"));
}

TEST(TopologyAnalyze, ServesSmallAndLargeGraphs) {
  Json json = analyzed(query("ring", 1));
  EXPECT_EQ(json["diameter"], 0);
  EXPECT_EQ(json["spectral_gap"], 1);
  EXPECT_EQ(json["eigen_gap_no_self_loop"], nullptr);
  json = analyzed(query("root_expander", 2500));
  EXPECT_EQ(json["spectral_gap"], nullptr);
  EXPECT_EQ(json["diameter"], 98);
}

TEST_F(TopologyFile, TakesItsGraphFromTheFile) {
  TopologyQuery asked = query("file:" + path_, 3);
  Json json = analyzed(asked);
  EXPECT_EQ(json["workers"], 3);
  EXPECT_EQ(json["accepted"], false);
  EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("unequal in- and out-degrees"));
  asked = query("", 0);
  asked.adjacency = path_;
  EXPECT_EQ(analyzed(asked), json);
  asked.graph = "ring";
  EXPECT_EQ(analyzed(asked), json);
  asked.workers = 4;
  EXPECT_THAT(analysis_error(asked), HasSubstr("exactly 3 workers, not for 4"));
}

TEST(TopologyAnalyze, ErrorsSayWhatIsAllowed) {
  EXPECT_THAT(analysis_error(query("", 4)),
              HasSubstr("no graph was named: --graph complete, ring"));
  EXPECT_THAT(analysis_error(query("mesh", 4)), HasSubstr("graph 'mesh' is unknown: allowed are"));
  EXPECT_THAT(analysis_error(query("ring", 0)), HasSubstr("from 1 to 10000"));
  EXPECT_THAT(analysis_error(query("ring", 10'001)), HasSubstr("from 1 to 10000, not 10001"));
  EXPECT_THAT(analysis_error(query("double_ring", 10)), HasSubstr("the nearest are 8 and 12"));
  EXPECT_THAT(analysis_error(query("clustered", 3)), HasSubstr("host name"));
  EXPECT_THAT(analysis_error(query("file:/nowhere", 3)), HasSubstr("/nowhere cannot be read"));
}

TEST(TopologyAnalyze, TakesHosts) {
  TopologyQuery asked = query("clustered", 8);
  asked.hosts = {"2", "2", "4"};
  const Json by_size = analyzed(asked);
  asked.hosts = {"a", "a", "b", "b", "c", "c", "c", "c"};
  EXPECT_EQ(analyzed(asked), by_size);
  asked.hosts = {"2", "2", "3"};
  EXPECT_THAT(analysis_error(asked), HasSubstr("--hosts '2,2,3': the hosts have 7 workers"));
  asked.hosts = {"a", "a", "b", "b", "c", "c", "c", "c"};
  EXPECT_NEAR(analyzed(asked)["eigen_gap_no_self_loop"].get<double>(), 0.2682, 5e-5);
}

TEST(TopologyAnalyze, EndsWithAnErrorIfNoJobMayRunOnIt) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_topology_analyze(query("ring", 6)), kExitOk);
  EXPECT_EQ(run_topology_analyze(query("halton", 6)), kExitRefused);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("\"accepted\": false"));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("no job may run on graph 'halton' with 6 workers: the graph is not"));
}

TEST(TopologyBounds, AreAMatrix) {
  const TopologyQuery ring = query("ring_directed", 3);
  EXPECT_EQ(bounded(ring, "standard"), Json::parse(R"({"bounds": [[0,2,1],[1,0,2],[2,1,0]]})"));
  EXPECT_EQ(bounded(ring, "staleness:1"), Json::parse(R"({"bounds": [[0,4,2],[2,0,4],[4,2,0]]})"));
  EXPECT_EQ(bounded(ring, "backup"),
            Json::parse(R"({"bounds": [[0,null,null],[null,0,null],[null,null,0]]})"));
  EXPECT_EQ(bounded(ring, "backup", 4), Json::parse(R"({"bounds": [[0,4,8],[8,0,4],[4,8,0]]})"));
  EXPECT_EQ(bounded(ring, "notify_ack"), Json::parse(R"({"bounds": [[0,2,1],[1,0,2],[2,1,0]]})"));
}

TEST(TopologyBounds, ErrorsSayWhatIsAllowed) {
  const TopologyQuery ring = query("ring", 3);
  EXPECT_THAT(bounds_error(ring, "bsp"), HasSubstr("allowed are standard, staleness:S"));
  EXPECT_THAT(bounds_error(ring, "notify_ack", 4), HasSubstr("no token queues"));
  EXPECT_THAT(bounds_error(ring, "standard", 0), HasSubstr("whole numbers from 1 to"));
  EXPECT_THAT(bounds_error(query("ring", 2001), "standard"), HasSubstr("from 1 to 2000"));
}

TEST(TopologyCommands, PrintJsonAndComplainInTheRightPlaces) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_topology_bounds(query("ring", 3)), kExitOk);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "{\n  \"bounds\": [\n    [0,1,1],\n    [1,0,1],\n    [1,1,0]\n  ]\n}\n");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_topology_analyze(query("ring", 3)), kExitOk);
  EXPECT_EQ(Json::parse(::testing::internal::GetCapturedStdout())["diameter"], 1);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_topology_analyze(query("mesh", 3)), kExitUsage);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("syncctl: graph 'mesh'"));
}

}  // namespace
}  // namespace syncd::ctl
