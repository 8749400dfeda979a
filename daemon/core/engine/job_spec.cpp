// Checks and stored form of a job's settings. No thread, no state.
#include "daemon/core/engine/job_spec.h"

#include <fmt/core.h>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/policy.h"
#include "proto/base/names.h"
#include "proto/base/number.h"

namespace syncd {
namespace {

struct SpanField {
  const char* key;
  Micros JobSpec::*field;
  bool may_be_auto = false;
  bool is_stored_always = true;  // else only where it differs from the default
};
constexpr std::string_view kAuto = "auto", kOnFailure = "on_failure", kStop = "stop",
                           kInspectOnHang = "inspect_on_hang", kViews = "views";
constexpr SpanField kSpans[] = {
    {"start_timeout_us", &JobSpec::start_timeout_us},
    {"worker_grace_us", &JobSpec::worker_grace_us},
    {"warn_after_us", &JobSpec::warn_after_us, true},
    {"evict_after_us", &JobSpec::evict_after_us, true},
    {"exit_grace_us", &JobSpec::exit_grace_us, true, false},
    {"hang_after_us", &JobSpec::hang_after_us, true, false},
    {"checkpoint_timeout_us", &JobSpec::checkpoint_timeout_us, false, false},
};
constexpr std::string_view kCheckpointEvery = "checkpoint_every";

}  // namespace

std::string validate_stored(const JobSpec& spec) {
  if (!is_name(spec.name, limits::kJobNameBytesMax)) {
    return fmt::format("job name '{}': allowed are 1 to {} of A-Z a-z 0-9 . _ -", spec.name,
                       limits::kJobNameBytesMax);
  }
  std::string error;
  const auto policy = make_policy(spec.policy, error);
  if (!policy) return error;
  if (spec.expected_workers < 1 || spec.expected_workers > limits::kWorkersPerJobMax) {
    return fmt::format("expected_workers {}: allowed are 1 to {}", spec.expected_workers,
                       limits::kWorkersPerJobMax);
  }
  if (spec.min_workers > spec.expected_workers) {
    return fmt::format("min_workers {} is more than expected_workers {}", spec.min_workers,
                       spec.expected_workers);
  }
  for (const SpanField& span : kSpans) {
    if (span.may_be_auto && spec.*span.field == kAutoSpan) continue;
    if (spec.*span.field < 0 || spec.*span.field > limits::kSpanMax) {
      return fmt::format("{} {}: allowed are 0 to {}", span.key, spec.*span.field,
                         limits::kSpanMax);
    }
  }
  if (spec.inspect_on_hang && spec.hang_after_us == 0) {
    return "inspect_on_hang is set, but hang_after is off: set hang_after, such as \"30s\"";
  }
  if (spec.checkpoint_every < 0 || spec.checkpoint_every > limits::kIterationMax) {
    return fmt::format("checkpoint_every {}: allowed are 0 to {}", spec.checkpoint_every,
                       limits::kIterationMax);
  }
  if (spec.warn_after_us > 0 && spec.evict_after_us > 0 &&
      spec.warn_after_us > spec.evict_after_us) {
    return fmt::format(
        "warn_after ({} us) is later than evict_after ({} us): a worker would be evicted before "
        "anybody was warned",
        spec.warn_after_us, spec.evict_after_us);
  }
  return {};
}

std::string validate(const JobSpec& spec) {
  std::string error = validate_stored(spec);
  if (!error.empty()) return error;
  const auto policy = make_policy(spec.policy, error, spec.graph_file);
  return policy->check_workers(spec.min_workers > 0 ? spec.min_workers : spec.expected_workers,
                               spec.expected_workers);
}

std::string rounds_too_large(const std::string& job, std::uint32_t round_max,
                             std::uint32_t workers_max) {
  if (round_max <= workers_max) return {};
  return fmt::format(
      "job '{}' is to have rounds of {} workers: this daemon allows {} per job "
      "(limits.workers_per_job_max)",
      job, round_max, workers_max);
}

std::string config_text(const JobSpec& spec) {
  std::string text;
  for (const SpanField& span : kSpans) {
    if (!span.is_stored_always && spec.*span.field == JobSpec{}.*span.field) continue;
    const bool is_auto = span.may_be_auto && spec.*span.field == kAutoSpan;
    text += fmt::format("{}={}\n", span.key,
                        is_auto ? std::string(kAuto) : std::to_string(spec.*span.field));
  }
  if (spec.stops_on_failure) text += fmt::format("{}={}\n", kOnFailure, kStop);
  if (spec.inspect_on_hang) text += fmt::format("{}=1\n", kInspectOnHang);
  if (spec.checkpoint_every != 0) {
    text += fmt::format("{}={}\n", kCheckpointEvery, spec.checkpoint_every);
  }
  if (spec.views) text += std::string(kViews) + "=1\n";
  return text;
}

bool parse_config_text(std::string_view text, JobSpec& spec) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) return false;
    if (line.substr(0, equals) == kCheckpointEvery &&
        !parse_number(line.substr(equals + 1), spec.checkpoint_every)) {
      return false;
    }
    if (line.substr(0, equals) == kOnFailure) {
      spec.stops_on_failure = line.substr(equals + 1) == kStop;
      continue;
    }
    if (line.substr(0, equals) == kInspectOnHang) spec.inspect_on_hang = line.ends_with("=1");
    if (line.substr(0, equals) == kViews) spec.views = line.ends_with("=1");
    for (const SpanField& span : kSpans) {
      if (line.substr(0, equals) != span.key) continue;
      const std::string_view value = line.substr(equals + 1);
      if (span.may_be_auto && value == kAuto) {
        spec.*span.field = kAutoSpan;
        continue;
      }
      if (!parse_number(value, spec.*span.field)) return false;
    }
  }
  return true;
}

}  // namespace syncd
