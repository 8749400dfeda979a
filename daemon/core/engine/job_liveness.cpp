// Job: who is late, and who is given up. One timer a worker, set lazily: a grant or a push moves
// the deadline without touching the timer, which looks at the present deadline when it fires. Runs
// on the engine's thread.
#include <algorithm>

#include "daemon/core/engine/job.h"

namespace syncd {

// Since when it could have been heard of: what its thresholds count from. -1: it need not be.
Micros Job::silent_since(const Worker& worker) const {
  if (state() == JobState::kStopped || !is_member(worker.state)) return -1;
  if (worker.disconnected_at >= 0) return worker.disconnected_at;
  return worker.active() && !worker.waiting ? worker.quiet_since() : -1;
}

void Job::progressed(Worker& worker) {
  worker.progressed(now(), engine_.stood_since(worker.quiet_since()));
}

Micros Job::liveness_deadline(const Worker& worker) const {
  const Micros silent = silent_since(worker);
  if (silent < 0) return kNever;
  const Micros since = silent + engine_.stood_since(silent);
  if (worker.disconnected_at >= 0) return since + spec_.worker_grace_us;
  const Lateness late = lateness(spec_, worker.spans);
  Micros deadline = kNever;
  if (late.warn_after_us > 0 && !worker.warned) deadline = since + late.warn_after_us;
  if (late.evict_after_us > 0) deadline = std::min(deadline, since + late.evict_after_us);
  return deadline;
}

// The least that passes from a worker's last sign until something is said or done.
static Micros patience(const Lateness& late) {
  Micros least = kNever;
  if (late.warn_after_us > 0) least = late.warn_after_us;
  if (late.evict_after_us > 0) least = std::min(least, late.evict_after_us);
  return least;
}

void Job::arm_liveness(Worker& worker) {
  if (worker.disconnected_at < 0) {
    if (worker.patience_of != worker.spans.looks()) {
      worker.patience_of = worker.spans.looks();
      worker.patience_us = patience(lateness(spec_, worker.spans));
    }
    // Nearly always: its timer fires before it could be late.
    if (worker.liveness_at - worker.active_at <= worker.patience_us) return;
  }
  const Micros deadline = liveness_deadline(worker);
  if (deadline >= worker.liveness_at) return;
  worker.liveness_at = deadline;
  engine_.set_timer(worker.rank, kTimerLiveness, deadline);
}

void Job::check_liveness(Worker& worker) {
  if (liveness_deadline(worker) > now()) {
    arm_liveness(worker);
    return;
  }
  const Micros excused_us = engine_.stood_since(silent_since(worker));
  const std::string besides =
      excused_us > 0 ? " besides " + format_duration(excused_us) + " of the store's" : "";
  if (worker.disconnected_at >= 0) {
    lose(worker, "disconnected for " +
                     format_duration(now() - worker.disconnected_at - excused_us) + besides +
                     ", worker_grace is " + format_duration(spec_.worker_grace_us));
    return;
  }
  const Micros quiet = now() - worker.quiet_since() - excused_us;
  std::string phase = in_iteration(worker) ? "in iteration " + std::to_string(worker.granted)
                                           : "between its push and its next begin";
  if (!worker.phase.empty()) {
    phase +=
        ", its phase '" + worker.phase + "' of " + format_duration(worker.phase_lease_us) + " over";
  }
  const Lateness late = lateness(spec_, worker.spans);
  const std::string rule = lateness_rule(spec_, worker.spans);
  if (late.evict_after_us > 0 && quiet >= late.evict_after_us) {
    const std::string why = spec_.evict_after_us == kAutoSpan ? " (" + rule + ")" : "";
    lose(worker, phase + " for " + format_duration(quiet) + besides + ", evict_after is " +
                     format_duration(late.evict_after_us) + why);
    return;
  }
  worker.warned = true;
  std::vector<std::pair<std::string, std::string>> fields = {
      {"phase", phase}, {"for", format_duration(quiet)}, {"clock", std::to_string(worker.clock)}};
  if (!rule.empty()) {
    fields.emplace_back("warn_after", format_duration(late.warn_after_us));
    fields.emplace_back("evict_after", format_duration(late.evict_after_us));
    fields.emplace_back("why", rule);
  }
  log(LogLevel::kWarn, "worker_slow", &worker, std::move(fields));
  arm_liveness(worker);
}

}  // namespace syncd
