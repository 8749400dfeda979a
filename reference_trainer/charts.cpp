// The report's charts: see charts.h. No thread of its own.
#include "reference_trainer/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace syncd::trainer {
namespace {

// User units. The page shows a chart 330 to 640 pixels wide, and chooses the size of its text such
// that it can be read; there is room here for text of 13 units.
constexpr double kWidth = 400;
constexpr double kRight = 382;
constexpr double kTextDrop = 4.5;  // from the middle of a line of text to its baseline

std::string text(double x, double y, std::string_view style, std::string_view content) {
  return fmt::format(R"(<text x="{}" y="{}" class="{}">{}</text>)", length(x), length(y), style,
                     escape_markup(content));
}

std::string line(double x1, double y1, double x2, double y2, std::string_view style) {
  return fmt::format(R"(<path d="M{} {}L{} {}" class="{}"/>)", length(x1), length(y1), length(x2),
                     length(y2), style);
}

std::string rectangle(double x, double y, double width, double height, std::string_view style,
                      std::string_view title = "") {
  const std::string start = fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" class="{}")",
                                        length(x), length(y), length(width), length(height), style);
  if (title.empty()) return start + "/>";
  return fmt::format("{}><title>{}</title></rect>", start, escape_markup(title));
}

std::string chart(double height, std::string_view description, std::string_view content) {
  return fmt::format(
      R"(<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>)",
      length(kWidth), length(height), escape_markup(description), content);
}

std::string nothing(std::string_view what) {
  return chart(60, what, text(kWidth / 2, 34, "tick middle", what));
}

std::string percent(double share) {
  return fmt::format("{:.{}f}%", share * 100, share > 0 && share < 0.095 ? 1 : 0);
}

// Where a chart's axes are, and their ticks.
struct Frame {
  double left = 0, top = 0, bottom = 0;
  Range x_range, y_range;
  bool y_percent = false;
  bool x_whole = false;

  Scale x() const { return {x_range, left, kRight}; }
  Scale y() const { return {y_range, bottom, top}; }

  std::string x_axis(std::size_t most, std::string_view label) const {
    std::string result;
    const Ticks ticks = nice_ticks(x_range, most, x_whole);
    for (const double value : ticks.values) {
      result += line(x()(value), bottom, x()(value), bottom + 4, "axis");
      result += text(x()(value), bottom + 17, "tick middle", tick_label(value, ticks.step));
    }
    result += line(left, bottom, kRight, bottom, "axis");
    return result + text((left + kRight) / 2, bottom + 34, "label middle", label);
  }

  std::string y_axis(std::size_t most, std::string_view label) const {
    std::string result;
    // A range that was widened to whole steps has up to two ticks more.
    const Ticks ticks = nice_ticks(y_range, most + 2);
    for (const double value : ticks.values) {
      result += line(left, y()(value), kRight, y()(value), "grid-line");
      const std::string shown = y_percent ? tick_label(value * 100, ticks.step * 100) + "%"
                                          : tick_label(value, ticks.step);
      result += text(left - 5, y()(value) + kTextDrop, "tick end", shown);
    }
    return result + text(4, 13, "label", label);
  }
};

constexpr std::array<std::string_view, 4> kDashes{"", "7 3", "2 3", "9 3 2 3"};
constexpr double kMarker = 3.6;
constexpr double kMarkerGap = 55;

std::string polygon(double x, double y, double radius, int corners, double turn) {
  std::string path;
  for (int i = 0; i < corners; ++i) {
    const double angle = turn + 2 * std::numbers::pi * i / corners;
    path += fmt::format("{}{} {}", i == 0 ? "M" : "L", length(x + radius * std::sin(angle)),
                        length(y - radius * std::cos(angle)));
  }
  return path + "z";
}

std::string cross(double x, double y, double dx, double dy) {
  return fmt::format("M{} {}L{} {}M{} {}L{} {}", length(x - dx), length(y - dy), length(x + dx),
                     length(y + dy), length(x - dy), length(y + dx), length(x + dy),
                     length(y - dx));
}

