// Job: who takes part. Joining, resuming, starting, leaving, being lost, long phases. Runs on the
// engine's thread.
#include <algorithm>
#include <charconv>
#include <tuple>

#include "daemon/core/engine/job.h"
#include "daemon/core/engine/limits.h"

namespace syncd {

// ---- joining
// ------------------------------------------------------------------------------------------

void Job::join(const Caller& caller, const wire::Join& join) {
  if (state() == JobState::kStopped) {
    refuse(caller, Status::kStopped, "job '" + spec_.name + "' has ended: " + stop_reason_);
    return;
  }
  if (refuses_epoch(caller, join) || refuses(caller, join)) return;
  const auto rank = place_for(caller, join);
  if (!rank) return;
  if (Worker* known = find(*rank); known != nullptr && resume(caller, join, *known)) return;
  const Worker* holder = find(*rank);
  std::string full;
  if (holder == nullptr || !is_member(holder->state)) full = too_many_members();
  if (full.empty() && holder == nullptr) full = too_many_edges(join.host);
  if (!full.empty()) {
    refuse(caller, Status::kLimit, std::move(full));
    return;
  }
  if (holder == nullptr && !engine_.has_room_for_worker()) {
    refuse(caller, Status::kLimit, engine_.no_room_for_worker());
    return;
  }
  if (store_refuses(caller)) return;
  enter_anew(caller, join, *rank);
}

std::string Job::too_many_members() const {
  if (roster_.members() < engine_.options().workers_per_job_max) return {};
  return "job '" + spec_.name + "' has " + std::to_string(roster_.members()) +
         " workers already, the most allowed (limits.workers_per_job_max)";
}

// For a worker that was not in the job before: one that returns makes the graph no larger than it
// was. As many as the job was made for were counted then, where their number alone tells.
std::string Job::too_many_edges(const std::string& host) const {
  const std::size_t most = engine_.options().graph_edges_max;
  const std::size_t members = std::size_t{roster_.members()} + 1;
  if (members * roster_.members() <= most) return {};  // no graph has more than a complete one
  const std::size_t edges = policy_->dense_edges(members, [&] {
    std::vector<std::string> hosts{host};
    roster_.each([&](const Worker& worker) {
      if (is_member(worker.state)) hosts.push_back(worker.host);
    });
    return hosts;
  });
  if (edges <= most) return {};
  const std::uint32_t expected = spec_.expected_workers;
  if (members <= expected && edges <= policy_->dense_edges(expected, nullptr)) return {};
  return "job '" + spec_.name + "' has " + std::to_string(roster_.members()) +
         " workers; with one more its graph would have " + std::to_string(edges) +
         " edges: this daemon allows " + std::to_string(most) + " (limits.graph_edges_max)";
}

bool Job::refuses(const Caller& caller, const wire::Join& join) {
  if (!join.policy.empty()) {
    std::string error;
    const auto wanted = make_policy(join.policy, error);
    if (!wanted) {
      refuse(caller, Status::kInvalid, error);
      return true;
    }
    if (wanted->name() != policy_->name()) {
      refuse(caller, Status::kPolicyMismatch,
             "job '" + spec_.name + "' runs policy '" + policy_->name() + "', not '" +
                 wanted->name() + "' as worker '" + join.name + "' asks");
      return true;
    }
  }
  if (std::string wrong = check_world(join); !wrong.empty()) {
    refuse(caller, Status::kInvalid, std::move(wrong));
    return true;
  }
  // One far beyond the job's size is a mistake.
  const std::int64_t allowed = std::min<std::int64_t>(
      limits::kWorkersPerJobMax,
      std::max<std::int64_t>(spec_.expected_workers, std::int64_t{roster_.rank_limit()} + 1024));
  if (join.rank < allowed) return false;
  refuse(caller, Status::kInvalid,
         "rank " + std::to_string(join.rank) + " is too large for job '" + spec_.name +
             "': allowed are 0 to " + std::to_string(allowed - 1));
  return true;
}

// A worker of an earlier job by this name, or of a later one than this daemon's store knows.
bool Job::refuses_epoch(const Caller& caller, const wire::Join& join) {
  if (join.incarnation == 0 || join.epoch == 0 || join.epoch == epoch()) return false;
  // To a job that nobody has joined yet, it brings the epoch that the store has lost.
  if (join.epoch > epoch() && roster_.known() == 0) return false;
  std::string text = "worker '" + join.name + "' is of epoch " + std::to_string(join.epoch) +
                     " of job '" + spec_.name + "', which is in epoch " + std::to_string(epoch()) +
                     " (#" + std::to_string(id()) + ")";
  text += join.epoch < epoch() ? ": the job that it was in has ended"
                               : ": this daemon has not the history of the job that it was in";
  refuse(caller, Status::kFenced, text + "; a new process may join this one");
  return true;
}

// What keeps a group of another size out. Whoever says no size may come to any job.
std::string Job::check_world(const wire::Join& join) const {
  if (join.world_size == 0 || join.incarnation != 0) return {};
  const std::string who = "worker '" + join.name + "' is of a group of " +
                          std::to_string(join.world_size) + " (its world size)";
  if (join.world_size != spec_.expected_workers) {
    return who + ", but job '" + spec_.name + "' expects " +
           std::to_string(spec_.expected_workers) + " workers" + second_group_hint();
  }
  if (join.rank >= 0 && static_cast<std::uint32_t>(join.rank) >= join.world_size) {
    return who + ", which has no rank " + std::to_string(join.rank) + ": allowed are 0 to " +
           std::to_string(join.world_size - 1);
  }
  return {};
}

std::string Job::second_group_hint() const {
  return "; a second group needs a job name of its own, or this job's end (syncctl job stop " +
         spec_.name + ")";
}

// The rank of a joiner: its old one by name and host, the one that it asks for, or the lowest free.
std::optional<Rank> Job::place_for(const Caller& caller, const wire::Join& join) {
  const Worker* known = roster_.find(join.name, join.host);
  if (known != nullptr && (join.rank < 0 || static_cast<Rank>(join.rank) == known->rank)) {
    if (join.incarnation == 0 && is_member(known->state) && known->connection != 0) {
      refuse(caller, Status::kRankTaken,
             called(*known) + " is connected already: another process has its name" +
                 second_group_hint());
      return std::nullopt;
    }
    return known->rank;
  }
  if (known != nullptr && is_member(known->state)) {
    refuse(
        caller, Status::kRankTaken,
        called(*known) + " is still a member and cannot become rank " + std::to_string(join.rank));
    return std::nullopt;
  }
  if (join.rank >= 0) {
    const Rank rank = static_cast<Rank>(join.rank);
    // Also while its connection is gone: the place is kept for worker_grace.
    const Worker* holder = find(rank);
    const bool held = holder != nullptr && is_member(holder->state);
    if (join.incarnation != 0 && holder != nullptr &&
        (held || join.incarnation < holder->incarnation)) {
      // It was given up or sent away, and its place given to somebody else, which also fences it
      // once that one has gone: asking again would not help.
      refuse(caller, Status::kFenced,
             "incarnation " + std::to_string(join.incarnation) + " of rank " +
                 std::to_string(rank) + " was given up, and its place " +
                 (held ? "is held by " : "was given to ") + called(*holder));
      return std::nullopt;
    }
    if (held) {
      std::string text = "rank " + std::to_string(rank) + " of job '" + spec_.name +
                         "' is held by " + called(*holder);
      if (holder->disconnected_at >= 0) {
        text += ", " + describe(rank).state + ": its place is kept for " +
                format_duration(spec_.worker_grace_us);
      } else {
        text += second_group_hint();
      }
      refuse(caller, Status::kRankTaken, std::move(text));
      return std::nullopt;
    }
    return rank;
  }
  if (join.world_size != 0 && roster_.members() >= spec_.expected_workers) {
    const Worker* first = nullptr;
    roster_.walk(0, [&](const Worker& worker) {
      if (is_member(worker.state)) first = &worker;
      return first == nullptr;
    });
    refuse(caller, Status::kRankTaken,
           "job '" + spec_.name + "' has its " + std::to_string(spec_.expected_workers) +
               " workers already, the first of them " + called(*first) + second_group_hint());
    return std::nullopt;
  }
  const Rank free = roster_.free_rank();
  if (free < limits::kWorkersPerJobMax) return free;
  refuse(caller, Status::kLimit,
         "job '" + spec_.name + "' is full: at most " + std::to_string(limits::kWorkersPerJobMax) +
             " workers");
  return std::nullopt;
}

// A worker that reconnects and was never given up keeps its place and its life. True: answered.
bool Job::resume(const Caller& caller, const wire::Join& join, Worker& worker) {
  if (join.incarnation == 0 || worker.name != join.name || worker.host != join.host) return false;
  const bool lost_answer = join.incarnation != 0 && join.incarnation == worker.predecessor;
  if (join.incarnation < worker.incarnation && !lost_answer) {
    refuse(caller, Status::kFenced,
           "incarnation " + std::to_string(join.incarnation) + " of " + called(worker) +
               " was replaced by incarnation " + std::to_string(worker.incarnation));
    return true;
  }
  if (!is_member(worker.state) && !worker.dismissal.empty()) {
    refuse_dismissed(caller, worker);
    return true;
  }
  if (!is_member(worker.state)) return false;
  if (join.incarnation != worker.incarnation && !lost_answer) return false;
  // Invariant I8: the larger of what each side knows. The daemon may have lost a grant, and in fast
  // mode a push, that the worker has seen.
  const Clock own = own_clock(&worker, join);
  const bool ahead = own > worker.clock || join.pushed > worker.answered();
  const bool news = ahead || join.data != worker.data;
  // It was granted something: the job had started, and the daemon died before that was on disk.
  const bool had_started = state() == JobState::kWaiting && join.granted != kNoIteration;
  if ((news || had_started) && store_refuses(caller)) return true;
  if (worker.waiting) {
    refuse(worker.waiting->caller, Status::kCancelled, "the worker reconnected");
    withdraw(worker);
  }
  if (had_started) start({});
  ++counters_.reconnects;
  adopt_claims(worker, join);
  // Of a phase that an operator said it is in, it may know nothing.
  if (!join.phase.empty()) worker.leased_phase.clear();
  if (!worker.leased()) set_phase(worker, join.phase, join.phase_left_us);
  members_untold_.erase(worker.rank);
  if (news) {
    Record record = recorder_.make(RecordKind::kWorkerJoined, worker);
    record.name = worker.name;
    record.host = worker.host;
    record.data = join.data;
    std::tie(record.clock, record.base) = std::pair(own, worker.base);
    if (state() == JobState::kRunning && !worker.active()) {
      std::tie(record.clock, record.base) = entry_clocks(own, worker.base, true);
    }
    record.iteration = join.pushed > worker.answered() ? join.pushed : worker.pushed;
    record.resumed = true;
    commit(std::move(record));
  }
  const bool was_cut_off = worker.disconnected_at >= 0;
  attach(worker, caller.connection);
  if (was_cut_off) members_changed();
  listen(worker, join.notices);
  if (!news && worker.active()) policy_->on_return(*this, worker.rank);
  log(LogLevel::kInfo, "worker_resumed", &worker, {{"clock", std::to_string(worker.clock)}});
  reply_joined(caller, worker, true, news || had_started);
  return true;
}

// Answers that the worker knows of and the daemon does not. When a grant was given, and after what
// wait, nobody can say any more.
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

// The clock that this place has reached, as far as the daemon knows and the joiner reports.
Clock Job::own_clock(const Worker* known, const wire::Join& join) const {
  const bool counts_completed = policy_->family() == Family::kParameterServer;
  const Clock before = known != nullptr ? known->clock : Clock{counts_completed ? 0 : -1};
  if (join.incarnation == 0) return before;
  const Clock reported =
      counts_completed ? std::max(join.pushed + 1, join.granted) : Clock{join.granted};
  return std::max(before, reported);
}

// Clock and base of a worker that enters a running job.
std::pair<Clock, Clock> Job::entry_clocks(Clock own, Clock base, bool returns) const {
  if (decentralized()) {
    // Its first grant is the lowest iteration that anybody is in, or the first that nobody was in;
    // it counts as being just before that.
    const Clock before = roster_.absolute_clocks().empty()
                             ? roster_.highest_clock(decentralized() ? -1 : 0)
                             : roster_.absolute_clocks().min() - 1;
    return {std::max(before, own), 0};
  }
  // A worker that returns resumes its clock if the policy's bound still allows that.
  if (returns && policy_->keeps_clock(*this, own - base)) return {own, base};
  // Else it enters at the minimum clock, or, where nobody is active, at the highest ever reached.
  Clock clock = roster_.absolute_clocks().empty() ? roster_.highest_clock(decentralized() ? -1 : 0)
                                                  : roster_.absolute_clocks().min();
  clock = std::max(clock, own);  // invariant I1: a place's clock never goes down
  return {clock, clock - policy_->entry_clock(*this)};
}

void Job::enter_anew(const Caller& caller, const wire::Join& join, Rank rank) {
  const Worker* known = find(rank);
  if (known != nullptr && known->waiting) {
    refuse(known->waiting->caller, Status::kFenced, "the worker joined again");
    withdraw(at(rank));
  }
  const bool was_member = known != nullptr && is_member(known->state);
  const bool same = known != nullptr && known->name == join.name && known->host == join.host;
  const Clock own = own_clock(known, join);
  auto [clock, base] = std::pair(own, Clock{0});
  if (known != nullptr && known->active()) {
    base = known->base;
  } else if (state() == JobState::kRunning) {
    const bool returns = same || (join.incarnation != 0 && join.granted != kNoIteration);
    std::tie(clock, base) = entry_clocks(own, same ? known->base : Clock{0}, returns);
  }
  Record record = recorder_.make(RecordKind::kWorkerJoined);
  record.rank = rank;
  record.epoch = std::max(epoch(), join.epoch);  // refuses_epoch() has looked at it
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
  members_untold_.erase(rank);
  ++counters_.joins;
  commit(std::move(record));

  Worker& worker = at(rank);
  // An iteration that it was computing when it was given up may still be pushed: judged by its
  // clock.
  if (join.incarnation != 0 && !decentralized()) adopt_claims(worker, join);
  // The same process may ask again under the life that it remembers, if this answer gets lost.
  worker.predecessor = join.incarnation;
  set_phase(worker, join.phase, join.phase_left_us);
  attach(worker, caller.connection);
  listen(worker, join.notices);
  log(LogLevel::kInfo, was_member ? "worker_replaced" : "worker_joined", &worker,
      {{"incarnation", std::to_string(worker.incarnation)},
       {"clock", std::to_string(worker.clock)},
       {"members", std::to_string(roster_.members())},
       {"expected", std::to_string(spec_.expected_workers)}});
  reply_joined(caller, worker, false, true);
}

void Job::reply_joined(const Caller& caller, const Worker& worker, bool resumed,
                       bool after_records) {
  wire::Joined joined;
  joined.worker = ref(worker);
  joined.iteration = in_iteration(worker) ? worker.granted : due(worker);
  joined.policy = policy_->name();
  joined.world_size = spec_.expected_workers;
  joined.durable = engine_.options().durable;
  joined.resumed = resumed;
  joined.worker_grace_us = spec_.worker_grace_us;
  if ((worker.notices & wire::kNoticeMembers) != 0) joined.members_version = members_version_;
  reply(caller, std::move(joined), after_records);
}

void Job::attach(Worker& worker, ConnectionId connection) {
  worker.connection = connection;
  worker.disconnected_at = -1;
  worker.active_at = now();
  if (connection != 0) engine_.attach(connection, worker.rank);
  arm_liveness(worker);
}

// ---- starting
// -------------------------------------------------------------------------------------------

void Job::maybe_start() {
  if (roster_.missing().count() == 0) {
    start(roster_.not_begun());
    return;
  }
  if (spec_.min_workers == 0) return;
  if (start_at_ == kNever) {
    start_at_ = now() + spec_.start_timeout_us;
    engine_.set_timer(kNoRank, kTimerStart, start_at_);
  } else if (now() >= start_at_ && roster_.missing().ready() >= spec_.min_workers) {
    start(roster_.not_begun());
  }
}

// With all members but those of `left_out`, who enter later, when they ask to begin.
void Job::start(std::vector<std::int64_t> left_out) {
  Record record = recorder_.make(RecordKind::kJobStarted);
  record.expected_workers = roster_.members() - static_cast<std::uint32_t>(left_out.size());
  record.values = std::move(left_out);
  engine_.cancel_timer(kNoRank, kTimerStart);
  commit(std::move(record));
  log(LogLevel::kInfo, "job_started", nullptr,
      {{"policy", policy_->name()}, {"workers", std::to_string(roster_.active().size())}});
  reask_all_waiting();
}

// A member that was not ready when the job had to start enters now.
void Job::admit(Worker& worker) {
  Record record = recorder_.make(RecordKind::kWorkerJoined, worker);
  record.name = worker.name;
  record.host = worker.host;
  record.data = worker.data;
  std::tie(record.clock, record.base) = entry_clocks(worker.clock, 0, false);
  record.resumed = true;
  commit(std::move(record));
}

// ---- what the others see of it
// ---------------------------------------------------------------------------

wire::MemberState Job::member_state(const Worker& worker) {
  if (worker.state == WorkerState::kLeft) return wire::MemberState::kLeft;
  if (worker.state == WorkerState::kLost) return wire::MemberState::kLost;
  return worker.disconnected_at >= 0 ? wire::MemberState::kDisconnected
                                     : wire::MemberState::kActive;
}

// One that has just joined knows the membership as of now: Joined has its version.
void Job::listen(Worker& worker, std::uint32_t notices) {
  worker.notices = notices;
  if ((notices & wire::kNoticeMembers) != 0) members_untold_.insert(worker.rank);
}

// Somebody has come, gone, been cut off or come back, or shows something else of itself. Each
// listener hears of it once until it has asked who is there, so that a thousand joins in a row cost
// one notice each, not a thousand.
void Job::members_changed() {
  members_version_ = std::max(members_version_ + 1, static_cast<std::uint64_t>(now()));
  if (effects_ == nullptr) return;
  for (const Rank rank : members_untold_) {
    const Worker& worker = at(rank);
    if (worker.connection == 0) continue;
    effects_->notifications.push_back(
        {worker.connection, wire::MembersNotice{ref(worker), members_version_}});
  }
  members_untold_.clear();
}

void Job::members(const Caller& caller, const wire::MembersRequest& request) {
  Worker* asking = check(caller, request.worker);
  if (asking == nullptr) return;
  wire::MembersReply reply_body;
  reply_body.version = members_version_;
  std::size_t bytes = 0;
  roster_.walk(request.first_rank, [&](const Worker& worker) {
    bytes += 64 + worker.name.size() + worker.host.size() + worker.data.size();
    if (bytes > limits::kHistoryReplyBytesMax && !reply_body.members.empty()) {
      reply_body.next_rank = worker.rank;
      return false;
    }
    reply_body.members.push_back(
        {worker.rank, member_state(worker), worker.clock, worker.name, worker.host, worker.data});
    return true;
  });
  // What changes while it reads further pages it is told of.
  if (request.first_rank == 0) listen(*asking, asking->notices);
  reply(caller, std::move(reply_body));
}

// ---- leaving, and being lost
// ------------------------------------------------------------------------------

void Job::leave(const Caller& caller, const wire::Leave& leave) {
  Worker* worker = check(caller, leave.worker);
  if (worker == nullptr) return;
  if (state() == JobState::kStopped) {
    reply(caller, wire::Ok{}, true);
    return;
  }
  if (store_refuses(caller)) return;
  if (worker->waiting) {
    refuse(worker->waiting->caller, Status::kClosed, "the worker has left");
    withdraw(*worker);
  }
  reply(caller, wire::Ok{}, true);
  ++counters_.left;
  commit(recorder_.make(RecordKind::kWorkerLeft, *worker));
  log(LogLevel::kInfo, "worker_left", worker,
      {{"clock", std::to_string(worker->clock)}, {"members", std::to_string(roster_.members())}});
  finish_if_over();
}

// A job is over when its last worker leaves in good order. One whose last worker is lost goes on:
// the lost may come back.
void Job::finish_if_over() {
  if (roster_.members() == 0 && state() == JobState::kRunning) stop(kFinishedReason);
}

void Job::lose(Worker& worker, const std::string& reason) {
  const wire::WorkerRef gone = ref(worker);
  const ConnectionId connection = worker.connection;
  if (worker.waiting) {
    refuse(worker.waiting->caller, Status::kFenced, "declared lost: " + reason);
    withdraw(worker);
  }
  Record record = recorder_.make(RecordKind::kWorkerLost, worker);
  record.reason = reason;
  ++counters_.lost;
  commit(std::move(record));
  log(LogLevel::kWarn, "worker_lost", &worker,
      {{"reason", reason},
       {"clock", std::to_string(worker.clock)},
       {"active", std::to_string(roster_.active().size())}});
  if (connection != 0 && effects_ != nullptr) {
    effects_->notifications.push_back(
        {connection, wire::FencedNotice{gone, "declared lost: " + reason}});
  }
}

// ---- what an operator does about one worker
// ----------------------------------------------------------------------------------------------

// By its rank, or by its name.
Worker* Job::worker_called(const std::string& text, std::string& error) {
  Rank rank = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (code == std::errc{} && end == text.data() + text.size()) {
    if (find(rank) != nullptr) return &at(rank);
  } else {
    const auto [first, second] = roster_.called(text);
    if (second != nullptr) {
      error = "job '" + spec_.name + "' has several workers called '" + text + "', such as ranks " +
              std::to_string(first->rank) + " (" + first->host + ") and " +
              std::to_string(second->rank) + " (" + second->host + "): say the rank";
      return nullptr;
    }
    if (first != nullptr) return &at(first->rank);
  }
  error = "job '" + spec_.name + "' has no worker '" + text + "': give a rank or a name that " +
          "syncctl workers " + spec_.name + " shows";
  return nullptr;
}

void Job::manage(const Caller& caller, const wire::ManageWorkerRequest& request) {
  if (state() == JobState::kStopped) {
    refuse(caller, Status::kStopped, "job '" + spec_.name + "' has ended: " + stop_reason_);
    return;
  }
  std::string error;
  Worker* worker = worker_called(request.worker, error);
  if (worker == nullptr) {
    refuse(caller, Status::kUnknownWorker, std::move(error));
    return;
  }
  if (!is_member(worker->state)) {
    refuse(caller, Status::kState,
           called(*worker) + " is " + to_string(worker->state) + " already");
    return;
  }
  const auto because = [&](const char* what) {
    return request.text.empty() ? std::string(what) : what + (": " + request.text);
  };
  switch (request.action) {
    case wire::WorkerAction::kDrain:
      reply(caller, wire::Ok{}, true);
      drain(*worker, because("drained by an operator"));
      return;
    case wire::WorkerAction::kKick:
      reply(caller, wire::Ok{}, true);
      lose(*worker, because(kKickedReason));
      return;
    case wire::WorkerAction::kLease: {
      if (std::string wrong = check_phase(request.text, request.lease_us); !wrong.empty()) {
        refuse(caller, Status::kInvalid, "lease for " + called(*worker) + ": " + wrong);
        return;
      }
      reply(caller, wire::Ok{}, true);
      Record record = recorder_.make(RecordKind::kWorkerLeased, *worker);
      record.name = request.text;
      record.span_us = request.lease_us;
      commit(std::move(record));
      log(LogLevel::kInfo, "worker_leased", worker,
          {{"phase", request.text}, {"lease", format_duration(request.lease_us)}});
      return;
    }
  }
  refuse(caller, Status::kUnsupported,
         "this daemon knows no action " + std::to_string(static_cast<int>(request.action)) +
             " about a worker");
}

// It goes once nobody waits for it any more: with a parameter server after the push of the
// iteration that it is in, else when it asks for the next one, until when its neighbours' updates
// lie in slots that it reads.
void Job::drain(Worker& worker, const std::string& reason) {
  if (worker.state == WorkerState::kDraining) return;
  const bool busy = decentralized()
                        ? worker.granted != kNoIteration && !worker.waits_in(Call::kBegin)
                        : worker.computing();
  if (!worker.active() || !busy) {
    drain_out(worker, reason);
    return;
  }
  Record record = recorder_.make(RecordKind::kWorkerDraining, worker);
  record.reason = reason;
  commit(std::move(record));
  log(LogLevel::kInfo, "worker_draining", &worker,
      {{"reason", reason}, {"clock", std::to_string(worker.clock)}});
}

// Its process hears of it by its next request alone, whose answer waits for the disk: one that
// ended its loop, and was a member again after a crash, would be waited for.
void Job::drain_out(Worker& worker, const std::string& reason) {
  if (worker.waiting) {
    reply(worker.waiting->caller, wire::Granted{worker.waiting->iteration, wire::kStepStop, 0},
          true);
    withdraw(worker);
  }
  Record record = recorder_.make(RecordKind::kWorkerLeft, worker);
  record.reason = reason;
  commit(std::move(record));
  log(LogLevel::kInfo, "worker_left", &worker,
      {{"reason", worker.dismissal},
       {"clock", std::to_string(worker.clock)},
       {"members", std::to_string(roster_.members())}});
  finish_if_over();
}

void Job::stop(const std::string& reason) {
  if (state() == JobState::kStopped) return;
  std::vector<Rank> members;
  roster_.each([&](Worker& worker) {
    if (!is_member(worker.state)) return;
    members.push_back(worker.rank);
    if (worker.waiting) {
      reply(worker.waiting->caller, wire::Granted{worker.waiting->iteration, wire::kStepStop, 0},
            true);
      withdraw(worker);
    }
  });
  Record record = recorder_.make(RecordKind::kJobStopped);
  record.reason = reason;
  commit(std::move(record));
  for (const Rank rank : members) {
    const Worker& worker = at(rank);
    if (worker.connection == 0 || effects_ == nullptr) continue;
    effects_->notifications.push_back(
        {worker.connection, wire::StopNotice{ref(worker), reason}, true});
  }
  // From here on it never changes: a restart reads this snapshot instead of its whole history.
  engine_.request_snapshot();
  log(LogLevel::kInfo, "job_stopped", nullptr,
      {{"reason", reason}, {"pushes", std::to_string(pushes_)}});
}

void Job::disconnected(Rank rank, const Disconnected& event) {
  Worker& worker = at(rank);
  if (worker.connection != event.connection) return;  // it has come back over another one
  worker.connection = 0;
  if (!is_member(worker.state) || state() == JobState::kStopped) return;
  worker.disconnected_at = now();
  withdraw(worker);
  members_changed();
  std::vector<std::pair<std::string, std::string>> fields;
  if (!event.reason.empty()) fields.emplace_back("reason", event.reason);
  fields.emplace_back("clock", std::to_string(worker.clock));
  fields.emplace_back("grace", format_duration(spec_.worker_grace_us));
  log(LogLevel::kInfo, "worker_disconnected", &worker, std::move(fields));
  arm_liveness(worker);
}

// ---- long phases
// ------------------------------------------------------------------------------------------

void Job::phase(const Caller& caller, const wire::Phase& request) {
  Worker* worker = check(caller, request.worker);
  if (worker == nullptr) return;
  if (!request.name.empty()) {
    if (std::string wrong = check_phase(request.name, request.lease_us); !wrong.empty()) {
      refuse(caller, Status::kInvalid, "phase of " + called(*worker) + ": " + wrong);
      return;
    }
  }
  reply(caller, wire::Ok{});
  if (state() == JobState::kStopped) return;
  progressed(*worker);
  set_phase(*worker, request.name, request.lease_us);
  worker->leased_phase.clear();
  if (request.name.empty()) {
    log(LogLevel::kDebug, "worker_phase_over", worker);
  } else {
    log(LogLevel::kDebug, "worker_phase", worker,
        {{"phase", request.name}, {"lease", format_duration(request.lease_us)}});
  }
}

// Of the same name as one whose lease still runs: it goes on under the new lease. Empty: it is
// over.
void Job::set_phase(Worker& worker, const std::string& name, Micros lease_us) {
  if (name.empty()) {
    end_phase(worker);
    return;
  }
  if (worker.phase != name || now() > worker.phase_us + worker.phase_lease_us) {
    worker.phase = name;
    worker.phase_us = now();
  }
  worker.phase_lease_us = now() + lease_us - worker.phase_us;
  worker.warned = false;
  arm_liveness(worker);
}

void Job::end_phase(Worker& worker) {
  if (worker.phase.empty()) return;
  progressed(worker);
  worker.phase.clear();
  worker.leased_phase.clear();
  arm_liveness(worker);
}

}  // namespace syncd
