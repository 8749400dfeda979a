// Checking, copying, restoring and compacting stores that no daemon has open.
#include "daemon/edge/store/maintenance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/unit/store/failing_calls.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class Maintenance : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = open(dir_.store());
    Reports reports;
    store->start(reports.callback());
    Ticket ticket = 0;
    for (const Record& record :
         {creation(1), push(1, 2), push(1, 3), push(1, 4), creation(2), push(2, 2)}) {
      ASSERT_TRUE(store->submit(++ticket, batch_of({record})));
      ASSERT_TRUE(reports.wait_for(ticket));  // a value each
    }
    std::string error;
    ASSERT_TRUE(store->close(30'000'000, error)) << error;
  }
  StoreCheck check(const std::string& path) {
    StoreCheck found;
    std::string error;
    EXPECT_TRUE(check_store(path, found, error)) << error;
    return found;
  }
  std::string path(const char* name) const { return dir_.path() + "/" + name; }

  TempDir dir_;
  std::string error_;
};

TEST_F(Maintenance, ASoundStoreIsCounted) {
  const StoreCheck found = check(dir_.store());
  EXPECT_TRUE(found.sound());
  ASSERT_EQ(found.jobs.size(), 2U);
  EXPECT_EQ(found.jobs[0].id, 1U);
  EXPECT_EQ(found.jobs[0].name, "cifar");
  EXPECT_EQ(found.jobs[0].records, 4U);
  EXPECT_EQ(found.jobs[0].last, 4U);
  EXPECT_EQ(found.jobs[0].snapshot, 0U);
  EXPECT_GT(found.jobs[0].bytes, 4U * 20);
  EXPECT_EQ(found.jobs[1].records, 2U);
}

// All of it, not the first alone as at a daemon's start.
TEST_F(Maintenance, EveryDamageIsNamedWithItsPlace) {
  const std::string garbage = "garbage that is no record";
  tamper(dir_.store(), "records", key_of(1, 2), &garbage);
  tamper(dir_.store(), "records", key_of(1, 3), nullptr);
  tamper(dir_.store(), "records", key_of(2, 1), nullptr);
  const StoreCheck found = check(dir_.store());
  EXPECT_FALSE(found.sound());
  ASSERT_EQ(found.jobs.size(), 2U);
  EXPECT_THAT(found.jobs[0].problems, ElementsAre(HasSubstr("record 2: "), "record 3 is missing"));
  EXPECT_THAT(found.jobs[1].problems, ElementsAre("record 1 is missing"));
}

TEST_F(Maintenance, ManyProblemsOfOneKindAreCut) {
  auto store = open(dir_.store());
  std::vector<RecoveredJob> jobs;
  std::string error;
  ASSERT_TRUE(store->load(jobs, error)) << error;
  Reports reports;
  store->start(reports.callback());
  std::vector<Record> more;
  for (Sequence sequence = 5; sequence < 5 + 2 * (kProblemsMax + 3); sequence += 2) {
    more.push_back(push(1, sequence + 1));
  }
  ASSERT_TRUE(store->submit(1, batch_of(more)));
  ASSERT_TRUE(store->close(30'000'000, error)) << error;
  const StoreCheck found = check(dir_.store());
  EXPECT_EQ(found.jobs[0].problems.size(), kProblemsMax + 1);
  EXPECT_EQ(found.jobs[0].problems.back(), "and 3 more");
}

TEST_F(Maintenance, ABackupIsTheStoreAndStaysAsItIs) {
  ASSERT_TRUE(backup_store(dir_.store(), path("backup"), error_)) << error_;
  const std::string garbage = "garbage";
  tamper(dir_.store(), "records", key_of(1, 2), &garbage);
  EXPECT_FALSE(check(dir_.store()).sound());
  const StoreCheck found = check(path("backup"));
  EXPECT_TRUE(found.sound());
  EXPECT_EQ(found.jobs[0].records, 4U);

  ASSERT_TRUE(restore_store(path("backup"), path("again"), error_)) << error_;
  EXPECT_TRUE(check(path("again")).sound());
  auto store = open(path("again"));
  std::vector<RecoveredJob> jobs;
  EXPECT_TRUE(store->load(jobs, error_)) << error_;
  EXPECT_EQ(jobs.size(), 2U);
  EXPECT_FALSE(fs::exists(path("again.restoring")));
}

