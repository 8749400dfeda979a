// Job: who takes part. Joining, starting, leaving, being lost, and what an operator does about a
// worker. Runs on the engine's thread.
#include "daemon/core/engine/job.h"

#include <algorithm>
#include <tuple>

#include "daemon/core/engine/exit_reason.h"
#include "daemon/core/engine/limits.h"
#include "proto/base/number.h"
#include "proto/base/plain_text.h"

namespace syncd {

Job::Job(const EngineServices& engine, JobSpec spec, std::unique_ptr<Policy> policy, Epoch epoch)
    : engine_(engine),
      spec_(std::move(spec)),
      roster_(spec_.expected_workers),
      recorder_(engine, epoch),
      answers_(engine, spec_, roster_, recorder_),
      liveness_(engine, spec_, roster_, answers_, *this),
      checkpoints_(engine, spec_, roster_, recorder_, answers_, counters_),
      stragglers_(engine, roster_, recorder_, answers_, counters_),
      loop_(engine, spec_, roster_, recorder_, answers_, liveness_, stragglers_, *this,
            checkpoints_, counters_, std::move(policy)),
      group_(engine, spec_, roster_, recorder_, loop_, answers_),
      admission_(engine, spec_, roster_, recorder_, liveness_, loop_, group_, answers_),
      watch_(engine, spec_, roster_, recorder_, answers_, liveness_, loop_, counters_),
      inspections_(engine, spec_, roster_, answers_, liveness_, loop_) {}

// ---- joining
// ------------------------------------------------------------------------------------------

void Job::join(const Caller& caller, const wire::Join& join, bool fixed) {
  if (answers_.refuses_as_ended(caller)) return;
  if (loop_.gathers()) return join_gather(caller, join, fixed);
  join_with(caller, join, join.granted);
}

// `taken_over`: the job goes over to this policy before the joiner enters. Null: it keeps its own.
void Job::join_with(const Caller& caller, const wire::Join& join, Iteration seen,
                    const Policy* taken_over) {
  if (group_.refuses_launch(caller, join) || admission_.refuses_epoch(caller, join) ||
      admission_.refuses(caller, join)) {
    return;
  }
  const bool supersedes = group_.superseded_by(join);
  if (supersedes || (!loop_.gathers() && group_.restarted_by(join))) {
    if (answers_.refuses_store(caller)) return;
    end_group(join, supersedes);
  }
  if (group_.refuses_beginning(caller, join)) return;
  const auto rank = admission_.place_for(caller, join);
  if (!rank) return;
  Worker* holder = roster_.find(*rank);
  if (holder != nullptr && resume(caller, join, *holder, seen)) return;
  if (admission_.refuses_one_more(caller, join, holder)) return;
  if (answers_.refuses_store(caller)) return;
  if (taken_over != nullptr) switch_policy(*taken_over, "it is the first joiner's");
  enter_anew(caller, join, *rank);
}

// A worker that reconnects and was never given up keeps its place and its life. True: answered.
bool Job::resume(const Caller& caller, const wire::Join& join, Worker& worker, Iteration seen) {
  if (join.incarnation == 0 || worker.name != join.name || worker.host != join.host) return false;
  const bool lost_answer = join.incarnation == worker.predecessor;
  if (join.incarnation < worker.incarnation && !lost_answer) {
    answers_.refuse(caller, Status::kFenced, "incarnation {} of {} was replaced by incarnation {}",
                    join.incarnation, label(worker), worker.incarnation);
    return true;
  }
  if (!is_member(worker.state) && !worker.dismissal.empty()) {
    answers_.refuse_dismissed(caller, worker);
    return true;
  }
  if (!is_member(worker.state)) return false;
  if (join.incarnation != worker.incarnation && !lost_answer) return false;
  // Invariant I8: the larger of what each side knows. The daemon may have lost a grant, and in fast
  // mode a push, that the worker has seen.
  const Clock own = admission_.own_clock(&worker, join);
  const bool ahead = own > worker.clock || join.pushed > worker.answered();
  const bool news = ahead || join.data != worker.data;
  // It was granted something: the job had started, and the daemon died before that was on disk.
  // A worker that has come back may have been granted it before that.
  const bool had_started =
      state() == JobState::kWaiting && join.granted != kNoIteration && !worker.returned;
  if ((news || had_started) && answers_.refuses_store(caller)) return true;
  loop_.refuse_pending(worker, Status::kCancelled, "the worker reconnected");
  if (had_started) start({});
  ++counters_.reconnects;
  adopt_claims(worker, join);
  // It may know nothing of a phase that an operator set.
  if (!join.phase.empty()) worker.leased_phase.clear();
  if (!worker.leased()) liveness_.set_phase(worker, join.phase, join.phase_left_us);
  members_notice_pending_.erase(worker.rank);
  if (news) {
    Record record = joined(worker);
    record.data = join.data;
    std::tie(record.clock, record.base) = roster_.running() && !worker.active()
                                              ? admission_.entry_clocks(own, worker.base, true)
                                              : std::pair(own, worker.base);
    record.iteration = join.pushed > worker.answered() ? join.pushed : worker.pushed;
    commit(std::move(record));
  }
  const bool was_cut_off = worker.disconnected_at >= 0;
  take_graces(worker, join);
  attach(worker, caller);
  if (was_cut_off) members_changed();
  listen(worker, join.notices);
  if (!news && worker.active()) loop_.policy().on_return(loop_, worker.rank);
  answers_.log(LogLevel::kInfo, "worker_resumed", &worker,
               {{"clock", std::to_string(worker.clock)}});
  reply_joined(caller, worker, true, news || had_started, seen);
  checkpoints_.claimed(worker);
  checkpoints_.settle();
  return true;
}

// Takes over answers that the worker knows of and the daemon does not. When a grant was given, and
// after what wait, is not known any more.
void Job::adopt_claims(Worker& worker, const wire::Join& join) {
  if (join.granted > worker.granted) {
    worker.granted = join.granted;
    worker.forget_grant();
  }
  worker.consumed = std::max(worker.consumed, join.consumed);
  if (join.collected > worker.collected) {
    worker.collected = join.collected;
    worker.updates.clear();
  }
}

void Job::enter_anew(const Caller& caller, const wire::Join& join, Rank rank) {
  if (loop_.gathers() && state() == JobState::kWaiting) start({});
  Worker* known = roster_.find(rank);
  if (known != nullptr) loop_.refuse_pending(*known, Status::kFenced, "the worker joined again");
  const bool was_member = known != nullptr && is_member(known->state);
  const bool same = known != nullptr && known->name == join.name && known->host == join.host;
  const Clock own = admission_.own_clock(known, join);
  auto [clock, base] = std::pair(own, Clock{0});
  if (known != nullptr && known->active() && !spec_.views) {
    base = known->base;
  } else if (roster_.running()) {
    const bool returns = same || (join.incarnation != 0 && join.granted != kNoIteration);
    std::tie(clock, base) = admission_.entry_clocks(own, same ? known->base : Clock{0}, returns);
  }
  Record record = recorder_.make(RecordKind::kWorkerJoined);
  record.rank = rank;
  record.epoch = std::max(recorder_.epoch(), join.epoch);  // refuses_epoch() has looked at it
  // A client may remember a later life than the store does, if its last commits were lost.
  record.incarnation = std::max(recorder_.next_incarnation(), join.incarnation + 1);
  record.name = join.name;
  record.host = join.host;
  record.data = join.data;
  record.clock = clock;
  record.base = base;
  // What was answered LATE did not count, whatever the worker makes of it.
  const bool news = join.incarnation != 0 && (!same || join.pushed > known->answered());
  record.iteration = news ? join.pushed : kNoIteration;
  group_.fill_joined(record, join);
  members_notice_pending_.erase(rank);
  ++counters_.joins;
  commit(std::move(record));

  Worker& worker = roster_.at(rank);
  // An iteration that it was computing when it was given up may still be pushed: judged by its
  // clock.
  if (join.incarnation != 0 && !loop_.decentralized()) adopt_claims(worker, join);
  // The same process may ask again under the life that it remembers, if this answer gets lost.
  worker.predecessor = join.incarnation;
  liveness_.set_phase(worker, join.phase, join.phase_left_us);
  take_graces(worker, join);
  attach(worker, caller);
  listen(worker, join.notices);
  answers_.log(LogLevel::kInfo, was_member ? "worker_replaced" : "worker_joined", &worker,
               {{"incarnation", std::to_string(worker.incarnation)},
                {"clock", std::to_string(worker.clock)},
                {"members", std::to_string(roster_.members())},
                {"expected", std::to_string(spec_.expected_workers)}});
  reply_joined(caller, worker, false, true, kNoIteration);
  checkpoints_.check();
  checkpoints_.settle();
}

void Job::reply_joined(const Caller& caller, Worker& worker, bool resumed, bool after_records,
                       Iteration seen) {
  wire::Joined joined;
  worker.told_epoch = recorder_.epoch();
  joined.worker = answers_.ref(worker);
  // Of a round whose grant it has not seen it asks for that grant again.
  const bool asks_again = loop_.gathers()
                              ? loop_.policy().in_round(worker.rank) && seen < worker.granted
                              : loop_.in_iteration(worker);
  joined.iteration = asks_again ? worker.granted : loop_.due(worker);
  fill_round(joined);
  joined.policy = loop_.policy().name();
  joined.world_size = spec_.expected_workers;
  joined.durable = engine_.options().durable;
  joined.resumed = resumed;
  joined.worker_grace_us = spec_.worker_grace_us;
  const bool is_set = worker.exit_grace_us != kAutoSpan || spec_.exit_grace_us != kAutoSpan;
  if (is_set) joined.exit_grace_us = exit_grace(worker);
  joined.hang_after_us = spec_.hang_after_us;
  joined.heartbeat_timeout_ms = heartbeat_timeout_ms(worker);
  if ((worker.notices & wire::kNoticeMembers) != 0) joined.members_version = members_version_;
  answers_.reply(caller, std::move(joined), after_records);
}

void Job::attach(Worker& worker, const Caller& caller) {
  connections_.detach(worker.connection);
  connections_.attach(caller.connection);
  worker.connection = caller.connection;
  worker.disconnected_at = -1;
  worker.active_at = engine_.now();
  if (caller.connection != 0) engine_.attach(caller.connection, worker.rank);
  liveness_.arm(worker);
}

// ---- starting
// -------------------------------------------------------------------------------------------

void Job::set_ready(Worker& worker, bool ready) {
  if (state() != JobState::kWaiting) return;
  if (!ready) {
    roster_.set_ready(worker, false);
    if (roster_.missing().ready() > 0) return;
    start_at_ = kNever;
    engine_.cancel_timer(kNoRank, kTimerStart);
    return;
  }
  if (worker.state == WorkerState::kRegistered) roster_.set_ready(worker, true);
  const MissingRanks& missing = roster_.missing();
  if (missing.count() == 0) {
    start(roster_.not_begun());
  } else if (spec_.min_workers > 0 && start_at_ == kNever) {
    start_at_ = engine_.now() + spec_.start_timeout_us;
    engine_.set_timer(kNoRank, kTimerStart, start_at_);
  } else if (engine_.now() >= start_at_ && missing.ready() >= spec_.min_workers) {
    start(roster_.not_begun());
  }
}

// With all members but those of `left_out`, which enter later, when they ask to begin.
void Job::start(std::vector<std::int64_t> left_out) {
  Record record = recorder_.make(RecordKind::kJobStarted);
  record.expected_workers = roster_.members() - static_cast<std::uint32_t>(left_out.size());
  record.values = std::move(left_out);
  group_.fill_started(record);
  Answers::Fields begins;
  if (group_.reassembling()) {
    begins = {{"resumed", record.resumed ? "yes" : "no"}, {"clock", std::to_string(record.clock)}};
  }
  engine_.cancel_timer(kNoRank, kTimerStart);
  start_at_ = kNever;
  commit(std::move(record));
  Answers::Fields fields = {{"policy", loop_.policy().name()},
                            {"workers", std::to_string(roster_.active().size())}};
  fields.insert(fields.end(), begins.begin(), begins.end());
  answers_.log(LogLevel::kInfo, "job_started", nullptr, std::move(fields));
  loop_.ask_again();
}

void Job::admit(Worker& worker) {
  Record record = joined(worker);
  std::tie(record.clock, record.base) = admission_.entry_clocks(worker.clock, 0, false);
  commit(std::move(record));
}

// ---- what the others see of it
// ---------------------------------------------------------------------------

static wire::MemberState member_state(const Worker& worker) {
  if (worker.state == WorkerState::kLeft) return wire::MemberState::kLeft;
  if (worker.state == WorkerState::kLost) return wire::MemberState::kLost;
  return worker.disconnected_at >= 0 ? wire::MemberState::kDisconnected
                                     : wire::MemberState::kActive;
}

// A worker that has just joined knows the membership as of now: Joined has its version.
void Job::listen(Worker& worker, std::uint32_t notices) {
  worker.notices = notices;
  if ((notices & wire::kNoticeMembers) != 0) members_notice_pending_.insert(worker.rank);
  if ((notices & wire::kNoticeStragglers) != 0) stragglers_.note_listener();
}

// A worker has come, gone, been cut off or come back, or shows something else of itself. Each
// listener gets one notice until it has asked who is there, so that a thousand joins in a row cost
// one notice each, not a thousand.
void Job::members_changed() {
  members_version_ = std::max(members_version_ + 1, static_cast<std::uint64_t>(engine_.now()));
  if (engine_.effects() == nullptr) return;
  for (const Rank rank : members_notice_pending_) {
    const Worker& worker = roster_.at(rank);
    answers_.notify(worker.connection, wire::MembersNotice{answers_.ref(worker), members_version_});
  }
  members_notice_pending_.clear();
}

void Job::on(const Caller& caller, const wire::MembersRequest& request) {
  Worker* asking = answers_.check(caller, request.worker);
  if (asking == nullptr) return;
  wire::MembersReply reply;
  reply.version = members_version_;
  std::size_t bytes = 0;
  roster_.walk(request.first_rank, [&](const Worker& worker) {
    bytes += 64 + worker.name.size() + worker.host.size() + worker.data.size();
    if (bytes > limits::kHistoryReplyBytesMax && !reply.members.empty()) {
      reply.next_rank = worker.rank;
      return false;
    }
    reply.members.push_back(
        {worker.rank, member_state(worker), worker.clock, worker.name, worker.host, worker.data});
    return true;
  });
  // What changes while it reads further pages gives a notice.
  if (request.first_rank == 0) listen(*asking, asking->notices);
  answers_.reply(caller, std::move(reply));
}

// ---- leaving, and being lost
// ------------------------------------------------------------------------------

static std::string check_leave(const wire::Leave& leave) {
  if (leave.kind > wire::LeaveKind::kPreempted) {
    return fmt::format(
        "kind {} is unknown: allowed are 0 (left), 1 (finished), 2 (failed) and 3 (preempted)",
        static_cast<int>(leave.kind));
  }
  if (leave.reason.size() > limits::kLeaveReasonBytesMax) {
    return fmt::format("the reason is {} bytes long: at most {} are allowed", leave.reason.size(),
                       limits::kLeaveReasonBytesMax);
  }
  return check_plain("the reason", leave.reason);
}

void Job::on(const Caller& caller, const wire::AskCheckpoint& request) {
  Worker* worker = answers_.check(caller, request.worker);
  if (worker != nullptr) checkpoints_.ask(caller, *worker, request);
}

void Job::on(const Caller& caller, const wire::Checkpointed& answer) {
  const Worker* worker = answers_.check(caller, answer.worker);
  if (worker != nullptr) checkpoints_.saved(caller, *worker, answer);
}

void Job::on(const Caller& caller, const wire::Leave& leave) {
  Worker* worker = answers_.check(caller, leave.worker);
  if (worker == nullptr) return;
  if (std::string wrong = check_leave(leave); !wrong.empty()) {
    return answers_.refuse(caller, Status::kInvalid, "leave of {}: {}", label(*worker), wrong);
  }
  if (is_live()) {
    if (answers_.refuses_store(caller)) return;
    const bool may_save = leave.kind <= wire::LeaveKind::kFinished;
    if (may_save && checkpoints_.holds_leave(caller, *worker, loop_.due(*worker))) return;
    loop_.refuse_pending(*worker, Status::kClosed, "the worker has left");
  }
  answers_.reply(caller, wire::Ok{}, true);
  if (!is_live()) return;
  const bool unfinished = is_unfinished(leave.kind);
  const bool stops = leave.kind == wire::LeaveKind::kFailed && spec_.stops_on_failure;
  const std::string reason = exit_reason(leave.kind, leave.reason);
  std::string end;
  if (stops) {
    end = fmt::format("{}: {}{}", kFailedReason, label(*worker), reason.substr(kExitFailed.size()));
    // First: that it goes is to release nobody.
    roster_.each([&](Worker& other) { loop_.stop_pending(other, end); });
  }
  ++(unfinished ? counters_.lost : counters_.left);
  commit(unfinished ? RecordKind::kWorkerLost : RecordKind::kWorkerLeft, *worker, reason);
  Answers::Fields fields;
  if (!reason.empty()) fields.emplace_back("reason", reason);
  fields.emplace_back("clock", std::to_string(worker->clock));
  fields.emplace_back("members", std::to_string(roster_.members()));
  answers_.log(unfinished ? LogLevel::kWarn : LogLevel::kInfo,
               unfinished ? "worker_lost" : "worker_left", worker, std::move(fields));
  if (stops) return stop(end);
  after_exit(*worker);
}

// A job is over when its last worker leaves in good order. While one of them is only lost, the job
// stays: others may come.
void Job::after_exit(const Worker& gone) {
  if (!is_live()) return;
  checkpoints_.check();
  if (loop_.gathers()) {
    // The policy has seen to the rest.
    if (gone.state == WorkerState::kLeft && roster_.members() == 0) stop(kFinishedReason);
    return;
  }
  const bool took_part = roster_.running() || gone.returned;
  if (gone.state == WorkerState::kLeft && took_part && roster_.members() == 0) {
    stop(kFinishedReason);
  } else if (roster_.running()) {
    if (roster_.active().empty()) {
      reassemble(&gone);
    } else {
      checkpoints_.settle();
    }
  } else if (group_.reassembling() && roster_.missing().ready() > 0 &&
             roster_.missing().count() == 0) {
    start(roster_.not_begun());  // it is waited for no more
  }
}

// No worker is active any more: the job waits for another start. `last`: who has gone; null: it is
// not known.
void Job::reassemble(const Worker* last) {
  checkpoints_.close_all("no worker is left that could save");
  Record record = recorder_.make(RecordKind::kJobReassembling);
  record.epoch = recorder_.epoch() + 1;
  if (last != nullptr && says(last->dismissal, kExitFailed)) {
    record.reason = label(*last) + " " + last->dismissal;
  }
  commit(std::move(record));
  Answers::Fields fields = {{"epoch", std::to_string(recorder_.epoch())},
                            {"members", std::to_string(roster_.members())},
                            {"wanted", std::to_string(group_.wanted())}};
  if (!group_.failure().empty()) fields.emplace_back("failed", group_.failure());
  answers_.log(LogLevel::kWarn, "job_reassembling", nullptr, std::move(fields));
}

// A group is started again. If its launch says so, the members of the one before end, connected or
// not. Otherwise those end that are not connected: if a process still runs, it comes back.
void Job::end_group(const wire::Join& join, bool supersedes) {
  std::vector<Rank> members;
  roster_.each([&](const Worker& worker) {
    if (is_member(worker.state) && (supersedes || worker.connection == 0)) {
      members.push_back(worker.rank);
    }
  });
  const std::string reason =
      supersedes
          ? fmt::format("{} '{}': number {} was started after {}", Answers::kSupersededReason,
                        join.launch, join.launch_number, group_.launch().number)
          : fmt::format("no worker was connected when '{}' ({}) was started", join.name, join.host);
  for (const Rank rank : members) {
    loop_.stop_pending(roster_.at(rank), reason);
    lose(roster_.at(rank), reason);
  }
}

void Job::lose(Worker& worker, const std::string& reason) {
  const wire::WorkerRef gone = answers_.ref(worker);
  const ConnectionId connection = worker.connection;
  loop_.refuse_pending(worker, Status::kFenced, "declared lost: " + reason);
  ++counters_.lost;
  commit(RecordKind::kWorkerLost, worker, reason);
  answers_.log(LogLevel::kWarn, "worker_lost", &worker,
               {{"reason", reason},
                {"clock", std::to_string(worker.clock)},
                {"active", std::to_string(roster_.active().size())}});
  if (reason.starts_with(Answers::kSupersededReason) ||
      reason.starts_with(Answers::kFencedReason)) {
    answers_.notify(connection, wire::StopNotice{gone, reason}, true);
  } else {
    answers_.notify(connection, wire::FencedNotice{gone, "declared lost: " + reason});
  }
  after_exit(worker);
}

void Job::disconnected(Rank rank, const Disconnected& event) {
  Worker& worker = roster_.at(rank);
  if (worker.connection != event.connection) return;  // it has come back over another one
  worker.connection = 0;
  connections_.detach(event.connection);
  if (!is_member(worker.state) || !is_live()) return;
  worker.disconnected_at = engine_.now();
  set_grace(worker, event);
  loop_.withdraw(worker);
  members_changed();
  Answers::Fields fields;
  if (!event.reason.empty()) fields.emplace_back("reason", event.reason);
  fields.emplace_back("clock", std::to_string(worker.clock));
  fields.emplace_back("grace", format_duration(worker.grace_us));
  answers_.log(LogLevel::kInfo, "worker_disconnected", &worker, std::move(fields));
  liveness_.arm(worker);
}

void Job::take_graces(Worker& worker, const wire::Join& join) {
  worker.exit_grace_us = join.exit_grace_us;
  worker.heartbeat_timeout_ms = join.heartbeat_timeout_ms;
}

// The least that it or its job asks for; 0: as the daemon says.
std::uint32_t Job::heartbeat_timeout_ms(const Worker& worker) const {
  const std::uint32_t own = worker.heartbeat_timeout_ms;
  if (!loop_.gathers()) return own;
  return own == 0 ? kGatherHeartbeatTimeoutMs : std::min(own, kGatherHeartbeatTimeoutMs);
}

Micros Job::exit_grace(const Worker& worker) const {
  if (worker.exit_grace_us != kAutoSpan) return worker.exit_grace_us;
  if (spec_.exit_grace_us != kAutoSpan) return spec_.exit_grace_us;
  return std::min(engine_.options().exit_grace_us, spec_.worker_grace_us);
}

// A connection that its client has closed is mostly a process that has ended. Many of them together
// are not: then all have as long to come back as one that is silent.
void Job::set_grace(Worker& worker, const Disconnected& event) {
  worker.closed = event.by_peer;
  // Members of a round are missed at once.
  const Micros of_silence = loop_.gathers() ? 0 : spec_.worker_grace_us;
  worker.grace_us = event.by_peer ? exit_grace(worker) : of_silence;
  if (!event.by_peer) return;
  const bool before =
      std::exchange(close_together_, connections_.closed(event.connection, engine_.now()));
  if (!close_together_) return;
  const auto extend = [&](Worker& gone) {
    gone.grace_us = std::max(gone.grace_us, spec_.worker_grace_us);
  };
  extend(worker);
  if (before) return;
  roster_.each([&](Worker& other) {
    const bool together = engine_.now() - other.disconnected_at <= ConnectionEnds::kTogetherUs;
    if (is_member(other.state) && other.disconnected_at >= 0 && other.closed && together) {
      extend(other);
    }
  });
}

void Job::on(const Caller& caller, const wire::Phase& request) {
  Worker* worker = answers_.check(caller, request.worker);
  if (worker == nullptr) return;
  if (!request.name.empty()) {
    if (std::string wrong = check_phase(request.name, request.lease_us); !wrong.empty()) {
      answers_.refuse(caller, Status::kInvalid, "phase of {}: {}", label(*worker), wrong);
      return;
    }
  }
  answers_.reply(caller, wire::Ok{});
  if (!is_live()) return;
  liveness_.progressed(*worker);
  liveness_.set_phase(*worker, request.name, request.lease_us);
  worker->leased_phase.clear();
  if (request.name.empty()) {
    answers_.log(LogLevel::kDebug, "worker_phase_over", worker);
  } else {
    answers_.log(LogLevel::kDebug, "worker_phase", worker,
                 {{"phase", request.name}, {"lease", format_duration(request.lease_us)}});
  }
}

// ---- what an operator does about one worker, or about the job
// ----------------------------------------------------------------------------------------------

Worker* Job::find_by_rank_or_name(const std::string& text, std::string& error) {
  Rank rank = 0;
  if (parse_number(text, rank)) {
    if (Worker* worker = roster_.find(rank)) return worker;
  } else {
    const auto [first, second] = roster_.named(text);
    if (second != nullptr) {
      error = fmt::format(
          "job '{}' has several workers called '{}', such as ranks {} ({}) and {} ({}): say the "
          "rank",
          spec_.name, text, first->rank, first->host, second->rank, second->host);
      return nullptr;
    }
    if (first != nullptr) return &roster_.at(first->rank);
  }
  error = fmt::format(
      "job '{0}' has no worker '{1}': give a rank or a name that syncctl workers {0} shows",
      spec_.name, text);
  return nullptr;
}

void Job::manage(const Caller& caller, const wire::ManageWorkerRequest& request) {
  if (answers_.refuses_as_ended(caller)) return;
  std::string error;
  Worker* worker = find_by_rank_or_name(request.worker, error);
  if (worker == nullptr) {
    answers_.refuse(caller, Status::kUnknownWorker, std::move(error));
    return;
  }
  if (!is_member(worker->state)) {
    answers_.refuse(caller, Status::kState, "{} is {} already", label(*worker),
                    to_string(worker->state));
    return;
  }
  const auto because = [&](const char* what) {
    return request.text.empty() ? std::string(what) : what + (": " + request.text);
  };
  switch (request.action) {
    case wire::WorkerAction::kDrain:
      answers_.reply(caller, wire::Ok{}, true);
      drain(*worker, because("drained by an operator"));
      return;
    case wire::WorkerAction::kKick:
      answers_.reply(caller, wire::Ok{}, true);
      lose(*worker, because(Answers::kKickedReason));
      return;
    case wire::WorkerAction::kLease: {
      if (std::string wrong = check_phase(request.text, request.lease_us); !wrong.empty()) {
        answers_.refuse(caller, Status::kInvalid, "lease for {}: {}", label(*worker), wrong);
        return;
      }
      answers_.reply(caller, wire::Ok{}, true);
      Record record = recorder_.make(RecordKind::kWorkerLeased, worker);
      record.name = request.text;
      record.span_us = request.lease_us;
      commit(std::move(record));
      answers_.log(LogLevel::kInfo, "worker_leased", worker,
                   {{"phase", request.text}, {"lease", format_duration(request.lease_us)}});
      return;
    }
  }
  answers_.refuse(caller, Status::kUnsupported, "this daemon knows no action {} about a worker",
                  static_cast<int>(request.action));
}

// The worker goes once no other waits for it: with a parameter server after the push of the
// iteration that it is in. Otherwise when it asks for the next one, because its neighbours' updates
// lie in slots that it reads until then.
void Job::drain(Worker& worker, const std::string& reason) {
  if (worker.state == WorkerState::kDraining) return;
  const bool busy = loop_.decentralized()
                        ? worker.granted != kNoIteration && !worker.waits_in(Call::kBegin)
                        : worker.computing();
  if (!worker.active() || !busy) {
    drain_out(worker, reason);
    return;
  }
  commit(RecordKind::kWorkerDraining, worker, reason);
  answers_.log(LogLevel::kInfo, "worker_draining", &worker,
               {{"reason", reason}, {"clock", std::to_string(worker.clock)}});
}

// Its process hears of it by its next request, whose answer waits for the disk: otherwise the
// worker would be a member again after a crash, and the others would wait for it.
void Job::drain_out(Worker& worker, const std::string& reason) {
  loop_.stop_pending(worker, reason);
  commit(RecordKind::kWorkerLeft, worker, reason);
  answers_.log(LogLevel::kInfo, "worker_left", &worker,
               {{"reason", worker.dismissal},
                {"clock", std::to_string(worker.clock)},
                {"members", std::to_string(roster_.members())}});
  after_exit(worker);
}

void Job::stop(const std::string& reason) {
  if (!is_live()) return;
  std::vector<Rank> members;
  roster_.each([&](Worker& worker) {
    if (!is_member(worker.state)) return;
    members.push_back(worker.rank);
    loop_.stop_pending(worker, reason);
  });
  checkpoints_.close_all("the job has ended: " + reason);
  Record record = recorder_.make(RecordKind::kJobStopped);
  record.reason = reason;
  commit(std::move(record));
  for (const Rank rank : members) {
    const Worker& worker = roster_.at(rank);
    answers_.notify(worker.connection, wire::StopNotice{answers_.ref(worker), reason}, true);
  }
  // From here on it never changes: a restart reads this snapshot instead of its whole history.
  engine_.request_snapshot();
  answers_.log(LogLevel::kInfo, "job_stopped", nullptr,
               {{"reason", reason}, {"pushes", std::to_string(loop_.pushes())}});
}

std::string Job::check_switch(const Policy& policy) const {
  if (!is_live()) return answers_.ended();
  if (spec_.views && !Loop::may_have_views(policy.traits())) {
    return fmt::format(
        "job '{}' has views, and policy '{}' has no barriers at which all workers meet: allowed "
        "are "
        "bsp without backup and elastic_bsp",
        spec_.name, policy.name());
  }
  if (policy.family() != loop_.policy().family() || loop_.decentralized()) {
    return fmt::format(
        "job '{}' cannot go from policy '{}' to '{}': a job keeps to parameter-server policies or "
        "to its one decentralized policy, because their iterations are counted differently",
        spec_.name, loop_.policy().name(), policy.name());
  }
  return policy.check_workers(spec_.min_workers > 0 ? spec_.min_workers : spec_.expected_workers,
                              spec_.expected_workers);
}

void Job::switch_policy(const Policy& policy, const std::string& reason) {
  const std::string before = loop_.policy().name();
  if (policy.name() == before) return;
  Record record = recorder_.make(RecordKind::kPolicySwitched);
  record.policy = policy.name();
  record.reason = reason;
  commit(std::move(record));
  Answers::Fields fields = {{"from", before}, {"to", loop_.policy().name()}};
  if (!reason.empty()) fields.emplace_back("reason", reason);
  answers_.log(LogLevel::kInfo, "policy_switched", nullptr, std::move(fields));
  checkpoints_.settle();
  loop_.ask_again();
  look_at_rounds();
}

void Job::on(const Caller& caller, const wire::Exchanging& exchanging) {
  const Worker* worker = answers_.check(caller, exchanging.worker);
  if (worker == nullptr) return;
  answers_.reply(caller, wire::Ok{});
  if (is_live()) watch_.exchanging(*worker, exchanging.iteration, exchanging.for_us);
}

void Job::on(const Caller& caller, const wire::Inspected& inspected) {
  const Worker* worker = answers_.check(caller, inspected.worker);
  if (worker != nullptr) inspections_.answered(caller, *worker, inspected);
}

void Job::inspect(const Caller& caller, const wire::InspectRequest& request) {
  std::string error;
  const Worker* worker = find_by_rank_or_name(request.worker, error);
  if (worker == nullptr) {
    answers_.refuse(caller, Status::kUnknownWorker, std::move(error));
  } else if (request.stored) {
    inspections_.show_kept(caller, *worker);
  } else {
    inspections_.ask(caller, *worker);
  }
}

// ---- timers and plans
// ----------------------------------------------------------------------------------------------

void Job::timer(const TimerKey& key) {
  if (key.kind == kTimerLiveness) {
    Worker& worker = roster_.at(static_cast<Rank>(key.rank));
    liveness_.check(worker, loop_.in_iteration(worker));
  } else if (key.kind == kTimerStart && state() == JobState::kWaiting) {
    if (roster_.missing().ready() >= spec_.min_workers) start(roster_.not_begun());
  } else if (key.kind == kTimerInspect) {
    inspections_.look();
  } else if (key.kind == kTimerWatch) {
    if (is_live() && watch_.look() && spec_.inspect_on_hang) {
      inspections_.keep(watch_.hang()->ranks);
    }
  } else if (!roster_.running()) {
    return;
  } else if (key.kind == kTimerIdle) {
    end_if_idle();
  } else if (key.kind == kTimerCheckpoint) {
    checkpoints_.timed_out();
  } else if (key.kind == kTimerRestored) {
    // An older daemon left jobs running whose last worker was lost.
    if (roster_.active().empty() && !loop_.gathers()) return reassemble(nullptr);
    loop_.policy().on_restored(loop_);
    checkpoints_.check();  // where the end of the history is lost
  } else if (key.kind >= kPolicyTimerKinds) {
    loop_.policy().on_timer(loop_, key.rank, key.kind - kPolicyTimerKinds);
  }
}

void Job::plan_ready(const PlanReady& ready) {
  if (roster_.running()) loop_.policy().on_plan(loop_, ready.plan, ready.result);
}

void Job::refuse_all_pending(Status status, const std::string& text) {
  roster_.each([&](Worker& worker) { loop_.refuse_pending(worker, status, text); });
}

}  // namespace syncd
