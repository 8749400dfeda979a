// See cnn_reference.h.
#include "tests/unit/reference_trainer/cnn_reference.h"

namespace syncd::trainer::testing {

// visit(output, weight, input) for every product that is in a layer's outputs.
template <typename Visit>
void ReferenceNet::for_each_tap(std::size_t layer, const Visit& visit) const {
  if (layer >= 3) {
    const std::size_t in = layout_.layers[layer].fan_in;
    const std::size_t out = layout_.layers[layer].bias_count;
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < in; ++i) visit(o, o * in + i, i);
    }
    return;
  }
  const ConvShape& conv = layout_.conv[layer];
  const auto height = static_cast<long>(conv.height);
  const auto width = static_cast<long>(conv.width);
  const auto kernel = static_cast<long>(conv.kernel);
  std::size_t weight = 0;
  for (std::size_t o = 0; o < conv.channels_out; ++o) {
    for (std::size_t c = 0; c < conv.channels_in; ++c) {
      for (long ky = 0; ky < kernel; ++ky) {
        for (long kx = 0; kx < kernel; ++kx, ++weight) {
          for (long y = 0; y < height; ++y) {
            for (long x = 0; x < width; ++x) {
              const long row = y + ky - kernel / 2;
              const long column = x + kx - kernel / 2;
              if (row < 0 || row >= height || column < 0 || column >= width) continue;
              visit((o * conv.height + static_cast<std::size_t>(y)) * conv.width +
                        static_cast<std::size_t>(x),
                    weight,
                    (c * conv.height + static_cast<std::size_t>(row)) * conv.width +
                        static_cast<std::size_t>(column));
            }
          }
        }
      }
    }
  }
}

double ReferenceNet::forward(std::span<const double> parameters, std::span<const double> image,
                             std::uint8_t label, Trace& trace, bool& correct) const {
  trace.inputs[0].assign(image.begin(), image.end());
  for (std::size_t l = 0; l < 5; ++l) {
    const CnnLayout::Layer& layer = layout_.layers[l];
    const double* weights = parameters.data() + layer.weights;
    const double* bias = parameters.data() + layer.bias;
    const std::size_t places = l < 3 ? layout_.conv[l].area() : 1;
    Values& output = trace.outputs[l];
    output.clear();
    for (std::size_t o = 0; o < layer.bias_count; ++o) output.insert(output.end(), places, bias[o]);
    const double* input = trace.inputs[l].data();
    for_each_tap(l, [&](std::size_t o, std::size_t w, std::size_t i) {
      output[o] += weights[w] * input[i];
    });
    if (l == 4) break;
    Values& next = trace.inputs[l + 1];
    next = output;
    for (double& value : next) value = std::max(0.0, value);
    if (l >= 3) continue;
    // The largest of each 2 x 2 square.
    const std::size_t width = layout_.conv[l].width;
    const Values rectified = next;
    next.clear();
    trace.chosen[l].clear();
    for (std::size_t row = 0; row < rectified.size() / width; row += 2) {
      for (std::size_t x = 0; x < width; x += 2) {
        const std::size_t first = row * width + x;
        std::size_t best = first;
        for (const std::size_t other : {first + 1, first + width, first + width + 1}) {
          if (rectified[other] > rectified[best]) best = other;
        }
        trace.chosen[l].push_back(best);
        next.push_back(rectified[best]);
      }
    }
  }
  const Values& scores = trace.outputs[4];
  const auto best = std::max_element(scores.begin(), scores.end());
  correct = best - scores.begin() == label;
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - *best);
  return std::log(sum) - (scores[label] - *best);
}

void ReferenceNet::backward(std::span<const double> parameters, Trace& trace, std::uint8_t label,
                            std::span<double> gradient) const {
  // Of the scores: softmax, less 1 at the label.
  Values derivative = trace.outputs[4];
  const double largest = *std::max_element(derivative.begin(), derivative.end());
  double sum = 0;
  for (double& value : derivative) sum += value = std::exp(value - largest);
  for (double& value : derivative) value /= sum;
  derivative[label] -= 1;
  for (std::size_t l = 5; l-- > 0;) {
    if (l < 3) {
      Values spread(trace.outputs[l].size());
      for (std::size_t i = 0; i < derivative.size(); ++i) {
        spread[trace.chosen[l][i]] = derivative[i];
      }
      derivative = spread;
    }
    for (std::size_t i = 0; l < 4 && i < derivative.size(); ++i) {
      if (trace.outputs[l][i] <= 0) derivative[i] = 0;
    }
    const CnnLayout::Layer& layer = layout_.layers[l];
    const double* weights = parameters.data() + layer.weights;
    double* d_weights = gradient.data() + layer.weights;
    const std::size_t places = derivative.size() / layer.bias_count;
    for (std::size_t o = 0; o < derivative.size(); ++o) {
      gradient[layer.bias + o / places] += derivative[o];
    }
    Values d_input(trace.inputs[l].size());
    const double* input = trace.inputs[l].data();
    for_each_tap(l, [&](std::size_t o, std::size_t w, std::size_t i) {
      d_weights[w] += derivative[o] * input[i];
      d_input[i] += derivative[o] * weights[w];
    });
    derivative = d_input;
  }
}

BatchScore ReferenceNet::run(std::span<const double> parameters, std::span<const double> images,
                             std::span<const std::uint8_t> labels,
                             std::span<double> gradient) const {
  BatchScore score;
  Trace trace;
  for (std::size_t s = 0; s < labels.size(); ++s) {
    bool correct = false;
    score.loss_sum += forward(parameters, images.subspan(s * shape_.pixels(), shape_.pixels()),
                              labels[s], trace, correct);
    score.correct += correct;
    if (!gradient.empty()) backward(parameters, trace, labels[s], gradient);
  }
  return score;
}

std::vector<double> draw_normals(std::size_t count, std::uint64_t seed) {
  Random random(seed, Stream::kGenerate);
  std::vector<double> values(count);
  for (double& value : values) value = random.normal();
  return values;
}

std::vector<double> draw_parameters(const CnnLayout& layout) {
  std::vector<double> values = draw_normals(layout.parameters, 21);
  for (const CnnLayout::Layer& layer : layout.layers) {
    const double scale = std::sqrt(2.0 / static_cast<double>(layer.fan_in));
    for (std::size_t i = 0; i < layer.weight_count; ++i) values[layer.weights + i] *= scale;
    for (std::size_t i = 0; i < layer.bias_count; ++i) values[layer.bias + i] *= 0.3;
  }
  return values;
}

void expect_agreement(CnnBackend& backend, const CnnShape& shape, std::size_t samples_max) {
  const ReferenceNet reference(shape);
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
    const std::size_t end = layer.bias + layer.bias_count;
    for (std::size_t i = layer.weights; i < end; ++i) {
      norm += expected[i] * expected[i];
      difference += std::pow(double{gradient[i]} - expected[i], 2);
    }
    EXPECT_GT(norm, 1e-3);
    EXPECT_LT(std::sqrt(difference), 1e-4 * std::sqrt(norm)) << "layer at " << layer.weights;
    const double usual = std::sqrt(norm / static_cast<double>(end - layer.weights));
    for (std::size_t i = layer.weights; i < end; ++i) {
      ASSERT_NEAR(gradient[i], expected[i], 1e-4 * std::max(usual, std::abs(expected[i])))
          << "parameter " << i;
    }
  }
  backend.clear_gradient();
  EXPECT_EQ(backend.gradient()[0], 0.0F);
}

}  // namespace syncd::trainer::testing
