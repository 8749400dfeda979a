// The loop of a decentralized worker against a scripted coordinator, with neighbours that the test
// plays; and several loops at once, in threads, against an in-process Hop on a complete graph.
#include "reference_trainer/run/peer_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>

#include "reference_trainer/params/store_devices.h"
#include "tests/unit/reference_trainer/device_queues_cases.h"
#include "tests/unit/reference_trainer/loop_support.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using testing::CompleteGraph;
using testing::CountingStepper;
using ::testing::ElementsAre;
using testing::FakeClock;
using testing::GraphMember;
using ::testing::HasSubstr;

// Notes every call in order. Grants iterations one after the other unless `begins` says otherwise;
// collect answers as the test says.
class ScriptedPeers : public PeerCoordinator {
 public:
  std::vector<std::string> calls;
  std::deque<std::function<std::optional<Step>()>> begins;
  std::vector<int> neighbours;
  std::function<std::optional<std::vector<PeerUpdate>>(std::int64_t)> on_collect;
  std::function<void(std::int64_t)> on_push = [](std::int64_t) {};
  std::function<void(std::int64_t)> on_consumed = [](std::int64_t) {};
  std::vector<double> losses;
  std::int64_t next = 0;

  void join() override { note("join"); }
  std::optional<Step> begin(std::int64_t) override {
    Step step{.iteration = next};
    if (!begins.empty()) {
      const auto action = begins.front();
      begins.pop_front();
      step = *action();
    }
    note("begin", step.iteration);
    next = step.iteration + 1;
    return step;
  }
  std::string waiting_for() const override { return "waiting for worker 7"; }
  bool should_resync() const override { return false; }
  void restarted(std::int64_t) override { ADD_FAILURE(); }
  std::optional<std::vector<int>> targets(std::int64_t iteration, std::int64_t) override {
    note("targets", iteration);
    return neighbours;
  }
  bool push(std::int64_t iteration, const PushReport& report) override {
    note("push", iteration);
    losses.push_back(report.loss);
    on_push(iteration);
    return false;
  }
  std::optional<std::vector<PeerUpdate>> collect(std::int64_t iteration, std::int64_t) override {
    note("collect", iteration);
    return on_collect(iteration);
  }
  void consumed(std::int64_t iteration) override {
    note("consumed", iteration);
    on_consumed(iteration);
  }
  void leave() override { note("leave"); }

 private:
  void note(const char* call) { calls.emplace_back(call); }
  void note(const char* call, std::int64_t iteration) {
    calls.push_back(call + (" " + std::to_string(iteration)));
  }
};

// Worker 0 of three, with one parameter that begins at 0 and to which every gradient adds 1.
class PeerLoopTest : public ::testing::Test {
 protected:
  static BoardConfig config() {
    BoardConfig config{};
    config.workload.workers = 3;
    config.budget = Budget::kEach;
    config.iterations = 2;
    config.iteration_us = 10'000;
    set_field(config.slowdown, "none", "slowdown");
    return config;
  }

  PeerLoopTest() {
    stepper.replica()[0] = 0;
    coordinator.neighbours = {1, 2};
    coordinator.on_collect = [](std::int64_t k) {
      return std::vector<PeerUpdate>{{.rank = 0, .iteration = k, .weight = 1}};
    };
  }

  void run(const char* policy, HopOrder order = HopOrder::kParallel) {
    HostPeerExchange exchange(0, *queues, stepper);
    PeerLoop(0, board, *peer_policy(policy, order), exchange, stepper, coordinator, clock).run();
  }
  // What a neighbour sends to worker 0, or what worker 0 sent to it.
  void neighbour_sends(int from, std::int64_t iteration, float value) {
    testing::StandInPeer(device, *queues, from).sends(0, iteration, {value});
  }
  float sent_to(int neighbour, std::int64_t iteration) const {
    testing::StandInPeer reader(device, *queues, neighbour);
    const std::vector<PeerUpdate> update{{.rank = 0, .iteration = iteration, .weight = 1}};
    return reader.port->reduce(update).whole == 1 ? reader.replica().front() : std::nanf("");
  }
  float published() const {
    float value = 0;
    return queues->read_published(0, {&value, 1}) ? value : std::nanf("");
  }

  RunBoard board = RunBoard::create(config());
  StoreDevice& device = store_device(Backend::kCpu);
  std::unique_ptr<DeviceQueues> queues =
      device.create_queues(device_queue_shape(3, 5, 1), std::vector<float>{0});
  CountingStepper stepper;
  ScriptedPeers coordinator;
  FakeClock clock;
};

