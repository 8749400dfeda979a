// The report as JSON, for programs and for the page: see report.h. No thread of
// its own.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference_trainer/report/report.h"

namespace syncd::trainer {
namespace {

using Json = nlohmann::ordered_json;

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json worker_json(const WorkerResult& worker) {
  return {{"end", worker.end},
          {"iterations", worker.iterations},
          {"computing_s", in_seconds(worker.computing_us)},
          {"waiting_s", in_seconds(worker.waiting_us)},
          {"pushing_s", in_seconds(worker.pushing_us)},
          {"wasted_s", in_seconds(worker.wasted_us)},
          {"staleness_max", worker.staleness_max},
          {"restarts", worker.restarts},
          {"late", worker.late},
          {"skipped", worker.skipped},
          {"reduced_updates", worker.reduced},
          {"missing_updates", worker.missing_updates},
          {"torn_updates", worker.torn_updates},
          {"rejoins", worker.rejoins},
          {"retries", worker.retries}};
}

Json result_json(const ReportContext& context, const RunResult& result) {
  const CurvePoint* reached =
      context.target_loss ? reached_loss(result, *context.target_loss) : nullptr;
  Json json{
      {"policy", result.policy},
      {"job", result.job},
      {"failure", result.failure.empty() ? Json(nullptr) : Json(result.failure)},
      {"interrupted", result.interrupted},
      {"time_to_target_s", reached != nullptr ? Json(reached->time_s) : Json(nullptr)},
      {"transfers_to_target",
       reached != nullptr && reached->transfers ? Json(*reached->transfers) : Json(nullptr)},
      {"seconds", result.seconds},
      {"iterations", result.iterations},
      {"iterations_per_s", result.iterations_per_s()},
      {"initial_loss", result.curve.empty() ? Json(nullptr) : Json(result.curve.front().loss)},
      {"final_loss", result.final_loss()},
      {"final_accuracy", optional_number(result.accuracy)},
      {"final_loss_of_one_worker", optional_number(result.one_worker_loss)},
      {"waiting_share", result.waiting_share()},
      {"staleness_mean", result.staleness_mean()},
      {"staleness_max", result.staleness_max()},
      {"unseen_updates_mean", optional_number(result.unseen_updates)},
      {"restarts", result.restarts()},
      {"wasted_share", result.wasted_share()},
      {"late", result.late()},
      {"skipped", result.skipped()},
      {"reduced_updates", result.reduced()},
      {"missing_updates", result.missing_updates()},
      {"torn_updates", result.torn_updates()},
      {"updates", result.updates},
      {"lost_workers", result.lost_workers()},
      {"half_written_updates", result.half_written}};
  json["workers"] = Json::array();
  for (const WorkerResult& worker : result.workers) json["workers"].push_back(worker_json(worker));
  return json;
}

Json span_json(std::size_t worker, const Span& span) {
  return {{"worker", worker},
          {"what", span_kind_name(span.kind)},
          {"iteration", span.iteration},
          {"start_s", in_seconds(span.start_us)},
          {"end_s", in_seconds(span.end_us)},
          {"barrier", (span.flags & kSpanBarrier) != 0},
          {"late", (span.flags & kSpanLate) != 0},
          {"skip", (span.flags & kSpanSkip) != 0}};
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
    columns["loss"].push_back(point.loss);
    columns["accuracy"].push_back(optional_number(point.accuracy));
    columns["loss_of_one"].push_back(optional_number(point.loss_of_one));
  }
  return columns;
}

Json timeline_json(const Timeline& timeline) {
  const std::size_t supersteps =
      timeline.barriers_us.size() > 1 ? timeline.barriers_us.size() - 1 : 1;
  std::string what = fmt::format("about {} iterations", kTimelineIterations);
  if (timeline.is_superstep) {
    what = supersteps == 1 ? "one superstep" : fmt::format("{} supersteps", supersteps);
  }
  Json json{{"what", what},
            {"start_s", in_seconds(timeline.start_us)},
            {"end_s", in_seconds(timeline.end_us)},
            {"of", timeline.workers.size()}};
  json["barriers_s"] = json["ranks"] = json["workers"] = Json::array();
  for (const std::int64_t barrier : timeline.barriers_us) {
    json["barriers_s"].push_back(in_seconds(barrier));
  }
  const std::size_t rows = std::min(timeline.workers.size(), kReportRowsMax);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t worker = timeline.workers.size() * row / rows;
    Json spans = Json::array();
    for (const Span& span : timeline.workers[worker]) spans.push_back(span_json(worker, span));
    json["ranks"].push_back(fmt::format("{}", worker));
    json["workers"].push_back(std::move(spans));
  }
  return json;
}

