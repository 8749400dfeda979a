// Model: events and answers. The rules themselves are in model_rules.cpp. One thread.
#include "model.h"

#include <algorithm>

#include "tests/support/effects_text.h"

namespace syncd::test {

void require(bool holds, const std::string& text) {
  if (!holds) throw Violation(text);
}

namespace {

std::string text_of(const ModelWorker& worker) {
  return "worker " + std::to_string(worker.rank);
}

std::set<Rank> parse_ranks(const std::string& text) {
  std::set<Rank> ranks;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t used = 0;
    const Rank first = static_cast<Rank>(std::stoul(text.substr(at), &used));
    at += used;
    Rank last = first;
    if (at < text.size() && text[at] == '-') {
      last = static_cast<Rank>(std::stoul(text.substr(++at), &used));
      at += used;
    }
    for (Rank rank = first; rank <= last; ++rank) ranks.insert(rank);
    at += std::min<std::size_t>(2, text.size() - at);
  }
  return ranks;
}

}  // namespace

// ---- one event

void Model::begin_event(Micros now, const Effects& effects) {
  now_ = now;
  effects_ = &effects;
  answered_.clear();
  in_tick_ = false;
  records_taken_ = 0;
  q_min_before_ = active().empty() ? 0 : q_min();
  seen_before_ = seen();
  listener_.reset();
}

void Model::observe(const Event& event, Micros now, const Effects& effects, Micros next_deadline) {
  begin_event(now, effects);
  if (const auto* request = std::get_if<Request>(&event)) {
    const Caller& caller = request->caller;
    if (const auto* join = std::get_if<wire::Join>(&request->body)) on_join(caller, *join);
    if (const auto* begin = std::get_if<wire::Begin>(&request->body)) on_begin(caller, *begin);
    if (const auto* push = std::get_if<wire::Push>(&request->body)) on_push(caller, *push);
    if (const auto* c = std::get_if<wire::CancelBegin>(&request->body)) on_cancel(caller, *c);
    if (const auto* phase = std::get_if<wire::Phase>(&request->body)) on_phase(caller, *phase);
    if (const auto* m = std::get_if<wire::MembersRequest>(&request->body)) on_members(caller, *m);
    if (const auto* leave = std::get_if<wire::Leave>(&request->body)) on_leave(caller, *leave);
    if (const auto* e = std::get_if<wire::Explain>(&request->body)) on_explain(caller, *e);
    if (const auto* m = std::get_if<wire::ManageWorkerRequest>(&request->body)) {
      on_manage(caller, *m);
    }
    if (std::holds_alternative<wire::StopJobRequest>(request->body)) on_stop(caller);
  } else if (const auto* gone = std::get_if<Disconnected>(&event)) {
    on_disconnected(gone->connection);
    expect_records({});
  } else if (const auto* store = std::get_if<StoreState>(&event)) {
    store_writable_ = store->writable;
    expect_records({});
  }
  end_event(next_deadline);
}

void Model::observe_tick(Micros now, const Effects& effects, Micros next_deadline) {
  begin_event(now, effects);
  in_tick_ = true;
  for (const LogLine& line : effects.log) {
    if (line.event != "worker_slow") continue;
    ModelWorker& worker = at(static_cast<Rank>(std::stoul(line.fields.at(1).second)));
    require(worker.active() && !worker.waiting && !worker.warned && spec_.warn_after_us > 0 &&
                now_ >= worker.late_from() + spec_.warn_after_us,
            text_of(worker) + " is called slow and is not");
    worker.warned = true;
  }
  take_records();
  end_event(next_deadline);
}

void Model::observe_declared(Micros now, const Effects& effects) {
  begin_event(now, effects);
  expect_records({RecordKind::kJobCreated});
  take_records();
  end_event(kNever);
}

// What must hold after every event.
void Model::end_event(Micros next_deadline) {
  take_records();
  // It would be granted iterations alone that the others have left it.
  require(state_ != JobState::kRunning || !active().empty(),
          "the job runs without an active worker: it must wait for another start");
  release();
  take_held_grants();
  for (const Reply& reply : effects_->replies) {
    require(answered_.contains(&reply), "an answer that nobody asked for: " + to_text(reply.body));
  }
  for (const auto& [rank, worker] : workers_) {
    if (!worker.waiting || !worker.waiting->allowed_at) continue;
    require(next_deadline <= *worker.waiting->allowed_at + *rules_.delay_us,
            text_of(worker) + " is held back with no timer to let it go");
  }
  check_notices();
  check_state(next_deadline);
  check_nobody_overdue(next_deadline);
  effects_ = nullptr;
  joining_ = nullptr;
  restarting_ = false;
  kicked_.reset();
}

