// The report's charts of made-up data, and of data that hardly are any.
#include "reference_trainer/charts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/unit/reference_trainer/well_formed.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::markup_problem;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

LineChart lines(std::vector<std::vector<Point>> series) {
  LineChart chart{.x_label = "seconds",
                  .y_label = "loss",
                  .percent = false,
                  .target = std::nullopt,
                  .series = {}};
  for (auto& points : series) {
    chart.series.push_back({"policy", std::move(points), chart.series.size()});
  }
  return chart;
}

TEST(LineCharts, DrawOneLinePerSeriesAndTheTarget) {
  LineChart chart = lines({{{0, 1}, {5, 0.7}, {10, 0.5}}, {{0, 1}, {10, 0.6}}});
  chart.target = 0.8;
  const std::string svg = draw_lines(chart);
  EXPECT_EQ(markup_problem(svg), "");
  EXPECT_EQ(count(svg, "class=\"line s"), 2U);
  EXPECT_THAT(svg, AllOf(HasSubstr("class=\"target\""), HasSubstr(">target 0.8<"),
                         HasSubstr(">seconds<"), HasSubstr(">loss<"), HasSubstr(">10<")));
}

TEST(LineCharts, SeriesDifferWithoutColours) {
  std::set<std::string> looks;
  for (std::size_t style = 0; style < 3 * kSeriesColours; ++style) {
    const std::string sample = draw_line_sample(style);
    EXPECT_EQ(markup_problem(sample), "");
    looks.insert(sample);
  }
  EXPECT_EQ(looks.size(), 3 * kSeriesColours);
}

TEST(LineCharts, TakeWhateverThereIs) {
  EXPECT_THAT(draw_lines(lines({})), HasSubstr("nothing was measured"));
  EXPECT_THAT(draw_lines(lines({{}})), HasSubstr("nothing was measured"));
  EXPECT_THAT(draw_lines(lines({{{0, kNan}, {1, kNan}}})), HasSubstr("nothing was measured"));
  for (const LineChart& chart :
       {lines({{{0, 1}}}), lines({{{0, 0}, {0, 0}}}), lines({{{0, 1}, {1, kNan}, {2, 0.5}}}),
        lines({{{0, 1}, {1, 1e300}, {2, std::numeric_limits<double>::infinity()}}})}) {
    const std::string svg = draw_lines(chart);
    EXPECT_EQ(markup_problem(svg), "");
    EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
    EXPECT_EQ(count(svg, "class=\"line s0\""), 1U);
  }
}

TEST(LineCharts, DivergingTrainingDoesNotFlattenTheOthers) {
  const Range range = visible_values(lines({{{0, 1}, {1, 0.5}}, {{0, 1}, {1, 1e9}}}));
  EXPECT_EQ(range.low, 0.5);
  EXPECT_EQ(range.high, 2);
  LineChart with_target = lines({{{0, 1}, {1, 0.5}}});
  with_target.target = 0.2;
  EXPECT_EQ(visible_values(with_target).low, 0.2) << "the target is shown too";
}

