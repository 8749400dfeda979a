// The store of a real daemon: disks that are full, damage, copies made while it works, and history
// that is not kept for ever.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"
#include "support/pushers.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// No file of the daemon can grow beyond so many bytes: to its store that is a full disk.
void limit_files(const Daemon& daemon, rlim_t bytes) {
  rlimit limit{};
  ASSERT_EQ(prlimit(daemon.pid(), RLIMIT_FSIZE, nullptr, &limit), 0);
  limit.rlim_cur = bytes;
  ASSERT_EQ(prlimit(daemon.pid(), RLIMIT_FSIZE, &limit, nullptr), 0);
}

// The file of the store's log that has something in it; empty: there is none.
std::string log_with_commits(const Daemon& daemon) {
  std::string log;
  for (const auto& entry : fs::directory_iterator(daemon.store_path())) {
    if (entry.path().extension() == ".log" && entry.file_size() > 0) log = entry.path();
  }
  return log;
}

TEST(Store, AFullDiskRefusesPushesAndRecovers) {
  TempDir directory;
  Daemon daemon(directory);
  RawClient client = greeted(daemon.address());
  RawClient watcher = greeted(daemon.address());
  RawWorker worker(client, join_of("job", 0, 1, "asp"));
  const auto status = [&] { return watcher.call_for<wire::StatusReply>(wire::StatusRequest{}); };
  EXPECT_EQ(status().store_error, "");
  EXPECT_EQ(status().store_error_since_us, -1);

  RawClient other = greeted(daemon.address());
  RawWorker victim(other, join_of("other", 0, 1, "asp"));
  victim.begin(0);
  limit_files(daemon, 32 * 1024);
  for (std::int64_t iteration = 0; iteration < 500; ++iteration) {
    client.send(wire::Begin{worker.ref(), iteration});
    client.send(worker.push_body(iteration));
  }
  wait_until("the daemon to say so", [&] { return status().read_only; });
  const wire::StatusReply full = status();
  EXPECT_THAT(full.store_error, HasSubstr("File too large"));
  EXPECT_GT(full.store_error_since_us, 0);
  EXPECT_GT(full.commit_failures, 0U);

  const auto refused = RawClient::as<wire::Error>(other.call(victim.push_body(0)));
  EXPECT_EQ(refused.status, Status::kStore);
  EXPECT_EQ(watcher.call_for<wire::JobsReply>(wire::JobsRequest{}).jobs.size(), 2U);

  limit_files(daemon, RLIM_INFINITY);
  wait_until("the daemon to write again", [&] { return !status().read_only; });
  EXPECT_EQ(status().store_error, "");
  EXPECT_EQ(status().store_error_since_us, -1);
  EXPECT_GE(status().commit_failures, full.commit_failures);
  victim.push(0);
  const std::string log = daemon.log();
  std::size_t lines = 0;
  for (const std::string& line : lines_of(log)) {
    if (line.find("store_not_writable") != std::string::npos) ++lines;
  }
  EXPECT_EQ(lines, 1U) << "one line for one change";
}

TEST(Store, ACopyOfABusyDaemonsStoreIsSoundAndStarts) {
  TempDir directory;
  Daemon daemon(directory);
  std::size_t before = 0;
  const std::string copy = directory.file("copy");
  {
    Pushers pushers({.address = daemon.address(), .policy = "asp", .clients = 4});
    pushers.await(50);
    before = pushers.acknowledged();
    const RunResult made = syncctl(directory, daemon, {"store", "backup", copy});
    EXPECT_EQ(made.ending, exited(0)) << made.err;
    const RunResult live = syncctl(directory, daemon, {"store", "check", daemon.store_path()});
    EXPECT_EQ(live.ending, exited(0)) << live.out << live.err;
    pushers.await(50);
  }
  EXPECT_TRUE(daemon.logged("action=copy_store path=" + copy));
  const RunResult again = syncctl(directory, daemon, {"store", "backup", copy});
  EXPECT_TRUE(ended(again, 1, "not there yet"));
  const RunResult relative = syncctl(directory, daemon, {"store", "backup", "copy-2"});
  EXPECT_TRUE(ended(relative, 1, "absolute"));

  const std::string restored = directory.file("restored");
  EXPECT_EQ(syncctl(directory, daemon, {"store", "check", copy}).ending, exited(0));
  EXPECT_EQ(syncctl(directory, daemon, {"store", "restore", copy, restored}).ending, exited(0));
  const std::string offline = directory.file("offline");
  EXPECT_EQ(syncctl(directory, daemon, {"store", "backup", offline, "--store", restored}).ending,
            exited(0));
  Daemon second(directory, {.name = "second", .store = offline});
  const History history = export_history(directory, second, "job");
  EXPECT_GE(history.of_kind("push").size(), before);
}