// Timers never come too late: whoever is overdue now has been dealt with, and for the others the
// engine asks to be woken in time.
void Model::check_nobody_overdue(Micros next_deadline) const {
  if (state_ == JobState::kStopped) return;
  for (const auto& [rank, worker] : workers_) {
    if (!is_member(worker.state)) continue;
    Micros due = kNever;
    if (worker.disconnected_at) {
      due = *worker.disconnected_at + spec_.worker_grace_us;
    } else if (worker.active() && !worker.waiting) {
      if (spec_.evict_after_us > 0) due = worker.late_from() + spec_.evict_after_us;
      if (spec_.warn_after_us > 0 && !worker.warned) {
        due = std::min(due, worker.late_from() + spec_.warn_after_us);
      }
    }
    require(next_deadline <= due, text_of(worker) + " is overdue at " + seconds_text(due) +
                                      " and the next timer is at " + seconds_text(next_deadline));
  }
}

// ---- answers

// The one answer to this caller; more than one, or none, is a violation.
const wire::Body& Model::answer(const Caller& caller, bool after_records) {
  const Reply* found = nullptr;
  for (const Reply& reply : effects_->replies) {
    if (!(reply.to == caller) || answered_.contains(&reply)) continue;
    require(found == nullptr, "a request is answered twice: " + to_text(reply.body));
    found = &reply;
  }
  require(found != nullptr, "a request is not answered");
  // That a job has ended is told once that is on disk; what is refused for want of room may come
  // from the engine, which asks no job.
  const auto* error = std::get_if<wire::Error>(&found->body);
  const bool is_full = error != nullptr && error->status == Status::kStore;
  const bool has_ended = state_ == JobState::kStopped;
  require(found->after_records == (after_records || has_ended) || (has_ended && is_full),
          "an answer waits for its records, or not, wrongly: " + to_text(found->body));
  answered_.insert(found);
  return found->body;
}

// What an operator has done to a worker it hears once that is on disk.
bool Model::tells_of_dismissal(const Caller& caller) const {
  return std::any_of(effects_->replies.begin(), effects_->replies.end(), [&](const Reply& reply) {
    const auto* error = std::get_if<wire::Error>(&reply.body);
    return reply.to == caller && error != nullptr &&
           (error->message.find(") was drained by an operator") != std::string::npos ||
            error->message.find(") was kicked by an operator") != std::string::npos);
  });
}

void Model::expect_error(const Caller& caller, Status status) {
  const wire::Body& body = answer(caller, tells_of_dismissal(caller));
  const auto* error = std::get_if<wire::Error>(&body);
  require(error != nullptr && error->status == status,
          "expected " + std::string(status_name(status)) + ", got " + to_text(body));
  require(!error->message.empty(), "an error without a word");
}

void Model::expect_records(const std::vector<RecordKind>& kinds) const {
  // Who is slow is stragglers_test's affair: a verdict follows the push of its worker.
  std::vector<RecordKind> made;
  std::int64_t pushed = kNoRank;
  for (const Record& record : effects_->records) {
    const bool is_verdict = record.kind == RecordKind::kStragglerDetected ||
                            record.kind == RecordKind::kStragglerRecovered;
    if (record.kind == RecordKind::kPush) pushed = record.rank;
    if (!is_verdict) made.push_back(record.kind);
    require(!is_verdict || pushed == record.rank, "a verdict without a push of its worker");
  }
  const bool same = made == kinds;
  std::string got;
  for (const Record& record : effects_->records) got += " " + std::string(to_string(record.kind));
  require(same, "unexpected records:" + (got.empty() ? " none" : got));
}

// In a tick each record is an event by itself, with its own consequences.
void Model::take_records() {
  while (records_taken_ < effects_->records.size()) {
    const Record& record = effects_->records[records_taken_++];
    require(record.time_us == now_, "a record carries another time than the event");
    check_record(record);
    apply(record);
    release();
  }
}

