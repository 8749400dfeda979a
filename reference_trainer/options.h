// The command line: flags to one validated struct. Runs once, on the main thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "reference_trainer/data/dataset.h"
#include "reference_trainer/run/policies.h"
#include "reference_trainer/run/run.h"

namespace syncd::trainer {

// Of the settings of a run, the policy, the job of each, addresses, device, iteration_us, the loss
// at which it stops and the plan are main's to fill in.
struct Options : RunSettings, VirtualSettings {
  DatasetRequest data;
  std::vector<std::string> policies;  // one, or those of --compare
  bool compare = false;
  Aggregate aggregate = Aggregate::kSum;
  double iteration_ms = 20;
  bool virtual_time = false;
  std::optional<double> link_mbps, parameters_mb;  // what transfer_us comes from
  std::optional<double> target_loss;
  std::string daemon;  // empty: start one
  std::string store = "memory";
  std::optional<std::filesystem::path> checkpoint;  // the directory
  std::int64_t checkpoint_every = 0;                // iterations; 0: only when somebody asks
  std::optional<std::filesystem::path> out;         // the directory for CSV files
  std::optional<std::filesystem::path> report;      // the HTML page
  std::optional<std::filesystem::path> json_lines;  // the series, a JSON object a line
  bool json = false;
  bool quiet = false;
};

// What to do after parsing.
struct ParsedCommand {
  std::optional<int> exit_status;  // set: print `text` and exit with it
  std::string text;  // help and version for stdout (status 0), an error or warnings for stderr
  Options options;
};

// Never throws for what a user can write. Errors name the flag, the value, and what is allowed.
ParsedCommand parse_command(int argc, const char* const* argv);

}  // namespace syncd::trainer
