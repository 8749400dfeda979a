// A member's copy of the log, against a model of etcd.
#include "daemon/edge/cluster/copy.h"

#include <gmock/gmock.h>

#include <fstream>

#include "daemon/core/cluster/shard_log.h"
#include "daemon/edge/cluster/log_records.h"
#include "fixture.h"

namespace syncd::cluster {
namespace {

using store::creation;
using store::push;
using ::testing::HasSubstr;

class CopyTest : public ClusterTest {
 protected:
  // Appends one entry as a leader does.
  void append(const std::vector<Record>& records) {
    const TakeOver read = etcd_.read();
    Nonce nonces{++lives_, 0};
    ShardLog log(kKeys, lead(), nonces, read.tail, read.first);
    log.add({encode_records(records, encoder_)});
    run(log);
  }
  void run(ShardLog& log) {
    while (const auto attempt = log.next()) {
      log.on_answer(attempt->number, etcd_.apply(attempt->transaction));
    }
  }

  store::RecordEncoder encoder_;
};

TEST_F(CopyTest, AStampIsReadAsItWasWritten) {
  Stamp stamp{{}, 3, {12, {0xfedcba9876543210u, 5}}};
  stamp.cluster[15] = 255;
  Stamp read;
  for (const Shard shards : {16U, 1U}) {
    stamp.shards = shards;
    ASSERT_TRUE(parse_stamp(to_text(stamp), read)) << to_text(stamp);
    EXPECT_EQ(read, stamp);
  }
  const std::string text = to_text(stamp);
  for (const std::string& wrong : {std::string(), text.substr(1), text + " ", "x" + text}) {
    EXPECT_FALSE(parse_stamp(wrong, read)) << wrong;
  }
}

TEST_F(CopyTest, ItFollowsEntryByEntryAndAcrossAnEnd) {
  append({creation(1), push(1, 2)});
  auto copy = open_copy(dir_.store());
  take_up(*copy);
  append({push(1, 3)});
  take_up(*copy);
  take_up(*copy);  // nothing new
  copy.reset();
  append({push(1, 4)});
  copy = open_copy(dir_.store());
  EXPECT_EQ(copy->stamp().tail.index, 2u);
  take_up(*copy);
  std::string error;
  const auto store = copy->hand_over(error);
  ASSERT_NE(store, nullptr) << error;
  EXPECT_EQ(store::sequences(*store, 1), (std::vector<Sequence>{1, 2, 3, 4}));
}

TEST_F(CopyTest, WhatIsBehindIsEnoughToFollow) {
  append({creation(1)});
  append({push(1, 2)});
  auto copy = open_copy(dir_.store());
  take_up(*copy);
  append({push(1, 3)});
  TakeOver read;
  std::string error;
  ASSERT_TRUE(parse_take_over(kKeys, etcd_.apply(take_over_read(kKeys, 3)), read, error, 3))
      << error;
  EXPECT_EQ(read.log.size(), 1u);
  ASSERT_EQ(copy->take_up(config_, read, error), Copy::Took::kAll) << error;
  EXPECT_EQ(copy->stamp().tail, read.tail);
}

// After trouble the copy knows nothing, and a piece of the log ends before what it has.
TEST_F(CopyTest, APieceThatEndsBeforeWhatTheCopyHasIsNoSetBack) {
  append({creation(1)});
  for (Sequence sequence = 2; sequence <= 6; ++sequence) append({push(1, sequence)});
  auto copy = open_copy(dir_.store());
  take_up(*copy);
  const Stamp stamp = copy->stamp();
  TakeOver piece;
  std::string error;
  ASSERT_TRUE(parse_take_over(kKeys, etcd_.apply(take_over_read(kKeys, 1, 3)), piece, error, 1, 3))
      << error;
  EXPECT_EQ(piece.tail.index, 3u);
  EXPECT_EQ(piece.last, 6u);
  EXPECT_EQ(copy->take_up(config_, piece, error), Copy::Took::kAll) << error;
  EXPECT_EQ(copy->stamp(), stamp);
  append({push(1, 7)});
  take_up(*copy);
  EXPECT_EQ(copy->stamp().tail.index, 7u);
}

TEST_F(CopyTest, AnEmptyDiskIsFilledPieceByPiece) {
  append({creation(1)});
  for (Sequence sequence = 2; sequence <= 6; ++sequence) append({push(1, sequence)});
  auto copy = open_copy(dir_.store());
  for (Index from = 1; from <= 6; from += 2) {
    TakeOver piece;
    std::string error;
    const Answer read = etcd_.apply(take_over_read(kKeys, from, 2));
    ASSERT_TRUE(parse_take_over(kKeys, read, piece, error, from, 2)) << error;
    ASSERT_EQ(copy->take_up(config_, piece, error), Copy::Took::kAll) << error;
    EXPECT_EQ(copy->stamp().tail.index, from + 1);
  }
  EXPECT_EQ(copy->stamp().tail, etcd_.read().tail);
  std::string error;
  const auto store = copy->hand_over(error);
  EXPECT_EQ(store::sequences(*store, 1), (std::vector<Sequence>{1, 2, 3, 4, 5, 6}));
}

TEST_F(CopyTest, ALogThatWentBackIsNotFollowed) {
  append({creation(1)});
  append({push(1, 2)});
  auto copy = open_copy(dir_.store());
  take_up(*copy);
  const Stamp stamp = copy->stamp();
  etcd_.apply({{},
               {{Op::Kind::kDelete, kKeys.log(), "", end_of(kKeys.log())},
                {Op::Kind::kPut, kKeys.tail(), encode(Tail{})}},
               {}});
  append({creation(1), push(1, 2)});
  std::string error;
  EXPECT_EQ(copy->take_up(config_, etcd_.read(), error), Copy::Took::kSetBack);
  EXPECT_NE(error.find("(the log ends at 1 of generation 1, the copy at 2 of 1)"),
            std::string::npos)
      << error;
  append({push(1, 3)});
  EXPECT_EQ(copy->take_up(config_, etcd_.read(), error), Copy::Took::kSetBack)
      << "as far as the copy, with other entries";
  EXPECT_EQ(copy->stamp(), stamp);
}

TEST_F(CopyTest, ACopyOfAnotherClusterIsRefusedAndOneOfAnEarlierGenerationSetAside) {
  append({creation(1), push(1, 2)});
  auto copy = open_copy(dir_.store());
  take_up(*copy);
  std::string error;
  Config other = config_;
  other.cluster[0] = 8;
  EXPECT_EQ(copy->take_up(other, etcd_.read(), error), Copy::Took::kRefused);
  EXPECT_THAT(error, HasSubstr(dir_.store() + " is a copy of another cluster's history"));
  EXPECT_THAT(error, HasSubstr("etcd has lost something"));
  config_.generation = 2;
  take_up(*copy);
  EXPECT_EQ(copy->stamp().generation, 2u);
  EXPECT_TRUE(std::filesystem::exists(copy->set_aside() + "/CURRENT")) << copy->set_aside();
  EXPECT_EQ(count_set_aside(dir_.store()), 1U);
}

TEST_F(CopyTest, OfAGenerationTheFirstTheLargestAndTheLatestStayAside) {
  append({creation(1)});
  auto copy = open_copy(dir_.store());
  take_up(*copy);
  const std::string aside = dir_.store() + ".set_aside-";
  for (const char* earlier :
       {"1-1000000001", "1-1000000002", "1-1000000003", "1-1000000004", "11-1000000002"}) {
    std::filesystem::create_directory(aside + earlier);
  }
  std::filesystem::create_directory(aside + "1-1000000002/history");
  std::ofstream(aside + "1-1000000002/history/of") << "much";
  config_.generation = 2;
  take_up(*copy);
  EXPECT_TRUE(copy->set_aside().starts_with(aside + "1-")) << copy->set_aside();
  for (const std::string& there : {aside + "1-1000000001", aside + "1-1000000002",
                                   copy->set_aside(), aside + "11-1000000002"}) {
    EXPECT_TRUE(std::filesystem::exists(there)) << there;
  }
  EXPECT_EQ(count_set_aside(dir_.store()), 4U);
}

// Three jobs, of which only snapshots and the end of the log are in etcd.
TEST_F(CopyTest, ARebuildThatIsInterruptedMissesNothingTheNextTime) {
  const TakeOver read = etcd_.read();
  Nonce nonces{++lives_, 0};
  ShardLog log(kKeys, lead(), nonces, read.tail, read.first);
  for (JobId job = 1; job <= 3; ++job) {
    log.add({encode_records({creation(job), push(job, 2)}, encoder_)});
    run(log);
    log.add_snapshot(job, 2, encode_snapshot(store::sample_snapshot(job, 2), encoder_));
    run(log);
  }
  log.remove_before(log.tail().index + 1);
  run(log);
  log.add({encode_records({push(2, 3)}, encoder_)});
  // Of a job that is gone but for its last records.
  log.add({encode_records({push(9, 7)}, encoder_)});
  run(log);

  auto copy = open_copy(dir_.store());
  for (const int left : {0, 1, 1}) {
    fetches_left_ = left;
    std::string error;
    EXPECT_EQ(copy->take_up(config_, etcd_.read(), error), Copy::Took::kNotYet);
    EXPECT_EQ(copy->stamp(), Stamp{}) << "the next read must not begin behind what is not there";
  }
  fetches_left_ = 1;
  take_up(*copy);
  std::string error;
  const auto store = copy->hand_over(error);
  ASSERT_NE(store, nullptr) << error;
  std::vector<store::RecoveredJob> jobs;
  ASSERT_TRUE(store->load(jobs, error)) << error;
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(jobs[1].records.size(), 1u);
}

TEST_F(CopyTest, AStoreOfOneDaemonIsNoCopyAndACopyNoStoreOfOneDaemon) {
  append({creation(1)});
  {
    auto copy = open_copy(dir_.store());
    take_up(*copy);
  }
  std::string error;
  store::Options options;
  options.path = dir_.store();
  EXPECT_EQ(store::open_rocks_store(options, error), nullptr);
  EXPECT_NE(error.find("is a copy of a cluster's history"), std::string::npos) << error;
  options.read_only = true;
  EXPECT_NE(store::open_rocks_store(options, error), nullptr) << error;

  options = {};
  options.path = dir_.path() + "/alone";
  {
    const auto store = store::open_rocks_store(options, error);
    store::Reports reports;
    store->start(reports.callback());
    ASSERT_TRUE(store->submit(1, store::batch_of({creation(1)})));
    ASSERT_TRUE(reports.wait_for(1));
    ASSERT_TRUE(store->close(1'000'000, error));
  }
  options.is_copy = true;
  EXPECT_EQ(store::open_rocks_store(options, error), nullptr);
  EXPECT_NE(error.find("has the history of a single daemon"), std::string::npos) << error;
}

// etcd was restored from before the cluster was begun anew.
TEST_F(CopyTest, ItIsNotSetAsideForAnEarlierGeneration) {
  config_.generation = 2;
  append({creation(1), push(1, 2)});
  auto copy = open_copy(dir_.store());
  take_up(*copy);
  config_.generation = 1;
  std::string error;
  EXPECT_EQ(copy->take_up(config_, etcd_.read(), error), Copy::Took::kSetBack);
  EXPECT_NE(error.find("of generation 1, the copy at 1 of 2"), std::string::npos) << error;
  EXPECT_EQ(copy->set_aside(), "");
}

}  // namespace
}  // namespace syncd::cluster
