// Job: what it shows of itself, to people and to programs. Changes nothing. Runs on the engine's
// thread.
#include <algorithm>

#include "daemon/core/engine/exit_reason.h"
#include "daemon/core/engine/job.h"

namespace syncd {

bool Job::failed() const {
  return !is_live() && says(recorder_.stop_reason(), kFailedReason);
}

bool Job::was_idle() const {
  return !is_live() && says(recorder_.stop_reason(), kIdleReason);
}

void Job::on(const Caller& caller, const wire::Explain& request) {
  const Worker* worker = answers_.check(caller, request.worker);
  if (worker != nullptr) answers_.reply(caller, explain(*worker));
}

WaitedFor Job::describe(Rank rank) const {
  WaitedFor out;
  out.rank = rank;
  const Worker* worker = roster_.find(rank);
  // A place that was given up is as free as one that no worker has had: none is waited for there.
  if (worker == nullptr || !is_member(worker->state)) {
    out.state = "not joined";
    return out;
  }
  out.name = worker->name;
  out.host = worker->host;
  out.clock = worker->clock;
  if (worker->last_push_us >= 0) out.last_push_age_us = engine_.now() - worker->last_push_us;
  out.state = liveness_.describe(*worker, loop_.in_iteration(*worker));
  if (const Micros since = watch_.exchanging_since(*worker); since >= 0) {
    out.state += ", exchanging for " + format_duration(engine_.now() - since);
  }
  if (loop_.gathers() && worker->connection != 0 && !worker->waiting) {
    const std::string round = loop_.policy().describe(loop_, rank);
    if (!round.empty()) out.state = round;
  }
  return out;
}

Explanation Job::explain(const Worker& worker) const {
  Explanation out;
  out.rule = loop_.policy().name();
  if (!worker.waiting) {
    out.text = label(worker) + " is not waiting";
    if (const Micros since = watch_.exchanging_since(worker); since >= 0) {
      out.text += fmt::format(" for a grant: exchanging for {}, which ends with the slowest",
                              format_duration(engine_.now() - since));
    }
    const std::string also = loop_.policy().describe(loop_, worker.rank);
    if (!also.empty()) out.text += ": " + also;
    return out;
  }
  out.iteration = worker.waiting->iteration;
  out.waiting_us = engine_.now() - worker.waiting->since;
  Reason reason;
  if (state() == JobState::kWaiting) {
    out.rule = "start";
    reason = explain_start();
  } else {
    reason = loop_.waits_for_view(worker) ? loop_.explain_view()
                                          : loop_.policy().explain(loop_, worker.rank);
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
  if (group_.reassembling()) {
    reason.text = "no worker that had begun is left, so the job waits for its workers again: ";
  }
  reason.text += fmt::format("{} of {} expected workers are ready", roster_.missing().ready(),
                             group_.wanted());
  if (spec_.min_workers > 0) {
    reason.text += fmt::format(" ({} are enough after {})", spec_.min_workers,
                               format_duration(spec_.start_timeout_us));
  }
  reason.waiting_for = missing();
  return reason;
}

RankList Job::missing() const {
  return {roster_.missing().first(kRangesShownMax), roster_.missing().count()};
}

JobFigures Job::figures() const {
  JobFigures out;
  out.id = engine_.job();
  out.name = spec_.name;
  out.policy = loop_.policy().name();
  out.state = state();
  out.epoch = recorder_.epoch();
  out.expected = spec_.expected_workers;
  // Those of a stopped job take part in nothing any more.
  if (is_live()) {
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
  out.waiting = loop_.pending();
  if (is_live()) out.stragglers = stragglers_.count();
  out.has_rounds = loop_.gathers();
  if (out.has_rounds && is_live()) out.rounds = loop_.policy().round_figures(loop_);
  out.pushes = loop_.pushes();
  out.barriers = loop_.barriers();
  out.checkpoint_open_us = checkpoints_.open_since();
  out.checkpoint_complete_us = checkpoints_.complete_since();
  out.counters = counters_;
  return out;
}

wire::JobStatus Job::status() const {
  wire::JobStatus out;
  out.id = engine_.job();
  out.name = spec_.name;
  out.policy = loop_.policy().name();
  out.state = to_string(state());
  out.epoch = recorder_.epoch();
  out.expected_workers = spec_.expected_workers;
  // Those of a stopped job have not left, but take part in nothing any more.
  if (roster_.running()) out.active_workers = static_cast<std::uint32_t>(roster_.active().size());
  const RelativeClocks& clocks =
      roster_.running() ? roster_.absolute_clocks() : roster_.idle_clocks();
  if (!clocks.empty()) {
    out.clock_min = clocks.min();
    out.clock_max = clocks.max();
  }
  out.pushes = loop_.pushes();
  out.waiting = loop_.pending();
  out.created_us = recorder_.creation().time_us;
  out.note = recorder_.stop_reason();
  if (loop_.gathers()) {
    const RoundState round = loop_.policy().round();
    out.round = round.round;
    out.round_gone = round.gone;
  }
  if (roster_.running()) {
    out.stragglers = stragglers_.count();
    out.note = loop_.gathers() ? loop_.policy().describe(loop_) : checkpoints_.note();
    if (out.stragglers > 0) out.note += (out.note.empty() ? "" : "; ") + stragglers_.text();
  }
  if (state() == JobState::kWaiting) {
    out.note = fmt::format("waiting for {} of {}{}: {}", roster_.missing().count(), group_.wanted(),
                           group_.reassembling() ? " to start again" : "", missing().text());
    if (!group_.failure().empty()) {
      out.state = "failed";
      out.note += "; " + group_.failure();
    }
  }
  if (const auto& hang = watch_.hang(); hang && is_live()) {
    out.hang = hang->text;
    std::vector<Rank> ranks = hang->ranks;
    std::sort(ranks.begin(), ranks.end());
    out.hang_ranks = RankList(ranks).text();
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
  if (worker.exchange_us >= 0 && worker.span_us >= worker.exchange_us) {
    out.computed_us = worker.span_us - worker.exchange_us;
    out.exchange_us = worker.exchange_us;
  }
  if (is_live()) {
    out.straggler_since_us = worker.slow_since_us;
    out.straggler_factor = worker.slow_factor;
  }
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
  if (const std::uint64_t checkpoint = checkpoints_.expected_of(worker.rank); checkpoint != 0) {
    out.reason += fmt::format(", has not saved checkpoint {}", checkpoint);
  }
  if (loop_.gathers() && !is_member(worker.state) && out.reason.empty()) {
    out.reason = loop_.policy().describe(loop_, worker.rank);
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
