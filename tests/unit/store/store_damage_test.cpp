// Stores whose files or values were damaged: each damage is found and named, and nothing wrong is
// ever handed out as if it were right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "daemon/edge/store/maintenance.h"
#include "daemon/edge/store/rocks_database.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// ---- values and keys
// ------------------------------------------------------------------------------

class Damaged : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = open(dir_.store());
    Reports reports;
    store->start(reports.callback());
    for (Sequence s = 1; s <= 4; ++s) {
      ASSERT_TRUE(store->submit(s, batch_of({s == 1 ? creation(1) : push(1, s)})));
      ASSERT_TRUE(reports.wait_for(s));  // a value each
    }
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
  EXPECT_THAT(load_error(), HasSubstr("record 3: it says it is record 2"));
}

TEST_F(Damaged, AStoreOfANewerFormatIsRefused) {
  const std::string newer = "3";
  tamper(dir_.store(), "meta", "format_version", &newer);
  Options options;
  options.path = dir_.store();
  std::string error;
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  EXPECT_THAT(error, HasSubstr("format 3"));
  EXPECT_THAT(error, HasSubstr("newer version"));
}

TEST_F(Damaged, AMissingFirstRecordIsNamed) {
  tamper(dir_.store(), "records", key_of(1, 1), nullptr);
  EXPECT_THAT(load_error(), HasSubstr("record 1 is missing (the next one is 2)"));
}

TEST_F(Damaged, AJobWithoutAnyRecordIsNamed) {
  for (Sequence s = 1; s <= 4; ++s) tamper(dir_.store(), "records", key_of(1, s), nullptr);
  const std::string error = load_error();
  EXPECT_THAT(error, HasSubstr("'cifar' (#1)"));
  EXPECT_THAT(error, HasSubstr("record 1 is missing"));
}

TEST_F(Damaged, RecordsWithoutTheirJobAreNamed) {
  tamper(dir_.store(), "jobs", key_of(1, 0).substr(0, 4), nullptr);
  const std::string error = load_error();
  EXPECT_THAT(error, HasSubstr("job #1"));
  EXPECT_THAT(error, HasSubstr("creation record is missing"));
}

TEST_F(Damaged, ACreationRecordOfAnotherJobIsNamed) {
  RecordEncoder encoder;
  const auto bytes = encoder.encode(creation(2));
  const std::string other(bytes.begin(), bytes.end());
  tamper(dir_.store(), "jobs", key_of(1, 0).substr(0, 4), &other);
  EXPECT_THAT(load_error(), HasSubstr("job #1, creation record: it is a record of kind "
                                      "job_created of job #2"));
}

TEST_F(Damaged, ADamagedSnapshotIsNamed) {
  const std::string garbage = "garbage that is no snapshot";
  tamper(dir_.store(), "snapshots", key_of(1, 0).substr(0, 4), &garbage);
  const std::string error = load_error();
  EXPECT_THAT(error, HasSubstr("'cifar' (#1), snapshot"));
  EXPECT_THAT(error, HasSubstr("restore a backup"));
}

TEST_F(Damaged, ASnapshotOfAnotherJobIsNamed) {
  RecordEncoder encoder;
  const auto bytes = encoder.encode(sample_snapshot(2, 3));
  const std::string other(bytes.begin(), bytes.end());
  tamper(dir_.store(), "snapshots", key_of(1, 0).substr(0, 4), &other);
  EXPECT_THAT(load_error(), HasSubstr("it is one of job #2"));
}

TEST_F(Damaged, ARecordMissingRightAfterTheSnapshotIsNamed) {
  RecordEncoder encoder;
  const auto bytes = encoder.encode(sample_snapshot(1, 2));
  const std::string snapshot(bytes.begin(), bytes.end());
  tamper(dir_.store(), "snapshots", key_of(1, 0).substr(0, 4), &snapshot);
  tamper(dir_.store(), "records", key_of(1, 3), nullptr);
  EXPECT_THAT(load_error(), HasSubstr("record 3 is missing (the next one is 4)"));
}

