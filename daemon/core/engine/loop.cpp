// See loop.h.
#include "daemon/core/engine/loop.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "daemon/core/engine/limits.h"

namespace syncd {

Loop::Loop(const EngineServices& engine, const JobSpec& spec, Roster& roster, Recorder& recorder,
           Answers& answers, Liveness& liveness, StragglerWatch& stragglers, Membership& membership,
           Checkpoints& checkpoints, JobCounters& counters, std::unique_ptr<Policy> policy)
    : engine_(engine),
      spec_(spec),
      roster_(roster),
      recorder_(recorder),
      answers_(answers),
      liveness_(liveness),
      stragglers_(stragglers),
      membership_(membership),
      checkpoints_(checkpoints),
      counters_(counters),
      policy_(std::move(policy)) {
  checkpoints_.follow(policy_->traits());
}

// ---- begin
// ------------------------------------------------------------------------------------------

wire::Granted Loop::repeat_grant(const Worker& worker) const {
  if (worker.last_grant.iteration == worker.granted && worker.granted_at >= 0) {
    return worker.last_grant;
  }
  // Granted in an earlier life of the daemon, whose answer is not kept: a pull is always safe.
  wire::Granted again{worker.granted, wire::kStepPull, 0};
  checkpoints_.flagged(worker).put(again);
  return again;
}

void Loop::on(const Caller& caller, const wire::Begin& begin) {
  Worker* worker = answers_.check(caller, begin.worker);
  if (worker == nullptr) return;
  const Iteration k = begin.iteration;
  if (roster_.state() == JobState::kStopped) {
    answers_.reply(caller, wire::Granted{k, wire::kStepStop, 0});
    return;
  }
  // Invariant I8. A worker may ask for a jump again under the iteration that it asked for or under
  // the one that it was granted: it may not have seen the first answer.
  const bool repeated = decentralized() ? k >= std::max<Iteration>(worker->asked, 0)
                                        : worker->computing() && k > worker->answered();
  if (repeated && k <= worker->granted) {
    liveness_.end_phase(*worker);
    wire::Granted again = repeat_grant(*worker);
    const bool after_records = again.checkpoint != 0;
    answers_.reply(caller, std::move(again), after_records);
    return;
  }
  const Iteration next = due(*worker);
  if (k <= worker->granted || k > next) {
    const bool computes = !decentralized() && worker->computing();
    answers_.refuse(
        caller, Status::kWrongIteration, "begin({}) of {}: {}", k, label(*worker),
        computes ? fmt::format("iteration {} was granted and is not pushed yet", worker->granted)
                 : fmt::format("the iteration that is due is {}", next));
    return;
  }
  if (has_views()) {
    answers_.refuse(caller, Status::kUnsupported,
                    "begin({}) of {}: its job has views, which this client does not know", k,
                    label(*worker));
    return;
  }
  if (decentralized() && in_iteration(*worker)) {
    answers_.refuse(caller, Status::kState, "begin({}) of {}: collect({}) must be answered first",
                    k, label(*worker), worker->clock);
    return;
  }
  if (worker->state == WorkerState::kDraining) {
    if (answers_.refuses_store(caller)) return;
    answers_.reply(caller, wire::Granted{k, wire::kStepStop, 0}, true);
    membership_.drain_out(*worker, worker->dismissal);
    return;
  }
  if (!worker->waiting) {
    liveness_.progressed(*worker);
    worker->end_span();
  }
  liveness_.end_phase(*worker);
  if (!set_pending(*worker, caller, k, Call::kBegin)) return;
  if (roster_.state() == JobState::kWaiting) {
    membership_.set_ready(*worker, true);
    return;
  }
  if (worker->state == WorkerState::kRegistered) membership_.admit(*worker);
  policy_->on_begin(*this, worker->rank);
}

void Loop::on(const Caller& caller, const wire::CancelBegin& cancel) {
  Worker* worker = answers_.check(caller, cancel.worker);
  if (worker == nullptr) return;
  if (worker->waiting && worker->waiting->iteration == cancel.iteration) {
    refuse_pending(*worker, Status::kCancelled, "cancelled by the caller");
  }
  answers_.reply(caller, wire::Ok{});
}

void Loop::grant(Rank rank, const Grant& grant) {
  Worker& worker = roster_.at(rank);
  if (!worker.waits_in(Call::kBegin)) return;
  if (spec_.views && opens_view(worker, grant)) {
    held_[rank] = grant;
    return try_view();
  }
  give(worker, grant);
}

void Loop::give(Worker& worker, const Grant& grant) {
  const Waiting waiting = end_pending(worker);

  const Iteration iteration = grant.iteration.value_or(due(worker));
  std::uint32_t flags = grant.flags;
  if (iteration != waiting.iteration && !gathers()) {
    flags |= wire::kStepSkip | wire::kStepPull;
    worker.before_jump = waiting.iteration - 1;
    worker.after_jump = iteration;
  }
  const std::uint64_t others = pushes_ - worker.own_pushes;
  if (worker.granted_at < 0 || others > worker.others_at_pull) flags |= wire::kStepPull;
  worker.others_at_pull = others;
  if (std::exchange(worker.tells_resumed, false)) flags |= wire::kStepResumed;
  const Checkpoints::Flag checkpoint = checkpoints_.flag(worker, iteration);

  if (decentralized()) roster_.set_clock(worker, iteration);
  worker.granted = iteration;
  worker.asked = waiting.iteration;
  worker.granted_at = now();
  worker.had_phase = !worker.phase.empty();
  worker.waited_us = now() - waiting.since;
  worker.last_grant.iteration = iteration;
  worker.last_grant.flags = flags;
  checkpoint.put(worker.last_grant);
  worker.last_grant.staleness =
      grant.staleness.value_or(worker.relative() - roster_.clocks().min());
  engine_.count_grant();
  ++counters_.grants;
  counters_.begin_wait.add(worker.waited_us);
  if ((flags & wire::kStepBarrier) != 0) counters_.barrier_wait.add(worker.waited_us);
  if (waiting.arrives) {
    answers_.reply(waiting.caller, view_grant(worker), true);
  } else {
    // Where the others save must be on the disk first: a daemon that dies must not fix it twice.
    answers_.reply(waiting.caller, worker.last_grant, static_cast<bool>(checkpoint));
  }
  liveness_.arm(worker);
}

// ---- pending requests
// -------------------------------------------------------------------------------

bool Loop::set_pending(Worker& worker, const Caller& caller, Iteration iteration, Call call) {
  if (worker.waiting) {
    answers_.refuse(worker.waiting->caller, Status::kCancelled,
                    "a later request of this worker took its place");
    if (worker.waiting->call == call) {
      worker.waiting->caller = caller;
      worker.waiting->iteration = iteration;
      return false;
    }
    withdraw(worker);
  } else if (call != Call::kBegin) {  // a begin has counted it
    liveness_.progressed(worker);
  }
  worker.waiting = Waiting{caller, iteration, now(), call};
  ++pending_;
  return true;
}

Waiting Loop::end_pending(Worker& worker) {
  const Waiting waiting = *worker.waiting;
  worker.waiting.reset();
  --pending_;
  worker.active_at = now();
  worker.warned = false;
  return waiting;
}

void Loop::withdraw(Worker& worker) {
  if (!worker.waiting) return;
  held_.erase(worker.rank);
  worker.waiting.reset();
  --pending_;
  if (worker.state == WorkerState::kReady) membership_.set_ready(worker, false);
  if (worker.active()) policy_->on_cancel(*this, worker.rank);
  worker.active_at = now();
  liveness_.arm(worker);
}

void Loop::refuse_pending(Worker& worker, Status status, std::string text) {
  if (!worker.waiting) return;
  answers_.refuse(worker.waiting->caller, status, std::move(text));
  withdraw(worker);
}

void Loop::stop_pending(Worker& worker, const std::string& reason) {
  if (!worker.waiting) return;
  const Waiting& waiting = *worker.waiting;
  if (waiting.arrives) {
    answers_.reply(waiting.caller, view_stop(waiting.iteration, reason), true);
  } else {
    answers_.reply(waiting.caller, wire::Granted{waiting.iteration, wire::kStepStop, 0}, true);
  }
  withdraw(worker);
}

void Loop::ask_again() {
  if (!roster_.running()) return;
  std::vector<std::pair<Micros, Rank>> order;
  for (const Rank rank : roster_.active()) {
    const Worker& worker = roster_.at(rank);
    if (worker.waits_in(Call::kBegin)) order.emplace_back(worker.waiting->since, rank);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [since, rank] : order) {
    if (roster_.at(rank).waiting) policy_->on_begin(*this, rank);
  }
}

void Loop::renew_policy() {
  engine_.cancel_timers(kPolicyTimerKinds);
  if (decentralized()) return policy_->on_disband(*this);
  std::string error;
  auto policy = make_policy(policy_->name(), error);
  if (!policy) return;  // this very text has made it
  barriers_before_ += policy_->barriers();
  policy_ = std::move(policy);
  checkpoints_.follow(policy_->traits());
}

void Loop::switch_to(std::unique_ptr<Policy> policy) {
  engine_.cancel_timers(kPolicyTimerKinds);
  if (policy->take_over(*this, *policy_)) {
    policy_ = std::move(policy);
    return;
  }
  barriers_before_ += policy_->barriers();
  policy_ = std::move(policy);
  checkpoints_.follow(policy_->traits());
  roster_.rebase();
  for (const Rank rank : roster_.active()) policy_->on_enter(*this, rank);
  if (roster_.running()) policy_->on_start(*this);
}

// ---- push
// -------------------------------------------------------------------------------------------

void Loop::on(const Caller& caller, const wire::Push& push) {
  Worker* worker = answers_.check(caller, push.worker);
  if (worker == nullptr) return;
  const Iteration k = push.iteration;
  if (k > worker->before_jump && k < worker->after_jump && k != worker->late) {
    answers_.refuse(caller, Status::kWrongIteration,
                    "push({}) of {}: it went on from iteration {} to {}", k, label(*worker),
                    worker->before_jump, worker->after_jump);
    return;
  }
  if (k >= 0 && (k <= worker->pushed || k == worker->late)) {
    const bool late = k == worker->late;
    ++counters_.duplicates;
    // The first copy's record may still be on its way to the disk: this answer waits for it too.
    answers_.reply(caller, wire::Pushed{k, late, true}, true);
    return;
  }
  if (answers_.refuses_as_ended(caller)) return;
  if (gathers()) {
    answers_.refuse(caller, Status::kUnsupported,
                    "push({}) of {}: policy '{}' has rounds of members, and no pushes", k,
                    label(*worker), policy_->name());
    return;
  }
  if (worker->granted == kNoIteration) {
    answers_.refuse(caller, Status::kState, "push({}) of {}: no iteration was granted yet", k,
                    label(*worker));
    return;
  }
  if (k != worker->granted) {
    answers_.refuse(caller, Status::kWrongIteration, "push({}) of {}: {}{}", k, label(*worker),
                    worker->computing() ? "the iteration granted to it is "
                                        : "a begin must come first, its latest iteration was ",
                    worker->granted);
    return;
  }
  if (push.loss && !std::isfinite(*push.loss)) {
    answers_.refuse(caller, Status::kInvalid, "push({}) of {}: loss must be a finite number", k,
                    label(*worker));
    return;
  }
  if (push.computed_us < -1 || push.computed_us > limits::kSpanMax) {
    answers_.refuse(caller, Status::kInvalid,
                    "push({}) of {}: computed_us is {}; allowed: 0 to {}, or -1 for not marked", k,
                    label(*worker), push.computed_us, limits::kSpanMax);
    return;
  }
  if (answers_.refuses_store(caller)) return;

  PushVerdict verdict = policy_->judge_push(*this, worker->rank, k);
  // A worker that was told to jump ahead while it computed: its update comes too late in any
  // policy.
  if (!decentralized() && k < worker->clock) {
    verdict = {true, std::max(worker->clock, verdict.late ? verdict.clock : worker->clock)};
  }
  checkpoints_.pushing(decentralized() ? worker->clock + 1 : verdict.clock);
  Record& record = recorder_.append(RecordKind::kPush, *worker);
  record.iteration = k;
  record.late = verdict.late;
  record.clock = verdict.clock;
  record.span_us = worker->granted_at >= 0 ? now() - worker->granted_at : -1;
  record.waited_us = worker->waited_us;
  record.staleness = worker->last_grant.staleness;
  record.restarts = worker->restarts;
  record.wasted_us = worker->wasted_us;
  record.declined = worker->resync;
  record.loss = push.loss;
  record.samples = push.samples;
  record.bytes = push.bytes;
  // By the worker's clock, which need not run as this one does.
  record.computed_us =
      record.span_us >= 0 ? std::min(push.computed_us, record.span_us) : push.computed_us;
  record.in_phase = worker->had_phase && stragglers_.compares(push.computed_us, decentralized());
  counters_.computed_us += std::max<Micros>(record.own_span_us(), 0);
  counters_.exchange_us += std::max<Micros>(record.exchange_us(), 0);
  if (verdict.late) {
    worker->before_jump = k;
    worker->after_jump = verdict.clock;
    ++counters_.late;
  }
  engine_.count_push();
  answers_.reply(caller, wire::Pushed{k, verdict.late, false}, true);
  recorder_.commit_last([this](const Record& made) { apply_push(made); });
  stragglers_.announce(*worker, k);
  // A decentralized worker still collects what it was sent, and its slots must stay as they are.
  if (worker->state == WorkerState::kDraining && !decentralized()) {
    membership_.drain_out(*worker, worker->dismissal);
  }
}

void Loop::apply_push(const Record& record) {
  Worker& worker = roster_.at(static_cast<Rank>(record.rank));
  worker.granted = std::max(worker.granted, record.iteration);
  worker.resync = worker.tells_resumed = false;
  worker.restarts = 0;
  worker.wasted_us = 0;
  worker.span_us = record.span_us;
  worker.dropped_us = record.wasted_us;
  worker.held_us = record.waited_us;
  worker.loss = record.loss;
  worker.previous_push_us = worker.last_push_us;
  worker.last_push_us = record.time_us;
  Micros exchange_us = 0;
  if (record.computed_us >= 0 || worker.exchange_us >= 0) {
    roster_.set_exchange(worker, record.exchange_us());
    worker.spans.note_exchange(worker.exchange_us);
    exchange_us = std::max<Micros>(worker.exchange_us, 0);
  }
  worker.progressed(record.time_us, exchange_us);
  worker.phase.clear();
  worker.leased_phase.clear();
  worker.warned = false;
  if (record.late) {
    worker.late = record.iteration;
  } else {
    worker.pushed = record.iteration;
    ++worker.own_pushes;
    ++pushes_;
  }
  const Clock jumped = record.iteration - worker.clock;
  // Under this policy no worker jumps: it was granted under the policy before, which no record
  // says, and the switch has made that clock its base.
  if (recorder_.replaying() && jumped > 0 && !decentralized() && !policy_->traits().jumps) {
    roster_.set_clock(worker, worker.clock + jumped, worker.base + jumped);
  }
  roster_.set_clock(worker, record.clock);
  liveness_.arm(worker);  // a warning may be due again, which comes before the eviction
  stragglers_.note_push(worker, record, decentralized());
  // The policy may make records, which may move this one.
  if (worker.active()) policy_->on_push(*this, worker.rank, record.late);
}

void Loop::begin_life(Worker& worker, Clock clock) {
  worker.targeted = worker.collected = worker.consumed = clock;
  if (decentralized()) worker.entered = clock;
  worker.targets.clear();
  worker.updates.clear();
}

// ---- the policy's other decisions
// ---------------------------------------------------------------------

std::uint64_t Loop::pushes_by_others_since_pull(Rank rank) const {
  const Worker& worker = roster_.at(rank);
  return pushes_ - worker.own_pushes - worker.others_at_pull;
}

void Loop::advance(Rank rank, Clock clock) {
  Worker& worker = roster_.at(rank);
  if (clock > worker.clock) roster_.set_clock(worker, clock);
}

bool Loop::resync(Rank rank) {
  Worker& worker = roster_.at(rank);
  if (engine_.effects() == nullptr || worker.connection == 0 || !worker.computing()) return false;
  worker.resync = true;
  ++counters_.resyncs;
  answers_.notify(worker.connection, wire::ResyncNotice{answers_.ref(worker), worker.granted});
  return true;
}

void Loop::on(const Caller& caller, const wire::Restarted& request) {
  Worker* worker = answers_.check(caller, request.worker);
  if (worker == nullptr || answers_.refuses_as_ended(caller)) return;
  const Iteration k = request.iteration;
  if (k < 0 || k > worker->granted) {
    answers_.refuse(caller, Status::kWrongIteration,
                    "restarted({}) of {}: its latest granted iteration is {}", k, label(*worker),
                    worker->granted);
    return;
  }
  answers_.reply(caller, wire::Ok{});
  // A repeat, or one for an iteration that is over, says nothing new.
  if (k != worker->granted || !worker->computing() || !worker->resync) return;
  worker->resync = false;
  ++worker->restarts;
  ++counters_.restarts;
  if (worker->granted_at >= 0) {
    worker->wasted_us += now() - worker->granted_at;
    counters_.wasted_us += now() - worker->granted_at;
  }
  worker->granted_at = now();
  worker->others_at_pull = pushes_ - worker->own_pushes;
  liveness_.progressed(*worker);
  policy_->on_restarted(*this, worker->rank);
}

// ---- decentralized calls
// ---------------------------------------------------------------------------------

// The worker, if the call may be about this iteration: the one that it is in, or one whose answer
// it gets once more. Otherwise null, and answered.
Worker* Loop::check_peer_call(const Caller& caller, const wire::WorkerRef& ref, const char* call,
                              Iteration iteration) {
  Worker* worker = answers_.check(caller, ref);
  if (worker == nullptr || answers_.refuses_as_ended(caller)) return nullptr;
  if (!decentralized()) {
    answers_.refuse(caller, Status::kUnsupported,
                    "{}({}) of {}: policy '{}' has a parameter server and no such call", call,
                    iteration, label(*worker), policy_->name());
    return nullptr;
  }
  if (!worker->active() || worker->granted == kNoIteration) {
    // Also for a worker that was lost, and came back, in the middle of an iteration.
    answers_.refuse(caller, Status::kWrongIteration,
                    "{}({}) of {}: no iteration was granted yet in this life of the worker: a "
                    "begin comes first",
                    call, iteration, label(*worker));
    return nullptr;
  }
  return worker;
}

void Loop::on(const Caller& caller, const wire::Targets& request) {
  Worker* worker = check_peer_call(caller, request.worker, "targets", request.iteration);
  if (worker == nullptr) return;
  const Iteration k = request.iteration;
  if (k >= 0 && k == worker->targeted) {
    answers_.reply(caller, wire::TargetsReply{k, worker->targets});
  } else if (k != worker->clock || k != worker->granted) {
    answers_.refuse(caller, Status::kWrongIteration, "targets({}) of {}: it is in iteration {}", k,
                    label(*worker), worker->granted);
  } else if (set_pending(*worker, caller, k, Call::kTargets)) {
    policy_->on_targets(*this, worker->rank);
  }
}

void Loop::on(const Caller& caller, const wire::Collect& request) {
  Worker* worker = check_peer_call(caller, request.worker, "collect", request.iteration);
  if (worker == nullptr) return;
  const Iteration k = request.iteration;
  // After a jump it also collects the iteration before its new one; a daemon that was started again
  // does not have that set any more, and has the policy make another.
  const bool before_jump = k >= 0 && k == worker->clock - 1 && k == worker->granted - 1;
  if (k >= 0 && k == worker->collected && !worker->updates.empty()) {
    answers_.reply(caller, wire::CollectReply{k, worker->updates});
  } else if (before_jump && worker->pushed < worker->granted) {
    if (set_pending(*worker, caller, k, Call::kCollect)) policy_->on_collect(*this, worker->rank);
  } else if (k != worker->clock || k != worker->granted) {
    answers_.refuse(caller, Status::kWrongIteration, "collect({}) of {}: it is in iteration {}", k,
                    label(*worker), worker->clock);
  } else if (worker->pushed != k) {
    answers_.refuse(caller, Status::kState,
                    "collect({0}) of {1}: push({0}) must come first, its neighbours wait for it", k,
                    label(*worker));
  } else if (set_pending(*worker, caller, k, Call::kCollect)) {
    policy_->on_collect(*this, worker->rank);
  }
}

void Loop::on(const Caller& caller, const wire::Consumed& request) {
  Worker* worker = check_peer_call(caller, request.worker, "consumed", request.iteration);
  if (worker == nullptr) return;
  const Iteration k = request.iteration;
  if (k < 0 || k > worker->collected) {
    answers_.refuse(caller, Status::kWrongIteration,
                    "consumed({}) of {}: the latest collected iteration is {}", k, label(*worker),
                    worker->collected);
    return;
  }
  answers_.reply(caller, wire::Ok{});
  if (k <= worker->consumed) return;
  worker->consumed = k;
  liveness_.progressed(*worker);
  policy_->on_consumed(*this, worker->rank);
}

void Loop::answer_targets(Rank rank, std::vector<Rank> targets) {
  Worker& worker = roster_.at(rank);
  if (!worker.waits_in(Call::kTargets)) return;
  const Waiting waiting = end_pending(worker);
  worker.targeted = waiting.iteration;
  worker.targets = std::move(targets);
  answers_.reply(waiting.caller, wire::TargetsReply{worker.targeted, worker.targets});
  liveness_.arm(worker);
}

void Loop::answer_collect(Rank rank, std::vector<PeerUpdate> updates) {
  Worker& worker = roster_.at(rank);
  if (!worker.waits_in(Call::kCollect)) return;
  const Waiting waiting = end_pending(worker);
  preset_collect(rank, waiting.iteration, std::move(updates));
  answers_.reply(waiting.caller, wire::CollectReply{worker.collected, worker.updates});
  liveness_.arm(worker);
}

void Loop::preset_collect(Rank rank, Iteration iteration, std::vector<PeerUpdate> updates) {
  Worker& worker = roster_.at(rank);
  worker.collected = iteration;
  worker.updates = std::move(updates);
}

// ---- time, plans, history
// -----------------------------------------------------------------------------

void Loop::set_timer(std::int64_t rank, std::uint32_t kind, Micros at) {
  // What replay arms would be due at once: on_restored() is for that.
  if (replaying()) return;
  engine_.set_timer(rank, kPolicyTimerKinds + kind, at);
}

void Loop::cancel_timer(std::int64_t rank, std::uint32_t kind) {
  engine_.cancel_timer(rank, kPolicyTimerKinds + kind);
}

std::uint64_t Loop::request_plan(std::shared_ptr<const PlanWork> work) {
  const std::uint64_t plan = next_plan_++;
  // During replay the request goes nowhere; on_restored() asks again.
  if (engine_.effects() != nullptr) {
    engine_.effects()->plans.push_back({engine_.job(), plan, std::move(work)});
  }
  return plan;
}

void Loop::note(Fact fact) {
  if (replaying()) return;
  Record& record = fact;
  recorder_.begin(record, fact.kind,
                  fact.rank == kNoRank ? nullptr : &worker(static_cast<Rank>(fact.rank)));
  if (record.kind == RecordKind::kPlan) announce(record);
  if (record.kind == RecordKind::kView) fill_view(record);
  if (record.kind == RecordKind::kBarrier && record.predicted_us >= 0) {
    counters_.plan_error.add(std::abs(now() - record.predicted_us));
  }
  recorder_.commit(std::move(record), [this](const Record& made) { apply_note(made); });
}

void Loop::apply_note(const Record& record) {
  if (record.kind == RecordKind::kBarrier) roster_.rebase();
  if (record.kind == RecordKind::kView) apply_view(record);
  if (recorder_.replaying()) policy_->on_note(*this, record);
}

// Tells the workers that want to know after which of their own pushes they meet, and how long the
// first will wait there. A plan's values are rank and target relative clock in turn.
void Loop::announce(const Record& plan) {
  for (std::size_t i = 0; i + 1 < plan.values.size(); i += 2) {
    const Worker& worker = roster_.at(static_cast<Rank>(plan.values[i]));
    if ((worker.notices & wire::kNoticePlan) == 0) continue;
    const Iteration last = plan.values[i + 1] + worker.base - 1;
    answers_.notify(worker.connection,
                    wire::PlanNotice{answers_.ref(worker), last, plan.predicted_wait_us});
  }
}

}  // namespace syncd
