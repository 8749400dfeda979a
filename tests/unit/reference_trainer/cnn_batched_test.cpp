// The network for devices that compute a whole batch at once, on a device that is the CPU: every
// function that a GPU runs and the order of its steps, held against the plain network.
#include "reference_trainer/cnn_batched.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "reference_trainer/cnn_backends.h"
#include "tests/unit/reference_trainer/cnn_reference.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

// Runs indices backwards, which no result may depend on, and hands out memory full of NaN, which
// nobody may read before it is written.
class HostDevice {
 public:
  template <typename T>
  class Buffer {
   public:
    Buffer(HostDevice&, std::size_t count) : memory_(count, junk()) {}
    T* data() { return memory_.data(); }
    const T* data() const { return memory_.data(); }

   private:
    static T junk() {
      if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
        return std::numeric_limits<T>::quiet_NaN();
      } else {
        return std::numeric_limits<T>::max();
      }
    }
    std::vector<T> memory_;
  };

  template <typename T>
  void copy_in(T* to, std::span<const T> from) {
    std::copy(from.begin(), from.end(), to);
  }
  template <typename T>
  void copy_out(std::span<T> to, const T* from) {
    std::copy_n(from, to.size(), to.begin());
  }
  void clear(float* values, std::size_t count) { std::fill_n(values, count, 0.0F); }

  template <typename Function>
  void for_each(std::size_t count, const Function& function) {
    while (count-- > 0) function(count);
  }

  void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
                std::size_t k, const float* a, std::size_t stride_a, const float* b,
                std::size_t stride_b, Into into, float* c, std::size_t stride_c,
                std::size_t products) {
    for (std::size_t p = 0; p < products; ++p) {
      trainer::multiply(transpose_a, transpose_b, m, n, k, a + p * stride_a, b + p * stride_b, into,
                        c + p * stride_c);
    }
  }
};

std::unique_ptr<CnnBackend> make_batched(const CnnShape& shape, std::size_t samples_max) {
  return std::make_unique<BatchedCnn<HostDevice>>(HostDevice(), shape, CnnLayout(shape),
                                                  samples_max);
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
