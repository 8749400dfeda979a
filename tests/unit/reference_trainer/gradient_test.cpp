// The gradients of the workloads on the CPU against central differences, and what the workloads
// share: minibatches, held-out samples.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "reference_trainer/batch.h"
#include "tests/unit/reference_trainer/gradient_reference.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

TEST(Gradient, OfTheLinearModelMatchesFiniteDifferences) {
  const testing::GradientCase with(WorkloadKind::kSvm);
  testing::expect_gradient(with, *with.workload->make_stepper());
}

TEST(Gradient, OfMatrixFactorizationMatchesFiniteDifferences) {
  const testing::GradientCase with(WorkloadKind::kMf);
  testing::expect_gradient(with, *with.workload->make_stepper());
}

TEST(Gradient, OfTheNetworkMatchesFiniteDifferences) {
  const testing::GradientCase with(WorkloadKind::kCnn);
  testing::expect_gradient(with, *with.workload->make_stepper(), 17);
}

TEST(Batch, IsTheSameForTheSameKeyAndStaysInTheWorkersPartition) {
  const WorkloadConfig config = testing::small_config(WorkloadKind::kMf);
  BatchSampler sampler(config, 100);
  std::set<std::size_t> seen;
  std::vector<std::size_t> first;
  for (std::int64_t iteration = 0; iteration < 50; ++iteration) {
    sampler.start({.worker = 2, .iteration = iteration});
    std::size_t count = 0;
    for (int part = 0; part < sampler.parts(); ++part) {
      for (const std::size_t sample : sampler.part(part)) {
        EXPECT_LT(sample, 100U);
        EXPECT_EQ(sample % 3, 2U);
        seen.insert(sample);
        if (iteration == 0) first.push_back(sample);
        ++count;
      }
    }
    EXPECT_EQ(count, 24U);
  }
  EXPECT_EQ(seen.size(), 33U) << "2, 5, ... 98: every sample of the partition is drawn sometimes";
  sampler.start({.worker = 2, .iteration = 0});
  EXPECT_TRUE(std::equal(sampler.part(0).begin(), sampler.part(0).end(), first.begin()));
}

TEST(Workload, EvaluationUsesHeldOutSamplesAlone) {
  for (const WorkloadKind kind : {WorkloadKind::kSvm, WorkloadKind::kMf}) {
    const SharedArrays data = testing::small_data(kind);
    const auto workload = make_workload(testing::small_config(kind), data);
    EXPECT_EQ(workload->held_out_samples() * 10,
              workload->held_out_samples() + workload->training_samples());
    std::vector<float> parameters(workload->layout().parameters);
    workload->initialize(parameters);
    const double before = workload->evaluate(parameters);
    EXPECT_GT(before, 0);
    if (kind == WorkloadKind::kSvm) {
      EXPECT_NEAR(before, std::log(2.0), 1e-12);
    }
  }
}

}  // namespace
}  // namespace syncd::trainer
