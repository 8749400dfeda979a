// The network on the CPU, and on a device that is the CPU: every function that a GPU runs and the
// order of its steps, held against the network in double (cnn_reference.h); and each step of a
// convolution against its definition.
#include "reference_trainer/model/cnn_batched.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reference_trainer/model/backends.h"
#include "reference_trainer/model/cpu_device.h"
#include "tests/unit/reference_trainer/cnn_reference.h"
#include "tests/unit/reference_trainer/host_device.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using testing::BatchedCnn;
using testing::CnnBackend;
using testing::HostDevice;

template <typename Device>
std::unique_ptr<CnnBackend> make_batched(const CnnShape& shape, std::size_t samples_max) {
  return std::make_unique<BatchedCnn<Device>>(Device(), shape, CnnLayout(shape), samples_max);
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

// ---- The whole network, as a GPU computes it and as the CPU does

struct NamedBackend {
  const char* name;
  std::unique_ptr<CnnBackend> (*make)(const CnnShape&, std::size_t samples_max);
};

class CnnBackends : public ::testing::TestWithParam<NamedBackend> {
 protected:
  static std::unique_ptr<CnnBackend> make(const CnnShape& shape, std::size_t samples_max) {
    return GetParam().make(shape, samples_max);
  }
};

TEST_P(CnnBackends, AgreesWithTheNetworkInDouble) {
  testing::expect_agreement(*make(testing::kReferenceShape, 5), testing::kReferenceShape, 5);
}

TEST_P(CnnBackends, AgreesWithKernelsBeyondTheBorders) {
  testing::expect_agreement(*make(testing::kWideKernels, 5), testing::kWideKernels, 5);
}

TEST_P(CnnBackends, AgreesForTheRealLayers) {
  const CnnShape shape{.classes = 100};
  testing::expect_agreement(*make(shape, 1), shape, 1);
}

TEST_P(CnnBackends, ADivergedNetworkIsNotHidden) {
  const CnnShape& shape = testing::kReferenceShape;
  const auto backend = make(shape, 1);
  const std::vector<float> parameters(CnnLayout(shape).parameters, std::nanf(""));
  backend->parameters(parameters);
  backend->clear_gradient();
  const std::vector<float> images(shape.pixels(), 1.0F);
  EXPECT_TRUE(std::isnan(backend->train(images, std::vector<std::uint8_t>{0}).loss_sum));
  EXPECT_TRUE(std::isnan(backend->gradient()[0]));
}

TEST_P(CnnBackends, RefusesALargerBatchThanItWasMadeFor) {
  const auto backend = make(testing::kReferenceShape, 1);
  const std::vector<float> images(2 * testing::kReferenceShape.pixels());
  const std::vector<std::uint8_t> labels(2);
  EXPECT_EQ(testing::error_of<std::invalid_argument>([&] { backend->evaluate(images, labels); }),
            "the network takes up to 1 samples of 256 values; got 2 samples, 512 values");
  EXPECT_THROW(backend->train(images, std::span(labels).first(1)), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Devices, CnnBackends,
                         ::testing::Values(NamedBackend{"cpu", make_batched<CpuDevice>},
                                           NamedBackend{"batched", make_batched<HostDevice>}),
                         [](const auto& with) { return std::string(with.param.name); });

// ---- The steps of a convolution

constexpr std::size_t kSamples = 3;

std::vector<float> draw_floats(std::size_t count, std::uint64_t seed) {
  const std::vector<double> drawn = testing::draw_normals(count, seed);
  return {drawn.begin(), drawn.end()};
}

// What a function makes of its places, one by one from the last, or plane by plane as CpuDevice
// does.
template <typename Function>
void one_by_one(std::size_t count, const Function& function) {
  for (std::size_t i = count; i-- > 0;) function(static_cast<Index>(i));
}
template <typename Function>
void by_planes(std::size_t count, const Function& function) {
  CpuDevice().for_each(count, function);
}

// Not a square, so that a mix-up of height and width shows; the largest kernel reaches beyond it.
class ConvSteps : public ::testing::TestWithParam<std::size_t> {
 protected:
  ConvShape shape{
      .channels_in = 2, .channels_out = 3, .kernel = GetParam(), .height = 4, .width = 6};
  BatchedConv conv{shape, kSamples};
  std::vector<float> input = draw_floats(conv.in(), 3);  // [channel][sample][place]
  Planes source{input.data(), kSamples* shape.area(), shape.area()};
};

TEST_P(ConvSteps, PatchesAreWhatTheirDefinitionSays) {
  std::vector<float> columns(conv.columns(), 77.0F);
  one_by_one(columns.size(), GatherPatches{conv, source, columns.data()});
  const auto kernel = static_cast<int>(shape.kernel);
  std::size_t at = 0;
  for (std::size_t c = 0; c < shape.channels_in; ++c) {
    for (int ky = 0; ky < kernel; ++ky) {
      for (int kx = 0; kx < kernel; ++kx) {
        for (std::size_t s = 0; s < kSamples; ++s) {
          for (int y = 0; y < 4; ++y) {
            for (int x = 0; x < 6; ++x, ++at) {
              const int row = y + ky - kernel / 2;
              const int column = x + kx - kernel / 2;
              const bool inside = row >= 0 && row < 4 && column >= 0 && column < 6;
              const std::size_t place = static_cast<std::size_t>(inside ? row * 6 + column : 0);
              const float expected = inside ? input[(c * kSamples + s) * 24 + place] : 0.0F;
              ASSERT_EQ(columns[at], expected) << at;
            }
          }
        }
      }
    }
  }
  std::vector<float> again(conv.columns(), 77.0F);
  by_planes(again.size(), GatherPatches{conv, source, again.data()});
  EXPECT_EQ(again, columns);
}

// For any derivatives d of the patches, d . gather(x) = collect(d) . x.
TEST_P(ConvSteps, DerivativesOfPatchesAreCollectedWhereTheyCameFrom) {
  std::vector<float> patches(conv.columns());
  one_by_one(patches.size(), GatherPatches{conv, source, patches.data()});
  std::vector<float> derivatives(conv.columns());
  std::vector<float> collected(conv.in());
  for (std::size_t i = 0; i < derivatives.size(); i += 7) {
    std::fill(derivatives.begin(), derivatives.end(), 0.0F);
    derivatives[i] = 1;
    std::fill(collected.begin(), collected.end(), 77.0F);
    one_by_one(collected.size(), CollectPatches{conv, derivatives.data(), collected.data()});
    double sum = 0;
    for (std::size_t j = 0; j < input.size(); ++j) sum += double{collected[j]} * double{input[j]};
    ASSERT_EQ(sum, patches[i]) << i;
  }
  derivatives = draw_floats(conv.columns(), 4);
  one_by_one(collected.size(), CollectPatches{conv, derivatives.data(), collected.data()});
  std::vector<float> again(conv.in(), 77.0F);
  by_planes(again.size(), CollectPatches{conv, derivatives.data(), again.data()});
  EXPECT_EQ(again, collected);
}

INSTANTIATE_TEST_SUITE_P(Kernels, ConvSteps, ::testing::Values(1, 3, 5, 9));

TEST(Pool, TakesTheLargestOfEachSquareAndSendsTheDerivativeBackThere) {
  const BatchedConv conv({.channels_in = 1, .channels_out = 2, .height = 4, .width = 4}, 1);
  const std::vector<float> products{1, 5, 2, 2,  //
                                    3, 4, 2, 2,  //
                                    -4, -3, 0, 9, -2, -5, 8, 7,
                                    // The other channel, whose bias is 3.
                                    -4, -3, -9, -3.5, -5, -6, -8, -2, 1, 1, 0, 0, 1, 1, 0, 1};
  const std::vector<float> bias{0, 3};
  const std::vector<float> expected{5, 2, 0, 9, 0, 1, 4, 4};
  const std::vector<float> derivatives{10, 20, 30, 40, 50, 60, 70, 80};
  const std::vector<float> expected_back{0, 10, 20, 0, 0, 0, 0, 0,  0,  0, 0, 40, 0, 0, 0, 0,
                                         0, 0,  0,  0, 0, 0, 0, 60, 70, 0, 0, 0,  0, 0, 0, 80};
  for (const bool by_sample : {false, true}) {  // for one sample, the order is the same
    const PooledPlace place{conv, by_sample};
    std::vector<float> pooled(8, 77.0F);
    std::vector<std::uint8_t> chosen(8, 77);
    const BiasRectifyPool pool{place, products.data(), bias.data(), pooled.data(), chosen.data()};
    one_by_one(8, pool);
    EXPECT_EQ(pooled, expected);
    EXPECT_EQ(chosen, (std::vector<std::uint8_t>{1, 0, kNoneChosen, 1, kNoneChosen, 3, 0, 3}));
    const std::vector<std::uint8_t> first = chosen;
    std::fill(pooled.begin(), pooled.end(), 77.0F);
    std::fill(chosen.begin(), chosen.end(), 77);
    by_planes(8, pool);
    EXPECT_EQ(pooled, expected);
    EXPECT_EQ(chosen, first);

    std::vector<float> back(32, 77.0F);
    const PoolRectifyBackward backward{place, derivatives.data(), chosen.data(), back.data()};
    one_by_one(8, backward);
    EXPECT_EQ(back, expected_back);
    std::fill(back.begin(), back.end(), 77.0F);
    by_planes(8, backward);
    EXPECT_EQ(back, expected_back);
  }
}

TEST(Pool, OfSeveralSamplesIsTheSameOneByOneAndByPlanes) {
  const BatchedConv conv({.channels_in = 1, .channels_out = 3, .height = 4, .width = 6}, kSamples);
  const std::vector<float> products = draw_floats(conv.out(), 5);
  const std::vector<float> bias = draw_floats(3, 6);
  for (const bool by_sample : {false, true}) {
    const PooledPlace place{conv, by_sample};
    std::vector<float> pooled(conv.pooled(), 77.0F), again = pooled;
    std::vector<std::uint8_t> chosen(conv.pooled(), 77), chosen_again = chosen;
    one_by_one(conv.pooled(),
               BiasRectifyPool{place, products.data(), bias.data(), pooled.data(), chosen.data()});
    by_planes(conv.pooled(), BiasRectifyPool{place, products.data(), bias.data(), again.data(),
                                             chosen_again.data()});
    EXPECT_EQ(pooled, again);
    EXPECT_EQ(chosen, chosen_again);
    std::vector<float> back(conv.out(), 77.0F), back_again = back;
    one_by_one(conv.pooled(),
               PoolRectifyBackward{place, pooled.data(), chosen.data(), back.data()});
    by_planes(conv.pooled(),
              PoolRectifyBackward{place, pooled.data(), chosen.data(), back_again.data()});
    EXPECT_EQ(back, back_again);
    EXPECT_NEAR(std::accumulate(back.begin(), back.end(), 0.0),
                std::accumulate(pooled.begin(), pooled.end(), 0.0), 1e-4);
  }
}

TEST(Pool, ANaNStaysVisible) {
  const BatchedConv conv({.channels_in = 1, .channels_out = 1, .height = 2, .width = 2}, 1);
  const std::vector<float> products(4, std::nanf(""));
  const float bias = 1;
  float pooled = 0;
  std::uint8_t chosen = 0;
  BiasRectifyPool{{conv, false}, products.data(), &bias, &pooled, &chosen}(0);
  EXPECT_TRUE(std::isnan(pooled));
  EXPECT_NE(chosen, kNoneChosen);
}

TEST(CrossEntropyStep, StandsLargeScoresAndCountsWhatIsRight) {
  const std::vector<std::uint8_t> labels{1, 0, 1};
  const std::vector<float> bias{0, 0};
  std::vector<float> scores{1000, 3000, -5, -5, 2, 1};
  std::vector<float> losses(3);
  std::vector<std::uint8_t> correct(3);
  one_by_one(
      3, CrossEntropy{2, labels.data(), bias.data(), scores.data(), losses.data(), correct.data()});
  const BatchScore score = sum_up(losses, correct);
  EXPECT_NEAR(score.loss_sum, 0 + std::log(2.0) + std::log(1 + std::exp(1.0)), 1e-6);
  EXPECT_EQ(score.correct, 2U);
  const double of_second = 1 / (1 + std::exp(1.0));
  const double derivatives[] = {0, 0, -0.5, 0.5, 1 - of_second, of_second - 1};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(scores[i], derivatives[i], 1e-6) << i;
}

TEST(RectifyStep, ANaNStaysVisibleAndOnlyWhatIsPositiveHasADerivative) {
  std::vector<float> values{1, -3, std::nanf(""), -1};
  const std::vector<float> bias{0.5F, 1};
  one_by_one(4, BiasRectify{Divider(2), bias.data(), values.data()});
  EXPECT_EQ(values[0], 1.5F);
  EXPECT_EQ(values[1], 0);
  EXPECT_TRUE(std::isnan(values[2]));
  EXPECT_EQ(values[3], 0);
  values = {2, 0, 0, 3};
  std::vector<float> derivatives{10, 20, 30, 40};
  std::vector<float> d_bias{1, 2};
  CpuDevice().reduce(2, 2, RectifyBackward{2, 2, values.data(), derivatives.data(), d_bias.data()});
  EXPECT_EQ(derivatives, (std::vector<float>{10, 0, 0, 40}));
  EXPECT_EQ(d_bias, (std::vector<float>{11, 42}));
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
                [] { make_stepper({.config = {.backend = Backend::kCuda}}); }),
            *problem);
}

}  // namespace
}  // namespace syncd::trainer
