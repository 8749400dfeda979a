// Damaged stores: what a crash leaves starts by itself and is told; damage to what was acknowledged
// is refused, and salvaged on demand with everything that is whole.
#include "daemon/edge/store/salvage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/table_properties.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "daemon/edge/store/record_groups.h"
#include "tests/unit/store/failing_calls.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class SalvageTest : public ::testing::Test {
 protected:
  std::string path() const { return dir_.store(); }
  // One commit each.
  enum class End { kClosed, kCrash };
  void write(std::vector<Batch> batches, End end = End::kClosed) {
    auto store = open(path());
    std::vector<RecoveredJob> jobs;
    std::string error;
    ASSERT_TRUE(store->load(jobs, error)) << error;
    Reports reports;
    store->start(reports.callback());
    Ticket ticket = 0;
    for (Batch& batch : batches) {
      ASSERT_TRUE(store->submit(++ticket, std::move(batch)));
      ASSERT_TRUE(reports.wait_for(ticket));
    }
    const std::string crashed = path() + ".crashed";
    // As it lies there at that moment.
    if (end == End::kCrash) fs::copy(path(), crashed);
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
    store.reset();
    if (end == End::kCrash) {
      fs::remove_all(path());
      fs::rename(crashed, path());
    }
  }
  // Records first to last of job 1, a commit each.
  void write_records(Sequence first, Sequence last, End end = End::kClosed) {
    std::vector<Batch> batches;
    for (Sequence s = first; s <= last; ++s) {
      batches.push_back(batch_of({s == 1 ? creation(1) : push(1, s)}));
    }
    write(std::move(batches), end);
  }
  std::string log_file() const {
    std::string found;
    for (const auto& entry : fs::directory_iterator(path())) {
      const std::string name = entry.path();
      if (name.ends_with(".log") && fs::file_size(entry) > 0) found = std::max(found, name);
    }
    return found;
  }
  // Where in the log the key of a record stands.
  static std::size_t place_of(const std::string& file, Sequence sequence) {
    std::ifstream in(file, std::ios::binary);
    const std::string data{std::istreambuf_iterator<char>(in), {}};
    return data.find(key_of(1, sequence));
  }
  static void overwrite(const std::string& file, std::size_t at, const std::string& bytes) {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(static_cast<std::streamoff>(at));
    out << bytes;
  }
  std::string open_error() {
    Options options;
    options.path = path();
    std::string error;
    const auto store = open_rocks_store(options, error);
    if (store == nullptr) return error;
    std::vector<RecoveredJob> jobs;
    return store->load(jobs, error) ? "" : error;
  }
  Salvaged salvage() {
    Salvaged salvaged;
    std::string error;
    EXPECT_TRUE(salvage_store(path(), salvaged, error)) << error;
    return salvaged;
  }
  // What a store starts with; sound, and able to go on.
  std::vector<Sequence> start_again() {
    StoreCheck check;
    std::string error;
    EXPECT_TRUE(check_store(path(), check, error)) << error;
    EXPECT_TRUE(check.sound());
    auto store = open(path());
    std::vector<RecoveredJob> jobs;
    EXPECT_TRUE(store->load(jobs, error)) << error;
    return sequences(*store, 1);
  }
  static std::vector<Sequence> range(Sequence first, Sequence last) {
    std::vector<Sequence> all;
    for (Sequence s = first; s <= last; ++s) all.push_back(s);
    return all;
  }

  TempDir dir_;
};

