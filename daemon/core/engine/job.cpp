// Job: requests of the loop (begin, push, explain), the policy's decisions, and small shared parts.
// Runs on the engine's thread.
#include "daemon/core/engine/job.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace syncd {
Job::Job(EngineServices engine, JobSpec spec, std::unique_ptr<Policy> policy, Epoch epoch)
    : engine_(engine),
      spec_(std::move(spec)),
      policy_(std::move(policy)),
      roster_(spec_.expected_workers),
      recorder_(engine, epoch) {}

// ---- small shared parts
// ---------------------------------------------------------------------------

wire::WorkerRef Job::ref(const Worker& worker) const {
  return {id(), worker.rank, epoch(), worker.incarnation};
}

// What the process hears that an operator sent away: whoever was drained has done its part.
Status Job::dismissed_status(const Worker& worker) {
  return worker.dismissal.starts_with(kKickedReason) ? Status::kFenced : Status::kStopped;
}

// Once that is on disk: after a crash it would be a member again, of whom nobody runs the loop.
void Job::refuse_dismissed(const Caller& caller, const Worker& worker) {
  reply(caller, wire::Error{dismissed_status(worker), called(worker) + " was " + worker.dismissal},
        true);
}

std::string Job::called(const Worker& worker) const {
  return "worker " + std::to_string(worker.rank) + " (" + worker.host + ", " + worker.name + ")";
}

void Job::refuse(const Caller& caller, Status status, std::string text) {
  reply(caller, wire::Error{status, std::move(text)});
}

void Job::log(LogLevel level, std::string event, const Worker* worker,
              std::vector<std::pair<std::string, std::string>> fields) {
  if (effects_ == nullptr) return;
  LogLine line{level, std::move(event), {{"job", spec_.name}}};
  if (worker != nullptr) {
    line.fields.emplace_back("worker", std::to_string(worker->rank));
    line.fields.emplace_back("host", worker->host);
    line.fields.emplace_back("name", worker->name);
  }
  for (auto& field : fields) line.fields.push_back(std::move(field));
  effects_->log.push_back(std::move(line));
}

bool Job::store_refuses(const Caller& caller) {
  const std::string* why = engine_.store_refusal();
  if (why == nullptr) return false;
  refuse(caller, Status::kStore, "the daemon cannot write its history now: " + *why);
  return true;
}

Worker* Job::check(const Caller& caller, const wire::WorkerRef& ref) {
  Worker* worker = find(ref.rank);
  if (worker == nullptr) {
    refuse(caller, Status::kUnknownWorker,
           "job '" + spec_.name + "' has no worker " + std::to_string(ref.rank));
    return nullptr;
  }
  if (ref.epoch != epoch()) {
    refuse(caller, Status::kFenced,
           "the request is of epoch " + std::to_string(ref.epoch) + " of job '" + spec_.name +
               "', which is in epoch " + std::to_string(epoch()) + ": join again");
    return nullptr;
  }
  std::string why;
  if (ref.incarnation < worker->incarnation) {
    why = "was replaced by incarnation " + std::to_string(worker->incarnation);
  } else if (ref.incarnation > worker->incarnation) {
    why = "is unknown here, where it is incarnation " + std::to_string(worker->incarnation);
  } else if (!is_member(worker->state) && !worker->dismissal.empty()) {
    refuse_dismissed(caller, *worker);
    return nullptr;
  } else if (!is_member(worker->state)) {
    why = std::string("is ") + to_string(worker->state);
  } else if (caller.connection != worker->connection) {
    // A frame that a cut connection still had must not get in the way of those of the present one.
    why = "did not join over this connection";
  } else {
    worker->predecessor = 0;
    return worker;
  }
  refuse(caller, Status::kFenced,
         "incarnation " + std::to_string(ref.incarnation) + " of " + called(*worker) + " " + why +
             ": join again");
  return nullptr;
}

// ---- begin
// ------------------------------------------------------------------------------------------

Iteration Job::due(const Worker& worker) const {
  return policy_->family() == Family::kParameterServer ? worker.clock : worker.clock + 1;
}

