// What the workloads' gradients are held against, on every device: objectives written down a second
// time here, in double, from svm.h, mf.h and cnn.h, and their central differences. Used on the
// test's thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/batch.h"
#include "reference_trainer/model/cnn.h"
#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/mf_batched.h"
#include "reference_trainer/model/svm_batched.h"
#include "tests/unit/reference_trainer/cnn_reference.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer::testing {

using Objective = std::function<double(const std::vector<double>&)>;

inline constexpr BatchKey kGradientKey{.worker = 1, .iteration = 3};

inline std::vector<std::size_t> batch_samples(const WorkloadConfig& config, std::size_t training) {
  BatchSampler sampler(config, training);
  sampler.start(kGradientKey);
  return {sampler.all().begin(), sampler.all().end()};
}

inline Objective svm_objective(const ExampleView& data, const std::vector<std::size_t>& samples) {
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

inline Objective mf_objective(const RatingView& data, const std::vector<std::size_t>& samples) {
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

// A network of fewer channels than the real one, which takes too long here.
inline constexpr CnnShape kNarrowShape{.conv = {{{4, 3}, {4, 3}, {6, 3}}}, .hidden = 12};

inline Objective cnn_objective(const ImageView& data, const WorkloadConfig& config,
                               const std::vector<std::size_t>& samples) {
  std::vector<double> images;
  std::vector<std::uint8_t> labels;
  for (const std::size_t sample : samples) {
    const auto pixels = data.pixels(sample);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const std::size_t channel = i / kImageArea;
      images.push_back((pixels[i] / 255.0 - data.mean[channel]) / data.deviation[channel]);
    }
    labels.push_back(data.label(sample));
  }
  auto net = std::make_shared<ReferenceNet>(kNarrowShape);
  return [=](const std::vector<double>& p) {
    double squares = 0;
    for (const CnnLayout::Layer& layer : net->layout().layers) {
      for (std::size_t i = 0; i < layer.weight_count; ++i) {
        squares += p[layer.weights + i] * p[layer.weights + i];
      }
    }
    return net->run(p, images, labels, {}).loss_sum / static_cast<double>(labels.size()) +
           config.weight_decay / 2 * squares;
  };
}

// One workload with its data: what a CPU and a device are to compute alike.
struct GradientCase {
  WorkloadConfig config;
  SharedArrays data;
  std::unique_ptr<CnnLayout> layout;
  StepperRequest request;
  std::unique_ptr<Workload> workload;
  Objective objective;

  explicit GradientCase(WorkloadKind kind) : config(small_config(kind)), data(small_data(kind)) {
    request = {.config = config, .ratings = {}, .examples = {}, .images = {}, .shape = {}};
    switch (kind) {
      case WorkloadKind::kMf:
        request.ratings = view_ratings(data);
        request.mean_rating = mean_rating(request.ratings);
        workload = make_workload(config, data);
        objective = mf_objective(request.ratings, batch_samples(config, request.ratings.training));
        break;
      case WorkloadKind::kSvm:
        request.examples = view_examples(data);
        workload = make_workload(config, data);
        objective =
            svm_objective(request.examples, batch_samples(config, request.examples.training));
        break;
      case WorkloadKind::kCnn:
        config.batch = 10;  // parts of 2, 3, 2, 3
        config.momentum = 0.5;
        config.weight_decay = 0.25;
        layout = std::make_unique<CnnLayout>(kNarrowShape);
        request.config = config;
        request.images = view_images(data);
        request.shape = kNarrowShape;
        request.layout = layout.get();
        workload = make_cnn(config, data, kNarrowShape);
        objective =
            cnn_objective(request.images, config, batch_samples(config, request.images.training));
        break;
    }
  }

  // Some parameters, as a stepper's replica.
  std::vector<float> begin(Stepper& stepper) const {
    std::vector<float> start(workload->layout().parameters);
    workload->initialize(start);
    Random random(42, Stream::kGenerate);
    const double deviation = config.kind == WorkloadKind::kCnn ? 0.05 : 0.5;
    for (float& value : start) value += static_cast<float>(deviation * random.normal());
    std::copy(start.begin(), start.end(), stepper.replica().begin());
    stepper.replica_changed();
    return start;
  }
};

// An update as if it were dense.
inline std::vector<double> dense(const Update& update, std::size_t parameters) {
  std::vector<float> sum(parameters);
  add_update(update, sum);
  return {sum.begin(), sum.end()};
}

// Parameters' gradients, read off the stepper's first update, against the objective's slope: every
// `stride`-th parameter.
inline void expect_gradient(const GradientCase& with, Stepper& stepper, std::size_t stride = 1) {
  const std::vector<float> start = with.begin(stepper);
  // A different minibatch first: nothing of it may be left over.
  stepper.start({.worker = 2, .iteration = 9});
  stepper.compute(0);
  const Update& update = compute_minibatch(stepper, kGradientKey);
  const std::vector<double> deltas = dense(update, start.size());
  if (!update.dense()) {
    const std::set<std::uint32_t> indices(update.indices.begin(), update.indices.end());
    ASSERT_EQ(indices.size(), update.indices.size());
    ASSERT_GT(indices.size(), 20U);
  }
  std::vector<double> p(start.begin(), start.end());
  constexpr double kStep = 1e-5;
  double norm = 0;
  double difference = 0;
  std::size_t nonzero = 0;
  for (std::size_t i = 0; i < p.size(); i += stride) {
    const double value = p[i];
    p[i] = value + kStep;
    const double above = with.objective(p);
    p[i] = value - kStep;
    const double below = with.objective(p);
    p[i] = value;
    const double slope = (above - below) / (2 * kStep);
    const double found = -deltas[i] / with.config.learning_rate;
    nonzero += std::abs(slope) > 1e-4;
    norm += slope * slope;
    difference += (found - slope) * (found - slope);
    EXPECT_NEAR(found, slope, 2e-6 * std::max(1.0, std::abs(slope))) << "parameter " << i;
  }
  EXPECT_LT(std::sqrt(difference), 1e-4 * std::sqrt(norm));
  EXPECT_GT(nonzero, 20U) << "the check would pass on nothing";
}

// The same updates from both, minibatch after minibatch, each on what the earlier ones made.
inline void expect_same_training(const GradientCase& with, Stepper& device,
                                 double tolerance = 1e-4) {
  const std::unique_ptr<Stepper> cpu = with.workload->make_stepper();
  const std::size_t parameters = with.begin(device).size();
  with.begin(*cpu);
  for (std::int64_t iteration = 0; iteration < 4; ++iteration) {
    const BatchKey key{.worker = 1, .iteration = iteration};
    const Update& expected = compute_minibatch(*cpu, key);
    const Update& found = compute_minibatch(device, key);
    const std::vector<double> a = dense(expected, parameters);
    const std::vector<double> b = dense(found, parameters);
    double norm = 0;
    double difference = 0;
    for (std::size_t i = 0; i < parameters; ++i) {
      norm += a[i] * a[i];
      difference += (a[i] - b[i]) * (a[i] - b[i]);
    }
    EXPECT_GT(norm, 1e-6);
    EXPECT_LT(std::sqrt(difference), tolerance * std::sqrt(norm)) << "minibatch " << iteration;
    EXPECT_NEAR(found.loss, expected.loss, tolerance / 10 * std::max(1.0, expected.loss));
    EXPECT_EQ(found.samples, expected.samples);
    EXPECT_EQ(found.dense(), expected.dense());
    for (Stepper* stepper : {cpu.get(), &device}) {
      add_update(expected, stepper->replica());
      stepper->replica_changed();
    }
  }
  if (with.config.kind != WorkloadKind::kCnn) return;
  const std::size_t held_out = with.workload->held_out_samples();
  const BatchScore score = device.score(with.request.images.training, held_out);
  const double loss = with.workload->evaluate(cpu->replica());
  EXPECT_NEAR(score.loss_sum / static_cast<double>(held_out), loss, tolerance * loss);
  EXPECT_NEAR(static_cast<double>(score.correct) / static_cast<double>(held_out),
              *with.workload->accuracy(cpu->replica()), tolerance < 1e-3 ? 0 : 0.1);
}

}  // namespace syncd::trainer::testing