std::string marker(std::size_t style, double x, double y) {
  constexpr double kPi = std::numbers::pi;
  const std::size_t shape = (style + style / kSeriesColours) % 8;
  std::string path;
  switch (shape) {
    case 0:
      path = polygon(x, y, kMarker, 12, 0);
      break;
    case 1:
      path = polygon(x, y, kMarker * 1.3, 4, kPi / 4);
      break;
    case 2:
      path = polygon(x, y, kMarker * 1.4, 3, 0);
      break;
    case 3:
      path = polygon(x, y, kMarker * 1.4, 4, 0);
      break;
    case 4:
      path = polygon(x, y, kMarker * 1.4, 3, kPi);
      break;
    case 5:
      path = cross(x, y, kMarker * 1.3, 0);
      break;
    case 6:
      path = cross(x, y, kMarker, kMarker);
      break;
    default:
      path = polygon(x, y, kMarker * 1.3, 5, 0);
  }
  return fmt::format(R"(<path d="{}" class="marker {}{}"/>)", path, series_class(style),
                     shape == 5 || shape == 6 ? " open" : "");
}

std::string dashes(std::size_t style) {
  const std::string_view dash = kDashes[(style + style / kSeriesColours) % kDashes.size()];
  return dash.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", dash);
}

// The markers of different lines stand at different places, so that lines on top of each other can
// still be told apart.
std::string markers(const Series& series, const Frame& frame) {
  std::string result;
  double next = frame.left + 8 + std::fmod(static_cast<double>(series.style) * 13, kMarkerGap);
  for (const Point& point : series.points) {
    if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
    const double x = frame.x()(point.x);
    if (x < next) continue;
    next = x + kMarkerGap;
    if (frame.y_range.contains(point.y)) result += marker(series.style, x, frame.y()(point.y));
  }
  return result;
}

std::string draw_series(const Series& series, const Frame& frame) {
  Series thinned{
      .name = series.name, .points = thin(series.points, kChartPointsMax), .style = series.style};
  // What is far above is drawn just above.
  const double most = 2 * frame.y_range.high - frame.y_range.low;
  for (Point& point : thinned.points) {
    if (point.y > most) point.y = most;
  }
  return fmt::format(R"(<g><title>{}</title><path d="{}" class="line {}"{}/>{}</g>)",
                     escape_markup(series.name), line_path(thinned.points, frame.x(), frame.y()),
                     series_class(series.style), dashes(series.style), markers(thinned, frame));
}

// An inner picture: what reaches out of it is cut off.
std::string clipped(const Frame& frame, std::string_view content) {
  constexpr double kRoom = 5;  // for markers at the edge
  const double x = frame.left - kRoom;
  const double y = frame.top - kRoom;
  const double width = kRight - frame.left + 2 * kRoom;
  const double height = frame.bottom - frame.top + 2 * kRoom;
  return fmt::format(
      R"(<svg x="{0}" y="{1}" width="{2}" height="{3}" viewBox="{0} {1} {2} {3}">{4}</svg>)",
      length(x), length(y), length(width), length(height), content);
}

std::string target_line(const Frame& frame, double target) {
  const double y = frame.y()(target);
  return line(frame.left, y, kRight, y, "target") +
         text(kRight, y - 5, "target-text end", fmt::format("target {:.4g}", target));
}

std::vector<double> finite_values(const LineChart& chart, double Point::*coordinate) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (std::isfinite(point.x) && std::isfinite(point.y)) values.push_back(point.*coordinate);
    }
  }
  return values;
}

}  // namespace

std::string series_class(std::size_t index) {
  return fmt::format("s{}", index % kSeriesColours);
}

Range visible_values(const LineChart& chart) {
  std::vector<double> values = finite_values(chart, &Point::y);
  double highest_start = 0;
  for (const Series& series : chart.series) {
    const auto first = std::find_if(series.points.begin(), series.points.end(),
                                    [](const Point& point) { return std::isfinite(point.y); });
    if (first != series.points.end()) highest_start = std::max(highest_start, first->y);
  }
  if (highest_start > 0 && !chart.percent) {
    for (double& value : values) value = std::min(value, 2 * highest_start);
  }
  if (chart.target && std::isfinite(*chart.target) && !values.empty()) {
    values.push_back(*chart.target);
  }
  return range_of(values);
}