// What the page shows of a run: the figures and all series.
Json run_json(const ReportContext& context, const RunResult& result) {
  Json json = result_json(context, result);
  std::int64_t wasted_us = 0;
  json["workers"] = json["staleness"] = Json::array();
  for (const WorkerResult& worker : result.workers) {
    wasted_us += worker.wasted_us;
    json["workers"].push_back(
        {in_seconds(std::max<std::int64_t>(0, worker.computing_us - worker.wasted_us)),
         in_seconds(worker.pushing_us), in_seconds(worker.wasted_us), in_seconds(worker.waiting_us),
         std::max(result.seconds, in_seconds(worker.active_us()))});
  }
  json["wasted_s"] = in_seconds(wasted_us);
  json["missing"] = result.missing_updates() + result.torn_updates();
  json["curve"] = curve_json(result.curve);
  for (const StalenessBin& bin : result.staleness) {
    json["staleness"].push_back({bin.low, bin.high, bin.grants});
  }
  json["timeline"] = timeline_json(result.timeline);
  return json;
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

std::string render_json_lines(const ReportContext& context, const std::vector<RunResult>& results) {
  std::string text;
  for (std::size_t run = 0; run < results.size(); ++run) {
    const RunResult& result = results[run];
    const auto add = [&](const char* type, const Json& fields) {
      Json line{{"type", type}, {"run", run}};
      line.update(fields);
      text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    };
    Json summary = result_json(context, result);
    summary.erase("workers");
    summary["workload"] = context.workload;
    add("run", summary);
    for (const CurvePoint& point : result.curve) {
      Json fields{{"time_s", point.time_s}, {"iterations", point.iterations}, {"loss", point.loss}};
      if (point.accuracy) fields["accuracy"] = *point.accuracy;
      if (point.loss_of_one) fields["loss_of_one_worker"] = *point.loss_of_one;
      if (point.transfers) fields["transfers"] = *point.transfers;
      add("loss", fields);
    }
    for (std::size_t i = 0; i < result.workers.size(); ++i) {
      Json fields{{"worker", i}};
      fields.update(worker_json(result.workers[i]));
      add("worker", fields);
    }
    for (const StalenessBin& bin : result.staleness) {
      add("staleness",
          {{"staleness_low", bin.low}, {"staleness_high", bin.high}, {"grants", bin.grants}});
    }
    for (std::size_t i = 0; i < result.timeline.workers.size(); ++i) {
      for (const Span& span : result.timeline.workers[i]) add("span", span_json(i, span));
    }
  }
  return text;
}

std::string render_json(const ReportContext& context, const std::vector<RunResult>& results) {
  Json json{{"workload", context.workload},
            {"loss", context.loss_name},
            {"data", context.data},
            {"workers", context.workers},
            {"seed", context.seed},
            {"hop_order", context.hop_order == HopOrder::kSerial ? "serial" : "parallel"},
            {"slowdown", context.slowdown},
            {"iteration_ms", context.iteration_ms},
            {"virtual_iteration_time", context.virtual_iteration_time.empty()
                                           ? Json(nullptr)
                                           : Json(context.virtual_iteration_time)},
            {"target_loss", optional_number(context.target_loss)},
            {"target_source", context.target_source}};
  json["configuration"] = Json::object();
  for (const Fact& fact : context.configuration) json["configuration"][fact.name] = fact.value;
  json["policies"] = Json::array();
  for (const RunResult& result : results) json["policies"].push_back(result_json(context, result));
  // A path or a message may hold bytes that are no UTF-8; they are replaced rather than fatal.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_data(const ReportContext& context, const ReportDetails& details,
                        const std::vector<RunResult>& results) {
  const SummaryTable summary = summarize(context, results);
  Json json{{"title", title_of(context, results)},
            {"setting", describe_setting(context)},
            {"data", context.data},
            {"date", details.date},
            {"command", details.command},
            {"loss", context.loss_name},
            {"target", optional_number(context.target_loss)},
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
    json["runs"].push_back(run_json(context, result));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace syncd::trainer