// Whether the worker is within an iteration: with a parameter server from the grant to the push,
// else to the answer of collect.
bool Job::in_iteration(const Worker& worker) const {
  if (!decentralized()) return worker.computing();
  return worker.granted == worker.clock && worker.collected < worker.granted;
}

wire::Granted Job::repeat_grant(const Worker& worker) const {
  if (worker.last_grant.iteration == worker.granted && worker.granted_at >= 0) {
    return worker.last_grant;
  }
  // Granted in an earlier life of the daemon, whose answer is not kept: a pull is always safe.
  return {worker.granted, wire::kStepPull, 0};
}

void Job::begin(const Caller& caller, const wire::Begin& begin) {
  Worker* worker = check(caller, begin.worker);
  if (worker == nullptr) return;
  const Iteration k = begin.iteration;
  if (state() == JobState::kStopped) {
    reply(caller, wire::Granted{k, wire::kStepStop, 0});
    return;
  }
  // Invariant I8. A jump may be asked for again under the iteration that was asked for or under the
  // one that was granted: whoever asks may not have seen the first answer.
  const bool repeated = decentralized() ? k >= std::max<Iteration>(worker->asked, 0)
                                        : worker->computing() && k > worker->answered();
  if (repeated && k <= worker->granted) {
    end_phase(*worker);
    reply(caller, repeat_grant(*worker));
    return;
  }
  const Iteration next = due(*worker);
  if (k <= worker->granted || k > next) {
    std::string text = "begin(" + std::to_string(k) + ") of " + called(*worker) + ": ";
    text +=
        !decentralized() && worker->computing()
            ? "iteration " + std::to_string(worker->granted) + " was granted and is not pushed yet"
            : "the iteration that is due is " + std::to_string(next);
    refuse(caller, Status::kWrongIteration, std::move(text));
    return;
  }
  if (decentralized() && in_iteration(*worker)) {
    refuse(caller, Status::kState,
           "begin(" + std::to_string(k) + ") of " + called(*worker) + ": collect(" +
               std::to_string(worker->clock) + ") must be answered first");
    return;
  }
  if (worker->state == WorkerState::kDraining) {
    if (store_refuses(caller)) return;
    reply(caller, wire::Granted{k, wire::kStepStop, 0}, true);
    drain_out(*worker, worker->dismissal);
    return;
  }
  if (!worker->waiting) {
    progressed(*worker);
    worker->end_span();
  }
  end_phase(*worker);
  wait_in_begin(*worker, caller, k);
}

void Job::wait_in_begin(Worker& worker, const Caller& caller, Iteration iteration) {
  if (!stand(worker, caller, iteration, Call::kBegin)) return;
  if (state() == JobState::kWaiting) {
    if (worker.state == WorkerState::kRegistered) {
      roster_.set_ready(worker, true);
    }
    maybe_start();
    return;
  }
  if (worker.state == WorkerState::kRegistered) admit(worker);
  policy_->on_begin(*this, worker.rank);
}

bool Job::stand(Worker& worker, const Caller& caller, Iteration iteration, Call call) {
  if (worker.waiting) {
    refuse(worker.waiting->caller, Status::kCancelled,
           "a later request of this worker took its place");
    if (worker.waiting->call == call) {
      worker.waiting->caller = caller;
      worker.waiting->iteration = iteration;
      return false;
    }
    withdraw(worker);
  } else if (call != Call::kBegin) {  // whose begin() has seen to it
    progressed(worker);
  }
  worker.waiting = Waiting{caller, iteration, now(), call};
  ++waiting_;
  return true;
}

Waiting Job::end_waiting(Worker& worker) {
  const Waiting waiting = *worker.waiting;
  worker.waiting.reset();
  --waiting_;
  worker.active_at = now();
  worker.warned = false;
  return waiting;
}

void Job::withdraw(Worker& worker) {
  if (!worker.waiting) return;
  worker.waiting.reset();
  --waiting_;
  if (state() == JobState::kWaiting && worker.state == WorkerState::kReady) {
    roster_.set_ready(worker, false);
    if (roster_.missing().ready() == 0) {
      start_at_ = kNever;
      engine_.cancel_timer(kNoRank, kTimerStart);
    }
  }
  if (worker.active()) policy_->on_cancel(*this, worker.rank);
  worker.active_at = now();
  arm_liveness(worker);
}

