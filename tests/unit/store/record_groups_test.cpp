// Values of several records: how they are written, read from any record, cut, damaged, and beside
// those of the format before.
#include "daemon/edge/store/record_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "daemon/edge/store/maintenance.h"
#include "daemon/edge/store/salvage.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<Record> records_of(JobId job, Sequence first, Sequence last) {
  std::vector<Record> records;
  for (Sequence s = first; s <= last; ++s) records.push_back(s == 1 ? creation(job) : push(job, s));
  return records;
}

std::string encoded(const Record& record) {
  RecordEncoder encoder;
  const auto bytes = encoder.encode(record);
  return {bytes.begin(), bytes.end()};
}

std::vector<Sequence> range(Sequence first, Sequence last) {
  std::vector<Sequence> all;
  for (Sequence s = first; s <= last; ++s) all.push_back(s);
  return all;
}

class Groups : public ::testing::Test {
 protected:
  const std::string& path() const { return path_; }

  // One commit each.
  void write(std::vector<Batch> batches, Options options = {}) {
    options.path = path();
    std::string error;
    auto store = open_rocks_store(options, error);
    ASSERT_NE(store, nullptr) << error;
    std::vector<RecoveredJob> jobs;
    ASSERT_TRUE(store->load(jobs, error)) << error;
    Reports reports;
    store->start(reports.callback());
    Ticket ticket = 0;
    for (Batch& batch : batches) {
      ASSERT_TRUE(store->submit(++ticket, std::move(batch)));
      ASSERT_TRUE(reports.wait_for(ticket));
    }
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
  }
  std::unique_ptr<Database> database() {
    std::string error;
    auto opened = open_database({.path = path(), .read_only = true}, error);
    EXPECT_NE(opened, nullptr) << error;
    return opened;
  }
  // The last records of a job's values.
  std::vector<Sequence> keys(JobId job) {
    const auto opened = database();
    const std::unique_ptr<rocksdb::Iterator> it(
        opened->db->NewIterator({}, opened->families[kRecords]));
    std::vector<Sequence> found;
    for (it->Seek(record_key(job, 0)); it->Valid() && job_of(it->key()) == job; it->Next()) {
      found.push_back(sequence_of(it->key()));
    }
    return found;
  }
  std::string value(JobId job, Sequence last) {
    const auto opened = database();
    std::string found;
    EXPECT_TRUE(
        opened->db->Get({}, opened->families[kRecords], record_key(job, last), &found).ok());
    return found;
  }
  std::string load_error() {
    const auto store = open(path());
    std::vector<RecoveredJob> jobs;
    std::string error;
    EXPECT_FALSE(store->load(jobs, error));
    return error;
  }
  std::vector<std::string> problems() {
    StoreCheck check;
    std::string error;
    EXPECT_TRUE(check_store(path(), check, error)) << error;
    return check.jobs.at(0).problems;
  }
  std::vector<Sequence> kept(JobId job = 1) { return sequences(*open(path()), job); }

  TempDir dir_;
  std::string path_ = dir_.store();
};

TEST_F(Groups, ACommitWritesAValueForEachJobInItHoweverTheirRecordsComeMixed) {
  Batch batch = batch_of({creation(1), creation(2), push(1, 2), push(2, 2), push(1, 3)});
  write({std::move(batch), batch_of({push(2, 3)})});
  EXPECT_THAT(keys(1), ElementsAre(3));
  EXPECT_THAT(keys(2), ElementsAre(2, 3));
  EXPECT_EQ(value(1, 3), encoded(creation(1)) + encoded(push(1, 2)) + encoded(push(1, 3)))
      << "each record has its bytes and its checksum";
  EXPECT_EQ(kept(1), range(1, 3));
  EXPECT_EQ(kept(2), range(1, 3));
}

TEST_F(Groups, AValueIsBoundedInRecordsAndInBytes) {
  std::vector<Record> records = records_of(1, 1, 3 * kGroupRecordsMax);
  for (Sequence s = records.size() + 1; s <= 3 * kGroupRecordsMax + 3; ++s) {
    records.push_back(push(1, s));
    records.back().reason.assign(kGroupBytesMax / 2, 'x');
  }
  write({batch_of(records)});
  EXPECT_THAT(keys(1), ElementsAre(256, 512, 768, 769, 770, 771));
  const auto store = open(path());
  std::vector<RecoveredJob> jobs;
  std::string error;
  ASSERT_TRUE(store->load(jobs, error)) << error;
  EXPECT_EQ(jobs.at(0).records, records);
}

