// The leader's store, against a model of etcd.
#include "daemon/edge/cluster/shard_store.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include "daemon/edge/cluster/log_records.h"
#include "fixture.h"
#include "tests/support/forwarding_store.h"

namespace syncd::cluster {
namespace {

using store::Batch;
using store::creation;
using store::push;

// A copy that tells of no commit while `syncs` is false.
class SlowDisk final : public test::ForwardingStore {
 public:
  SlowDisk(std::unique_ptr<Store> inner, const std::atomic<bool>& syncs)
      : ForwardingStore(std::move(inner)), syncs_(syncs) {}
  void start(store::CommitCallback callback) override {
    ForwardingStore::start([this, callback](const store::CommitReport& report) {
      if (syncs_) callback(report);
    });
  }

 private:
  const std::atomic<bool>& syncs_;
};

class ShardStoreTest : public ClusterTest {
 protected:
  std::unique_ptr<ShardStore> open(const std::string& path, const LogLimits& limits = {}) {
    const Term term = lead();
    auto copy = open_copy(path);
    // As a member does: what its copy has is not read again.
    const TakeOver read = etcd_.read(copy->stamp().tail.index + 1);
    std::string error;
    EXPECT_EQ(copy->take_up(config_, read, error), Copy::Took::kAll) << error;
    entries_read_ = read.log.size();
    std::unique_ptr<store::Store> store = copy->hand_over(error);
    EXPECT_NE(store, nullptr) << error;
    store = std::make_unique<SlowDisk>(std::move(store), syncs_);
    ShardStore::Options options{kKeys, config_, term, {lives_, 0}, 1'000'000, "lab", {}, {}};
    options.log = [](const LogLine&) {};
    options.on_deposed = [this](const std::string& reason, bool is_unfit) {
      deposed_.set_value(reason + (is_unfit ? " (unfit)" : ""));
    };
    options.limits = limits;
    options.figures = figures_;
    options.etcd_quota_bytes = 100;
    auto opened = std::make_unique<ShardStore>(std::move(options), read, etcd_, std::move(store));
    EXPECT_TRUE(opened->load(jobs_, error)) << error;
    opened->start(reports_.callback());
    return opened;
  }
  void submit(ShardStore& store, std::vector<Record> records) {
    ASSERT_TRUE(store.submit(++ticket_, store::batch_of(std::move(records))));
  }
  void commit(ShardStore& store, std::vector<Record> records) {
    submit(store, std::move(records));
    ASSERT_TRUE(reports_.wait_for(ticket_));
  }
  // As the engine does: with a snapshot where the store wants one.
  void push_on(ShardStore& store, Sequence sequence) {
    Batch batch = store::batch_of({push(1, sequence)});
    for (const store::CommitReport& report : reports_.all()) {
      if (report.committed == ticket_ && !report.wants_snapshot.empty()) {
        batch.snapshots.push_back(store::sample_snapshot(1, sequence));
      }
    }
    ASSERT_TRUE(store.submit(++ticket_, std::move(batch)));
    ASSERT_TRUE(reports_.wait_for(ticket_));
    if (syncs_) wait_for_copy();
  }
  // Entries go only once the copy has them on its disk, which may be slow.
  void wait_for_copy() {
    while (figures_->copied < figures_->last) std::this_thread::yield();
  }
  Index first() { return etcd_.read().first.index; }
  void close(ShardStore& store) {
    std::string error;
    EXPECT_TRUE(store.close(30'000'000, error)) << error;
  }
  // The sequences that a member with an empty disk finds.
  std::vector<Sequence> found_elsewhere(const char* name) {
    auto copy = open_copy(dir_.path() + "/" + name);
    take_up(*copy);
    std::string error;
    const auto store = copy->hand_over(error);
    EXPECT_NE(store, nullptr) << error;
    return store == nullptr ? std::vector<Sequence>{} : store::sequences(*store, 1);
  }
  static std::vector<Sequence> up_to(Sequence last) {
    std::vector<Sequence> all(last);
    std::iota(all.begin(), all.end(), Sequence{1});
    return all;
  }

