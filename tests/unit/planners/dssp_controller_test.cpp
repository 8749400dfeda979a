#include "daemon/core/planners/dssp_controller.h"

#include <gmock/gmock.h>

#include <random>

namespace syncd::planners {
namespace {

using testing::HasSubstr;

ExtraIterations extra(const PushTimes& worker, const PushTimes& slowest, std::int64_t r_max,
                      std::optional<Micros> now = std::nullopt) {
  std::string error;
  const auto found = dssp_extra_iterations(worker, slowest, r_max, now, error);
  EXPECT_TRUE(found) << error;
  return found.value_or(ExtraIterations{-1, -1});
}

TEST(DsspController, Examples) {
  EXPECT_EQ(extra({100, 90}, {95, 45}, 4).extra, 4);
  EXPECT_EQ(extra({100, 90}, {95, 45}, 4).difference, 5);
  EXPECT_EQ(extra({100, 90}, {95, 45}, 8).extra, 4);
  EXPECT_EQ(extra({100, 90}, {95, 45}, 0).extra, 0);
  EXPECT_EQ(extra({1000, 900}, {990, 690}, 12).extra, 3);
  EXPECT_EQ(extra({1000, 900}, {990, 640}, 12).extra, 7);
  EXPECT_EQ(extra({1000, 900}, {700, 690}, 12).extra, 0);
  EXPECT_EQ(extra({100, 90}, {50, 10}, 6).extra, 3);
}

TEST(DsspController, AnOverdueSlowestIsPredictedFromNowOn) {
  // Ends were due at 110 and 120; those later than now are 130, 140, ...
  EXPECT_EQ(extra({100, 95}, {100, 90}, 8, 125).extra, 6);
  EXPECT_EQ(extra({100, 95}, {100, 90}, 8, 125).difference, 0);
  // One that is due just now is not overdue, and one that ended just now is not "later than now".
  EXPECT_EQ(extra({100, 95}, {100, 90}, 8, 110).extra, 2);
  EXPECT_EQ(extra({100, 95}, {100, 90}, 3, 120).extra, 3);
  EXPECT_EQ(extra({100, 95}, {100, 90}, 3, 120).difference, 15);
  // Both pushes at one moment tell nothing: as soon as possible.
  EXPECT_EQ(extra({100, 90}, {50, 50}, 9, 125).extra, 3);
  EXPECT_EQ(extra({100, 90}, {50, 50}, 9).extra, 0);
}

// The definition: all pairs.
ExtraIterations by_definition(const PushTimes& worker, const PushTimes& slowest, std::int64_t r_max,
                              std::optional<Micros> now) {
  const Micros interval = slowest.latest - slowest.previous;
  std::vector<Micros> theirs;
  const bool overdue = now && slowest.latest + interval < *now;
  for (std::int64_t q = 1; static_cast<std::int64_t>(theirs.size()) <= r_max; ++q) {
    const Micros end = slowest.latest + q * interval;
    if (!overdue || end > *now) theirs.push_back(end);
  }
  ExtraIterations best{-1, INT64_MAX};
  for (std::int64_t r = 0; r <= r_max; ++r) {
    for (const Micros end : theirs) {
      const Micros difference =
          std::abs(worker.latest + r * (worker.latest - worker.previous) - end);
      if (difference < best.difference) best = {r, difference};
    }
  }
  return best;
}

TEST(DsspController, AgreesWithAllPairsOnRandomInput) {
  std::mt19937_64 random(1);
  const auto upto = [&](std::uint64_t highest) {
    return static_cast<Micros>(random() % (highest + 1));
  };
  for (int i = 0; i < 20000; ++i) {
    const PushTimes worker{1000, 1000 - upto(40)};
    const Micros latest = 1000 - upto(300);
    const PushTimes slowest{latest, latest - 1 - upto(80)};
    const std::int64_t r_max = upto(15);
    std::optional<Micros> now;
    if (upto(1) == 1) now = 1000 + upto(200);
    const ExtraIterations expected = by_definition(worker, slowest, r_max, now);
    const ExtraIterations found = extra(worker, slowest, r_max, now);
    ASSERT_EQ(found.extra, expected.extra) << i;
    ASSERT_EQ(found.difference, expected.difference) << i;
  }
}

TEST(DsspController, BadInputIsNamed) {
  const auto error_of = [](const PushTimes& worker, const PushTimes& slowest, std::int64_t r_max,
                           std::optional<Micros> now = std::nullopt) {
    std::string error;
    EXPECT_FALSE(dssp_extra_iterations(worker, slowest, r_max, now, error));
    return error;
  };
  EXPECT_THAT(error_of({1, 0}, {1, 0}, -1), HasSubstr("r_max is -1, allowed is 0 to"));
  EXPECT_THAT(error_of({1, 0}, {1, 0}, kExtraMax + 1), HasSubstr("r_max"));
  EXPECT_THAT(error_of({1, 2}, {1, 0}, 1), HasSubstr("worker: the previous push at 2 us is later"));
  EXPECT_THAT(error_of({1, 0}, {1, 2}, 1), HasSubstr("slowest: the previous push"));
  EXPECT_THAT(error_of({INT64_MAX, 0}, {1, 0}, 1), HasSubstr("out of range"));
  EXPECT_THAT(error_of({Micros{1} << 59, 0}, {1, 0}, 9), HasSubstr("reach beyond"));
  EXPECT_THAT(error_of({1, 0}, {1, 0}, 1, INT64_MAX), HasSubstr("now is"));
}

}  // namespace
}  // namespace syncd::planners
