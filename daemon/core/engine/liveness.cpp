// See liveness.h.
#include "daemon/core/engine/liveness.h"

#include <algorithm>

namespace syncd {
// Since when a sign of life is overdue. -1: none is expected.
Micros Liveness::silent_since(const Worker& worker) const {
  if (roster_.state() == JobState::kStopped || !is_member(worker.state)) return -1;
  if (worker.disconnected_at >= 0) return worker.disconnected_at;
  return worker.active() && !worker.waiting ? worker.quiet_since() : -1;
}

Micros Liveness::deadline(const Worker& worker) const {
  const Micros silent = silent_since(worker);
  if (silent < 0) return kNever;
  const Micros since = silent + engine_.stalled_since(silent);
  if (worker.disconnected_at >= 0) return std::max(since, amnesty_until_) + worker.grace_us;
  const Lateness late = lateness(spec_, worker.spans);
  Micros at = kNever;
  if (late.warn_after_us > 0 && !worker.warned) at = since + late.warn_after_us;
  if (late.evict_after_us > 0) at = std::min(at, since + late.evict_after_us);
  return at;
}

void Liveness::arm_anew(Worker& worker) {
  const Micros at = deadline(worker);
  if (at >= worker.liveness_at) return;
  worker.liveness_at = at;
  engine_.set_timer(worker.rank, kTimerLiveness, at);
}

void Liveness::disarm(Worker& worker) {
  worker.liveness_at = kNever;
  engine_.cancel_timer(worker.rank, kTimerLiveness);
}

void Liveness::check(Worker& worker, bool in_iteration) {
  worker.liveness_at = kNever;
  const Micros now = engine_.now();
  if (deadline(worker) > now) {
    arm(worker);
    return;
  }
  const auto look_again = [&](Micros at) {
    worker.liveness_at = at;
    engine_.set_timer(worker.rank, kTimerLiveness, at);
  };
  const auto is_kept = [&] {
    const Micros until = membership_.keeps_until(worker);
    if (until > now) look_again(until);
    return until > now;
  };
  if (worker.disconnected_at < 0 && membership_.exchanges(worker)) {
    return look_again(now + limits::kWarnAfterFloor);
  }
  const Micros excused_us = engine_.stalled_since(silent_since(worker));
  const std::string besides =
      excused_us > 0 ? " besides " + format_duration(excused_us) + " of the store's" : "";
  if (worker.disconnected_at >= 0) {
    if (!worker.closed && is_kept()) return;
    const std::string gone = format_duration(now - worker.disconnected_at - excused_us);
    const std::string grace = format_duration(worker.grace_us);
    if (worker.grace_us == 0 && !worker.closed) {
      return membership_.lose(worker, "its connection was silent, or the daemon has cut it");
    }
    const char* rule = worker.grace_us == spec_.worker_grace_us ? "worker_grace"
                       : !worker.closed && worker.grace_us == engine_.options().restart_grace_us
                           ? "after a restart the least"
                           : "exit_grace";
    membership_.lose(worker, worker.closed ? fmt::format("its connection closed {} ago{}, {} is {}",
                                                         gone, besides, rule, grace)
                                           : fmt::format("disconnected for {}{}, {} is {}", gone,
                                                         besides, rule, grace));
    return;
  }
  const Micros quiet = now - worker.quiet_since() - excused_us;
  std::string phase = in_iteration ? fmt::format("in iteration {}", worker.granted)
                                   : "between its push and its next begin";
  if (!worker.phase.empty()) {
    phase += fmt::format(", its phase '{}' of {} over", worker.phase,
                         format_duration(worker.phase_lease_us));
  }
  const Lateness late = lateness(spec_, worker.spans);
  const std::string rule = lateness_rule(spec_, worker.spans);
  if (late.evict_after_us > 0 && quiet >= late.evict_after_us) {
    if (is_kept()) return;
    membership_.lose(worker,
                     fmt::format("{} for {}{}, evict_after is {}{}", phase, format_duration(quiet),
                                 besides, format_duration(late.evict_after_us),
                                 spec_.evict_after_us == kAutoSpan ? " (" + rule + ")" : ""));
    return;
  }
  worker.warned = true;
  Answers::Fields fields = {
      {"phase", phase}, {"for", format_duration(quiet)}, {"clock", std::to_string(worker.clock)}};
  if (!rule.empty()) {
    fields.emplace_back("warn_after", format_duration(late.warn_after_us));
    fields.emplace_back("evict_after", format_duration(late.evict_after_us));
    fields.emplace_back("why", rule);
  }
  answers_.log(LogLevel::kWarn, "worker_slow", &worker, std::move(fields));
  arm(worker);
}

void Liveness::set_phase(Worker& worker, const std::string& name, Micros lease_us) {
  if (name.empty()) {
    end_phase(worker);
    return;
  }
  const Micros now = engine_.now();
  worker.had_phase = true;
  if (worker.phase != name || now > worker.phase_us + worker.phase_lease_us) {
    worker.phase = name;
    worker.phase_us = now;
  }
  worker.phase_lease_us = now + lease_us - worker.phase_us;
  worker.warned = false;
  arm(worker);
}

std::string Liveness::describe(const Worker& worker, bool in_iteration) const {
  const Micros now = engine_.now();
  std::string text;
  if (worker.disconnected_at >= 0) {
    text = fmt::format("{} {} ago", worker.closed ? "its connection closed" : "disconnected",
                       format_duration(now - worker.disconnected_at));
  } else if (worker.waiting) {
    text = std::string("waiting in ") + to_string(worker.waiting->call);
  } else if (!worker.phase.empty()) {
    const Micros spent = now - worker.phase_us;
    const std::string lease = format_duration(worker.phase_lease_us);
    text = fmt::format("in phase '{}' for {}", worker.phase, format_duration(spent));
    text += spent <= worker.phase_lease_us ? " of " + lease : ", its lease of " + lease + " over";
  } else if (in_iteration) {
    text = fmt::format("in iteration {}", worker.granted);
    if (worker.granted_at >= 0) text += " for " + format_duration(now - worker.granted_at);
  } else {
    text = worker.active() ? "has not asked to begin" : to_string(worker.state);
  }
  if (worker.state == WorkerState::kDraining) text += ", draining";
  if (worker.slow_since_us >= 0) {
    text += fmt::format(", slow for {} ({:.1f} times its usual time)",
                        format_duration(now - worker.slow_since_us), worker.slow_factor);
  }
  if (worker.warned) {
    text += ", late after " + format_duration(lateness(spec_, worker.spans).warn_after_us);
  }
  return text;
}

void Liveness::end_phase_now(Worker& worker) {
  progressed(worker);
  worker.phase.clear();
  worker.leased_phase.clear();
  arm(worker);
}

}  // namespace syncd
