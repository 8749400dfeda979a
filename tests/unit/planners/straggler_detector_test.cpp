#include "daemon/core/planners/straggler_detector.h"

#include <gtest/gtest.h>

#include <vector>

namespace syncd::planners {
namespace {

// All but rank 0 take 100 ms; rank 0 what is said. Returns the iterations in which a verdict fell.
struct Fall {
  int iteration;
  bool is_straggler;
};
std::vector<Fall> verdicts(const std::vector<Micros>& spans, Rank workers = 8) {
  StragglerDetector detector;
  std::vector<Fall> found;
  for (std::size_t k = 0; k < spans.size(); ++k) {
    for (Rank rank = 1; rank < workers; ++rank) EXPECT_FALSE(detector.push(rank, 100'000));
    if (const auto verdict = detector.push(0, spans[k])) {
      found.push_back({static_cast<int>(k), verdict->is_straggler});
      EXPECT_EQ(verdict->is_straggler, detector.is_straggler(0));
    }
  }
  return found;
}
std::vector<Micros> times(std::size_t count, Micros span) {
  return std::vector(count, span);
}
std::vector<Micros> operator+(std::vector<Micros> a, const std::vector<Micros>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(StragglerDetector, FlagsInFourPushesAndRecoversInFour) {
  const auto found = verdicts(times(20, 100'000) + times(10, 200'000) + times(10, 100'000));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].iteration, 23);
  EXPECT_TRUE(found[0].is_straggler);
  EXPECT_EQ(found[1].iteration, 33);
  EXPECT_FALSE(found[1].is_straggler);
}

TEST(StragglerDetector, OneSpikeIsNoVerdict) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(verdicts(times(20, 100'000) + times(static_cast<std::size_t>(i), 600'000) +
                         times(20, 100'000))
                    .empty());
  }
}

TEST(StragglerDetector, ALittleSlowerForGoodIsUsualAndMuchSlowerIsNot) {
  EXPECT_TRUE(verdicts(times(100, 125'000)).empty());
  const auto found = verdicts(times(100, 200'000));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].iteration, 16 + 3);
}

TEST(StragglerDetector, SaysNothingWithFewerThanFourOthers) {
  EXPECT_TRUE(verdicts(times(20, 100'000) + times(50, 400'000), 4).empty());
  EXPECT_FALSE(verdicts(times(20, 100'000) + times(50, 400'000), 5).empty());
}

TEST(StragglerDetector, SaysTheFactor) {
  StragglerDetector detector;
  for (int k = 0; k < 40; ++k) {
    for (Rank rank = 1; rank < 8; ++rank) detector.push(rank, 100'000);
    if (const auto verdict = detector.push(0, k < 20 ? 100'000 : 250'000)) {
      EXPECT_NEAR(verdict->factor, 2.5, 1e-9);
      EXPECT_EQ(verdict->pushes, 4U);
    }
  }
}

TEST(StragglerDetector, AReplacedProcessIsJudgedAnew) {
  StragglerDetector detector;
  for (int k = 0; k < 24; ++k) {
    for (Rank rank = 1; rank < 8; ++rank) detector.push(rank, 100'000);
    detector.push(0, k < 20 ? 100'000 : 200'000);
  }
  EXPECT_TRUE(detector.is_straggler(0));
  detector.forget(0);
  EXPECT_FALSE(detector.is_straggler(0));
}

}  // namespace
}  // namespace syncd::planners
