// The storage interface: one suite for both implementations, and what only RocksDB can do or be
// refused. What it suffers is in store_failure_test.cpp and store_crash_test.cpp.
#include "daemon/edge/store/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>

#include "daemon/edge/store/record_codec.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::HasSubstr;

// ---- both implementations
// --------------------------------------------------------------------------

enum class Kind { kMemory, kRocksDurable, kRocksFast };

class EveryStore : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kMemory) {
      store_ = make_memory_store();
    } else {
      store_ = open(dir_.store(), GetParam() == Kind::kRocksFast ? Mode::kFast : Mode::kDurable);
    }
    ASSERT_NE(store_, nullptr);
    std::vector<RecoveredJob> jobs;
    std::string error;
    ASSERT_TRUE(store_->load(jobs, error)) << error;
    ASSERT_TRUE(jobs.empty());
    store_->start(reports_.callback());
  }

  void submit(Ticket ticket, Batch batch) { ASSERT_TRUE(store_->submit(ticket, std::move(batch))); }

  TempDir dir_;
  Reports reports_;
  std::unique_ptr<Store> store_;
};

TEST_P(EveryStore, WhatIsCommittedIsLoadedInOrder) {
  submit(1, batch_of({creation(1, "a"), push(1, 2)}));
  submit(2, batch_of({creation(2, "b")}));
  submit(3, batch_of({push(1, 3), push(2, 2)}));
  ASSERT_TRUE(reports_.wait_for(3));
  std::vector<RecoveredJob> jobs;
  std::string error;
  ASSERT_TRUE(store_->load(jobs, error)) << error;
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].records, (std::vector<Record>{creation(1, "a"), push(1, 2), push(1, 3)}));
  EXPECT_EQ(jobs[1].records, (std::vector<Record>{creation(2, "b"), push(2, 2)}));
  EXPECT_FALSE(jobs[0].snapshot.has_value());
}

TEST_P(EveryStore, ASnapshotReplacesTheRecordsBeforeIt) {
  submit(1, batch_of({creation(1), push(1, 2), push(1, 3)}));
  submit(2, {{}, {sample_snapshot(1, 2)}});
  submit(3, {{push(1, 4)}, {sample_snapshot(1, 3)}});
  ASSERT_TRUE(reports_.wait_for(3));
  std::vector<RecoveredJob> jobs;
  std::string error;
  ASSERT_TRUE(store_->load(jobs, error)) << error;
  ASSERT_EQ(jobs.size(), 1u);
  ASSERT_TRUE(jobs[0].snapshot.has_value());
  EXPECT_EQ(*jobs[0].snapshot, sample_snapshot(1, 3));
  EXPECT_EQ(jobs[0].records, (std::vector<Record>{push(1, 4)}));
}

TEST_P(EveryStore, ReadingGoesPageByPage) {
  std::vector<Record> records = {creation(1)};
  for (Sequence s = 2; s <= 50; ++s) records.push_back(push(1, s));
  submit(1, batch_of(records));
  submit(2, batch_of({creation(2)}));  // the next job's records must not be handed out
  ASSERT_TRUE(reports_.wait_for(2));
  std::vector<Sequence> expected;
  for (Sequence s = 1; s <= 50; ++s) expected.push_back(s);
  EXPECT_EQ(sequences(*store_, 1), expected);
}

TEST_P(EveryStore, APageHasAtLeastOneRecordHoweverSmallTheLimit) {
  submit(1, batch_of({creation(1), push(1, 2)}));
  ASSERT_TRUE(reports_.wait_for(1));
  ReadResult page;
  std::string error;
  ASSERT_TRUE(store_->read(1, 1, 100, 1, page, error)) << error;
  ASSERT_EQ(page.records.size(), 1u);
  EXPECT_EQ(page.next_sequence, 2u);
}

TEST_P(EveryStore, AnUnknownJobHasNoRecords) {
  ReadResult page;
  std::string error;
  ASSERT_TRUE(store_->read(77, 1, 100, 1000, page, error)) << error;
  EXPECT_TRUE(page.records.empty());
  EXPECT_EQ(page.next_sequence, 0u);
  EXPECT_EQ(page.first_sequence, 0u);
}

TEST_P(EveryStore, ListsTheJobs) {
  submit(1, batch_of({creation(1, "a"), push(1, 2)}));
  submit(2, batch_of({creation(2, "b")}));
  ASSERT_TRUE(reports_.wait_for(2));
  std::vector<Record> created;
  std::string error;
  ASSERT_TRUE(store_->jobs(created, error)) << error;
  EXPECT_EQ(created, (std::vector<Record>{creation(1, "a"), creation(2, "b")}));
}

