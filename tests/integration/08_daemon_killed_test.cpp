// The daemon dies without warning while workers push, and is started again on the same store: the
// jobs finish, nothing acknowledged is lost, and nothing counts twice.
#include <gmock/gmock.h>

#include <csignal>
#include <random>

#include "support/daemon.h"
#include "support/history.h"
#include "support/workers.h"

namespace syncd::test {
namespace {

class DaemonKilled : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  std::string mode() const { return std::get<0>(GetParam()); }
  std::string policy() const { return std::get<1>(GetParam()); }

  void expect_complete(const Daemon& daemon, const WorkerGroup& workers) {
    const History history = export_history(directory_, daemon, "job");
    expect_exactly_once(history, workers);
    const auto all = static_cast<std::size_t>(workers.size() * workers.options().iterations);
    EXPECT_EQ(workers.acknowledged_by_all(), all);
    EXPECT_EQ(history.of_kind("push").size(), all);
    EXPECT_TRUE(history.of_kind("worker_lost").empty());
  }

  TempDir directory_;
};

TEST_P(DaemonKilled, AtRandomMomentsUnderSixteenWorkers) {
  constexpr int kKills = 6;
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  // Snapshots often, so that a kill may come in the middle of one, and recovery begins from them.
  Daemon daemon(directory_, {.mode = mode(), .config = "[limits]\nsnapshot_every_records = 100\n"});
  WorkerGroup workers(
      directory_,
      {.address = daemon.address(), .policy = policy(), .iterations = 40, .iteration_ms = 3});
  // A moment is a number of acknowledged pushes, so that each kill finds the job at work.
  const std::size_t all = 16 * 40;
  for (int kill = 1; kill <= kKills; ++kill) {
    const std::size_t step = all * 9 / 10 / kKills;
    const std::size_t moment = step * static_cast<std::size_t>(kill - 1) + random() % step;
    wait_until("push " + std::to_string(moment),
               [&] { return workers.acknowledged_by_all() >= moment; });
    daemon.kill();
    if (random() % 2 == 0) {
      // Again while it recovers, or just after.
      daemon.launch();
      const Deadline soon(Milliseconds(random() % 200));
      wait_until("some moment of its start", [&] { return soon.passed(); });
      daemon.kill();
    }
    daemon.start();
  }
  workers.expect_all_finish();
  expect_complete(daemon, workers);
}

INSTANTIATE_TEST_SUITE_P(Modes, DaemonKilled,
                         ::testing::Combine(::testing::Values("durable", "fast"),
                                            ::testing::Values("bsp", "ssp:3")),
                         [](const auto& made) {
                           return std::get<0>(made.param) + "_" +
                                  std::get<1>(made.param).substr(0, 3);
                         });

TEST(DaemonKilledAtABarrier, TheBarrierCompletesAfterwards) {
  TempDir directory;
  Daemon daemon(directory);
  const std::string release = directory.file("release");
  WorkerGroup workers(directory, {.address = daemon.address(),
                                  .policy = "bsp",
                                  .workers = 8,
                                  .iterations = 6,
                                  .special = {{0, {{"hold_at", "3"}, {"hold_file", release}}}}});
  for (int rank = 1; rank < 8; ++rank) workers.wait_for_line(rank, "pushed 3");
  daemon.kill();
  daemon.start();
  EXPECT_FALSE(workers.has_line(1, "granted 4"));
  write_file(release, "");
  workers.expect_all_finish();
  const History history = export_history(directory, daemon, "job");
  expect_exactly_once(history, workers);
  EXPECT_EQ(history.of_kind("push").size(), 8U * 6U);
}

TEST(DaemonKilledBeforeTheStart, TheJobStartsWhenTheLastWorkerHasCome) {
  TempDir directory;
  Daemon daemon(directory);
  const WorkerGroupOptions first = {.address = daemon.address(),
                                    .policy = "ssp:1",
                                    .workers = 7,
                                    .world_size = 8,
                                    .iterations = 10};
  WorkerGroup early(directory, first);
  for (int rank = 0; rank < 7; ++rank) early.wait_for_line(rank, "joined");
  daemon.kill();
  daemon.start();
  EXPECT_FALSE(early.has_line(0, "granted"));
  WorkerGroupOptions last = first;
  last.workers = 1;
  last.first_rank = 7;
  WorkerGroup late(directory, last);
  early.expect_all_finish();
  late.expect_all_finish();
  const History history = export_history(directory, daemon, "job");
  expect_exactly_once(history, early);
  EXPECT_EQ(history.of_kind("push").size(), 8U * 10U);
}

// One that was asked to stop in good order comes back just the same.
TEST(DaemonRestarted, WorkersThatAreBlockedInBeginGoOn) {
  TempDir directory;
  Daemon daemon(directory);
  const std::string release = directory.file("release");
  WorkerGroup workers(directory, {.address = daemon.address(),
                                  .policy = "bsp",
                                  .workers = 4,
                                  .iterations = 6,
                                  .special = {{0, {{"hold_at", "3"}, {"hold_file", release}}}}});
  for (int rank = 1; rank < 4; ++rank) workers.wait_for_line(rank, "pushed 3");
  EXPECT_EQ(daemon.stop(), exited(0));
  daemon.start();
  write_file(release, "");
  workers.expect_all_finish();
  const History history = export_history(directory, daemon, "job");
  expect_exactly_once(history, workers);
  EXPECT_EQ(history.of_kind("push").size(), 4U * 6U);
}

}  // namespace
}  // namespace syncd::test