// Every place of a log that cannot be read is told, and what is whole in the same block is kept.
TEST_F(SalvageTest, EveryUnreadableStretchOfALogIsToldAndNoMoreIsLost) {
  {
    std::vector<Batch> batches;
    for (const JobId job : {1, 2}) batches.push_back(batch_of({creation(job)}));
    for (Sequence s = 2; s <= 20; ++s) {
      for (const JobId job : {1, 2}) batches.push_back(batch_of({push(job, s)}));
    }
    write(std::move(batches));
  }
  const std::string file = log_file();
  for (const Sequence sequence : {12, 17}) {
    overwrite(file, place_of(file, sequence) + 14, std::string(8, '\0'));
  }
  const Salvaged salvaged = salvage();
  EXPECT_THAT(salvaged.files,
              ElementsAre(HasSubstr("cannot be read"), HasSubstr("cannot be read")));
  ASSERT_EQ(salvaged.jobs.size(), 1U) << "the other one is whole";
  EXPECT_EQ(salvaged.jobs[0].id, 1U);
  EXPECT_EQ(salvaged.jobs[0].last, 11U);
  EXPECT_EQ(salvaged.jobs[0].dropped, 9U);
  EXPECT_EQ(start_again(), range(1, 11));
  EXPECT_EQ(sequences(*open(path()), 2), range(1, 20));
}

// A link is a choice of another disk, which is not to be undone in silence.
TEST_F(SalvageTest, WhatALinkLeadsToIsPutInOrderWhereItLies) {
  write_records(1, 20, End::kCrash);
  const fs::path real = path() + ".elsewhere";
  fs::rename(path(), real);
  fs::create_directory_symlink(real, path());
  const std::string file = log_file();
  overwrite(file, place_of(file, 10) + 14, std::string(8, '\xff'));
  const Salvaged salvaged = salvage();
  ASSERT_TRUE(salvaged.needed);
  EXPECT_TRUE(fs::is_symlink(path()));
  EXPECT_TRUE(salvaged.damaged_path.starts_with(fs::canonical(real).string()))
      << salvaged.damaged_path;
  EXPECT_EQ(start_again(), range(1, 9));
}

// A service manager that waits for the start is told while all is read, and while it is copied.
TEST_F(SalvageTest, WhoWaitsIsToldThatItGoesOn) {
  constexpr Sequence kRecords = 2000;
  write_records(1, kRecords, End::kCrash);
  const std::string file = log_file();
  int calls = 0;
  StoreCheck check;
  std::string error;
  ASSERT_TRUE(check_store(path(), check, error, [&] { ++calls; })) << error;
  EXPECT_GE(calls, static_cast<int>(kRecords / kProgressEvery));
  const int to_read = calls;
  overwrite(file, place_of(file, 10) + 14, std::string(8, '\xff'));
  Salvaged salvaged;
  ASSERT_TRUE(salvage_store(path(), salvaged, error, [&] { ++calls; })) << error;
  ASSERT_TRUE(salvaged.needed);
  // What lies behind the damage is read, too.
  EXPECT_GE(calls - to_read, static_cast<int>(kRecords / kProgressEvery) - 1);
}

// ---- without the flag
// -------------------------------------------------------------------------------

// A power cut in the midst of a commit: its end is on the disk, and a page before it is not.
TEST_F(SalvageTest, ALastCommitWithAHoleIsCutOffAndNamed) {
  write_records(1, 20, End::kCrash);
  const std::string file = log_file();
  overwrite(file, place_of(file, 20) + 14, std::string(8, '\0'));
  Options options;
  options.path = path();
  std::string error;
  {
    const auto store = open_rocks_store(options, error);
    ASSERT_NE(store, nullptr) << error;
    ASSERT_TRUE(store->cut_tail().has_value());
    EXPECT_EQ(store->cut_tail()->file, fs::path(file).filename());
    EXPECT_GT(store->cut_tail()->bytes, 20u);
    EXPECT_EQ(store->cut_tail()->what, "record 20 of job #1");
  }
  EXPECT_EQ(start_again(), range(1, 19));
}

TEST_F(SalvageTest, ALogThatEndsWithinACommitIsNamed) {
  write_records(1, 20, End::kCrash);
  const std::string file = log_file();
  fs::resize_file(file, fs::file_size(file) - 5);
  Options options;
  options.path = path();
  std::string error;
  {
    const auto store = open_rocks_store(options, error);
    ASSERT_NE(store, nullptr) << error;
    ASSERT_TRUE(store->cut_tail().has_value());
    EXPECT_EQ(store->cut_tail()->what, "record 20 of job #1");
  }
  EXPECT_EQ(start_again(), range(1, 19));
}