TEST_P(EveryStore, CloseCommitsWhatWasSubmitted) {
  submit(1, batch_of({creation(1)}));
  for (Ticket t = 2; t <= 200; ++t) submit(t, batch_of({push(1, t)}));
  std::string error;
  EXPECT_TRUE(store_->close(30'000'000, error)) << error;
  ASSERT_FALSE(reports_.all().empty());
  EXPECT_EQ(reports_.all().back().committed, 200u);
  EXPECT_EQ(sequences(*store_, 1).size(), 200u);
}

TEST_P(EveryStore, ReportsRiseAndCountEveryRecordOnce) {
  submit(1, batch_of({creation(1)}));
  for (Ticket t = 2; t <= 500; ++t) submit(t, batch_of({push(1, t)}));
  ASSERT_TRUE(reports_.wait_for(500));
  Ticket last = 0;
  std::uint64_t records = 0;
  std::uint64_t batches = 0;
  for (const CommitReport& report : reports_.all()) {
    EXPECT_GT(report.committed, last);
    EXPECT_EQ(report.error, "");
    last = report.committed;
    records += report.records;
    batches += report.batches;
  }
  EXPECT_EQ(records, 500u);
  EXPECT_EQ(batches, 500u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryStore,
                         ::testing::Values(Kind::kMemory, Kind::kRocksDurable, Kind::kRocksFast),
                         [](const auto& kind) {
                           return std::string(kind.param == Kind::kMemory         ? "memory"
                                              : kind.param == Kind::kRocksDurable ? "rocks_durable"
                                                                                  : "rocks_fast");
                         });

// ---- RocksDB only
// --------------------------------------------------------------------------------------

// Holds the writer in its report of the first commit until it is let go, so that a test decides
// what is queued when the second one begins.
class HeldWriter {
 public:
  CommitCallback callback() {
    return [this](const CommitReport& report) {
      std::unique_lock lock(mutex_);
      reports_.push_back(report);
      changed_.notify_all();
      changed_.wait(lock, [this] { return released_; });
    };
  }
  void wait_until_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !reports_.empty(); });
  }
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  // Once the store is closed.
  const std::vector<CommitReport>& reports() const { return reports_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommitReport> reports_;
  bool released_ = false;
};

TEST(RocksStore, WhatArrivesDuringACommitGoesOutTogether) {
  TempDir dir;
  HeldWriter writer;
  auto store = open(dir.store());
  store->start(writer.callback());
  ASSERT_TRUE(store->submit(1, batch_of({creation(1)})));
  writer.wait_until_held();
  for (Ticket t = 2; t <= 65; ++t) ASSERT_TRUE(store->submit(t, batch_of({push(1, t)})));
  writer.release();
  std::string error;
  ASSERT_TRUE(store->close(30'000'000, error)) << error;
  ASSERT_EQ(writer.reports().size(), 2u);
  EXPECT_EQ(writer.reports()[0].committed, 1u);
  EXPECT_EQ(writer.reports()[0].batches, 1u);
  EXPECT_EQ(writer.reports()[1].committed, 65u);
  EXPECT_EQ(writer.reports()[1].batches, 64u);
  EXPECT_EQ(writer.reports()[1].records, 64u);
  EXPECT_EQ(sequences(*store, 1).size(), 65u);
}

TEST(RocksStore, AFullQueueTakesNothingAndLeavesTheBatch) {
  TempDir dir;
  HeldWriter writer;
  Options options;
  options.path = dir.store();
  options.queue_records_max = 3;
  std::string error;
  auto store = open_rocks_store(options, error);
  ASSERT_NE(store, nullptr) << error;
  store->start(writer.callback());
  ASSERT_TRUE(store->submit(1, batch_of({creation(1)})));
  writer.wait_until_held();  // until its report is done, the first record counts as queued
  ASSERT_TRUE(store->submit(2, batch_of({push(1, 2)})));
  Batch large = batch_of({push(1, 3), push(1, 4)});
  EXPECT_FALSE(store->submit(3, std::move(large)));
  ASSERT_EQ(large.records, (std::vector<Record>{push(1, 3), push(1, 4)}));
  EXPECT_TRUE(store->submit(3, batch_of({push(1, 3)})));  // it fits to the last record
  EXPECT_FALSE(store->submit(4, batch_of({push(1, 4)})));
  writer.release();
  ASSERT_TRUE(store->close(30'000'000, error)) << error;
  EXPECT_EQ(sequences(*store, 1), (std::vector<Sequence>{1, 2, 3}));
  EXPECT_FALSE(store->submit(4, batch_of({push(1, 4)}))) << "nothing is taken after close";
}