TEST_F(Groups, HistoryIsReadFromAnyRecordOn) {
  write({batch_of(records_of(1, 1, 600)), batch_of(records_of(1, 601, 700))});
  const auto store = open(path());
  for (const Sequence from : {0, 1, 2, 255, 256, 257, 512, 513, 600, 601, 700, 701}) {
    ReadResult page;
    std::string error;
    ASSERT_TRUE(store->read(1, from, 300, 1 << 20, page, error)) << error;
    std::vector<Sequence> found;
    for (const RawRecord& raw : page.records) {
      found.push_back(raw.sequence);
      const std::string expected = encoded(raw.sequence == 1 ? creation(1) : push(1, raw.sequence));
      EXPECT_EQ(std::string(raw.bytes.begin(), raw.bytes.end()), expected);
    }
    const Sequence first = std::max<Sequence>(from, 1);
    const Sequence last = std::min<Sequence>(first + 299, 700);
    EXPECT_EQ(found, range(first, last)) << from;
    EXPECT_EQ(page.next_sequence, last < 700 ? last + 1 : 0) << from;
  }
}

// A snapshot in the midst of a value: what is before it is passed over.
TEST_F(Groups, AStartReadsWhatFollowsASnapshot) {
  write({Batch{records_of(1, 1, 100), {sample_snapshot(1, 40)}}});
  const auto store = open(path());
  std::vector<RecoveredJob> jobs;
  std::string error;
  ASSERT_TRUE(store->load(jobs, error)) << error;
  EXPECT_EQ(jobs.at(0).records, records_of(1, 41, 100));
}

// ---- the format before
// ---------------------------------------------------------------------------

class Format1 : public Groups {
 protected:
  // Ten records of job 1, as an earlier daemon has left them.
  void SetUp() override {
    std::vector<Batch> batches;
    for (const Record& record : records_of(1, 1, 10)) batches.push_back(batch_of({record}));
    write(std::move(batches));
    const std::string one = "1";
    tamper(path(), "meta", "format_version", &one);
    ASSERT_EQ(keys(1), range(1, 10));
  }
};

TEST_F(Format1, IsReadAndGoesOnInTheLatestOne) {
  EXPECT_THAT(problems(), ElementsAre());
  ASSERT_TRUE(database() != nullptr);
  EXPECT_EQ(database()->format, 1U) << "reading changes nothing";
  write({batch_of(records_of(1, 11, 30))});
  EXPECT_EQ(database()->format, 2U);
  EXPECT_THAT(keys(1), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 30));
  EXPECT_THAT(problems(), ElementsAre());
  EXPECT_EQ(kept(), range(1, 30));
}

TEST_F(Format1, ABackupIsOfTheFormatThatTheStoreHas) {
  const std::string backup = dir_.path() + "/backup";
  std::string error;
  ASSERT_TRUE(backup_store(path(), backup, error)) << error;
  const auto opened = open_database({.path = backup, .read_only = true}, error);
  ASSERT_NE(opened, nullptr) << error;
  EXPECT_EQ(opened->format, 1U);
}

TEST_F(Format1, IsSalvagedIntoTheLatestOne) {
  write({batch_of(records_of(1, 11, 30))});
  tamper(path(), "records", key_of(1, 9), nullptr);
  Salvaged salvaged;
  std::string error;
  ASSERT_TRUE(salvage_store(path(), salvaged, error)) << error;
  ASSERT_EQ(salvaged.jobs.size(), 1U);
  EXPECT_EQ(salvaged.jobs[0].dropped, 22U);
  EXPECT_EQ(database()->format, 2U);
  EXPECT_THAT(keys(1), ElementsAre(8));
  EXPECT_EQ(kept(), range(1, 8));
}

// ---- what retention cuts
// -------------------------------------------------------------------------

TEST_F(Groups, ACutWithinAValueHidesWhatIsBeforeIt) {
  Options retention;
  retention.retention_bytes = 1;
  // The mark is the snapshot's: it lies within the second value.
  write({batch_of(records_of(1, 1, 20)), Batch{records_of(1, 21, 40), {sample_snapshot(1, 30)}}},
        retention);
  EXPECT_THAT(keys(1), ElementsAre(40)) << "whole values go";
  EXPECT_EQ(kept(), range(31, 40));
  EXPECT_THAT(problems(), ElementsAre());
  StoreCheck check;
  std::string error;
  ASSERT_TRUE(check_store(path(), check, error)) << error;
  EXPECT_EQ(check.jobs[0].records, 10U);
  EXPECT_EQ(check.jobs[0].first, 31U);
  const auto store = open(path());
  ReadResult page;
  ASSERT_TRUE(store->read(1, 1, 1, 1 << 20, page, error)) << error;
  EXPECT_EQ(page.first_sequence, 31U);
  EXPECT_EQ(page.records.at(0).sequence, 31U);
}

TEST_F(Groups, ASalvageKeepsWhatACutHasHiddenAway) {
  Options retention;
  retention.retention_bytes = 1;
  write({Batch{records_of(1, 1, 40), {sample_snapshot(1, 30)}}, batch_of(records_of(1, 41, 50))},
        retention);
  const std::string garbage = "garbage";
  tamper(path(), "records", key_of(1, 50), &garbage);
  Salvaged salvaged;
  std::string error;
  ASSERT_TRUE(salvage_store(path(), salvaged, error)) << error;
  EXPECT_EQ(kept(), range(31, 40));
  EXPECT_THAT(problems(), ElementsAre());
}