void Job::cancel_begin(const Caller& caller, const wire::CancelBegin& cancel) {
  Worker* worker = check(caller, cancel.worker);
  if (worker == nullptr) return;
  if (worker->waiting && worker->waiting->iteration == cancel.iteration) {
    refuse(worker->waiting->caller, Status::kCancelled, "cancelled by the caller");
    withdraw(*worker);
  }
  reply(caller, wire::Ok{});
}

void Job::grant(Rank rank, const Grant& grant) {
  Worker& worker = at(rank);
  if (!worker.waits_in(Call::kBegin)) return;
  const Waiting waiting = end_waiting(worker);

  const Iteration iteration = grant.iteration.value_or(due(worker));
  std::uint32_t flags = grant.flags;
  if (iteration != waiting.iteration) flags |= wire::kStepSkip | wire::kStepPull;
  const std::uint64_t others = pushes_ - worker.own_pushes;
  if (worker.granted_at < 0 || others > worker.others_at_pull) flags |= wire::kStepPull;
  worker.others_at_pull = others;

  if (iteration != waiting.iteration) {
    worker.before_jump = waiting.iteration - 1;
    worker.after_jump = iteration;
  }
  if (decentralized()) roster_.set_clock(worker, iteration);
  worker.granted = iteration;
  worker.asked = waiting.iteration;
  worker.granted_at = now();
  worker.waited_us = now() - waiting.since;
  worker.last_grant.iteration = iteration;
  worker.last_grant.flags = flags;
  worker.last_grant.staleness =
      grant.staleness.value_or(worker.relative() - roster_.clocks().min());
  engine_.count_grant();
  ++counters_.grants;
  counters_.begin_wait.add(worker.waited_us);
  if ((flags & wire::kStepBarrier) != 0) counters_.barrier_wait.add(worker.waited_us);
  reply(waiting.caller, worker.last_grant);
  arm_liveness(worker);
}

// ---- push
// -------------------------------------------------------------------------------------------

void Job::push(const Caller& caller, const wire::Push& push) {
  Worker* worker = check(caller, push.worker);
  if (worker == nullptr) return;
  const Iteration k = push.iteration;
  if (k > worker->before_jump && k < worker->after_jump && k != worker->late) {
    refuse(caller, Status::kWrongIteration,
           "push(" + std::to_string(k) + ") of " + called(*worker) +
               ": it went on from iteration " + std::to_string(worker->before_jump) + " to " +
               std::to_string(worker->after_jump));
    return;
  }
  if (k >= 0 && (k <= worker->pushed || k == worker->late)) {
    const bool late = k == worker->late;
    ++counters_.duplicates;
    // The first copy's record may still be on its way to the disk: this answer waits for it too.
    reply(caller, wire::Pushed{k, late, true}, true);
    return;
  }
  if (state() == JobState::kStopped) {
    refuse(caller, Status::kStopped, "job '" + spec_.name + "' has ended: " + stop_reason_);
    return;
  }
  if (worker->granted == kNoIteration) {
    refuse(
        caller, Status::kState,
        "push(" + std::to_string(k) + ") of " + called(*worker) + ": no iteration was granted yet");
    return;
  }
  if (k != worker->granted) {
    refuse(caller, Status::kWrongIteration,
           "push(" + std::to_string(k) + ") of " + called(*worker) + ": " +
               (worker->computing() ? "the iteration granted to it is "
                                    : "a begin must come first, its latest iteration was ") +
               std::to_string(worker->granted));
    return;
  }
  if (push.loss && !std::isfinite(*push.loss)) {
    refuse(
        caller, Status::kInvalid,
        "push(" + std::to_string(k) + ") of " + called(*worker) + ": loss must be a finite number");
    return;
  }
  if (store_refuses(caller)) return;

  PushVerdict verdict = policy_->judge_push(*this, worker->rank, k);
  // A worker that was told to jump ahead while it computed: its update comes too late in any
  // policy.
  if (!decentralized() && k < worker->clock) {
    verdict = {true, std::max(worker->clock, verdict.late ? verdict.clock : worker->clock)};
  }
  Record& record = recorder_.append(*effects_, RecordKind::kPush, *worker);
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
  if (verdict.late) {
    worker->before_jump = k;
    worker->after_jump = verdict.clock;
    ++counters_.late;
  }
  engine_.count_push();
  reply(caller, wire::Pushed{k, verdict.late, false}, true);
  recorder_.commit_last(*effects_, [this](const Record& made) { apply_push(made); });
  // A decentralized worker still collects what it was sent, and its slots must stay as they are.
  if (worker->state == WorkerState::kDraining && !decentralized()) {
    drain_out(*worker, worker->dismissal);
  }
}