TEST_F(Maintenance, ABackupGoesWhereNothingIs) {
  fs::create_directory(path("there"));
  EXPECT_FALSE(backup_store(dir_.store(), path("there"), error_));
  EXPECT_THAT(error_, HasSubstr(path("there")));
  EXPECT_THAT(error_, HasSubstr("not there yet"));
  EXPECT_FALSE(backup_store(dir_.store(), dir_.store() + "/copy", error_));
  EXPECT_THAT(error_, HasSubstr("within the store itself"));
  EXPECT_FALSE(std::filesystem::exists(dir_.store() + "/copy"));
  EXPECT_FALSE(backup_store(path("nothing"), path("backup"), error_));
  EXPECT_THAT(error_, HasSubstr("there is no store in " + path("nothing")));
  EXPECT_FALSE(fs::exists(path("nothing"))) << "looking for a store makes none";
}

TEST_F(Maintenance, AStoreInUseIsNotTouched) {
  auto store = open(dir_.store());
  EXPECT_FALSE(backup_store(dir_.store(), path("backup"), error_));
  EXPECT_THAT(error_, HasSubstr("in use by another process"));
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  EXPECT_FALSE(compact_store(dir_.store(), before, after, error_));
  EXPECT_THAT(error_, HasSubstr("in use by another process"));
}

TEST_F(Maintenance, NothingIsRestoredOverSomethingOrFromADamagedBackup) {
  ASSERT_TRUE(backup_store(dir_.store(), path("backup"), error_)) << error_;
  EXPECT_FALSE(restore_store(path("backup"), dir_.store(), error_));
  EXPECT_THAT(error_, HasSubstr("not empty"));
  tamper(path("backup"), "records", key_of(1, 3), nullptr);
  EXPECT_FALSE(restore_store(path("backup"), path("again"), error_));
  EXPECT_THAT(error_, HasSubstr("is damaged"));
  EXPECT_FALSE(fs::exists(path("again")));
}

TEST_F(Maintenance, ARestoreThatHasNoRoomSaysSo) {
  ASSERT_TRUE(backup_store(dir_.store(), path("backup"), error_)) << error_;
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const bool restored = restore_store(path("backup"), path("again"), error_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_FALSE(restored);
  EXPECT_THAT(error_,
              HasSubstr("cannot be copied to " + path("again.restoring") + ": File too large"));
  EXPECT_FALSE(fs::exists(path("again.restoring")));
}

// Each file's, then the directories'.
TEST_F(Maintenance, ARestoreThatTheDiskDidNotTakeIsNoSuccess) {
  ASSERT_TRUE(backup_store(dir_.store(), path("backup"), error_)) << error_;
  int failures = 0;
  for (int before = 0;; ++before) {
    calls().fsyncs_before_failure = before;
    const bool restored = restore_store(path("backup"), path("again"), error_);
    const bool failed = calls().fsyncs_before_failure < 0;
    calls().fsyncs_before_failure = -1;
    ASSERT_EQ(restored, !failed) << "after " << before << " that succeeded";
    if (restored) break;
    ++failures;
    EXPECT_THAT(error_, AllOf(HasSubstr(path("again")), HasSubstr("Input/output error")));
    EXPECT_FALSE(fs::exists(path("again.restoring")));
    // There it is whole.
    if (fs::exists(path("again"))) {
      EXPECT_TRUE(check(path("again")).sound());
      EXPECT_THAT(error_, HasSubstr("not yet safe"));
      fs::remove_all(path("again"));
    }
  }
  EXPECT_GE(failures, 5) << "files and two directories";
  EXPECT_EQ(check(path("again")).jobs.size(), 2U);
}

TEST_F(Maintenance, NobodyElseCanLookIntoACopyWhileItIsMade) {
  const mode_t before = umask(0);
  calls().made.clear();
  const bool made = backup_store(dir_.store(), path("backup"), error_);
  umask(before);
  ASSERT_TRUE(made) << error_;
  EXPECT_EQ(fs::status(path("backup")).permissions(), fs::perms::owner_all);
  const std::lock_guard lock(calls().mutex);
  ASSERT_FALSE(calls().made.empty());
  for (const Calls::Made& one : calls().made) {
    EXPECT_EQ(one.parent & 077, 0U) << one.path << " can be entered by others";
  }
  for (const auto& entry : fs::directory_iterator(dir_.path())) {
    EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("store", "backup"));
  }
}

TEST_F(Maintenance, CompactingKeepsEverything) {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
  ASSERT_TRUE(compact_store(dir_.store(), before, after, error_)) << error_;
  EXPECT_GT(before, 0U);
  EXPECT_GT(after, 0U);
  EXPECT_TRUE(check(dir_.store()).sound());
  EXPECT_EQ(check(dir_.store()).jobs[0].records, 4U);
}

}  // namespace
}  // namespace syncd::store