// Nobody may believe to have a backup, and throw the one before away, where there is none.
TEST(Store, ACopyOfADamagedStoreIsNotCalledABackup) {
  TempDir directory;
  Daemon daemon(directory);
  {
    Pushers pushers({.address = daemon.address(), .policy = "asp", .clients = 1});
    pushers.await(200);
  }
  EXPECT_EQ(daemon.stop(), exited(0));
  const auto store = [&](const char* command, const std::string& to) {
    return syncctl(directory, daemon, {"store", command, to, "--store", daemon.store_path()});
  };
  const std::string good = directory.file("good");
  const RunResult made = store("backup", good);  // which puts the log into table files
  EXPECT_EQ(made.ending, exited(0)) << made.err;
  EXPECT_THAT(made.out, HasSubstr("read all of the copy"));
  fs::path largest;
  for (const auto& entry : fs::directory_iterator(daemon.store_path())) {
    const bool larger = largest.empty() || entry.file_size() > fs::file_size(largest);
    if (entry.path().extension() == ".sst" && larger) largest = entry.path();
  }
  ASSERT_FALSE(largest.empty());
  std::string bytes = read_file(largest);
  bytes[bytes.size() / 3] ^= 1;
  fs::remove(largest);  // `good` has a name of its own for the same file
  write_file(largest, bytes);

  const std::string bad = directory.file("bad");
  const RunResult refused = store("backup", bad);
  EXPECT_EQ(refused.ending, exited(4));
  EXPECT_THAT(refused.err, AllOf(HasSubstr(bad + " is damaged"), HasSubstr(daemon.store_path())));
  EXPECT_EQ(syncctl(directory, daemon, {"store", "check", good}).ending, exited(0));
}

TEST(Store, OldHistoryIsRemovedAndTheRestIsServedAndStartsAgain) {
  TempDir directory;
  Daemon daemon(directory, {.mode = "fast",
                            .config = "[store]\nretention_bytes = 20000\n",
                            .test_limits = {"limits.snapshot_every_records=100"}});
  ApiClient client(daemon.address());
  ApiWorker worker = client.join({.policy = "asp", .rank = 0});
  ASSERT_TRUE(worker.iterate(2000).ok());
  wait_until("history to be removed", [&] { return daemon.logged("history_removed"); });
  const History history = export_history(directory, daemon, "job");
  ASSERT_FALSE(history.rows.empty());
  EXPECT_GT(number(history.rows.front(), "sequence"), 100);
  EXPECT_EQ(number(history.rows.back(), "iteration"), 1999);
  RawClient raw = greeted(daemon.address());
  EXPECT_GT(raw.call_for<wire::StatusReply>(wire::StatusRequest{}).records_removed, 100U);
  const auto page = raw.call_for<wire::HistoryReply>(wire::HistoryRequest{"job", 1, 1, 0});
  EXPECT_EQ(page.first_sequence, page.records.at(0).sequence);
  EXPECT_THAT(syncctl(directory, daemon, {"history", "job", "--limit", "1"}).err,
              HasSubstr("the history begins with record"));

  daemon.kill();
  EXPECT_EQ(syncctl(directory, daemon, {"store", "check", daemon.store_path()}).ending, exited(0));
  daemon.start();
  EXPECT_TRUE(worker.iterate(10).ok());
}