std::string open_error(const std::string& path) {
  Options options;
  options.path = path;
  std::string error;
  EXPECT_EQ(open_rocks_store(options, error), nullptr);
  return error;
}

TEST_F(Damaged, AStoreWithANewersColumnFamilyIsRefused) {
  add_family(dir_.store(), "graphs");
  const std::string error = open_error(dir_.store());
  EXPECT_THAT(error, HasSubstr("graphs"));
  EXPECT_THAT(error, HasSubstr("newer version"));
  StoreCheck check;
  std::string why;
  EXPECT_FALSE(check_store(dir_.store(), check, why));
  EXPECT_EQ(why, error);
}

TEST_F(Damaged, ADatabaseOfAnotherProgramIsLeftAlone) {
  const std::string path = dir_.path() + "/other";
  rocksdb::Options options;
  options.create_if_missing = true;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open(options, path, &opened).ok());
  ASSERT_TRUE(opened->Put({}, "key", "value").ok());
  delete opened;
  EXPECT_THAT(open_error(path), HasSubstr("is a RocksDB database of another program"));
  std::vector<std::string> families;
  ASSERT_TRUE(rocksdb::DB::ListColumnFamilies(options, path, &families).ok());
  EXPECT_EQ(families, std::vector<std::string>{"default"});
}

TEST_F(Damaged, AFormatVersionThatIsNoNumberIsDamage) {
  const std::string garbage = "x1";
  tamper(dir_.store(), "meta", "format_version", &garbage);
  const std::string error = open_error(dir_.store());
  EXPECT_THAT(error, HasSubstr("'x1'"));
  EXPECT_THAT(error, HasSubstr("damaged"));
}

// ---- files
// ----------------------------------------------------------------------------------------

// A store whose records lie in a table file and, the later ones, in the write-ahead log.
class DamagedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Sequence first : {1, 31}) {
      auto store = open(dir_.store());
      Reports reports;
      store->start(reports.callback());
      for (Sequence s = first; s < first + 30; ++s) {
        Record record = s == 1 ? creation(1) : push(1, s);
        records_.push_back(record);
        ASSERT_TRUE(store->submit(s, batch_of({record})));
        ASSERT_TRUE(reports.wait_for(s));  // a commit each
      }
      std::string error;
      ASSERT_TRUE(store->close(30'000'000, error)) << error;
    }
  }

  std::vector<std::string> files(const std::string& part) const {
    return files(part, dir_.store());
  }
  static std::vector<std::string> files(const std::string& part, const std::string& path) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path)) {
      const std::string name = entry.path().filename();
      if (name.find(part) != std::string::npos) found.push_back(name);
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  std::string copy() const {
    const std::string path = dir_.path() + "/copy";
    fs::remove_all(path);
    fs::copy(dir_.store(), path);
    return path;
  }

  // The store as a crash leaves it after one more record.
  std::string write_one_more_and_crash() const {
    std::string crashed = dir_.path() + "/crashed";
    auto store = open(dir_.store());
    Reports reports;
    store->start(reports.callback());
    EXPECT_TRUE(store->submit(61, batch_of({push(1, 61)})));
    EXPECT_TRUE(reports.wait_for(61));
    fs::copy(dir_.store(), crashed);
    return crashed;
  }

  // The records that a store hands out; nothing, with an error, if it refuses.
  std::optional<std::vector<Record>> recover(const std::string& path, std::string& error) const {
    Options options;
    options.path = path;
    auto store = open_rocks_store(options, error);
    if (!store) return std::nullopt;
    std::vector<RecoveredJob> jobs;
    if (!store->load(jobs, error)) return std::nullopt;
    return jobs.empty() ? std::vector<Record>{} : std::move(jobs.front().records);
  }

  bool change_byte(const std::string& name, std::uintmax_t at);

  TempDir dir_;
  std::vector<Record> records_;
};

