// Job: what it shows of itself, to people and to programs. Changes nothing. Runs on the engine's
// thread.
#include <algorithm>

#include "daemon/core/engine/job.h"

namespace syncd {

WaitedFor Job::describe(Rank rank) const {
  WaitedFor out;
  out.rank = rank;
  const Worker* worker = find(rank);
  // A place that was given up is as free as one that nobody has had: nobody is waited for there.
  if (worker == nullptr || !is_member(worker->state)) {
    out.state = "not joined";
    return out;
  }
  out.name = worker->name;
  out.host = worker->host;
  out.clock = worker->clock;
  if (worker->last_push_us >= 0) out.last_push_age_us = now() - worker->last_push_us;
  if (worker->disconnected_at >= 0) {
    out.state = "disconnected " + format_duration(now() - worker->disconnected_at) + " ago";
  } else if (worker->waiting) {
    out.state = std::string("waiting in ") + to_string(worker->waiting->call);
  } else if (!worker->phase.empty()) {
    const Micros spent = now() - worker->phase_us;
    const std::string lease = format_duration(worker->phase_lease_us);
    out.state = "in phase '" + worker->phase + "' for " + format_duration(spent);
    out.state +=
        spent <= worker->phase_lease_us ? " of " + lease : ", its lease of " + lease + " over";
  } else if (in_iteration(*worker)) {
    out.state = "in iteration " + std::to_string(worker->granted);
    if (worker->granted_at >= 0) {
      out.state += " for " + format_duration(now() - worker->granted_at);
    }
  } else if (worker->active()) {
    out.state = "has not asked to begin";
  } else {
    out.state = to_string(worker->state);
  }
  if (worker->state == WorkerState::kDraining) out.state += ", draining";
  if (worker->warned) {
    out.state += ", late after " + format_duration(lateness(spec_, worker->spans).warn_after_us);
  }
  return out;
}

Explanation Job::explain(const Worker& worker) const {
  Explanation out;
  out.rule = policy_->name();
  if (!worker.waiting) {
    out.text = called(worker) + " is not waiting";
    return out;
  }
  out.iteration = worker.waiting->iteration;
  out.waiting_us = now() - worker.waiting->since;
  Reason reason;
  if (state() == JobState::kWaiting) {
    out.rule = "start";
    reason = explain_start();
  } else {
    reason = policy_->explain(*this, worker.rank);
  }
  out.text = std::move(reason.text);
  out.waited_for_count = static_cast<std::uint32_t>(reason.waiting_for.size());
  out.ranks = reason.waiting_for.text();
  for (const RankRange& range : reason.waiting_for.shown()) {
    for (Rank rank = range.first; rank <= range.last; ++rank) {
      if (out.workers.size() == kExplainedWorkersMax) return out;
      out.workers.push_back(describe(rank));
    }
  }
  return out;
}

Reason Job::explain_start() const {
  Reason reason;
  reason.text = std::to_string(roster_.missing().ready()) + " of " +
                std::to_string(spec_.expected_workers) + " expected workers are ready";
  if (spec_.min_workers > 0) {
    reason.text += " (" + std::to_string(spec_.min_workers) + " are enough after " +
                   format_duration(spec_.start_timeout_us) + ")";
  }
  reason.waiting_for = missing();
  return reason;
}

RankList Job::missing() const {
  return {roster_.missing().first(kRangesShownMax), roster_.missing().count()};
}

JobFigures Job::figures() const {
  JobFigures out;
  out.id = id();
  out.name = spec_.name;
  out.policy = policy_->name();
  out.state = state();
  out.epoch = epoch();
  out.expected = spec_.expected_workers;
  // Those of a stopped job take part in nothing any more.
  if (state() != JobState::kStopped) {
    const auto active = static_cast<std::uint32_t>(roster_.active().size());
    const std::uint32_t ready = roster_.missing().ready();
    out.members[static_cast<std::size_t>(WorkerState::kRunning)] = active - roster_.draining();
    out.members[static_cast<std::size_t>(WorkerState::kDraining)] = roster_.draining();
    out.members[static_cast<std::size_t>(WorkerState::kReady)] = ready;
    out.members[static_cast<std::size_t>(WorkerState::kRegistered)] =
        roster_.members() - ready - active;
    out.has_clocks = !roster_.clocks().empty();
  }
  if (out.has_clocks) {
    out.clock_min = roster_.absolute_clocks().min();
    out.clock_max = roster_.absolute_clocks().max();
    out.lag = roster_.clocks().max() - roster_.clocks().min();
  }
  out.waiting = waiting_;
  out.pushes = pushes_;
  out.barriers = barriers();
  out.counters = counters_;
  return out;
}

wire::JobStatus Job::status() const {
  wire::JobStatus out;
  out.id = id();
  out.name = spec_.name;
  out.policy = policy_->name();
  out.state = to_string(state());
  out.epoch = epoch();
  out.expected_workers = spec_.expected_workers;
  // Those of a stopped job have not left, but take part in nothing any more.
  if (state() == JobState::kRunning)
    out.active_workers = static_cast<std::uint32_t>(roster_.active().size());
  const RelativeClocks& clocks =
      state() == JobState::kRunning ? roster_.absolute_clocks() : roster_.idle_clocks();
  if (!clocks.empty()) {
    out.clock_min = clocks.min();
    out.clock_max = clocks.max();
  }
  out.pushes = pushes_;
  out.waiting = waiting_;
  out.created_us = recorder_.creation().time_us;
  if (state() == JobState::kWaiting) {
    out.note = "waiting for " + std::to_string(roster_.missing().count()) + " of " +
               std::to_string(spec_.expected_workers) + ": " + missing().text();
  } else {
    out.note = stop_reason_;
  }
  return out;
}

wire::WorkerStatus Job::worker_status(const Worker& worker) const {
  wire::WorkerStatus out;
  out.rank = worker.rank;
  out.name = worker.name;
  out.host = worker.host;
  out.state = to_string(worker.state);
  out.incarnation = worker.incarnation;
  out.clock = worker.clock;
  out.granted = worker.granted;
  out.last_push_us = worker.last_push_us;
  out.connected = worker.connection != 0;
  const Micros asked_at = worker.waiting ? worker.waiting->since : worker.active_at;
  const Micros heard = std::max({asked_at, worker.last_push_us, worker.disconnected_at});
  out.heard_us = heard > 0 ? heard : -1;
  if (worker.waiting) {
    const Explanation why = explain(worker);
    out.waiting_us = why.waiting_us;
    out.waiting_for = why.ranks;
    out.reason = why.rule + ": " + why.text;
  } else if (is_member(worker.state)) {
    out.reason = describe(worker.rank).state;
  } else {
    out.reason = worker.dismissal;
  }
  if (is_member(worker.state)) {
    const Lateness late = lateness(spec_, worker.spans);
    out.warn_after_us = late.warn_after_us;
    out.evict_after_us = late.evict_after_us;
    out.late_rule = lateness_rule(spec_, worker.spans);
  }
  return out;
}

}  // namespace syncd
