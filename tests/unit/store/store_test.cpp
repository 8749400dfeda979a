// The storage interface: one suite for both implementations, and what only RocksDB can do or
// suffer.
#include "daemon/store/store.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/db.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "daemon/store/record_codec.h"
#include "tests/unit/store/samples.h"

namespace syncd::store {
namespace {

using ::testing::HasSubstr;

// A directory of its own for one test.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "syncd-store-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }
  std::string store() const { return path_ + "/store"; }

 private:
  std::string path_;
};

// Collects commit reports and lets a test wait for a ticket.
class Reports {
 public:
  CommitCallback callback() {
    return [this](const CommitReport& report) {
      const std::lock_guard lock(mutex_);
      all_.push_back(report);
      changed_.notify_all();
    };
  }
  // True once `ticket` is committed; false after 30 s, which no working disk needs.
  bool wait_for(Ticket ticket) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return !all_.empty() && all_.back().committed >= ticket; });
  }
  std::vector<CommitReport> all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<CommitReport> all_;
};

Batch batch_of(std::vector<Record> records) {
  return {std::move(records), {}};
}

std::unique_ptr<Store> open(const std::string& path, Mode mode = Mode::kDurable) {
  Options options;
  options.path = path;
  options.mode = mode;
  std::string error;
  auto store = open_rocks_store(options, error);
  EXPECT_NE(store, nullptr) << error;
  return store;
}

std::vector<Sequence> sequences(Store& store, JobId job) {
  std::vector<Sequence> found;
  Sequence next = 1;
  while (next != 0) {
    ReadResult page;
    std::string error;
    EXPECT_TRUE(store.read(job, next, 7, 1 << 20, page, error)) << error;
    for (const RawRecord& raw : page.records) {
      Record record;
      EXPECT_TRUE(decode_record(raw.bytes, record, error)) << error;
      EXPECT_EQ(record.sequence, raw.sequence);
      found.push_back(raw.sequence);
    }
    next = page.next_sequence;
  }
  return found;
}

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

TEST(RocksStore, WhatArrivesDuringACommitGoesOutTogether) {
  TempDir dir;
  auto store = open(dir.store());
  // The callback holds the writer back until everything else is queued: then one commit takes it
  // all.
  std::mutex gate;
  std::unique_lock hold(gate);
  std::vector<CommitReport> reports;
  store->start([&](const CommitReport& report) {
    const std::lock_guard wait(gate);
    reports.push_back(report);
  });
  ASSERT_TRUE(store->submit(1, batch_of({creation(1)})));
  for (Ticket t = 2; t <= 65; ++t) ASSERT_TRUE(store->submit(t, batch_of({push(1, t)})));
  hold.unlock();
  std::string error;
  ASSERT_TRUE(store->close(30'000'000, error)) << error;
  // The writer took either the first ticket alone, or some of the others with it, then the rest.
  ASSERT_LE(reports.size(), 2u);
  EXPECT_EQ(reports.back().committed, 65u);
}

TEST(RocksStore, AFullQueueTakesNothingAndLeavesTheBatch) {
  TempDir dir;
  Options options;
  options.path = dir.store();
  options.queue_records_max = 3;
  std::string error;
  auto store = open_rocks_store(options, error);
  ASSERT_NE(store, nullptr) << error;
  std::mutex gate;
  std::unique_lock hold(gate);
  store->start([&](const CommitReport&) { const std::lock_guard wait(gate); });
  ASSERT_TRUE(store->submit(1, batch_of({creation(1), push(1, 2)})));
  Batch large = batch_of({push(1, 3), push(1, 4)});
  Ticket ticket = 2;
  // While the writer is held in its report, the two records before count as queued.
  const bool taken = store->submit(ticket, std::move(large));
  if (!taken) {
    EXPECT_EQ(large.records.size(), 2u);
  }
  hold.unlock();
  ASSERT_TRUE(store->close(30'000'000, error)) << error;
  EXPECT_EQ(sequences(*store, 1).size(), taken ? 4u : 2u);
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

// Opens the database underneath, as only an error or another program would.
void tamper(const std::string& path, const char* family, const std::string& key,
            const std::string* value) {
  std::vector<std::string> names;
  ASSERT_TRUE(rocksdb::DB::ListColumnFamilies({}, path, &names).ok());
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const auto& name : names) descriptors.emplace_back(name, rocksdb::ColumnFamilyOptions());
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* raw = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, path, descriptors, &handles, &raw).ok());
  const std::unique_ptr<rocksdb::DB> db(raw);
  for (auto* handle : handles) {
    if (handle->GetName() == family) {
      ASSERT_TRUE(
          (value != nullptr ? db->Put({}, handle, key, *value) : db->Delete({}, handle, key)).ok());
    }
    db->DestroyColumnFamilyHandle(handle);
  }
}

