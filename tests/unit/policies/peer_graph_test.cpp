// The graph of a decentralized job: files are read once, and edges and weights come back from a
// snapshot as they were.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "daemon/engine/engine.h"

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

TEST_F(GraphFile, IsReadAtTheStartAndKeptWithTheHistory) {
  write("0 2\n2 1\n1 0\n");
  Trio trio("hop:file:" + path_);
  ASSERT_TRUE(trio.declared) << trio.error;
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
