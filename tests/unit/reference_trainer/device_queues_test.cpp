// Update queues in a device's memory, with the CPU in the device's place: the steps are those that
// the GPU runs.
#include "reference_trainer/params/device_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "reference_trainer/model/device_steppers.h"
#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/peer_loop.h"
#include "tests/unit/reference_trainer/device_queues_cases.h"
#include "tests/unit/reference_trainer/gradient_reference.h"
#include "tests/unit/reference_trainer/host_device.h"
#include "tests/unit/reference_trainer/host_machine.h"
#include "tests/unit/reference_trainer/loop_support.h"

namespace syncd::trainer {
namespace {

using testing::expect_reduced;
using testing::HostMachine;
using testing::kSmallQueues;
using testing::StandInPeer;

// With one thread per group, and with three.
class DeviceQueuesTest : public ::testing::TestWithParam<std::size_t> {
 protected:
  HostMachine::Settings settings{.team = GetParam()};
  MachineDevice<HostMachine> device{HostMachine(settings)};
};

INSTANTIATE_TEST_SUITE_P(Groups, DeviceQueuesTest, ::testing::Values(1, 3));

TEST_P(DeviceQueuesTest, ReducesToTheWeightedMean) {
  testing::reduces_to_the_weighted_mean(device);
}

TEST_P(DeviceQueuesTest, LeavesOutWhatIsNotThere) {
  testing::leaves_out_what_is_not_there(device);
}

TEST_P(DeviceQueuesTest, KeepsAStepAndAppliesItLater) {
  testing::keeps_a_step_and_applies_it_later(device);
}

TEST_P(DeviceQueuesTest, HandsOutNoMixture) {
  testing::hands_out_no_mixture(device, 1'000, 300, GetParam() == 1 ? 1'000 : 20);
}

class OneDevice : public ::testing::Test {
 protected:
  HostMachine::Settings settings;
  MachineDevice<HostMachine> device{HostMachine(settings)};
};

TEST_F(OneDevice, WhatADeadWorkerHadHalfWrittenIsTornUntilItIsWrittenAgain) {
  const auto queues = device.create_queues(kSmallQueues, std::vector<float>(100));
  StandInPeer reader(device, *queues, 0);
  StandInPeer dying(device, *queues, 1);
  dying.sends(0, 3, std::vector<float>(100, 3));
  dying.holds(std::vector<float>(100, 5));
  settings.dies_at = 2;
  EXPECT_THROW(dying.port->send(0, 5), testing::Died);
  EXPECT_THROW(dying.port->publish(), testing::Died);
  settings.dies_at = ~std::size_t{0};
  for (const std::int64_t iteration : {3, 5}) {
    reader.holds(std::vector<float>(100, 1));
    expect_reduced(reader.port->reduce(std::vector<PeerUpdate>{{1, iteration, 1.0}}), 0, 0, 1);
    EXPECT_EQ(reader.replica(), std::vector<float>(100, 1));
  }
  std::vector<float> values(100);
  EXPECT_FALSE(queues->read_published(1, values));
  EXPECT_TRUE(average_published(*queues, {true, true, false}, values));
  EXPECT_EQ(values, std::vector<float>(100)) << "that of worker 0 alone";
  StandInPeer again(device, *queues, 1);
  again.port->forget();
  again.sends(0, 5, std::vector<float>(100, 7));
  again.port->publish();
  expect_reduced(reader.port->reduce(std::vector<PeerUpdate>{{1, 5, 1.0}}), 1, 0, 0);
  EXPECT_EQ(reader.replica(), std::vector<float>(100, 7));
  EXPECT_TRUE(average_published(*queues, {true, true, false}, values));
  EXPECT_EQ(values, std::vector<float>(100, 3.5));
  EXPECT_FALSE(average_published(*queues, {false, false, false}, values));
}

TEST_F(OneDevice, ProcessesFindTheQueuesByTheirRecord) {
  SharedParameters made =
      SharedParameters::of_queues(device, 2, 3, std::vector<float>(700, 4), true);
  EXPECT_EQ(made.queues().shape().slots, 3);
  EXPECT_EQ(made.queues().shape().pieces(), 2U);
  SharedParameters found = SharedParameters::attach(device, ::dup(made.fd()), 1);
  StandInPeer sender(device, found.queues(), 1);
  StandInPeer reader(device, made.queues(), 0);
  sender.sends(0, 11, std::vector<float>(700, 6));
  expect_reduced(reader.port->reduce(std::vector<PeerUpdate>{{1, 11, 1.0}}), 1, 0, 0);
  EXPECT_EQ(reader.replica(), std::vector<float>(700, 6));
  std::vector<float> values(700);
  EXPECT_TRUE(average_published(found.queues(), {true, true}, values));
  EXPECT_EQ(values, std::vector<float>(700, 4));
  EXPECT_THROW(StandInPeer(device, made.queues(), 2), std::invalid_argument);
  EXPECT_THROW(SharedParameters::of_queues(device, 1'000, 100, std::vector<float>(700), true),
               std::invalid_argument);
  const SharedMemory other = SharedMemory::create(64, "a test");
  EXPECT_THROW(SharedParameters::attach(device, ::dup(other.fd()), 1), SharedMemoryError);
  settings.shares = false;
  EXPECT_THROW(SharedParameters::of_queues(device, 2, 3, std::vector<float>(700), true),
               SharingRefused);
}

// ---- Loops: the steppers of a device with its queues, and those of the CPU with host memory.

// What it sent last counts when it has left, too, so that all runs reduce the same.
class StayingMember : public testing::GraphMember {
 public:
  using GraphMember::GraphMember;
  void leave() override {}
};

class DevicePeerLoops : public ::testing::TestWithParam<WorkloadKind> {
 protected:
  static constexpr std::int64_t kIterations = 8;

  // Runs all workers, with what `run_one` makes of a worker.
  template <typename RunOne>
  void run(const RunOne& run_one) {
    const auto workers = static_cast<std::size_t>(with.config.workers);
    BoardConfig config{};
    config.workload = with.config;
    config.budget = Budget::kEach;
    config.iterations = kIterations;
    set_field(config.slowdown, "none", "slowdown");
    const RunBoard board = RunBoard::create(config);
    testing::CompleteGraph graph(workers);
    std::vector<std::jthread> threads;
    for (std::size_t worker = 0; worker < workers; ++worker) {
      threads.emplace_back([&, worker] {
        StayingMember member(graph, workers, worker);
        run_one(static_cast<int>(worker), board, member);
      });
    }
    threads.clear();
    for (int worker = 0; worker < with.config.workers; ++worker) {
      const WorkerSlot& slot = board.slot(worker);
      EXPECT_EQ(slot.iterations.load(), kIterations);
      EXPECT_EQ(slot.missing_updates.load() + slot.torn_updates.load(), 0);
    }
  }

  testing::GradientCase with{GetParam()};
  HostMachine::Settings settings;
  MachineDevice<HostMachine> device{HostMachine(settings)};
  const PeerPolicy policy = *peer_policy("hop:complete,max_ig=1");
  std::vector<float> initial = [this] {
    std::vector<float> parameters(with.workload->layout().parameters);
    with.workload->initialize(parameters);
    return parameters;
  }();
};

INSTANTIATE_TEST_SUITE_P(Workloads, DevicePeerLoops,
                         ::testing::Values(WorkloadKind::kSvm, WorkloadKind::kMf,
                                           WorkloadKind::kCnn),
                         [](const auto& kind) { return std::string(workload_name(kind.param)); });

TEST_P(DevicePeerLoops, TrainAsWithQueuesInHostMemory) {
  const auto begin = [&](Stepper& stepper) {
    std::copy(initial.begin(), initial.end(), stepper.replica().begin());
    stepper.replica_changed();
  };
  SharedParameters host = SharedParameters::of_queues(
      store_device(Backend::kCpu), with.config.workers, policy.slots, initial, false);
  run([&](int worker, const RunBoard& board, PeerCoordinator& member) {
    const auto stepper = with.workload->make_stepper();
    begin(*stepper);
    SystemClock clock;
    HostPeerExchange exchange(worker, host.queues(), *stepper);
    PeerLoop(worker, board, policy, exchange, *stepper, member, clock).run();
  });
  SharedParameters queues =
      SharedParameters::of_queues(device, with.config.workers, policy.slots, initial, false);
  run([&](int worker, const RunBoard& board, PeerCoordinator& member) {
    StepperRequest request = with.request;
    request.worker = worker;
    const auto stepper = make_device_stepper(testing::HostDevice(), request);
    begin(*stepper);
    SystemClock clock;
    PeerExchange exchange(worker, queues.queues(), *stepper);
    PeerLoop(worker, board, policy, exchange, *stepper, member, clock).run();
  });
  const std::vector<bool> all(static_cast<std::size_t>(with.config.workers), true);
  std::vector<float> expected(initial.size());
  std::vector<float> found(initial.size());
  ASSERT_TRUE(average_published(host.queues(), all, expected));
  ASSERT_TRUE(average_published(queues.queues(), all, found));
  EXPECT_NE(expected, initial);
  testing::expect_near(found, expected, 1e-4F);
}

}  // namespace
}  // namespace syncd::trainer