// Where files grow before they are written, a crash leaves zeros.
TEST_F(SalvageTest, ZerosAfterTheLastCommitAreNothing) {
  write_records(1, 20);
  const std::string file = log_file();
  fs::resize_file(file, fs::file_size(file) + 100'000);
  const auto store = open(path());
  ASSERT_NE(store, nullptr);
  EXPECT_FALSE(store->cut_tail().has_value());
  EXPECT_EQ(sequences(*store, 1), range(1, 20));
}

TEST_F(SalvageTest, ACommitThatSpansBlocksMayBeCutOffInAnyOfThem) {
  write_records(1, 3);
  Record large = push(1, 4);
  large.reason.assign(150'000, 'x');
  write({batch_of({large})}, End::kCrash);
  const std::string file = log_file();
  const std::size_t size = fs::file_size(file);
  ASSERT_GT(size, 150'000u);
  // A page in its midst, with whole fragments after it.
  overwrite(file, size - 80'000, std::string(4096, '\0'));
  EXPECT_EQ(open_error(), "");
  EXPECT_EQ(start_again(), range(1, 3));
}

// Nothing was being written when the daemon was stopped: the last commit was acknowledged.
TEST_F(SalvageTest, DamageToTheLastCommitOfAStoreClosedInGoodOrderIsRefused) {
  write_records(1, 20);
  const std::string file = log_file();
  const std::size_t size = fs::file_size(file);
  const std::size_t last = place_of(file, 20);
  std::string whole(size, '\0');
  std::ifstream(file, std::ios::binary).read(whole.data(), static_cast<std::streamsize>(size));
  // In a backup that was brought back, too.
  fs::copy(path(), path() + "-copy");
  fs::remove_all(path());
  fs::rename(path() + "-copy", path());
  const auto refused = AllOf(HasSubstr("is damaged"), HasSubstr("closed in good order"),
                             HasSubstr("--store-salvage"));
  for (const std::size_t at : {last - 20, last, last + 14, size - 1}) {
    overwrite(file, at, std::string(1, static_cast<char>(whole[at] ^ 0x10)));
    EXPECT_THAT(open_error(), refused) << "at " << at << " of " << size;
    overwrite(file, at, whole.substr(at, 1));
  }
  fs::resize_file(file, size - 5);
  EXPECT_THAT(open_error(), refused);
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  EXPECT_EQ(salvaged.jobs[0].dropped, 1u);
  EXPECT_EQ(start_again(), range(1, 19));
}

// It is of the files that were there: those of a later run may end as a crash leaves them.
TEST_F(SalvageTest, AnEarlierGoodEndSaysNothingOfALaterCrash) {
  write_records(1, 20);
  write_records(21, 30, End::kCrash);
  const std::string file = log_file();
  fs::resize_file(file, fs::file_size(file) - 5);
  EXPECT_EQ(open_error(), "");
  EXPECT_EQ(start_again(), range(1, 29));
}

TEST_F(SalvageTest, ALogCutShortBetweenTwoCommitsAfterAGoodEndIsRefused) {
  write_records(1, 20);
  const std::string file = log_file();
  // The last entry begins with 7 bytes of header and 12 of the batch, a tag and a column family.
  std::size_t begin = place_of(file, 20);
  ASSERT_GT(begin, 22u);
  begin -= 22;
  fs::resize_file(file, begin);
  EXPECT_THAT(open_error(), HasSubstr("closed in good order"));
}

TEST_F(SalvageTest, DamageBeforeACommitIsRefusedAndNamesTheFlag) {
  write_records(1, 20);
  const std::string file = log_file();
  overwrite(file, place_of(file, 12) + 14, std::string(8, '\0'));
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr("store " + path() + " is damaged"), HasSubstr("record 12 of job #1"),
                    HasSubstr("8 commits"), HasSubstr("--store-salvage")));
}

// RocksDB alone would pass over it without a word.
TEST_F(SalvageTest, ABlockOfZerosBeforeACommitIsDamage) {
  write_records(1, 800);
  const std::string file = log_file();
  ASSERT_GT(fs::file_size(file), 3 * 32'768u);
  overwrite(file, 32'768, std::string(32'768, '\0'));
  EXPECT_THAT(open_error(), HasSubstr("--store-salvage"));
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  const Sequence last = salvaged.jobs[0].last;
  EXPECT_EQ(salvaged.jobs[0].dropped, 800 - last);
  EXPECT_EQ(start_again(), range(1, last));
}

TEST_F(SalvageTest, ADamagedRecordIsRefusedAndNamesTheFlag) {
  write_records(1, 20);
  const std::string garbage = "garbage that is no record";
  tamper(path(), "records", key_of(1, 12), &garbage);
  EXPECT_THAT(open_error(), AllOf(HasSubstr("record 12"), HasSubstr("--store-salvage")));
}

// ---- with it
// ---------------------------------------------------------------------------------------

TEST_F(SalvageTest, ASoundStoreIsLeftAlone) {
  write_records(1, 20);
  const Salvaged salvaged = salvage();
  EXPECT_FALSE(salvaged.needed);
  EXPECT_FALSE(fs::exists(path() + ".damaged"));
  EXPECT_EQ(start_again(), range(1, 20));
}

TEST_F(SalvageTest, EverythingBeforeDamageInTheLogIsKeptAndTheRestIsCounted) {
  write_records(1, 20);
  const std::string file = log_file();
  overwrite(file, place_of(file, 12) + 14, std::string(8, '\0'));
  const Salvaged salvaged = salvage();
  EXPECT_TRUE(salvaged.needed);
  EXPECT_EQ(salvaged.damaged_path, path() + ".damaged");
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  EXPECT_EQ(salvaged.jobs[0].name, "cifar");
  EXPECT_EQ(salvaged.jobs[0].last, 11u);
  EXPECT_EQ(salvaged.jobs[0].dropped, 9u);
  EXPECT_THAT(salvaged.jobs[0].what.front(), HasSubstr("records 12 to 20"));
  EXPECT_EQ(start_again(), range(1, 11));
  write({batch_of({push(1, 12)})});
  EXPECT_EQ(start_again(), range(1, 12));
}

TEST_F(SalvageTest, ADamagedRecordCutsItsJobAndNoOther) {
  write_records(1, 20);
  write({batch_of({creation(2), push(2, 2), push(2, 3)})});
  const std::string garbage = "garbage that is no record";
  tamper(path(), "records", key_of(1, 12), &garbage);
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  EXPECT_EQ(salvaged.jobs[0].id, 1u);
  EXPECT_THAT(salvaged.jobs[0].what.front(), HasSubstr("records 12 to 20: record 12: "));
  EXPECT_EQ(start_again(), range(1, 11));
  const auto store = open(path());
  EXPECT_EQ(sequences(*store, 2), range(1, 3));
}

// A snapshot stands for what is before it: nothing after it is lost.
TEST_F(SalvageTest, DamageBeforeASnapshotCostsOnlyHistory) {
  write_records(1, 20);
  write({Batch{{push(1, 21)}, {sample_snapshot(1, 21)}}, batch_of({push(1, 22)})});
  tamper(path(), "records", key_of(1, 12), nullptr);
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  EXPECT_EQ(salvaged.jobs[0].first, 13u);
  EXPECT_EQ(salvaged.jobs[0].last, 22u);
  EXPECT_EQ(salvaged.jobs[0].dropped, 12u);
  EXPECT_EQ(start_again(), range(13, 22));
}

TEST_F(SalvageTest, WithoutItsSnapshotAJobGoesBackToItsFirstRecords) {
  write_records(1, 20);
  write({Batch{{push(1, 21)}, {sample_snapshot(1, 21)}}, batch_of({push(1, 22)})});
  const std::string garbage = "garbage that is no snapshot";
  tamper(path(), "snapshots", key_of(1, 0).substr(0, 4), &garbage);
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  EXPECT_EQ(salvaged.jobs[0].dropped, 0u);
  EXPECT_THAT(salvaged.jobs[0].what.front(), HasSubstr("the snapshot: "));
  EXPECT_EQ(start_again(), range(1, 22));
}

TEST_F(SalvageTest, AJobOfWhichNothingIsLeftIsDropped) {
  write_records(1, 3);
  write({batch_of({creation(2), push(2, 2)})});
  tamper(path(), "records", key_of(1, 1), nullptr);
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  EXPECT_EQ(salvaged.jobs[0].name, "cifar");
  EXPECT_EQ(salvaged.jobs[0].dropped, 3u);
  EXPECT_TRUE(start_again().empty());
}

// A table file with bytes that cannot be read, in which no key tells what was there.
TEST_F(SalvageTest, ADamagedTableFileLosesItsBlockAlone) {
  std::vector<Record> records = {creation(1)};
  for (Sequence s = 2; s <= 2000; ++s) records.push_back(push(1, s));
  write({batch_of(records)});
  write_records(2001, 2001);  // opening has put what was in the log into a table file
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::string error;
  ASSERT_TRUE(compact_store(path(), before, after, error)) << error;
  std::string largest;
  for (const auto& entry : fs::directory_iterator(path())) {
    if (entry.path().extension() != ".sst") continue;
    if (largest.empty() || entry.file_size() > fs::file_size(largest)) largest = entry.path();
  }
  overwrite(largest, fs::file_size(largest) / 2, std::string(16, '\xA5'));
  EXPECT_THAT(open_error(), HasSubstr("--store-salvage"));
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1u);
  EXPECT_GT(salvaged.jobs[0].last, 200u);
  EXPECT_LT(salvaged.jobs[0].last, 2001u);
  EXPECT_EQ(salvaged.jobs[0].dropped, 2001 - salvaged.jobs[0].last);
  EXPECT_EQ(start_again(), range(1, salvaged.jobs[0].last));
}

// Three jobs, each in table files of its own, and the last records of the first one in the log.
class SalvageFilesTest : public SalvageTest {
 protected:
  static constexpr Sequence kLast = 40;
  void SetUp() override {
    for (const JobId job : {1, 2, 3}) {
      std::vector<Record> records = {creation(job)};
      for (Sequence s = 2; s <= kLast; ++s) records.push_back(push(job, s));
      write({batch_of(records)});
    }
    write_records(kLast + 1, kLast + 5);
    whole_ = dir_.path() + "/whole";
    fs::copy(path(), whole_);
  }
  void begin_anew() {
    fs::remove_all(path());
    fs::remove_all(path() + ".damaged");
    fs::copy(whole_, path());
  }
  std::vector<std::string> files(const std::string& part) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(whole_)) {
      const std::string name = entry.path().filename();
      if (name.find(part) != std::string::npos) found.push_back(name);
    }
    return found;
  }
  std::vector<std::vector<Sequence>> start_with_all() {
    StoreCheck check;
    std::string error;
    EXPECT_TRUE(check_store(path(), check, error)) << error;
    EXPECT_TRUE(check.sound());
    auto store = open(path());
    std::vector<RecoveredJob> jobs;
    EXPECT_TRUE(store->load(jobs, error)) << error;
    return {sequences(*store, 1), sequences(*store, 2), sequences(*store, 3)};
  }
  const std::vector<std::vector<Sequence>> all_ = {range(1, kLast + 5), range(1, kLast),
                                                   range(1, kLast)};
  std::string whole_;
};

