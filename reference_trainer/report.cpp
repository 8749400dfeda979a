// Tables and CSV files: see report.h. No thread of its own. JSON is in report_json.cpp, because its
// library is slow to compile.
#include "reference_trainer/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "reference_trainer/data_file.h"
#include "reference_trainer/policy_list.h"

namespace syncd::trainer {
namespace {

std::string time_to_target(const ReportContext& context, const RunResult& result) {
  if (!context.target_loss) return "-";
  const auto seconds = time_to_loss(result, *context.target_loss);
  return seconds ? fmt::format("{:.1f}", *seconds) : "-";
}

std::vector<std::string> row_of(const ReportContext& context, const RunResult& result) {
  // A run that never got going has nothing to show but its reason, which stands below the table.
  if (result.iterations == 0) {
    return {result.policy, "-", "0", "-", "-", "-", "-", "-", "-"};
  }
  return {
      result.policy,
      time_to_target(context, result),
      fmt::format("{}", result.iterations),
      fmt::format("{:.1f}", result.iterations_per_s()),
      std::isfinite(result.final_loss()) ? fmt::format("{:.4f}", result.final_loss()) : "diverged",
      fmt::format("{:.1f}%", result.waiting_share() * 100),
      fmt::format("{:.2f}", result.staleness_mean()),
      fmt::format("{}", result.staleness_max()),
      fmt::format("{}", result.aborts())};
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
  if (result.rolled_back > 0) {
    text += fmt::format("{}: {} half-written update{} of lost workers {} taken back\n",
                        result.policy, result.rolled_back, result.rolled_back == 1 ? "" : "s",
                        result.rolled_back == 1 ? "was" : "were");
  }
  return text;
}

}  // namespace

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

std::string render_report(const ReportContext& context, const std::vector<RunResult>& results) {
  std::string text = fmt::format("{}, {} worker{}, seed {}, ", context.workload, context.workers,
                                 context.workers == 1 ? "" : "s", context.seed);
  text += context.iteration_ms > 0 ? fmt::format("{:g} ms per iteration", context.iteration_ms)
                                   : "iterations as fast as they go";
  text += fmt::format(", slowdown {}\n{}\n", context.slowdown, context.data);
  text += fmt::format("loss: {}", context.loss_name);
  if (context.target_loss) {
    text += fmt::format("; target {:.4f} ({})", *context.target_loss, context.target_source);
  }
  text += "\n\n";
  std::vector<std::vector<std::string>> rows;
  rows.reserve(results.size());
  for (const RunResult& result : results) rows.push_back(row_of(context, result));
  text += format_table({"policy", "s to target", "iterations", "iterations/s", "final loss",
                        "waiting", "mean staleness", "max", "aborts"},
                       rows);
  std::string problems;
  for (const RunResult& result : results) problems += problems_of(result);
  if (!problems.empty()) text += "\n" + problems;
  return text;
}

std::string curve_csv(const RunResult& result) {
  std::string text = "time_s,iterations,loss\n";
  for (const CurvePoint& point : result.curve) {
    text += fmt::format("{:.3f},{},{:.6f}\n", point.time_s, point.iterations, point.loss);
  }
  return text;
}

std::string workers_csv(const RunResult& result) {
  std::string text =
      "worker,iterations,computing_s,waiting_s,pushing_s,wasted_s,waiting_share,staleness_mean,"
      "staleness_max,pulls,aborts,late,skipped,rejoins,end\n";
  for (std::size_t i = 0; i < result.workers.size(); ++i) {
    const WorkerResult& w = result.workers[i];
    const double share = w.active_s > 0 ? w.waiting_s / w.active_s : 0;
    const double mean =
        w.grants > 0 ? static_cast<double>(w.staleness_sum) / static_cast<double>(w.grants) : 0;
    std::string end = w.end;
    for (std::size_t at = 0; (at = end.find('"', at)) != end.npos; at += 2) end.insert(at, 1, '"');
    text +=
        fmt::format("{},{},{:.3f},{:.3f},{:.3f},{:.3f},{:.4f},{:.3f},{},{},{},{},{},{},\"{}\"\n", i,
                    w.iterations, w.computing_s, w.waiting_s, w.pushing_s, w.wasted_s, share, mean,
                    w.staleness_max, w.pulls, w.aborts, w.late, w.skipped, w.rejoins, end);
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
    files.push_back(directory / (name + "-loss.csv"));
    write_data_file(files.back(), curve_csv(result));
    files.push_back(directory / (name + "-workers.csv"));
    write_data_file(files.back(), workers_csv(result));
  }
  return files;
}

}  // namespace syncd::trainer
