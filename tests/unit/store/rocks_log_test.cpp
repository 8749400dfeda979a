// The write-ahead logs of a store, read as they lie on the disk: all of one store, found again
// beyond what cannot be read, and of every type that RocksDB 7.8 to 9.11 writes. The logs made of
// bytes are the same with each RocksDB; those that the library writes tell what its version does.
#include "daemon/edge/store/rocks_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/version.h>

#include <filesystem>
#include <fstream>

#include "daemon/edge/store/maintenance.h"
#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/rocks_database.h"
#include "daemon/edge/store/salvage.h"
#include "proto/base/crc32c.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// Records first to last of job 1, a commit each, and a good end.
void write_records(const std::string& path, Sequence first, Sequence last) {
  auto store = open(path);
  Reports reports;
  store->start(reports.callback());
  for (Sequence s = first; s <= last; ++s) {
    ASSERT_TRUE(store->submit(s, batch_of({s == 1 ? creation(1) : push(1, s)})));
    ASSERT_TRUE(reports.wait_for(s));
  }
  std::string error;
  ASSERT_TRUE(store->close(30'000'000, error)) << error;
}

// The latest one that is not empty.
std::string log_of(const std::string& path) {
  std::string found;
  for (const std::string& name : names_in(path)) {
    if (name.ends_with(".log") && fs::file_size(path + "/" + name) > 0) found = name;
  }
  return found;
}

class MixedLogs : public ::testing::Test {
 protected:
  void SetUp() override {
    write_records(path_, 1, 20);
    write_records(path_, 21, 40);
  }
  // By whatever opens it; the store is not touched.
  void expect_refused(const std::string& why) const {
    const auto before = names_in(path_);
    const auto refusal = AllOf(HasSubstr("store " + path_ + " has a log of another store"),
                               HasSubstr(why), HasSubstr("move the one that does not belong"));
    for (const bool read_only : {false, true}) {
      Options options;
      options.path = path_;
      options.read_only = read_only;
      std::string error;
      EXPECT_EQ(open_rocks_store(options, error), nullptr);
      EXPECT_THAT(error, refusal);
    }
    StoreCheck check;
    std::string error;
    EXPECT_FALSE(check_store(path_, check, error) && check.sound());
    Salvaged salvaged;
    EXPECT_FALSE(salvage_store(path_, salvaged, error));
    EXPECT_THAT(error, refusal);
    EXPECT_EQ(names_in(path_), before);
    EXPECT_FALSE(fs::exists(path_ + ".salvaging"));
  }

  TempDir dir_;
  const std::string path_ = dir_.store();
};

// RocksDB ends the process for it.
TEST_F(MixedLogs, ALogThatIsThereTwiceIsRefused) {
  const std::string log = log_of(path_);
  fs::copy(path_ + "/" + log, path_ + "/000999.log");
  expect_refused("its log 000999.log is none of those");
  fs::remove(path_ + "/CLOSED");  // as after a crash
  expect_refused("its log 000999.log begins with write ");
  fs::remove(path_ + "/000999.log");
  write_records(path_, 41, 41);
}

TEST_F(MixedLogs, AnEarlierLogOfAnotherStoreIsRefused) {
  const std::string other = dir_.path() + "/other";
  write_records(other, 1, 100);
  fs::remove(path_ + "/CLOSED");
  fs::copy(other + "/" + log_of(other), path_ + "/000001.log");
  expect_refused("its log " + log_of(path_) + " begins with write ");
}

// Its numbers follow, so that nothing but the list of files tells.
TEST_F(MixedLogs, ALaterLogOfAnotherStoreIsRefusedAfterAGoodEnd) {
  const std::string other = dir_.path() + "/other";
  write_records(other, 1, 100);
  write_records(other, 101, 120);
  fs::copy(other + "/" + log_of(other), path_ + "/000999.log");
  expect_refused("its log 000999.log is none of those");
}

// A start that a crash has cut off has made its log, and may have written to it what changes
// nothing.
TEST_F(MixedLogs, AnEmptyLogBesideThoseOfAGoodEndIsNone) {
  std::ofstream(path_ + "/000999.log").close();
  write_records(path_, 41, 41);
}