TEST(LineCharts, LongSeriesAreThinned) {
  std::vector<Point> points;
  for (int i = 0; i < 50'000; ++i) points.push_back({i * 0.1, 1 + std::sin(i)});
  const std::string svg = draw_lines(lines({points}));
  EXPECT_LE(count(svg, "L"), kChartPointsMax + 500) << "with axes and markers";
}

TEST(LineCharts, NamesAreEscaped) {
  LineChart chart = lines({{{0, 1}, {1, 2}}});
  chart.series[0].name = "<b>\"&";
  chart.y_label = "<i>'";
  const std::string svg = draw_lines(chart);
  EXPECT_EQ(markup_problem(svg), "");
  EXPECT_THAT(svg, AllOf(HasSubstr("&lt;b&gt;&quot;&amp;"), Not(HasSubstr("<b>"))));
}

TEST(LineCharts, SharesArePercentages) {
  LineChart chart = lines({{{0, 0.1}, {1, 0.95}}});
  chart.percent = true;
  EXPECT_THAT(draw_lines(chart), AllOf(HasSubstr(">100%<"), Not(HasSubstr(">120%<"))));
}

TEST(WorkerTimes, FillTheWholeRun) {
  const std::string svg = draw_worker_times({{.name = "0",
                                              .computing_s = 2,
                                              .waiting_s = 5,
                                              .pushing_s = 0.5,
                                              .wasted_s = 1,
                                              .total_s = 10}});
  EXPECT_EQ(markup_problem(svg), "");
  for (const char* title : {"computing: 2.00 s, 20%", "waiting: 5.00 s, 50%", "wasted: 1.00 s, 10%",
                            "pushing: 0.50 s, 5.0%", "idle: 1.50 s, 15%"}) {
    EXPECT_THAT(svg, HasSubstr(title));
  }
  EXPECT_THAT(svg, HasSubstr("share of the run&#39;s 10.0 s"));
}

TEST(WorkerTimes, TakeWhateverThereIs) {
  EXPECT_THAT(draw_worker_times({}), HasSubstr("no worker did anything"));
  EXPECT_THAT(draw_worker_times({{.name = "0"}}), HasSubstr("no worker did anything"));
  // More than there was time for, and less than nothing.
  const std::string svg =
      draw_worker_times({{.name = "0", .computing_s = 9, .waiting_s = 9, .total_s = 10},
                         {.name = "1", .computing_s = -1, .total_s = 10},
                         {.name = "2"}});
  EXPECT_EQ(markup_problem(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("width=\"-")));
}

TEST(WorkerTimes, ManyWorkersShareRows) {
  std::vector<WorkerTime> rows;
  for (int i = 0; i < 100; ++i) {
    rows.push_back({.name = std::to_string(i), .waiting_s = i * 1.0, .total_s = 100});
  }
  const auto groups = group_rows(rows, 20);
  ASSERT_EQ(groups.size(), 20U);
  EXPECT_EQ(groups[1].name, "5-9");
  EXPECT_DOUBLE_EQ(groups[1].waiting_s, 7);
  EXPECT_DOUBLE_EQ(groups[1].total_s, 100);
  EXPECT_EQ(group_rows(rows, 100)[99].name, "99");
  EXPECT_THAT(draw_worker_times(rows), HasSubstr(">workers<"));
}

TEST(Staleness, BarsAreWholeNumbersWideAndSumUpToAll) {
  const auto bars = histogram_bars({{0, 0, 30}, {3, 3, 10}, {138, 143, 60}}, 25);
  EXPECT_EQ(bars.front().width, 10);
  ASSERT_EQ(bars.size(), 15U);
  EXPECT_DOUBLE_EQ(bars[0].share, 0.4);
  double sum = 0;
  for (const HistogramBar& bar : bars) sum += bar.share;
  EXPECT_DOUBLE_EQ(sum, 1);
  // The last bin reaches over the edge of a bar: two of its six values lie before it.
  EXPECT_DOUBLE_EQ(bars[13].share, 0.2);
  EXPECT_DOUBLE_EQ(bars[14].share, 0.4);
}

TEST(Staleness, SmallValuesHaveABarEach) {
  const auto bars = histogram_bars({{0, 0, 1}, {2, 2, 3}}, 25);
  ASSERT_EQ(bars.size(), 3U);
  EXPECT_EQ(bars[1].share, 0);
  EXPECT_EQ(bars[2].share, 0.75);
  for (std::int64_t highest = 0; highest < 5'000; ++highest) {
    const auto many = histogram_bars({{highest, highest, 1}}, 25);
    ASSERT_LE(many.size(), 25U) << highest;
    ASSERT_NEAR(many.back().share, 1, 1e-9) << highest;
  }
}

TEST(Staleness, TakesWhateverThereIs) {
  EXPECT_THAT(draw_staleness({}, 0), HasSubstr("nothing was recorded"));
  for (const std::vector<StalenessBin>& bins :
       {std::vector<StalenessBin>{{0, 0, 1}},
        std::vector<StalenessBin>{{2'000'000'000, 2'080'374'783, 1}}}) {
    const std::string svg = draw_staleness(bins, kNan);
    EXPECT_EQ(markup_problem(svg), "");
    EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), HasSubstr("class=\"bar\"")));
  }
}

Timeline small_timeline() {
  Timeline timeline{.start_us = 1'000'000,
                    .end_us = 1'100'000,
                    .is_superstep = true,
                    .workers = {},
                    .barriers_us = {1'000'000, 1'100'000}};
  timeline.workers = {{{990'000, 1'010'000, 7, SpanKind::kWaiting, kSpanBarrier},
                       {1'010'000, 1'060'000, 7, SpanKind::kComputing, 0},
                       {1'060'000, 1'060'500, 7, SpanKind::kPushing, 0}},
                      {{1'000'000, 1'030'000, 12, SpanKind::kWasted, 0},
                       {1'040'000, 1'050'000, 19, SpanKind::kWaiting, kSpanSkip},
                       {1'099'000, 1'200'000, 19, SpanKind::kPushing, kSpanLate}}};
  return timeline;
}

TEST(TimelineChart, ShowsWhatWorkersDid) {
  const std::string svg = draw_timeline(small_timeline());
  EXPECT_EQ(markup_problem(svg), "");
  EXPECT_EQ(count(svg, "class=\"barrier\""), 2U);
  EXPECT_EQ(count(svg, "class=\"skip\""), 1U);
  EXPECT_THAT(svg, AllOf(HasSubstr("worker 0, iteration 7: computing for 50.00 ms"),
                         HasSubstr("worker 0, iteration 7: waiting for 20.00 ms, until a barrier"),
                         HasSubstr("worker 1, iteration 12: wasted for 30.00 ms"),
                         HasSubstr("too late"), HasSubstr("jumped to iteration 19"),
                         HasSubstr("class=\"inside middle\">7<"), HasSubstr(">ms<")));
}

TEST(TimelineChart, TakesWhateverThereIs) {
  EXPECT_THAT(draw_timeline({}), HasSubstr("nothing was recorded"));
  Timeline idle = small_timeline();
  for (auto& spans : idle.workers) spans.clear();
  EXPECT_EQ(markup_problem(draw_timeline(idle)), "");
}

TEST(TimelineChart, StaysSmall) {
  Timeline timeline{
      .start_us = 0, .end_us = 1'000'000, .is_superstep = false, .workers = {}, .barriers_us = {}};
  timeline.workers.resize(1'000);
  for (auto& spans : timeline.workers) {
    for (std::int64_t i = 0; i < 500; ++i) {
      spans.push_back({i * 100, i * 100 + 50, i, SpanKind::kComputing, 0});
    }
  }
  const std::string svg = draw_timeline(timeline);
  EXPECT_EQ(count(svg, "class=\"tick end\""), kChartRowsMax);
  EXPECT_THAT(svg, AllOf(HasSubstr("worker 0,"), HasSubstr("worker 958,")));
  EXPECT_LT(count(svg, "<rect"), kChartRowsMax * 100) << "spans too short to be seen are left out";
}

}  // namespace
}  // namespace syncd::trainer