// ---- damage
// --------------------------------------------------------------------------------------

class DamagedGroup : public Groups {
 protected:
  void SetUp() override {
    write({batch_of(records_of(1, 1, 10)), batch_of(records_of(1, 11, 20)),
           batch_of(records_of(1, 21, 30))});
    good_ = value(1, 20);
    before_ = encoded(push(1, 11)).size() + encoded(push(1, 12)).size();
  }
  void put(const std::string& damaged) { tamper(path(), "records", key_of(1, 20), &damaged); }
  Salvaged salvage() {
    Salvaged salvaged;
    std::string error;
    EXPECT_TRUE(salvage_store(path(), salvaged, error)) << error;
    return salvaged;
  }

  std::string good_;
  std::size_t before_ = 0;  // bytes before record 13
};

TEST_F(DamagedGroup, ADamagedRecordIsNamedAndThoseBeforeItAreKept) {
  std::string damaged = good_;
  damaged[before_ + 20] ^= 1;
  put(damaged);
  EXPECT_THAT(load_error(), HasSubstr("record 13: its checksum does not match"));
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("record 13: its checksum does not match")));
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1U);
  EXPECT_EQ(salvaged.jobs[0].dropped, 18U);
  EXPECT_THAT(salvaged.jobs[0].what, ElementsAre(HasSubstr("records 13 to 30: record 13: ")));
  EXPECT_EQ(kept(), range(1, 12));
}

// Nothing tells then where the records after it begin.
TEST_F(DamagedGroup, WithADamagedLengthAllOfItIsLostAndToldSo) {
  std::string cut = good_;
  cut.pop_back();
  std::string wrong = good_;
  wrong[before_ + 4] ^= 0x40;
  for (const std::string& damaged : {cut, wrong, std::string("garbage"), std::string()}) {
    put(damaged);
    EXPECT_THAT(load_error(), HasSubstr("record 11 is missing (the next one is 20)"));
    EXPECT_THAT(problems(), ElementsAre("records 11 to 19 are missing", HasSubstr("record 20: ")));
  }
  const Salvaged salvaged = salvage();
  ASSERT_EQ(salvaged.jobs.size(), 1U);
  EXPECT_EQ(salvaged.jobs[0].dropped, 20U);
  EXPECT_THAT(salvaged.jobs[0].what, ElementsAre(HasSubstr("records 11 to 30: record 20: ")));
  EXPECT_EQ(kept(), range(1, 10));
}

TEST_F(DamagedGroup, OneThatIsMissingIsNamed) {
  tamper(path(), "records", key_of(1, 20), nullptr);
  EXPECT_THAT(load_error(), HasSubstr("record 11 is missing (the next one is 21)"));
  EXPECT_THAT(problems(), ElementsAre("records 11 to 20 are missing"));
}

// The lengths say that there are more records than the key's sequence allows.
TEST_F(DamagedGroup, MoreRecordsThanSequencesAreDamage) {
  tamper(path(), "records", key_of(1, 3), &good_);
  EXPECT_THAT(load_error(), HasSubstr("record 1 is missing (the next one is 3)"));
}

// As files that were collected one by one may have it.
TEST_F(DamagedGroup, RecordsThatTwoValuesHoldAreReadOnce) {
  const std::string some = encoded(push(1, 11)) + encoded(push(1, 12));
  tamper(path(), "records", key_of(1, 12), &some);
  EXPECT_THAT(problems(), ElementsAre());
  EXPECT_EQ(kept(), range(1, 30));
}

// A power cut within the last commit, which was not acknowledged.
TEST_F(DamagedGroup, ALogThatIsCutOffNamesAllRecordsOfTheCommit) {
  const std::string crashed = dir_.path() + "/crashed";
  auto store = open(path());
  std::vector<RecoveredJob> jobs;
  std::string error;
  ASSERT_TRUE(store->load(jobs, error)) << error;
  Reports reports;
  store->start(reports.callback());
  ASSERT_TRUE(store->submit(1, batch_of(records_of(1, 31, 40))));
  ASSERT_TRUE(reports.wait_for(1));
  fs::copy(path(), crashed);
  store.reset();
  path_ = crashed;
  for (const std::string& name : names_in(path())) {
    const std::string file = path() + "/" + name;
    if (name.ends_with(".log") && fs::file_size(file) > 0) {
      fs::resize_file(file, fs::file_size(file) - 5);
    }
  }
  store = open(path());
  ASSERT_TRUE(store->cut_tail().has_value());
  EXPECT_EQ(store->cut_tail()->what, "records 31 to 40 of job #1");
  EXPECT_EQ(sequences(*store, 1), range(1, 30));
}

}  // namespace
}  // namespace syncd::store
