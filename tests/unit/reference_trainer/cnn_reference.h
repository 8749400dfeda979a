// A small network with its data, and what CnnNet<double> makes of them: what every backend is held
// against. Used on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "reference_trainer/cnn_network.h"
#include "reference_trainer/random.h"

namespace syncd::trainer::testing {

// Not square, and each convolution has another kernel, so that a mix-up shows.
inline constexpr CnnShape kReferenceShape{.channels = 2,
                                          .height = 8,
                                          .width = 16,
                                          .classes = 4,
                                          .conv = {{{3, 5}, {4, 3}, {3, 1}}},
                                          .hidden = 6};

inline std::vector<double> draw_normals(std::size_t count, std::uint64_t seed) {
  Random random(seed, Stream::kGenerate);
  std::vector<double> values(count);
  for (double& value : values) value = random.normal();
  return values;
}

// Large enough for every layer to matter.
inline std::vector<double> draw_parameters(const CnnLayout& layout) {
  std::vector<double> values = draw_normals(layout.parameters, 21);
  for (const CnnLayout::Layer& layer : layout.layers) {
    const double scale = std::sqrt(2.0 / static_cast<double>(layer.fan_in));
    for (std::size_t i = 0; i < layer.weight_count; ++i) values[layer.weights + i] *= scale;
    for (std::size_t i = 0; i < layer.bias_count; ++i) values[layer.bias + i] *= 0.3;
  }
  return values;
}

// A backend made for `samples_max` samples or more gives the double network's loss and gradient,
// for batches of several sizes, and the sum of the gradients of several batches.
inline void expect_agreement(CnnBackend& backend, const CnnShape& shape, std::size_t samples_max) {
  CnnNet<double> reference(shape, samples_max);
  const std::vector<double> exact = draw_parameters(reference.layout());
  const std::vector<float> parameters(exact.begin(), exact.end());
  const std::vector<double> rounded(parameters.begin(), parameters.end());
  backend.parameters(parameters);
  backend.clear_gradient();
  std::vector<double> expected(exact.size());
  for (std::size_t samples = 1; samples <= samples_max; samples += 2) {
    const std::vector<double> drawn = draw_normals(samples * shape.pixels(), 30 + samples);
    const std::vector<float> images(drawn.begin(), drawn.end());
    std::vector<std::uint8_t> labels;
    for (std::size_t s = 0; s < samples; ++s) {
      labels.push_back(static_cast<std::uint8_t>((3 * s + samples) % shape.classes));
    }
    const BatchScore score =
        reference.run(rounded, std::vector<double>(images.begin(), images.end()), labels, expected);
    const BatchScore evaluated = backend.evaluate(images, labels);
    EXPECT_NEAR(evaluated.loss_sum, score.loss_sum, 1e-4);
    EXPECT_EQ(evaluated.correct, score.correct);
    EXPECT_EQ(backend.train(images, labels).loss_sum, evaluated.loss_sum);
  }
  const std::span<const float> gradient = backend.gradient();
  ASSERT_EQ(gradient.size(), expected.size());
  // Layer by layer, so that a small one is not hidden behind a large one.
  for (const CnnLayout::Layer& layer : reference.layout().layers) {
    double norm = 0;
    double difference = 0;
    for (std::size_t i = layer.weights; i < layer.bias + layer.bias_count; ++i) {
      norm += expected[i] * expected[i];
      difference += std::pow(double{gradient[i]} - expected[i], 2);
    }
    EXPECT_GT(norm, 1e-3);
    EXPECT_LT(std::sqrt(difference), 1e-4 * std::sqrt(norm)) << "layer at " << layer.weights;
  }
  backend.clear_gradient();
  EXPECT_EQ(backend.gradient()[0], 0.0F);
}

}  // namespace syncd::trainer::testing
