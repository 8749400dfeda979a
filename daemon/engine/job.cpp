// Job: requests of the loop (begin, push, explain), the policy's decisions, and small shared parts.
// Runs on the engine's thread.
#include "daemon/engine/job.h"

#include <algorithm>
#include <cmath>

namespace syncd {
Job::Job(Engine& engine, JobId id, JobSpec spec, std::unique_ptr<Policy> policy)
    : engine_(engine), id_(id), spec_(std::move(spec)), policy_(std::move(policy)) {}

Micros Job::now() const {
  return engine_.now_;
}

// ---- small shared parts
// ---------------------------------------------------------------------------

wire::WorkerRef Job::ref(const Worker& worker) const {
  return {id_, worker.rank, epoch_, worker.incarnation};
}

std::string Job::called(const Worker& worker) const {
  return "worker " + std::to_string(worker.rank) + " (" + worker.host + ", " + worker.name + ")";
}

void Job::reply(const Caller& caller, wire::Body body, bool after_records) {
  if (effects_ == nullptr || caller.connection == 0) return;
  effects_->replies.push_back({caller, after_records, std::move(body)});
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
  if (engine_.store_writable_) return false;
  refuse(caller, Status::kStore,
         "the daemon cannot write its history now: " + engine_.store_reason_);
  return true;
}

Worker* Job::check(const Caller& caller, const wire::WorkerRef& ref) {
  Worker* worker = ref.rank < workers_.size() ? workers_[ref.rank].get() : nullptr;
  if (worker == nullptr) {
    refuse(caller, Status::kUnknownWorker,
           "job '" + spec_.name + "' has no worker " + std::to_string(ref.rank));
    return nullptr;
  }
  if (ref.epoch != epoch_) {
    refuse(caller, Status::kFenced,
           "the request is of epoch " + std::to_string(ref.epoch) + " of job '" + spec_.name +
               "', which is in epoch " + std::to_string(epoch_) + ": join again");
    return nullptr;
  }
  std::string why;
  if (ref.incarnation < worker->incarnation) {
    why = "was replaced by incarnation " + std::to_string(worker->incarnation);
  } else if (ref.incarnation > worker->incarnation) {
    why = "is unknown here, where it is incarnation " + std::to_string(worker->incarnation);
  } else if (!is_member(worker->state)) {
    why = std::string("is ") + to_string(worker->state);
  } else if (caller.connection != worker->connection) {
    // A frame that a cut connection still had must not get in the way of those of the present one.
    why = "did not join over this connection";
  } else {
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
  if (state_ == JobState::kStopped) {
    reply(caller, wire::Granted{k, wire::kStepStop, 0});
    return;
  }
  // Invariant I8. A jump may be asked for again under the iteration that was asked for or under the
  // one that was granted: whoever asks may not have seen the first answer.
  if (worker->computing() && k <= worker->granted && k > worker->answered()) {
    reply(caller, repeat_grant(*worker));
    return;
  }
  const Iteration next = due(*worker);
  if (k <= worker->granted || k > next) {
    std::string text = "begin(" + std::to_string(k) + ") of " + called(*worker) + ": ";
    text += worker->computing() ? "iteration " + std::to_string(worker->granted) +
                                      " was granted and is not pushed yet"
                                : "the iteration that is due is " + std::to_string(next);
    refuse(caller, Status::kWrongIteration, std::move(text));
    return;
  }
  wait_in_begin(*worker, caller, k);
}

void Job::wait_in_begin(Worker& worker, const Caller& caller, Iteration iteration) {
  if (worker.waiting) {
    refuse(worker.waiting->caller, Status::kCancelled,
           "a later request of this worker took its place");
    worker.waiting->caller = caller;
    worker.waiting->iteration = iteration;
    return;
  }
  worker.waiting = Waiting{caller, iteration, now()};
  ++waiting_;
  if (state_ == JobState::kWaiting) {
    if (worker.state == WorkerState::kRegistered) {
      worker.state = WorkerState::kReady;
      ++ready_;
    }
    maybe_start();
    return;
  }
  if (worker.state == WorkerState::kRegistered) admit(worker);
  policy_->on_begin(*this, worker.rank);
}

void Job::withdraw(Worker& worker) {
  if (!worker.waiting) return;
  worker.waiting.reset();
  --waiting_;
  if (state_ == JobState::kWaiting && worker.state == WorkerState::kReady) {
    worker.state = WorkerState::kRegistered;
    if (--ready_ == 0) {
      start_at_ = kNever;
      engine_.timers_.cancel({id_, kNoRank, kTimerStart});
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
  if (!worker.waiting) return;
  const Waiting waiting = *worker.waiting;
  worker.waiting.reset();
  --waiting_;

  const Iteration iteration = grant.iteration.value_or(due(worker));
  std::uint32_t flags = grant.flags;
  if (iteration != waiting.iteration) flags |= wire::kStepSkip | wire::kStepPull;
  const std::uint64_t others = pushes_ - worker.own_pushes;
  if (worker.granted_at < 0 || others > worker.others_at_pull) flags |= wire::kStepPull;
  worker.others_at_pull = others;

  if (policy_->family() == Family::kDecentralized) set_clock(worker, iteration);
  worker.granted = iteration;
  worker.granted_at = now();
  worker.waited_us = now() - waiting.since;
  worker.active_at = now();
  worker.warned = false;
  worker.last_grant.iteration = iteration;
  worker.last_grant.flags = flags;
  worker.last_grant.staleness = grant.staleness.value_or(worker.relative() - clocks_.min());
  ++engine_.grants_;
  reply(waiting.caller, worker.last_grant);
  arm_liveness(worker);
}

// ---- push
// -------------------------------------------------------------------------------------------

void Job::push(const Caller& caller, const wire::Push& push) {
  Worker* worker = check(caller, push.worker);
  if (worker == nullptr) return;
  const Iteration k = push.iteration;
  if (k >= 0 && (k <= worker->pushed || k == worker->late)) {
    const bool late = k == worker->late;
    // The first copy's record may still be on its way to the disk: this answer waits for it too.
    reply(caller, wire::Pushed{k, late, true}, true);
    return;
  }
  if (state_ == JobState::kStopped) {
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
  if (policy_->family() == Family::kParameterServer && k < worker->clock) {
    verdict = {true, std::max(worker->clock, verdict.late ? verdict.clock : worker->clock)};
  }
  Record record = make_record(RecordKind::kPush, *worker);
  record.iteration = k;
  record.late = verdict.late;
  record.clock = verdict.clock;
  record.span_us = worker->granted_at >= 0 ? now() - worker->granted_at : -1;
  record.waited_us = worker->waited_us;
  record.staleness = worker->last_grant.staleness;
  record.loss = push.loss;
  record.samples = push.samples;
  record.bytes = push.bytes;
  ++engine_.pushes_;
  reply(caller, wire::Pushed{k, verdict.late, false}, true);
  commit(std::move(record));
}

void Job::explain_to(const Caller& caller, const wire::Explain& request) {
  const Worker* worker = check(caller, request.worker);
  if (worker != nullptr) reply(caller, explain(*worker));
}

// ---- the policy's other decisions
// ---------------------------------------------------------------------

std::uint64_t Job::pushes_by_others_since_pull(Rank rank) const {
  const Worker& worker = *workers_[rank];
  return pushes_ - worker.own_pushes - worker.others_at_pull;
}

Clock Job::highest_relative() const {
  Clock highest = 0;
  for (const auto& worker : workers_) {
    if (worker) highest = std::max(highest, worker->relative());
  }
  return highest;
}

void Job::advance(Rank rank, Clock clock) {
  Worker& worker = at(rank);
  if (clock > worker.clock) set_clock(worker, clock);
}

void Job::barrier(std::int64_t superstep, Micros predicted_us, Micros wait_us) {
  if (replaying_) return;
  Record record = make_record(RecordKind::kBarrier);
  record.superstep = superstep;
  record.predicted_us = predicted_us;
  record.wait_us = wait_us;
  commit(std::move(record));
}

void Job::resync(Rank rank) {
  const Worker& worker = at(rank);
  if (effects_ == nullptr || worker.connection == 0 || !worker.computing()) return;
  effects_->notifications.push_back(
      {worker.connection, wire::ResyncNotice{ref(worker), worker.granted}});
}

// The wire has no decentralized calls yet, so no policy can be asked for these answers.
void Job::answer_targets(Rank, std::vector<Rank>) {}
void Job::answer_collect(Rank, std::vector<PeerUpdate>) {}

void Job::set_timer(std::int64_t rank, std::uint32_t kind, Micros at) {
  engine_.timers_.set({id_, rank, kPolicyTimerKinds + kind}, at);
}

void Job::cancel_timer(std::int64_t rank, std::uint32_t kind) {
  engine_.timers_.cancel({id_, rank, kPolicyTimerKinds + kind});
}

std::uint64_t Job::request_plan(std::shared_ptr<const PlanWork> work) {
  const std::uint64_t id = next_plan_++;
  if (effects_ != nullptr) effects_->plans.push_back({id_, id, std::move(work)});
  return id;
}

void Job::note(RecordKind kind, std::int64_t rank, std::string reason,
               std::vector<std::int64_t> values) {
  if (replaying_) return;
  Record record =
      rank == kNoRank ? make_record(kind) : make_record(kind, at(static_cast<Rank>(rank)));
  record.reason = std::move(reason);
  record.values = std::move(values);
  commit(std::move(record));
}

void Job::plan_ready(const PlanReady& ready) {
  if (state_ == JobState::kRunning) policy_->on_plan(*this, ready.plan, ready.result);
}

void Job::timer(const TimerKey& key) {
  if (key.kind >= kPolicyTimerKinds) {
    if (state_ == JobState::kRunning) {
      policy_->on_timer(*this, key.rank, key.kind - kPolicyTimerKinds);
    }
  } else if (key.kind == kTimerLiveness) {
    Worker& worker = at(static_cast<Rank>(key.rank));
    worker.liveness_at = kNever;
    check_liveness(worker);
  } else if (key.kind == kTimerStart && state_ == JobState::kWaiting) {
    if (ready_ >= spec_.min_workers) start();
  }
}

void Job::answer_all_waiting(Status status, const std::string& text) {
  for (const auto& worker : workers_) {
    if (!worker || !worker->waiting) continue;
    refuse(worker->waiting->caller, status, text);
    withdraw(*worker);
  }
}

}  // namespace syncd