TEST(RocksStore, TheQueueIsAlsoLimitedInBytesButTakesOneBatchOfAnySize) {
  TempDir dir;
  HeldWriter writer;
  Options options;
  options.path = dir.store();
  options.queue_bytes_max = 1;
  std::string error;
  auto store = open_rocks_store(options, error);
  ASSERT_NE(store, nullptr) << error;
  store->start(writer.callback());
  ASSERT_TRUE(store->submit(1, batch_of({creation(1), push(1, 2)})));
  writer.wait_until_held();
  EXPECT_FALSE(store->submit(2, batch_of({push(1, 3)})));
  writer.release();
  EXPECT_TRUE(store->close(30'000'000, error)) << error;
}

constexpr std::size_t kElements = 1000;

// `weigh` notices that a member is longer. A member that is a list of structs is looked at by
// itself.
template <class Member, class Weigh>
void expect_counted(Member& member, const Weigh& weigh) {
  if constexpr (requires { member.resize(kElements); }) {
    member.clear();
    const std::size_t before = weigh();
    member.resize(kElements);
    EXPECT_GE(weigh(), before + kElements * sizeof(member[0])) << "a member is not counted";
  } else {
    static_assert(std::is_trivially_copyable_v<Member> || std::is_same_v<Member, Record>,
                  "a member that holds bytes in another way");
  }
}
template <class Weigh, class... Members>
void expect_all_counted(const Weigh& weigh, Members&... members) {
  (expect_counted(members, weigh), ...);
}

// A member that is added to one of the structs does not compile here until it is named, and is then
// looked at.
TEST(Weight, CountsAllBytesOfRecordsAndSnapshots) {
  Batch batch;
  batch.records.resize(1);
  batch.snapshots.resize(1);
  batch.snapshots[0].workers.resize(1);
  const auto weigh = [&batch] { return weight(batch); };
  EXPECT_GE(weigh(), sizeof(Record) + sizeof(JobSnapshot) + sizeof(WorkerSnapshot));
  for (Record* record : {&batch.records[0], &batch.snapshots[0].created}) {
    auto& [kind, job, sequence, time, epoch, rank, incarnation, iteration, name, host, clock, base,
           resumed, data, late, span, waited, staleness, loss, samples, bytes, restarts, wasted,
           declined, policy, expected, least, config, reason, superstep, predicted, predicted_wait,
           wait, values, returned, checkpoint, shard, shards, location, members, computed, in_phase,
           factor] = *record;
    expect_all_counted(weigh, kind, job, sequence, time, epoch, rank, incarnation, iteration, name,
                       host, clock, base, resumed, data, late, span, waited, staleness, loss,
                       samples, bytes, restarts, wasted, declined, policy, expected, least, config,
                       reason, superstep, predicted, predicted_wait, wait, values, returned,
                       checkpoint, shard, shards, location, members, computed, in_phase, factor);
  }
  {
    auto& [rank, name, host, state, incarnation, clock, base, granted, pushed, late, own_pushes,
           last, previous, data, dismissal, leased, phase, lease, entered, returned, exchange,
           slow_since, slow_factor, usual] = batch.snapshots[0].workers[0];
    expect_all_counted(weigh, rank, name, host, state, incarnation, clock, base, granted, pushed,
                       late, own_pushes, last, previous, data, dismissal, leased, phase, lease,
                       entered, returned, exchange, slow_since, slow_factor, usual);
  }
  auto& [created, sequence, time, state, epoch, next, pushes, highest, workers, policy,
         policy_state, stop_reason, expected, reassembling, left, group_epoch, launch,
         launch_number, failure, checkpoints, asked, clock, closed, closed_reason, views,
         policy_text, noise, policy_set] = batch.snapshots[0];
  expect_all_counted(weigh, created, sequence, time, state, epoch, next, pushes, highest, workers,
                     policy, policy_state, stop_reason, expected, reassembling, left, group_epoch,
                     launch, launch_number, failure, checkpoints, asked, clock, closed,
                     closed_reason, views, policy_text, noise, policy_set);
  checkpoints.resize(1);
  {
    auto& [number, of_state, of_epoch, since, reason, fixed, members, shards, saved] =
        checkpoints[0];
    saved.resize(1);
    expect_all_counted(weigh, saved[0].location);
    expect_all_counted(weigh, number, of_state, of_epoch, since, reason, fixed, members, shards,
                       saved);
  }
}

