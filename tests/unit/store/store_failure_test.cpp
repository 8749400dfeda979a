// Disks that refuse: the store tells, keeps what it was given, and goes on when it can.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <exception>

#include "proto/base/check.h"
#include "tests/unit/store/samples.h"
#include "tests/unit/store/store_fixture.h"

namespace syncd::store {
namespace {

using ::testing::HasSubstr;

// While it lives, no file of this process can grow beyond a few kilobytes: to the store that is a
// full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t file_bytes_max = 4096) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit full = before_;
    full.rlim_cur = file_bytes_max;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  }
  ~FullDisk() { end(); }
  void end() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before_), 0); }

 private:
  rlimit before_{};
};

// A record that no full disk takes.
Record large_push(Sequence sequence) {
  Record record = push(1, sequence);
  record.reason.assign(8192, 'x');
  return record;
}

class FullDiskTest : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    store_ = open(dir_.store(), GetParam());
    store_->start(reports_.callback());
    ASSERT_TRUE(store_->submit(1, batch_of({creation(1), push(1, 2)})));
    ASSERT_TRUE(reports_.wait_for(1));
  }
  // Waits for a report that says what is wrong.
  std::string wait_for_error() {
    EXPECT_TRUE(reports_.wait_until([](const CommitReport& last) { return !last.error.empty(); }));
    return reports_.all().back().error;
  }

  TempDir dir_;
  Reports reports_;
  std::unique_ptr<Store> store_;
};

TEST_P(FullDiskTest, IsToldAndEverythingIsWrittenWhenThereIsRoom) {
  FullDisk disk;
  ASSERT_TRUE(store_->submit(2, batch_of({large_push(3)})));
  const std::string problem = wait_for_error();
  EXPECT_THAT(problem, HasSubstr("store " + dir_.store() + " cannot be written: "));
  EXPECT_THAT(problem, HasSubstr("File too large"));
  EXPECT_EQ(reports_.all().back().committed, 1u) << "nothing is acknowledged that is not there";

  // Meanwhile more is taken, and what was there before can be read.
  for (Ticket t = 3; t <= 20; ++t) ASSERT_TRUE(store_->submit(t, batch_of({large_push(t + 1)})));
  ReadResult page;
  std::string error;
  ASSERT_TRUE(store_->read(1, 1, 2, 1 << 20, page, error)) << error;
  EXPECT_EQ(page.records.size(), 2u);

  disk.end();
  ASSERT_TRUE(reports_.wait_for(20));
  EXPECT_EQ(reports_.all().back().error, "");
  EXPECT_EQ(sequences(*store_, 1).size(), 21u);
  EXPECT_TRUE(store_->close(30'000'000, error)) << error;

  store_.reset();
  store_ = open(dir_.store());
  std::vector<RecoveredJob> jobs;
  ASSERT_TRUE(store_->load(jobs, error)) << error;
  ASSERT_EQ(jobs.size(), 1u);
  ASSERT_EQ(jobs[0].records.size(), 21u);
  EXPECT_EQ(jobs[0].records.back(), large_push(21));
}

TEST_P(FullDiskTest, HappensAgainAndAgain) {
  Ticket ticket = 1;
  for (int round = 0; round < 4; ++round) {
    FullDisk disk;
    ++ticket;
    ASSERT_TRUE(store_->submit(ticket, batch_of({large_push(ticket + 1)})));
    wait_for_error();
    disk.end();
    ASSERT_TRUE(reports_.wait_for(ticket)) << "round " << round;
  }
  EXPECT_EQ(sequences(*store_, 1).size(), ticket + 1);
}

TEST_P(FullDiskTest, ClosingSaysHowMuchCouldNotBeWritten) {
  FullDisk disk;
  ASSERT_TRUE(store_->submit(2, batch_of({large_push(3), large_push(4)})));
  ASSERT_TRUE(store_->submit(3, batch_of({large_push(5)})));
  wait_for_error();
  std::string error;
  EXPECT_FALSE(store_->close(1000, error));
  EXPECT_THAT(error, HasSubstr("store " + dir_.store() + ": 3 records could not be written"));
  EXPECT_THAT(error, HasSubstr("File too large"));
  store_.reset();
  disk.end();

  // What was not acknowledged may be there or not, but only as whole batches.
  store_ = open(dir_.store());
  std::vector<RecoveredJob> jobs;
  ASSERT_TRUE(store_->load(jobs, error)) << error;
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_THAT(jobs[0].records.size(), ::testing::AnyOf(2u, 4u, 5u));
}

