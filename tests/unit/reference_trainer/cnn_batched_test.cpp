// The network for devices that compute a whole batch at once, on a device that is the CPU: every
// function that a GPU runs and the order of its steps, held against the plain network.
#include "reference_trainer/cnn_batched.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference_trainer/cnn_backends.h"
#include "tests/unit/reference_trainer/cnn_reference.h"
#include "tests/unit/reference_trainer/host_device.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using testing::HostDevice;

std::unique_ptr<CnnBackend> make_batched(const CnnShape& shape, std::size_t samples_max) {
  return std::make_unique<BatchedCnn<HostDevice>>(HostDevice(), shape, CnnLayout(shape),
                                                  samples_max);
}

TEST(Divider, DividesAsTheProcessorDoes) {
  for (const Index divisor : {1U, 2U, 3U, 5U, 7U, 9U, 25U, 32U, 75U, 100U, 1000U, 1024U, 65'537U,
                              (1U << 30) + 1, (1U << 31) - 1}) {
    const Divider divider(divisor);
    for (Index value = 0; value < 3000; ++value) {
      const Index large = (1U << 31) - 1 - value * 717;
      for (const Index dividend : {value, large, value * divisor / 7, large / divisor * divisor,
                                   large / divisor * divisor - 1}) {
        const Index n = dividend & ((1U << 31) - 1);
        ASSERT_EQ(divider.divide(n), n / divisor) << n << " / " << divisor;
        ASSERT_EQ(divider.rest(n), n % divisor) << n << " / " << divisor;
      }
    }
  }
}

TEST(BatchedCnn, AgreesWithTheNetworkInDouble) {
  testing::expect_agreement(*make_batched(testing::kReferenceShape, 5), testing::kReferenceShape,
                            5);
}

TEST(BatchedCnn, AgreesForTheRealLayers) {
  const CnnShape shape{.classes = 100};
  testing::expect_agreement(*make_batched(shape, 1), shape, 1);
}

TEST(BatchedCnn, RefusesALargerBatchThanItWasMadeFor) {
  const auto backend = make_batched(testing::kReferenceShape, 1);
  const std::vector<float> images(2 * testing::kReferenceShape.pixels());
  const std::vector<std::uint8_t> labels(2);
  EXPECT_THROW(backend->evaluate(images, labels), std::invalid_argument);
}

TEST(Backends, TheCpuIsThereAndCudaSaysWhatIsMissing) {
  EXPECT_FALSE(backend_problem(Backend::kCpu).has_value());
  const auto problem = backend_problem(Backend::kCuda);
  if (!problem) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(*problem,
              ::testing::AnyOf(
                  ::testing::StartsWith("--backend cuda: there is no GPU that CUDA can use ("),
                  ::testing::StartsWith("--backend cuda: the CUDA backend cannot be loaded: ")));
  EXPECT_EQ(testing::error_of<std::runtime_error>(
                [] { make_cnn_backend(Backend::kCuda, testing::kReferenceShape, 1); }),
            *problem);
}

}  // namespace
}  // namespace syncd::trainer