// Nobody is left waiting whom the rule allows to go on: each is granted now, or, by naive_wait,
// held back from now on.
void Model::release() {
  if (state_ != JobState::kRunning || active().empty()) return;
  // A tick is several events: a timer's grant may have come before or after a loss.
  if (!in_tick_) q_min_before_ = q_min();
  jump_ahead();
  for (auto& [rank, worker] : workers_) {
    if (!worker.waiting || worker.waiting->allowed_at) continue;
    require(worker.active(), text_of(worker) + " waits and is not active");
    if (!allows(worker)) continue;
    if (rules_.delay_us) {
      worker.waiting->allowed_at = now_;
      continue;
    }
    const wire::Body& body = answer(worker.waiting->caller, false);
    const auto* granted = std::get_if<wire::Granted>(&body);
    require(granted != nullptr, "allowed to go on and not granted: " + to_text(body));
    check_grant(worker, *granted);
  }
}

void Model::take_held_grants() {
  for (const Reply& reply : effects_->replies) {
    const auto* granted = std::get_if<wire::Granted>(&reply.body);
    if (granted == nullptr || answered_.contains(&reply)) continue;
    for (auto& [rank, worker] : workers_) {
      if (!worker.waiting || !(worker.waiting->caller == reply.to)) continue;
      require(!reply.after_records, "a grant waits for records");
      answered_.insert(&reply);
      check_grant(worker, *granted);
      break;
    }
  }
}

void Model::check_grant(ModelWorker& worker, const wire::Granted& granted) {
  const std::string who = text_of(worker) + ": " + to_text(wire::Body{granted});
  require(state_ == JobState::kRunning && worker.active(), who + ": granted to one not active");
  const ModelWait wait = *worker.waiting;
  if (rules_.delay_us) {
    require(wait.allowed_at && now_ == *wait.allowed_at + *rules_.delay_us,
            who + ": not delayed as it must be");
  } else {
    require(allows(worker), who + ": the rule does not allow it");
  }
  require(granted.iteration == worker.clock, who + ": another iteration than its clock says");
  require(granted.iteration > worker.granted, who + ": granted iterations must rise");
  const bool skip = granted.iteration != wait.iteration;
  const std::uint64_t others = pushes_ - worker.own_pushes;
  const bool pull = skip || !worker.last_grant || others != worker.others_at_pull;
  const std::uint32_t flags = (skip ? wire::kStepSkip : 0) | (pull ? wire::kStepPull : 0) |
                              (std::exchange(worker.tells, false) ? wire::kStepResumed : 0);
  require(granted.flags == flags, who + ": expected flags " + flags_text(flags));
  // Another's jump in the same event may have come before it or after it.
  require(
      granted.staleness >= worker.q() - q_min() && granted.staleness <= worker.q() - q_min_before_,
      who + ": wrong staleness");
  if (skip) {
    worker.before_jump = wait.iteration - 1;
    worker.after_jump = granted.iteration;
  }
  worker.others_at_pull = others;
  worker.granted_at = now_;
  worker.waited = now_ - wait.since;
  worker.last_grant = granted;
  worker.granted = granted.iteration;
  worker.progress_at = now_;
  worker.warned = false;
  worker.waiting.reset();
}

// Whoever asks to begin and was left behind by the open superstep goes on with that one's first
// iteration. (One that naive_wait holds back has its grant already.)
void Model::jump_ahead() {
  if (rules_.kind != Rules::Kind::kBsp || state_ != JobState::kRunning) return;
  for (auto& [rank, worker] : workers_) {
    if (!worker.waiting || worker.waiting->allowed_at) continue;
    worker.clock = std::max(worker.clock, worker.base + superstep_ * rules_.every);
  }
}

void Model::take_back(ModelWorker& worker, Status status) {
  if (!worker.waiting) return;
  expect_error(worker.waiting->caller, status);
  withdraw(worker, now_);
}

void Model::withdraw(ModelWorker& worker, Micros now) {
  worker.waiting.reset();
  worker.progress_at = now;
  if (worker.state != WorkerState::kReady) return;
  worker.state = WorkerState::kRegistered;
  const bool ready = std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.state == WorkerState::kReady;
  });
  if (!ready) start_at_.reset();
}

// ---- requests

// I6, and requests for a worker that is none: nothing changes, and the answer says why.
std::optional<Status> Model::refusal(const Caller& caller, const wire::WorkerRef& ref) {
  if (ref.job != 1) return Status::kUnknownJob;
  if (find(ref.rank) == nullptr) return Status::kUnknownWorker;
  ModelWorker* worker = &at(ref.rank);
  const bool in_time = ref.epoch == epoch_ || ref.epoch == worker->told_epoch;
  if (in_time && ref.incarnation == worker->incarnation && !is_member(worker->state) &&
      worker->dismissed) {
    return worker->dismissed;
  }
  if (!in_time || ref.incarnation != worker->incarnation || !is_member(worker->state) ||
      caller.connection != worker->connection) {
    return Status::kFenced;
  }
  worker->predecessor = 0;
  return std::nullopt;
}