std::string key_of(JobId job, Sequence sequence) {
  std::string key;
  for (int shift = 24; shift >= 0; shift -= 8) key.push_back(static_cast<char>(job >> shift));
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(sequence >> shift));
  return key;
}

class Damaged : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = open(dir_.store());
    Reports reports;
    store->start(reports.callback());
    ASSERT_TRUE(store->submit(1, batch_of({creation(1), push(1, 2), push(1, 3), push(1, 4)})));
    std::string error;
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
  }
  std::string load_error() {
    auto store = open(dir_.store());
    std::vector<RecoveredJob> jobs;
    std::string error;
    EXPECT_FALSE(store->load(jobs, error));
    return error;
  }
  TempDir dir_;
};

TEST_F(Damaged, ADamagedRecordIsNamed) {
  const std::string garbage = "garbage that is no record";
  tamper(dir_.store(), "records", key_of(1, 3), &garbage);
  const std::string error = load_error();
  EXPECT_THAT(error, HasSubstr("'cifar'"));
  EXPECT_THAT(error, HasSubstr("record 3"));
  EXPECT_THAT(error, HasSubstr("restore a backup"));
}

TEST_F(Damaged, AMissingRecordIsNamed) {
  tamper(dir_.store(), "records", key_of(1, 3), nullptr);
  EXPECT_THAT(load_error(), HasSubstr("record 3 is missing (the next one is 4)"));
}

TEST_F(Damaged, ARecordInTheWrongPlaceIsNamed) {
  RecordEncoder encoder;
  const auto bytes = encoder.encode(push(1, 2));
  const std::string moved(bytes.begin(), bytes.end());
  tamper(dir_.store(), "records", key_of(1, 3), &moved);
  EXPECT_THAT(load_error(), HasSubstr("record 3 says it is record 2"));
}

TEST_F(Damaged, AStoreOfANewerFormatIsRefused) {
  const std::string newer = "2";
  tamper(dir_.store(), "meta", "format_version", &newer);
  Options options;
  options.path = dir_.store();
  std::string error;
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr("format 2"));
  EXPECT_THAT(error, HasSubstr("newer version"));
}

// Another process writes and tells each commit over a pipe; it is killed without warning. What it
// told must be there, in order and once.
TEST(RocksStore, AKilledWriterLosesNothingThatItReported) {
  for (int round = 0; round < 5; ++round) {
    TempDir dir;
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(told[1], STDOUT_FILENO);
      close(told[0]);
      execl(SYNCD_STORE_WRITER, "store_writer", dir.store().c_str(), nullptr);
      _exit(127);
    }
    close(told[1]);
    Ticket committed = 0;
    for (int i = 0; i < 20 + 30 * round; ++i) {
      ASSERT_EQ(read(told[0], &committed, sizeof committed),
                static_cast<ssize_t>(sizeof committed));
    }
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status));
    // Whatever it told before it died counts too.
    Ticket more = 0;
    while (read(told[0], &more, sizeof more) == static_cast<ssize_t>(sizeof more)) committed = more;
    close(told[0]);

    auto store = open(dir.store());
    std::vector<RecoveredJob> jobs;
    std::string error;
    ASSERT_TRUE(store->load(jobs, error)) << error;
    ASSERT_EQ(jobs.size(), 1u);
    ASSERT_GE(jobs[0].records.size(), committed);
    for (std::size_t i = 0; i < jobs[0].records.size(); ++i) {
      ASSERT_EQ(jobs[0].records[i].sequence, i + 1);
    }
  }
}

}  // namespace
}  // namespace syncd::store
