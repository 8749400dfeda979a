// The layers of the network on the CPU: each forwards against the plainest code there is, backwards
// against central differences, in double; then the whole network, and float against double.
#include "reference_trainer/cnn_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "reference_trainer/cnn_network.h"
#include "reference_trainer/gemm.h"
#include "tests/unit/reference_trainer/cnn_reference.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using testing::draw_normals;
using testing::draw_parameters;
using testing::error_of;
using Values = std::vector<double>;

constexpr double kStep = 1e-5;
constexpr double kRelative = 1e-4;

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `found` must be the derivatives of `loss` with respect to `values`, which loss() reads.
void expect_slopes(Values& values, const Values& found, const std::function<double()>& loss,
                   const char* what) {
  ASSERT_EQ(values.size(), found.size());
  std::size_t nonzero = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    values[i] = value + kStep;
    const double above = loss();
    values[i] = value - kStep;
    const double below = loss();
    values[i] = value;
    const double slope = (above - below) / (2 * kStep);
    nonzero += std::abs(slope) > 1e-3;
    EXPECT_NEAR(found[i], slope, kRelative * std::max(1e-2, std::abs(slope))) << what << " " << i;
  }
  EXPECT_GE(nonzero * 5, values.size()) << what << ": the check would pass on nothing";
}

// ---- Products

template <typename T>
void expect_products() {
  const std::size_t m = 3, n = 5, k = 7;
  const Values a = draw_normals(m * k, 1), b = draw_normals(k * n, 2), c = draw_normals(m * n, 3);
  for (const Transpose turn_a : {Transpose::kNo, Transpose::kYes}) {
    for (const Transpose turn_b : {Transpose::kNo, Transpose::kYes}) {
      for (const Into into : {Into::kOverwrite, Into::kAdd}) {
        std::vector<T> stored_a(a.size()), stored_b(b.size()), result(c.begin(), c.end());
        Values expected = into == Into::kAdd ? c : Values(c.size());
        for (std::size_t i = 0; i < m; ++i) {
          for (std::size_t p = 0; p < k; ++p) {
            const std::size_t place_a = turn_a == Transpose::kYes ? p * m + i : i * k + p;
            stored_a[place_a] = static_cast<T>(a[i * k + p]);
            for (std::size_t j = 0; j < n; ++j) {
              const std::size_t place_b = turn_b == Transpose::kYes ? j * k + p : p * n + j;
              stored_b[place_b] = static_cast<T>(b[p * n + j]);
              expected[i * n + j] += a[i * k + p] * b[p * n + j];
            }
          }
        }
        multiply(turn_a, turn_b, m, n, k, stored_a.data(), stored_b.data(), into, result.data());
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(double{result[i]}, expected[i], 1e-5);
        }
      }
    }
  }
}

TEST(Multiply, AgreesWithThreeLoopsForEveryTransposition) {
  expect_products<float>();
  expect_products<double>();
}

// ---- Convolution

// Not a square, so that a mix-up of height and width shows.
constexpr ConvShape kConv{
    .channels_in = 2, .channels_out = 3, .kernel = 3, .height = 4, .width = 6};

struct Convolution {
  ConvShape shape;
  Values weights, bias, input, columns;

  explicit Convolution(const ConvShape& conv)
      : shape(conv),
        weights(draw_normals(conv.weights(), 1)),
        bias(draw_normals(conv.channels_out, 2)),
        input(draw_normals(conv.inputs(), 3)),
        columns(conv.columns()) {}

  Values forward() {
    Values output(shape.outputs());
    convolve(shape, weights.data(), bias.data(), input.data(), output.data(), columns.data());
    return output;
  }

  // Straight from the definition.
  double output_at(std::size_t o, std::size_t y, std::size_t x) const {
    const auto pad = static_cast<int>(shape.kernel / 2);
    double sum = bias[o];
    std::size_t weight = o * shape.patch();
    for (std::size_t c = 0; c < shape.channels_in; ++c) {
      for (int ky = -pad; ky <= pad; ++ky) {
        for (int kx = -pad; kx <= pad; ++kx, ++weight) {
          const int row = static_cast<int>(y) + ky;
          const int column = static_cast<int>(x) + kx;
          if (row < 0 || column < 0 || row >= static_cast<int>(shape.height) ||
              column >= static_cast<int>(shape.width)) {
            continue;
          }
          sum += weights[weight] *
                 input[(c * shape.height + static_cast<std::size_t>(row)) * shape.width +
                       static_cast<std::size_t>(column)];
        }
      }
    }
    return sum;
  }
};