// Every byte of it looks like the header of an entry of 1028 bytes, whose checksum has to be looked
// at; the search ends early, and is taken up in the next block.
TEST(LogSearch, GoesOnInTheNextBlockAfterMuchThatLooksLikeEntries) {
  constexpr std::size_t kBlock = 32 * 1024;
  const TempDir dir;
  write_records(dir.store(), 1, 1600);
  const std::string log = log_of(dir.store());
  ASSERT_GT(fs::file_size(dir.store() + "/" + log), 5 * kBlock);
  std::fstream out(dir.store() + "/" + log, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(kBlock);
  out << std::string(2 * kBlock, '\x04');
  out.close();
  LogReport report;
  std::string error;
  ASSERT_TRUE(examine_log(rocksdb::Env::Default(), dir.store(), report, error)) << error;
  EXPECT_EQ(report.state, LogState::kDamaged);
  ASSERT_EQ(report.unreadable.size(), 1U);
  EXPECT_LE(report.unreadable[0].at, kBlock);
  const std::uint64_t end = report.unreadable[0].at + report.unreadable[0].bytes;
  EXPECT_GE(end, 3 * kBlock);
  EXPECT_LE(end, 3 * kBlock + 1024) << "the first entry that begins in a whole block";
  EXPECT_GT(report.entries_after, 100U);
}

// ---- types of entries ---------------------------------------------------------------------------

constexpr std::size_t kBlockBytes = 32 * 1024;
constexpr std::uint32_t kOwnNumber = 12;
constexpr const char* kOwnName = "000012.log";

std::string little_endian(std::uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> 8 * i));
  return out;
}

bool has_number(std::uint8_t type) {
  return (type >= 5 && type <= 8) || (type >= 10 && type % 2 == 1);
}

std::string fragment(std::uint8_t type, const std::string& payload,
                     std::uint32_t number = kOwnNumber) {
  std::string checked(1, static_cast<char>(type));
  if (has_number(type)) checked += little_endian(number, 4);
  checked += payload;
  const std::uint32_t crc =
      mask_crc(crc32c({reinterpret_cast<const std::uint8_t*>(checked.data()), checked.size()}));
  return little_endian(crc, 4) + little_endian(payload.size(), 2) + checked;
}

// A commit that writes one record of job 1.
std::string commit(Sequence sequence, std::size_t value_bytes = 10) {
  const std::string key = record_key(1, sequence);
  std::string out = little_endian(sequence, 8) + little_endian(1, 4) + '\x05' +
                    static_cast<char>(kRecords) + static_cast<char>(key.size()) + key;
  std::size_t left = value_bytes;
  for (; left >= 0x80; left >>= 7) out += static_cast<char>(left | 0x80);
  return out + static_cast<char>(left) + std::string(value_bytes, 'v');
}

class LogTypes : public ::testing::Test {
 protected:
  void write(const std::string& data, const std::string& name = kOwnName) {
    ASSERT_TRUE(rocksdb::WriteStringToFile(env_.get(), data, "/store/" + name).ok());
  }
  void SetUp() override { ASSERT_TRUE(env_->CreateDir("/store").ok()); }

  LogReport examined() {
    LogReport report;
    std::string error;
    EXPECT_TRUE(examine_log(env_.get(), "/store", report, error)) << error;
    return report;
  }
  LogReport examined(const std::string& data) {
    write(data);
    return examined();
  }
  std::string refusal(const std::string& data) {
    write(data);
    LogReport report;
    std::string error;
    EXPECT_FALSE(examine_log(env_.get(), "/store", report, error)) << "it was taken";
    return error;
  }
  // The records that its whole commits write.
  std::vector<Sequence> records() {
    std::vector<Sequence> found;
    read_log(
        env_.get(), "/store",
        [&](const LoggedWrite& write) { found.push_back(sequence_of(write.key)); }, unreadable_);
    return found;
  }

  std::unique_ptr<rocksdb::Env> env_{rocksdb::NewMemEnv(rocksdb::Env::Default())};
  std::vector<std::string> unreadable_;
};

// Sizes of timestamps, the log before, and what a later version lets an earlier one pass over.
TEST_F(LogTypes, WhatStandsAsideIsPassedOver) {
  for (const int type : {10, 11, 128, 129, 130, 131, 132, 200, 255}) {
    SCOPED_TRACE(type);
    const auto aside = static_cast<std::uint8_t>(type);
    const std::string data = fragment(aside, "a") + fragment(1, commit(1)) +
                             fragment(aside, std::string(24, 'b')) + fragment(1, commit(2));
    EXPECT_EQ(examined(data).state, LogState::kWhole);
    EXPECT_THAT(records(), ElementsAre(1, 2));
    const LogReport cut = examined(data + fragment(aside, "cut off").substr(0, 12));
    EXPECT_EQ(cut.state, has_number(aside) ? LogState::kWhole : LogState::kCutOff)
        << "in a log that was another one's before, what follows the last entry is that one's";
  }
}

