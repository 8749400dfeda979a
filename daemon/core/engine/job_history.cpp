// Job: recorded facts. commit() makes them, apply() lets them change the state, replay() and the
// snapshot bring them back after a crash. Runs on the engine's thread.
#include <algorithm>

#include "daemon/core/engine/exit_reason.h"
#include "daemon/core/engine/job.h"
#include "daemon/core/engine/limits.h"

namespace syncd {

void Job::record_creation(std::uint64_t round) {
  Record record = recorder_.make(RecordKind::kJobCreated);
  if (loop_.gathers() && round > 0) record.iteration = static_cast<Iteration>(round);
  record.name = spec_.name;
  record.policy = loop_.policy().name();
  record.expected_workers = spec_.expected_workers;
  record.min_workers = spec_.min_workers;
  record.config = config_text(spec_);
  commit(std::move(record));
  loop_.policy().on_created(loop_);
  watch_.start();
  answers_.log(LogLevel::kInfo, "job_created", nullptr,
               {{"id", std::to_string(engine_.job())},
                {"policy", loop_.policy().name()},
                {"expected_workers", std::to_string(spec_.expected_workers)}});
  if (loop_.policy().traits().peer_loop.unsafe) {
    answers_.log(LogLevel::kWarn, "unsafe_policy", nullptr,
                 {{"policy", loop_.policy().name()},
                  {"why", "a baseline for measurements, which loses updates"}});
  }
}

void Job::commit(Record&& record) {
  recorder_.commit(std::move(record), [this](const Record& made) { apply(made); });
}

void Job::commit(RecordKind kind, const Worker& worker, const std::string& reason) {
  Record record = recorder_.make(kind, &worker);
  record.reason = reason;
  commit(std::move(record));
}

// A member as it is, which enters or comes back.
Record Job::joined(const Worker& worker) const {
  Record record = recorder_.make(RecordKind::kWorkerJoined, &worker);
  record.name = worker.name;
  record.host = worker.host;
  record.data = worker.data;
  record.resumed = true;
  return record;
}

// ---- applying them
// ---------------------------------------------------------------------------------------

void Job::apply(const Record& record) {
  switch (record.kind) {
    case RecordKind::kNone:
    case RecordKind::kHang:  // for the history alone
      return;
    case RecordKind::kJobCreated:
      recorder_.apply_created(record);
      if (record.iteration > 0) {
        loop_.policy().number_from(static_cast<std::uint64_t>(record.iteration));
      }
      return group_.apply_created(record);
    case RecordKind::kJobStarted:
      return apply_started(record);
    case RecordKind::kJobStopped:
      return apply_stopped(record);
    case RecordKind::kWorkerJoined:
      return apply_joined(record);
    case RecordKind::kWorkerLeft:
      return apply_exit(record, WorkerState::kLeft);
    case RecordKind::kWorkerLost:
      return apply_exit(record, WorkerState::kLost);
    case RecordKind::kWorkerDraining:
      return apply_draining(record);
    case RecordKind::kWorkerLeased:
      return apply_leased(record);
    case RecordKind::kPush:
      return loop_.apply_push(record);
    case RecordKind::kPolicySwitched:
      return apply_switched(record);
    case RecordKind::kJobReassembling:
      start_at_ = kNever;
      return group_.apply_reassembling(record);
    case RecordKind::kBarrier:
    case RecordKind::kPlan:
    case RecordKind::kPolicyNote:
    case RecordKind::kView:
      return loop_.apply_note(record);
    case RecordKind::kCheckpointAsked:
    case RecordKind::kCheckpointFixed:
    case RecordKind::kCheckpointSaved:
    case RecordKind::kCheckpointComplete:
    case RecordKind::kCheckpointIncomplete:
      return checkpoints_.apply(record);
    case RecordKind::kStragglerDetected:
    case RecordKind::kStragglerRecovered:
      return stragglers_.apply(record);
  }
}

void Job::apply_started(const Record& record) {
  group_.apply_started(record);
  checkpoints_.apply_started(loop_.decentralized() ? record.clock + 1 : record.clock);
  roster_.start(record.values, engine_.now());
  // The policy sees them all at once: one after the other, the first would look like the whole job,
  // and what it has reached (after an empty store, say) like what all have reached.
  for (const Rank rank : roster_.active()) {
    roster_.at(rank).returned = false;
    loop_.policy().on_enter(loop_, rank);
    liveness_.arm(roster_.at(rank));
  }
  loop_.policy().on_start(loop_);
}

void Job::apply_stopped(const Record& record) {
  recorder_.apply_stopped(record);
  engine_.cancel_timers();
  roster_.stop();
  roster_.each([&](Worker& worker) { worker.liveness_at = kNever; });
}

void Job::apply_joined(const Record& record) {
  if (!loop_.gathers()) group_.apply_joined(record);
  const auto rank = static_cast<Rank>(record.rank);
  const bool fresh = roster_.find(rank) == nullptr;
  Worker& worker = fresh ? roster_.add(rank) : roster_.at(rank);
  if (fresh) engine_.count_worker();
  const bool was_member = !fresh && is_member(worker.state);
  const bool new_life = !fresh && worker.incarnation != record.incarnation;
  if (new_life) checkpoints_.apply_exit(rank);
  checkpoints_.apply_lost(false, rank);
  const bool changed = fresh || !was_member || new_life || worker.data != record.data;
  // Nobody may wait for the update of the iteration that it was in, nor may it go on in its view;
  // nor may the next view open before the new process is in the old one's place.
  if (new_life && (loop_.decentralized() || spec_.views) && worker.active()) {
    loop_.hold_views();
    roster_.deactivate(worker);
    loop_.policy().on_exit(loop_, worker.rank);
  }
  if (!fresh && (worker.name != record.name || worker.host != record.host)) {
    worker.own_pushes = 0;
    worker.pushed = worker.late = worker.granted = kNoIteration;
    worker.before_jump = worker.after_jump = kNoIteration;
    worker.last_push_us = worker.previous_push_us = -1;
    roster_.set_exchange(worker, -1);
  }
  if (worker.incarnation != record.incarnation) stragglers_.forget(worker);
  roster_.rename(worker, record.name, record.host);
  if (!fresh && !was_member) roster_.readmit(worker);
  if (roster_.members() == 1) watch_idle();
  if (worker.incarnation != record.incarnation) {
    worker.forget_grant();  // a new process has pulled nothing yet
    worker.view = 0;
    worker.warned = false;
    worker.spans = {};
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
  if (!record.resumed) worker.returned = record.returned;
  if (roster_.running()) worker.returned = false;
  if (changed) members_changed();
  // Pushes of it were lost with the end of a history that was not synced.
  const bool forgotten = record.resumed && record.iteration > worker.answered();
  worker.pushed = std::max(worker.pushed, record.iteration);
  worker.granted = std::max(worker.granted, worker.pushed);
  recorder_.apply_joined(record);
  if (new_life || fresh) {
    loop_.begin_life(worker, record.clock);
  }

  if (forgotten && loop_.decentralized() && worker.state == WorkerState::kRunning) {
    // What it sent meanwhile went to whoever had its neighbours' places then: its edges begin anew.
    roster_.deactivate(worker);
    loop_.policy().on_exit(loop_, worker.rank);
  }
  roster_.set_clock(worker, record.clock, record.base);
  if (worker.active()) {  // back in its own place: nobody was released in between
    loop_.policy().on_return(loop_, worker.rank);
  } else if (roster_.running()) {
    roster_.activate(worker, engine_.now());
    loop_.policy().on_enter(loop_, worker.rank);
    liveness_.arm(worker);
  }
  loop_.release_views();
}

void Job::apply_exit(const Record& record, WorkerState state) {
  Worker& worker = roster_.at(static_cast<Rank>(record.rank));
  if (!is_member(worker.state)) return;
  const bool was_active = worker.active();
  checkpoints_.apply_exit(worker.rank);
  checkpoints_.apply_lost(state == WorkerState::kLost, worker.rank);
  stragglers_.forget(worker);
  roster_.remove(worker, state);
  if (state == WorkerState::kLeft) group_.apply_left(worker);
  if (state == WorkerState::kLeft || record.reason.starts_with(Answers::kKickedReason) ||
      record.reason.starts_with(Answers::kSupersededReason) || says(record.reason, kExitFailed) ||
      says(record.reason, to_string(wire::LeaveKind::kPreempted))) {
    worker.dismissal = record.reason;
  }
  watch_.gone(worker, record.reason);
  worker.disconnected_at = -1;
  connections_.detach(worker.connection);
  engine_.detach(std::exchange(worker.connection, 0), worker.rank);
  liveness_.disarm(worker);
  members_changed();
  if (was_active) {
    loop_.policy().on_gone(loop_, record);
    loop_.try_view();
  }
  if (roster_.members() == 0) watch_idle();
}

void Job::apply_draining(const Record& record) {
  Worker& worker = roster_.at(static_cast<Rank>(record.rank));
  if (!worker.active()) return;
  roster_.set_draining(worker, true);
  worker.dismissal = record.reason;
}

void Job::apply_leased(const Record& record) {
  Worker& worker = roster_.at(static_cast<Rank>(record.rank));
  liveness_.set_phase(worker, record.name, record.span_us);
  worker.leased_phase = worker.phase;
}

void Job::apply_switched(const Record& record) {
  std::string error;
  auto policy = make_policy(record.policy, error);
  if (!policy) return;  // check_record() has refused such a record
  spec_.policy = policy->name();
  policy_set_ = record.reason.empty();
  if (policy->traits().round_max > 0) spec_.expected_workers = policy->traits().round_max;
  loop_.switch_to(std::move(policy));
}

// ---- replay
// -------------------------------------------------------------------------------------------------

// Empty, or what makes a stored record impossible here.
std::string Job::check_record(const Record& record) const {
  if (std::string wrong = recorder_.check(record); !wrong.empty()) return wrong;
  if (!is_live()) return "it comes after the job's end";
  switch (record.kind) {
    case RecordKind::kNone:
      return "it has no kind";
    case RecordKind::kJobCreated:
      return record.sequence == 1 ? "" : "the job was created before";
    case RecordKind::kJobStarted:
      return state() == JobState::kWaiting ? "" : "the job was started before";
    case RecordKind::kJobReassembling:
      if (!roster_.running()) return "the job does not run";
      return roster_.active().empty() ? "" : "workers are active";
    case RecordKind::kWorkerJoined:
      if (record.rank < 0 || record.rank >= limits::kWorkersPerJobMax)
        return "its rank is impossible";
      if (record.expected_workers > limits::kWorkersPerJobMax) return "its group is too large";
      if (Launch launch; !record.config.empty() && !Launch::parse(record.config, launch)) {
        return "its launch is malformed";
      }
      return {};
    case RecordKind::kWorkerLeft:
    case RecordKind::kWorkerLost:
    case RecordKind::kWorkerDraining:
    case RecordKind::kWorkerLeased:
    case RecordKind::kPush:
    case RecordKind::kStragglerDetected:
    case RecordKind::kStragglerRecovered:
      if (record.rank < 0 || roster_.find(static_cast<Rank>(record.rank)) == nullptr) {
        return fmt::format("its worker {} never joined", record.rank);
      }
      if (record.kind == RecordKind::kPush &&
          record.clock < roster_.at(static_cast<Rank>(record.rank)).clock) {
        return fmt::format("it would turn back the clock of worker {}", record.rank);
      }
      return {};
    case RecordKind::kView:
      return loop_.views().check(record);
    case RecordKind::kPolicySwitched: {
      std::string error;
      return make_policy(record.policy, error) ? std::string{} : error;
    }
    case RecordKind::kCheckpointAsked:
    case RecordKind::kCheckpointFixed:
    case RecordKind::kCheckpointSaved:
    case RecordKind::kCheckpointComplete:
    case RecordKind::kCheckpointIncomplete:
      return checkpoints_.check(record);
    default:
      return {};
  }
}

bool Job::replay(const Record& record, std::string& error) {
  error = check_record(record);
  if (!error.empty()) {
    error = fmt::format("job '{}' (#{}), record {} ({}): {}", spec_.name, engine_.job(),
                        record.sequence, to_string(record.kind), error);
    return false;
  }
  recorder_.replay(record, [this](const Record& stored) { apply(stored); });
  return true;
}

JobSnapshot Job::snapshot() const {
  JobSnapshot out;
  recorder_.save(out);
  out.state = state();
  out.pushes = loop_.pushes();
  roster_.each([&](const Worker& w) {
    out.highest_clock = std::max(out.highest_clock, w.clock);
    WorkerSnapshot& stored = out.workers.emplace_back(w);
    // Readiness is the present request's, which does not outlive the daemon.
    if (w.state == WorkerState::kReady) stored.state = WorkerState::kRegistered;
    if (!w.leased()) stored.phase_us = stored.phase_lease_us = 0;
    stored.usual = w.active() ? w.speed.usual() : std::nullopt;
  });
  group_.save(out);
  checkpoints_.save(out);
  stragglers_.save(out);
  out.policy = loop_.policy().name();
  out.policy_state = loop_.policy().save();
  out.policy_text = loop_.policy().save_text();
  out.policy_set = policy_set_;
  loop_.views().save(out);
  return out;
}

bool Job::restore_snapshot(const JobSnapshot& snapshot, std::string& error) {
  error = recorder_.restore(snapshot);
  if (!error.empty()) return false;
  roster_.restore(snapshot.state);
  error = group_.restore(snapshot);
  if (!error.empty()) return false;
  loop_.restore(snapshot.pushes);
  stragglers_.restore(snapshot.noise);
  policy_set_ = snapshot.policy_set;
  for (const WorkerSnapshot& stored : snapshot.workers) {
    error = Recorder::check(stored);
    if (error.empty() && roster_.find(stored.rank) != nullptr) {
      error = "its snapshot has rank " + std::to_string(stored.rank) + " twice";
    }
    if (!error.empty()) return false;
    Worker& worker = roster_.restore(stored);
    engine_.count_worker();
    worker.phase = worker.leased_phase;
    stragglers_.restore(worker);
    if (loop_.decentralized()) loop_.begin_life(worker, worker.entered);
  }
  error = checkpoints_.restore(snapshot);
  if (error.empty()) error = loop_.restore_views(snapshot);
  if (!error.empty()) return false;
  const bool loaded =
      loop_.policy().load(snapshot.policy_state) && loop_.policy().load_text(snapshot.policy_text);
  if (!loaded)
    error = "its snapshot's policy state does not fit policy '" + loop_.policy().name() + "'";
  return loaded;
}

void Job::finish_restore() {
  if (!is_live()) return;
  watch_.start();
  // The policy may want something done, which only an event can: the next one.
  engine_.set_timer(kNoRank, kTimerRestored, engine_.now());
  if (loop_.gathers()) begin_amnesty();
  watch_idle();
  roster_.each([&](Worker& worker) {
    if (!is_member(worker.state)) return;
    worker.connection = 0;
    worker.disconnected_at = engine_.now();
    worker.closed = false;
    worker.grace_us = loop_.gathers()
                          ? exit_grace(worker)
                          : std::max(spec_.worker_grace_us, engine_.options().restart_grace_us);
    worker.active_at = engine_.now();
    worker.longest_us = 0;
    liveness_.disarm(worker);
    liveness_.arm(worker);
  });
  checkpoints_.finish_restore();
  members_changed();  // all of them are cut off
}

}  // namespace syncd
