// Tables and CSV files: see report.h. No thread of its own. JSON is in report_json.cpp, because its
// library is slow to compile.
#include "reference_trainer/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reference_trainer/data/data_file.h"
#include "reference_trainer/run/policies.h"

namespace syncd::trainer {
namespace {

std::string time_to_target(const ReportContext& context, const RunResult& result) {
  if (!context.target_loss) return "-";
  const CurvePoint* point = reached_loss(result, *context.target_loss);
  return point != nullptr ? fmt::format("{:.1f}", point->time_s) : "-";
}

struct Column {
  const char* heading;
  std::string (*cell)(const ReportContext&, const RunResult&);
};

constexpr Column kColumns[] = {
    {"s to target", time_to_target},
    {"iterations", [](auto&, auto& run) { return fmt::format("{}", run.iterations); }},
    {"iterations/s",
     [](auto&, auto& run) { return fmt::format("{:.1f}", run.iterations_per_s()); }},
    {"final loss",
     [](auto&, auto& run) {
       return std::isfinite(run.final_loss()) ? fmt::format("{:.4f}", run.final_loss())
                                              : std::string("diverged");
     }},
    {"waiting", [](auto&, auto& run) { return format_percent(run.waiting_share()); }},
    {"mean staleness",
     [](auto&, auto& run) { return fmt::format("{:.2f}", run.staleness_mean()); }},
    {"max", [](auto&, auto& run) { return fmt::format("{}", run.staleness_max()); }},
};

// Shown only where it says something of some run of the comparison; the others then have a dash.
struct ExtraColumn {
  Column column;
  bool (*applies)(const RunResult&);
};

const ExtraColumn kExtraColumns[] = {
    {{"accuracy", [](auto&, auto& run) { return format_percent(*run.accuracy); }},
     [](auto& run) { return run.accuracy.has_value(); }},
    {{"restarts", [](auto&, auto& run) { return fmt::format("{}", run.restarts()); }},
     [](auto& run) { return may_start_over(run.policy) || run.restarts() > 0; }},
    {{"wasted", [](auto&, auto& run) { return format_percent(run.wasted_share()); }},
     [](auto& run) { return may_start_over(run.policy) || run.wasted_share() > 0; }},
    {{"skipped", [](auto&, auto& run) { return fmt::format("{}", run.skipped()); }},
     [](auto& run) { return run.skipped() > 0; }},
    {{"missing",
      [](auto&, auto& run) {
        return fmt::format("{}", run.missing_updates() + run.torn_updates());
      }},
     [](auto& run) { return peer_policy(run.policy).has_value(); }},
};

}  // namespace

SummaryTable summarize(const ReportContext& context, const std::vector<RunResult>& results) {
  std::vector<std::string> header{"policy"};
  std::vector<std::vector<std::string>> rows;
  rows.reserve(results.size());
  for (const RunResult& result : results) rows.push_back({result.policy});
  for (const Column& column : kColumns) {
    header.emplace_back(column.heading);
    for (std::size_t i = 0; i < results.size(); ++i) {
      // A run that never got going has nothing to show but its reason, which stands below.
      const bool is_known = results[i].iterations > 0 || &column == &kColumns[1];
      rows[i].push_back(is_known ? column.cell(context, results[i]) : "-");
    }
  }
  for (const auto& [column, applies] : kExtraColumns) {
    if (std::none_of(results.begin(), results.end(), applies)) continue;
    header.emplace_back(column.heading);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const bool is_known = results[i].iterations > 0 && applies(results[i]);
      rows[i].push_back(is_known ? column.cell(context, results[i]) : "-");
    }
  }
  return {.header = std::move(header), .rows = std::move(rows)};
}

std::string problems_of(const RunResult& result) {
  std::string text;
  if (!result.failure.empty()) {
    text += fmt::format("{}: the run failed: {}\n", result.policy, result.failure);
  }
  if (result.interrupted) text += fmt::format("{}: interrupted\n", result.policy);
  if (result.failure.empty() && !result.interrupted) {
    for (std::size_t i = 0; i < result.workers.size(); ++i) {
      if (result.workers[i].finished) continue;
      text += fmt::format("{}: worker {} was lost after {} iterations ({}); the others went on\n",
                          result.policy, i, result.workers[i].iterations, result.workers[i].end);
    }
  }
  if (result.iterations > 0 && !std::isfinite(result.final_loss())) {
    text += fmt::format(
        "{}: training diverged; a smaller --learning-rate or --batch helps (several workers make "
        "their steps at once)\n",
        result.policy);
  }
  if (const auto unread = result.missing_updates() + result.torn_updates(); unread > 0) {
    text += fmt::format(
        "{}: {} of {} updates were left out of a reduce ({} not there, {} half-written)\n",
        result.policy, unread, unread + result.reduced(), result.missing_updates(),
        result.torn_updates());
  }
  if (result.half_written > 0) {
    text += fmt::format("{}: {} half-written update{} of lost workers stayed in the parameters\n",
                        result.policy, result.half_written, result.half_written == 1 ? "" : "s");
  }
  return text;
}

std::string format_percent(double share) {
  return fmt::format("{:.1f}%", share * 100);
}

std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  widths.reserve(header.size());
  for (const std::string& cell : header) widths.push_back(cell.size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  const auto add_row = [&](const std::vector<std::string>& row) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) line += fmt::format("  {:>{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  add_row(header);
  for (const auto& row : rows) add_row(row);
  return text;
}