void Model::on_begin(const Caller& caller, const wire::Begin& begin) {
  if (const auto status = refusal(caller, begin.worker)) {
    expect_records({});
    return expect_error(caller, *status);
  }
  ModelWorker& worker = at(begin.worker.rank);
  const Iteration k = begin.iteration;
  if (state_ == JobState::kStopped) {
    require(answer(caller, false) == wire::Body{wire::Granted{k, wire::kStepStop, 0}},
            "begin of a stopped job is not answered STOP");
    return expect_records({});
  }
  if (worker.computing() && k <= worker.granted && k > std::max(worker.pushed, worker.late)) {
    end_phase(worker);
    const wire::Body& body = answer(caller, false);  // I8
    const wire::Granted unknown{worker.granted, wire::kStepPull, 0};
    const bool told = worker.last_grant && worker.last_grant->iteration == worker.granted;
    require(body == wire::Body{told ? *worker.last_grant : unknown},
            "begin repeated: " + to_text(body));
    return expect_records({});
  }
  if (k <= worker.granted || k > worker.clock) {
    expect_records({});
    return expect_error(caller, Status::kWrongIteration);
  }
  if (worker.state == WorkerState::kDraining) {
    if (!store_writable_) {
      expect_records({});
      return expect_error(caller, Status::kStore);
    }
    require(answer(caller, true) == wire::Body{wire::Granted{k, wire::kStepStop, 0}},
            "one that drains is not told STOP");
    return expect_exit({}, worker.rank);
  }
  end_phase(worker);
  if (worker.waiting) {
    expect_records({});
    expect_error(worker.waiting->caller, Status::kCancelled);
    worker.waiting->caller = caller;
    worker.waiting->iteration = k;
    return;
  }
  worker.waiting = ModelWait{caller, k, now_, {}};
  if (state_ == JobState::kWaiting) {
    if (!start_at_) start_at_ = now_ + spec_.start_timeout_us;
    worker.state = WorkerState::kReady;
    return;
  }
  if (worker.state == WorkerState::kRegistered) expect_records({RecordKind::kWorkerJoined});
}

void Model::on_push(const Caller& caller, const wire::Push& push) {
  if (const auto status = refusal(caller, push.worker)) {
    expect_records({});
    return expect_error(caller, *status);
  }
  ModelWorker& worker = at(push.worker.rank);
  const Iteration k = push.iteration;
  const bool known_late = k >= 0 && k == worker.late;
  if (k > worker.before_jump && k < worker.after_jump && !known_late) {
    expect_records({});
    return expect_error(caller, Status::kWrongIteration);
  }
  if (k >= 0 && (k <= worker.pushed || known_late)) {
    const wire::Body& body = answer(caller, true);
    require(body == wire::Body{wire::Pushed{k, known_late, true}},
            "a repeated push: " + to_text(body));
    return expect_records({});
  }
  std::optional<Status> status;
  if (state_ == JobState::kStopped) {
    status = Status::kStopped;
  } else if (worker.granted == kNoIteration) {
    status = Status::kState;
  } else if (k != worker.granted) {
    status = Status::kWrongIteration;
  } else if (!store_writable_) {
    status = Status::kStore;
  }
  if (status) {
    expect_records({});
    return expect_error(caller, *status);
  }
  const Clock open = worker.base + superstep_ * rules_.every;  // of the open superstep
  const bool behind = rules_.kind == Rules::Kind::kBsp && rules_.backup > 0 && k < open;
  const bool late = k < worker.clock || behind;
  const Clock clock = late ? std::max(worker.clock, behind ? open : 0) : k + 1;
  if (worker.state == WorkerState::kDraining) {
    expect_exit({RecordKind::kPush}, worker.rank);
  } else {
    expect_records({RecordKind::kPush});
  }
  if (late) {
    worker.before_jump = k;
    worker.after_jump = clock;
  }
  const Record& record = effects_->records[0];
  require(record.rank == worker.rank && record.iteration == k && record.late == late &&
              record.clock == clock && record.incarnation == worker.incarnation,
          "a wrong push record: " + to_text(record, now_));
  const bool told = worker.last_grant && worker.last_grant->iteration == k;
  require(record.span_us == (told ? now_ - *worker.granted_at : -1) &&
              record.waited_us == (told ? worker.waited : 0) &&
              record.staleness == (told ? worker.last_grant->staleness : 0),
          "a push record with another grant's figures: " + to_text(record, now_));
  require(answer(caller, true) == wire::Body{wire::Pushed{k, late, false}},
          "a push answered wrongly");
}

