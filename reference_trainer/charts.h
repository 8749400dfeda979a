// The report's charts as inline SVG: lines, stacked bars, a histogram, a timeline. Pure functions
// of plain data. Colours, strokes and font sizes come from the page's style sheet (report_style.h)
// by class, so that one drawing serves light and dark, a phone and a desktop; all text is escaped
// here. Empty data make a chart that says so.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference_trainer/svg.h"
#include "reference_trainer/timeline.h"

namespace syncd::trainer {

// Series and workers beyond these are thinned out or taken together, so that a page stays readable.
inline constexpr std::size_t kChartPointsMax = 2'000;
inline constexpr std::size_t kChartRowsMax = 24;
inline constexpr std::size_t kChartBarsMax = 25;

// How the i-th series looks: colour, dashes and markers differ, so that two lines can be told apart
// without seeing colours.
inline constexpr std::size_t kSeriesColours = 8;
std::string series_class(std::size_t index);

struct Series {
  std::string name;
  std::vector<Point> points;  // ascending x; points that are not finite are gaps
  std::size_t style = 0;
};

struct LineChart {
  std::string x_label;
  std::string y_label;
  bool percent = false;  // y is a share, shown as a percentage
  std::optional<double> target;
  std::vector<Series> series;
};

// Values far above where the series start (training that diverges) are cut off at the top.
std::string draw_lines(const LineChart& chart);

// A piece of a line with its marker, for a legend.
std::string draw_line_sample(std::size_t style);

// The values that a chart of lines shows: from the lowest one to the highest one, but not more than
// twice as high as the highest value at which a series starts.
Range visible_values(const LineChart& chart);

// What a worker did, in seconds, and the time that it might have used.
struct WorkerTime {
  std::string name;
  double computing_s = 0;
  double waiting_s = 0;
  double pushing_s = 0;
  double wasted_s = 0;
  double total_s = 0;  // what is missing from it was idle
};

// At most `most` rows: neighbours become one row, with their mean times.
std::vector<WorkerTime> group_rows(const std::vector<WorkerTime>& rows, std::size_t most);

std::string draw_worker_times(const std::vector<WorkerTime>& rows);

// Bars of a histogram.
struct HistogramBar {
  double low = 0;  // the first value in it
  double width = 1;
  double share = 0;  // of all
};

// Bars of equal width, a whole number, at most `most` of them, from 0 on. Bins that reach over the
// edge of a bar are divided in proportion.
std::vector<HistogramBar> histogram_bars(const std::vector<StalenessBin>& bins, std::size_t most);

std::string draw_staleness(const std::vector<StalenessBin>& bins, double mean);

// At most kChartRowsMax workers, evenly chosen.
std::string draw_timeline(const Timeline& timeline);

// The piece of a stacked bar or timeline that stands for something, for a legend.
std::string draw_fill_sample(std::string_view fill);

// The classes of the fills: those of the kinds of spans, and the rest.
std::string_view fill_class(SpanKind kind);
inline constexpr std::string_view kIdleFill = "idle";

}  // namespace syncd::trainer