std::string describe_setting(const ReportContext& context) {
  std::string text = fmt::format("{}, {} worker{}, seed {}, ", context.workload, context.workers,
                                 context.workers == 1 ? "" : "s", context.seed);
  if (!context.virtual_iteration_time.empty()) {
    text += fmt::format("virtual time, {} ms per iteration", context.virtual_iteration_time);
  } else if (context.iteration_ms > 0) {
    text += fmt::format("{:g} ms per iteration", context.iteration_ms);
  } else {
    text += "iterations as fast as they go";
  }
  if (context.hop_order == HopOrder::kSerial) text += ", Hop in serial order";
  for (const std::string& setting : context.more_settings) text += ", " + setting;
  return text + fmt::format(", slowdown {}", context.slowdown);
}

std::string render_report(const ReportContext& context, const std::vector<RunResult>& results) {
  std::string text = fmt::format("{}\n{}\n", describe_setting(context), context.data);
  text += fmt::format("loss: {}", context.loss_name);
  if (context.target_loss) {
    text += fmt::format("; target {:.4f} ({})", *context.target_loss, context.target_source);
  }
  text += "\n\n";
  const SummaryTable summary = summarize(context, results);
  text += format_table(summary.header, summary.rows);
  std::string problems;
  for (const RunResult& result : results) problems += problems_of(result);
  if (!problems.empty()) text += "\n" + problems;
  return text;
}

std::string curve_csv(const RunResult& result) {
  const auto has = [&](auto member) {
    return std::any_of(result.curve.begin(), result.curve.end(),
                       [&](const CurvePoint& point) { return (point.*member).has_value(); });
  };
  const bool has_accuracy = has(&CurvePoint::accuracy);
  const bool has_one = has(&CurvePoint::loss_of_one);
  const bool has_transfers = has(&CurvePoint::transfers);
  std::string text = "time_s,iterations,loss";
  if (has_accuracy) text += ",accuracy";
  if (has_one) text += ",loss_of_one_worker";
  if (has_transfers) text += ",transfers";
  text += "\n";
  const auto number = [](const auto& value) {
    return value ? fmt::format(",{:.6f}", *value) : ",";
  };
  for (const CurvePoint& point : result.curve) {
    text += fmt::format("{:.3f},{},{:.6f}", point.time_s, point.iterations, point.loss);
    if (has_accuracy) text += number(point.accuracy);
    if (has_one) text += number(point.loss_of_one);
    if (has_transfers) text += fmt::format(",{}", point.transfers.value_or(0));
    text += "\n";
  }
  return text;
}

std::string staleness_csv(const RunResult& result) {
  std::string text = "staleness_low,staleness_high,grants\n";
  for (const StalenessBin& bin : result.staleness) {
    text += fmt::format("{},{},{}\n", bin.low, bin.high, bin.grants);
  }
  return text;
}

std::string spans_csv(const RunResult& result) {
  std::string text = "worker,what,iteration,start_s,end_s,barrier,late,skip\n";
  for (std::size_t worker = 0; worker < result.timeline.workers.size(); ++worker) {
    for (const Span& span : result.timeline.workers[worker]) {
      const auto has = [&](SpanFlags flag) { return (span.flags & flag) != 0 ? 1 : 0; };
      text += fmt::format("{},{},{},{:.6f},{:.6f},{},{},{}\n", worker, span_kind_name(span.kind),
                          span.iteration, in_seconds(span.start_us), in_seconds(span.end_us),
                          has(kSpanBarrier), has(kSpanLate), has(kSpanSkip));
    }
  }
  return text;
}

std::string workers_csv(const RunResult& result) {
  std::string text =
      "worker,iterations,computing_s,waiting_s,pushing_s,wasted_s,waiting_share,wasted_share,"
      "staleness_mean,staleness_max,pulls,restarts,late,skipped,reduced_updates,missing_updates,"
      "torn_updates,rejoins,end\n";
  for (std::size_t i = 0; i < result.workers.size(); ++i) {
    const WorkerResult& w = result.workers[i];
    const auto share = [&](std::int64_t us) {
      return w.active_us() > 0 ? in_seconds(us) / in_seconds(w.active_us()) : 0;
    };
    const double mean =
        w.grants > 0 ? static_cast<double>(w.staleness_sum) / static_cast<double>(w.grants) : 0;
    std::string end = w.end;
    for (std::size_t at = 0; (at = end.find('"', at)) != end.npos; at += 2) end.insert(at, 1, '"');
    text +=
        fmt::format("{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{:.3f},", i, w.iterations,
                    in_seconds(w.computing_us), in_seconds(w.waiting_us), in_seconds(w.pushing_us),
                    in_seconds(w.wasted_us), share(w.waiting_us), share(w.wasted_us), mean);
    text += fmt::format("{},{},{},{},{},{},{},{},{},\"{}\"\n", w.staleness_max, w.pulls, w.restarts,
                        w.late, w.skipped, w.reduced, w.missing_updates, w.torn_updates, w.rejoins,
                        end);
  }
  return text;
}

std::vector<std::filesystem::path> write_csv_files(const std::filesystem::path& directory,
                                                   const ReportContext& context,
                                                   const std::vector<RunResult>& results) {
  std::vector<std::filesystem::path> files;
  std::map<std::string, int> uses;
  for (const RunResult& result : results) {
    std::string name = fmt::format("{}-{}", context.workload, policy_slug(result.policy));
    const int use = ++uses[name];
    if (use > 1) name += fmt::format("-{}", use);
    const std::pair<const char*, std::string> contents[] = {{"loss", curve_csv(result)},
                                                            {"workers", workers_csv(result)},
                                                            {"staleness", staleness_csv(result)},
                                                            {"spans", spans_csv(result)}};
    for (const auto& [what, text] : contents) {
      files.push_back(directory / fmt::format("{}-{}.csv", name, what));
      write_data_file(files.back(), text);
    }
  }
  return files;
}

}  // namespace syncd::trainer