INSTANTIATE_TEST_SUITE_P(Modes, FullDiskTest, ::testing::Values(Mode::kDurable, Mode::kFast),
                         [](const auto& mode) {
                           return std::string(mode.param == Mode::kDurable ? "durable" : "fast");
                         });

TEST(StoreFailure, AFullDiskAtTheStartNamesThePathAndTheCause) {
  TempDir dir;
  ASSERT_NE(open(dir.store()), nullptr);
  FullDisk disk(1);
  Options options;
  options.path = dir.store();
  std::string error;
  const auto store = open_rocks_store(options, error);
  disk.end();
  EXPECT_EQ(store, nullptr);
  EXPECT_THAT(error, HasSubstr(dir.store()));
  EXPECT_THAT(error, HasSubstr("File too large"));
}

// Opens a store as a user without rights (the superuser has them all) and returns the error.
bool others_may_enter_root() {
  struct stat root {};
  return stat("/", &root) == 0 && (root.st_mode & S_IXOTH) != 0;
}

std::string error_without_rights(const std::string& path) {
  int told[2];
  EXPECT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);
    Options options;
    options.path = path;
    std::string error;
    const bool opened = open_rocks_store(options, error) != nullptr;
    if (opened) error = "it was opened";
    _exit(write(told[1], error.data(), error.size()) < 0 ? 3 : 0);
  }
  ::close(told[1]);
  std::string error(4096, '\0');
  const ssize_t got = read(told[0], error.data(), error.size());
  error.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  ::close(told[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return error;
}

TEST(StoreFailure, ADirectoryThatMayNotBeWrittenIsNotCalledInUse) {
  if (!others_may_enter_root())
    GTEST_SKIP() << "only root may enter / here: another user finds no directory";
  TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0755), 0);
  ASSERT_EQ(mkdir(dir.store().c_str(), 0555), 0);
  EXPECT_EQ(error_without_rights(dir.store()),
            "store " + dir.store() +
                " cannot be written: Permission denied: give this user the right to write there, "
                "or name another directory");
}

TEST(StoreFailure, AParentThatMayNotBeWrittenIsNamed) {
  TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0555), 0);
  EXPECT_EQ(error_without_rights(dir.store()),
            "store " + dir.store() +
                " cannot be made: Permission denied: its parent must be an existing, writable "
                "directory");
}

TEST(StoreFailure, AnEmptyPathIsRefused) {
  std::string error;
  EXPECT_EQ(open_rocks_store({}, error), nullptr);
  EXPECT_THAT(error, HasSubstr("path is empty"));
}

// The writer's own thread may not end the process.
TEST(RocksStoreWriter, WhatItThrowsIsReportedAndEndsIt) {
  const TempDir dir;
  Options options;
  options.path = dir.store();
  options.retention_us = 1'000'000;
  options.now = []() -> Micros { throw InternalError("the clock has failed"); };
  std::string error;
  auto store = open_rocks_store(options, error);
  ASSERT_NE(store, nullptr) << error;
  std::vector<RecoveredJob> jobs;
  ASSERT_TRUE(store->load(jobs, error)) << error;
  Reports reports;
  store->start(reports.callback());
  ASSERT_TRUE(store->submit(1, batch_of({creation(1)})));
  ASSERT_TRUE(reports.wait_until([](const CommitReport& last) { return last.failure != nullptr; }));
  EXPECT_THROW(std::rethrow_exception(reports.all().back().failure), InternalError);
  EXPECT_FALSE(store->close(30'000'000, error)) << "which does not wait for what never comes";
}

}  // namespace
}  // namespace syncd::store