void Model::on_cancel(const Caller& caller, const wire::CancelBegin& cancel) {
  expect_records({});
  if (const auto status = refusal(caller, cancel.worker)) return expect_error(caller, *status);
  ModelWorker& worker = at(cancel.worker.rank);
  if (worker.waiting && worker.waiting->iteration == cancel.iteration) {
    take_back(worker, Status::kCancelled);
  }
  require(answer(caller, false) == wire::Body{wire::Ok{}}, "a cancel is not answered ok");
}

// A phase ends with the next begin or push, and its end is a sign of life.
void Model::end_phase(ModelWorker& worker) {
  if (worker.phase_until) worker.progress_at = now_;
  worker.phase_until.reset();
  worker.leased = false;
}

void Model::on_phase(const Caller& caller, const wire::Phase& phase) {
  expect_records({});
  if (const auto status = refusal(caller, phase.worker)) return expect_error(caller, *status);
  require(answer(caller, false) == wire::Body{wire::Ok{}}, "a phase is not answered ok");
  if (state_ == JobState::kStopped) return;
  ModelWorker& worker = at(phase.worker.rank);
  worker.progress_at = now_;
  worker.phase_until.reset();
  worker.leased = false;
  if (phase.name.empty()) return;
  worker.phase_until = now_ + phase.lease_us;
  worker.warned = false;
}

// ---- who is there

Model::Seen Model::seen() const {
  Seen out;
  for (const auto& [rank, worker] : workers_) {
    wire::MemberState state = wire::MemberState::kActive;
    if (worker.disconnected_at) state = wire::MemberState::kDisconnected;
    if (worker.state == WorkerState::kLeft) state = wire::MemberState::kLeft;
    if (worker.state == WorkerState::kLost) state = wire::MemberState::kLost;
    // A clock is no part of the membership.
    out[rank] = {{rank, state, 0, worker.name, worker.host, worker.data}, worker.incarnation};
  }
  return out;
}

// A version is a new one exactly if something has changed since the one before.
void Model::take_version(std::uint64_t version) {
  require(changed_since_ ? version > members_version_ : version == members_version_,
          "version " + std::to_string(version) + " of the membership after " +
              std::to_string(members_version_));
  members_version_ = version;
  changed_since_ = false;
}

// Every change is told at once to all that listen and have not been told of another one since they
// asked; and nothing else is.
void Model::check_notices() {
  const bool changed = seen() != seen_before_;
  changed_since_ = changed_since_ || changed;
  std::set<Rank> told;
  for (const Notification& notification : effects_->notifications) {
    const auto* notice = std::get_if<wire::MembersNotice>(&notification.body);
    if (notice == nullptr) continue;
    const Rank rank = notice->worker.rank;
    require(changed && untold_.contains(rank) && told.insert(rank).second,
            "a notice of the membership that nobody needs: " + to_text(notification.body));
    require(notice->version > members_version_, "a notice of an old membership");
    require(notice->worker.incarnation == seen_before_.at(rank).second, "of another life");
  }
  if (changed) {
    for (const Rank rank : untold_) {
      require(told.contains(rank) || at(rank).connection == 0,
              text_of(at(rank)) + " is not told that the membership has changed");
    }
    untold_.clear();
  }
  if (listener_) untold_.insert(*listener_);
}

void Model::on_members(const Caller& caller, const wire::MembersRequest& request) {
  expect_records({});
  if (const auto status = refusal(caller, request.worker)) return expect_error(caller, *status);
  const wire::Body& body = answer(caller, false);
  const auto* reply = std::get_if<wire::MembersReply>(&body);
  require(reply != nullptr && reply->next_rank == -1, "no list of so few members");
  std::vector<wire::MemberStatus> expected;
  for (const auto& [rank, seen] : seen_before_) {
    if (rank < request.first_rank) continue;
    expected.push_back(seen.first);
    expected.back().clock = at(rank).clock;
  }
  require(reply->members == expected, "a wrong list of members: " + to_text(body));
  take_version(reply->version);
  if (request.first_rank == 0 && at(request.worker.rank).listens) {
    listener_ = request.worker.rank;
  }
}