void Job::explain_to(const Caller& caller, const wire::Explain& request) {
  const Worker* worker = check(caller, request.worker);
  if (worker != nullptr) reply(caller, explain(*worker));
}

// ---- the policy's other decisions
// ---------------------------------------------------------------------

std::uint64_t Job::pushes_by_others_since_pull(Rank rank) const {
  const Worker& worker = this->worker(rank);
  return pushes_ - worker.own_pushes - worker.others_at_pull;
}

void Job::advance(Rank rank, Clock clock) {
  Worker& worker = at(rank);
  if (clock > worker.clock) roster_.set_clock(worker, clock);
}

bool Job::resync(Rank rank) {
  Worker& worker = at(rank);
  if (effects_ == nullptr || worker.connection == 0 || !worker.computing()) return false;
  worker.resync = true;
  ++counters_.resyncs;
  effects_->notifications.push_back(
      {worker.connection, wire::ResyncNotice{ref(worker), worker.granted}});
  return true;
}

void Job::restarted(const Caller& caller, const wire::Restarted& request) {
  Worker* worker = check(caller, request.worker);
  if (worker == nullptr) return;
  const Iteration k = request.iteration;
  if (state() == JobState::kStopped) {
    refuse(caller, Status::kStopped, "job '" + spec_.name + "' has ended: " + stop_reason_);
    return;
  }
  if (k < 0 || k > worker->granted) {
    refuse(caller, Status::kWrongIteration,
           "restarted(" + std::to_string(k) + ") of " + called(*worker) +
               ": its latest granted iteration is " + std::to_string(worker->granted));
    return;
  }
  reply(caller, wire::Ok{});
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
  progressed(*worker);
  policy_->on_restarted(*this, worker->rank);
}

// ---- decentralized calls
// ---------------------------------------------------------------------------------

// The worker, if the call may be about this iteration: the one that it is in, or one whose answer
// it gets once more. Else null, and answered.
Worker* Job::check_peer_call(const Caller& caller, const wire::WorkerRef& ref, const char* call,
                             Iteration iteration) {
  Worker* worker = check(caller, ref);
  if (worker == nullptr) return nullptr;
  const auto about = [&] {
    return std::string(call) + "(" + std::to_string(iteration) + ") of " + called(*worker) + ": ";
  };
  if (state() == JobState::kStopped) {
    refuse(caller, Status::kStopped, "job '" + spec_.name + "' has ended: " + stop_reason_);
  } else if (!decentralized()) {
    refuse(caller, Status::kUnsupported,
           about() + "policy '" + policy_->name() + "' has a parameter server and no such call");
  } else if (!worker->active() || worker->granted == kNoIteration) {
    // Also what a worker hears that was given up, and taken in anew, in the middle of an iteration.
    refuse(
        caller, Status::kWrongIteration,
        about() + "no iteration was granted yet in this life of the worker: a begin comes first");
  } else {
    return worker;
  }
  return nullptr;
}

void Job::targets(const Caller& caller, const wire::Targets& request) {
  Worker* worker = check_peer_call(caller, request.worker, "targets", request.iteration);
  if (worker == nullptr) return;
  const Iteration k = request.iteration;
  if (k >= 0 && k == worker->targeted) {
    reply(caller, wire::TargetsReply{k, worker->targets});
  } else if (k != worker->clock || k != worker->granted) {
    refuse(caller, Status::kWrongIteration,
           "targets(" + std::to_string(k) + ") of " + called(*worker) + ": it is in iteration " +
               std::to_string(worker->granted));
  } else if (stand(*worker, caller, k, Call::kTargets)) {
    policy_->on_targets(*this, worker->rank);
  }
}

