// The graph of a decentralized job: a file is read once, outside the engine, and edges and weights
// come back from a snapshot as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <span>
#include <string>

#include "daemon/core/engine/engine.h"
#include "daemon/core/policies/graph_file.h"

namespace syncd::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Three workers of one job, each on a connection of its own.
class Trio {
 public:
  explicit Trio(const std::string& policy) : engine(EngineOptions{}) {
    JobSpec spec;
    spec.name = "train";
    spec.policy = policy;
    spec.graph_file = read_graph_file(policy);
    spec.expected_workers = 3;
    Effects effects;
    declared = engine.declare_job(spec, 1, effects, error);
    take(effects);
    if (!declared) return;
    for (std::uint32_t i = 0; i < 3; ++i) {
      wire::Join join;
      join.job = "train";
      join.name = "w" + std::to_string(i);
      join.host = "h";
      refs[i] = std::get<wire::Joined>(ask(i, join)).worker;
    }
    for (std::uint32_t i = 0; i < 3; ++i) ask(i, wire::Begin{refs[i], 0});
  }

  // The answer that comes at once, or Unknown.
  wire::Body ask(std::uint32_t worker, wire::Body body) {
    Effects effects;
    engine.step(Request{{worker + 1, ++request}, std::move(body)}, ++now, effects);
    take(effects);
    for (const Reply& reply : effects.replies) {
      if (reply.to == Caller{worker + 1, request}) return reply.body;
    }
    return wire::Unknown{};
  }
  std::vector<std::uint32_t> targets(std::uint32_t worker, Iteration k) {
    return std::get<wire::TargetsReply>(ask(worker, wire::Targets{refs[worker], k})).ranks;
  }

  Engine engine;
  bool declared = false;
  std::string error;
  std::vector<Record> records;
  wire::WorkerRef refs[3];

 private:
  void take(const Effects& effects) {
    records.insert(records.end(), effects.records.begin(), effects.records.end());
  }
  RequestId request = 0;
  Micros now = 1;
};

class GraphFile : public testing::Test {
 protected:
  GraphFile() : path_(testing::TempDir() + "syncd-peer-graph-" + std::to_string(::getpid())) {}
  ~GraphFile() override { std::remove(path_.c_str()); }
  void write(const char* text) { std::ofstream(path_) << text; }

  // What worker 0 is told to send to in an engine that was made from the history.
  static std::vector<std::uint32_t> targets_after_restart(const JobSnapshot* snapshot,
                                                          const std::vector<Record>& records) {
    Engine engine{EngineOptions{}};
    std::string error;
    EXPECT_TRUE(engine.restore(snapshot, records, error)) << error;
    engine.finish_restore(10);
    Effects effects;
    wire::Join join;
    join.job = "train";
    join.name = "w0";
    join.host = "h";
    join.rank = 0;
    join.incarnation = 1;
    join.granted = 0;
    engine.step(Request{{9, 1}, join}, 10, effects);
    const auto joined = std::get<wire::Joined>(effects.replies.at(0).body);
    EXPECT_TRUE(joined.resumed);
    engine.step(Request{{9, 2}, wire::Targets{joined.worker, 0}}, 11, effects);
    return std::get<wire::TargetsReply>(effects.replies.at(0).body).ranks;
  }

  std::string path_;
};

TEST_F(GraphFile, IsReadBeforeTheJobIsMadeAndKeptWithTheHistory) {
  write("0 2\n2 1\n1 0\n");
  Trio trio("hop:file:" + path_);
  ASSERT_TRUE(trio.declared) << trio.error;
  // With the job's making, so that a daemon that ends before the start knows it, too.
  ASSERT_GE(trio.records.size(), 2U);
  EXPECT_EQ(trio.records[0].kind, RecordKind::kJobCreated);
  EXPECT_EQ(trio.records[1].kind, RecordKind::kPolicyNote);
  EXPECT_THAT(trio.records[1].values, ElementsAre(3, 0, 2, 1, 0, 2, 1));
  JobSnapshot waiting;
  Engine before_the_start{EngineOptions{}};
  ASSERT_TRUE(before_the_start.restore(nullptr, std::span(trio.records).first(2), trio.error));
  ASSERT_TRUE(before_the_start.snapshot(1, waiting));
  EXPECT_THAT(waiting.policy_state, ElementsAre(0, 7, 3, 0, 2, 1, 0, 2, 1, 0, 0, 0));
  EXPECT_THAT(trio.targets(0, 0), ElementsAre(2));

  JobSnapshot snapshot;
  ASSERT_TRUE(trio.engine.snapshot(1, snapshot));
  write("0 1\n1 2\n2 0\n");
  EXPECT_THAT(targets_after_restart(nullptr, trio.records), ElementsAre(2));
  EXPECT_THAT(targets_after_restart(&snapshot, {}), ElementsAre(2));
  std::remove(path_.c_str());
  EXPECT_THAT(targets_after_restart(nullptr, trio.records), ElementsAre(2));
  EXPECT_THAT(targets_after_restart(&snapshot, {}), ElementsAre(2));
}