TEST_F(SalvageFilesTest, AFileThatIsGoneOrCutTakesNothingElseAlong) {
  std::size_t tried = 0;
  std::size_t lost_jobs = 0;
  for (const std::string& name : files(".sst")) {
    for (const std::uintmax_t cut : {0, 1, 100}) {
      begin_anew();
      const std::string file = path() + "/" + name;
      if (cut == 0) {
        fs::remove(file);
      } else {
        fs::resize_file(file, fs::file_size(file) - cut);
      }
      EXPECT_THAT(open_error(), HasSubstr("--store-salvage"));
      const Salvaged salvaged = salvage();
      EXPECT_THAT(salvaged.files, testing::ElementsAre(HasSubstr(name))) << cut;
      // Records lie in one file for each job, as do snapshots and what is known of jobs: at most
      // one job misses what it cannot do without.
      const auto found = start_with_all();
      std::size_t short_of = 0;
      for (std::size_t job = 0; job < 3; ++job) short_of += found[job] != all_[job] ? 1 : 0;
      EXPECT_LE(short_of, 1U) << name << " cut by " << cut;
      lost_jobs += short_of;
      ++tried;
    }
  }
  EXPECT_GE(tried, 9U);
  EXPECT_GE(lost_jobs, 3U) << "no file had anything in it";
}

