// Recorder: what a stored history may say, and snapshots. Runs on the engine's
// thread.
#include "daemon/core/engine/recorder.h"

#include <fmt/core.h>

#include <cmath>
#include <initializer_list>

#include "daemon/core/engine/limits.h"

namespace syncd {
namespace {

// Empty, or which of the numbers is not from `lowest` to limits::kStoredMax.
std::string out_of_range(const char* what, std::int64_t lowest,
                         std::initializer_list<std::int64_t> numbers) {
  for (const std::int64_t number : numbers) {
    if (number >= lowest && number <= limits::kStoredMax) continue;
    return fmt::format("{} {} is impossible: allowed are {} to {}", what, number, lowest,
                       limits::kStoredMax);
  }
  return {};
}
std::string wrong_time(std::initializer_list<Micros> times) {
  return out_of_range("its time", -1, times);
}
std::string wrong_clock(std::initializer_list<Clock> clocks) {
  return out_of_range("its clock", -limits::kStoredMax, clocks);
}

// Of times; exp() of what the detector can come to is below that by far.
constexpr double kFactorMax = 1e15;
std::string wrong_ratio(const char* what, double ratio, double most) {
  if (ratio >= 0 && ratio <= most) return {};
  return fmt::format("{} {} is impossible: allowed are 0 to {:g}", what, ratio, most);
}

}  // namespace

std::string Recorder::check(const Record& record) const {
  if (record.sequence != sequence_ + 1) {
    return fmt::format("sequence {} follows {}", record.sequence, sequence_);
  }
  std::string wrong = wrong_time(
      {record.time_us, record.span_us, record.waited_us, record.wasted_us, record.computed_us});
  if (wrong.empty()) wrong = wrong_clock({record.clock, record.base, record.iteration});
  if (wrong.empty()) wrong = wrong_ratio("its factor", record.factor, kFactorMax);
  return wrong;
}

std::string Recorder::check(const WorkerSnapshot& worker) {
  if (worker.rank >= limits::kWorkersPerJobMax) {
    return fmt::format("its snapshot has an impossible rank {}", worker.rank);
  }
  std::string wrong = wrong_time({worker.last_push_us, worker.previous_push_us, worker.phase_us,
                                  worker.phase_lease_us, worker.exchange_us, worker.slow_since_us});
  if (wrong.empty()) {
    wrong = wrong_clock(
        {worker.clock, worker.base, worker.granted, worker.pushed, worker.late, worker.entered});
  }
  if (wrong.empty()) wrong = wrong_ratio("its factor", worker.slow_factor, kFactorMax);
  if (wrong.empty() && worker.usual) {
    wrong = wrong_ratio("its usual ratio", std::abs(*worker.usual), StragglerDetector::kOffsetMax);
  }
  if (wrong.empty()) return {};
  return fmt::format("its snapshot of worker {}: {}", worker.rank, wrong);
}

void Recorder::save(JobSnapshot& out) const {
  out.created = creation_;
  out.sequence = sequence_;
  out.time_us = engine_.now();
  out.epoch = epoch_;
  out.next_incarnation = next_incarnation_;
  out.stop_reason = stop_reason_;
}

std::string Recorder::restore(const JobSnapshot& snapshot) {
  if (const std::string wrong = wrong_time({snapshot.time_us}); !wrong.empty()) {
    return "its snapshot: " + wrong;
  }
  if (const std::string wrong = wrong_ratio("its noise", snapshot.noise, kFactorMax);
      !wrong.empty()) {
    return "its snapshot: " + wrong;
  }
  creation_ = snapshot.created;
  sequence_ = snapshot_sequence_ = snapshot.sequence;
  engine_.replay_time(snapshot.time_us);
  epoch_ = snapshot.epoch;
  next_incarnation_ = snapshot.next_incarnation;
  stop_reason_ = snapshot.stop_reason;
  return {};
}

}  // namespace syncd
