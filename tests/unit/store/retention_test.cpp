// What retention removes: the decision, and what a store then has, says and starts with.
#include "daemon/edge/store/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "daemon/edge/store/maintenance.h"
#include "daemon/edge/store/salvage.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::HasSubstr;

// ---- the decision
// ---------------------------------------------------------------------------------

Extent three_marks() {
  Extent extent;
  extent.bytes = 1000;
  extent.last_us = 90;
  extent.marks = {{10, 20, 300}, {20, 50, 600}, {30, 80, 900}};
  return extent;
}

TEST(Retention, NothingGoesWithoutRules) {
  EXPECT_EQ(first_to_keep(three_marks(), {}, 1'000'000), 1u);
}

TEST(Retention, ByAgeGoesWhatIsBeforeAnOldMark) {
  EXPECT_EQ(first_to_keep(three_marks(), {10, 0}, 29), 1u);
  EXPECT_EQ(first_to_keep(three_marks(), {10, 0}, 30), 11u);
  EXPECT_EQ(first_to_keep(three_marks(), {10, 0}, 60), 21u);
  EXPECT_EQ(first_to_keep(three_marks(), {10, 0}, 1'000'000), 31u) << "what follows it stays";
}

TEST(Retention, BySizeGoesAsMuchAsItTakes) {
  EXPECT_EQ(first_to_keep(three_marks(), {0, 1000}, 0), 1u);
  EXPECT_EQ(first_to_keep(three_marks(), {0, 999}, 0), 11u);
  EXPECT_EQ(first_to_keep(three_marks(), {0, 700}, 0), 11u);
  EXPECT_EQ(first_to_keep(three_marks(), {0, 699}, 0), 21u);
  EXPECT_EQ(first_to_keep(three_marks(), {0, 1}, 0), 31u) << "what follows the last mark stays";
}

TEST(Retention, GoesOnWhereItCutBefore) {
  Extent extent = three_marks();
  extent.first = 11;
  extent.removed_bytes = 300;
  EXPECT_EQ(first_to_keep(extent, {0, 700}, 0), 11u) << "what is gone does not count";
  EXPECT_EQ(first_to_keep(extent, {0, 699}, 0), 21u);
  EXPECT_EQ(first_to_keep(extent, {10, 0}, 30), 11u);
}

TEST(Retention, OnlyAJobThatHasEndedGoesWhole) {
  Extent extent = three_marks();
  EXPECT_FALSE(is_outdated(extent, {10, 0}, 1'000'000));
  extent.stopped = true;
  EXPECT_FALSE(is_outdated(extent, {10, 0}, 99));
  EXPECT_TRUE(is_outdated(extent, {10, 0}, 100));
  EXPECT_FALSE(is_outdated(extent, {0, 1}, 1'000'000)) << "by age alone";
}

// ---- a store
// --------------------------------------------------------------------------------------

