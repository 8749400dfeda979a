// The store in memory keeps to its bound: what a restart would not need goes first, and the rest is
// whole.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"

namespace syncd::store {
namespace {

constexpr std::size_t kBytesMax = 256 * 1024;

class MemoryStoreTest : public ::testing::Test {
 protected:
  MemoryStoreTest() {
    store_->start([this](const CommitReport& report) {
      for (const Removed& removed : report.removed) removed_.push_back(removed);
      for (const JobId job : report.wants_snapshot) wanted_.push_back(job);
      committed_ = report.committed;
    });
  }
  Record record(JobId job, RecordKind kind) {
    Record record;
    record.kind = kind;
    record.job = job;
    record.sequence = ++sequence_[job];
    record.time_us = static_cast<Micros>(record.sequence);
    record.rank = kind == RecordKind::kPush ? 3 : kNoRank;
    return record;
  }
  void create(JobId job) {
    Batch batch;
    batch.records.push_back(record(job, RecordKind::kJobCreated));
    batch.records.back().name = "job " + std::to_string(job);
    submit(std::move(batch));
  }
  // In batches of 100, each with a snapshot if that is asked for.
  void push(JobId job, std::size_t count, bool snapshots) {
    for (; count > 0; count -= 100) {
      Batch batch;
      for (int i = 0; i < 100; ++i) batch.records.push_back(record(job, RecordKind::kPush));
      if (snapshots) {
        batch.snapshots.emplace_back();
        batch.snapshots.back().created.job = job;
        batch.snapshots.back().sequence = sequence_[job];
      }
      submit(std::move(batch));
    }
  }
  void submit(Batch&& batch) {
    ASSERT_TRUE(store_->submit(++ticket_, std::move(batch)));
    ASSERT_EQ(committed_, ticket_);
  }
  ReadResult read(JobId job, Sequence from = 1) {
    ReadResult result;
    std::string error;
    EXPECT_TRUE(store_->read(job, from, 1'000'000, SIZE_MAX, result, error)) << error;
    return result;
  }

  std::unique_ptr<Store> store_ = make_memory_store(kBytesMax);
  std::map<JobId, Sequence> sequence_;
  Ticket ticket_ = 0;
  Ticket committed_ = 0;
  std::vector<Removed> removed_;
  std::vector<JobId> wanted_;
};

TEST_F(MemoryStoreTest, APushComesBackAsItWas) {
  Record push = record(1, RecordKind::kPush);
  push.epoch = 2;
  push.incarnation = 4;
  push.iteration = 5;
  push.clock = 6;
  push.base = 7;
  push.late = true;
  push.span_us = 8;
  push.waited_us = 9;
  push.staleness = -10;
  push.loss = 0.0;
  push.samples = 11;
  push.bytes = 12;
  push.restarts = 13;
  push.wasted_us = 14;
  push.declined = true;
  Batch batch;
  batch.records.push_back(push);
  batch.records.push_back(record(1, RecordKind::kPush));
  submit(std::move(batch));
  const ReadResult result = read(1);
  ASSERT_EQ(result.records.size(), 2U);
  Record back;
  std::string error;
  ASSERT_TRUE(decode_record(result.records[0].bytes, back, error)) << error;
  EXPECT_EQ(back, push);
  ASSERT_TRUE(decode_record(result.records[1].bytes, back, error)) << error;
  EXPECT_FALSE(back.loss.has_value());
}

TEST_F(MemoryStoreTest, WhatPrecedesASnapshotGoes) {
  create(1);
  create(2);
  push(2, 100, false);
  push(1, 10'000, true);
  ASSERT_FALSE(removed_.empty());
  std::uint64_t gone = 0;
  for (const Removed& removed : removed_) {
    EXPECT_EQ(removed.job, 1U) << "the other one has no snapshot";
    gone += removed.records;
    EXPECT_EQ(removed.first, gone + 1);
  }
  const ReadResult result = read(1);
  EXPECT_EQ(result.first_sequence, gone + 1);
  ASSERT_FALSE(result.records.empty());
  EXPECT_EQ(result.records.front().sequence, gone + 1);
  EXPECT_EQ(result.records.size(), sequence_[1] - gone) << "the rest is whole";
  EXPECT_LT(result.records.size() * 100, kBytesMax);
  EXPECT_GT(result.records.size() * 200, kBytesMax / 2) << "no more goes than must";
  EXPECT_EQ(read(2).first_sequence, 1U);
  EXPECT_EQ(read(2).records.size(), 101U);
  std::vector<Record> created;
  std::string error;
  ASSERT_TRUE(store_->jobs(created, error)) << error;
  ASSERT_EQ(created.size(), 2U);
  EXPECT_EQ(created[0].name, "job 1") << "is kept apart";
}

TEST_F(MemoryStoreTest, JobsThatHaveEndedGoWholly) {
  for (JobId job = 1; job <= 1'000; ++job) {
    create(job);
    Batch batch;
    batch.snapshots.emplace_back();
    JobSnapshot& snapshot = batch.snapshots.back();
    snapshot.created.job = job;
    snapshot.sequence = sequence_[job];
    snapshot.epoch = job;
    snapshot.state = job == 1 ? JobState::kRunning : JobState::kStopped;
    submit(std::move(batch));
  }
  std::vector<Record> created;
  std::string error;
  ASSERT_TRUE(store_->jobs(created, error)) << error;
  ASSERT_LT(created.size(), 400U);
  EXPECT_EQ(created.front().job, 1U) << "which goes on";
  EXPECT_EQ(created.back().job, 1'000U);
  ASSERT_FALSE(removed_.empty());
  EXPECT_EQ(removed_.back().first, 0U);
  EXPECT_EQ(removed_.back().name, "job " + std::to_string(removed_.back().job));
  EXPECT_EQ(store_->removed_epoch(), removed_.back().job);
  EXPECT_EQ(read(2).first_sequence, 0U) << "is not known any more";
}

TEST_F(MemoryStoreTest, ItAsksForSnapshotsOfTheLongestTails) {
  for (JobId job = 1; job <= 100; ++job) create(job);
  push(7, 1'000, false);
  push(8, 2'000, false);
  ASSERT_FALSE(wanted_.empty());
  EXPECT_EQ(wanted_[0], 7U);
  EXPECT_EQ(wanted_[1], 8U);
  EXPECT_TRUE(removed_.empty()) << "nothing goes that a restart needs";
  EXPECT_EQ(read(8).records.size(), 2'001U);
  Batch batch;
  batch.snapshots.emplace_back();
  batch.snapshots.back().created.job = 8;
  batch.snapshots.back().sequence = sequence_[8];
  submit(std::move(batch));
  push(7, 1'000, false);
  EXPECT_EQ(removed_.at(0).job, 8U);
}

}  // namespace
}  // namespace syncd::store