// Its job is gone from the store, and a later launch goes on all the same.
TEST(Store, ACheckpointIsFoundAfterRetentionHasRemovedItsJob) {
  TempDir directory;
  Daemon daemon(directory, {.config = "[store]\nretention = \"1s\"\n"});
  {
    RawClient client = greeted(daemon.address());
    wire::Join join = join_of("job", 0, 1, "bsp");
    join.notices = wire::kNoticeCheckpoint;
    RawWorker worker(client, join);
    worker.begin(0);
    ASSERT_EQ(client.call_for<wire::CheckpointAsked>(wire::OrderCheckpoint{"job", ""}).number, 1U);
    worker.push(0);
    ASSERT_EQ(worker.begin(1).checkpoint, 1U);
    client.call_for<wire::Ok>(wire::Checkpointed{worker.ref(), 1, 0, 1, "/c/1"});
    client.call_for<wire::Ok>(wire::StopJobRequest{"job", ""});
    // The latest job stays.
    client.call_for<wire::Ok>(wire::CreateJobRequest{"other", "bsp", 1, 0});
  }
  wait_until("the job to be removed", [&] { return daemon.logged("job_removed"); });
  EXPECT_TRUE(daemon.logged("keeps_checkpoint=1"));
  for (const bool has_job : {false, true}) {
    daemon.kill();
    EXPECT_EQ(syncctl(directory, daemon, {"store", "check", daemon.store_path()}).ending,
              exited(0));
    daemon.start();
    RawClient client = greeted(daemon.address());
    const auto jobs = client.call_for<wire::JobsReply>(wire::JobsRequest{}).jobs;
    EXPECT_EQ(jobs.size(), has_job ? 2U : 1U);
    const auto found =
        client.call_for<wire::LatestCheckpointReply>(wire::LatestCheckpoint{"job", 0});
    EXPECT_EQ(found.number, 1U);
    ASSERT_EQ(found.saved.size(), 1U);
    EXPECT_EQ(found.saved[0].location, "/c/1");
    if (!has_job) client.call_for<wire::Ok>(wire::CreateJobRequest{"job", "bsp", 1, 0});
  }
}

TEST(Store, ADamagedStoreIsRefusedAndSalvagedOnDemand) {
  TempDir directory;
  Daemon daemon(directory);
  {
    ApiClient client(daemon.address());
    ApiWorker worker = client.join({.policy = "asp", .rank = 0});
    ASSERT_TRUE(worker.iterate(200).ok());
  }
  daemon.kill();
  const std::string log = log_with_commits(daemon);
  ASSERT_NE(log, "");
  {
    std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(log) / 2));
    file << "damage";
  }
  Command command = daemon.command();
  const RunResult refused = run(command.argv, directory.path(), command.environment);
  EXPECT_EQ(refused.ending, exited(3));
  EXPECT_THAT(refused.out + refused.err,
              AllOf(HasSubstr("is damaged"), HasSubstr("--store-salvage")));

  Daemon salvaged(directory,
                  {.name = "salvaged", .store = daemon.store_path(), .flags = {"--store-salvage"}});
  EXPECT_TRUE(salvaged.logged("store_dropped job=job"));
  EXPECT_TRUE(salvaged.logged("records_dropped="));
  EXPECT_TRUE(fs::exists(daemon.store_path() + ".damaged"));
  const History history = export_history(directory, salvaged, "job");
  EXPECT_GT(history.of_kind("push").size(), 10U);
  EXPECT_LT(history.of_kind("push").size(), 200U);
  // The worker's process has more than the daemon remembers, and goes on.
  ApiClient client(salvaged.address());
  ApiWorker worker = client.join({.policy = "asp", .rank = 0});
  EXPECT_TRUE(worker.iterate(5).ok());
}

// Nothing was lost when it was stopped, so that nothing may be dropped without a word afterwards.
TEST(Store, DamageAfterAGoodEndAndAStoreThatWasMovedAwayAreRefused) {
  TempDir directory;
  Daemon daemon(directory);
  {
    ApiClient client(daemon.address());
    ApiWorker worker = client.join({.policy = "asp", .rank = 0});
    ASSERT_TRUE(worker.iterate(20).ok());
  }
  EXPECT_EQ(daemon.stop(), exited(0));
  const std::string log = log_with_commits(daemon);
  ASSERT_NE(log, "");
  fs::resize_file(log, fs::file_size(log) - 3);
  Command command = daemon.command();
  RunResult refused = run(command.argv, directory.path(), command.environment);
  EXPECT_EQ(refused.ending, exited(3));
  EXPECT_THAT(refused.out + refused.err,
              AllOf(HasSubstr("closed in good order"), HasSubstr("--store-salvage")));

  fs::rename(daemon.store_path(), daemon.store_path() + ".damaged");
  for (int i = 0; i < 2; ++i) {
    refused = run(command.argv, directory.path(), command.environment);
    EXPECT_EQ(refused.ending, exited(3));
    EXPECT_THAT(refused.out + refused.err, HasSubstr("which a salvage has moved away"));
    EXPECT_FALSE(fs::exists(daemon.store_path()));
    command.argv.push_back("--store-salvage");
  }
}

}  // namespace
}  // namespace syncd::test
