// A job's settings: what the configuration, `syncctl job create` or its first joiner asks for.
// Plain data, no thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "daemon/core/engine/types.h"

namespace syncd::topology {
struct GraphFile;
}

namespace syncd {

// As a threshold of lateness: the daemon chooses, for each worker by its own spans (lateness.h).
inline constexpr Micros kAutoSpan = -1;

struct JobSpec {
  std::string name;
  std::string policy = "bsp";
  std::uint32_t expected_workers = 1;    // the job starts when so many are ready
  std::uint32_t min_workers = 0;         // ... or so many after start_timeout; 0: never with fewer
  Micros start_timeout_us = 60'000'000;  // from the first worker's being ready
  Micros worker_grace_us = 10'000'000;   // how long a worker that is silent keeps its place
  // In one iteration before the log names the worker, and before it is lost; 0: never.
  Micros warn_after_us = kAutoSpan;
  Micros evict_after_us = kAutoSpan;
  // Observation: so long workers may wait, or exchange, before they are told who is at fault; 0: it
  // is off, kAutoSpan: by their own iterations (watch.h).
  Micros hang_after_us = 0;
  bool inspect_on_hang = false;  // the stacks of those at fault are then asked for and kept
  // The job asks for a checkpoint of itself every so many iterations; 0: never.
  Iteration checkpoint_every = 0;
  // After which one that is not complete is given up; 0: never.
  Micros checkpoint_timeout_us = 1'800'000'000;
  // What the file that the policy names says (read_graph_file); null: it names none.
  std::shared_ptr<const topology::GraphFile> graph_file = nullptr;
  bool views = false;  // barriers open with the last begin, and grants name who goes on together

  // How long a worker keeps its place once its connection has closed; kAutoSpan: as
  // EngineOptions says, but not longer than worker_grace.
  Micros exit_grace_us = kAutoSpan;
  // A worker that leaves as failed stops the job; else it goes on without it.
  bool stops_on_failure = false;

  bool operator==(const JobSpec&) const = default;
};

// Empty if the settings are usable, else a sentence that names the setting, its value and what is
// allowed. Also checks settings against each other.
std::string validate(const JobSpec& spec);
// The same for a job that was made before: what its policy needs at a start, such as a file's
// graph, which its history has, is not asked for again.
std::string validate_stored(const JobSpec& spec);

// Empty, or why rounds of so many workers are refused.
std::string rounds_too_large(const std::string& job, std::uint32_t round_max,
                             std::uint32_t workers_max);

// The settings that Record has no field of its own for, as "key=value" lines, and back. Unknown
// keys are ignored (a newer version wrote them); a malformed value makes it return false.
std::string config_text(const JobSpec& spec);
bool parse_config_text(std::string_view text, JobSpec& spec);

}  // namespace syncd
