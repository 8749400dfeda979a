// The daemon dies without warning while workers push, and is started again on the same store: the
// jobs finish, nothing acknowledged is lost, and nothing counts twice.
#include <gmock/gmock.h>

#include <csignal>
#include <random>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"
#include "support/raw_client.h"
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

// The acknowledgement of a push is lost together with the daemon: the copy that is sent to the next
// one counts no more.
TEST_P(DaemonKilled, APushThatIsSentAgainAfterwardsCountsOnce) {
  Daemon daemon(directory_, {.mode = mode()});
  wire::Join join = join_of("job", 0, 1, policy());
  {
    RawClient client(daemon.address());
    client.hello();
    RawWorker worker(client, join);
    worker.begin(0);
    EXPECT_FALSE(worker.push(0).duplicate);
    join.incarnation = worker.ref().incarnation;
    join.granted = 0;  // ... and join.pushed stays at none
  }
  daemon.kill();
  daemon.start();
  RawClient client(daemon.address());
  client.hello();
  RawWorker worker(client, join);
  EXPECT_TRUE(worker.joined().resumed);
  EXPECT_TRUE(worker.push(0).duplicate);
  worker.begin(1);
  EXPECT_FALSE(worker.push(1).duplicate);
  EXPECT_EQ(export_history(directory_, daemon, "job").pushes(0), (std::vector<std::int64_t>{0, 1}));
}

// Beyond reconnect_timeout callers are told; the call that they make again once the daemon is back
// goes on where the failed one was.
TEST_P(DaemonKilled, ForLongerThanTheReconnectTimeoutIsTheCallersBusiness) {
  Daemon daemon(directory_, {.mode = mode()});
  ApiClient client(daemon.address(), {.reconnect_ms = 300});
  ApiWorker worker = client.join({.policy = policy(), .rank = 0});
  ASSERT_TRUE(worker.iterate(2).ok());
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_TRUE(worker.begin(step).ok());
  daemon.kill();
  Answer answer = worker.push(2);
  EXPECT_EQ(answer.status, SYNCD_E_UNREACHABLE) << answer.text();
  EXPECT_TRUE(answer.retriable);
  EXPECT_FALSE(answer.fatal);
  EXPECT_THAT(answer.message, ::testing::HasSubstr(daemon.socket_path()));
  daemon.start();
  wait_until("the same push to be taken", [&] {
    answer = worker.push(2);
    return answer.status != SYNCD_E_UNREACHABLE;
  });
  EXPECT_TRUE(answer.ok()) << answer.text();
  EXPECT_TRUE(worker.iterate(2).ok());
  EXPECT_TRUE(worker.leave().ok());
  EXPECT_EQ(export_history(directory_, daemon, "job").pushes(0),
            (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
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
