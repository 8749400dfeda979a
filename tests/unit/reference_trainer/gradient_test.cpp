// The gradients of both workloads against central differences of objectives written down a second
// time here, in double, from svm.h and mf.h.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "reference_trainer/batch.h"
#include "reference_trainer/mf.h"
#include "reference_trainer/prepare.h"
#include "reference_trainer/svm.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using Objective = std::function<double(const std::vector<double>&)>;

constexpr BatchKey kKey{.worker = 1, .iteration = 3};

std::vector<std::size_t> batch_samples(const WorkloadConfig& config, std::size_t training) {
  BatchSampler sampler(config, training);
  sampler.start(kKey);
  std::vector<std::size_t> samples;
  for (int part = 0; part < sampler.parts(); ++part) {
    for (const std::size_t sample : sampler.part(part)) samples.push_back(sample);
  }
  return samples;
}

Objective svm_objective(const ExampleView& data, const std::vector<std::size_t>& samples) {
  return [&data, samples](const std::vector<double>& p) {
    double loss = 0;
    std::set<std::uint32_t> features;
    for (const std::size_t row : samples) {
      double score = p[data.features];
      for (std::uint64_t i = data.row_start[row]; i < data.row_start[row + 1]; ++i) {
        score += p[data.column[i]] * data.value[i];
        features.insert(data.column[i]);
      }
      loss += std::log(1 + std::exp(-data.label[row] * score));
    }
    double squares = 0;
    for (const std::uint32_t feature : features) squares += p[feature] * p[feature];
    return loss / static_cast<double>(samples.size()) + kSvmRegularization / 2 * squares;
  };
}

Objective mf_objective(const RatingView& data, const std::vector<std::size_t>& samples) {
  double mean = 0;
  for (std::size_t i = 0; i < data.training; ++i) mean += data.rating[i];
  mean /= static_cast<double>(data.training);
  return [&data, samples, mean](const std::vector<double>& p) {
    constexpr std::size_t kBlock = 1 + kMfFactors;
    double sum = 0;
    for (const std::size_t sample : samples) {
      const double* user = &p[data.user[sample] * kBlock];
      const double* item = &p[(data.users + data.item[sample]) * kBlock];
      double prediction = mean + user[0] + item[0];
      double squares = user[0] * user[0] + item[0] * item[0];
      for (std::size_t f = 1; f < kBlock; ++f) {
        prediction += user[f] * item[f];
        squares += user[f] * user[f] + item[f] * item[f];
      }
      const double error = data.rating[sample] - prediction;
      sum += error * error / 2 + kMfRegularization / 2 * squares;
    }
    return sum;
  };
}

// Every parameter's gradient, read off the stepper's update, against the objective's slope.
void expect_gradient(const Workload& workload, const WorkloadConfig& config,
                     const Objective& objective) {
  std::vector<float> start(workload.layout().parameters);
  Random random(42, Stream::kGenerate);
  for (float& value : start) value = static_cast<float>(0.5 * random.normal());
  const auto stepper = workload.make_stepper();
  std::copy(start.begin(), start.end(), stepper->replica().begin());
  stepper->replica_changed();
  // A different minibatch first: nothing of it may be left over.
  stepper->start({.worker = 2, .iteration = 9});
  stepper->compute(0);
  stepper->start(kKey);
  for (int part = 0; part < stepper->micro_batches(); ++part) stepper->compute(part);
  const Update& update = stepper->finish();

  std::map<std::uint32_t, double> gradient;
  for (std::size_t i = 0; i < update.indices.size(); ++i) {
    gradient[update.indices[i]] = -update.deltas[i] / config.learning_rate;
  }
  ASSERT_EQ(gradient.size(), update.indices.size());
  ASSERT_GT(gradient.size(), 20U);
  std::vector<double> p(start.begin(), start.end());
  constexpr double kStep = 1e-5;
  std::size_t nonzero = 0;
  for (std::uint32_t i = 0; i < p.size(); ++i) {
    const double value = p[i];
    p[i] = value + kStep;
    const double above = objective(p);
    p[i] = value - kStep;
    const double below = objective(p);
    p[i] = value;
    const double slope = (above - below) / (2 * kStep);
    const double found = gradient.contains(i) ? gradient[i] : 0;
    nonzero += std::abs(slope) > 1e-4;
    EXPECT_NEAR(found, slope, 2e-6 * std::max(1.0, std::abs(slope))) << "parameter " << i;
  }
  EXPECT_GT(nonzero, 20U) << "the check would pass on nothing";
}

TEST(Gradient, OfTheLinearModelMatchesFiniteDifferences) {
  const SharedArrays data = testing::small_data(WorkloadKind::kSvm);
  const WorkloadConfig config = testing::small_config(WorkloadKind::kSvm);
  const ExampleView view = view_examples(data);
  expect_gradient(*make_workload(config, data), config,
                  svm_objective(view, batch_samples(config, view.training)));
}

TEST(Gradient, OfMatrixFactorizationMatchesFiniteDifferences) {
  const SharedArrays data = testing::small_data(WorkloadKind::kMf);
  const WorkloadConfig config = testing::small_config(WorkloadKind::kMf);
  const RatingView view = view_ratings(data);
  expect_gradient(*make_workload(config, data), config,
                  mf_objective(view, batch_samples(config, view.training)));
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
