// Steppers on a device that is the CPU: the same code that a GPU runs, against the CPU's own
// steppers and finite differences, and what becomes of a minibatch that is stopped.
#include "reference_trainer/model/device_steppers.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/unit/reference_trainer/gradient_reference.h"
#include "tests/unit/reference_trainer/host_device.h"

namespace syncd::trainer {
namespace {

using testing::GradientCase;
using testing::HostDevice;
using testing::HostQueue;

class OnDevice : public ::testing::TestWithParam<WorkloadKind> {
 protected:
  GradientCase with{GetParam()};
  std::shared_ptr<HostQueue> queue = std::make_shared<HostQueue>();
  std::unique_ptr<Stepper> stepper = make_device_stepper(HostDevice(queue), with.request);

  void queue_all(BatchKey key) const {
    stepper->start(key);
    for (int part = 0; part < stepper->micro_batches(); ++part) stepper->compute(part);
  }
};

TEST_P(OnDevice, GradientMatchesFiniteDifferences) {
  testing::expect_gradient(with, *stepper, GetParam() == WorkloadKind::kCnn ? 17 : 1);
}

TEST_P(OnDevice, TrainsAsTheCpuDoes) {
  testing::expect_same_training(with, *stepper);
}

TEST_P(OnDevice, TrainsTheSameInFewerParts) {
  stepper->interruptible(false);
  EXPECT_LE(stepper->micro_batches(), CnnModel<HostDevice>::kStages);
  testing::expect_same_training(with, *stepper);
}

TEST_P(OnDevice, TrainsTheSameWhenItDoesEverythingLater) {
  queue->at_once = false;
  testing::expect_same_training(with, *stepper);
}

TEST(OnDevice, TheLinearModelsMomentumAndTheDecayOfItsRateAreTheCpus) {
  GradientCase with(WorkloadKind::kSvm);
  with.config.momentum = 0.5;
  with.config.decay = {.factor = 0.1, .at = {2}, .steps = 1};
  with.request.config = with.config;
  with.workload = make_workload(with.config, with.data);
  const auto stepper = make_device_stepper(HostDevice(), with.request);
  testing::expect_same_training(with, *stepper);
}

// What an undisturbed stepper computes for kGradientKey after kFirst.
constexpr BatchKey kFirst{.worker = 0, .iteration = 1};

class Disturbed : public OnDevice {
 protected:
  // One that does as it is told later; made last, because it takes no part in the setup.
  void SetUp() override {
    const std::unique_ptr<Stepper> straight = make_device_stepper(HostDevice(), with.request);
    with.begin(*straight);
    compute_minibatch(*straight, kFirst);
    expected = compute_minibatch(*straight, testing::kGradientKey);
    with.begin(*stepper);
    queue->at_once = false;
    compute_minibatch(*stepper, kFirst);
  }

  // That the minibatch which is computed next is right.
  void expect_right() {
    const Update& found = compute_minibatch(*stepper, testing::kGradientKey);
    EXPECT_FALSE(stepper->interrupted());
    EXPECT_EQ(found.indices, expected.indices);
    EXPECT_EQ(found.deltas, expected.deltas);
    EXPECT_EQ(found.loss, expected.loss);
  }

  // Lets the device do so many things; false if there are fewer.
  bool let_do(int steps) const {
    for (int i = 0; i < steps; ++i) {
      if (!queue->step()) return false;
    }
    return true;
  }