// Neither the list of jobs nor that of their records can be read at its beginning.
TEST_F(SalvageFilesTest, JobsAreFoundBeyondWhatCannotBeRead) {
  write_records(kLast + 6, 400);
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::string error;
  ASSERT_TRUE(compact_store(path(), before, after, error)) << error;
  std::size_t damaged = 0;
  for (const auto& entry : fs::directory_iterator(path())) {
    if (entry.path().extension() != ".sst") continue;
    rocksdb::SstFileReader reader{rocksdb::Options()};
    ASSERT_TRUE(reader.Open(entry.path()).ok());
    const std::string family = reader.GetTableProperties()->column_family_name;
    if (family != "jobs" && family != "records") continue;
    overwrite(entry.path(), 60, std::string(2, '\xA5'));
    ++damaged;
  }
  ASSERT_EQ(damaged, 2U);
  const Salvaged salvaged = salvage();
  EXPECT_THAT(salvaged.files, AllOf(Contains(HasSubstr("the jobs from job #0 on")),
                                    Contains(HasSubstr("the records from job #0 on"))));
  // The first one's creation was in both; of the others it stands among the records, too.
  ASSERT_GE(salvaged.jobs.size(), 1U);
  EXPECT_EQ(salvaged.jobs[0].id, 1U);
  EXPECT_GT(salvaged.jobs[0].dropped, 0U);
  auto store = open(path());
  std::vector<RecoveredJob> jobs;
  EXPECT_TRUE(store->load(jobs, error)) << error;
  EXPECT_EQ(sequences(*store, 2), range(1, kLast));
  EXPECT_EQ(sequences(*store, 3), range(1, kLast));
}

