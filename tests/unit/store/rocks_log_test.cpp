// The write-ahead logs of a store, read as they lie on the disk: all of one store, and found again
// beyond what cannot be read.
#include "daemon/store/rocks_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "daemon/store/maintenance.h"
#include "daemon/store/salvage.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::AllOf;
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

}  // namespace
}  // namespace syncd::store