// Changes one byte in a copy of the store and expects that the copy is refused or hands out what
// was stored. Returns whether it was refused.
bool DamagedFiles::change_byte(const std::string& name, std::uintmax_t at) {
  const std::string path = copy();
  std::fstream file(path + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const auto byte = static_cast<char>(file.get() ^ 0x5A);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
  file.close();
  std::string error;
  const auto found = recover(path, error);
  if (!found) {
    EXPECT_THAT(error, HasSubstr(path)) << name << ", byte " << at;
    return true;
  }
  // A wrong length of an entry at the log's end looks as if a crash had cut the log off there; that
  // alone may hide the records from there on. All others must be there.
  const bool may_be_short = name.find(".log") != std::string::npos;
  EXPECT_LE(found->size(), records_.size()) << name << ", byte " << at;
  EXPECT_GE(found->size(), may_be_short ? 30 : records_.size()) << name << ", byte " << at;
  EXPECT_TRUE(std::equal(
      found->begin(),
      found->begin() + static_cast<std::ptrdiff_t>(std::min(found->size(), records_.size())),
      records_.begin()))
      << name << ", byte " << at;
  return false;
}

TEST_F(DamagedFiles, AChangedByteNeverChangesARecord) {
  for (const char* kind : {".sst", ".log", "MANIFEST", "CURRENT"}) {
    ASSERT_FALSE(files(kind).empty()) << kind;
    std::size_t changed = 0;
    std::size_t refused = 0;
    for (const std::string& name : files(kind)) {
      const auto size = fs::file_size(dir_.store() + "/" + name);
      // About twenty places of each file, of every kind of content.
      for (std::uintmax_t at = 3; at < size; at += size / 20 + 1) {
        ++changed;
        if (change_byte(name, at)) ++refused;
      }
    }
    EXPECT_GT(refused, changed * 3 / 4) << kind << ": of " << changed;
  }
}

// A crash may cut the log off anywhere: what is before the cut is there, and the store goes on.
TEST_F(DamagedFiles, ALogThatIsCutOffGivesWhatIsWholeAndCanBeWritten) {
  const std::string log = files(".log").back();
  const auto size = fs::file_size(dir_.store() + "/" + log);
  ASSERT_GT(size, 1000u);
  std::size_t before = 0;
  for (std::uintmax_t length = 0; length <= size; length += size / 40 + 1) {
    const std::string path = copy();
    fs::remove(path + "/CLOSED");  // which a crash does not leave
    fs::resize_file(path + "/" + log, length);
    std::string error;
    const auto found = recover(path, error);
    ASSERT_TRUE(found) << length << ": " << error;
    ASSERT_GE(found->size(), std::max<std::size_t>(before, 30)) << length;
    ASSERT_TRUE(std::equal(found->begin(), found->end(), records_.begin())) << length;
    before = found->size();

    auto store = open(path);
    Reports reports;
    store->start(reports.callback());
    ASSERT_TRUE(store->submit(1, batch_of({push(1, before + 1)})));
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
    EXPECT_EQ(sequences(*store, 1).size(), before + 1);
  }
  EXPECT_GT(before, 50u);
}

// RocksDB would begin an empty store, and delete the files of this one.
TEST_F(DamagedFiles, WithoutCurrentNothingIsTouched) {
  for (const char* gone_too : {"", ".log", "MANIFEST", "CLOSED", ".sst"}) {
    const std::string path = copy();
    fs::remove(path + "/CURRENT");
    if (*gone_too != '\0') {
      for (const std::string& name : files(gone_too)) fs::remove(path + "/" + name);
    }
    const auto before = names_in(path);
    for (int start = 1; start <= 2; ++start) {
      EXPECT_THAT(open_error(path), HasSubstr("its file CURRENT is missing"));
      EXPECT_EQ(names_in(path), before) << "without CURRENT and " << gone_too;
    }
  }
}

// A first start that was cut off had nothing to lose.
TEST_F(DamagedFiles, WithManifestsAndAnEmptyLogAloneAStoreBegins) {
  const std::string path = dir_.path() + "/fresh";
  fs::create_directory(path);
  std::ofstream(path + "/MANIFEST-000001") << "cut off";
  std::ofstream(path + "/MANIFEST-000005") << "cut off";
  std::ofstream(path + "/000004.log") << "";
  EXPECT_NE(open(path), nullptr);
}

TEST_F(DamagedFiles, AfterAGoodEndNoFileMayBeMissing) {
  std::size_t tried = 0;
  for (const char* part : {".sst", ".log", "MANIFEST"}) {
    for (const std::string& name : files(part)) {
      const std::string path = copy();
      fs::remove(path + "/" + name);
      const auto before = names_in(path);
      EXPECT_THAT(open_error(path), AllOf(HasSubstr(name), HasSubstr("--store-salvage")));
      EXPECT_EQ(names_in(path), before);
      ++tried;
    }
  }
  EXPECT_GE(tried, 3U);
}

TEST_F(DamagedFiles, AfterAGoodEndNoFileMayBeShorter) {
  for (const char* part : {".sst", ".log", "MANIFEST"}) {
    const std::string name = files(part).back();
    const auto size = fs::file_size(dir_.store() + "/" + name);
    for (std::uintmax_t length = 0; length < size; length += size / 60 + 1) {
      const std::string path = copy();
      fs::resize_file(path + "/" + name, length);
      const auto before = names_in(path);
      EXPECT_THAT(open_error(path), HasSubstr(name)) << length;
      EXPECT_EQ(names_in(path), before) << length;
    }
  }
}

// The length of an entry that points beyond the end, or zeros: RocksDB takes that for the end, and
// deletes the table files that the entries after it are about.
TEST_F(DamagedFiles, WhatLooksLikeTheEndOfAListOrALogIsDamage) {
  const std::string manifest = files("MANIFEST").back();
  const std::string log = files(".log").back();
  ASSERT_GT(fs::file_size(dir_.store() + "/" + log), 1000U);
  for (const std::string& name : {manifest, log}) {
    const auto size = fs::file_size(dir_.store() + "/" + name);
    for (const std::uintmax_t from : {std::uintmax_t{0}, size / 3, size - 20}) {
      const std::string path = copy();
      std::fstream file(path + "/" + name, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(from));
      file << std::string(size - from, '\0');
      file.close();
      const auto before = names_in(path);
      EXPECT_THAT(open_error(path), AllOf(HasSubstr(name), HasSubstr("--store-salvage")))
          << "zeros from " << from;
      EXPECT_EQ(names_in(path), before);
    }
  }
  // Its entries: masked checksum, length, type.
  std::string bytes;
  {
    std::ifstream in(dir_.store() + "/" + manifest, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::size_t tried = 0;
  for (std::size_t at = 0; at + 7 <= bytes.size(); ++tried) {
    const std::string path = copy();
    std::string damaged = bytes;
    damaged[at + 5] = '\x5A';
    std::ofstream(path + "/" + manifest, std::ios::binary) << damaged;
    for (const bool crashed : {false, true}) {
      if (crashed) fs::remove(path + "/CLOSED");
      const auto before = names_in(path);
      EXPECT_THAT(open_error(path), AllOf(HasSubstr(manifest), HasSubstr("--store-salvage"))) << at;
      EXPECT_EQ(names_in(path), before) << at;
    }
    at += 7 + static_cast<unsigned char>(bytes[at + 4]) +
          256U * static_cast<unsigned char>(bytes[at + 5]);
  }
  EXPECT_GE(tried, 5U);
}

TEST_F(Damaged, AStoreOfJobsWithoutAFormatVersionIsNotTakenForANewOne) {
  tamper(dir_.store(), "meta", "format_version", nullptr);
  EXPECT_THAT(open_error(dir_.store()), HasSubstr("it has no format version, but jobs"));
}

// By a list of files that is shorter than it was, RocksDB would forget a table file whose log is
// gone already, and say nothing.
TEST_F(DamagedFiles, AfterACrashTheManifestMayNotBeShorter) {
  const std::string crashed = dir_.path() + "/crashed";
  {
    Options options;
    options.path = dir_.store();
    std::string error;
    const auto database = open_database(options, error);
    ASSERT_NE(database, nullptr) << error;
    rocksdb::WriteOptions synced;
    synced.sync = true;
    ASSERT_TRUE(database->db->Put(synced, database->families[kRecords], key_of(9, 1), "x").ok());
    ASSERT_TRUE(database->db->Flush({}, database->families[kRecords]).ok());
    fs::copy(dir_.store(), crashed);
  }
  std::string manifest;
  std::getline(std::ifstream(crashed + "/CURRENT"), manifest);
  const auto size = fs::file_size(crashed + "/" + manifest);
  std::size_t tried = 0;
  const std::string cut = dir_.path() + "/copy";
  for (std::uintmax_t length = 0; length < size; length += size / 60 + 1) {
    fs::remove_all(cut);
    fs::copy(crashed, cut);
    fs::resize_file(cut + "/" + manifest, length);
    const auto before = names_in(cut);
    EXPECT_THAT(open_error(cut), AllOf(HasSubstr(manifest + " has " + std::to_string(length)),
                                       HasSubstr("--store-salvage")));
    EXPECT_EQ(names_in(cut), before) << length;
    ++tried;
  }
  EXPECT_GE(tried, 30U);
  Options options;
  options.path = crashed;
  std::string error;
  EXPECT_NE(open_rocks_store(options, error), nullptr) << error;
}

TEST_F(DamagedFiles, AfterACrashTheLatestLogMayNotBeMissing) {
  const std::string crashed = write_one_more_and_crash();
  const std::string latest = files(".log", crashed).back();
  fs::rename(crashed + "/" + latest, dir_.path() + "/away");
  const auto before = names_in(crashed);
  EXPECT_THAT(open_error(crashed), AllOf(HasSubstr(latest), HasSubstr("--store-salvage")));
  EXPECT_EQ(names_in(crashed), before);
  fs::rename(dir_.path() + "/away", crashed + "/" + latest);
  std::string error;
  const auto found = recover(crashed, error);
  ASSERT_TRUE(found) << error;
  EXPECT_EQ(found->size(), 61U);
}

// What was noted of its files says nothing of a store that was opened since and then crashed.
TEST_F(DamagedFiles, AnOlderGoodEndSaysNothingOfFilesThatAreGone) {
  const std::string crashed = write_one_more_and_crash();
  ASSERT_TRUE(fs::exists(crashed + "/CLOSED"));
  std::string error;
  const auto found = recover(crashed, error);
  ASSERT_TRUE(found) << error;
  EXPECT_EQ(found->size(), 61U);
}

// A copy says which files it has.
TEST_F(DamagedFiles, ABackupOfWhichAFileIsMissingIsRefused) {
  const std::string backup = dir_.path() + "/backup";
  std::string error;
  ASSERT_TRUE(backup_store(dir_.store(), backup, error)) << error;
  StoreCheck check;
  ASSERT_TRUE(check_store(backup, check, error)) << error;
  std::size_t tried = 0;
  for (const std::string& name : names_in(backup)) {
    if (!name.ends_with(".log") && !name.ends_with(".sst")) continue;
    fs::rename(backup + "/" + name, dir_.path() + "/away");
    EXPECT_FALSE(restore_store(backup, dir_.path() + "/restored", error));
    EXPECT_THAT(error, HasSubstr(name));
    fs::rename(dir_.path() + "/away", backup + "/" + name);
    ++tried;
  }
  EXPECT_GE(tried, 2U);
}

}  // namespace
}  // namespace syncd::store
