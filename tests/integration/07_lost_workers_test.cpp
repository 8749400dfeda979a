// Workers that die or are suspended in the middle of an iteration: the others go on, the history
// says who was lost and why, and one that comes back takes part again. When exactly is in
// tests/golden/engine (leave_and_loss, slow_worker, phase, recovery) and tests/simulation.
#include <gmock/gmock.h>

#include <csignal>

#include "support/daemon.h"
#include "support/history.h"
#include "support/workers.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kVictim = 5;

// Sixteen workers, of which the victim stays in its iteration 4 until it is released.
class LostWorker : public ::testing::Test {
 protected:
  WorkerGroup with_victim(const std::string& policy, std::int64_t iterations) {
    WorkerGroup workers(directory_,
                        {.address = daemon_.address(),
                         .policy = policy,
                         .iterations = iterations,
                         .special = {{kVictim, {{"hold_at", "4"}, {"hold_file", release_}}}}});
    workers.wait_for_line(kVictim, "holding 4");
    return workers;
  }

  // Of the one record of a loss, which is the victim's.
  static std::string reason_of_loss(const History& history) {
    const auto lost = history.of_kind("worker_lost");
    EXPECT_EQ(lost.size(), 1U);
    if (lost.empty()) return {};
    EXPECT_EQ(number(lost[0], "rank"), kVictim);
    return lost[0].at("reason");
  }

  TempDir directory_;
  std::string release_ = directory_.file("release");
  Daemon daemon_{directory_, {.config = R"(
[timeouts]
heartbeat_timeout = "3s"
worker_grace = "500ms"
)"}};
};

TEST_F(LostWorker, OneThatIsKilledIsLostAfterItsGraceAndTheOthersFinish) {
  WorkerGroup workers = with_victim("bsp", 20);
  workers.process(kVictim).kill();
  workers.expect_all_finish({kVictim});

  const History history = export_history(directory_, daemon_, "job");
  expect_exactly_once(history, workers);
  EXPECT_EQ(history.pushes(kVictim), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(history.of_kind("push").size(), 15U * 20U + 4U);
  EXPECT_THAT(reason_of_loss(history),
              AllOf(HasSubstr("its connection closed"), HasSubstr("worker_grace is 500 ms")));
  EXPECT_TRUE(daemon_.logged("worker_lost"));
}

// The heartbeats of a suspended process stop, too.
TEST_F(LostWorker, OneThatIsSuspendedIsDisconnectedByItsHeartbeatsAndTakenBack) {
  WorkerGroup workers = with_victim("ssp:3", 1'000'000);
  workers.process(kVictim).signal(SIGSTOP);
  wait_until("the loss", [&] { return daemon_.logged("worker_lost"); });
  const std::size_t before = workers.acknowledged_by_all();
  wait_until("the others to go on", [&] { return workers.acknowledged_by_all() > before + 150; });
  EXPECT_FALSE(workers.has_line(kVictim, "pushed 4"));

  write_file(release_, "");
  workers.process(kVictim).signal(SIGCONT);
  wait_until("the victim to take part again", [&] {
    return workers.acknowledged(kVictim).size() > 10 || !workers.process(kVictim).running();
  });
  const RunResult stopped = syncctl(directory_, daemon_, {"job", "stop", "job"});
  EXPECT_EQ(stopped.ending, exited(0)) << stopped.err;
  workers.expect_all_finish();
  const History history = export_history(directory_, daemon_, "job");
  expect_exactly_once(history, workers);
  EXPECT_THAT(reason_of_loss(history), HasSubstr("disconnected for"));
  // It went on where the others were, instead of making them wait for what it had missed.
  const auto iterations = workers.acknowledged(kVictim);
  EXPECT_GT(iterations.back(), static_cast<std::int64_t>(iterations.size()));
}

}  // namespace
}  // namespace syncd::test
