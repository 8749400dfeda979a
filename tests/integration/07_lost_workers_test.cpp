// Workers that die or are suspended in the middle of an iteration: the others go on, the history
// says who was lost and why, and one that comes back takes part again.
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

struct Thresholds {
  std::string worker_grace;
  std::string evict_after;
  std::string heartbeat_timeout;
};

class LostWorker : public ::testing::TestWithParam<std::string> {
 protected:
  std::string config(const Thresholds& thresholds) const {
    return "[timeouts]\nheartbeat_timeout = \"" + thresholds.heartbeat_timeout +
           "\"\n[[job]]\nname = \"job\"\npolicy = \"" + GetParam() +
           "\"\nexpected_workers = 16\nworker_grace = \"" + thresholds.worker_grace +
           "\"\nwarn_after = \"1s\"\nevict_after = \"" + thresholds.evict_after + "\"\n";
  }

  // Sixteen workers, of which the victim stays in its iteration 4 until it is released.
  // With a lease it announces a phase of so many milliseconds then.
  WorkerGroupOptions with_victim(const Daemon& daemon, std::int64_t iterations,
                                 std::int64_t phase_ms = 0) const {
    return {
        .address = daemon.address(),
        .policy = GetParam(),
        .iterations = iterations,
        .special = {
            {kVictim,
             {{"hold_at", "4"}, {"hold_file", release_}, {"phase_ms", std::to_string(phase_ms)}}}}};
  }

  // The one record of a loss: the victim's.
  static std::string reason_of_loss(const History& history) {
    const auto lost = history.of_kind("worker_lost");
    EXPECT_EQ(lost.size(), 1U);
    if (lost.empty()) return {};
    EXPECT_EQ(number(lost[0], "rank"), kVictim);
    return lost[0].at("reason");
  }

  // Lets the suspended victim go on after it was declared lost. The others must be still at work.
  void expect_return(const Daemon& daemon, WorkerGroup& workers, const std::string& reason) {
    wait_until("the loss", [&] { return daemon.logged("worker_lost"); });
    const std::size_t before = workers.acknowledged_by_all();
    wait_until("the others to go on", [&] { return workers.acknowledged_by_all() > before + 150; });
    EXPECT_FALSE(workers.has_line(kVictim, "pushed 4"));

    write_file(release_, "");
    workers.process(kVictim).signal(SIGCONT);
    wait_until("the victim to take part again", [&] {
      return workers.acknowledged(kVictim).size() > 10 || !workers.process(kVictim).running();
    });
    const RunResult stopped = syncctl(directory_, daemon, {"job", "stop", "job"});
    EXPECT_EQ(stopped.ending, exited(0)) << stopped.err;
    workers.expect_all_finish();
    const History history = export_history(directory_, daemon, "job");
    expect_exactly_once(history, workers);
    EXPECT_THAT(reason_of_loss(history), HasSubstr(reason));
    // It went on where the others were, instead of making them wait for what it had missed.
    const auto iterations = workers.acknowledged(kVictim);
    EXPECT_GT(iterations.back(), static_cast<std::int64_t>(iterations.size()));
  }

  // How long the victim was silent before it was declared lost, by the history's times.
  std::int64_t silence_us(const Daemon& daemon) const {
    const History history = export_history(directory_, daemon, "job");
    std::int64_t last_push_us = 0;
    for (const auto& push : history.of_kind("push")) {
      if (number(push, "rank") == kVictim && number(push, "iteration") == 3) {
        last_push_us = number(push, "time_us");
      }
    }
    const auto lost = history.of_kind("worker_lost");
    return lost.empty() ? 0 : number(lost[0], "time_us") - last_push_us;
  }

  TempDir directory_;
  std::string release_ = directory_.file("release");
};