void Job::collect(const Caller& caller, const wire::Collect& request) {
  Worker* worker = check_peer_call(caller, request.worker, "collect", request.iteration);
  if (worker == nullptr) return;
  const Iteration k = request.iteration;
  // After a jump it also collects the iteration before its new one; a daemon that was started again
  // does not have that set any more, and has the policy make another.
  const bool before_jump = k >= 0 && k == worker->clock - 1 && k == worker->granted - 1;
  if (k >= 0 && k == worker->collected && !worker->updates.empty()) {
    reply(caller, wire::CollectReply{k, worker->updates});
  } else if (before_jump && worker->pushed < worker->granted) {
    if (stand(*worker, caller, k, Call::kCollect)) policy_->on_collect(*this, worker->rank);
  } else if (k != worker->clock || k != worker->granted) {
    refuse(caller, Status::kWrongIteration,
           "collect(" + std::to_string(k) + ") of " + called(*worker) + ": it is in iteration " +
               std::to_string(worker->clock));
  } else if (worker->pushed != k) {
    refuse(caller, Status::kState,
           "collect(" + std::to_string(k) + ") of " + called(*worker) + ": push(" +
               std::to_string(k) + ") must come first, its neighbours wait for it");
  } else if (stand(*worker, caller, k, Call::kCollect)) {
    policy_->on_collect(*this, worker->rank);
  }
}

void Job::consumed(const Caller& caller, const wire::Consumed& request) {
  Worker* worker = check_peer_call(caller, request.worker, "consumed", request.iteration);
  if (worker == nullptr) return;
  const Iteration k = request.iteration;
  if (k < 0 || k > worker->collected) {
    refuse(caller, Status::kWrongIteration,
           "consumed(" + std::to_string(k) + ") of " + called(*worker) +
               ": the latest collected iteration is " + std::to_string(worker->collected));
    return;
  }
  reply(caller, wire::Ok{});
  if (k <= worker->consumed) return;
  worker->consumed = k;
  progressed(*worker);
  policy_->on_consumed(*this, worker->rank);
}

void Job::answer_targets(Rank rank, std::vector<Rank> targets) {
  Worker& worker = at(rank);
  if (!worker.waits_in(Call::kTargets)) return;
  const Waiting waiting = end_waiting(worker);
  worker.targeted = waiting.iteration;
  worker.targets = std::move(targets);
  reply(waiting.caller, wire::TargetsReply{worker.targeted, worker.targets});
  arm_liveness(worker);
}

void Job::answer_collect(Rank rank, std::vector<PeerUpdate> updates) {
  Worker& worker = at(rank);
  if (!worker.waits_in(Call::kCollect)) return;
  const Waiting waiting = end_waiting(worker);
  preset_collect(rank, waiting.iteration, std::move(updates));
  reply(waiting.caller, wire::CollectReply{worker.collected, worker.updates});
  arm_liveness(worker);
}

void Job::preset_collect(Rank rank, Iteration iteration, std::vector<PeerUpdate> updates) {
  Worker& worker = at(rank);
  worker.collected = iteration;
  worker.updates = std::move(updates);
}

// ---- time, plans, history
// -----------------------------------------------------------------------------

void Job::set_timer(std::int64_t rank, std::uint32_t kind, Micros at) {
  // What replay arms would be due at once: on_restored() is for that.
  if (replaying()) return;
  engine_.set_timer(rank, kPolicyTimerKinds + kind, at);
}

void Job::cancel_timer(std::int64_t rank, std::uint32_t kind) {
  engine_.cancel_timer(rank, kPolicyTimerKinds + kind);
}

std::uint64_t Job::request_plan(std::shared_ptr<const PlanWork> work) {
  const std::uint64_t plan = next_plan_++;
  // During replay nobody listens; on_restored() asks again.
  if (effects_ != nullptr) effects_->plans.push_back({id(), plan, std::move(work)});
  return plan;
}