std::string draw_lines(const LineChart& chart_data) {
  const std::vector<double> x_values = finite_values(chart_data, &Point::x);
  if (x_values.empty()) return nothing("nothing was measured");
  constexpr std::size_t kYTicks = 6;
  Frame frame{.left = 48,
              .top = 26,
              .bottom = 216,
              .x_range = {0, std::max(range_of(x_values).high, 1e-9)},
              .y_range = nice_range(visible_values(chart_data), kYTicks),
              .y_percent = chart_data.percent,
              .x_whole = false};
  if (chart_data.percent) frame.y_range.high = std::min(1.0, frame.y_range.high);
  std::string content = frame.y_axis(kYTicks, chart_data.y_label);
  content += frame.x_axis(8, chart_data.x_label);
  std::string lines;
  for (const Series& series : chart_data.series) lines += draw_series(series, frame);
  content += clipped(frame, lines);
  if (chart_data.target && frame.y_range.contains(*chart_data.target)) {
    content += target_line(frame, *chart_data.target);
  }
  return chart(256, fmt::format("{} against {}", chart_data.y_label, chart_data.x_label), content);
}

std::string draw_line_sample(std::size_t style) {
  return fmt::format(
      R"(<svg class="sample" viewBox="0 0 40 14" aria-hidden="true"><path d="M1 7L39 7" class="line {}"{}/>{}</svg>)",
      series_class(style), dashes(style), marker(style, 20, 7));
}

