// The HTML page: see report_html.h. No thread of its own.
#include "reference_trainer/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference_trainer/charts.h"
#include "reference_trainer/report_style.h"

namespace syncd::trainer {
namespace {

// A policy's name, which may be broken where its parts end.
std::string breakable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(",:+"), text.size() - 1) + 1;
    result += escape_markup(text.substr(0, end));
    text.remove_prefix(end);
    if (!text.empty()) result += "<wbr/>";
  }
  return result;
}

bool has_data(const RunResult& result) {
  return result.iterations > 0;
}

std::string section(std::string_view id, std::string_view heading, std::string_view content) {
  return fmt::format("<section id=\"{0}\"><h2>{1}</h2>\n{2}</section>\n", id, heading, content);
}

std::string figure(std::string_view caption, std::string_view note, std::string_view content) {
  const std::string small = note.empty() ? "" : fmt::format("<small>{}</small>", note);
  return fmt::format("<figure><figcaption>{}{}</figcaption>{}</figure>\n", caption, small, content);
}

std::string policy_caption(const RunResult& result, std::size_t style) {
  return draw_line_sample(style) + breakable(result.policy);
}

std::string table(const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"scroll\"><table><thead><tr>";
  for (const std::string& cell : header) html += fmt::format("<th scope=\"col\">{}</th>", cell);
  html += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    html += fmt::format("<tr><th scope=\"row\">{}</th>", row.front());
    for (std::size_t i = 1; i < row.size(); ++i) html += fmt::format("<td>{}</td>", row[i]);
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string problems(const std::vector<RunResult>& results) {
  std::string items;
  for (const RunResult& result : results) {
    const std::string text = problems_of(result);
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find('\n', begin), text.size());
      items += fmt::format("<li>{}</li>", escape_markup(text.substr(begin, end - begin)));
      begin = end + 1;
    }
  }
  return items.empty() ? "" : fmt::format("<div class=\"problems\"><ul>{}</ul></div>\n", items);
}

std::string summary(const ReportContext& context, const std::vector<RunResult>& results) {
  SummaryTable summary = summarize(context, results);
  for (std::string& cell : summary.header) cell = escape_markup(cell);
  for (std::size_t i = 0; i < summary.rows.size(); ++i) {
    std::vector<std::string>& row = summary.rows[i];
    for (std::size_t cell = 1; cell < row.size(); ++cell) row[cell] = escape_markup(row[cell]);
    row.front() = policy_caption(results[i], i);
  }
  std::string html = table(summary.header, summary.rows) + problems(results);
  html += fmt::format("<p class=\"dim\">Loss: {}.", escape_markup(context.loss_name));
  if (context.target_loss) {
    html += fmt::format(" Target: {:.4f} ({}).", *context.target_loss,
                        escape_markup(context.target_source));
  }
  return section("summary", "Summary",
                 html +
                     " Waiting is the share of the workers' time that they were blocked; staleness "
                     "says how far a worker was ahead of the slowest one when an iteration was "
                     "granted.</p>\n");
}

std::string policy_legend(const std::vector<RunResult>& results) {
  std::string items;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!has_data(results[i])) continue;
    items += fmt::format("<li>{}</li>", policy_caption(results[i], i));
  }
  return fmt::format("<ul class=\"legend\">{}</ul>\n", items);
}

// One line per policy; `x` and `y` read a point of its curve.
template <typename X, typename Y>
LineChart line_chart(const std::vector<RunResult>& results, X x, Y y) {
  LineChart chart;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!has_data(results[i])) continue;
    Series series{.name = results[i].policy, .points = {}, .style = i};
    series.points.reserve(results[i].curve.size());
    for (const CurvePoint& point : results[i].curve) series.points.push_back({x(point), y(point)});
    chart.series.push_back(std::move(series));
  }
  return chart;
}

template <typename Y>
std::string two_charts(const std::vector<RunResult>& results, std::string_view what,
                       const LineChart& common, Y y) {
  LineChart by_time = line_chart(
      results, [](const CurvePoint& point) { return point.time_s; }, y);
  LineChart by_work = line_chart(
      results, [](const CurvePoint& point) { return static_cast<double>(point.iterations); }, y);
  by_time.x_label = "seconds since the first grant";
  by_work.x_label = "iterations of all workers together";
  for (LineChart* chart : {&by_time, &by_work}) {
    chart->y_label = common.y_label;
    chart->percent = common.percent;
    chart->target = common.target;
  }
  return fmt::format("<div class=\"grid\">{}{}</div>\n",
                     figure(fmt::format("{} against time", what), "", draw_lines(by_time)),
                     figure(fmt::format("{} against iterations", what), "", draw_lines(by_work)));
}

std::string loss_section(const ReportContext& context, const std::vector<RunResult>& results) {
  const LineChart common{.x_label = "",
                         .y_label = context.loss_name,
                         .percent = false,
                         .target = context.target_loss,
                         .series = {}};
  return section(
      "loss", "Loss",
      policy_legend(results) +
          two_charts(results, "Loss", common, [](const CurvePoint& point) { return point.loss; }));
}

