// What an operator does about single workers, and what becomes of a second launch: with the real
// programs, their journals and the history.
#include <gmock/gmock.h>

#include <array>
#include <map>
#include <random>

#include "support/daemon.h"
#include "support/history.h"
#include "support/workers.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kForEver = 1'000'000'000;

// The last line of a worker's journal that tells of an error.
std::string error_of(const WorkerGroup& workers, int rank) {
  std::string error;
  for (const std::string& line : workers.journal(rank)) {
    if (line.starts_with("error ")) error = line;
  }
  return error;
}

class Operator : public ::testing::Test {
 protected:
  void expect_done(const Daemon& daemon, const std::vector<std::string>& arguments) {
    const RunResult result = syncctl(directory_, daemon, arguments);
    EXPECT_EQ(result.ending, exited(0)) << result.err;
  }

  void expect_progress(WorkerGroup& workers, std::size_t pushes = 100) {
    const std::size_t before = workers.acknowledged_by_all();
    wait_until("the others to go on",
               [&] { return workers.acknowledged_by_all() > before + pushes; });
  }

  void release() { write_file(release_, ""); }

  TempDir directory_;
  std::string release_ = directory_.file("release");
};

TEST_F(Operator, DrainsAWorkerWhichEndsInGoodOrderWhileTheOthersGoOn) {
  Daemon daemon(directory_);
  WorkerGroup workers(directory_, {.address = daemon.address(),
                                   .policy = "ssp:1",
                                   .workers = 4,
                                   .iterations = kForEver,
                                   .special = {{2, {{"hold_at", "5"}, {"hold_file", release_}}}}});
  workers.wait_for_line(2, "holding 5");
  expect_done(daemon, {"drain", "job", "2", "--reason", "new disk"});
  // It is in its iteration still, which the others wait for.
  const RunResult shown = syncctl(directory_, daemon, {"--json", "workers", "job"});
  EXPECT_THAT(shown.out, HasSubstr("\"state\": \"draining\""));
  release();
  wait_until("the drained worker to end", [&] { return !workers.process(2).running(); });
  EXPECT_EQ(workers.process(2).ending(), exited(0));
  EXPECT_TRUE(workers.has_line(2, "pushed 5"));
  EXPECT_TRUE(workers.has_line(2, "stopped"));
  EXPECT_TRUE(workers.has_line(2, "left"));
  expect_progress(workers);
  expect_done(daemon, {"job", "stop", "job"});
  workers.expect_all_finish();
  const History history = export_history(directory_, daemon, "job");
  expect_exactly_once(history, workers);
  ASSERT_EQ(history.of_kind("worker_draining").size(), 1U);
  const auto left = history.of_kind("worker_left");
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(number(left[0], "rank"), 2);
  EXPECT_THAT(left[0].at("reason"), HasSubstr("new disk"));
  EXPECT_TRUE(daemon.logged("action=drain_worker"));
}

// What an operator was told is done stays done if the daemon dies the next moment, and whoever was
// sent away may come back in a new process.
TEST_F(Operator, DrainsKicksAndLeasesUnderLoadWhileTheDaemonDies) {
  constexpr int kWorkers = 8;
  constexpr std::size_t kRounds = 12;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Daemon daemon(directory_, {.test_limits = {"limits.snapshot_every_records=200"}});
  WorkerGroup workers(directory_, {.address = daemon.address(),
                                   .policy = "ssp:3",
                                   .workers = kWorkers,
                                   .iterations = kForEver});
  std::map<std::string, std::size_t> done;
  for (std::size_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    expect_progress(workers, 40);
    const int rank = static_cast<int>(random() % kWorkers);
    const std::string name = std::to_string(rank);
    // Each in turn, and each with and without a death after it.
    const std::string what = std::array{"drain", "kick", "phase"}[round % 3];
    std::vector<std::string> command = {what, "job", name};
    if (what == "phase") command.insert(command.end(), {"evaluation", "--lease", "10m"});
    expect_done(daemon, command);
    ++done[what];
    if (random() % 2 == 0) {
      daemon.kill();
      daemon.start();
    }
    if (what == "phase") continue;
    wait_until("worker " + name + " to end", [&] { return !workers.process(rank).running(); });
    if (what == "drain") {
      EXPECT_EQ(workers.process(rank).ending(), exited(0)) << error_of(workers, rank);
    } else {
      EXPECT_EQ(workers.process(rank).ending(), exited(1));
      EXPECT_THAT(error_of(workers, rank), HasSubstr("SYNCD_E_FENCED"));
    }
    const std::size_t before = workers.acknowledged(rank).size();
    workers.restart(rank);
    wait_until("its successor to take part",
               [&] { return workers.acknowledged(rank).size() > before + 2; });
  }
  expect_done(daemon, {"job", "stop", "job"});
  workers.expect_all_finish();
  const History history = export_history(directory_, daemon, "job");
  expect_exactly_once(history, workers);
  // One that has no iteration in hand leaves at once.
  EXPECT_LE(history.of_kind("worker_draining").size(), done["drain"]);
  const auto left = history.of_kind("worker_left");
  EXPECT_EQ(left.size(), done["drain"]);
  for (const Row& row : left) EXPECT_THAT(row.at("reason"), HasSubstr("drained by an operator"));
  EXPECT_EQ(history.of_kind("worker_leased").size(), done["phase"]);
  const auto lost = history.of_kind("worker_lost");
  EXPECT_EQ(lost.size(), done["kick"]);
  for (const Row& row : lost) EXPECT_THAT(row.at("reason"), HasSubstr("kicked by an operator"));
  for (const char* action : {"drain_worker", "kick_worker", "lease_worker"}) {
    EXPECT_TRUE(daemon.logged(std::string("action=") + action)) << action;
  }
}

