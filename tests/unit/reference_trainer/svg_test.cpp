// The parts of charts: escaping, scales, ticks, labels, thinning, paths.
#include "reference_trainer/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace syncd::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Svg, EscapesWhatMeansSomething) {
  EXPECT_EQ(escape_markup("a<b>&\"c'"), "a&lt;b&gt;&amp;&quot;c&#39;");
  EXPECT_EQ(escape_markup("</text><script>"), "&lt;/text&gt;&lt;script&gt;");
  EXPECT_EQ(escape_markup(""), "");
}

TEST(Svg, ReplacesWhatIsNoText) {
  constexpr const char* kReplacement = "\xef\xbf\xbd";
  EXPECT_EQ(escape_markup("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80")
      << "UTF-8 stays";
  EXPECT_EQ(escape_markup("a\xff"), std::string("a") + kReplacement);
  EXPECT_EQ(escape_markup("\xc3"), kReplacement) << "cut off";
  EXPECT_EQ(escape_markup("\xc0\xaf"), std::string(kReplacement) + kReplacement) << "overlong";
  EXPECT_EQ(escape_markup("\xed\xa0\x80").substr(0, 3), kReplacement) << "a surrogate";
  EXPECT_EQ(escape_markup(std::string("a\0b\x1b[K\n", 7)),
            std::string("a") + kReplacement + "b" + kReplacement + "[K\n");
}

TEST(Svg, ARangeIsOfTheFiniteValues) {
  const std::vector<double> values{3, kNotANumber, -1, kInfinity, 2};
  const Range range = range_of(values);
  EXPECT_EQ(range.low, -1);
  EXPECT_EQ(range.high, 3);
  EXPECT_EQ(range_of(std::vector<double>{}).high, 1);
  EXPECT_EQ(range_of(std::vector<double>{kNotANumber}).high, 1);
  const Range one = range_of(std::vector<double>{5});
  EXPECT_LT(one.low, 5);
  EXPECT_GT(one.high, 5);
  EXPECT_LT(range_of(std::vector<double>{0}).low, 0);
}

TEST(Svg, AScaleMapsEndsToEnds) {
  const Scale down({10, 20}, 200, 100);
  EXPECT_EQ(down(10), 200);
  EXPECT_EQ(down(20), 100);
  EXPECT_EQ(down(15), 150);
  EXPECT_EQ(Scale({5, 5}, 0, 8)(5), 4) << "nothing to scale by";
}

TEST(Svg, TicksAreRoundNumbersInTheRange) {
  EXPECT_THAT(nice_ticks({0, 13.8}, 8).values, ElementsAre(0, 2, 4, 6, 8, 10, 12));
  EXPECT_THAT(nice_ticks({0, 1}, 6).values,
              ElementsAre(0, 0.2, 0.4, ::testing::DoubleEq(0.6), 0.8, 1));
  EXPECT_THAT(nice_ticks({-3, 3}, 4).values, ElementsAre(-2, 0, 2));
  EXPECT_THAT(nice_ticks({0.2, 2.7}, 9, true).values, ElementsAre(1, 2)) << "whole steps";
  EXPECT_THAT(nice_ticks({1, 1}, 5).values, IsEmpty());
  EXPECT_THAT(nice_ticks({0, kNotANumber}, 5).values, IsEmpty());
  EXPECT_THAT(nice_ticks({-kInfinity, 1}, 5).values, IsEmpty());
}

TEST(Svg, ThereAreNeverTooManyTicksNorTooFew) {
  for (double width = 1e-9; width < 1e12; width *= 1.37) {
    for (const double start : {-width * 0.31, 0.0, width * 2.2}) {
      const Ticks ticks = nice_ticks({start, start + width}, 7);
      ASSERT_LE(ticks.values.size(), 7U) << start << " " << width;
      ASSERT_GE(ticks.values.size(), 1U) << start << " " << width;
      for (const double value : ticks.values) {
        ASSERT_GE(value, start - width * 1e-6);
        ASSERT_LE(value, start + width * (1 + 1e-6));
      }
    }
  }
  // A range so far from 0 that numbers there are hardly apart does not last for ever.
  EXPECT_LE(nice_ticks({1e18, 1e18 + 200}, 5).values.size(), 5U);
}

TEST(Svg, ANiceRangeHasTicksAtItsEnds) {
  const Range range = nice_range({0.58, 1.06}, 6);
  EXPECT_DOUBLE_EQ(range.low, 0.5);
  EXPECT_DOUBLE_EQ(range.high, 1.1);
}

TEST(Svg, LabelsHaveAsManyDecimalsAsTheStepNeeds) {
  EXPECT_EQ(tick_label(0.6000000001, 0.2), "0.6");
  EXPECT_EQ(tick_label(2, 2), "2");
  EXPECT_EQ(tick_label(0.015, 0.005), "0.015");
  EXPECT_EQ(tick_label(-0.5, 0.5), "-0.5");
  EXPECT_EQ(tick_label(2'000, 500), "2000") << "short enough";
  EXPECT_EQ(tick_label(20'000, 5'000), "20k");
  EXPECT_EQ(tick_label(12'500, 500), "12.5k");
  EXPECT_EQ(tick_label(2'500'000, 500'000), "2.5M");
  EXPECT_EQ(tick_label(0, 5'000), "0");
  EXPECT_EQ(tick_label(kNotANumber, 1), "");
}

TEST(Svg, LengthsAreShort) {
  EXPECT_EQ(length(12), "12");
  EXPECT_EQ(length(12.34), "12.3");
  EXPECT_EQ(length(-0.01), "0");
  EXPECT_EQ(length(kNotANumber), "0");
  EXPECT_EQ(length(1e300), "100000");
}

std::vector<Point> wave(std::size_t count) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < count; ++i) {
    points.push_back({static_cast<double>(i), std::sin(static_cast<double>(i) / 50)});
  }
  return points;
}

TEST(Svg, ThinningKeepsEndsSpikesAndOrder) {
  std::vector<Point> points = wave(100'000);
  points[31'234].y = 9;
  points[77'777].y = -9;
  const std::vector<Point> thinned = thin(points, 2'000);
  EXPECT_LE(thinned.size(), 2'000U);
  EXPECT_GT(thinned.size(), 1'900U);
  EXPECT_EQ(thinned.front().x, 0);
  EXPECT_EQ(thinned.back().x, 99'999);
  bool has_high = false;
  bool has_low = false;
  for (std::size_t i = 0; i < thinned.size(); ++i) {
    const double before = i > 0 ? thinned[i - 1].x : -1;
    ASSERT_LT(before, thinned[i].x);
    has_high |= thinned[i].y == 9;
    has_low |= thinned[i].y == -9;
  }
  EXPECT_TRUE(has_high && has_low);
}

TEST(Svg, ThinningLeavesShortSeriesAlone) {
  EXPECT_EQ(thin(wave(2'000), 2'000).size(), 2'000U);
  EXPECT_EQ(thin({}, 2'000).size(), 0U);
  EXPECT_EQ(thin(wave(1), 4).size(), 1U);
  EXPECT_LE(thin(wave(2'001), 2'000).size(), 2'000U);
  EXPECT_LE(thin(wave(5), 4).size(), 4U);
}

TEST(Svg, ThinningKeepsGaps) {
  std::vector<Point> points = wave(1'000);
  for (std::size_t i = 300; i < 700; ++i) points[i].y = kNotANumber;
  const std::vector<Point> thinned = thin(points, 100);
  EXPECT_LE(thinned.size(), 100U);
  EXPECT_TRUE(std::any_of(thinned.begin(), thinned.end(),
                          [](const Point& point) { return std::isnan(point.y); }));
}

TEST(Svg, APathHasGaps) {
  const Scale same({0, 10}, 0, 10);
  const std::vector<Point> points{{1, 1}, {2, 3}, {3, kNotANumber}, {4, 4}, {5, kInfinity},
                                  {6, 1}, {7, 2}};
  EXPECT_EQ(line_path(points, same, same), "M1 1L2 3M4 4h0M6 1L7 2");
  EXPECT_EQ(line_path(std::vector<Point>{{1, 1}}, same, same), "M1 1h0") << "a dot";
  EXPECT_EQ(line_path(std::vector<Point>{{kNotANumber, 1}}, same, same), "");
  EXPECT_EQ(line_path({}, same, same), "");
}

}  // namespace
}  // namespace syncd::trainer
