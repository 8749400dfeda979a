// The latest complete checkpoints of jobs that are forgotten: who asks for the name finds them, the
// next job of the name takes them over, and there are never too many.
#include "daemon/core/engine/kept_checkpoints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "proto/base/defaults.h"
#include "proto/wire/wire.h"

namespace syncd {
namespace {

constexpr ConnectionId kWorker = 1, kOperator = 2;

CheckpointSnapshot complete(std::uint64_t number, Epoch epoch, Micros since, std::size_t shards = 1,
                            std::size_t location = 4) {
  CheckpointSnapshot made;
  made.number = number;
  made.state = CheckpointState::kComplete;
  made.epoch = epoch;
  made.since_us = since;
  made.shards = static_cast<std::uint32_t>(shards);
  for (std::uint32_t i = 0; i < shards; ++i)
    made.saved.push_back({i, i, 40, std::string(location, 'x')});
  return made;
}

class KeptByEngine : public ::testing::Test {
 protected:
  template <class Body>
  void ask(ConnectionId connection, Body body) {
    engine_.step(Request{{connection, next_++}, std::move(body)}, now_ += 1'000, effects_);
    records_.insert(records_.end(), effects_.records.begin(), effects_.records.end());
    for (const Reply& reply : effects_.replies) answer_ = reply.body;
  }
  // A job of one worker that saves its checkpoint 1 there, and ends.
  JobId save_and_end(const std::string& name, const std::string& location) {
    wire::Join join;
    join.job = name;
    join.policy = "bsp";
    join.name = "a";
    join.world_size = 1;
    join.notices = wire::kNoticeCheckpoint;
    ask(kWorker, join);
    const wire::WorkerRef ref = std::get<wire::Joined>(answer_).worker;
    ask(kWorker, wire::Begin{ref, 0});
    ask(kOperator, wire::OrderCheckpoint{name, ""});
    const std::uint64_t number = std::get<wire::CheckpointAsked>(answer_).number;
    ask(kWorker, wire::Push{ref, 0, {}, 0, 0});
    ask(kWorker, wire::Begin{ref, 1});
    ask(kWorker, wire::Checkpointed{ref, number, 0, 1, location});
    EXPECT_TRUE(std::holds_alternative<wire::Ok>(answer_));
    ask(kWorker, wire::Push{ref, 1, {}, 0, 0});
    ask(kWorker, wire::Leave{ref});
    EXPECT_FALSE(engine_.is_live(ref.job));
    return ref.job;
  }
  std::optional<wire::LatestCheckpointReply> latest(const std::string& name) {
    ask(kOperator, wire::LatestCheckpoint{name, 0});
    const auto* found = std::get_if<wire::LatestCheckpointReply>(&answer_);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }

  Engine engine_{EngineOptions{}};
  Effects effects_;
  Micros now_ = 0;
  RequestId next_ = 1;
  wire::Body answer_;
  std::vector<Record> records_;
};

TEST_F(KeptByEngine, AForgottenJobsCheckpointIsFoundByItsName) {
  ASSERT_TRUE(engine_.forget(save_and_end("train", "/c/1")));
  const auto found = latest("train");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->number, 1U);
  ASSERT_EQ(found->saved.size(), 1U);
  EXPECT_EQ(found->saved[0].location, "/c/1");
  EXPECT_EQ(found->iteration, 1);
  EXPECT_EQ(found->next_shard, -1);
  EXPECT_FALSE(latest("another"));
}

TEST_F(KeptByEngine, TheNextJobOfTheNameTakesItOverAndItsHistoryHasIt) {
  ASSERT_TRUE(engine_.forget(save_and_end("train", "/c/1")));
  const auto before = latest("train");
  records_.clear();
  ask(kOperator, wire::CreateJobRequest{"train", "bsp", 1, 0});
  EXPECT_TRUE(std::holds_alternative<wire::Ok>(answer_));
  EXPECT_EQ(latest("train")->saved, before->saved);
  Engine again{EngineOptions{}};
  std::string error;
  ASSERT_TRUE(again.restore(nullptr, records_, error)) << error;
  again.finish_restore(now_);
  JobSnapshot snapshot;
  ASSERT_TRUE(again.snapshot(again.find_job("train"), snapshot));
  ASSERT_EQ(snapshot.checkpoints.size(), 1U);
  EXPECT_EQ(snapshot.checkpoints[0].saved.at(0).location, "/c/1");
  EXPECT_EQ(snapshot.checkpoints[0].epoch, before->epoch);
}

TEST_F(KeptByEngine, WhatTheStoreHasKeptServesAlike) {
  engine_.keep_checkpoint("train", complete(4, 2, 10, 3));
  ASSERT_TRUE(latest("train"));
  EXPECT_EQ(latest("train")->number, 4U);
  engine_.forget_epochs(2);
  ASSERT_TRUE(engine_.forget(save_and_end("train", "/c/later")));
  EXPECT_EQ(latest("train")->number, 5U) << "the next one after it, of a later epoch";
  EXPECT_EQ(latest("train")->saved.at(0).location, "/c/later");
}

TEST_F(KeptByEngine, TheLogSaysWhichOneHadToGo) {
  for (std::size_t i = 0; i <= limits::kKeptCheckpointsMax; ++i) {
    engine_.keep_checkpoint("job" + std::to_string(i),
                            complete(1, 1, 100 + static_cast<Micros>(i)));
  }
  EXPECT_FALSE(latest("job0"));
  EXPECT_TRUE(latest("job1"));
  ask(kOperator, wire::CreateJobRequest{"new", "bsp", 1, 0});
  const auto line = std::ranges::find(effects_.log, "checkpoint_forgotten", &LogLine::event);
  ASSERT_NE(line, effects_.log.end());
  EXPECT_EQ(line->fields.at(0).second, "job0");
}

// The most shards of a job, with the longest locations. All of them come in pages, each of which
// fits a frame; what a worker asks that waits, or that loads its own shard, does not grow with
// them.
TEST_F(KeptByEngine, TenThousandShardsComeInPagesAndAWaitingWorkersQuestionIsShort) {
  constexpr std::uint32_t kShards = limits::kWorkersPerJobDefault;
  CheckpointSnapshot large = complete(1, 1, 10, kShards, limits::kCheckpointLocationBytesMax);
  for (SavedShard& shard : large.saved) shard.iteration = 50 - (shard.shard == 7'777 ? 1 : 0);
  engine_.keep_checkpoint("large", large);
  const auto ask_for = [&](std::uint32_t first, std::int64_t most, std::size_t& bytes) {
    const wire::LatestCheckpoint asked{"large", first, most};
    ask(kOperator, asked);
    for (const wire::Body& body : {wire::Body(asked), answer_}) {
      std::vector<std::uint8_t> frame;
      wire::Encoder().append({1, body}, frame);
      EXPECT_LE(frame.size(), kDefaultMaxFrameBytes);
      bytes += frame.size();
    }
    return std::get<wire::LatestCheckpointReply>(answer_);
  };
  std::size_t whole = 0, pages = 0;
  std::vector<wire::CheckpointShard> all;
  for (std::int64_t next = 0; next >= 0; ++pages) {
    const auto page = ask_for(static_cast<std::uint32_t>(next), -1, whole);
    all.insert(all.end(), page.saved.begin(), page.saved.end());
    next = page.next_shard;
  }
  ASSERT_EQ(all.size(), kShards);
  for (std::uint32_t i = 0; i < kShards; ++i) ASSERT_EQ(all[i].shard, i);
  std::size_t waiting = 0, loading = 0;
  const auto closed = ask_for(0, 0, waiting);
  EXPECT_EQ(closed.number, 1U);
  EXPECT_EQ(closed.shards, kShards);
  EXPECT_EQ(closed.iteration, 49);
  EXPECT_TRUE(closed.saved.empty());
  EXPECT_EQ(closed.next_shard, -1);
  const auto own = ask_for(9'999, 1, loading);
  ASSERT_EQ(own.saved.size(), 1U);
  EXPECT_EQ(own.saved[0].shard, 9'999U);
  std::printf(
      "10,000 workers that ask once: for all shards %.1f GB (%zu pages each), whether it is "
      "closed %.1f MB, for their own shard %.1f MB\n",
      1e-5 * static_cast<double>(whole), pages, 1e-2 * static_cast<double>(waiting),
      1e-2 * static_cast<double>(loading));
  EXPECT_GT(whole, 10'000'000U);
  EXPECT_LE(waiting, 300U);
  EXPECT_LE(loading, 1'500U);
}

TEST(KeptIndex, AtMostSoManyBytesAndTheOldestGoesFirst) {
  KeptIndex index;
  std::vector<std::string> gone;
  const CheckpointSnapshot large = complete(1, 1, 0, 100'000, 1'024);
  const std::size_t fit = limits::kKeptCheckpointsBytesMax / KeptIndex::bytes_of(large);
  ASSERT_GE(fit, 2U);
  for (std::size_t i = 0; i < fit; ++i) {
    CheckpointSnapshot one = large;
    one.since_us = static_cast<Micros>(1'000 - i);  // the last one is the oldest
    EXPECT_TRUE(index.add("job" + std::to_string(i), one, gone));
  }
  EXPECT_TRUE(gone.empty());
  EXPECT_TRUE(index.add("new", complete(1, 1, 2'000, 100'000, 1'024), gone));
  EXPECT_EQ(gone, std::vector<std::string>{"job" + std::to_string(fit - 1)});
  EXPECT_LE(index.bytes(), limits::kKeptCheckpointsBytesMax);
  EXPECT_EQ(index.size(), fit);
}

TEST(KeptIndex, AnEarlierOneOfTheSameNameChangesNothing) {
  KeptIndex index;
  std::vector<std::string> gone;
  EXPECT_TRUE(index.add("job", complete(2, 3, 5), gone));
  EXPECT_FALSE(index.add("job", complete(1, 3, 9, 7), gone));
  EXPECT_FALSE(index.add("job", complete(9, 2, 9, 7), gone));
  EXPECT_EQ(index.bytes(), KeptIndex::bytes_of(complete(2, 3, 5)));
  EXPECT_TRUE(index.add("job", complete(1, 4, 9, 7), gone));
  EXPECT_EQ(index.bytes(), KeptIndex::bytes_of(complete(1, 4, 9, 7)));
  EXPECT_EQ(index.size(), 1U);
  EXPECT_TRUE(gone.empty());
}

}  // namespace
}  // namespace syncd
