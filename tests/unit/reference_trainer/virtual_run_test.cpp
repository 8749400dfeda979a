// Runs in virtual time: what they compute is compared with training without any coordination, and
// what they count with what the policy promises. Nothing here looks at a clock.
#include "reference_trainer/run/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "reference_trainer/model/workload.h"
#include "reference_trainer/run/policies.h"
#include "support.h"

namespace syncd::trainer {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::small_config;
using testing::small_data;

constexpr double kIterationS = 0.02;

class VirtualRunTest : public ::testing::Test {
 protected:
  RunResult run(const std::string& policy, WorkloadKind kind = WorkloadKind::kSvm) {
    const SharedArrays data = small_data(kind);
    settings.workload.kind = kind;
    settings.policy = policy;
    const auto workload = make_workload(settings.workload, data);
    return run_virtually(settings, virtually, *workload, data, {});
  }

  void SetUp() override {
    settings.workload = small_config(WorkloadKind::kSvm);
    settings.iterations = 40;
    virtually.iteration_time = "constant:20";
  }

  RunSettings settings;
  VirtualSettings virtually;
};

std::vector<double> losses(const RunResult& result) {
  std::vector<double> losses;
  for (const CurvePoint& point : result.curve) losses.push_back(point.loss);
  return losses;
}

// One worker alone trains exactly as without any coordination, whatever the policy.
TEST_F(VirtualRunTest, OneWorkerTrainsAsAlone) {
  for (const WorkloadKind kind : {WorkloadKind::kSvm, WorkloadKind::kMf}) {
    settings.workload = small_config(kind);
    settings.workload.workers = 1;
    const SharedArrays data = small_data(kind);
    const auto workload = make_workload(settings.workload, data);
    std::vector<float> alone(workload->layout().parameters);
    workload->initialize(alone);
    train_serially(*workload, 1, settings.iterations, alone);
    for (const char* policy : {"bsp", "asp", "ssp:3", "elastic_bsp:5", "specsync+asp"}) {
      const RunResult result = run(policy, kind);
      EXPECT_EQ(result.failure, "") << policy;
      EXPECT_EQ(result.iterations, 40) << policy;
      EXPECT_EQ(result.final_loss(), workload->evaluate(alone)) << policy;
      EXPECT_DOUBLE_EQ(result.seconds, 40 * kIterationS) << policy;
    }
  }
}

// Under a barrier all have pulled the same, and who pushes later has not seen more. Between two
// pushes of one of n equally fast workers that do not wait lies about one of each other.
TEST_F(VirtualRunTest, CountsTheUpdatesThatWorkersDoNotSee) {
  settings.workload.workers = 4;
  EXPECT_DOUBLE_EQ(*run("bsp").unseen_updates, 1.5);
  virtually.iteration_time = "uniform_each:19-21";
  EXPECT_NEAR(*run("asp").unseen_updates, 3, 0.3);
  settings.workload.workers = 1;
  EXPECT_DOUBLE_EQ(*run("asp").unseen_updates, 0);
  EXPECT_EQ(run("hop:ring").unseen_updates, std::nullopt) << "there is no store";
}

// Under bsp every worker computes on the same parameters, and what they add is summed up.
TEST_F(VirtualRunTest, BspSumsUpWhatAllComputeOnTheSameParameters) {
  const SharedArrays data = small_data(WorkloadKind::kSvm);
  const auto workload = make_workload(settings.workload, data);
  std::vector<float> expected(workload->layout().parameters);
  workload->initialize(expected);
  const auto stepper = workload->make_stepper();
  for (std::int64_t iteration = 0; iteration < settings.iterations; ++iteration) {
    const std::vector<float> before = expected;
    for (std::int32_t worker = 0; worker < settings.workload.workers; ++worker) {
      std::copy(before.begin(), before.end(), stepper->replica().begin());
      stepper->replica_changed();
      add_update(compute_minibatch(*stepper, {.worker = worker, .iteration = iteration}), expected);
    }
  }
  const RunResult result = run("bsp");
  EXPECT_NEAR(result.final_loss(), workload->evaluate(expected), 1e-6);
  EXPECT_EQ(result.staleness_max(), 0);
  EXPECT_DOUBLE_EQ(result.waiting_share(), 0);
}

TEST_F(VirtualRunTest, TheSameSettingsGiveTheSameResult) {
  settings.slowdown = "random:6x@1/n";
  virtually.iteration_time = "uniform_each:10-30";
  for (const char* policy : {"ssp:3", "specsync+asp", "hop:ring,max_ig=4,backup=1"}) {
    const RunResult first = run(policy);
    const RunResult second = run(policy);
    EXPECT_EQ(first.failure, "") << policy;
    EXPECT_EQ(losses(first), losses(second)) << policy;
    EXPECT_EQ(first.seconds, second.seconds) << policy;
    settings.workload.seed = 8;
    EXPECT_NE(losses(run(policy)), losses(first)) << policy;
    settings.workload.seed = 7;
  }
}

// One of three workers takes four times as long: bsp waits for it, asp does not.
TEST_F(VirtualRunTest, WaitingIsWhatThePolicyMakesOfASlowWorker) {
  settings.slowdown = "fixed:2=4x";
  const RunResult bsp = run("bsp");
  EXPECT_DOUBLE_EQ(bsp.seconds, 40 * 4 * kIterationS);
  // Two of three wait three of four parts of their time, but for the end.
  EXPECT_NEAR(bsp.waiting_share(), 0.5, 0.01);
  const RunResult asp = run("asp");
  EXPECT_DOUBLE_EQ(asp.waiting_share(), 0);
  EXPECT_LT(asp.seconds, bsp.seconds / 2);
  const RunResult ssp = run("ssp:3");
  EXPECT_EQ(ssp.staleness_max(), 3);
  EXPECT_EQ(bsp.iterations + asp.iterations + ssp.iterations, 3 * 120);
}

TEST_F(VirtualRunTest, ABudgetForEachLetsEverybodyMakeItsOwn) {
  settings.budget = Budget::kEach;
  settings.slowdown = "fixed:2=4x";
  const RunResult result = run("asp");
  for (const WorkerResult& worker : result.workers) EXPECT_EQ(worker.iterations, 40);
  EXPECT_DOUBLE_EQ(result.seconds, 40 * 4 * kIterationS);
}

TEST_F(VirtualRunTest, ALossEndsTheRun) {
  const RunResult whole = run("bsp");
  settings.stop_at_loss = (whole.curve.front().loss + whole.final_loss()) / 2;
  const RunResult result = run("bsp");
  EXPECT_LE(result.final_loss(), *settings.stop_at_loss);
  EXPECT_LT(result.iterations, whole.iterations);
  ASSERT_NE(reached_loss(result, *settings.stop_at_loss), nullptr);
}

TEST_F(VirtualRunTest, ACurveHasAHundredPointsAtLeast) {
  EXPECT_GE(run("bsp").curve.size(), 100U) << "of 120 iterations";
  settings.iterations = 0;
  settings.seconds_max = 100 * kIterationS;
  EXPECT_GE(run("bsp").curve.size(), 100U);
}

// Updates are linear in the rate.
TEST_F(VirtualRunTest, TheMeanOfABarriersUpdatesIsTheirSumAtTheRateOverTheWorkers) {
  EXPECT_EQ(rate_divisor(Aggregate::kMean, "bsp", 3), 3);
  EXPECT_EQ(rate_divisor(Aggregate::kMean, "bsp:5", 3), 3);
  for (const char* policy : {"asp", "ssp:3", "elastic_bsp:5", "specsync+asp"}) {
    EXPECT_EQ(rate_divisor(Aggregate::kMean, policy, 3), 1) << policy;
  }
  EXPECT_EQ(rate_divisor(Aggregate::kSum, "bsp", 3), 1);
}

TEST_F(VirtualRunTest, ALinkMakesItsTransfersTakeTime) {
  const RunResult free = run("bsp");
  virtually.transfer_us = 10'000;  // three workers share it: 30 ms there, 30 ms back
  const RunResult result = run("bsp");
  EXPECT_EQ(losses(result), losses(free)) << "it changes when, not what";
  EXPECT_NEAR(result.seconds, 40 * (kIterationS + 0.06), 0.001 * result.seconds);
  EXPECT_NEAR(in_seconds(result.workers[0].pushing_us), 40 * 0.06, 1e-3);
  EXPECT_EQ(result.curve.back().transfers, 2 * 120);
  EXPECT_EQ(free.curve.back().transfers, 2 * 120);
  EXPECT_EQ(run("hop:ring").curve.back().transfers, 2 * 120) << "to two neighbours";
}

TEST_F(VirtualRunTest, OneWorkersLossIsOnTheCurveWhereItHasParametersOfItsOwn) {
  const RunResult peers = run("hop:ring");
  ASSERT_TRUE(peers.curve.back().loss_of_one.has_value());
  EXPECT_EQ(peers.curve.back().loss_of_one, peers.one_worker_loss);
  EXPECT_EQ(peers.curve.front().loss_of_one, peers.curve.front().loss) << "all begin alike";
  EXPECT_NE(peers.curve.back().loss_of_one, peers.final_loss());
  EXPECT_EQ(run("bsp").curve.back().loss_of_one, std::nullopt);
}

TEST_F(VirtualRunTest, HostsDecideWhoSendsToWhom) {
  settings.workload.workers = 6;
  const auto transfers = [&](std::vector<std::uint32_t> sizes) {
    virtually.host_sizes = std::move(sizes);
    return *run("hop:clustered").curve.back().transfers;
  };
  EXPECT_EQ(transfers({}), 40 * 12) << "a ring";
  EXPECT_EQ(transfers({6}), 40 * 30) << "complete";
  EXPECT_EQ(transfers({3, 3}), 40 * (12 + 2));
}

TEST_F(VirtualRunTest, ATimeEndsTheRun) {
  settings.iterations = 0;
  settings.seconds_max = 10 * kIterationS + 0.001;
  const RunResult result = run("bsp");
  EXPECT_EQ(result.iterations, 3 * 10);
  EXPECT_EQ(result.failure, "");
}

// A restarted worker computes on newer parameters, and only then: the dropped try costs time and
// leaves no trace.
TEST_F(VirtualRunTest, ARestartCostsTimeAndDropsTheUpdate) {
  settings.workload.workers = 8;
  settings.iterations = 100;
  virtually.iteration_time = "uniform_each:10-40";
  const RunResult result = run("specsync+asp");
  EXPECT_EQ(result.failure, "");
  EXPECT_GT(result.restarts(), 0);
  EXPECT_GT(result.wasted_share(), 0);
  EXPECT_EQ(result.iterations, 800);
}

TEST_F(VirtualRunTest, PeersReduceWhatTheyReceived) {
  settings.workload.workers = 6;
  virtually.delay_us = 3'000;
  settings.slowdown = "random:6x@1/n";
  for (const char* policy :
       {"hop:ring_based,max_ig=5", "hop:ring_based,max_ig=5,backup=1",
        "hop:complete,max_ig=4,staleness=2", "hop:ring_based,max_ig=4,backup=1,skip=3",
        "notify_ack:ring", "notify_ack:ring,every=2"}) {
    const RunResult result = run(policy);
    EXPECT_EQ(result.failure, "") << policy;
    EXPECT_EQ(result.curve.front().loss, run("bsp").curve.front().loss) << policy;
    EXPECT_EQ(result.missing_updates(), 0) << policy;
    EXPECT_GT(result.reduced(), result.iterations / 2) << policy;
    EXPECT_LT(result.final_loss(), result.curve.front().loss - 0.03) << policy;
    ASSERT_TRUE(result.one_worker_loss.has_value()) << policy;
    EXPECT_NEAR(*result.one_worker_loss, result.final_loss(), 0.1) << policy;
  }
}

// What their reduces lack is counted, and they train on with the rest.
TEST_F(VirtualRunTest, UnsafeBaselinesCountWhatTheyLose) {
  settings.workload.workers = 6;
  virtually.iteration_time = "uniform_each:10-40";
  virtually.transfer_us = 2'000;
  for (const char* policy : {"barrier:complete", "async:complete"}) {
    const RunResult result = run(policy);
    EXPECT_EQ(result.failure, "") << policy;
    EXPECT_GT(result.missing_updates(), 0) << policy;
    EXPECT_GT(result.torn_updates(), 0) << policy;
    EXPECT_GT(result.reduced(), result.iterations) << policy;
    EXPECT_LT(result.final_loss(), result.curve.front().loss - 0.03) << policy;
  }
}

TEST_F(VirtualRunTest, SerialHopComputesBeforeItSends) {
  settings.workload.workers = 2;
  settings.iterations = 1;
  const SharedArrays data = small_data(WorkloadKind::kSvm);
  const auto shared = make_workload(settings.workload, data);
  const auto workload = make_peer_workload(settings.workload, *shared, data);
  std::vector<float> mean(workload->layout().parameters);
  workload->initialize(mean);
  const std::vector<float> initial = mean;
  const auto stepper = workload->make_stepper();
  for (std::int32_t worker = 0; worker < 2; ++worker) {
    std::copy(initial.begin(), initial.end(), stepper->replica().begin());
    stepper->replica_changed();
    Update half = compute_minibatch(*stepper, {.worker = worker, .iteration = 0});
    for (float& delta : half.deltas) delta /= 2;
    add_update(half, mean);
  }
  // After one iteration both orders have the mean of what two workers computed on the same
  // parameters; only in the serial one does each of them have it, for it was sent.
  const RunResult parallel = run("hop:complete,max_ig=2");
  EXPECT_NEAR(parallel.final_loss(), workload->evaluate(mean), 1e-6);
  EXPECT_GT(std::abs(*parallel.one_worker_loss - parallel.final_loss()), 1e-5);
  settings.hop_order = HopOrder::kSerial;
  const RunResult serial = run("hop:complete,max_ig=2");
  EXPECT_NEAR(serial.final_loss(), workload->evaluate(mean), 1e-6);
  EXPECT_NEAR(*serial.one_worker_loss, serial.final_loss(), 1e-7);
}

// As in a real run, nobody is refused because of what became of the loss.
TEST_F(VirtualRunTest, ADivergingRunEndsAsItShould) {
  settings.workload = small_config(WorkloadKind::kMf);
  settings.workload.learning_rate = 100;
  const RunResult result = run("asp", WorkloadKind::kMf);
  EXPECT_EQ(result.failure, "");
  EXPECT_EQ(result.iterations, 120);
  EXPECT_FALSE(std::isfinite(result.final_loss()));
}

TEST_F(VirtualRunTest, WrongSettingsAreNamed) {
  virtually.iteration_time = "sometimes";
  EXPECT_THAT(error_of<std::invalid_argument>([&] { run("bsp"); }),
              HasSubstr("--iteration-time: "));
  virtually.iteration_time = "constant:20";
  settings.slowdown = "fixed:9=4x";
  EXPECT_EQ(error_of<SlowdownError>([&] { run("bsp"); }),
            "--slowdown: there is no worker 9; allowed: 0 to 2");
}

}  // namespace
}  // namespace syncd::trainer
