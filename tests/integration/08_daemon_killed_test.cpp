// The daemon dies without warning while workers push, and is started again on the same store: the
// jobs finish, nothing acknowledged is lost, and nothing counts twice.
#include <gmock/gmock.h>

#include <random>

#include "support/c_api.h"
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
  Daemon daemon(directory_, {.mode = mode(), .test_limits = {"limits.snapshot_every_records=100"}});
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

}  // namespace
}  // namespace syncd::test
