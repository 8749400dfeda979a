// Job: recorded facts. commit() makes them, apply() lets them change the state, replay() and the
// snapshot bring them back after a crash. Runs on the engine's thread.
#include <algorithm>

#include "daemon/core/engine/job.h"
#include "daemon/core/engine/limits.h"

namespace syncd {

void Job::record_creation() {
  Record record = recorder_.make(RecordKind::kJobCreated);
  record.name = spec_.name;
  record.policy = policy_->name();
  record.expected_workers = spec_.expected_workers;
  record.min_workers = spec_.min_workers;
  record.config = config_text(spec_);
  commit(std::move(record));
  policy_->on_created(*this);
  log(LogLevel::kInfo, "job_created", nullptr,
      {{"id", std::to_string(id())},
       {"policy", policy_->name()},
       {"expected_workers", std::to_string(spec_.expected_workers)}});
}

void Job::commit(Record&& record) {
  recorder_.commit(*effects_, std::move(record), [this](const Record& made) { apply(made); });
}

// ---- applying them
// ---------------------------------------------------------------------------------------

void Job::apply(const Record& record) {
  switch (record.kind) {
    case RecordKind::kNone:
      break;
    case RecordKind::kJobCreated:
      recorder_.apply_created(record);
      break;
    case RecordKind::kJobStarted:
      apply_started(record);
      break;
    case RecordKind::kJobStopped:
      apply_stopped(record);
      break;
    case RecordKind::kWorkerJoined:
      apply_joined(record);
      break;
    case RecordKind::kWorkerLeft:
      apply_exit(record, WorkerState::kLeft);
      break;
    case RecordKind::kWorkerLost:
      apply_exit(record, WorkerState::kLost);
      break;
    case RecordKind::kWorkerDraining:
      apply_draining(record);
      break;
    case RecordKind::kWorkerLeased:
      apply_leased(record);
      break;
    case RecordKind::kPush:
      apply_push(record);
      break;
    case RecordKind::kPolicySwitched:
      apply_switched(record);
      break;
    case RecordKind::kBarrier:
      roster_.rebase();
      if (recorder_.replaying()) policy_->on_note(*this, record);
      break;
    case RecordKind::kPlan:
    case RecordKind::kPolicyNote:
      if (recorder_.replaying()) policy_->on_note(*this, record);
      break;
  }
}

void Job::apply_started(const Record& record) {
  roster_.start(record.values, now());
  // The policy sees them all at once: one after the other, the first would look like the whole job,
  // and what it has reached (after an empty store, say) like what all have reached.
  for (const Rank rank : roster_.active()) {
    policy_->on_enter(*this, rank);
    arm_liveness(at(rank));
  }
  policy_->on_start(*this);
}

void Job::apply_stopped(const Record& record) {
  stop_reason_ = record.reason;
  engine_.cancel_timers();
  roster_.stop();
  roster_.each([&](Worker& worker) { worker.liveness_at = kNever; });
}

void Job::apply_joined(const Record& record) {
  const auto rank = static_cast<Rank>(record.rank);
  const bool fresh = find(rank) == nullptr;
  Worker& worker = fresh ? roster_.add(rank) : at(rank);
  if (fresh) engine_.count_worker();
  const bool was_member = !fresh && is_member(worker.state);
  const bool new_life = !fresh && worker.incarnation != record.incarnation;
  const bool changed = fresh || !was_member || new_life || worker.data != record.data;
  if (new_life && decentralized() && worker.active()) {
    // Nobody may wait for the update of the iteration that it was in.
    roster_.deactivate(worker);
    policy_->on_exit(*this, worker.rank);
  }
  if (!fresh && (worker.name != record.name || worker.host != record.host)) {
    worker.own_pushes = 0;
    worker.pushed = worker.late = worker.granted = kNoIteration;
    worker.before_jump = worker.after_jump = kNoIteration;
    worker.last_push_us = worker.previous_push_us = -1;
  }
  roster_.rename(worker, record.name, record.host);
  if (!fresh && !was_member) roster_.readmit(worker);
  if (worker.incarnation != record.incarnation) {
    worker.forget_grant();  // a new process has pulled nothing yet
    worker.warned = false;
    worker.spans.clear();
    worker.longest_us = 0;
    worker.span_of = kNoIteration;
    worker.dismissal.clear();
    worker.leased_phase.clear();
    roster_.set_draining(worker, false);
    if (worker.granted > worker.pushed) worker.granted = worker.pushed;
    worker.asked = worker.granted;
  }
  worker.data = record.data;
  worker.incarnation = record.incarnation;
  if (changed) members_changed();
  // Pushes of it were lost with the end of a history that was not synced.
  const bool forgotten = record.resumed && record.iteration > worker.answered();
  worker.pushed = std::max(worker.pushed, record.iteration);
  worker.granted = std::max(worker.granted, worker.pushed);
  recorder_.apply_joined(record);
  if (new_life || fresh) {
    begin_life(worker, record.clock);
  }

  if (forgotten && decentralized() && worker.state == WorkerState::kRunning) {
    // What it sent meanwhile went to whoever had its neighbours' places then: its edges begin anew.
    roster_.deactivate(worker);
    policy_->on_exit(*this, worker.rank);
  }
  roster_.set_clock(worker, record.clock, record.base);
  if (worker.active()) {  // back in its own place: nobody was released in between
    policy_->on_return(*this, worker.rank);
  } else if (roster_.running()) {
    roster_.activate(worker, now());
    policy_->on_enter(*this, worker.rank);
    arm_liveness(worker);
  }
}

// What a worker was in before is over: it begins with the iteration after its clock.
void Job::begin_life(Worker& worker, Clock clock) {
  worker.targeted = worker.collected = worker.consumed = clock;
  if (decentralized()) worker.entered = clock;
  worker.targets.clear();
  worker.updates.clear();
}

void Job::apply_push(const Record& record) {
  Worker& worker = at(static_cast<Rank>(record.rank));
  worker.granted = std::max(worker.granted, record.iteration);
  worker.resync = false;
  worker.restarts = 0;
  worker.wasted_us = 0;
  worker.span_us = record.span_us;
  worker.held_us = record.waited_us;
  worker.loss = record.loss;
  worker.previous_push_us = worker.last_push_us;
  worker.last_push_us = record.time_us;
  worker.progressed(record.time_us, 0);
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
  // Under this policy nobody jumps: it was granted under the one before, which no record says, and
  // the switch has made that clock its base.
  if (recorder_.replaying() && jumped > 0 && !decentralized() && !policy_->traits().jumps) {
    roster_.set_clock(worker, worker.clock + jumped, worker.base + jumped);
  }
  roster_.set_clock(worker, record.clock);
  arm_liveness(worker);  // it may be warned of again, which comes before it is given up
  // Makes records, which may move this one.
  if (worker.active()) policy_->on_push(*this, worker.rank, record.late);
}

void Job::apply_exit(const Record& record, WorkerState state) {
  Worker& worker = at(static_cast<Rank>(record.rank));
  if (!is_member(worker.state)) return;
  const bool was_active = worker.active();
  roster_.remove(worker, state);
  if (state == WorkerState::kLeft || record.reason.starts_with(kKickedReason)) {
    worker.dismissal = record.reason;
  }
  worker.disconnected_at = -1;
  engine_.detach(std::exchange(worker.connection, 0), worker.rank);
  worker.liveness_at = kNever;
  engine_.cancel_timer(worker.rank, kTimerLiveness);
  members_changed();
  if (was_active) policy_->on_exit(*this, worker.rank);
}

void Job::apply_draining(const Record& record) {
  Worker& worker = at(static_cast<Rank>(record.rank));
  if (!worker.active()) return;
  roster_.set_draining(worker, true);
  worker.dismissal = record.reason;
}

void Job::apply_leased(const Record& record) {
  Worker& worker = at(static_cast<Rank>(record.rank));
  set_phase(worker, record.name, record.span_us);
  worker.leased_phase = worker.phase;
}

void Job::apply_switched(const Record& record) {
  std::string error;
  auto policy = make_policy(record.policy, error);
  if (!policy) return;  // check_record() has refused such a record
  engine_.cancel_timers(kPolicyTimerKinds);
  barriers_before_ += policy_->barriers();
  policy_ = std::move(policy);
  spec_.policy = policy_->name();
  roster_.rebase();
  for (const Rank rank : roster_.active()) policy_->on_enter(*this, rank);
  if (state() == JobState::kRunning) policy_->on_start(*this);
}

// ---- replay
// -------------------------------------------------------------------------------------------------

// Empty, or what makes a stored record impossible here.
std::string Job::check_record(const Record& record) const {
  if (std::string wrong = recorder_.check(record); !wrong.empty()) return wrong;
  if (state() == JobState::kStopped) return "it comes after the job's end";
  switch (record.kind) {
    case RecordKind::kNone:
      return "it has no kind";
    case RecordKind::kJobCreated:
      return record.sequence == 1 ? "" : "the job was created before";
    case RecordKind::kJobStarted:
      return state() == JobState::kWaiting ? "" : "the job was started before";
    case RecordKind::kWorkerJoined:
      if (record.rank < 0 || record.rank >= limits::kWorkersPerJobMax)
        return "its rank is impossible";
      return {};
    case RecordKind::kWorkerLeft:
    case RecordKind::kWorkerLost:
    case RecordKind::kWorkerDraining:
    case RecordKind::kWorkerLeased:
    case RecordKind::kPush:
      if (record.rank < 0 || find(static_cast<Rank>(record.rank)) == nullptr) {
        return "its worker " + std::to_string(record.rank) + " never joined";
      }
      if (record.kind == RecordKind::kPush &&
          record.clock < find(static_cast<Rank>(record.rank))->clock) {
        return "it would turn back the clock of worker " + std::to_string(record.rank);
      }
      return {};
    case RecordKind::kPolicySwitched: {
      std::string error;
      return make_policy(record.policy, error) ? std::string{} : error;
    }
    default:
      return {};
  }
}

bool Job::replay(const Record& record, std::string& error) {
  error = check_record(record);
  if (!error.empty()) {
    error = "job '" + spec_.name + "' (#" + std::to_string(id()) + "), record " +
            std::to_string(record.sequence) + " (" + to_string(record.kind) + "): " + error;
    return false;
  }
  recorder_.replay(record, [this](const Record& stored) { apply(stored); });
  return true;
}

JobSnapshot Job::snapshot() const {
  JobSnapshot out;
  recorder_.save(out);
  out.state = state();
  out.pushes = pushes_;
  roster_.each([&](const Worker& w) {
    out.highest_clock = std::max(out.highest_clock, w.clock);
    WorkerSnapshot& stored = out.workers.emplace_back(w);
    // Readiness is the present request's, which does not outlive the daemon.
    if (w.state == WorkerState::kReady) stored.state = WorkerState::kRegistered;
    if (!w.leased()) stored.phase_us = stored.phase_lease_us = 0;
  });
  out.policy = policy_->name();
  out.policy_state = policy_->save();
  out.stop_reason = stop_reason_;
  return out;
}

bool Job::restore_snapshot(const JobSnapshot& snapshot, std::string& error) {
  error = recorder_.restore(snapshot);
  if (!error.empty()) return false;
  roster_.restore(snapshot.state);
  pushes_ = snapshot.pushes;
  stop_reason_ = snapshot.stop_reason;
  for (const WorkerSnapshot& stored : snapshot.workers) {
    error = Recorder::check(stored);
    if (error.empty() && find(stored.rank) != nullptr) {
      error = "its snapshot has rank " + std::to_string(stored.rank) + " twice";
    }
    if (!error.empty()) return false;
    Worker& worker = roster_.restore(stored);
    engine_.count_worker();
    worker.phase = worker.leased_phase;
    if (decentralized()) begin_life(worker, worker.entered);
  }
  const bool loaded = policy_->load(snapshot.policy_state);
  if (!loaded) error = "its snapshot's policy state does not fit policy '" + policy_->name() + "'";
  return loaded;
}

void Job::finish_restore() {
  if (state() == JobState::kStopped) return;
  // The policy may want something done, which only an event can: the next one.
  engine_.set_timer(kNoRank, kTimerRestored, now());
  roster_.each([&](Worker& worker) {
    if (!is_member(worker.state)) return;
    worker.connection = 0;
    worker.disconnected_at = now();
    worker.active_at = now();
    worker.longest_us = 0;
    worker.liveness_at = kNever;
    engine_.cancel_timer(worker.rank, kTimerLiveness);
    arm_liveness(worker);
  });
  members_changed();  // all of them are cut off
}

}  // namespace syncd
