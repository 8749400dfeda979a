// What a user gets to see of finished runs: a table, CSV files, JSON. Pure functions but for
// writing the files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reference_trainer/run.h"

namespace syncd::trainer {

// What the runs of one call have in common.
struct ReportContext {
  std::string workload;
  std::string loss_name;
  std::string data;  // one line
  int workers = 0;
  std::uint64_t seed = 0;
  HopOrder hop_order = HopOrder::kParallel;
  std::string slowdown;
  double iteration_ms = 0;
  std::optional<double> target_loss;
  std::string target_source;  // where the target comes from, for people
};

// Text in columns, the first one left-aligned, the others right-aligned, two spaces between.
// All rows must have as many cells as the header.
std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows);

// The comparison: a heading, one row per run, and a line for each thing that went wrong.
std::string render_report(const ReportContext& context, const std::vector<RunResult>& results);

// The same as one JSON document, with a newline at its end. Numbers that are not known are null.
std::string render_json(const ReportContext& context, const std::vector<RunResult>& results);

// Columns time_s,iterations,loss.
std::string curve_csv(const RunResult& result);

// One line per worker: what it did and where its time went.
std::string workers_csv(const RunResult& result);

// Writes, per run, DIR/<workload>-<policy>-loss.csv and ...-workers.csv (with -2, -3, ... behind
// the policy where one is compared with itself). Returns the paths of all files. Throws DataError.
std::vector<std::filesystem::path> write_csv_files(const std::filesystem::path& directory,
                                                   const ReportContext& context,
                                                   const std::vector<RunResult>& results);

}  // namespace syncd::trainer