class RetainingStore : public ::testing::Test {
 protected:
  void open(Micros keep_us, std::uint64_t keep_bytes) {
    Options options;
    options.path = dir_.store();
    options.mode = Mode::kFast;
    options.retention_us = keep_us;
    options.retention_bytes = keep_bytes;
    options.now = [this] { return now_.load(); };
    std::string error;
    store_ = open_rocks_store(options, error);
    ASSERT_NE(store_, nullptr) << error;
    jobs_.clear();
    ASSERT_TRUE(store_->load(jobs_, error)) << error;
    reports_ = std::make_unique<Reports>();
    store_->start(reports_->callback());
  }
  void close() {
    std::string error;
    ASSERT_TRUE(store_->close(30'000'000, error)) << error;
    store_.reset();
  }
  // Records up to `last` of the job, each commit of ten ending with a snapshot.
  void write(JobId job, Sequence first, Sequence last) {
    for (Sequence s = first; s <= last; s += 10) {
      Batch batch;
      for (Sequence i = s; i < s + 10; ++i) {
        batch.records.push_back(i == 1 ? creation(job) : push(job, i));
      }
      batch.snapshots.push_back(snapshot_at(job, s + 9));
      ASSERT_TRUE(store_->submit(++ticket_, std::move(batch)));
      ASSERT_TRUE(reports_->wait_for(ticket_));
    }
  }
  static JobSnapshot snapshot_at(JobId job, Sequence sequence) {
    JobSnapshot snapshot = sample_snapshot(job, sequence);
    snapshot.time_us = time_of(sequence);
    return snapshot;
  }
  static Micros time_of(Sequence sequence) { return push(1, sequence).time_us; }
  Sequence first(JobId job) {
    ReadResult page;
    std::string error;
    EXPECT_TRUE(store_->read(job, 1, 1, 1 << 20, page, error)) << error;
    if (!page.records.empty()) {
      EXPECT_EQ(page.first_sequence, page.records.front().sequence);
    }
    return page.first_sequence;
  }
  void await_removed(JobId job, Sequence first) {
    ASSERT_TRUE(reports_->wait_until([&](const CommitReport&) { return removed(job, first); }));
  }
  bool removed(JobId job, Sequence first) {
    // The collector holds its lock while it asks.
    ReadResult page;
    std::string error;
    return store_->read(job, 1, 1, 1 << 20, page, error) && page.first_sequence == first;
  }
  StoreCheck check() {
    StoreCheck found;
    std::string error;
    EXPECT_TRUE(check_store(dir_.store(), found, error)) << error;
    return found;
  }

  TempDir dir_;
  std::atomic<Micros> now_{time_of(0)};
  std::unique_ptr<Store> store_;
  std::unique_ptr<Reports> reports_;
  std::vector<RecoveredJob> jobs_;
  Ticket ticket_ = 0;
};

TEST_F(RetainingStore, BySizeKeepsTheLatestAndStartsAgainWithIt) {
  open(0, 2000);
  write(1, 1, 200);
  close();  // the writer has looked at all of it by now
  const StoreCheck found = check();
  ASSERT_EQ(found.jobs.size(), 1u);
  EXPECT_TRUE(found.sound()) << found.jobs[0].problems.front();
  EXPECT_EQ(found.jobs[0].last, 200u);
  EXPECT_LE(found.jobs[0].bytes, 2000u);
  EXPECT_GT(found.jobs[0].records, 5u);
  EXPECT_EQ(found.jobs[0].first % 10, 1u) << "right after a snapshot";

  open(0, 2000);
  ASSERT_EQ(jobs_.size(), 1u);
  EXPECT_EQ(jobs_[0].snapshot->sequence, 200u);
  EXPECT_EQ(first(1), found.jobs[0].first);
  // Sizes go on from where they were: as much is left as before.
  write(1, 201, 300);
  close();
  EXPECT_EQ(check().jobs[0].records, found.jobs[0].records);
}

TEST_F(RetainingStore, ByAgeEvenWhenNothingIsWritten) {
  open(1'000'000, 0);
  write(1, 1, 50);
  EXPECT_EQ(first(1), 1u);
  now_ = time_of(30) + 1'000'000;
  await_removed(1, 31);
  EXPECT_EQ(sequences(*store_, 1).size(), 20u);
  close();
  EXPECT_TRUE(check().sound());
}