TEST_F(PeerLoopTest, HopSendsThenComputesThenReducesThenAppliesTheGradient) {
  coordinator.on_collect = [this](std::int64_t k) {
    EXPECT_EQ(stepper.iterations.back(), k) << "computed already";
    neighbour_sends(1, k, 10);
    neighbour_sends(2, k, 100);
    return std::vector<PeerUpdate>{{0, k, 0.5}, {1, k, 0.25}, {2, k, 0.25}};
  };
  run("hop:complete");
  EXPECT_THAT(coordinator.calls,
              ElementsAre("join", "begin 0", "targets 0", "push 0", "collect 0", "begin 1",
                          "targets 1", "push 1", "collect 1", "leave"));
  // x_0 = 0; x_1 = 0 / 2 + 110 / 4 + 1; x_2 = 28.5 / 2 + 110 / 4 + 1.
  EXPECT_THAT(stepper.seen, ElementsAre(0, 28.5));
  EXPECT_EQ(stepper.replica()[0], 42.75);
  EXPECT_EQ(published(), 42.75);
  EXPECT_EQ(sent_to(1, 0), 0);
  EXPECT_EQ(sent_to(2, 1), 28.5) << "the parameters, without this iteration's gradient";
  EXPECT_TRUE(std::isnan(coordinator.losses[0]));
  EXPECT_EQ(coordinator.losses[1], 0.25) << "of the iteration before";
  EXPECT_EQ(board.slot(0).iterations.load(), 2);
  EXPECT_EQ(board.slot(0).reduced.load(), 4);
  EXPECT_EQ(board.slot(0).missing_updates.load(), 0);
  EXPECT_EQ(board.slot(0).computing_us.load(), 2 * 10'000);
}

TEST_F(PeerLoopTest, HopInSerialOrderAppliesTheGradientThenSendsThenReduces) {
  coordinator.on_collect = [this](std::int64_t k) {
    EXPECT_EQ(sent_to(1, k), stepper.seen.back() + 1) << "with this iteration's gradient";
    neighbour_sends(2, k, 9);
    return std::vector<PeerUpdate>{{0, k, 0.5}, {2, k, 0.5}};
  };
  run("hop:complete", HopOrder::kSerial);
  EXPECT_THAT(coordinator.calls,
              ElementsAre("join", "begin 0", "targets 0", "push 0", "collect 0", "begin 1",
                          "targets 1", "push 1", "collect 1", "leave"))
      << "no acknowledgement";
  // x_0 = 0; x_1 = (0 + 1) / 2 + 9 / 2; x_2 = (5 + 1) / 2 + 9 / 2.
  EXPECT_THAT(stepper.seen, ElementsAre(0, 5));
  EXPECT_EQ(published(), 7.5);
  EXPECT_EQ(coordinator.losses[0], 0.25) << "this iteration's, which is known by now";
}

TEST_F(PeerLoopTest, NotifyAckAppliesTheGradientThenSendsThenReducesThenAcknowledges) {
  coordinator.on_collect = [this](std::int64_t k) {
    EXPECT_EQ(sent_to(1, k), stepper.seen.back() + 1) << "with this iteration's gradient";
    neighbour_sends(2, k, 9);
    return std::vector<PeerUpdate>{{0, k, 0.5}, {2, k, 0.5}};
  };
  coordinator.on_consumed = [this](std::int64_t k) {
    EXPECT_EQ(stepper.replica()[0], k == 0 ? 5 : 7.5) << "reduced before it is acknowledged";
    EXPECT_EQ(board.slot(0).reduced.load(), k + 1);
  };
  run("notify_ack:ring_directed");
  EXPECT_THAT(coordinator.calls,
              ElementsAre("join", "begin 0", "targets 0", "push 0", "collect 0", "consumed 0",
                          "begin 1", "targets 1", "push 1", "collect 1", "consumed 1", "leave"));
  EXPECT_EQ(coordinator.losses[0], 0.25);
  EXPECT_EQ(published(), 7.5);
}

TEST_F(PeerLoopTest, NotifyAckComputesAsManyBatchesBetweenTwoReducesAsItIsTold) {
  run("notify_ack:ring,every=3");
  EXPECT_THAT(stepper.iterations, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(sent_to(1, 0), 3);
  EXPECT_EQ(sent_to(1, 1), 6);
  EXPECT_EQ(board.slot(0).iterations.load(), 2);
}

TEST_F(PeerLoopTest, AnUpdateThatCannotBeReadIsCountedAndTheOthersWeighMore) {
  coordinator.on_collect = [this](std::int64_t k) {
    neighbour_sends(2, k + 5, 100);  // in the slot of k
    neighbour_sends(1, k, 10);
    return std::vector<PeerUpdate>{{0, k, 0.25}, {1, k, 0.5}, {2, k, 0.125}, {3, k, 0.125}};
  };
  run("hop:complete");
  EXPECT_FLOAT_EQ(stepper.seen[1], 10 * 2 / 3.0F + 1);
  EXPECT_EQ(board.slot(0).missing_updates.load(), 4) << "overwritten, and of nobody";
  EXPECT_EQ(board.slot(0).torn_updates.load(), 0);
  EXPECT_EQ(board.slot(0).reduced.load(), 2);
}

TEST_F(PeerLoopTest, AStaleSetIsReadUnderTheIterationsThatItNames) {
  coordinator.on_collect = [this](std::int64_t k) {
    if (k == 0) neighbour_sends(1, 3, 30);  // it is ahead
    return k == 0 ? std::vector<PeerUpdate>{{0, 0, 0.25}, {1, 3, 0.75}}
                  : std::vector<PeerUpdate>{{0, 1, 1}};
  };
  run("hop:ring,max_ig=2,staleness=2");
  EXPECT_EQ(stepper.seen[1], 23.5);
  EXPECT_EQ(stepper.replica()[0], 24.5) << "used once";
}

TEST_F(PeerLoopTest, AJumpRenewsTheParametersFromTheIterationBefore) {
  coordinator.begins = {[] { return Step{.iteration = 0}; },
                        [this] {
                          neighbour_sends(1, 6, 40);
                          return Step{.iteration = 7, .skip = true};
                        }};
  coordinator.on_collect = [](std::int64_t k) {
    return k == 6 ? std::vector<PeerUpdate>{{0, 0, 0.5}, {1, 6, 0.5}}
                  : std::vector<PeerUpdate>{{0, k, 1}};
  };
  run("hop:ring,backup=1,skip=10");
  EXPECT_THAT(coordinator.calls,
              ElementsAre("join", "begin 0", "targets 0", "push 0", "collect 0", "begin 7",
                          "collect 6", "targets 7", "push 7", "collect 7", "leave"));
  EXPECT_THAT(stepper.seen, ElementsAre(0, 20.5));
  EXPECT_EQ(sent_to(1, 7), 20.5);
  EXPECT_EQ(board.slot(0).skipped.load(), 6);
  EXPECT_EQ(board.slot(0).iterations.load(), 2) << "those that were computed";
}

TEST_F(PeerLoopTest, WaitingForTargetsAndUpdatesCountsAsWaitingAndEndsWithTheRun) {
  int slices = 0;
  coordinator.on_collect = [&](std::int64_t) -> std::optional<std::vector<PeerUpdate>> {
    clock.sleep_us(1'000);
    EXPECT_EQ(board.slot(0).waiting_for.get(), slices == 0 ? "" : "waiting for worker 7");
    if (++slices == 3) board.request_stop(StopLevel::kFinish);
    if (slices == 5) board.request_stop(StopLevel::kAbandon);
    return std::nullopt;
  };
  run("hop:ring");
  EXPECT_EQ(slices, 5) << "a stop lets the iteration end, until it says to abandon that";
  EXPECT_EQ(board.slot(0).waiting_us.load(), 5'000);
  EXPECT_EQ(board.slot(0).iterations.load(), 0);
  EXPECT_EQ(coordinator.calls.back(), "leave");
  EXPECT_TRUE(board.claim_iteration(0) && board.claim_iteration(0)) << "it was given back";
}

TEST_F(PeerLoopTest, AFencedWorkerJoinsAnewAndWhatItHadSentIsForgotten) {
  coordinator.next = 8;
  coordinator.on_push = [this](std::int64_t k) {
    if (k != 9) return;
    EXPECT_EQ(sent_to(1, 8), 0);
    coordinator.next = 4;
    throw CoordinatorError(CoordinatorError::Kind::kFenced, "declared lost");
  };
  board = RunBoard::create(config());
  run("hop:ring");
  EXPECT_THAT(coordinator.calls, ElementsAre("join", "begin 8", "targets 8", "push 8", "collect 8",
                                             "begin 9", "targets 9", "push 9", "join", "begin 4",
                                             "targets 4", "push 4", "collect 4", "leave"));
  EXPECT_EQ(sent_to(1, 4), 1) << "in the slot that iteration 9 had";
  EXPECT_TRUE(std::isnan(sent_to(1, 8)));
  EXPECT_EQ(published(), 2) << "it keeps the parameters that it has";
  EXPECT_EQ(board.slot(0).rejoins.load(), 1);
}

TEST_F(PeerLoopTest, ARepeatedIterationBeginsANewLifeToo) {
  coordinator.begins = {[] { return Step{.iteration = 8}; }, [] { return Step{.iteration = 3}; }};
  run("hop:ring");
  EXPECT_EQ(sent_to(1, 3), 1) << "not kept out by iteration 8, whose slot it shares";
}

TEST_F(PeerLoopTest, ARankThatIsNotOfThisRunIsNamed) {
  coordinator.neighbours = {1, 3};
  EXPECT_THAT(testing::error_of<SharedMemoryError>([&] { run("hop:ring"); }),
              HasSubstr("worker 0 is to send to rank 3, which is not of this run: its ranks are 0 "
                        "to 2"));
}

TEST(PeerLearningRate, MakesUpForTheMeanWithinBounds) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(peer_learning_rate(0.05, 1, kInfinite), 0.05);
  EXPECT_EQ(peer_learning_rate(0.05, 3, kInfinite), 0.05 * 3);
  EXPECT_EQ(peer_learning_rate(0.05, 40, kInfinite), 0.05 * 4);
  EXPECT_EQ(peer_learning_rate(0.05, 40, 0.08), 0.08);
  EXPECT_EQ(peer_learning_rate(0.05, 40, 0.01), 0.05) << "never less than what was asked for";
  // 20 items are the fewer rows; 24 ratings in a minibatch.
  const SharedArrays data = testing::small_data(WorkloadKind::kMf);
  EXPECT_DOUBLE_EQ(make_workload(testing::small_config(WorkloadKind::kMf), data)->peer_rate_max(),
                   0.15 * 20 / 24);
}

// ---- Several loops at once

class PeerLoops : public ::testing::TestWithParam<WorkloadKind> {};

TEST_P(PeerLoops, LearnTogetherAndMissNothing) {
  constexpr int kWorkers = 4;
  BoardConfig config{};
  config.workload = {
      .kind = GetParam(), .workers = kWorkers, .batch = 32, .learning_rate = 0.2, .seed = 7};
  if (GetParam() == WorkloadKind::kMf) config.workload.learning_rate = 0.05;
  config.budget = Budget::kEach;
  config.iterations = 60;
  set_field(config.slowdown, "none", "slowdown");
  const SharedArrays data = testing::small_data(GetParam());
  const auto workload = make_workload(config.workload, data);
  std::vector<float> parameters(workload->layout().parameters);
  workload->initialize(parameters);
  const double before = workload->evaluate(parameters);
  const PeerPolicy policy = *peer_policy("hop:complete,max_ig=1");
  const auto queues =
      store_device(Backend::kCpu)
          .create_queues(device_queue_shape(kWorkers, policy.slots, parameters.size()), parameters);
  const RunBoard board = RunBoard::create(config);
  CompleteGraph graph(kWorkers);
  std::vector<std::thread> threads;
  for (int worker = 0; worker < kWorkers; ++worker) {
    threads.emplace_back([&, worker] {
      const auto stepper = workload->make_stepper();
      workload->initialize(stepper->replica());
      stepper->replica_changed();
      GraphMember member(graph, kWorkers, static_cast<std::size_t>(worker));
      SystemClock clock;
      HostPeerExchange exchange(worker, *queues, *stepper);
      PeerLoop(worker, board, policy, exchange, *stepper, member, clock).run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int worker = 0; worker < kWorkers; ++worker) {
    const WorkerSlot& slot = board.slot(worker);
    EXPECT_EQ(slot.iterations.load(), 60);
    EXPECT_EQ(slot.missing_updates.load() + slot.torn_updates.load(), 0);
    // In the last iteration others may have left already.
    EXPECT_GE(slot.reduced.load(), 59 * (kWorkers - 1));
  }
  ASSERT_TRUE(average_published(*queues, std::vector<bool>(kWorkers, true), parameters));
  EXPECT_LT(workload->evaluate(parameters), before - 0.03);
}

INSTANTIATE_TEST_SUITE_P(Workloads, PeerLoops,
                         ::testing::Values(WorkloadKind::kSvm, WorkloadKind::kMf));

}  // namespace
}  // namespace syncd::trainer
