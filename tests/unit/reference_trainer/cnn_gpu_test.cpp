// The network on a GPU, against the one in double on the CPU. Skipped where there is none.
#include <gtest/gtest.h>

#include "reference_trainer/model/cnn_backends.h"
#include "tests/unit/reference_trainer/cnn_reference.h"

namespace syncd::trainer {
namespace {

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto problem = backend_problem(Backend::kCuda)) GTEST_SKIP() << *problem;
  }
};

TEST_F(Gpu, AgreesWithTheNetworkInDouble) {
  const auto backend = make_cnn_backend(Backend::kCuda, testing::kReferenceShape, 5);
  testing::expect_agreement(*backend, testing::kReferenceShape, 5);
}

TEST_F(Gpu, AgreesForTheRealLayers) {
  const CnnShape shape{.classes = 100};
  testing::expect_agreement(*make_cnn_backend(Backend::kCuda, shape, 32), shape, 3);
}

TEST_F(Gpu, AddsUpTheSameSumsEveryTime) {
  const CnnShape& shape = testing::kReferenceShape;
  const auto drawn = testing::draw_parameters(CnnLayout(shape));
  const std::vector<float> parameters(drawn.begin(), drawn.end());
  const auto pixels = testing::draw_normals(4 * shape.pixels(), 5);
  const std::vector<float> images(pixels.begin(), pixels.end());
  const std::vector<std::uint8_t> labels{0, 1, 2, 3};
  const auto gradient = [&] {
    const auto backend = make_cnn_backend(Backend::kCuda, shape, 4);
    backend->parameters(parameters);
    backend->clear_gradient();
    backend->train(images, labels);
    const auto values = backend->gradient();
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_EQ(gradient(), gradient());
}

}  // namespace
}  // namespace syncd::trainer