TEST_P(LostWorker, OneThatIsKilledIsLostAfterItsGraceAndTheOthersFinish) {
  Daemon daemon(directory_, {.config = config({"500ms", "60s", "10s"})});
  WorkerGroup workers(directory_, with_victim(daemon, 20));
  workers.wait_for_line(kVictim, "holding 4");
  workers.process(kVictim).kill();
  workers.expect_all_finish({kVictim});

  const History history = export_history(directory_, daemon, "job");
  expect_exactly_once(history, workers);
  EXPECT_EQ(history.pushes(kVictim), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(history.of_kind("push").size(), 15U * 20U + 4U);
  EXPECT_THAT(reason_of_loss(history),
              AllOf(HasSubstr("disconnected for"), HasSubstr("worker_grace")));
  EXPECT_TRUE(daemon.logged("worker_lost"));
}

TEST_P(LostWorker, OneThatIsKilledAndStartedAgainInTimeKeepsItsPlace) {
  Daemon daemon(directory_, {.config = config({"60s", "120s", "10s"})});
  WorkerGroup workers(directory_, with_victim(daemon, 20));
  workers.wait_for_line(kVictim, "holding 4");
  workers.process(kVictim).kill();
  WorkerGroup successor(directory_, {.address = daemon.address(),
                                     .policy = GetParam(),
                                     .workers = 1,
                                     .first_rank = kVictim,
                                     .world_size = 16,
                                     .iterations = 20});
  workers.expect_all_finish({kVictim});
  successor.expect_all_finish();

  const History history = export_history(directory_, daemon, "job");
  expect_exactly_once(history, workers);
  EXPECT_TRUE(history.of_kind("worker_lost").empty());
  EXPECT_EQ(history.pushes(kVictim).size(), 20U);
}

// Its connection stays open all the while: only its silence in one iteration shows.
TEST_P(LostWorker, OneThatIsSuspendedIsEvictedAndTakenBackWhenItGoesOn) {
  Daemon daemon(directory_, {.config = config({"60s", "4s", "60s"})});
  WorkerGroup workers(directory_, with_victim(daemon, 1'000'000));
  workers.wait_for_line(kVictim, "holding 4");
  workers.process(kVictim).signal(SIGSTOP);
  expect_return(daemon, workers, "in iteration 4 for");
}

// The heartbeats of a suspended process stop, too.
TEST_P(LostWorker, OneThatIsSuspendedIsDisconnectedByItsHeartbeatsAndTakenBack) {
  Daemon daemon(directory_, {.config = config({"500ms", "60s", "3s"})});
  WorkerGroup workers(directory_, with_victim(daemon, 1'000'000));
  workers.wait_for_line(kVictim, "holding 4");
  workers.process(kVictim).signal(SIGSTOP);
  expect_return(daemon, workers, "disconnected for");
}

// It is suspended, the daemon dies and comes back without it, and only then does it go on.
TEST_P(LostWorker, OneThatSleepsThroughARestartIsLostAndTakenBack) {
  Daemon daemon(directory_, {.config = config({"3s", "60s", "5s"})});
  WorkerGroup workers(directory_, with_victim(daemon, 1'000'000));
  workers.wait_for_line(kVictim, "holding 4");
  workers.process(kVictim).signal(SIGSTOP);
  daemon.kill();
  daemon.start();
  expect_return(daemon, workers, "disconnected for");
}

// In a phase that it has announced it is not late; only when the lease is over does its silence
// count.
TEST_P(LostWorker, OneInAPhaseIsNotEvictedBeforeItsLeaseIsOver) {
  Daemon daemon(directory_, {.config = config({"60s", "3s", "60s"})});
  WorkerGroup workers(directory_, with_victim(daemon, 1'000'000, 4000));
  workers.wait_for_line(kVictim, "holding 4");
  const RunResult shown = syncctl(directory_, daemon, {"workers", "job"});
  EXPECT_THAT(shown.out, HasSubstr("in phase 'checkpoint' for "));
  EXPECT_THAT(shown.out, HasSubstr(" of 4.0 s"));
  expect_return(daemon, workers, "in iteration 4, its phase 'checkpoint' of 4.0 s over for ");
  EXPECT_GE(silence_us(daemon), 7'000'000);
}

// A daemon that is started again hears of the phase from the worker.
TEST_P(LostWorker, OneInAPhaseIsNotEvictedByADaemonThatIsStartedAgain) {
  Daemon daemon(directory_, {.config = config({"60s", "3s", "60s"})});
  WorkerGroup workers(directory_, with_victim(daemon, 1'000'000, 5000));
  workers.wait_for_line(kVictim, "holding 4");
  daemon.kill();
  daemon.start();
  expect_return(daemon, workers, "in iteration 4, its phase 'checkpoint' of ");
  EXPECT_GE(silence_us(daemon), 8'000'000);
}

INSTANTIATE_TEST_SUITE_P(Policies, LostWorker, ::testing::Values("bsp", "ssp:3"),
                         [](const auto& made) { return made.param.substr(0, 3); });

}  // namespace
}  // namespace syncd::test