TEST(Convolve, AgreesWithItsDefinition) {
  for (const std::size_t kernel : {1U, 3U, 5U, 9U}) {  // the largest reaches beyond the image
    ConvShape shape = kConv;
    shape.kernel = kernel;
    Convolution conv(shape);
    const Values output = conv.forward();
    std::size_t i = 0;
    for (std::size_t o = 0; o < shape.channels_out; ++o) {
      for (std::size_t y = 0; y < shape.height; ++y) {
        for (std::size_t x = 0; x < shape.width; ++x, ++i) {
          ASSERT_NEAR(output[i], conv.output_at(o, y, x), 1e-12) << kernel << ", output " << i;
        }
      }
    }
  }
}

TEST(Convolve, GradientsMatchFiniteDifferences) {
  Convolution conv(kConv);
  const Values d_output = draw_normals(kConv.outputs(), 4);
  Values d_weights(kConv.weights()), d_bias(kConv.channels_out), d_input(kConv.inputs(), 77);
  convolve_backward(kConv, conv.weights.data(), conv.input.data(), d_output.data(),
                    d_weights.data(), d_bias.data(), d_input.data(), conv.columns.data());
  const auto loss = [&] { return dot(conv.forward(), d_output); };
  expect_slopes(conv.weights, d_weights, loss, "weight");
  expect_slopes(conv.bias, d_bias, loss, "bias");
  expect_slopes(conv.input, d_input, loss, "input");
}

TEST(Convolve, AddsToTheGradientsOfParameters) {
  Convolution conv(kConv);
  const Values d_output = draw_normals(kConv.outputs(), 4);
  Values d_weights(kConv.weights()), d_bias(kConv.channels_out);
  const auto backward = [&] {
    convolve_backward<double>(kConv, conv.weights.data(), conv.input.data(), d_output.data(),
                              d_weights.data(), d_bias.data(), nullptr, conv.columns.data());
  };
  backward();
  const Values once = d_weights;
  backward();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(d_weights[i], 2 * once[i], 1e-12);
}

// ---- The other layers

TEST(MaxPool, TakesTheLargestOfEachSquareAndSendsTheDerivativeBackThere) {
  const Values input{1,  5,  2, 2,  //
                     3,  4,  2, 2,  //
                     -4, -3, 0, 9, -2, -5, 8, 7};
  Values output(4);
  std::vector<std::uint8_t> chosen(4);
  max_pool(1, 4, 4, input.data(), output.data(), chosen.data());
  EXPECT_EQ(output, (Values{5, 2, -2, 9}));
  const Values d_output{10, 20, 30, 40};
  Values d_input(16, 77);
  max_pool_backward(1, 4, 4, d_output.data(), chosen.data(), d_input.data());
  EXPECT_EQ(d_input, (Values{0, 10, 20, 0, 0, 0, 0, 0, 0, 0, 0, 40, 30, 0, 0, 0}));
}

TEST(MaxPool, GradientMatchesFiniteDifferences) {
  const std::size_t channels = 2, height = 4, width = 6;
  Values input = draw_normals(channels * height * width, 5);
  const Values d_output = draw_normals(input.size() / 4, 6);
  Values output(d_output.size()), d_input(input.size(), 77);
  std::vector<std::uint8_t> chosen(output.size());
  const auto loss = [&] {
    max_pool(channels, height, width, input.data(), output.data(), chosen.data());
    return dot(output, d_output);
  };
  loss();
  max_pool_backward(channels, height, width, d_output.data(), chosen.data(), d_input.data());
  expect_slopes(input, d_input, loss, "input");
}

TEST(Rectify, GradientMatchesFiniteDifferencesAndNaNStaysVisible) {
  Values input = draw_normals(40, 7);
  const Values d_output = draw_normals(40, 8);
  const auto forward = [&] {
    Values output = input;
    rectify(std::span<double>(output));
    return output;
  };
  Values derivative = d_output;
  rectify_backward(std::span<const double>(forward()), std::span<double>(derivative));
  expect_slopes(
      input, derivative, [&] { return dot(forward(), d_output); }, "input");
  input[0] = std::nan("");
  EXPECT_TRUE(std::isnan(forward()[0]));
}

TEST(Connect, GradientsMatchFiniteDifferences) {
  const std::size_t samples = 3, in = 5, out = 4;
  Values weights = draw_normals(out * in, 1), bias = draw_normals(out, 2),
         input = draw_normals(samples * in, 3);
  const Values d_output = draw_normals(samples * out, 4);
  Values d_weights(weights.size()), d_bias(out), d_input(input.size(), 77);
  connect_backward(samples, in, out, weights.data(), input.data(), d_output.data(),
                   d_weights.data(), d_bias.data(), d_input.data());
  const auto loss = [&] {
    Values output(samples * out);
    connect(samples, in, out, weights.data(), bias.data(), input.data(), output.data());
    return dot(output, d_output);
  };
  expect_slopes(weights, d_weights, loss, "weight");
  expect_slopes(bias, d_bias, loss, "bias");
  expect_slopes(input, d_input, loss, "input");
}