TEST_F(RetainingStore, WhatFollowsTheLatestSnapshotStays) {
  open(1'000'000, 1);
  write(1, 1, 50);
  ASSERT_TRUE(store_->submit(++ticket_, batch_of({push(1, 51), push(1, 52)})));
  ASSERT_TRUE(reports_->wait_for(ticket_));
  now_ = time_of(1'000'000'000);
  await_removed(1, 51);
  EXPECT_EQ(sequences(*store_, 1), (std::vector<Sequence>{51, 52}));
  close();
  open(0, 0);
  ASSERT_EQ(jobs_.size(), 1u);
  EXPECT_EQ(jobs_[0].records.size(), 2u);
  EXPECT_TRUE(check().sound());
}

// The job with the highest id stays, so that no other gets that id.
TEST_F(RetainingStore, AJobThatEndedLongAgoGoesWholeUnlessItIsTheLatest) {
  open(1'000'000, 0);
  for (const JobId job : {1U, 2U}) {
    write(job, 1, 20);
    Record stop = push(job, 21);
    stop.kind = RecordKind::kJobStopped;
    stop.epoch = 6 + job;
    JobSnapshot snapshot = snapshot_at(job, 21);
    snapshot.state = JobState::kStopped;
    ASSERT_TRUE(store_->submit(++ticket_, Batch{{stop}, {snapshot}}));
  }
  ASSERT_TRUE(reports_->wait_for(ticket_));
  now_ = time_of(21) + 1'000'000;
  await_removed(1, 0);
  await_removed(2, 22);
  close();
  bool told = false;
  for (const CommitReport& report : reports_->all()) {
    for (const Removed& removed : report.removed) {
      EXPECT_EQ(report.batches, 0u);
      if (removed.first != 0) continue;
      told = true;
      EXPECT_EQ(removed.job, 1u);
      EXPECT_EQ(removed.name, "cifar");
      EXPECT_EQ(removed.records, 21u);
    }
  }
  EXPECT_TRUE(told);
  open(1'000'000, 0);
  EXPECT_EQ(store_->removed_epoch(), 7u) << "no later job may take it up";
  ASSERT_EQ(jobs_.size(), 1u);
  EXPECT_EQ(jobs_[0].snapshot->created.job, 2u);
  EXPECT_TRUE(check().sound());
}

// ---- the checkpoints of jobs that have gone

class KeepingStore : public RetainingStore {
 protected:
  static CheckpointSnapshot checkpoint(std::uint64_t number, Epoch epoch) {
    CheckpointSnapshot made;
    made.number = number;
    made.state = CheckpointState::kComplete;
    made.epoch = epoch;
    made.since_us = time_of(15);
    made.fixed = true;
    made.shards = 2;
    made.saved = {{0, 0, 40, "/c/0"}, {1, 1, 40, "/c/1"}};
    return made;
  }
  // A job that has ended with this as its latest complete checkpoint, and with one that is not.
  void end(JobId job, const CheckpointSnapshot& complete, const char* name = "cifar") {
    Record created = creation(job, name);
    Record stop = push(job, 2);
    stop.kind = RecordKind::kJobStopped;
    JobSnapshot snapshot = snapshot_at(job, 2);
    snapshot.created = created;
    snapshot.state = JobState::kStopped;
    CheckpointSnapshot open = checkpoint(complete.number + 1, complete.epoch);
    open.state = CheckpointState::kOpen;
    snapshot.checkpoints = {complete, open};
    ASSERT_TRUE(store_->submit(++ticket_, Batch{{created, stop}, {snapshot}}));
    ASSERT_TRUE(reports_->wait_for(ticket_));
  }
  // Jobs go whole, but for the latest.
  void retain_nothing(JobId last) {
    now_ = now_ + 1'000'000'000;
    await_removed(last, 0);
  }
  // What a start has of jobs that are gone.
  std::vector<KeptCheckpoint> kept() {
    open(0, 0);
    auto taken = store_->take_kept_checkpoints();
    close();
    return taken;
  }
};

TEST_F(KeepingStore, TheLatestCompleteOneOutlivesItsJobAndItsCopies) {
  open(1'000'000, 0);
  end(1, checkpoint(3, 1));
  end(2, checkpoint(1, 9), "resnet");
  end(3, {}, "without");
  write(4, 1, 10);
  retain_nothing(3);
  close();
  std::uint64_t told = 0;
  for (const CommitReport& report : reports_->all()) {
    for (const Removed& removed : report.removed) {
      if (removed.job == 1) told = removed.checkpoint;
    }
  }
  EXPECT_EQ(told, 3u);
  const std::vector<KeptCheckpoint> both = {{"cifar", checkpoint(3, 1)},
                                            {"resnet", checkpoint(1, 9)}};
  EXPECT_EQ(kept(), both);
  EXPECT_EQ(kept(), both) << "a start takes nothing away";
  EXPECT_TRUE(check().sound());
  EXPECT_EQ(check().kept_checkpoints, 2u);

  std::string error;
  ASSERT_TRUE(backup_store(dir_.store(), dir_.path() + "/backup", error)) << error;
  std::filesystem::remove_all(dir_.store());
  ASSERT_TRUE(restore_store(dir_.path() + "/backup", dir_.store(), error)) << error;
  EXPECT_EQ(kept(), both);
  std::uint64_t before = 0, after = 0;
  ASSERT_TRUE(compact_store(dir_.store(), before, after, error)) << error;
  EXPECT_EQ(kept(), both);
}

TEST_F(KeepingStore, ALaterOneOfItsNameTakesItsPlaceAndAnEarlierOneDoesNot) {
  open(1'000'000, 0);
  end(1, checkpoint(3, 2));
  write(5, 1, 10);
  retain_nothing(1);
  end(6, checkpoint(7, 1));
  write(7, 1, 10);
  retain_nothing(6);
  close();
  EXPECT_EQ(kept(), (std::vector<KeptCheckpoint>{{"cifar", checkpoint(3, 2)}}));
  open(1'000'000, 0);
  end(8, checkpoint(1, 3));
  write(9, 1, 10);
  retain_nothing(8);
  close();
  EXPECT_EQ(kept(), (std::vector<KeptCheckpoint>{{"cifar", checkpoint(1, 3)}}));
}

TEST_F(KeepingStore, DamageToOneIsFoundAndSalvageKeepsTheOthers) {
  open(1'000'000, 0);
  end(1, checkpoint(3, 1));
  end(2, checkpoint(1, 9), "resnet");
  write(4, 1, 10);
  retain_nothing(2);
  close();
  const std::string damaged = "damaged";
  tamper(dir_.store(), "meta", "keptcifar", &damaged);
  const StoreCheck found = check();
  EXPECT_FALSE(found.sound());
  ASSERT_EQ(found.problems.size(), 1u);
  EXPECT_THAT(found.problems[0], HasSubstr("the checkpoint of removed job 'cifar'"));
  Options options;
  options.path = dir_.store();
  std::string error;
  {
    const auto store = open_rocks_store(options, error);
    ASSERT_NE(store, nullptr) << error;
    EXPECT_FALSE(store->load(jobs_, error));
    EXPECT_THAT(error, HasSubstr("'cifar'"));
    EXPECT_THAT(error, HasSubstr("--store-salvage"));
  }
  Salvaged salvaged;
  ASSERT_TRUE(salvage_store(dir_.store(), salvaged, error)) << error;
  EXPECT_TRUE(salvaged.needed);
  ASSERT_EQ(salvaged.files.size(), 1u);
  EXPECT_THAT(salvaged.files[0], HasSubstr("'cifar'"));
  EXPECT_EQ(kept(), (std::vector<KeptCheckpoint>{{"resnet", checkpoint(1, 9)}}));
  EXPECT_TRUE(check().sound());
}

TEST_F(RetainingStore, AHoleInWhatIsLeftIsStillFound) {
  open(0, 2000);
  write(1, 1, 200);
  close();
  const Sequence left = check().jobs[0].first;
  tamper(dir_.store(), "records", key_of(1, left + 9), nullptr);
  const StoreCheck found = check();
  ASSERT_FALSE(found.sound());
  EXPECT_THAT(found.jobs[0].problems.front(), HasSubstr("records " + std::to_string(left) + " to " +
                                                        std::to_string(left + 9) + " are missing"));
}

// Marks are newer than the format: a store without them is cut all the same.
TEST_F(RetainingStore, AStoreWithoutMarksIsCutAtItsSnapshot) {
  open(0, 0);
  write(1, 1, 50);
  close();
  for (Sequence s = 10; s <= 50; s += 10) {
    tamper(dir_.store(), "meta", "mark" + key_of(1, s), nullptr);
  }
  now_ = time_of(50) + 1'000'000;
  open(1'000'000, 0);
  await_removed(1, 51);
  close();
  EXPECT_TRUE(check().sound());
}

}  // namespace
}  // namespace syncd::store