TEST_F(LogTypes, WhatStandsAsideIsNoPartOfAnEntry) {
  const std::string split = commit(1);
  for (const int type : {10, 130, 200}) {
    SCOPED_TRACE(type);
    const LogReport report =
        examined(fragment(2, split.substr(0, 20)) + fragment(static_cast<std::uint8_t>(type), "a") +
                 fragment(4, split.substr(20)) + fragment(1, commit(2)));
    EXPECT_EQ(report.state, LogState::kDamaged);
    EXPECT_EQ(report.cut.at, 0U);
    EXPECT_EQ(report.entries_after, 1U);
    EXPECT_THAT(records(), ElementsAre(2));
  }
}

// It is never split: zeros fill the block that it does not fit into. The same zeros before an entry
// are a page that the disk has lost.
TEST_F(LogTypes, ABlockMayEndInZerosBeforeWhatStandsAside) {
  const std::string filled = fragment(1, commit(1, kBlockBytes - 100));
  ASSERT_LT(filled.size(), kBlockBytes - 20);
  const std::string zeros(kBlockBytes - filled.size(), '\0');
  const std::string large(zeros.size(), 'a');
  for (const int type : {10, 130, 132}) {
    const auto aside = static_cast<std::uint8_t>(type);
    EXPECT_EQ(examined(filled + zeros + fragment(aside, large) + fragment(1, commit(2))).state,
              LogState::kWhole);
    EXPECT_THAT(records(), ElementsAre(1, 2));
    EXPECT_EQ(examined(filled + zeros + fragment(aside, "fits") + fragment(1, commit(2))).state,
              LogState::kDamaged);
  }
  EXPECT_EQ(examined(filled + zeros + fragment(1, commit(2))).state, LogState::kDamaged);
}

TEST_F(LogTypes, AnUnknownTypeIsRefusedInASentence) {
  const std::string first = fragment(1, commit(1));
  for (int type = 12; type < 128; ++type) {
    const auto unknown = static_cast<std::uint8_t>(type);
    EXPECT_EQ(refusal(first + fragment(unknown, "new") + fragment(1, commit(2))),
              "store /store: its log 000012.log has an entry of the type " + std::to_string(type) +
                  " at byte " + std::to_string(first.size()) +
                  ", which this version does not know: use the version that wrote it, or a newer "
                  "one");
  }
}

TEST(LogTypesOfAStore, AnUnknownTypeIsRefusedByAllThatOpenIt) {
  const TempDir dir;
  write_records(dir.store(), 1, 3);
  const std::string log = log_of(dir.store());
  const std::string added = fragment(77, "new", static_cast<std::uint32_t>(std::stoul(log)));
  std::ofstream(dir.store() + "/" + log, std::ios::app | std::ios::binary) << added;
  fs::remove(dir.store() + "/CLOSED");
  const auto before = names_in(dir.store());
  for (const bool read_only : {false, true}) {
    Options options;
    options.path = dir.store();
    options.read_only = read_only;
    std::string error;
    EXPECT_EQ(open_rocks_store(options, error), nullptr);
    EXPECT_THAT(error, HasSubstr("has an entry of the type 77 at byte "));
  }
  Salvaged salvaged;
  std::string error;
  EXPECT_FALSE(salvage_store(dir.store(), salvaged, error));
  EXPECT_THAT(error, HasSubstr("has an entry of the type 77 at byte "));
  EXPECT_EQ(names_in(dir.store()), before);
}

// A wrong checksum is damage, whatever the type.
TEST_F(LogTypes, ADamagedEntryOfAnyTypeIsDamage) {
  for (int type = 1; type < 256; ++type) {
    SCOPED_TRACE(type);
    std::string damaged = fragment(static_cast<std::uint8_t>(type), "some bytes");
    damaged.back() ^= 1;
    const LogReport report = examined(fragment(1, commit(1)) + damaged + fragment(1, commit(2)));
    EXPECT_EQ(report.state, LogState::kDamaged);
    EXPECT_EQ(report.entries_after, 1U);
  }
}

TEST_F(LogTypes, AFileUsedAgainEndsWhereTheEarlierLogsEntriesBegin) {
  const std::string split = commit(2, 2 * kBlockBytes);
  std::string own = fragment(5, commit(1));
  const std::size_t in_first = kBlockBytes - own.size() - 11;
  const std::size_t in_next = kBlockBytes - 11;
  own += fragment(6, split.substr(0, in_first)) + fragment(7, split.substr(in_first, in_next)) +
         fragment(8, split.substr(in_first + in_next));
  const std::string older =
      fragment(5, commit(8), kOwnNumber - 1) + fragment(5, commit(9), kOwnNumber - 1);
  for (const std::string& rest : {std::string(), older, older.substr(13), older.substr(0, 40),
                                  "no header" + older, fragment(6, "cut off")}) {
    EXPECT_EQ(examined(own + rest).state, LogState::kWhole);
    EXPECT_THAT(records(), ElementsAre(1, 2));
    EXPECT_EQ(examined(own + rest + fragment(5, commit(3))).state,
              rest.empty() ? LogState::kWhole : LogState::kDamaged)
        << "an entry of its own follows";
  }
  EXPECT_EQ(examined(older).state, LogState::kWhole) << "nothing was written to it yet";
  EXPECT_THAT(records(), ElementsAre());
  // The number is the low half of the name's.
  write(fragment(5, commit(1), 3), std::to_string((std::uint64_t{1} << 32) + 3) + ".log");
  write("", kOwnName);
  EXPECT_THAT(records(), ElementsAre(1));
}