// Nothing tells which jobs there are but their records, which cannot be read at the beginning.
TEST_F(SalvageTest, JobsWithHighNumbersAreFoundBeyondWhatCannotBeRead) {
  constexpr Sequence kRecords = 5 * kGroupRecordsMax;
  for (const JobId job : {70'000, 90'000}) {
    std::vector<Record> records = {creation(job)};
    for (Sequence s = 2; s <= kRecords; ++s) records.push_back(push(job, s));
    write({batch_of(records)});
  }
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  std::string error;
  ASSERT_TRUE(compact_store(path(), before, after, error)) << error;
  std::string damaged;
  for (const auto& entry : fs::directory_iterator(path())) {
    if (entry.path().extension() != ".sst") continue;
    rocksdb::SstFileReader reader{rocksdb::Options()};
    ASSERT_TRUE(reader.Open(entry.path()).ok());
    const std::string family = reader.GetTableProperties()->column_family_name;
    if (family != "jobs" && family != "records") continue;
    overwrite(entry.path(), 60, std::string(2, '\xA5'));
    if (family == "jobs") continue;
    ASSERT_GT(reader.GetTableProperties()->num_data_blocks, 4U);
    damaged = entry.path().filename();
  }
  fs::copy(path(), dir_.path() + "/again");
  Salvaged salvaged = salvage();
  EXPECT_THAT(salvaged.files, Contains(HasSubstr("the records from job #0 on: Corruption")));
  EXPECT_EQ(sequences(*open(path()), 90'000), range(1, kRecords));

  // Without the list of files they are read one by one.
  fs::remove_all(path());
  fs::remove_all(path() + ".damaged");
  fs::rename(dir_.path() + "/again", path());
  fs::remove(path() + "/CURRENT");
  salvaged = salvage();
  const std::string range_of = ": its records from the first to the one before job #70000, ";
  EXPECT_THAT(salvaged.files, Contains(AllOf(HasSubstr(damaged + range_of),
                                             HasSubstr("cannot be read: Corruption"))));
  ASSERT_EQ(salvaged.jobs.size(), 2U) << "what creates a job stands in both of what is damaged";
  EXPECT_EQ(salvaged.jobs[0].id, 70'000U);
  EXPECT_EQ(salvaged.jobs[1].dropped, 0U);
  EXPECT_EQ(sequences(*open(path()), 90'000), range(1, kRecords));
}

TEST_F(SalvageFilesTest, ALogThatIsMissingIsTold) {
  const std::string log = files(".log").back();
  for (const bool crashed : {false, true}) {
    begin_anew();
    fs::remove(path() + "/" + log);
    if (crashed) fs::remove(path() + "/CLOSED");
    EXPECT_THAT(open_error(), HasSubstr(log));
    EXPECT_THAT(salvage().files, ElementsAre(HasSubstr(log)));
  }
}

TEST_F(SalvageFilesTest, WithoutTheListsOfFilesNothingIsLost) {
  const std::string manifest = files("MANIFEST").back();
  const auto size = fs::file_size(whole_ + "/" + manifest);
  for (std::uintmax_t length = 0; length < size; length += size / 15 + 1) {
    begin_anew();
    fs::resize_file(path() + "/" + manifest, length);
    EXPECT_THAT(open_error(), HasSubstr("--store-salvage")) << length;
    EXPECT_TRUE(salvage().needed);
    EXPECT_EQ(start_with_all(), all_) << length;
    begin_anew();
    fs::remove(path() + "/CLOSED");  // as after a crash
    fs::resize_file(path() + "/" + manifest, length);
    EXPECT_THAT(open_error(), HasSubstr("--store-salvage")) << length;
    EXPECT_TRUE(salvage().needed);
    EXPECT_EQ(start_with_all(), all_) << length;
  }
  for (const char* current : {"", "MANIFEST-000099\n", "garbage"}) {
    begin_anew();
    std::ofstream(path() + "/CURRENT") << current;
    EXPECT_THAT(open_error(), HasSubstr("--store-salvage")) << current;
    EXPECT_TRUE(salvage().needed);
    EXPECT_EQ(start_with_all(), all_) << current;
  }
  begin_anew();
  fs::remove(path() + "/CURRENT");
  EXPECT_THAT(open_error(), HasSubstr("--store-salvage"));
  EXPECT_TRUE(salvage().needed);
  EXPECT_EQ(start_with_all(), all_);
  EXPECT_FALSE(fs::exists(path() + ".salvaging-files"));
}

TEST_F(SalvageTest, WithoutItsFormatVersionNothingElseIsLost) {
  write_records(1, 20);
  const std::string garbage = "garbage that is no number";
  tamper(path(), "meta", "format_version", &garbage);
  EXPECT_THAT(open_error(), HasSubstr("--store-salvage"));
  EXPECT_TRUE(salvage().needed);
  EXPECT_EQ(start_again(), range(1, 20));
}

TEST_F(SalvageTest, ANewerFormatIsNotTakenForDamage) {
  write_records(1, 20);
  const std::string newer = "4000000000";
  tamper(path(), "meta", "format_version", &newer);
  Salvaged salvaged;
  std::string error;
  EXPECT_FALSE(salvage_store(path(), salvaged, error));
  EXPECT_THAT(error, HasSubstr("written by a newer version"));
  EXPECT_FALSE(fs::exists(path() + ".damaged"));
}

TEST_F(SalvageTest, ADamagedTableFileOfTheFormatVersionCostsNothing) {
  write_records(1, 20);
  write_records(21, 21);  // opening has put what was in the log into table files
  std::string found;
  for (const auto& entry : fs::directory_iterator(path())) {
    if (entry.path().extension() != ".sst") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::string data{std::istreambuf_iterator<char>(in), {}};
    const std::size_t at = data.find("format_version");
    if (at == std::string::npos) continue;
    found = entry.path();
    overwrite(found, at, std::string(8, '\xA5'));
  }
  ASSERT_FALSE(found.empty());
  EXPECT_THAT(open_error(), HasSubstr("--store-salvage"));
  EXPECT_TRUE(salvage().needed);
  EXPECT_EQ(start_again(), range(1, 21));
}

TEST_F(SalvageTest, ASlashAtTheEndOfItsNameIsNoPartOfIt) {
  write_records(1, 20);
  tamper(path(), "records", key_of(1, 12), nullptr);
  Salvaged salvaged;
  std::string error;
  ASSERT_TRUE(salvage_store(path() + "//", salvaged, error)) << error;
  EXPECT_EQ(salvaged.damaged_path, path() + ".damaged");
  EXPECT_TRUE(fs::exists(path() + ".damaged/CURRENT"));
  EXPECT_EQ(start_again(), range(1, 11));
}

TEST_F(SalvageTest, WhereNamesCannotBeExchangedTheyAreRenamed) {
  write_records(1, 20);
  tamper(path(), "records", key_of(1, 12), nullptr);
  calls().exchange_error = EINVAL;
  const Salvaged salvaged = salvage();
  calls().exchange_error = 0;
  EXPECT_FALSE(fs::exists(path() + ".salvaging"));
  EXPECT_TRUE(fs::exists(salvaged.damaged_path + "/CURRENT"));
  EXPECT_EQ(start_again(), range(1, 11));
}

// Else each try would leave one more copy, under the name of a damaged one.
TEST_F(SalvageTest, OneThatFailsLeavesNothingBehind) {
  write_records(1, 20);
  tamper(path(), "records", key_of(1, 12), nullptr);
  calls().exchange_error = EBUSY;
  Salvaged salvaged;
  std::string error;
  EXPECT_FALSE(salvage_store(path(), salvaged, error));
  calls().exchange_error = 0;
  EXPECT_THAT(error, HasSubstr("cannot be put in its place"));
  std::size_t names = 0;
  for (const auto& entry : fs::directory_iterator(dir_.path())) {
    EXPECT_EQ(entry.path(), path());
    ++names;
  }
  EXPECT_EQ(names, 1U);
  EXPECT_THAT(open_error(), HasSubstr("record 12 is missing"));
}

TEST(MountPoint, IsTold) {
  const TempDir directory;
  EXPECT_TRUE(is_mount_point("/proc"));
  EXPECT_FALSE(is_mount_point(directory.path()));
  EXPECT_FALSE(is_mount_point(directory.path() + "/nothing"));
}

// As a crash leaves it between the two renames. An empty store would forget everything.
TEST_F(SalvageTest, AMissingStoreWithOneMovedAwayBesideItIsRefused) {
  write_records(1, 20);
  tamper(path(), "records", key_of(1, 12), nullptr);
  const std::string damaged = salvage().damaged_path;
  fs::rename(path(), path() + ".salvaging");
  const auto refused = AllOf(HasSubstr("store " + path() + " is missing"),
                             HasSubstr("rename " + damaged + " to " + path()));
  EXPECT_THAT(open_error(), refused);
  EXPECT_FALSE(salvage().needed);  // with the flag likewise
  EXPECT_THAT(open_error(), refused);
  EXPECT_FALSE(fs::exists(path()));
  fs::rename(damaged, path());
  EXPECT_TRUE(salvage().needed);
  EXPECT_EQ(start_again(), range(1, 11));
}

TEST_F(SalvageTest, AMissingStoreWithOneHalfMadeBesideItIsRefused) {
  for (const char* name : {".salvaging", ".restoring"}) {
    fs::create_directory(path() + name);
    EXPECT_THAT(open_error(), AllOf(HasSubstr("is missing, but " + path() + name),
                                    HasSubstr("move what is there to another directory")));
    EXPECT_FALSE(fs::exists(path()));
    fs::remove(path() + name);
  }
  EXPECT_EQ(open_error(), "");
}

TEST_F(SalvageTest, AStoreInUseIsNotTouched) {
  write_records(1, 20);
  const std::string garbage = "garbage";
  tamper(path(), "records", key_of(1, 12), &garbage);
  const auto store = open(path());
  Salvaged salvaged;
  std::string error;
  EXPECT_FALSE(salvage_store(path(), salvaged, error));
  EXPECT_THAT(error, HasSubstr("in use by another process"));
}

}  // namespace
}  // namespace syncd::store