void Model::on_leave(const Caller& caller, const wire::Leave& leave) {
  auto status = refusal(caller, leave.worker);
  if (!status && state_ != JobState::kStopped && !store_writable_) status = Status::kStore;
  if (status) {
    expect_records({});
    return expect_error(caller, *status);
  }
  require(answer(caller, true) == wire::Body{wire::Ok{}}, "a leave is not answered ok");
  if (state_ == JobState::kStopped) return expect_records({});
  take_back(at(leave.worker.rank), Status::kClosed);
  expect_exit({}, leave.worker.rank);
}

// After the records of these kinds the worker has left; the last one to leave ends the job. If only
// workers stay that have not begun, it waits for another start; one that waits for less may start.
void Model::expect_exit(std::vector<RecordKind> kinds, Rank rank) {
  const ModelWorker& leaver = this->at(rank);
  const std::size_t at = kinds.size();
  kinds.push_back(RecordKind::kWorkerLeft);
  const bool runs = state_ == JobState::kRunning;
  const auto ready = std::count_if(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.state == WorkerState::kReady;
  });
  if ((runs || leaver.returned) && members().size() == 1) {
    kinds.push_back(RecordKind::kJobStopped);
  } else if (runs && leaver.active() && active().size() == 1) {
    kinds.push_back(RecordKind::kJobReassembling);
  } else if (leaver.returned && ready > 0 && ready >= std::max<std::int64_t>(1, wanted() - 1)) {
    kinds.push_back(RecordKind::kJobStarted);
  }
  expect_records(kinds);
  require(effects_->records[at].rank == rank, "another worker has left");
}

void Model::on_manage(const Caller& caller, const wire::ManageWorkerRequest& request) {
  std::optional<Status> status;
  const ModelWorker* known = find(static_cast<Rank>(std::stoul(request.worker)));
  if (!store_writable_) {
    status = Status::kStore;
  } else if (state_ == JobState::kStopped) {
    status = Status::kStopped;
  } else if (known == nullptr) {
    status = Status::kUnknownWorker;
  } else if (!is_member(known->state)) {
    status = Status::kState;
  }
  if (status) {
    expect_records({});
    return expect_error(caller, *status);
  }
  require(answer(caller, true) == wire::Body{wire::Ok{}}, "an operator is not answered ok");
  ModelWorker& worker = at(known->rank);
  switch (request.action) {
    case wire::WorkerAction::kKick:
      kicked_ = worker.rank;
      take_back(worker, Status::kFenced);
      if (state_ == JobState::kRunning && worker.active() && active().size() == 1) {
        return expect_records({RecordKind::kWorkerLost, RecordKind::kJobReassembling});
      }
      return expect_records({RecordKind::kWorkerLost});
    case wire::WorkerAction::kLease:
      expect_records({RecordKind::kWorkerLeased});
      return;
    case wire::WorkerAction::kDrain:
      break;
  }
  if (worker.state == WorkerState::kDraining) return expect_records({});
  if (worker.active() && worker.computing()) return expect_records({RecordKind::kWorkerDraining});
  if (worker.waiting) {
    require(answer(worker.waiting->caller, true) ==
                wire::Body{wire::Granted{worker.waiting->iteration, wire::kStepStop, 0}},
            "one that waits and is drained is not told STOP");
    withdraw(worker, now_);
  }
  expect_exit({}, worker.rank);
}

// I7 and I4: whoever waits is told for whom, which is exactly whom the rule's definition names.
void Model::on_explain(const Caller& caller, const wire::Explain& explain) {
  expect_records({});
  if (const auto status = refusal(caller, explain.worker)) return expect_error(caller, *status);
  const ModelWorker& worker = at(explain.worker.rank);
  const wire::Body& body = answer(caller, false);
  const auto* why = std::get_if<Explanation>(&body);
  require(why != nullptr && !why->text.empty() && !why->rule.empty(), "an explanation is empty");
  if (!worker.waiting) {
    return require(why->iteration == kNoIteration && why->waited_for_count == 0,
                   "one that does not wait is said to wait: " + to_text(body));
  }
  require(why->iteration == worker.waiting->iteration &&
              why->waiting_us == now_ - worker.waiting->since,
          "an explanation of another request: " + to_text(body));
  const std::set<Rank> expected = waited_for(worker);
  const std::set<Rank> named = parse_ranks(why->ranks);
  require(named == expected && why->waited_for_count == expected.size(),
          "wrong workers are waited for: " + to_text(body));
  const bool held = worker.waiting->allowed_at.has_value();
  require(held != std::any_of(named.begin(), named.end(),
                              [&](Rank rank) {
                                const ModelWorker* other = find(rank);
                                return other == nullptr || !other->waiting ||
                                       other->waiting->allowed_at;
                              }),
          "only waiting workers are waited for: " + to_text(body));
}