std::vector<WorkerTime> group_rows(const std::vector<WorkerTime>& rows, std::size_t most) {
  if (rows.size() <= most) return rows;
  std::vector<WorkerTime> groups;
  for (std::size_t i = 0; i < most; ++i) {
    const std::size_t begin = rows.size() * i / most;
    const std::size_t end = rows.size() * (i + 1) / most;
    WorkerTime group;
    group.name = end - begin == 1 ? rows[begin].name
                                  : fmt::format("{}-{}", rows[begin].name, rows[end - 1].name);
    const auto count = static_cast<double>(end - begin);
    for (std::size_t row = begin; row < end; ++row) {
      group.computing_s += rows[row].computing_s / count;
      group.waiting_s += rows[row].waiting_s / count;
      group.pushing_s += rows[row].pushing_s / count;
      group.wasted_s += rows[row].wasted_s / count;
      group.total_s += rows[row].total_s / count;
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string draw_worker_times(const std::vector<WorkerTime>& all_rows) {
  const std::vector<WorkerTime> rows = group_rows(all_rows, kChartRowsMax);
  if (std::none_of(rows.begin(), rows.end(),
                   [](const WorkerTime& row) { return row.total_s > 0; })) {
    return nothing("no worker did anything");
  }
  constexpr double kRow = 19;
  constexpr double kBar = 14;
  const bool is_grouped = rows.size() < all_rows.size();
  const double right = 340;
  const Frame frame{.left = is_grouped ? 74.0 : 40.0,
                    .top = 24,
                    .bottom = 24 + kRow * static_cast<double>(rows.size()),
                    .x_range = {0, 1},
                    .y_range = {}};
  const Scale x({0, 1}, frame.left, right);
  std::string content = text(4, 13, "label", is_grouped ? "workers" : "worker") +
                        text(kWidth - 4, 13, "label end", "waiting");
  double y = frame.top;
  for (const WorkerTime& row : rows) {
    const double total = row.total_s > 0 ? row.total_s : 1;
    const double busy = row.computing_s + row.waiting_s + row.pushing_s + row.wasted_s;
    const std::pair<std::string_view, double> parts[] = {
        {fill_class(SpanKind::kComputing), row.computing_s},
        {fill_class(SpanKind::kPushing), row.pushing_s},
        {fill_class(SpanKind::kWasted), row.wasted_s},
        {fill_class(SpanKind::kWaiting), row.waiting_s},
        {kIdleFill, std::max(0.0, total - busy)}};
    content += text(frame.left - 6, y + kRow / 2 + kTextDrop, "tick end", row.name);
    double done = 0;
    for (const auto& [fill, seconds] : parts) {
      const double from = x(std::min(1.0, done / total));
      done += std::max(0.0, seconds);
      const double to = x(std::min(1.0, done / total));
      if (to - from < 0.05) continue;
      content +=
          rectangle(from, y + (kRow - kBar) / 2, to - from, kBar, fill,
                    fmt::format("{}: {:.2f} s, {}", fill, seconds, percent(seconds / total)));
    }
    content += text(kWidth - 4, y + kRow / 2 + kTextDrop, "tick end",
                    percent(std::max(0.0, row.waiting_s) / total));
    y += kRow;
  }
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double share = quarter / 4.0;
    content += line(x(share), y, x(share), y + 4, "axis");
    content += text(x(share), y + 17, "tick middle", percent(share));
  }
  content += line(frame.left, y, right, y, "axis");
  content += text((frame.left + right) / 2, y + 34, "label middle",
                  fmt::format("share of the run's {:.1f} s", rows.front().total_s));
  return chart(y + 40, "what each worker's time went into", content);
}

std::vector<HistogramBar> histogram_bars(const std::vector<StalenessBin>& bins, std::size_t most) {
  std::int64_t grants = 0;
  std::int64_t highest = 0;
  for (const StalenessBin& bin : bins) {
    grants += bin.grants;
    highest = std::max(highest, bin.high);
  }
  if (grants == 0 || most == 0) return {};
  const auto least = static_cast<double>(highest + 1) / static_cast<double>(most);
  const double width = std::max(1.0, nice_step(least));
  const auto count = static_cast<std::size_t>(std::ceil(static_cast<double>(highest + 1) / width));
  std::vector<HistogramBar> bars(count);
  for (std::size_t i = 0; i < count; ++i) bars[i] = {static_cast<double>(i) * width, width, 0};
  for (const StalenessBin& bin : bins) {
    const auto low = static_cast<double>(bin.low);
    const auto end = static_cast<double>(bin.high + 1);
    const double share = static_cast<double>(bin.grants) / static_cast<double>(grants);
    for (auto i = static_cast<std::size_t>(low / width); i < count; ++i) {
      const double overlap = std::min(end, bars[i].low + width) - std::max(low, bars[i].low);
      if (overlap <= 0) break;
      bars[i].share += share * overlap / (end - low);
    }
  }
  return bars;
}

std::string draw_staleness(const std::vector<StalenessBin>& bins, double mean) {
  const std::vector<HistogramBar> bars = histogram_bars(bins, kChartBarsMax);
  if (bars.empty()) return nothing("nothing was recorded");
  double highest = 0;
  for (const HistogramBar& bar : bars) highest = std::max(highest, bar.share);
  const double width = bars.front().width;
  // A bar of a single value stands over it; one of several starts at the first.
  const double shift = width == 1 ? 0.5 : 0;
  const double end = std::max(bars.back().low + width, 4.0);
  const Frame frame{.left = 48,
                    .top = 26,
                    .bottom = 156,
                    .x_range = {-shift, end - shift},
                    .y_range = {0, nice_range({0, highest}, 4).high},
                    .y_percent = true,
                    .x_whole = true};
  std::string content = frame.y_axis(4, "share of the grants");
  for (const HistogramBar& bar : bars) {
    if (bar.share <= 0) continue;
    const double from = frame.x()(bar.low - shift);
    const double to = frame.x()(bar.low + bar.width - shift);
    const double top = std::min(frame.y()(bar.share), frame.bottom - 0.5);
    const double gap = std::min(1.5, (to - from) / 8);
    const std::string values =
        width == 1 ? fmt::format("{:.0f}", bar.low)
                   : fmt::format("{:.0f} to {:.0f}", bar.low, bar.low + bar.width - 1);
    content += rectangle(from + gap / 2, top, to - from - gap, frame.bottom - top, "bar",
                         fmt::format("staleness {}: {}", values, percent(bar.share)));
  }
  content += frame.x_axis(8, "staleness at a grant, in iterations");
  if (std::isfinite(mean) && frame.x_range.contains(mean)) {
    const double x = frame.x()(mean);
    content += line(x, frame.top, x, frame.bottom, "target");
  }
  return chart(196, "how stale the grants were", content);
}

namespace {

// What of a worker's row is drawn after what: short things on top.
constexpr SpanKind kDrawOrder[] = {SpanKind::kWaiting, SpanKind::kComputing, SpanKind::kWasted,
                                   SpanKind::kExchanging, SpanKind::kPushing};
constexpr double kTimelineRow = 21;
constexpr double kTimelineBar = 15;

std::string span_title(std::string_view worker, const Span& span) {
  const double ms = static_cast<double>(span.end_us - span.start_us) / 1e3;
  std::string title = fmt::format("worker {}, iteration {}: {} for {:.2f} ms", worker,
                                  span.iteration, span_kind_name(span.kind), ms);
  if ((span.flags & kSpanBarrier) != 0) title += ", until a barrier";
  if ((span.flags & kSpanSkip) != 0) title += ", then jumped ahead";
  if ((span.flags & kSpanLate) != 0) title += ", too late";
  return title;
}

std::string draw_span(std::string_view worker, const Span& span, double from, double to, double y) {
  const double top = y + (kTimelineRow - kTimelineBar) / 2;
  if (span.kind == SpanKind::kPushing) {
    constexpr double kOver = 2;  // it stands out, as it may be short
    return rectangle(from, top - kOver, std::max(1.2, to - from), kTimelineBar + 2 * kOver,
                     fill_class(span.kind), span_title(worker, span));
  }
  std::string result = rectangle(from, top, std::max(0.4, to - from), kTimelineBar,
                                 fill_class(span.kind), span_title(worker, span));
  const std::string number = fmt::format("{}", span.iteration);
  const bool is_minibatch = span.kind == SpanKind::kComputing || span.kind == SpanKind::kWasted;
  if (is_minibatch && to - from > 10 + 8.5 * static_cast<double>(number.size())) {
    result += text((from + to) / 2, y + kTimelineRow / 2 + kTextDrop, "inside middle", number);
  }
  return result;
}

// A triangle that points to where a jump over iterations ended.
std::string draw_jumps(const std::vector<Span>& spans, const Scale& x, double from_x, double y) {
  std::string result;
  for (const Span& span : spans) {
    const double at = x(static_cast<double>(span.end_us));
    if ((span.flags & kSpanSkip) == 0 || at < from_x || at > kRight) continue;
    result += fmt::format(R"(<path d="{}" class="skip"><title>{}</title></path>)",
                          polygon(at, y + kTimelineRow / 2, 6, 3, std::numbers::pi / 2),
                          escape_markup(fmt::format("jumped to iteration {}", span.iteration)));
  }
  return result;
}

std::string draw_worker_spans(std::string_view worker, const std::vector<Span>& spans,
                              const Scale& x, double from_x, double y) {
  constexpr double kLeast = 0.3;  // of a span that is drawn beside another one of its kind
  std::string result;
  for (const SpanKind kind : kDrawOrder) {
    double drawn_until = from_x - 1;
    for (const Span& span : spans) {
      if (span.kind != kind) continue;
      const double from = std::max(from_x, x(static_cast<double>(span.start_us)));
      const double to = std::min(kRight, x(static_cast<double>(span.end_us)));
      if (to < from || (to - from < kLeast && from - drawn_until < kLeast)) continue;
      result += draw_span(worker, span, from, to, y);
      drawn_until = std::max(to, from + kLeast);
    }
  }
  return result + draw_jumps(spans, x, from_x, y);
}

}  // namespace

std::string draw_timeline(const Timeline& timeline) {
  if (timeline.empty() || timeline.workers.empty()) return nothing("nothing was recorded");
  const std::size_t workers = timeline.workers.size();
  const std::size_t rows = std::min(workers, kChartRowsMax);
  const auto start = static_cast<double>(timeline.start_us);
  const auto end = static_cast<double>(timeline.end_us);
  const bool in_ms = end - start < 1e7;
  const double unit = in_ms ? 1e3 : 1e6;
  const Frame frame{.left = 40,
                    .top = 22,
                    .bottom = 22 + kTimelineRow * static_cast<double>(rows) + 3,
                    .x_range = {0, (end - start) / unit},
                    .y_range = {}};
  const Scale x({start, end}, frame.left, kRight);
  std::string content = text(4, 13, "label", "worker");
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t worker = row * workers / rows;
    const double y = frame.top + kTimelineRow * static_cast<double>(row);
    const std::string name = fmt::format("{}", worker);
    content += text(frame.left - 6, y + kTimelineRow / 2 + kTextDrop, "tick end", name);
    content += draw_worker_spans(name, timeline.workers[worker], x, frame.left, y);
  }
  for (const std::int64_t barrier_us : timeline.barriers_us) {
    const double at = x(static_cast<double>(barrier_us));
    content += line(at, frame.top - 4, at, frame.bottom, "barrier");
  }
  content += frame.x_axis(8, in_ms ? "ms" : "s");
  return chart(frame.bottom + 40, "what the workers did, moment by moment", content);
}

std::string draw_fill_sample(std::string_view fill) {
  return fmt::format(R"(<svg class="sample" viewBox="0 0 26 14" aria-hidden="true">{}</svg>)",
                     rectangle(1, 1, 24, 12, fill));
}

std::string_view fill_class(SpanKind kind) {
  return span_kind_name(kind);
}

}  // namespace syncd::trainer
