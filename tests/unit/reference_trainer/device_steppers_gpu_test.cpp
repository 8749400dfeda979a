// The steppers of all workloads on a GPU, against the CPU's and finite differences, and what
// becomes of a minibatch that is stopped. Skipped where there is no GPU.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "reference_trainer/model/backends.h"
#include "tests/unit/reference_trainer/gradient_reference.h"

namespace syncd::trainer {
namespace {

StepperRequest on_gpu(StepperRequest request) {
  request.config.backend = Backend::kCuda;
  return request;
}

class OnGpu : public ::testing::TestWithParam<WorkloadKind> {
 protected:
  void SetUp() override {
    if (const auto problem = backend_problem(Backend::kCuda)) GTEST_SKIP() << *problem;
    stepper = make_stepper(on_gpu(with.request));
  }

  testing::GradientCase with{GetParam()};
  std::unique_ptr<Stepper> stepper;
};

TEST_P(OnGpu, GradientMatchesFiniteDifferences) {
  testing::expect_gradient(with, *stepper, GetParam() == WorkloadKind::kCnn ? 17 : 1);
}

TEST_P(OnGpu, TrainsAsTheCpuDoes) {
  testing::expect_same_training(with, *stepper);
}

TEST_P(OnGpu, TrainsTheSameInFewerParts) {
  stepper->interruptible(false);
  testing::expect_same_training(with, *stepper);
}

TEST_P(OnGpu, AStoppedMinibatchEndsAndTheNextIsRight) {
  with.begin(*stepper);
  for (int parts = 0; parts <= stepper->micro_batches(); ++parts) {
    stepper->start({.worker = 2, .iteration = 9});
    for (int part = 0; part < parts; ++part) stepper->compute(part);
    *stepper->resync_flag() = 1;
    if (parts < stepper->micro_batches()) stepper->compute(parts);
    while (!stepper->finished()) {
    }
    EXPECT_TRUE(parts == stepper->micro_batches() || stepper->interrupted());
    stepper->drop();
    *stepper->resync_flag() = 0;
  }
  testing::expect_same_training(with, *stepper);
}

TEST_P(OnGpu, SeveralWorkersHaveStreamsOfTheirOwn) {
  const auto other = make_stepper(on_gpu(with.request));
  EXPECT_NE(stepper->view().stream, other->view().stream);
  with.begin(*other);
  other->start({.worker = 2, .iteration = 9});
  for (int part = 0; part < other->micro_batches(); ++part) other->compute(part);
  testing::expect_same_training(with, *stepper);
  EXPECT_FALSE(other->interrupted());
}

INSTANTIATE_TEST_SUITE_P(Workloads, OnGpu,
                         ::testing::Values(WorkloadKind::kSvm, WorkloadKind::kMf,
                                           WorkloadKind::kCnn),
                         [](const auto& with) { return std::string(workload_name(with.param)); });

class InPrecision : public ::testing::TestWithParam<Precision> {};

TEST_P(InPrecision, TheNetworkTrainsAboutTheSame) {
  if (const auto problem = backend_problem(Backend::kCuda, GetParam())) GTEST_SKIP() << *problem;
  testing::GradientCase with(WorkloadKind::kCnn);
  with.request.config.precision = GetParam();
  // What the factors keep, 10 and 7 bits, through five layers there and back.
  const double tolerance = GetParam() == Precision::kTf32 ? 0.01 : 0.08;
  testing::expect_same_training(with, *make_stepper(on_gpu(with.request)), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Precisions, InPrecision,
                         ::testing::Values(Precision::kTf32, Precision::kBf16),
                         [](const auto& with) {
                           return std::string(with.param == Precision::kTf32 ? "tf32" : "bf16");
                         });

}  // namespace
}  // namespace syncd::trainer
