#include "daemon/core/planners/exact_slope.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "daemon/core/planners/wide_integer.h"

namespace syncd::planners {
namespace {

TEST(ExactSlope, KnowsEqualFromNearlyEqual) {
  const std::vector<Micros> thirds{3, 3, 3};  // S = 1
  EXPECT_EQ(ExactSlope(1, thirds).compare(5, 5), 0);
  EXPECT_EQ(ExactSlope(1, thirds).compare(6, 5), 1);
  EXPECT_EQ(ExactSlope(1, thirds).compare(4, 5), -1);
  const std::vector<Micros> egyptian{2, 3, 6};  // 1/2 + 1/3 + 1/6
  EXPECT_EQ(ExactSlope(7, egyptian).compare(7'000'000'000'000'000, 1'000'000'000'000'000), 0);
  // 3 (1/3 + 1/10^18): above 1 by far less than floating point can tell.
  const std::vector<Micros> close{3, 1'000'000'000'000'000'000};
  EXPECT_EQ(ExactSlope(3, close).compare(1, 1), -1);
  EXPECT_EQ(ExactSlope(3, close).compare(1'000'000, 1'000'000), -1);
  // 10^18 / (10^18 + 1): below 1.
  const std::vector<Micros> below{1'000'000'000'000'000'001};
  EXPECT_EQ(ExactSlope(1'000'000'000, below).compare(1, 1'000'000'000), 1);
  EXPECT_EQ(ExactSlope(1'000'000'000, below).compare(1'000'000'000, 1'000'000'000'000'000'001), 0);
}

TEST(ExactSlope, NothingGainedAndNothingLost) {
  const std::vector<Micros> one{10};
  EXPECT_EQ(ExactSlope(5, one).compare(0, 0), 0);
  EXPECT_EQ(ExactSlope(5, one).compare(0, 1), -1);
  EXPECT_EQ(ExactSlope(5, one).compare(-1, 0), -1);
  EXPECT_EQ(ExactSlope(5, one).compare(1, 0), 1);
  EXPECT_EQ(ExactSlope(0, one).compare(0, 100), 0);
  EXPECT_EQ(ExactSlope(0, one).compare(1, 100), 1);
}

TEST(ExactSlope, AgreesWithFractionsOnRandomInput) {
  std::mt19937_64 random(1);
  int equal = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto weight = static_cast<std::uint32_t>(random() % 20);
    std::vector<Micros> spans(1 + random() % 5);
    for (Micros& span : spans) span = static_cast<Micros>(1 + random() % 12);
    Wide denominator = 1;
    for (const Micros span : spans) denominator *= span;
    Wide numerator = 0;
    for (const Micros span : spans) numerator += denominator / span * weight;
    const auto time = static_cast<Micros>(random() % 100);
    const auto exact = static_cast<std::int64_t>(numerator * time / denominator);
    const std::int64_t count = exact + static_cast<std::int64_t>(random() % 3) - 1;
    const Wide difference = count * denominator - numerator * time;
    const int expected = difference > 0 ? 1 : difference < 0 ? -1 : 0;
    equal += expected == 0 ? 1 : 0;
    ASSERT_EQ(ExactSlope(weight, spans).compare(count, time), expected);
  }
  EXPECT_GT(equal, 1000);
}

TEST(ExactSlope, ManyDifferentSpans) {
  // The harmonic numbers are never whole; 1/T + (T-1)/T over many T is their number.
  std::vector<Micros> spans(1000);
  std::iota(spans.begin(), spans.end(), 1'000'000);
  const ExactSlope slope(999, spans);
  const auto nearest = static_cast<std::int64_t>(slope.value() * 1e6);
  EXPECT_EQ(slope.compare(nearest - 1, 1'000'000), -1);
  EXPECT_EQ(slope.compare(nearest + 2, 1'000'000), 1);
}

}  // namespace
}  // namespace syncd::planners