// A header of 11 bytes does not fit: the block ends in zeros.
TEST_F(LogTypes, ABlockOfAFileUsedAgainMayEndInTenZeros) {
  const std::size_t rest = fragment(5, commit(1, 20'000)).size() - 20'000;
  const std::string filled = fragment(5, commit(1, kBlockBytes - rest - 10));
  ASSERT_EQ(filled.size(), kBlockBytes - 10);
  EXPECT_EQ(examined(filled + std::string(10, '\0') + fragment(5, commit(2))).state,
            LogState::kWhole);
  EXPECT_THAT(records(), ElementsAre(1, 2));
}

// Whether all of it is there can be told, and what it says cannot.
TEST_F(LogTypes, ACompressedLogIsWholeOrNot) {
  const std::string begin = fragment(9, little_endian(7, 4));
  // Taken for what it is not, the second would be of an earlier write than the first.
  const std::string two = fragment(1, commit(5)) + fragment(1, commit(4));
  EXPECT_EQ(examined(begin + two).state, LogState::kWhole);
  EXPECT_THAT(records(), ElementsAre());
  EXPECT_THAT(unreadable_, ElementsAre("000012.log: its entries are compressed"));
  EXPECT_EQ(examined(begin + two + "cut").state, LogState::kCutOff);
  std::string damaged = begin + two;
  damaged[begin.size()] ^= 1;
  EXPECT_EQ(examined(damaged).state, LogState::kDamaged);
  EXPECT_EQ(examined(begin + begin + two).state, LogState::kDamaged);
  EXPECT_EQ(examined(two + begin + two).state, LogState::kDamaged);
}

// What the library writes when it is told to use each type that it has; by default, none but 1
// to 4.
TEST(LogTypesOfThisRocksDB, AreAllKnown) {
  RecordProperty("rocksdb", std::to_string(ROCKSDB_MAJOR) + "." + std::to_string(ROCKSDB_MINOR));
  for (const bool recycles : {false, true}) {
    for (const bool compresses : {false, true}) {
      SCOPED_TRACE(std::string(recycles ? "recycled" : "new") +
                   (compresses ? ", compressed" : ", plain"));
      const TempDir dir;
      rocksdb::Options options;
      options.create_if_missing = true;
      if (recycles) {
        options.recycle_log_file_num = 2;
        options.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
      }
      if (compresses) options.wal_compression = rocksdb::kZSTD;
#if ROCKSDB_MAJOR > 9 || (ROCKSDB_MAJOR == 9 && ROCKSDB_MINOR >= 11)
      options.track_and_verify_wals = !recycles;
#endif
      rocksdb::DB* opened = nullptr;
      const rocksdb::Status status = rocksdb::DB::Open(options, dir.store(), &opened);
      ASSERT_TRUE(status.ok()) << status.ToString();
      const std::unique_ptr<rocksdb::DB> db(opened);
      for (int log = 0; log < 5; ++log) {
        for (int i = 0; i < 300; ++i) {
          const std::string value(static_cast<std::size_t>(i * 7 * (6 - log)), 'x');
          ASSERT_TRUE(db->Put({}, "key" + std::to_string(i), value).ok());
        }
        LogReport report;
        std::string error;
        ASSERT_TRUE(examine_log(rocksdb::Env::Default(), dir.store(), report, error)) << error;
        EXPECT_EQ(report.state, LogState::kWhole) << report.cut.file << " at " << report.cut.at;
        std::string begin;
        const std::string file = dir.store() + "/" + log_of(dir.store());
        ASSERT_TRUE(rocksdb::ReadFileToString(rocksdb::Env::Default(), file, &begin).ok());
        const auto type = static_cast<std::uint8_t>(begin.at(6));
        EXPECT_TRUE(compresses ? type == 9 : recycles == has_number(type)) << int{type};
        ASSERT_TRUE(db->Flush({}).ok());
      }
    }
  }
}

}  // namespace
}  // namespace syncd::store