void Model::on_join(const Caller& caller, const wire::Join& join) {
  joining_ = &join;
  const auto all = active();
  restarting_ = join.incarnation == 0 && state_ == JobState::kRunning && !all.empty() &&
                std::all_of(all.begin(), all.end(), [](const ModelWorker* worker) {
                  return worker->connection == 0 && worker->told_epoch != 0;
                });
  // Whether a member has the name or the rank that it asks for, and its latest life.
  bool held = false;
  bool held_by_other = false;
  Incarnation latest = 0;
  bool dismissed = false;  // an operator has sent this very life away
  bool same_life = false;  // it is a member, since an earlier epoch perhaps
  for (const auto& [rank, worker] : workers_) {
    const bool same = worker.name == join.name && worker.host == join.host;
    if (!same && static_cast<std::int64_t>(rank) != join.rank) continue;
    held = held || is_member(worker.state);
    held_by_other = held_by_other || (!same && is_member(worker.state));
    latest = std::max(latest, worker.incarnation);
    same_life = same_life || (same && is_member(worker.state) && join.epoch < epoch_ &&
                              join.incarnation == worker.incarnation);
    dismissed =
        dismissed ||
        (same && worker.dismissed && !is_member(worker.state) && join.incarnation != 0 &&
         (join.incarnation >= worker.incarnation || join.incarnation == worker.predecessor));
  }
  const bool other_epoch =
      join.incarnation != 0 && join.epoch != 0 && !same_life &&
      (join.epoch < group_epoch_ || (join.epoch > epoch_ && !workers_.empty()));
  const bool error = std::any_of(effects_->replies.begin(), effects_->replies.end(), [&](auto& r) {
    return r.to == caller && std::holds_alternative<wire::Error>(r.body);
  });
  if (error) {
    expect_records({});
    const auto& refused = std::get<wire::Error>(answer(caller, tells_of_dismissal(caller)));
    const bool fits = (refused.status == Status::kStore && !store_writable_) ||
                      (refused.status == Status::kStopped && state_ == JobState::kStopped) ||
                      (refused.status == Status::kRankTaken && held) ||
                      (refused.status == Status::kStopped && dismissed) ||
                      (refused.status == Status::kFenced && dismissed) ||
                      (refused.status == Status::kFenced && other_epoch) ||
                      (refused.status == Status::kFenced && join.incarnation < latest) ||
                      (refused.status == Status::kFenced && join.incarnation != 0 && held_by_other);
    return require(fits, "a join is refused without cause: " + refused.message);
  }
  const Reply* reply = nullptr;
  for (const Reply& r : effects_->replies) {
    if (r.to == caller && std::holds_alternative<wire::Joined>(r.body)) reply = &r;
  }
  require(reply != nullptr, "a join is not answered");
  require(!dismissed, "one that an operator has sent away is taken back");
  require(!other_epoch, "one of another group is taken in");
  answered_.insert(reply);
  const auto& joined = std::get<wire::Joined>(reply->body);
  const Rank rank = joined.worker.rank;
  require(reply->after_records == !effects_->records.empty(),
          "Joined waits for its record, or not");
  ModelWorker* known = find(rank) != nullptr ? &at(rank) : nullptr;
  if (joined.resumed) {
    require(known != nullptr && known->name == join.name && known->host == join.host &&
                is_member(known->state) &&
                (known->incarnation == join.incarnation ||
                 (join.incarnation != 0 && known->predecessor == join.incarnation)),
            "one that has no place is told that it kept it");
    take_back(*known, Status::kCancelled);
    const bool news = std::max(join.pushed + 1, join.granted) > known->clock ||
                      join.pushed > std::max(known->pushed, known->late) ||
                      join.data != known->data;
    const bool had_started = state_ == JobState::kWaiting && join.granted >= 0 && !known->returned;
    if (had_started && news) expect_records({RecordKind::kJobStarted, RecordKind::kWorkerJoined});
    if (had_started && !news) expect_records({RecordKind::kJobStarted});
    if (!had_started) {
      require(news == !effects_->records.empty(), "news are recorded, and nothing else");
    }
    if (join.granted > known->granted) known->last_grant.reset();
    known->granted = std::max(known->granted, join.granted);  // I8
  } else {
    require(state_ != JobState::kStopped && store_writable_, "a join that had to be refused");
    require(known == nullptr || join.incarnation == 0 || join.incarnation >= known->incarnation ||
                join.incarnation == known->predecessor,
            "one whose place was given to another is taken back");
    std::vector<RecordKind> kinds;
    if (restarting_) {
      // Its group was started again: the members that are not connected go.
      std::size_t still_active = active().size();
      for (const ModelWorker* member : members()) {
        if (member->connection != 0) continue;
        kinds.push_back(RecordKind::kWorkerLost);
        if (member->active() && --still_active == 0) kinds.push_back(RecordKind::kJobReassembling);
      }
    }
    kinds.push_back(RecordKind::kWorkerJoined);
    expect_records(kinds);
    if (known != nullptr) require(!known->waiting, "a waiting worker is replaced");
  }
  untold_.erase(rank);
  take_records();
  ModelWorker& worker = at(rank);
  worker.listens = (join.notices & wire::kNoticeMembers) != 0;
  if (worker.listens) {
    listener_ = rank;
    require(joined.members_version >= members_version_, "Joined of an old membership");
  } else {
    require(joined.members_version == 0, "a version for one that does not listen");
  }
  if (join.incarnation != 0) worker.granted = std::max(worker.granted, join.granted);
  if (!joined.resumed) worker.predecessor = join.incarnation;
  worker.told_epoch = epoch_;
  worker.connection = caller.connection;
  worker.disconnected_at.reset();
  worker.progress_at = now_;
  // Of an operator's lease its process may know nothing.
  if (!worker.leased) worker.phase_until.reset();
  if (!join.phase.empty()) {
    worker.leased = false;
    worker.phase_until = now_ + join.phase_left_us;
    worker.warned = false;
  }
  const Iteration next = worker.computing() ? worker.granted : worker.clock;
  require(joined.iteration == next && joined.worker.incarnation == worker.incarnation &&
              joined.worker.epoch == epoch_ && joined.world_size == expected_,
          "Joined names a wrong iteration or life: " + to_text(reply->body));
}

