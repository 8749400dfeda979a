// The network in double that every backend is held against, itself against central differences; and
// the sizes of the real one.
#include "tests/unit/reference_trainer/cnn_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using testing::draw_normals;
using testing::draw_parameters;
using testing::ReferenceNet;
using Values = std::vector<double>;

constexpr double kStep = 1e-5;
constexpr double kRelative = 1e-4;

void expect_slopes(const CnnShape& shape, const std::vector<std::uint8_t>& labels) {
  const ReferenceNet net(shape);
  Values parameters = draw_parameters(net.layout());
  const Values images = draw_normals(labels.size() * shape.pixels(), 22);
  Values gradient(parameters.size());
  net.run(parameters, images, labels, gradient);
  std::size_t nonzero = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double value = parameters[i];
    parameters[i] = value + kStep;
    const double above = net.run(parameters, images, labels, {}).loss_sum;
    parameters[i] = value - kStep;
    const double below = net.run(parameters, images, labels, {}).loss_sum;
    parameters[i] = value;
    const double slope = (above - below) / (2 * kStep);
    nonzero += std::abs(slope) > 1e-3;
    EXPECT_NEAR(gradient[i], slope, kRelative * std::max(1e-2, std::abs(slope)))
        << "parameter " << i;
  }
  EXPECT_GE(nonzero * 5, parameters.size()) << "the check would pass on nothing";
}

TEST(ReferenceNet, GradientMatchesFiniteDifferences) {
  expect_slopes(testing::kReferenceShape, {1, 3, 0});
}

TEST(ReferenceNet, GradientMatchesFiniteDifferencesWithKernelsBeyondTheBorders) {
  expect_slopes(testing::kWideKernels, {1, 2, 0});
}

TEST(ReferenceNet, SumsUpGradientsOverCallsHoweverTheBatchIsCut) {
  const CnnShape& shape = testing::kReferenceShape;
  const std::vector<std::uint8_t> labels{1, 3, 0};
  const ReferenceNet net(shape);
  const Values parameters = draw_parameters(net.layout());
  const Values images = draw_normals(3 * shape.pixels(), 22);
  Values whole(parameters.size()), parts(parameters.size());
  const BatchScore at_once = net.run(parameters, images, labels, whole);
  BatchScore sum;
  for (std::size_t s = 0; s < 3; ++s) {
    const auto image = std::span(images).subspan(s * shape.pixels(), shape.pixels());
    const BatchScore one = net.run(parameters, image, std::span(labels).subspan(s, 1), parts);
    sum.loss_sum += one.loss_sum;
    sum.correct += one.correct;
  }
  EXPECT_NEAR(sum.loss_sum, at_once.loss_sum, 1e-12);
  EXPECT_EQ(sum.correct, at_once.correct);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-12);
}

// A network whose only path is one convolution's tap, worked out by hand.
TEST(ReferenceNet, LaysAKernelWithItsMiddleOnAPlaceAndZerosBeyondTheBorder) {
  const CnnShape shape{.channels = 1,
                       .height = 8,
                       .width = 8,
                       .classes = 2,
                       .conv = {{{1, 3}, {1, 1}, {1, 1}}},
                       .hidden = 1};
  const ReferenceNet net(shape);
  Values parameters(net.layout().parameters);
  // The kernel's upper left value looks one place up and to the left.
  parameters[net.layout().layers[0].weights] = 1;
  for (const std::size_t layer : {1U, 2U, 3U}) parameters[net.layout().layers[layer].weights] = 1;
  parameters[net.layout().layers[4].weights] = 1;
  const auto loss = [&](std::size_t y, std::size_t x) {
    Values image(64);
    image[y * 8 + x] = 3;
    return net.run(parameters, image, std::vector<std::uint8_t>{0}, {}).loss_sum;
  };
  EXPECT_NEAR(loss(0, 0), std::log(1 + std::exp(-3.0)), 1e-12) << "it is seen from (1, 1)";
  EXPECT_NEAR(loss(6, 6), std::log(1 + std::exp(-3.0)), 1e-12) << "and this from (7, 7)";
  EXPECT_NEAR(loss(7, 6), std::log(2.0), 1e-12) << "no place is below and to the right of it";
  EXPECT_NEAR(loss(6, 7), std::log(2.0), 1e-12);
}

TEST(CnnLayout, HasTheSizesThatItsDescriptionGives) {
  const CnnLayout layout((CnnShape()));
  EXPECT_EQ(layout.features, 1'024U);
  EXPECT_EQ(layout.parameters, 2'432U + 9'248U + 18'496U + 262'400U + 2'570U);
  for (std::size_t i = 0; i + 1 < layout.layers.size(); ++i) {
    EXPECT_EQ(layout.layers[i].bias + layout.layers[i].bias_count, layout.layers[i + 1].weights);
  }
}

}  // namespace
}  // namespace syncd::trainer
