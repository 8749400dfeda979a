// Model: the policies' rules from their definitions, and what records say. Slow on purpose:
// nothing here is kept up to date, everything is counted anew. One thread.
#include <algorithm>

#include "model.h"
#include "tests/support/effects_text.h"

namespace syncd::test {

// ---- rules

std::vector<const ModelWorker*> Model::active() const {
  std::vector<const ModelWorker*> out;
  for (const auto& [rank, worker] : workers_) {
    if (worker.active()) out.push_back(&worker);
  }
  return out;
}

Clock Model::q_min() const {
  const auto all = active();
  require(!all.empty(), "nobody is active");
  Clock lowest = all.front()->q();
  for (const ModelWorker* worker : all) lowest = std::min(lowest, worker->q());
  return lowest;
}

Clock Model::q_max() const {
  const auto all = active();
  require(!all.empty(), "nobody is active");
  Clock highest = all.front()->q();
  for (const ModelWorker* worker : all) highest = std::max(highest, worker->q());
  return highest;
}

// B is the largest S such that at least max(1, m - b) active workers have q_i >= S*k; it never goes
// down.
void Model::raise_superstep() {
  const auto all = active();
  if (rules_.kind != Rules::Kind::kBsp || all.empty()) return;
  const auto m = static_cast<std::int64_t>(all.size());
  const std::int64_t enough = std::max<std::int64_t>(1, m - rules_.backup);
  for (std::int64_t s = superstep_ + 1; s <= q_max() / rules_.every; ++s) {
    const auto reached = std::count_if(all.begin(), all.end(), [&](const ModelWorker* worker) {
      return worker->q() >= s * rules_.every;
    });
    if (reached < enough) break;
    superstep_ = s;
  }
}

bool Model::allows(const ModelWorker& worker) const {
  switch (rules_.kind) {
    case Rules::Kind::kAsp:
      return true;
    case Rules::Kind::kSsp:
      return worker.q() - q_min() <= rules_.staleness;
    case Rules::Kind::kBsp:
      return worker.q() / rules_.every <= superstep_;
  }
  return false;
}

// Whose pushes the rule needs before this worker may go on; before the start, whose begin.
std::set<Rank> Model::waited_for(const ModelWorker& worker) const {
  std::set<Rank> out;
  if (state_ == JobState::kWaiting) {
    auto missing = static_cast<std::size_t>(wanted());
    for (const auto& [rank, other] : workers_) missing -= other.state == WorkerState::kReady;
    for (const auto& [rank, other] : workers_) {
      if (out.size() < missing && other.state == WorkerState::kRegistered) out.insert(rank);
    }
    for (Rank rank = 0; out.size() < missing; ++rank) {
      const ModelWorker* other = find(rank);
      if (other == nullptr || !is_member(other->state)) out.insert(rank);
    }
    return out;
  }
  if (worker.waiting->allowed_at) return out;  // naive_wait holds it back, nobody else does
  for (const ModelWorker* other : active()) {
    const bool behind = rules_.kind == Rules::Kind::kSsp
                            ? worker.q() - other->q() > rules_.staleness
                            : other->q() < worker.q() / rules_.every * rules_.every;
    if (behind && rules_.kind != Rules::Kind::kAsp) out.insert(other->rank);
  }
  return out;
}

// Whether a returning worker's relative clock q is still within the policy's bound.
bool Model::keeps_clock(Clock q) const {
  switch (rules_.kind) {
    case Rules::Kind::kAsp:
      return true;
    case Rules::Kind::kSsp:
      // A worker that waits at the bound has done one iteration more than the bound.
      return active().empty() ||
             (q_max() - q <= rules_.staleness && q - q_min() <= rules_.staleness + 1);
    case Rules::Kind::kBsp:
      return superstep_ * rules_.every <= q && q <= (superstep_ + 1) * rules_.every;
  }
  return false;
}

// Clock and base of a worker that enters a running job. A returner keeps its own within the bound;
// everybody else enters at the minimum clock (nobody active: the highest ever) with q_i = q_min, or
// with bsp B*k; and no clock goes down.
std::pair<Clock, Clock> Model::entry(Clock own, Clock base, bool returner) const {
  if (returner && keeps_clock(own - base)) return {own, base};
  const auto all = active();
  Clock clock = 0, q = 0;
  if (all.empty()) {
    for (const auto& [rank, worker] : workers_) {
      clock = std::max(clock, worker.clock);
      q = std::max(q, worker.q());
    }
  } else {
    clock = all.front()->clock;
    for (const ModelWorker* worker : all) clock = std::min(clock, worker->clock);
    q = q_min();
  }
  if (rules_.kind == Rules::Kind::kBsp) q = superstep_ * rules_.every;
  clock = std::max(clock, own);
  return {clock, clock - q};
}

// What must be so between events.
void Model::check_state(Micros next_deadline) const {
  std::size_t ready = 0;
  for (const auto& [rank, worker] : workers_) ready += worker.state == WorkerState::kReady;
  if (state_ != JobState::kWaiting || ready == 0) return;
  require(static_cast<std::int64_t>(ready) < wanted(),
          "the job must start: enough workers are ready");
  if (spec_.min_workers == 0) return;
  require(now_ < *start_at_ || ready < spec_.min_workers, "the job must start: it is time");
  require(now_ >= *start_at_ || next_deadline <= *start_at_, "the start's timer is not set");
}

// ---- records

void Model::check_record(const Record& record) {
  const bool raises = record.kind == RecordKind::kJobReassembling;
  require(record.sequence == sequence_ + 1 && record.job == 1 &&
              record.epoch == epoch_ + (raises ? 1 : 0),
          "a record out of order: " + to_text(record, now_));
  require(state_ != JobState::kStopped, "a record of a stopped job: " + to_text(record, now_));
  switch (record.kind) {
    case RecordKind::kJobCreated:
      return require(sequence_ == 0, "a job is created twice");
    case RecordKind::kJobStarted:
      return check_started(record);
    case RecordKind::kJobReassembling:
      return require(state_ == JobState::kRunning && active().empty(),
                     "a job that can go on waits for another start");
    case RecordKind::kWorkerJoined:
      return check_joined(record);
    case RecordKind::kWorkerLost:
      return check_lost(record);
    case RecordKind::kPush: {
      const bool fresh =
          record.late || counted_.insert({static_cast<Rank>(record.rank), record.iteration}).second;
      return require(fresh, "a push is counted twice: " + to_text(record, now_));
    }
    default:
      return;
  }
}

// Another start than the first: the job goes on exactly if a worker has come back to it.
void Model::check_beginning(const Record& record) const {
  std::optional<Clock> returned, others;
  for (const ModelWorker* member : members()) {
    std::optional<Clock>& lowest = member->returned ? returned : others;
    lowest = std::min(lowest.value_or(member->clock), member->clock);
  }
  require(record.resumed == returned.has_value(), "a group begins anew, or not, wrongly");
  require(record.clock == returned.value_or(others.value_or(0)), "a group begins elsewhere");
}

void Model::check_started(const Record& record) const {
  if (reassembling_) {
    check_beginning(record);
  } else {
    require(!record.resumed && record.clock == 0, "a first start that says otherwise");
  }
  if (joining_ != nullptr) {  // by what one says that comes back after the start was lost
    require(joining_->incarnation != 0 && joining_->granted >= 0, "a join starts the job");
    return require(record.values.empty(), "a start that is made up for leaves somebody out");
  }
  std::size_t ready = 0;
  for (const auto& [rank, worker] : workers_) {
    ready += worker.state == WorkerState::kReady;
    const bool left_out =
        std::find(record.values.begin(), record.values.end(), rank) != record.values.end();
    require(left_out == (worker.state == WorkerState::kRegistered),
            "the start leaves the wrong workers out");
  }
  const bool in_time = spec_.min_workers > 0 && start_at_ && now_ >= *start_at_;
  require(static_cast<std::int64_t>(ready) >= wanted() || (in_time && ready >= spec_.min_workers),
          "the job starts too early");
}

void Model::check_lost(const Record& record) const {
  const ModelWorker* worker = find(static_cast<Rank>(record.rank));
  require(worker != nullptr && is_member(worker->state), "one that is no member is lost");
  require(!record.reason.empty(), "lost for no reason");
  if (restarting_) return require(worker->connection == 0, "lost although it is connected");
  if (kicked_) return require(kicked_ == worker->rank, "another one is kicked");
  if (worker->disconnected_at) {
    return require(now_ >= *worker->disconnected_at + spec_.worker_grace_us,
                   "a worker is lost within its grace");
  }
  require(worker->active() && !worker->waiting && spec_.evict_after_us > 0 &&
              now_ >= worker->late_from() + spec_.evict_after_us,
          "a worker is lost that is not overdue");
}

void Model::check_joined(const Record& record) const {
  const ModelWorker* known = find(static_cast<Rank>(record.rank));
  const Clock known_clock = known != nullptr ? known->clock : 0;
  const Clock known_base = known != nullptr ? known->base : 0;
  Clock claimed = 0;
  if (joining_ != nullptr && joining_->incarnation != 0) {
    claimed = std::max(joining_->pushed + 1, joining_->granted);
  }
  const Clock own = std::max(known_clock, claimed);
  const bool same = known != nullptr && known->name == record.name && known->host == record.host;
  const bool active = known != nullptr && known->active();

  if (record.resumed) {
    require(same && is_member(known->state) && record.incarnation == known->incarnation,
            "a place is kept that was none");
  } else {
    require(record.incarnation > highest_incarnation_, "an incarnation is given again");
    require(joining_ != nullptr && record.incarnation > joining_->incarnation,
            "an incarnation is not later than the one that it follows");
    // Its own next process alone may take the place of a worker within its grace.
    require(known == nullptr || !is_member(known->state) || (same && known->connection == 0),
            "a worker's place is given away");
  }
  require(record.data == (joining_ != nullptr ? joining_->data : known->data),
          "another thing is shown to the others: " + to_text(record, now_));
  const bool returns = joining_ != nullptr && joining_->incarnation != 0 && joining_->granted >= 0;
  const bool anew = reassembling_ && !record.resumed;
  require(record.returned == (anew && returns),
          "it has come back, or not: " + to_text(record, now_));
  require(record.expected_workers == (anew && !returns && members().empty() ? wanted() : 0),
          "another size of the group: " + to_text(record, now_));
  std::pair<Clock, Clock> expected;
  if (anew && !returns) {
    expected = {0, 0};
  } else if (state_ == JobState::kWaiting) {
    expected = {own, 0};
  } else if (active) {
    expected = {own, known_base};
  } else {
    // A member that was not ready at the start is no returner: it enters with its first begin.
    const bool returner =
        joining_ != nullptr && (same || (joining_->incarnation != 0 && joining_->granted >= 0));
    expected = entry(own, same ? known_base : 0, returner);
  }
  // A push that was answered LATE did not count, whatever the worker makes of it.
  Iteration pushed = record.resumed ? known->pushed : kNoIteration;
  if (joining_ != nullptr && joining_->incarnation != 0 &&
      !(same && joining_->pushed <= std::max(known->pushed, known->late))) {
    pushed = joining_->pushed;
  }
  require(record.iteration == pushed || (record.resumed && joining_ == nullptr),
          "another iteration counts as pushed: " + to_text(record, now_));
  require(std::pair(record.clock, record.base) == expected,
          "entered wrongly, expected clock=" + std::to_string(expected.first) +
              " base=" + std::to_string(expected.second) + ": " + to_text(record, now_));
}

void Model::apply(const Record& record) {
  sequence_ = record.sequence;
  switch (record.kind) {
    case RecordKind::kJobStarted:
      apply_started(record);
      break;
    case RecordKind::kJobReassembling:
      apply_reassembling(record);
      break;
    case RecordKind::kJobStopped:
      state_ = JobState::kStopped;
      break;
    case RecordKind::kWorkerJoined:
      apply_joined(record);
      break;
    case RecordKind::kWorkerLeft:
    case RecordKind::kWorkerLost: {
      ModelWorker& worker = at(static_cast<Rank>(record.rank));
      require(!worker.waiting, "a worker that waits goes without an answer");
      left_ += reassembling_ && worker.returned && record.kind == RecordKind::kWorkerLeft;
      worker.state =
          record.kind == RecordKind::kWorkerLeft ? WorkerState::kLeft : WorkerState::kLost;
      worker.connection = 0;
      worker.disconnected_at.reset();
      const bool kicked = record.reason.starts_with("kicked by an operator");
      const bool drained = record.reason.starts_with("drained by an operator");
      if (kicked) worker.dismissed = Status::kFenced;
      if (drained) worker.dismissed = Status::kStopped;
      // One that drained and was lost on the way stays dismissed.
      if (record.kind == RecordKind::kWorkerLeft && !drained) worker.dismissed.reset();
      break;
    }
    case RecordKind::kWorkerDraining: {
      ModelWorker& worker = at(static_cast<Rank>(record.rank));
      worker.state = WorkerState::kDraining;
      worker.dismissed = Status::kStopped;
      break;
    }
    case RecordKind::kWorkerLeased: {
      ModelWorker& worker = at(static_cast<Rank>(record.rank));
      worker.phase_until = record.time_us + record.span_us;
      worker.leased = true;
      worker.warned = false;
      break;
    }
    case RecordKind::kPush: {
      ModelWorker& worker = at(static_cast<Rank>(record.rank));
      require(record.clock >= worker.clock, "a clock goes down");  // I1
      worker.clock = worker.recorded_clock = record.clock;
      worker.granted = std::max(worker.granted, record.iteration);
      worker.progress_at = record.time_us;
      worker.phase_until.reset();
      worker.leased = false;
      worker.warned = false;
      worker.tells = false;
      if (record.late) {
        worker.late = record.iteration;
      } else {
        worker.pushed = record.iteration;
        ++worker.own_pushes;
        ++pushes_;
      }
      break;
    }
    default:
      break;
  }
  raise_superstep();
}

// So many that an earlier group had, and that are not wanted again, have left with their work done.
std::int64_t Model::wanted() const {
  return reassembling_ ? std::max<std::int64_t>(1, expected_ - left_) : expected_;
}

void Model::begin_anew(ModelWorker& worker, Clock clock) {
  worker.clock = worker.recorded_clock = clock;
  worker.base = 0;
  worker.granted = worker.pushed = worker.late = kNoIteration;
  worker.before_jump = worker.after_jump = kNoIteration;
  worker.own_pushes = 0;
  worker.last_grant.reset();
}

void Model::apply_reassembling(const Record& record) {
  epoch_ = record.epoch;
  state_ = JobState::kWaiting;
  reassembling_ = true;
  left_ = 0;
  superstep_ = 0;
  start_at_.reset();
  for (auto& [rank, worker] : workers_) {
    left_ += worker.state == WorkerState::kLeft && std::max(worker.pushed, worker.late) >= 0;
    if (is_member(worker.state) && !worker.returned) begin_anew(worker, 0);
  }
}

void Model::apply_started(const Record& record) {
  const bool again = reassembling_;
  if (again && !record.resumed) {
    expected_ = wanted();
    group_epoch_ = epoch_;
    counted_.clear();
  }
  state_ = JobState::kRunning;
  reassembling_ = false;
  start_at_.reset();
  for (auto& [rank, worker] : workers_) {
    const bool left_out =
        std::find(record.values.begin(), record.values.end(), rank) != record.values.end();
    const bool member = is_member(worker.state);
    if (again) {
      if (!record.resumed) begin_anew(worker, record.clock);
      if (record.resumed && member && !worker.returned) {
        worker.clock = worker.recorded_clock = std::max(worker.clock, record.clock);
      }
      worker.base = worker.clock;
      if (member) worker.tells = record.resumed || record.clock > 0;
    }
    if (!member || left_out) continue;
    worker.returned = false;
    worker.state = WorkerState::kRunning;
    worker.progress_at = record.time_us;
  }
}

void Model::apply_joined(const Record& record) {
  const Rank rank = static_cast<Rank>(record.rank);
  if (record.expected_workers != 0) {
    expected_ = record.expected_workers;
    left_ = 0;
    for (auto& [other, worker] : workers_) {
      if (worker.state == WorkerState::kLeft) begin_anew(worker, record.clock);
    }
  }
  ModelWorker& worker = workers_[rank];
  const bool fresh = worker.name.empty();
  worker.rank = rank;
  if (reassembling_ && !record.returned && !record.resumed) {
    begin_anew(worker, record.clock);
    std::erase_if(counted_, [&](const auto& push) { return push.first == rank; });
  }
  require(record.clock >= worker.clock, "a clock goes down");  // I1
  if (!record.resumed) worker.returned = record.returned;
  if (state_ == JobState::kRunning) worker.returned = false;
  const bool member = !fresh && is_member(worker.state);
  if (!fresh && (worker.name != record.name || worker.host != record.host)) {
    worker.granted = worker.pushed = worker.late = kNoIteration;
    worker.before_jump = worker.after_jump = kNoIteration;
    worker.own_pushes = 0;
  }
  const bool drains =
      worker.incarnation == record.incarnation && worker.state == WorkerState::kDraining;
  if (worker.incarnation != record.incarnation) {
    worker.dismissed.reset();
    worker.leased = false;
    worker.last_grant.reset();
    worker.warned = false;
    worker.granted = std::min(worker.granted, worker.pushed);
  }
  worker.name = record.name;
  worker.host = record.host;
  worker.data = record.data;
  worker.incarnation = record.incarnation;
  highest_incarnation_ = std::max(highest_incarnation_, record.incarnation);
  worker.pushed = std::max(worker.pushed, record.iteration);
  worker.granted = std::max(worker.granted, worker.pushed);
  worker.clock = worker.recorded_clock = record.clock;
  worker.base = record.base;
  if (state_ == JobState::kRunning) {
    if (!worker.active()) worker.progress_at = record.time_us;
    worker.state = drains ? WorkerState::kDraining : WorkerState::kRunning;
  } else if (!member) {
    worker.state = WorkerState::kRegistered;
  }
}

// ---- the daemon's death

void Model::restart(std::span<const Record> records, const JobSnapshot* snapshot, Micros now) {
  *this = Model(rules_, spec_);
  for (const Record& record : records) {
    if (record.kind == RecordKind::kPush && !record.late) {
      counted_.insert({static_cast<Rank>(record.rank), record.iteration});
    }
    apply(record);
    if (snapshot == nullptr || snapshot->sequence != record.sequence) continue;
    check_rebuilt(*snapshot);
    // What no record tells: grants, and the jumps that came with them.
    for (const WorkerSnapshot& stored : snapshot->workers) {
      at(stored.rank).granted = stored.granted;
      at(stored.rank).clock = stored.clock;
      at(stored.rank).tells = false;
      // Nor does one tell of the begin that has ended a lease.
      at(stored.rank).leased = !stored.leased_phase.empty();
      at(stored.rank).phase_until.reset();
      if (at(stored.rank).leased) {
        at(stored.rank).phase_until = stored.phase_us + stored.phase_lease_us;
      }
    }
  }
  for (auto& [rank, worker] : workers_) {
    if (!is_member(worker.state) || state_ == JobState::kStopped) continue;
    worker.disconnected_at = now;
    worker.progress_at = now;
  }
}

void Model::check_snapshot(const JobSnapshot& snapshot) const {
  require(snapshot.sequence == sequence_ && snapshot.state == state_ &&
              snapshot.pushes == pushes_ && snapshot.next_incarnation == highest_incarnation_ + 1 &&
              snapshot.workers.size() == workers_.size(),
          "a snapshot differs from the records: " + to_text(snapshot, now_));
  const std::int64_t created = snapshot.created.expected_workers;
  require(snapshot.epoch == epoch_ && snapshot.reassembling == reassembling_ &&
              snapshot.group_epoch == (group_epoch_ == epoch_ ? 0 : group_epoch_) &&
              snapshot.expected_workers == (expected_ == created ? 0 : expected_) &&
              (!reassembling_ || snapshot.left == left_),
          "a snapshot's group differs from the records: " + to_text(snapshot, now_));
  if (rules_.kind == Rules::Kind::kBsp) {
    require(snapshot.policy_state == std::vector<std::int64_t>{superstep_},
            "another superstep is open: " + to_text(snapshot, now_));
  }
  for (const WorkerSnapshot& stored : snapshot.workers) {
    const ModelWorker* worker = find(stored.rank);
    require(worker != nullptr, "a snapshot has a worker that never joined");
    const WorkerState state =
        worker->state == WorkerState::kReady ? WorkerState::kRegistered : worker->state;
    require(stored.name == worker->name && stored.host == worker->host && stored.state == state &&
                stored.incarnation == worker->incarnation && stored.base == worker->base &&
                stored.pushed == worker->pushed && stored.late == worker->late &&
                stored.own_pushes == worker->own_pushes && stored.data == worker->data &&
                stored.returned == worker->returned,
            "a snapshot differs from the records: " + to_text(snapshot, now_));
  }
}

void Model::check_live(const JobSnapshot& snapshot) const {
  check_snapshot(snapshot);
  for (const WorkerSnapshot& stored : snapshot.workers) {
    const ModelWorker* worker = find(stored.rank);
    require(stored.clock == worker->clock && stored.granted == worker->granted,
            "the engine's state differs: " + to_text(snapshot, now_));
  }
}

void Model::check_rebuilt(const JobSnapshot& snapshot) const {
  check_snapshot(snapshot);
  for (const WorkerSnapshot& stored : snapshot.workers) {
    const ModelWorker* worker = find(stored.rank);
    require(stored.clock >= worker->recorded_clock && stored.granted >= worker->pushed,
            "a rebuilt state differs: " + to_text(snapshot, now_));
    const bool jumps = rules_.kind == Rules::Kind::kBsp && rules_.backup > 0;
    require(stored.clock == worker->recorded_clock || jumps,
            "a rebuilt clock differs: " + to_text(snapshot, now_));
  }
}

}  // namespace syncd::test