TEST_F(Operator, HearsWhatIsWrongWithARequestAboutAWorker) {
  Daemon daemon(directory_);
  const auto refusal = [&](const std::vector<std::string>& arguments, int code) {
    const RunResult result = syncctl(directory_, daemon, arguments);
    EXPECT_EQ(result.ending, exited(code)) << result.out << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({"drain", "job", "1"}, 1), HasSubstr("there is no job 'job'"));
  expect_done(daemon, {"job", "create", "job", "--workers", "2"});
  EXPECT_THAT(refusal({"kick", "job", "1"}, 1), HasSubstr("has no worker '1'"));
  EXPECT_THAT(refusal({"phase", "job", "1", "evaluation", "--lease", "soon"}, 2),
              HasSubstr("--lease soon"));
  EXPECT_THAT(refusal({"phase", "job", "1", "evaluation"}, 2), HasSubstr("--lease"));
}

TEST(SecondGroup, IsRefusedWhileTheFirstRunsAndMayComeAfterwards) {
  TempDir directory;
  TempDir other;
  Daemon daemon(directory);
  const std::string release = directory.file("release");
  const WorkerGroupOptions launch = {
      .address = daemon.address(), .policy = "ssp:1", .workers = 4, .iterations = 20};
  WorkerGroupOptions held = launch;
  held.special = {{0, {{"hold_at", "8"}, {"hold_file", release}}}};
  WorkerGroup first(directory, held);
  first.wait_for_line(0, "holding 8");
  {
    WorkerGroup second(other, launch);
    for (int rank = 0; rank < second.size(); ++rank) {
      EXPECT_EQ(second.process(rank).wait(), exited(1)) << rank;
      EXPECT_THAT(error_of(second, rank), HasSubstr("SYNCD_E_RANK_TAKEN"));
      EXPECT_THAT(error_of(second, rank), HasSubstr("a second group needs a job name of its own"));
    }
  }
  // One of another size, whose ranks would partly be free.
  TempDir third;
  WorkerGroupOptions larger = launch;
  larger.first_rank = 4;
  larger.world_size = 8;
  WorkerGroup large(third, larger);
  for (int rank = 4; rank < 8; ++rank) {
    EXPECT_EQ(large.process(rank).wait(), exited(1)) << rank;
    EXPECT_THAT(error_of(large, rank), HasSubstr("is of a group of 8"));
  }
  write_file(release, "");
  first.expect_all_finish();
  const History undisturbed = export_history(directory, daemon, "job");
  expect_exactly_once(undisturbed, first);
  EXPECT_EQ(undisturbed.of_kind("worker_joined").size(), 4U);
  EXPECT_EQ(undisturbed.of_kind("push").size(), 4U * 20U);

  TempDir again;
  WorkerGroup second(again, launch);
  second.expect_all_finish();
  const History next = export_history(again, daemon, "job");
  expect_exactly_once(next, second);
  for (const Row& row : next.rows) EXPECT_EQ(number(row, "epoch"), 2);
}

}  // namespace
}  // namespace syncd::test