void Model::on_stop(const Caller& caller) {
  if (!store_writable_) {
    expect_records({});
    return expect_error(caller, Status::kStore);
  }
  for (auto& [rank, worker] : workers_) {
    if (!worker.waiting) continue;
    require(answer(worker.waiting->caller, true) ==
                wire::Body{wire::Granted{worker.waiting->iteration, wire::kStepStop, 0}},
            "one that waits is not told STOP");
    withdraw(worker, now_);
  }
  if (state_ != JobState::kStopped) expect_records({RecordKind::kJobStopped});
  require(answer(caller, true) == wire::Body{wire::Ok{}}, "stop is not answered ok");
}

void Model::on_disconnected(ConnectionId connection) {
  for (auto& [rank, worker] : workers_) {
    if (connection == 0 || worker.connection != connection) continue;
    worker.connection = 0;
    if (!is_member(worker.state) || state_ == JobState::kStopped) continue;
    worker.disconnected_at = now_;
    if (worker.waiting) withdraw(worker, now_);
  }
}

// ---- views

ModelWorker& Model::at(Rank rank) {
  const auto it = workers_.find(rank);
  require(it != workers_.end(), "there is no worker " + std::to_string(rank));
  return it->second;
}

const ModelWorker* Model::find(Rank rank) const {
  const auto it = workers_.find(rank);
  return it == workers_.end() ? nullptr : &it->second;
}

const ModelWorker* Model::find(const std::string& name) const {
  const ModelWorker* latest = nullptr;
  for (const auto& [rank, worker] : workers_) {
    if (worker.name != name) continue;
    if (latest == nullptr || worker.incarnation > latest->incarnation) latest = &worker;
  }
  return latest;
}

std::vector<const ModelWorker*> Model::members() const {
  std::vector<const ModelWorker*> out;
  for (const auto& [rank, worker] : workers_) {
    if (is_member(worker.state)) out.push_back(&worker);
  }
  return out;
}

std::vector<const ModelWorker*> Model::waiting() const {
  std::vector<const ModelWorker*> out;
  for (const auto& [rank, worker] : workers_) {
    if (worker.waiting) out.push_back(&worker);
  }
  return out;
}

}  // namespace syncd::test
