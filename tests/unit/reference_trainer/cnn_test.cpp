// The `cnn` workload: its update (gradient, momentum, weight decay), that a seed means one result,
// and that the generated images are learned by the network and not by a linear model. With a
// network of fewer channels than the real one, which takes too long here.
#include "reference_trainer/model/cnn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/batch.h"
#include "reference_trainer/model/gemm.h"
#include "tests/unit/reference_trainer/cnn_reference.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::HasSubstr;

constexpr CnnShape kNarrow{.conv = {{{4, 3}, {4, 3}, {6, 3}}}, .hidden = 12};
constexpr BatchKey kKey{.worker = 1, .iteration = 3};

WorkloadConfig config() {
  WorkloadConfig config = testing::small_config(WorkloadKind::kCnn);
  config.batch = 10;  // parts of 2, 3, 2, 3
  config.momentum = 0.5;
  config.weight_decay = 0.25;
  return config;
}

// A stepper over the small data with the workload's initial parameters.
struct Fixture {
  WorkloadConfig settings;
  SharedArrays data = testing::small_data(WorkloadKind::kCnn);
  ImageView view = view_images(data);
  std::unique_ptr<Workload> workload;
  std::unique_ptr<Stepper> stepper;

  explicit Fixture(const WorkloadConfig& with = config())
      : settings(with), workload(make_cnn(with, data, kNarrow)), stepper(workload->make_stepper()) {
    workload->initialize(stepper->replica());
    stepper->replica_changed();
  }

  Update update(BatchKey key) const {
    stepper->start(key);
    for (int part = 0; part < stepper->micro_batches(); ++part) stepper->compute(part);
    return stepper->finish();
  }

  // The mean gradient of the minibatch, and its loss, in double and by other means.
  double reference(BatchKey key, std::vector<double>& gradient) const {
    BatchSampler sampler(settings, view.training);
    sampler.start(key);
    std::vector<double> images;
    std::vector<std::uint8_t> labels;
    for (int part = 0; part < sampler.parts(); ++part) {
      for (const std::size_t sample : sampler.part(part)) {
        const auto pixels = view.pixels(sample);
        for (std::size_t i = 0; i < pixels.size(); ++i) {
          const std::size_t channel = i / kImageArea;
          images.push_back((pixels[i] / 255.0 - view.mean[channel]) / view.deviation[channel]);
        }
        labels.push_back(view.label(sample));
      }
    }
    const testing::ReferenceNet net(kNarrow);
    const std::span<float> replica = stepper->replica();
    gradient.assign(replica.size(), 0);
    const std::vector<double> parameters(replica.begin(), replica.end());
    const double loss = net.run(parameters, images, labels, gradient).loss_sum;
    for (double& value : gradient) value /= static_cast<double>(labels.size());
    return loss / static_cast<double>(labels.size());
  }
};

TEST(Cnn, TheUpdateIsTheLearningRateTimesTheVelocity) {
  const Fixture cnn;
  const WorkloadConfig settings = config();
  const CnnLayout layout(kNarrow);
  std::vector<bool> is_weight(layout.parameters, false);
  for (const auto& layer : layout.layers) {
    std::fill_n(is_weight.begin() + static_cast<std::ptrdiff_t>(layer.weights), layer.weight_count,
                true);
  }
  std::vector<double> velocity(layout.parameters);
  std::vector<double> gradient;
  for (const std::int64_t iteration : {0, 1, 2}) {
    const BatchKey key{.worker = 1, .iteration = iteration};
    const double loss = cnn.reference(key, gradient);
    const Update update = cnn.update(key);
    EXPECT_NEAR(update.loss, loss, 1e-5);
    EXPECT_EQ(update.samples, 10U);
    ASSERT_EQ(update.deltas.size(), velocity.size());
    for (std::size_t i = 0; i < velocity.size(); ++i) {
      const double decay = is_weight[i] ? settings.weight_decay * cnn.stepper->replica()[i] : 0;
      velocity[i] = settings.momentum * velocity[i] + gradient[i] + decay;
      ASSERT_NEAR(update.deltas[i], -settings.learning_rate * velocity[i], 1e-6) << i;
    }
    add_update(update, cnn.stepper->replica());
    cnn.stepper->replica_changed();
  }
}

TEST(Cnn, AnAbandonedMinibatchLeavesNothingBehind) {
  const Fixture straight;
  const Fixture restarted;
  restarted.stepper->start({.worker = 2, .iteration = 9});
  restarted.stepper->compute(0);
  restarted.stepper->compute(1);
  EXPECT_EQ(restarted.update(kKey).deltas, straight.update(kKey).deltas);
}

TEST(Cnn, ASeedMeansOneResult) {
  const Fixture one;
  const Fixture two;
  const auto train = [](const Fixture& cnn) {
    std::vector<float> parameters(cnn.workload->layout().parameters);
    cnn.workload->initialize(parameters);
    train_serially(*cnn.workload, 3, 12, parameters);
    return parameters;
  };
  const std::vector<float> parameters = train(one);
  EXPECT_EQ(parameters, train(two));
  EXPECT_EQ(one.workload->evaluate(parameters), two.workload->evaluate(parameters));
  WorkloadConfig other = config();
  other.seed = 8;
  EXPECT_NE(parameters, train(Fixture(other)));
}