// The three ways in which a request makes a job, or does not.
TEST_F(GraphFile, GoesWithTheRequestThatMakesTheJob) {
  Engine engine{EngineOptions{}};
  const std::string policy = "hop:file:" + path_;
  wire::CreateJobRequest create;
  create.name = "made";
  create.policy = policy;
  create.expected_workers = 2;
  wire::Join join;
  join.job = "joined";
  join.name = "w0";
  join.host = "h";
  join.policy = policy;
  join.world_size = 2;
  ASSERT_NE(engine.policy_to_make(create), nullptr);
  EXPECT_EQ(*engine.policy_to_make(create), policy);
  ASSERT_NE(engine.policy_to_make(join), nullptr);
  EXPECT_EQ(*engine.policy_to_make(join), policy);
  wire::Join plain = join;
  plain.policy.clear();
  EXPECT_EQ(*engine.policy_to_make(plain), EngineOptions{}.defaults.policy);

  Effects effects;
  const auto step = [&](wire::Body body) {
    auto file = read_graph_file(policy);
    engine.step(Request{{1, 1}, std::move(body), std::move(file)}, 1, effects);
    return effects.replies.at(0).body;
  };
  for (const wire::Body& body : {wire::Body(create), wire::Body(join)}) {
    EXPECT_THAT(std::get<wire::Error>(step(body)).message, HasSubstr(path_));
  }
  write("0 1\n1 0\n0 x\n");
  EXPECT_THAT(std::get<wire::Error>(step(create)).message, HasSubstr(path_ + ":3"));
  write("0 1\n1 0\n");
  EXPECT_TRUE(std::holds_alternative<wire::Ok>(step(create)));
  EXPECT_TRUE(std::holds_alternative<wire::Joined>(step(join)));
  EXPECT_EQ(engine.policy_to_make(join), nullptr);
  EXPECT_EQ(effects.records.size(), 3U);  // made, graph, joined

  // Without the file nothing is made: nobody here reads it.
  create.name = "other";
  engine.step(Request{{1, 2}, create}, 2, effects);
  EXPECT_THAT(std::get<wire::Error>(effects.replies.at(0).body).message,
              HasSubstr("the file was not loaded"));
}

TEST_F(GraphFile, IsReadForPoliciesThatNameOne) {
  for (const char* policy :
       {"asp", "ssp:3", "hop:ring", "hop", "hop:", "specsync+asp", "", "file:"}) {
    EXPECT_EQ(read_graph_file(policy), nullptr) << policy;
  }
  const auto missing = read_graph_file("notify_ack:file:" + path_ + ",every=2");
  ASSERT_NE(missing, nullptr);
  EXPECT_EQ(missing->graph, nullptr);
  EXPECT_THAT(missing->error, HasSubstr(path_));
  write("0 1\n1 0\n");
  const auto read = read_graph_file("notify_ack:file:" + path_ + ",every=2");
  ASSERT_NE(read->graph, nullptr);
  EXPECT_EQ(read->graph->edges(), 2U);
  EXPECT_EQ(read->error, "");
}

TEST_F(GraphFile, ThatIsMissingOrUnfitIsRefusedBeforeTheJobIsMade) {
  EXPECT_THAT(Trio("hop:file:" + path_).error, HasSubstr(path_));
  write("0 1\n1 2\n");
  EXPECT_THAT(Trio("notify_ack:file:" + path_).error, HasSubstr("strongly connected"));
  write("0 1\n1 2\n2 0\n0 2\n");
  EXPECT_THAT(Trio("hop:file:" + path_).error, HasSubstr("force"));
  EXPECT_TRUE(Trio("hop:file:" + path_ + ",force=1").declared);
}

TEST(PeerWeights, OfAnUnevenUndirectedGraphAreMetropolis) {
  Trio trio("hop:star");
  ASSERT_TRUE(trio.declared) << trio.error;
  for (std::uint32_t i = 0; i < 3; ++i) {
    trio.targets(i, 0);
    trio.ask(i, wire::Push{trio.refs[i], 0, {}, 0, 0});
  }
  JobSnapshot snapshot;
  ASSERT_TRUE(trio.engine.snapshot(1, snapshot));
  // The hub has two neighbours, and every edge weighs 1/3; a leaf keeps 2/3 of its own.
  const auto hub = std::get<wire::CollectReply>(trio.ask(0, wire::Collect{trio.refs[0], 0}));
  const auto leaf = std::get<wire::CollectReply>(trio.ask(1, wire::Collect{trio.refs[1], 0}));
  ASSERT_EQ(hub.updates.size(), 3U);
  ASSERT_EQ(leaf.updates.size(), 2U);
  for (const auto& update : hub.updates) EXPECT_NEAR(update.weight, 1.0 / 3, 1e-12);
  EXPECT_NEAR(leaf.updates[0].weight, 2.0 / 3, 1e-12);
  EXPECT_NEAR(leaf.updates[1].weight, 1.0 / 3, 1e-12);

  Engine again{EngineOptions{}};
  std::string error;
  ASSERT_TRUE(again.restore(&snapshot, {}, error)) << error;
  JobSnapshot same;
  ASSERT_TRUE(again.snapshot(1, same));
  EXPECT_EQ(same.policy_state, snapshot.policy_state);
}

TEST(PeerGraphState, ThatIsDamagedIsRefused) {
  Trio trio("hop:ring,backup=1,skip=2");
  JobSnapshot snapshot;
  ASSERT_TRUE(trio.engine.snapshot(1, snapshot));
  const std::vector<std::int64_t> whole = snapshot.policy_state;
  std::string error;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const std::int64_t wrong : {std::int64_t{-7}, INT64_MAX}) {
      snapshot.policy_state = whole;
      snapshot.policy_state[i] = wrong;
      Engine engine{EngineOptions{}};
      engine.restore(&snapshot, {}, error);  // right or wrong, it does not crash
    }
    snapshot.policy_state.assign(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(i));
    Engine engine{EngineOptions{}};
    EXPECT_FALSE(engine.restore(&snapshot, {}, error)) << i;
  }
}

}  // namespace
}  // namespace syncd::test