  std::atomic<bool> syncs_{true};  // the leader's disk
  store::Reports reports_;
  std::vector<store::RecoveredJob> jobs_;
  std::promise<std::string> deposed_;
  std::size_t entries_read_ = 0;  // when the latest one was opened
  std::shared_ptr<LogFigures> figures_ = std::make_shared<LogFigures>();
  Ticket ticket_ = 0;
};

TEST_F(ShardStoreTest, WhatIsCommittedIsInEtcdAndThenInTheCopy) {
  auto store = open(dir_.store());
  commit(*store, {creation(1), push(1, 2)});
  EXPECT_EQ(etcd_.read().tail.index, 1u);
  commit(*store, {push(1, 3)});
  close(*store);
  store.reset();
  EXPECT_EQ(found_elsewhere("b"), up_to(3));
  auto again = open(dir_.store());
  ASSERT_EQ(jobs_.size(), 1u);
  EXPECT_EQ(jobs_[0].records.size(), 3u);
  EXPECT_TRUE(again->is_shared());
}

TEST_F(ShardStoreTest, WhatComesWhileAnEntryIsUnderWayGoesIntoTheNextOne) {
  auto store = open(dir_.store());
  std::promise<void> is_under_way;
  std::promise<void> go_on;
  etcd_.set_fault([&, first = true](const Transaction& transaction) mutable {
    if (std::exchange(first, false)) {
      is_under_way.set_value();
      go_on.get_future().wait();
    }
    return etcd_.apply(transaction);
  });
  submit(*store, {creation(1)});
  is_under_way.get_future().wait();
  for (Sequence sequence = 2; sequence <= 9; ++sequence) submit(*store, {push(1, sequence)});
  go_on.set_value();
  ASSERT_TRUE(reports_.wait_for(ticket_));
  EXPECT_EQ(etcd_.read().tail.index, 2u);
  close(*store);
}

TEST_F(ShardStoreTest, AnAnswerThatGotLostCommitsOnce) {
  auto store = open(dir_.store());
  commit(*store, {creation(1)});
  std::atomic<int> lost = 3;
  etcd_.set_fault([&](const Transaction& transaction) {
    const Answer answer = etcd_.apply(transaction);
    return lost-- > 0 ? Answer{} : answer;
  });
  commit(*store, {push(1, 2)});
  commit(*store, {push(1, 3)});
  EXPECT_EQ(etcd_.read().tail.index, 3u);
  close(*store);
  store.reset();
  EXPECT_EQ(found_elsewhere("b"), up_to(3));
}

TEST_F(ShardStoreTest, ALeaderThatWasOvertakenCommitsNothingAndSaysSo) {
  auto store = open(dir_.store());
  commit(*store, {creation(1)});
  lead();  // another one
  submit(*store, {push(1, 2)});
  EXPECT_EQ(deposed_.get_future().get(), "another member leads");
  std::string error;
  EXPECT_FALSE(store->close(0, error));
  EXPECT_EQ(error, "lab: 1 batches could not be appended before the end: another member leads");
  EXPECT_EQ(reports_.all().back().committed, 1u);
  EXPECT_EQ(etcd_.read().tail.index, 1u);
}

TEST_F(ShardStoreTest, WhatEtcdRefusesForGoodEndsIt) {
  auto store = open(dir_.store());
  etcd_.set_fault([](const Transaction&) {
    Answer answer{Answer::Kind::kRefused};
    answer.error = "permission denied";
    return answer;
  });
  submit(*store, {creation(1)});
  EXPECT_EQ(deposed_.get_future().get(),
            "etcd refuses an entry for good: permission denied (unfit)");
  std::string ignored;
  store->close(0, ignored);
}

TEST_F(ShardStoreTest, TheLogIsRemovedOnceSnapshotsCoverItAndAnEmptyDiskStillFindsTheJob) {
  auto store = open(dir_.store(), {{1, 4}, {1, 8}});
  commit(*store, {creation(1)});
  Sequence sequence = 1;
  for (int i = 0; i < 2'000 && first() < 20; ++i) push_on(*store, ++sequence);
  ASSERT_GE(first(), 20u);
  close(*store);
  store.reset();
  const TakeOver read = etcd_.read();
  ASSERT_EQ(read.pointers.size(), 1u);
  const Sequence covered = read.pointers[0].second.sequence;

  auto copy = open_copy(dir_.path() + "/empty");
  take_up(*copy);
  EXPECT_EQ(copy->stamp().tail, read.tail);
  std::string error;
  const auto rebuilt = copy->hand_over(error);
  std::vector<store::RecoveredJob> jobs;
  ASSERT_TRUE(rebuilt->load(jobs, error)) << error;
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].snapshot->sequence, covered);
  EXPECT_EQ(jobs[0].records.size(), sequence - covered);
  store::ReadResult page;
  ASSERT_TRUE(rebuilt->read(1, 1, 1, 1 << 20, page, error)) << error;
  EXPECT_EQ(page.first_sequence, covered + 1) << "older history is on other members";
}

// A member that is away, or slow, finds what it lacks, until that is too much.
TEST_F(ShardStoreTest, TheLogStaysForTheCopiesOfOtherMembers) {
  figures_->others_have = 3;
  auto store = open(dir_.store(), {{1, 4}, {1, 8}, {1 << 20, 64}});
  commit(*store, {creation(1)});
  Sequence sequence = 1;
  while (figures_->last < 64) push_on(*store, ++sequence);
  EXPECT_LE(first(), 4u);
  for (int i = 0; i < 2'000 && first() <= 4; ++i) push_on(*store, ++sequence);
  EXPECT_GT(first(), 4u) << "64 of them at most, once a snapshot covers them";
  EXPECT_GE(figures_->last, 65u);
  figures_->others_have = 1'000'000;
  for (int i = 0; i < 2'000 && figures_->last - first() > 16; ++i) push_on(*store, ++sequence);
  EXPECT_LE(figures_->last - first(), 16u);
  close(*store);
}

// Should the power of all members fail, only the log has what no copy has synced.
TEST_F(ShardStoreTest, TheLogStaysForACopyThatIsNotSynced) {
  figures_->others_have = 1'000'000;
  auto store = open(dir_.store(), {{1, 4}, {1, 8}, {1, 8}});
  commit(*store, {creation(1)});
  wait_for_copy();
  const Index synced = figures_->copied;
  syncs_ = false;
  Sequence sequence = 1;
  for (int i = 0; i < 2'000 && (figures_->last < 64 || etcd_.read().pointers.empty()); ++i) {
    push_on(*store, ++sequence);
  }
  ASSERT_FALSE(etcd_.read().pointers.empty()) << "snapshots cover some of it";
  for (int i = 0; i < 64; ++i) push_on(*store, ++sequence);
  EXPECT_LE(first(), synced + 1);
  const Index last = figures_->last;
  syncs_ = true;
  for (int i = 0; i < 2'000 && first() < last; ++i) push_on(*store, ++sequence);
  EXPECT_GE(first(), last);
  close(*store);
}

// All are asked for snapshots before the log has become much longer.
TEST_F(ShardStoreTest, TheLogStaysShortWithManyJobs) {
  constexpr JobId kJobs = 3'000;
  auto store = open(dir_.store(), {{1 << 30, 100}, {1 << 30, 400}, {1 << 30, 100'000}});
  std::vector<Record> created;
  for (JobId job = 1; job <= kJobs; ++job) created.push_back(creation(job));
  commit(*store, std::move(created));
  std::vector<JobId> wanted;
  for (Sequence entry = 0; entry < 6 * kJobs; ++entry) {
    const JobId job = 1 + entry % kJobs;
    Batch batch = store::batch_of({push(job, 2 + entry / kJobs)});
    for (const JobId one : wanted) {
      const Sequence sequence = (one <= job ? 2 : 1) + entry / kJobs;
      batch.snapshots.push_back(store::sample_snapshot(one, sequence));
    }
    ASSERT_TRUE(store->submit(++ticket_, std::move(batch)));
    ASSERT_TRUE(reports_.wait_until([&](const store::CommitReport& last) {
      wanted = last.wants_snapshot;
      return last.committed >= ticket_;
    }));
    if (entry % 64 == 0) wait_for_copy();
  }
  EXPECT_LE(figures_->last - figures_->first, 3 * kJobs);
  close(*store);
}

// What makes room is still appended, and what was taken before.
TEST_F(ShardStoreTest, WhileEtcdFillsPushesAreToBeRefusedAndTheRestGoesOn) {
  auto store = open(dir_.store(), {{1, 4}, {1, 8}});
  commit(*store, {creation(1)});
  figures_->etcd_bytes = 60;
  EXPECT_EQ(reports_.all().back().error, "");
  figures_->etcd_bytes = 61;
  Sequence sequence = 1;
  for (int i = 0; i < 2'000 && first() < 2; ++i) push_on(*store, ++sequence);
  EXPECT_GE(first(), 2u);
  EXPECT_THAT(reports_.all().back().error, testing::HasSubstr("cluster.etcd_quota_bytes"));
  figures_->etcd_bytes = 30;
  EXPECT_TRUE(reports_.wait_until([](const auto& last) { return last.error.empty(); }))
      << "although nothing is submitted";
  close(*store);
}

// No batch comes then that would ask for snapshots, and the log itself may be what fills it.
TEST_F(ShardStoreTest, WhileEtcdFillsItsOwnLogGoesAsFarAsItCan) {
  figures_->others_have = 0;
  auto store = open(dir_.store());
  commit(*store, {creation(1), push(1, 2)});
  commit(*store, {push(1, 3)});
  wait_for_copy();
  figures_->present_have = 1;
  figures_->etcd_bytes = 61;
  ASSERT_TRUE(reports_.wait_until([](const auto& last) { return !last.wants_snapshot.empty(); }));
  EXPECT_NE(reports_.all().back().error, "");
  Batch batch;
  batch.snapshots.push_back(store::sample_snapshot(1, 3));
  ASSERT_TRUE(store->submit(++ticket_, std::move(batch)));
  ASSERT_TRUE(reports_.wait_for(ticket_));
  // Not what a member lacks that is there.
  submit(*store, {push(1, 4)});
  ASSERT_TRUE(reports_.wait_for(ticket_));
  EXPECT_LE(first(), 2u);
  figures_->present_have = 1'000'000;
  while (first() < 3) std::this_thread::yield();
  EXPECT_EQ(etcd_.read().pointers.size(), 1u);
  close(*store);
  store.reset();
  auto copy = open_copy(dir_.path() + "/empty");
  take_up(*copy);
}

TEST(LogLimits, OfManyShardsAreThoseOfOneTogether) {
  const LogLimits one = LogLimits{}.for_one_of(1);
  EXPECT_EQ(one.keep_for_copies.bytes, LogLimits{}.keep_for_copies.bytes);
  for (const Shard shards : {1u, 2u, 5u, 16u, 64u}) {
    const LogLimits each = LogLimits{}.for_one_of(shards);
    EXPECT_LE(each.keep_for_copies.bytes * shards, 4 * one.keep_for_copies.bytes);
    const std::size_t quota = 64 << 20;
    EXPECT_LE(LogLimits{}.for_one_of(shards, quota).keep_for_copies.bytes * shards, quota / 4);
    EXPECT_LE(each.keep.bytes, each.keep_for_copies.bytes);
    EXPECT_LE(each.want_snapshots.bytes, each.keep.bytes);
    EXPECT_LE(each.want_snapshots.entries, each.keep.entries);
  }
}

// A leader whose copy had the log's beginning does not read it; and removes it all the same, once
// snapshots cover it, but no entry before.
TEST_F(ShardStoreTest, WhatTheCopyHadIsNotReadAndStillRemoved) {
  {
    auto store = open(dir_.store());
    commit(*store, {creation(1), push(1, 2)});
    commit(*store, {creation(2, "idle"), push(2, 2)});
    for (Sequence sequence = 3; sequence <= 9; ++sequence) commit(*store, {push(1, sequence)});
    close(*store);
  }
  auto store = open(dir_.store(), {{1, 4}, {1'000, 8}});
  EXPECT_LT(entries_read_, 9u) << "the copy may lack the last ones";
  EXPECT_EQ(etcd_.read().first.index, 1u);
  Sequence sequence = 9;
  bool is_wanted = false;
  for (int i = 0; i < 2'000 && etcd_.read().first.index == 1; ++i) {
    Batch batch = store::batch_of({push(1, ++sequence)});
    for (const store::CommitReport& report : reports_.all()) {
      if (report.committed != ticket_) continue;
      for (const JobId job : report.wants_snapshot) {
        is_wanted |= job == 2;
        batch.snapshots.push_back(store::sample_snapshot(job, job == 1 ? sequence : 2));
      }
    }
    ASSERT_TRUE(store->submit(++ticket_, std::move(batch)));
    ASSERT_TRUE(reports_.wait_for(ticket_));
  }
  EXPECT_TRUE(is_wanted) << "the idle job holds the log's beginning";
  EXPECT_GE(etcd_.read().first.index, 10u - entries_read_);
  EXPECT_EQ(etcd_.read().pointers.size(), 2u);
  close(*store);
  store.reset();
  auto copy = open_copy(dir_.path() + "/empty");
  take_up(*copy);
  EXPECT_EQ(copy->stamp().tail, etcd_.read().tail);
}

// Each copy removes what is too old when it looks, which may be before its member leads.
TEST_F(ShardStoreTest, WhatRetentionRemovedFromTheCopyGoesFromEtcdToo) {
  {
    auto store = open(dir_.store());
    Batch batch = store::batch_of({creation(1), push(1, 2), creation(2, "later"), push(2, 2)});
    batch.snapshots = {store::sample_snapshot(1, 2), store::sample_snapshot(2, 2)};
    ASSERT_TRUE(store->submit(++ticket_, std::move(batch)));
    ASSERT_TRUE(reports_.wait_for(ticket_));
    while (etcd_.read().pointers.size() < 2) push_on(*store, ticket_ + 2);
    close(*store);
  }
  // Of a member whose copy lacks job 1.
  store::RecordEncoder encoder;
  auto copy = open_copy(dir_.path() + "/other");
  TakeOver read = etcd_.read();
  std::erase_if(read.pointers, [](const auto& one) { return one.first == 1; });
  for (Entry& entry : read.log) {
    std::vector<Record> records;
    std::string error;
    ASSERT_TRUE(decode_records(entry.records, records, error)) << error;
    std::erase_if(records, [](const Record& record) { return record.job == 1; });
    entry.records = encode_records(records, encoder);
  }
  std::string error;
  ASSERT_EQ(copy->take_up(config_, read, error), Copy::Took::kAll) << error;
  copy.reset();
  auto store = open(dir_.path() + "/other");
  while (etcd_.read().pointers.size() == 2) std::this_thread::yield();
  EXPECT_EQ(etcd_.read().pointers.at(0).first, 2U);
  close(*store);
}

}  // namespace
}  // namespace syncd::cluster