std::string accuracy_section(const std::vector<RunResult>& results) {
  const bool is_known = std::any_of(results.begin(), results.end(), [](const RunResult& result) {
    return std::any_of(result.curve.begin(), result.curve.end(),
                       [](const CurvePoint& point) { return point.accuracy.has_value(); });
  });
  if (!is_known) return "";
  const LineChart common{.x_label = "",
                         .y_label = "held-out accuracy",
                         .percent = true,
                         .target = std::nullopt,
                         .series = {}};
  return section(
      "accuracy", "Accuracy",
      policy_legend(results) + two_charts(results, "Accuracy", common, [](const CurvePoint& point) {
        return point.accuracy.value_or(std::numeric_limits<double>::quiet_NaN());
      }));
}

// One figure per policy, in a grid; a run without data has its reason there.
template <typename Draw>
std::string small_multiples(const std::vector<RunResult>& results, Draw draw) {
  std::string html = "<div class=\"grid\">\n";
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string caption = policy_caption(results[i], i);
    if (has_data(results[i])) {
      html += draw(results[i], caption);
    } else {
      html += figure(caption, "", "<p class=\"dim\">No iteration was made.</p>");
    }
  }
  return html + "</div>\n";
}

struct FillName {
  std::string_view fill;
  std::string_view name;
};

std::string fill_legend(std::initializer_list<FillName> fills) {
  std::string items;
  for (const FillName& fill : fills) {
    items += fmt::format("<li>{}{}</li>", draw_fill_sample(fill.fill), fill.name);
  }
  return fmt::format("<ul class=\"legend\">{}</ul>\n", items);
}

std::vector<WorkerTime> worker_times(const RunResult& result) {
  std::vector<WorkerTime> rows;
  for (std::size_t i = 0; i < result.workers.size(); ++i) {
    const WorkerResult& worker = result.workers[i];
    rows.push_back({.name = fmt::format("{}", i),
                    .computing_s = std::max(0.0, worker.computing_s - worker.wasted_s),
                    .waiting_s = worker.waiting_s,
                    .pushing_s = worker.pushing_s,
                    .wasted_s = worker.wasted_s,
                    .total_s = std::max(result.seconds, worker.active_s)});
  }
  return rows;
}

std::string time_section(const std::vector<RunResult>& results) {
  const std::string legend = fill_legend({{fill_class(SpanKind::kComputing), "computing"},
                                          {fill_class(SpanKind::kPushing), "pushing, sending"},
                                          {fill_class(SpanKind::kWasted), "computing thrown away"},
                                          {fill_class(SpanKind::kWaiting), "waiting"},
                                          {kIdleFill, "idle: not begun, or no work left"}});
  return section(
      "time", "Where the workers' time went",
      legend + small_multiples(results, [](const RunResult& result, const std::string& caption) {
        std::string note = format_percent(result.waiting_share()) + " of the time waiting";
        if (result.wasted_share() > 0) {
          note += fmt::format(", {} computing for nothing", format_percent(result.wasted_share()));
        }
        return figure(caption, note, draw_worker_times(worker_times(result)));
      }));
}

std::string staleness_section(const std::vector<RunResult>& results) {
  return section(
      "staleness", "Staleness at the grants",
      "<p class=\"dim\">How many iterations a worker was ahead of the slowest one (decentralized: "
      "of its slowest in-neighbour) when it was granted the next. The scales differ.</p>\n" +
          small_multiples(results, [](const RunResult& result, const std::string& caption) {
            return figure(caption,
                          fmt::format("mean {:.2f} (dashed line), at most {}",
                                      result.staleness_mean(), result.staleness_max()),
                          draw_staleness(result.staleness, result.staleness_mean()));
          }));
}

double wasted_s(const RunResult& result) {
  double sum = 0;
  for (const WorkerResult& worker : result.workers) sum += worker.wasted_s;
  return sum;
}

std::string lost_work_section(const std::vector<RunResult>& results) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const RunResult& result = results[i];
    std::vector<std::string> row{policy_caption(result, i)};
    if (!has_data(result)) {
      row.resize(8, "-");
      rows.push_back(std::move(row));
      continue;
    }
    const std::int64_t times = result.restarts() + result.late();
    const double seconds = wasted_s(result);
    row.push_back(fmt::format("{}", result.restarts()));
    row.push_back(fmt::format("{}", result.late()));
    row.push_back(fmt::format("{:.2f} s", seconds));
    row.push_back(format_percent(result.wasted_share()));
    row.push_back(times > 0 ? fmt::format("{:.1f} ms", seconds * 1e3 / static_cast<double>(times))
                            : std::string("-"));
    row.push_back(fmt::format("{}", result.skipped()));
    row.push_back(fmt::format("{}", result.missing_updates() + result.torn_updates()));
    rows.push_back(std::move(row));
  }
  return section(
      "lost", "Restarts, late and skipped iterations",
      "<p class=\"dim\">SpecSync restarts an iteration to compute on fresher parameters; with "
      "backup workers, an update that comes too late is dropped and its worker goes on where the "
      "others are; Hop lets a slow worker skip iterations.</p>\n" +
          table({"policy", "restarts", "late updates", "computing thrown away",
                 "of the workers' time", "each time", "skipped iterations", "missing updates"},
                rows));
}