TEST(CrossEntropy, GradientMatchesFiniteDifferences) {
  const std::vector<std::uint8_t> labels{2, 0, 3};
  Values scores = draw_normals(12, 9);
  const auto loss = [&] {
    Values copy = scores;
    return cross_entropy(4, labels, copy.data()).loss_sum;
  };
  Values derivatives = scores;
  cross_entropy(4, labels, derivatives.data());
  expect_slopes(scores, derivatives, loss, "score");
}

TEST(CrossEntropy, StandsLargeScoresAndCountsWhatIsRight) {
  const std::vector<std::uint8_t> labels{1, 0, 1};
  Values scores{1000, 3000, -5, -5, 2, 1};
  const BatchScore score = cross_entropy(2, labels, scores.data());
  EXPECT_NEAR(score.loss_sum, 0 + std::log(2.0) + std::log(1 + std::exp(1.0)), 1e-12);
  EXPECT_EQ(score.correct, 2U);
}

// ---- The whole network

constexpr CnnShape kSmall = testing::kReferenceShape;
const std::vector<std::uint8_t> kLabels{1, 3, 0};

TEST(CnnNet, GradientMatchesFiniteDifferences) {
  CnnNet<double> net(kSmall, 3);
  Values parameters = draw_parameters(net.layout());
  const Values images = draw_normals(3 * kSmall.pixels(), 22);
  Values gradient(parameters.size());
  net.run(parameters, images, kLabels, gradient);
  expect_slopes(
      parameters, gradient,
      [&] { return net.run(parameters, images, kLabels, std::span<double>()).loss_sum; },
      "parameter");
}

TEST(CnnNet, SumsUpGradientsOverCallsHoweverTheBatchIsCut) {
  CnnNet<double> net(kSmall, 3);
  const Values parameters = draw_parameters(net.layout());
  const Values images = draw_normals(3 * kSmall.pixels(), 22);
  Values whole(parameters.size()), parts(parameters.size());
  const BatchScore at_once = net.run(parameters, images, kLabels, whole);
  BatchScore sum;
  for (std::size_t s = 0; s < 3; ++s) {
    const auto image = std::span(images).subspan(s * kSmall.pixels(), kSmall.pixels());
    const BatchScore one = net.run(parameters, image, std::span(kLabels).subspan(s, 1), parts);
    sum.loss_sum += one.loss_sum;
    sum.correct += one.correct;
  }
  EXPECT_NEAR(sum.loss_sum, at_once.loss_sum, 1e-12);
  EXPECT_EQ(sum.correct, at_once.correct);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-12);
}

TEST(CnnNet, TheBackendInFloatAgreesWithDouble) {
  testing::expect_agreement(*make_cpu_backend(kSmall, 5), kSmall, 5);
}

TEST(CnnNet, HasTheSizesThatItsDescriptionGives) {
  const CnnLayout layout((CnnShape()));
  EXPECT_EQ(layout.features, 1'024U);
  EXPECT_EQ(layout.parameters, 2'432U + 9'248U + 18'496U + 262'400U + 2'570U);
  for (std::size_t i = 0; i + 1 < layout.layers.size(); ++i) {
    EXPECT_EQ(layout.layers[i].bias + layout.layers[i].bias_count, layout.layers[i + 1].weights);
  }
}

TEST(CnnNet, ShapesAndBatchesThatDoNotFitAreRefused) {
  CnnShape odd = kSmall;
  odd.width = 12;
  EXPECT_EQ(error_of<std::invalid_argument>([&] { CnnLayout{odd}; }),
            "a network for 4 classes of images of 2 x 8 x 12 is not allowed; allowed: 1 to 256 "
            "classes, a height and width that are multiples of 8, odd kernels, no layer without "
            "outputs");
  odd = kSmall;
  odd.conv[1].kernel = 2;
  EXPECT_THROW(CnnLayout{odd}, std::invalid_argument);
  CnnNet<double> net(kSmall, 2);
  const Values parameters = draw_parameters(net.layout());
  const Values images = draw_normals(3 * kSmall.pixels(), 22);
  EXPECT_NE(error_of<std::invalid_argument>([&] {
              net.run(parameters, images, kLabels, std::span<double>());
            }).find("up to 2 samples of 256 values and 350 parameters; got 3 samples"),
            std::string::npos);
}

}  // namespace
}  // namespace syncd::trainer