  Update expected;
};

TEST_P(Disturbed, AfterTheFlagNothingMoreIsDoneAndTheNextMinibatchIsRight) {
  int interrupted = 0;
  int skipped = 0;
  for (int before = 0;; ++before) {
    SCOPED_TRACE(before);
    queue_all({.worker = 2, .iteration = 9});
    if (!let_do(before)) break;
    const int skipped_before = queue->skipped;
    const std::size_t left = queue->told.size();
    *stepper->resync_flag() = 1;
    EXPECT_EQ(stepper->finished(), left == 0);
    queue->run();
    EXPECT_TRUE(stepper->finished());
    if (stepper->interrupted()) {
      interrupted += 1;
      skipped += queue->skipped - skipped_before;
    } else {
      EXPECT_LE(left, 3U) << "only a product and telling the outcome were left";
    }
    *stepper->resync_flag() = 0;
    expect_right();
    // For the next turn, the velocity is what it was behind kFirst alone.
    if (GetParam() == WorkloadKind::kCnn) {
      queue->at_once = true;
      stepper = make_device_stepper(HostDevice(queue), with.request);
      with.begin(*stepper);
      compute_minibatch(*stepper, kFirst);
      queue->at_once = false;
    }
  }
  EXPECT_GT(interrupted, 5);
  EXPECT_GT(skipped, 10);
}

TEST_P(Disturbed, HardlyAnythingIsDoneAfterTheFlag) {
  queue_all({.worker = 2, .iteration = 9});
  queue->step();
  *stepper->resync_flag() = 1;
  const auto queued = static_cast<int>(queue->told.size());
  queue->run();
  // Clearing, sending the numbers, products of matrices and marks do not ask; one step looks.
  const int products = GetParam() == WorkloadKind::kCnn ? 13 * 4 : 0;
  EXPECT_GE(queue->skipped, (queued - products) / 2 - 4);
  EXPECT_GT(queue->skipped, 2);
  EXPECT_TRUE(stepper->interrupted());
}

TEST_P(Disturbed, ADroppedMinibatchEndsEarlyEvenIfTheFlagIsGoneAgain) {
  queue_all({.worker = 2, .iteration = 9});
  *stepper->resync_flag() = 1;
  stepper->drop();
  *stepper->resync_flag() = 0;
  queue->run();
  EXPECT_GT(queue->skipped, 2);
  EXPECT_TRUE(stepper->interrupted());
  expect_right();
}

TEST_P(Disturbed, TheNextMinibatchMayBeQueuedBehindADroppedOne) {
  queue_all({.worker = 2, .iteration = 9});
  stepper->drop();
  expect_right();
  EXPECT_GT(queue->skipped, 2);
}

TEST_P(Disturbed, TheSamplesNumbersAreReadBeforeTheNextOnesAreWritten) {
  queue_all({.worker = 2, .iteration = 9});
  const std::size_t queued = queue->told.size();
  stepper->start(testing::kGradientKey);
  constexpr std::size_t kOfStart = 4;  // two places cleared, the numbers sent, a mark
  EXPECT_EQ(queue->told.size(), queued) << "it waited for as many as it added";
  EXPECT_GT(queued, kOfStart);
}

TEST_P(Disturbed, AFlagThatNoStepSawChangesNothing) {
  stepper->start(testing::kGradientKey);
  *stepper->resync_flag() = 1;
  *stepper->resync_flag() = 0;
  for (int part = 0; part < stepper->micro_batches(); ++part) stepper->compute(part);
  queue->run();
  EXPECT_FALSE(stepper->interrupted());
  EXPECT_EQ(stepper->finish().deltas, expected.deltas);
}

TEST_P(Disturbed, NothingIsQueuedOnceTheHostSeesTheFlag) {
  stepper->start({.worker = 2, .iteration = 9});
  stepper->compute(0);
  const std::size_t queued = queue->told.size();
  *stepper->resync_flag() = 1;
  stepper->compute(1);
  *stepper->resync_flag() = 0;
  stepper->compute(2);
  EXPECT_EQ(queue->told.size(), queued);
  queue->run();
  EXPECT_TRUE(stepper->finished());
  EXPECT_TRUE(stepper->interrupted()) << "a part is missing";
  expect_right();
}

TEST_P(Disturbed, NoMoreThanTwoStepsAreInFlightWhereItMayHaveToStartOver) {
  stepper->start(testing::kGradientKey);
  for (int part = 0; part < stepper->micro_batches(); ++part) {
    EXPECT_TRUE(stepper->ready());
    stepper->compute(part);
    if (part == 0) continue;
    EXPECT_FALSE(stepper->ready());
    while (!stepper->ready()) ASSERT_TRUE(queue->step());
    EXPECT_FALSE(stepper->finished());
  }
  queue->run();
  EXPECT_TRUE(stepper->finished());
  EXPECT_EQ(stepper->finish().deltas, expected.deltas);
}

TEST_P(Disturbed, WhatIsNotInterruptibleIsQueuedAsAWhole) {
  stepper->interruptible(false);
  queue_all(testing::kGradientKey);
  EXPECT_TRUE(stepper->ready());
  EXPECT_FALSE(stepper->finished());
}

TEST_P(Disturbed, AViewShowsWhatTheDeviceHas) {
  const DeviceView view = stepper->view();
  ASSERT_EQ(view.parameters, with.workload->layout().parameters);
  queue->run();
  EXPECT_TRUE(std::equal(stepper->replica().begin(), stepper->replica().end(), view.replica));
  queue_all(testing::kGradientKey);
  EXPECT_GT(stepper->loss(), 0) << "it waits";
  EXPECT_EQ(stepper->samples(), static_cast<std::uint64_t>(with.config.batch));
  EXPECT_EQ(view.velocity != nullptr, GetParam() == WorkloadKind::kCnn);
  std::vector<float> deltas;
  for (std::size_t i = 0; i < view.parameters; ++i) {
    deltas.push_back(sgd_delta(view.rule, view.gradient, view.velocity, view.replica, i));
  }
  Update dense;
  dense.deltas = deltas;
  EXPECT_EQ(testing::dense(dense, view.parameters), testing::dense(expected, view.parameters));
}

INSTANTIATE_TEST_SUITE_P(Workloads, Disturbed,
                         ::testing::Values(WorkloadKind::kSvm, WorkloadKind::kMf,
                                           WorkloadKind::kCnn),
                         [](const auto& with) { return std::string(workload_name(with.param)); });

INSTANTIATE_TEST_SUITE_P(Workloads, OnDevice,
                         ::testing::Values(WorkloadKind::kSvm, WorkloadKind::kMf,
                                           WorkloadKind::kCnn),
                         [](const auto& with) { return std::string(workload_name(with.param)); });

}  // namespace
}  // namespace syncd::trainer