std::string timeline_note(const Timeline& timeline) {
  if (timeline.empty()) return "";
  const std::size_t supersteps =
      timeline.barriers_us.size() > 1 ? timeline.barriers_us.size() - 1 : 1;
  std::string what = fmt::format("about {} iterations", kTimelineIterations);
  if (timeline.is_superstep) {
    what = supersteps == 1 ? "one superstep" : fmt::format("{} supersteps", supersteps);
  }
  std::string note =
      fmt::format("{}, from {:.2f} s on", what, static_cast<double>(timeline.start_us) / 1e6);
  if (timeline.workers.size() > kChartRowsMax) {
    note += fmt::format("; {} of {} workers", kChartRowsMax, timeline.workers.size());
  }
  return note;
}

std::string timeline_section(const std::vector<RunResult>& results) {
  const std::string legend =
      fill_legend({{fill_class(SpanKind::kComputing), "computing, with the iteration's number"},
                   {fill_class(SpanKind::kWasted), "computing that was thrown away"},
                   {fill_class(SpanKind::kWaiting), "waiting"},
                   {fill_class(SpanKind::kExchanging), "parameters: pull, apply, send, reduce"},
                   {fill_class(SpanKind::kPushing), "push"}});
  return section(
      "timeline", "Timeline",
      "<p class=\"dim\">Moments from the middle of each run; where iterations are started over, "
      "dropped or jumped over, moments in which that happens. Dashed vertical lines are global "
      "synchronizations; a triangle is a jump over iterations.</p>\n" +
          legend +
          small_multiples(results, [](const RunResult& result, const std::string& caption) {
            return figure(caption, timeline_note(result.timeline), draw_timeline(result.timeline));
          }));
}

std::string facts(std::string_view heading, const std::vector<Fact>& list) {
  std::string html = fmt::format("<figure><h3>{}</h3><dl>", heading);
  for (const Fact& fact : list) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>", escape_markup(fact.name), breakable(fact.value));
  }
  return html + "</dl></figure>\n";
}

std::string details_section(const ReportDetails& details) {
  return section(
      "details", "How these runs were made",
      fmt::format("<pre><code>{}</code></pre>\n<div class=\"grid\">\n{}{}{}</div>\n",
                  escape_markup(details.command), facts("Configuration", details.configuration),
                  facts("Machine", details.machine), facts("Versions", details.versions)));
}

std::string title_of(const ReportContext& context, const std::vector<RunResult>& results) {
  if (results.size() == 1) {
    return fmt::format("{} under {}", context.workload, results.front().policy);
  }
  return fmt::format("{} under {} policies", context.workload, results.size());
}

std::string navigation(bool has_accuracy) {
  std::string links;
  const std::pair<std::string_view, std::string_view> targets[] = {
      {"summary", "Summary"},   {"loss", "Loss"},           {"accuracy", "Accuracy"},
      {"time", "Time"},         {"staleness", "Staleness"}, {"lost", "Restarts"},
      {"timeline", "Timeline"}, {"details", "Details"}};
  for (const auto& [id, name] : targets) {
    if (id == "accuracy" && !has_accuracy) continue;
    links += fmt::format("<a href=\"#{}\">{}</a>\n", id, name);
  }
  return fmt::format("<nav>{}</nav>\n", links);
}

}  // namespace

std::string render_html(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results) {
  const std::string title = escape_markup(title_of(context, results));
  std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n";
  html += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n";
  html += "<meta name=\"color-scheme\" content=\"light dark\"/>\n";
  html += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}\n", title,
                      kReportStyle, kReportPatterns);
  const std::string accuracy = accuracy_section(results);
  html +=
      fmt::format("<header><h1>{}</h1>\n<p>{}</p>\n<p class=\"dim\">{}<br/>{}</p>\n{}</header>\n",
                  title, escape_markup(describe_setting(context)), escape_markup(context.data),
                  escape_markup(details.date), navigation(!accuracy.empty()));
  html += "<main>\n" + summary(context, results) + loss_section(context, results) + accuracy;
  html += time_section(results) + staleness_section(results) + lost_work_section(results);
  html += timeline_section(results) + details_section(details) + "</main>\n";
  html += "<footer>Written by syncd's reference trainer.</footer>\n</body>\n</html>\n";
  return html;
}

}  // namespace syncd::trainer