TEST(Cnn, AnUntrainedNetworkGuesses) {
  const Fixture cnn;
  std::vector<float> zero(cnn.workload->layout().parameters, 0.0F);
  EXPECT_NEAR(cnn.workload->evaluate(zero), std::log(10.0), 1e-6);
  // All scores equal: the first class is taken, which about a tenth of the images are of.
  std::size_t first_class = 0;
  for (std::size_t i = cnn.view.training; i < cnn.view.size(); ++i) {
    first_class += cnn.view.label(i) == 0;
  }
  EXPECT_DOUBLE_EQ(*cnn.workload->accuracy(zero), static_cast<double>(first_class) / 60);
  EXPECT_EQ(cnn.workload->held_out_samples(), 60U);
}

// ---- What is generated

// Deterministic: one process, fixed seed. The bounds leave room for another rounding, not for
// another learner: guessing is right about a tenth of the time.
class GeneratedImages : public ::testing::Test {
 protected:
  SharedArrays data_ = prepare_images(
      generate_images({.training = 2'000, .test = 500}, ImageFormat::kCifar10, 1), 1);
};

TEST_F(GeneratedImages, AreLearnedByTheNetwork) {
  WorkloadConfig settings = config();
  settings.batch = 16;
  settings.learning_rate = 0.02;
  settings.momentum = kCnnMomentum;
  settings.weight_decay = kCnnWeightDecay;
  const auto workload =
      make_cnn(settings, data_, {.conv = {{{8, 5}, {8, 3}, {16, 3}}}, .hidden = 32});
  std::vector<float> parameters(workload->layout().parameters);
  workload->initialize(parameters);
  EXPECT_GT(workload->evaluate(parameters), 2.2);
  train_serially(*workload, settings.workers, 500, parameters);
  EXPECT_LT(workload->evaluate(parameters), 1.6);
  EXPECT_GT(*workload->accuracy(parameters), 0.4);
}

// Multinomial logistic regression on the pixels, at the best of several rates.
TEST_F(GeneratedImages, AreNotLearnedByALinearModel) {
  const ImageView view = view_images(data_);
  const auto pixels_of = [&](std::size_t sample) {
    std::vector<float> values(kImageBytes);
    for (std::size_t i = 0; i < kImageBytes; ++i) {
      const std::size_t channel = i / kImageArea;
      values[i] = static_cast<float>((view.pixels(sample)[i] / 255.0 - view.mean[channel]) /
                                     view.deviation[channel]);
    }
    return values;
  };
  for (const float rate : {1e-4F, 1e-3F}) {
    std::vector<float> weights(10 * kImageBytes), bias(10), scores(10);
    const auto score = [&](const std::vector<float>& input) {
      scores = bias;
      multiply(Transpose::kNo, Transpose::kYes, 1, 10, kImageBytes, input.data(), weights.data(),
               Into::kAdd, scores.data());
    };
    for (std::size_t step = 0; step < 2 * view.training; ++step) {
      const std::size_t sample = step % view.training;
      const std::vector<float> input = pixels_of(sample);
      score(input);
      // Towards the label: the rate times 1 at the label less softmax.
      const float largest = *std::max_element(scores.begin(), scores.end());
      float sum = 0;
      for (float& value : scores) sum += value = std::exp(value - largest);
      for (float& value : scores) value *= -rate / sum;
      scores[view.label(sample)] += rate;
      multiply(Transpose::kYes, Transpose::kNo, 10, kImageBytes, 1, scores.data(), input.data(),
               Into::kAdd, weights.data());
      for (std::size_t c = 0; c < 10; ++c) bias[c] += scores[c];
    }
    std::size_t correct = 0;
    for (std::size_t sample = view.training; sample < view.size(); ++sample) {
      score(pixels_of(sample));
      correct +=
          std::max_element(scores.begin(), scores.end()) - scores.begin() == view.label(sample);
    }
    EXPECT_GT(correct, 0U);
    EXPECT_LT(static_cast<double>(correct) / 500, 0.25) << "at rate " << rate;
    RecordProperty("correct", static_cast<int>(correct));
  }
}

TEST_F(GeneratedImages, ASeedMeansTheSameImagesAndAnotherSeedOthers) {
  for (const ImageFormat format : {ImageFormat::kCifar10, ImageFormat::kCifar100}) {
    const ImageShape shape{.training = 20, .test = 10};
    const ImageSet one = generate_images(shape, format, 3);
    EXPECT_EQ(one.training.pixels, generate_images(shape, format, 3).training.pixels);
    EXPECT_NE(one.training.pixels, generate_images(shape, format, 4).training.pixels);
    EXPECT_NE(one.training.label, one.test.label);
  }
}

TEST(Cnn, WhatDoesNotFitIsRefused) {
  const SharedArrays data = testing::small_data(WorkloadKind::kCnn);
  WorkloadConfig many = config();
  many.workers = 301;
  EXPECT_THAT(testing::error_of<std::invalid_argument>([&] { make_cnn(many, data); }),
              HasSubstr("300 training samples are too few for 301 workers"));
  EXPECT_THROW(make_cnn(config(), testing::small_data(WorkloadKind::kMf)), std::invalid_argument);
  EXPECT_FALSE(make_workload(testing::small_config(WorkloadKind::kMf),
                             testing::small_data(WorkloadKind::kMf))
                   ->accuracy({})
                   .has_value());
}

}  // namespace
}  // namespace syncd::trainer