TEST(RocksStore, HistoryIsReadByAnotherThreadWhileItGrows) {
  TempDir dir;
  Reports reports;
  auto store = open(dir.store());
  store->start(reports.callback());
  constexpr Ticket kLast = 400;
  std::atomic<bool> done{false};
  std::thread reader([&] {
    std::size_t seen = 0;
    bool last_round = false;
    while (!last_round) {
      last_round = done;
      const auto found = sequences(*store, 1);
      EXPECT_GE(found.size(), seen) << "a record was there and is gone";
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], i + 1);
      seen = found.size();
      std::vector<Record> created;
      std::string error;
      EXPECT_TRUE(store->jobs(created, error)) << error;
    }
    EXPECT_EQ(seen, kLast);
  });
  EXPECT_TRUE(store->submit(1, batch_of({creation(1)})));
  for (Ticket t = 2; t <= kLast; ++t) EXPECT_TRUE(store->submit(t, batch_of({push(1, t)})));
  EXPECT_TRUE(reports.wait_for(kLast));
  done = true;
  reader.join();
}

TEST(RocksStore, IsThereAgainAfterReopening) {
  TempDir dir;
  {
    auto store = open(dir.store());
    Reports reports;
    store->start(reports.callback());
    ASSERT_TRUE(store->submit(1, {{creation(1), push(1, 2)}, {sample_snapshot(1, 2)}}));
    std::string error;
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
  }
  auto store = open(dir.store());
  std::vector<RecoveredJob> jobs;
  std::string error;
  ASSERT_TRUE(store->load(jobs, error)) << error;
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].snapshot, sample_snapshot(1, 2));
  struct stat info {};
  ASSERT_EQ(stat(dir.store().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(RocksStore, ASecondProcessIsToldThatItIsInUse) {
  TempDir dir;
  auto store = open(dir.store());
  Options options;
  options.path = dir.store();
  std::string error;
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr(dir.store()));
  EXPECT_THAT(error, HasSubstr("in use by another process"));
}

TEST(RocksStore, CanBeReadWhileNobodyHasItOpen) {
  TempDir dir;
  {
    auto store = open(dir.store());
    Reports reports;
    store->start(reports.callback());
    ASSERT_TRUE(store->submit(1, batch_of({creation(1), push(1, 2)})));
    std::string error;
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
  }
  Options options;
  options.path = dir.store();
  options.read_only = true;
  std::string error;
  auto store = open_rocks_store(options, error);
  ASSERT_NE(store, nullptr) << error;
  EXPECT_EQ(sequences(*store, 1), (std::vector<Sequence>{1, 2}));
  store->start([](const CommitReport&) {});
  EXPECT_FALSE(store->submit(2, batch_of({push(1, 3)})));
}

// What a directory holds: names and contents.
std::map<std::string, std::string> contents(const std::string& path) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    std::ifstream file(entry.path(), std::ios::binary);
    found[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  return found;
}

TEST(RocksStore, ReadingChangesNothingInTheDirectory) {
  TempDir dir;
  {
    auto store = open(dir.store());
    Reports reports;
    store->start(reports.callback());
    ASSERT_TRUE(store->submit(1, batch_of({creation(1), push(1, 2)})));
    std::string error;
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
  }
  const auto before = contents(dir.store());
  {
    Options options;
    options.path = dir.store();
    options.read_only = true;
    std::string error;
    auto store = open_rocks_store(options, error);
    ASSERT_NE(store, nullptr) << error;
    EXPECT_EQ(sequences(*store, 1).size(), 2u);
  }
  EXPECT_EQ(contents(dir.store()), before);
}

TEST(RocksStore, ReadingADirectoryWithoutAStoreSaysSoAndMakesNothing) {
  TempDir dir;
  Options options;
  options.path = dir.store();
  options.read_only = true;
  std::string error;
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr("there is no store in " + dir.store()));
  EXPECT_FALSE(std::filesystem::exists(dir.store()));
}

TEST(RocksStore, APathThatCannotBeMadeNamesPathAndCause) {
  TempDir dir;
  Options options;
  std::string error;
  options.path = dir.path() + "/missing/store";
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr(options.path));
  EXPECT_THAT(error, HasSubstr("No such file or directory"));

  options.path = dir.path() + "/file";
  close(creat(options.path.c_str(), 0600));
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr("is not a directory"));

  options.path = "/proc/syncd-store";
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr("/proc/syncd-store cannot be made"));
}

}  // namespace
}  // namespace syncd::store
