// The HTML page: see report_html.h. No thread of its own.
#include "reference_trainer/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

// The two files as they are; paths from the build.
#define SYNCD_EMBED(name, file)                                                           \
  asm(".section .rodata\n" #name ":\n.incbin \"" file "\"\n" #name "_end:\n.previous\n"); \
  extern "C" const char name[];                                                           \
  extern "C" const char name##_end[]
SYNCD_EMBED(syncd_report_page, SYNCD_REPORT_PAGE);
SYNCD_EMBED(syncd_chart_js, SYNCD_CHART_JS);

namespace syncd::trainer {
namespace {

using Json = nlohmann::ordered_json;

// What JSON has no number for is null.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}

Json curve_json(const std::vector<CurvePoint>& curve) {
  Json columns;
  for (const char* name : {"time_s", "iterations", "loss", "accuracy", "loss_of_one"}) {
    columns[name] = Json::array();
  }
  const std::size_t step = (curve.size() + kReportPointsMax - 1) / kReportPointsMax;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (i % step != 0 && i + 1 < curve.size()) continue;
    const CurvePoint& point = curve[i];
    columns["time_s"].push_back(point.time_s);
    columns["iterations"].push_back(point.iterations);
    columns["loss"].push_back(number(point.loss));
    columns["accuracy"].push_back(number(point.accuracy));
    columns["loss_of_one"].push_back(number(point.loss_of_one));
  }
  return columns;
}

Json timeline_json(const Timeline& timeline) {
  const auto seconds = [](std::int64_t us) { return static_cast<double>(us) / 1e6; };
  const std::size_t supersteps =
      timeline.barriers_us.size() > 1 ? timeline.barriers_us.size() - 1 : 1;
  std::string what = fmt::format("about {} iterations", kTimelineIterations);
  if (timeline.is_superstep) {
    what = supersteps == 1 ? "one superstep" : fmt::format("{} supersteps", supersteps);
  }
  Json json{{"what", what},
            {"start_s", seconds(timeline.start_us)},
            {"end_s", seconds(timeline.end_us)},
            {"of", timeline.workers.size()}};
  json["barriers_s"] = json["ranks"] = json["workers"] = Json::array();
  for (const std::int64_t barrier : timeline.barriers_us) {
    json["barriers_s"].push_back(seconds(barrier));
  }
  const std::size_t rows = std::min(timeline.workers.size(), kReportRowsMax);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t worker = timeline.workers.size() * row / rows;
    Json spans = Json::array();
    for (const Span& span : timeline.workers[worker]) {
      spans.push_back({{"kind", span_kind_name(span.kind)},
                       {"iteration", span.iteration},
                       {"start_s", seconds(span.start_us)},
                       {"end_s", seconds(span.end_us)},
                       {"barrier", (span.flags & kSpanBarrier) != 0},
                       {"late", (span.flags & kSpanLate) != 0},
                       {"skip", (span.flags & kSpanSkip) != 0}});
    }
    json["ranks"].push_back(fmt::format("{}", worker));
    json["workers"].push_back(std::move(spans));
  }
  return json;
}

Json run_json(const RunResult& result) {
  double wasted_s = 0;
  Json workers = Json::array();
  for (const WorkerResult& worker : result.workers) {
    wasted_s += worker.wasted_s;
    workers.push_back({std::max(0.0, worker.computing_s - worker.wasted_s), worker.pushing_s,
                       worker.wasted_s, worker.waiting_s,
                       std::max(result.seconds, worker.active_s)});
  }
  Json staleness = Json::array();
  for (const StalenessBin& bin : result.staleness) {
    staleness.push_back({bin.low, bin.high, bin.grants});
  }
  return {{"policy", result.policy},
          {"iterations", result.iterations},
          {"seconds", result.seconds},
          {"waiting_share", result.waiting_share()},
          {"wasted_share", result.wasted_share()},
          {"wasted_s", wasted_s},
          {"restarts", result.restarts()},
          {"late", result.late()},
          {"skipped", result.skipped()},
          {"missing", result.missing_updates() + result.torn_updates()},
          {"staleness_mean", result.staleness_mean()},
          {"staleness_max", result.staleness_max()},
          {"curve", curve_json(result.curve)},
          {"workers", std::move(workers)},
          {"staleness", std::move(staleness)},
          {"timeline", timeline_json(result.timeline)}};
}

Json facts_json(const std::vector<Fact>& facts) {
  Json json = Json::array();
  for (const Fact& fact : facts) json.push_back({fact.name, fact.value});
  return json;
}

std::string title_of(const ReportContext& context, const std::vector<RunResult>& results) {
  if (results.size() == 1) {
    return fmt::format("{} under {}", context.workload, results.front().policy);
  }
  return fmt::format("{} under {} policies", context.workload, results.size());
}

}  // namespace

std::string report_data(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results) {
  const SummaryTable summary = summarize(context, results);
  Json json{{"title", title_of(context, results)},
            {"setting", describe_setting(context)},
            {"data", context.data},
            {"date", details.date},
            {"command", details.command},
            {"loss", context.loss_name},
            {"target", number(context.target_loss)},
            {"target_source", context.target_source},
            {"facts",
             {{"Configuration", facts_json(details.configuration)},
              {"Machine", facts_json(details.machine)},
              {"Versions", facts_json(details.versions)}}},
            {"summary", {{"header", summary.header}, {"rows", summary.rows}}}};
  json["problems"] = json["runs"] = Json::array();
  for (const RunResult& result : results) {
    std::istringstream lines(problems_of(result));
    for (std::string line; std::getline(lines, line);) json["problems"].push_back(line);
    json["runs"].push_back(run_json(result));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string render_html(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results) {
  std::string data = report_data(context, details, results);
  // "</script" and "<!--" would be read by the page; in JSON's strings '<' may be written so.
  for (std::size_t at = 0; (at = data.find('<', at)) != data.npos; at += 6) {
    data.replace(at, 1, "\\u003c");
  }
  std::string page(syncd_report_page, syncd_report_page_end);
  const std::pair<std::string_view, std::string_view> parts[] = {
      {"@DATA@", data}, {"@CHART@", {syncd_chart_js, syncd_chart_js_end}}};
  for (const auto& [place, part] : parts) page.replace(page.find(place), place.size(), part);
  return page;
}

}  // namespace syncd::trainer
