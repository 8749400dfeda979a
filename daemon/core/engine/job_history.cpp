// Job: recorded facts. commit() makes them, apply() lets them change the state, replay() and the
// snapshot bring them back after a crash. Runs on the engine's thread.
#include <algorithm>
#include <initializer_list>

#include "daemon/core/engine/job.h"
#include "daemon/core/engine/limits.h"

namespace syncd {

// ---- making records
// -----------------------------------------------------------------------------------

Record Job::make_record(RecordKind kind) const {
  Record record;
  record.kind = kind;
  record.job = id_;
  record.time_us = now();
  record.epoch = epoch_;
  return record;
}

Record Job::make_record(RecordKind kind, const Worker& worker) const {
  Record record;
  fill_record(record, kind, worker);
  return record;
}

void Job::fill_record(Record& record, RecordKind kind, const Worker& worker) const {
  record.kind = kind;
  record.job = id_;
  record.time_us = now();
  record.epoch = epoch_;
  record.rank = worker.rank;
  record.incarnation = worker.incarnation;
}

void Job::record_creation() {
  Record record = make_record(RecordKind::kJobCreated);
  record.name = spec_.name;
  record.policy = policy_->name();
  record.expected_workers = spec_.expected_workers;
  record.min_workers = spec_.min_workers;
  record.config = config_text(spec_);
  commit(std::move(record));
  policy_->on_created(*this);
  log(LogLevel::kInfo, "job_created", nullptr,
      {{"id", std::to_string(id_)},
       {"policy", policy_->name()},
       {"expected_workers", std::to_string(spec_.expected_workers)}});
}

void Job::commit(Record&& record) {
  record.sequence = ++sequence_;
  // The record goes out before its consequences do: applying it may make further records. A copy,
  // because those may move the vector.
  effects_->records.push_back(record);
  apply(record);
  count_record();
}

void Job::commit_push() {
  Record& record = effects_->records.back();
  record.sequence = ++sequence_;
  apply_push(record);
  count_record();
}

void Job::count_record() {
  ++engine_.tails_;
  if (tail() >= engine_.options_.snapshot_every_records) engine_.touched_.push_back(id_);
}

// ---- applying them
// ---------------------------------------------------------------------------------------

void Job::apply(const Record& record) {
  switch (record.kind) {
    case RecordKind::kNone:
      break;
    case RecordKind::kJobCreated:
      created_record_ = record;
      epoch_ = std::max<Epoch>(record.epoch, 1);
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
      rebase_all();
      if (replaying_) policy_->on_note(*this, record);
      break;
    case RecordKind::kPlan:
    case RecordKind::kPolicyNote:
      if (replaying_) policy_->on_note(*this, record);
      break;
  }
}

void Job::apply_started(const Record& record) {
  state_ = JobState::kRunning;
  missing_.clear();
  idle_clocks_.clear();
  each_worker([&](Worker& worker) {
    if (!is_member(worker.state)) return;
    const bool left_out =
        std::binary_search(record.values.begin(), record.values.end(), worker.rank);
    if (!left_out) enlist(worker);
  });
  // The policy sees them all at once: one after the other, the first would look like the whole job,
  // and what it has reached (after an empty store, say) like what all have reached.
  for (const Rank rank : active_) {
    policy_->on_enter(*this, rank);
    arm_liveness(at(rank));
  }
  policy_->on_start(*this);
}

void Job::apply_stopped(const Record& record) {
  state_ = JobState::kStopped;
  stop_reason_ = record.reason;
  engine_.timers_.cancel_job(id_);
  missing_.clear();
  idle_clocks_.clear();
  each_worker([&](Worker& worker) {
    worker.liveness_at = kNever;
    idle_clocks_.add(worker.clock);
  });
}

Worker& Job::make_worker(Rank rank) {
  auto& slot = workers_.get(rank);
  if (!slot) {
    slot = std::make_unique<Worker>();
    slot->rank = rank;
    ++known_;
    ++engine_.workers_;
  }
  Worker& worker = *slot;
  while (workers_.find(next_fresh_rank_) != nullptr) ++next_fresh_rank_;
  return worker;
}

void Job::apply_joined(const Record& record) {
  const bool fresh = find(static_cast<Rank>(record.rank)) == nullptr;
  Worker& worker = make_worker(static_cast<Rank>(record.rank));
  if (fresh && state_ == JobState::kWaiting) idle_clocks_.add(worker.clock);
  const bool was_member = !fresh && is_member(worker.state);
  const bool new_life = !fresh && worker.incarnation != record.incarnation;
  const bool changed = fresh || !was_member || new_life || worker.data != record.data;
  if (new_life && decentralized() && worker.active()) {
    // Nobody may wait for the update of the iteration that it was in.
    deactivate(worker);
    worker.state = WorkerState::kRegistered;
    policy_->on_exit(*this, worker.rank);
  }
  if (!fresh && (worker.name != record.name || worker.host != record.host)) {
    const auto named = by_name_.find({worker.name, worker.host});
    if (named != by_name_.end() && named->second == worker.rank) by_name_.erase(named);
    worker.own_pushes = 0;
    worker.pushed = worker.late = worker.granted = kNoIteration;
    worker.before_jump = worker.after_jump = kNoIteration;
    worker.last_push_at = worker.previous_push_at = -1;
  }
  by_name_[{record.name, record.host}] = worker.rank;
  vacant_.erase(worker.rank);
  if (!was_member) {
    ++members_;
    if (state_ == JobState::kWaiting) missing_.join(worker.rank);
  }
  if (worker.incarnation != record.incarnation) {
    worker.forget_grant();  // a new process has pulled nothing yet
    worker.warned = false;
    worker.spans.clear();
    worker.longest_us = 0;
    worker.span_of = kNoIteration;
    worker.dismissal.clear();
    worker.leased = false;
    if (worker.state == WorkerState::kDraining) {
      worker.state = WorkerState::kRunning;
      --draining_;
    }
    if (worker.granted > worker.pushed) worker.granted = worker.pushed;
    worker.asked = worker.granted;
  }
  worker.name = record.name;
  worker.host = record.host;
  worker.data = record.data;
  worker.incarnation = record.incarnation;
  if (changed) members_changed();
  // Pushes of it were lost with the end of a history that was not synced.
  const bool forgotten = record.resumed && record.iteration > worker.answered();
  worker.pushed = std::max(worker.pushed, record.iteration);
  worker.granted = std::max(worker.granted, worker.pushed);
  next_incarnation_ = std::max(next_incarnation_, record.incarnation + 1);
  epoch_ = std::max(epoch_, record.epoch);
  if (new_life || fresh) {
    begin_life(worker, record.clock);
  }

  if (forgotten && decentralized() && worker.state == WorkerState::kRunning) {
    // What it sent meanwhile went to whoever had its neighbours' places then: its edges begin anew.
    deactivate(worker);
    worker.state = WorkerState::kRegistered;
    policy_->on_exit(*this, worker.rank);
  }
  if (worker.active()) {  // back in its own place: nobody was released in between
    uncount_clock(worker);
    change_clock(worker, record.clock);
    worker.base = record.base;
    count_clock(worker);
    policy_->on_return(*this, worker.rank);
    return;
  }
  change_clock(worker, record.clock);
  worker.base = record.base;
  if (state_ == JobState::kRunning) {
    activate(worker);
  } else if (!was_member) {
    worker.state = WorkerState::kRegistered;
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
  worker.previous_push_at = worker.last_push_at;
  worker.last_push_at = record.time_us;
  worker.progressed(record.time_us, 0);
  worker.phase.clear();
  worker.leased = false;
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
  if (replaying_ && jumped > 0 && !decentralized() && !policy_->traits().jumps) {
    if (worker.active()) absolute_clocks_.move(worker.clock, worker.clock + jumped);
    change_clock(worker, worker.clock + jumped);
    worker.base += jumped;
  }
  set_clock(worker, record.clock);
  arm_liveness(worker);  // it may be warned of again, which comes before it is given up
  // Makes records, which may move this one.
  if (worker.active()) policy_->on_push(*this, worker.rank, record.late);
}

void Job::apply_exit(const Record& record, WorkerState state) {
  Worker& worker = at(static_cast<Rank>(record.rank));
  if (!is_member(worker.state)) return;
  if (state_ == JobState::kWaiting) {
    if (worker.state == WorkerState::kReady) missing_.unready(worker.rank);
    missing_.leave(worker.rank);
  }
  --members_;
  vacant_.insert(worker.rank);
  const bool was_active = worker.active();
  if (was_active) deactivate(worker);
  worker.state = state;
  if (state == WorkerState::kLeft || record.reason.starts_with(kKickedReason)) {
    worker.dismissal = record.reason;
  }
  worker.disconnected_at = -1;
  engine_.detach(std::exchange(worker.connection, 0), id_, worker.rank);
  worker.liveness_at = kNever;
  engine_.timers_.cancel({id_, worker.rank, kTimerLiveness});
  members_changed();
  if (was_active) policy_->on_exit(*this, worker.rank);
}

void Job::apply_draining(const Record& record) {
  Worker& worker = at(static_cast<Rank>(record.rank));
  if (!worker.active()) return;
  if (worker.state != WorkerState::kDraining) ++draining_;
  worker.state = WorkerState::kDraining;
  worker.dismissal = record.reason;
}

void Job::apply_leased(const Record& record) {
  Worker& worker = at(static_cast<Rank>(record.rank));
  set_phase(worker, record.name, record.span_us);
  worker.leased = true;
}

void Job::apply_switched(const Record& record) {
  std::string error;
  auto policy = make_policy(record.policy, error);
  if (!policy) return;  // check_record() has refused such a record
  engine_.timers_.cancel_job(id_, kPolicyTimerKinds);
  barriers_before_ += policy_->barriers();
  policy_ = std::move(policy);
  spec_.policy = policy_->name();
  rebase_all();
  for (const Rank rank : active_) policy_->on_enter(*this, rank);
  if (state_ == JobState::kRunning) policy_->on_start(*this);
}

// ---- clocks
// -----------------------------------------------------------------------------------------------

void Job::enlist(Worker& worker) {
  worker.state = WorkerState::kRunning;
  worker.active_at = now();
  active_.insert(std::lower_bound(active_.begin(), active_.end(), worker.rank), worker.rank);
  count_clock(worker);
}

void Job::activate(Worker& worker) {
  enlist(worker);
  policy_->on_enter(*this, worker.rank);
  arm_liveness(worker);
}

void Job::deactivate(Worker& worker) {
  active_.erase(std::lower_bound(active_.begin(), active_.end(), worker.rank));
  if (worker.state == WorkerState::kDraining) --draining_;
  uncount_clock(worker);
}

void Job::set_clock(Worker& worker, Clock clock) {
  if (clock == worker.clock) return;
  if (worker.active()) {
    clocks_.move(worker.relative(), clock - worker.base);
    absolute_clocks_.move(worker.clock, clock);
  }
  change_clock(worker, clock);
}

void Job::rebase_all() {
  clocks_.clear();
  each_worker([&](Worker& worker) {
    worker.base = worker.clock;
    if (worker.active()) clocks_.add(0);
  });
}

// ---- replay
// -------------------------------------------------------------------------------------------------

namespace {

// Empty, or which of the numbers is not from `lowest` to limits::kStoredMax.
std::string out_of_range(const char* what, std::int64_t lowest,
                         std::initializer_list<std::int64_t> numbers) {
  for (const std::int64_t number : numbers) {
    if (number >= lowest && number <= limits::kStoredMax) continue;
    return std::string(what) + " " + std::to_string(number) + " is impossible: allowed are " +
           std::to_string(lowest) + " to " + std::to_string(limits::kStoredMax);
  }
  return {};
}
std::string wrong_time(std::initializer_list<Micros> times) {
  return out_of_range("its time", -1, times);
}
std::string wrong_clock(std::initializer_list<Clock> clocks) {
  return out_of_range("its clock", -limits::kStoredMax, clocks);
}

}  // namespace

// Empty, or what makes a stored record impossible here. The store has checked that it is undamaged;
// this guards the engine against a history that does not fit itself.
std::string Job::check_record(const Record& record) const {
  if (record.sequence != sequence_ + 1) {
    return "sequence " + std::to_string(record.sequence) + " follows " + std::to_string(sequence_);
  }
  if (state_ == JobState::kStopped) return "it comes after the job's end";
  std::string wrong =
      wrong_time({record.time_us, record.span_us, record.waited_us, record.wasted_us});
  if (wrong.empty()) wrong = wrong_clock({record.clock, record.base, record.iteration});
  if (!wrong.empty()) return wrong;
  switch (record.kind) {
    case RecordKind::kNone:
      return "it has no kind";
    case RecordKind::kJobCreated:
      return record.sequence == 1 ? "" : "the job was created before";
    case RecordKind::kJobStarted:
      return state_ == JobState::kWaiting ? "" : "the job was started before";
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
    error = "job '" + spec_.name + "' (#" + std::to_string(id_) + "), record " +
            std::to_string(record.sequence) + " (" + to_string(record.kind) + "): " + error;
    return false;
  }
  replaying_ = true;
  sequence_ = record.sequence;
  engine_.now_ = std::max(engine_.now_, record.time_us);
  apply(record);
  replaying_ = false;
  return true;
}

JobSnapshot Job::snapshot() const {
  JobSnapshot out;
  out.created = created_record_;
  out.sequence = sequence_;
  out.time_us = now();
  out.state = state_;
  out.epoch = epoch_;
  out.next_incarnation = next_incarnation_;
  out.pushes = pushes_;
  each_worker([&](const Worker& w) {
    out.highest_clock = std::max(out.highest_clock, w.clock);
    // Readiness is the present request's, which does not outlive the daemon.
    const WorkerState state = w.state == WorkerState::kReady ? WorkerState::kRegistered : w.state;
    out.workers.push_back({w.rank, w.name, w.host, state, w.incarnation, w.clock, w.base, w.granted,
                           w.pushed, w.late, w.own_pushes, w.last_push_at, w.previous_push_at,
                           w.data, w.dismissal});
    WorkerSnapshot& stored = out.workers.back();
    stored.entered = w.entered;
    if (w.leased && !w.phase.empty()) {
      stored.leased_phase = w.phase;
      stored.phase_us = w.phase_at;
      stored.phase_lease_us = w.phase_lease_us;
    }
  });
  out.policy = policy_->name();
  out.policy_state = policy_->save();
  out.stop_reason = stop_reason_;
  return out;
}

bool Job::restore_snapshot(const JobSnapshot& snapshot, std::string& error) {
  if (const std::string wrong = wrong_time({snapshot.time_us}); !wrong.empty()) {
    error = "its snapshot: " + wrong;
    return false;
  }
  replaying_ = true;
  created_record_ = snapshot.created;
  sequence_ = snapshot_sequence_ = snapshot.sequence;
  engine_.now_ = std::max(engine_.now_, snapshot.time_us);
  state_ = snapshot.state;
  epoch_ = snapshot.epoch;
  next_incarnation_ = snapshot.next_incarnation;
  pushes_ = snapshot.pushes;
  stop_reason_ = snapshot.stop_reason;
  for (const WorkerSnapshot& stored : snapshot.workers) {
    if (stored.rank >= limits::kWorkersPerJobMax) {
      error = "its snapshot has an impossible rank " + std::to_string(stored.rank);
      return false;
    }
    if (find(stored.rank) != nullptr) {
      error = "its snapshot has rank " + std::to_string(stored.rank) + " twice";
      return false;
    }
    std::string wrong = wrong_time(
        {stored.last_push_us, stored.previous_push_us, stored.phase_us, stored.phase_lease_us});
    if (wrong.empty()) {
      wrong = wrong_clock(
          {stored.clock, stored.base, stored.granted, stored.pushed, stored.late, stored.entered});
    }
    if (!wrong.empty()) {
      error = "its snapshot of worker " + std::to_string(stored.rank) + ": " + wrong;
      return false;
    }
    Worker& w = make_worker(stored.rank);
    w.name = stored.name;
    w.host = stored.host;
    // As snapshot() writes it: a worker is ready only once it has asked.
    w.state = stored.state == WorkerState::kReady ? WorkerState::kRegistered : stored.state;
    w.incarnation = stored.incarnation;
    w.clock = stored.clock;
    w.base = stored.base;
    w.granted = stored.granted;
    w.pushed = stored.pushed;
    w.late = stored.late;
    w.own_pushes = stored.own_pushes;
    w.last_push_at = stored.last_push_us;
    w.previous_push_at = stored.previous_push_us;
    w.data = stored.data;
    w.dismissal = stored.dismissal;
    w.entered = stored.entered;
    if (decentralized()) begin_life(w, stored.entered);
    if (!stored.leased_phase.empty()) {
      w.phase = stored.leased_phase;
      w.phase_at = stored.phase_us;
      w.phase_lease_us = stored.phase_lease_us;
      w.leased = true;
    }
    // Of several by one name, the latest.
    const auto [named, fresh] = by_name_.try_emplace({w.name, w.host}, w.rank);
    if (!fresh && find(named->second)->incarnation < w.incarnation) named->second = w.rank;
    if (state_ != JobState::kRunning) idle_clocks_.add(w.clock);
    if (is_member(w.state)) {
      ++members_;
      if (state_ == JobState::kWaiting) missing_.join(w.rank);
    } else {
      vacant_.insert(w.rank);
    }
    if (w.active()) {
      active_.push_back(w.rank);
      count_clock(w);
      if (w.state == WorkerState::kDraining) ++draining_;
    }
  }
  const bool loaded = policy_->load(snapshot.policy_state);
  if (!loaded) error = "its snapshot's policy state does not fit policy '" + policy_->name() + "'";
  replaying_ = false;
  return loaded;
}

void Job::finish_restore() {
  if (state_ == JobState::kStopped) return;
  // The policy may want something done, which only an event can: the next one.
  engine_.timers_.set({id_, kNoRank, kTimerRestored}, now());
  each_worker([&](Worker& worker) {
    if (!is_member(worker.state)) return;
    worker.connection = 0;
    worker.disconnected_at = now();
    worker.active_at = now();
    worker.longest_us = 0;
    worker.liveness_at = kNever;
    engine_.timers_.cancel({id_, worker.rank, kTimerLiveness});
    arm_liveness(worker);
  });
  members_changed();  // all of them are cut off
}

}  // namespace syncd