void Job::note(Fact fact) {
  if (replaying()) return;
  Record record = fact.rank == kNoRank
                      ? recorder_.make(fact.kind)
                      : recorder_.make(fact.kind, at(static_cast<Rank>(fact.rank)));
  record.reason = std::move(fact.reason);
  record.superstep = fact.superstep;
  record.predicted_us = fact.predicted_us;
  record.predicted_wait_us = fact.predicted_wait_us;
  record.wait_us = fact.wait_us;
  record.values = std::move(fact.values);
  if (record.kind == RecordKind::kPlan) announce_plan(record);
  if (record.kind == RecordKind::kBarrier && record.predicted_us >= 0) {
    counters_.plan_error.add(std::abs(now() - record.predicted_us));
  }
  commit(std::move(record));
}

// To those that want to know: after which of their own pushes they meet, and how long the first
// will wait there. A plan's values are rank and target relative clock in turn.
void Job::announce_plan(const Record& plan) {
  if (effects_ == nullptr) return;
  for (std::size_t i = 0; i + 1 < plan.values.size(); i += 2) {
    const Worker& worker = at(static_cast<Rank>(plan.values[i]));
    if (worker.connection == 0 || (worker.notices & wire::kNoticePlan) == 0) continue;
    const Iteration last = plan.values[i + 1] + worker.base - 1;
    effects_->notifications.push_back(
        {worker.connection, wire::PlanNotice{ref(worker), last, plan.predicted_wait_us}});
  }
}

// ---- another policy
// -------------------------------------------------------------------------------------

std::string Job::check_switch(const Policy& policy) const {
  if (state() == JobState::kStopped) return "job '" + spec_.name + "' has ended: " + stop_reason_;
  if (policy.family() != policy_->family() || decentralized()) {
    return "job '" + spec_.name + "' cannot go from policy '" + policy_->name() + "' to '" +
           policy.name() +
           "': a job keeps to parameter-server policies or to its one decentralized policy, "
           "because "
           "their iterations are counted differently";
  }
  return policy.check_workers(spec_.min_workers > 0 ? spec_.min_workers : spec_.expected_workers,
                              spec_.expected_workers);
}

void Job::switch_policy(const Policy& policy) {
  if (policy.name() == policy_->name()) return;
  const std::string before = policy_->name();
  Record record = recorder_.make(RecordKind::kPolicySwitched);
  record.policy = policy.name();
  commit(std::move(record));
  log(LogLevel::kInfo, "policy_switched", nullptr, {{"from", before}, {"to", policy_->name()}});
  reask_all_waiting();
}

void Job::reask_all_waiting() {
  if (state() != JobState::kRunning) return;
  std::vector<std::pair<Micros, Rank>> order;
  for (const Rank rank : roster_.active()) {
    if (at(rank).waits_in(Call::kBegin)) order.emplace_back(at(rank).waiting->since, rank);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [since, rank] : order) {
    if (at(rank).waiting) policy_->on_begin(*this, rank);
  }
}

void Job::plan_ready(const PlanReady& ready) {
  if (state() == JobState::kRunning) policy_->on_plan(*this, ready.plan, ready.result);
}

void Job::timer(const TimerKey& key) {
  if (key.kind >= kPolicyTimerKinds) {
    if (state() == JobState::kRunning) {
      policy_->on_timer(*this, key.rank, key.kind - kPolicyTimerKinds);
    }
  } else if (key.kind == kTimerLiveness) {
    Worker& worker = at(static_cast<Rank>(key.rank));
    worker.liveness_at = kNever;
    check_liveness(worker);
  } else if (key.kind == kTimerRestored) {
    if (state() == JobState::kRunning) policy_->on_restored(*this);
  } else if (key.kind == kTimerStart && state() == JobState::kWaiting) {
    if (roster_.missing().ready() >= spec_.min_workers) start(roster_.not_begun());
  }
}

void Job::answer_all_waiting(Status status, const std::string& text) {
  roster_.each([&](Worker& worker) {
    if (!worker.waiting) return;
    refuse(worker.waiting->caller, status, text);
    withdraw(worker);
  });
}

}  // namespace syncd
