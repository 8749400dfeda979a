// The session's operations: what is admitted, what stands already, what is refused at once. Runs on
// whatever thread drives the session; one at a time.
#include "libclient/session.h"

#include <algorithm>
#include <utility>

#include "proto/base/check.h"
#include "proto/wire/announce.h"

namespace syncd::client {

Session::Session(SessionOptions options, TimeUs now)
    : options_(std::move(options)), link_(options_.link, *this, now) {}

Session::~Session() = default;

namespace {

// Why an operation fails at once.
struct Refused {
  Status status;
  std::string reason;
};

// Checks that nearly always pass do not make the sentence themselves: it would cost them a frame.
[[noreturn, gnu::cold]] void refuse(Status status, std::string_view before, std::int64_t number,
                                    std::string_view after) {
  throw Refused{status, std::string(before).append(std::to_string(number)).append(after)};
}
[[noreturn, gnu::cold]] void refuse_state(std::string_view reason) {
  throw Refused{Status::kState, std::string(reason)};
}
[[noreturn, gnu::cold]] void refuse_another(const char* call) {
  refuse_state(std::string("another ") + call + " of this worker is under way");
}
[[noreturn, gnu::cold]] void refuse_until_answered(const char* call, std::int64_t iteration) {
  refuse(Status::kState, std::string(call) + "(", iteration,
         ") is not answered yet; call it again to wait for that");
}

}  // namespace

// Makes an operation of a worker's by act(worker, op), which may throw Refused while the operation
// is its own.
template <typename Act>
void Session::call(const Ask& ask, WorkerId id, Kind kind, std::int64_t iteration, const Act& act) {
  now_ = ask.now;
  Op op{ask.op, ask.timeout};
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  const auto found = workers_.find(id);
  if (found == workers_.end() || found->second.membership == Membership::kLeft) {
    return complete(op, Status::kClosed, "the worker has left its job");
  }
  Worker& worker = found->second;
  if (worker.membership == Membership::kFenced) {
    return complete(op, Status::kFenced, worker.failure);
  }
  // Asked for by one who did not wait, and then freed the handle.
  if (worker.released) return complete(op, Status::kClosed, "the worker's handle was freed");
  if (kind == kBegin) iteration = worker.next;
  try {
    act(worker, op);
  } catch (const Refused& refused) {
    complete(op, refused.status, call_text(kind, iteration, worker) + ": " + refused.reason);
  }
}

void Session::refuse_unreachable() const {
  throw Refused{Status::kUnreachable, link_text()};
}

void Session::check_stays(const Worker& worker) {
  if (worker[kLeave].active) refuse_state("this worker is leaving");
}

// Sends what is now pending, or asks to resume first where the daemon would not at the last try.
void Session::wake(Worker& worker) {
  if (worker.membership == Membership::kDetached) {
    resume(worker);
  } else {
    send_pending(worker);
  }
}

// The same for one request, where all others were sent before but for a phase, which may begin or
// end with it.
void Session::wake(Worker& worker, Kind slot) {
  const bool joined = worker.membership == Membership::kJoined && link_.usable();
  if (!joined || in_phase(worker) || worker[kPhase].is_unsent()) return wake(worker);
  Pending& pending = worker[slot];
  if (pending.is_unsent()) {
    pending.request = send(worker.id, slot, body_of(worker, pending));
  }
}

void Session::clear_resync(Worker& worker) {
  if (std::exchange(worker.advised, false)) worker.params.signals->set_resync(false);
}

void Session::connect(const Ask& ask) {
  now_ = ask.now;
  Op op{ask.op, ask.timeout};
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (link_.up()) return complete_ok(op, connect_result());
  connecting_.push_back({op, add(now_, options_.take_over_us)});
  arm(op);
  if (options_.take_over_us > 0) {
    scan_at_us_ = std::min(scan_at_us_, connecting_.back().take_over_until_us);
  }
  check_refusal();
}

ConnectResult Session::connect_result() const {
  return {link_.endpoint_text(), link_.welcome().shard, link_.welcome().shards};
}

void Session::ask(const Ask& ask, const wire::Body& request) {
  now_ = ask.now;
  Op op{ask.op, ask.timeout};
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (!link_.up()) return complete(op, Status::kUnreachable, link_text());
  if (!link_.usable()) {
    return complete(op, Status::kUnreachable,
                    "the daemon at " + link_.endpoint_text() + " is shutting down");
  }
  asked_.emplace(send(kNoWorker, kSlots, request), op);
  arm(op);
}

// ---- Join --------------------------------------------------------------------------------------

// The worker of this session that has, or asks for, the same name or rank; null: none.
Session::Worker* Session::find_namesake(const JoinRequest& request, bool& same_name) {
  Worker* found = nullptr;
  for (auto& [id, worker] : workers_) {
    const JoinRequest& have = worker.params;
    const bool gone =
        worker.membership == Membership::kLeft || worker.membership == Membership::kFenced;
    if (gone || have.job != request.job) continue;
    const bool joined = worker.membership != Membership::kJoining;
    const std::int64_t rank = joined ? std::int64_t{worker.ref.rank} : have.rank;
    const bool name = have.name == request.name && have.host == request.host;
    if (!name && (request.rank < 0 || rank != request.rank)) continue;
    // One whose handle is in use matters more than one that was forgotten.
    if (found != nullptr && worker.released) continue;
    found = &worker;
    same_name = name;
  }
  return found;
}

// Where a join's state is kept; null, and the operation has failed, if it cannot be.
Session::Worker* Session::join_slot(Op& op, JoinRequest& request) {
  bool same_name = false;
  Worker* namesake = find_namesake(request, same_name);
  // Two live workers of one identity would replace each other at the daemon for ever.
  if (namesake != nullptr && !namesake->released) {
    complete(op, Status::kRankTaken,
             join_text(request) + ": this client has a live " + label(*namesake) + " ('" +
                 namesake->params.name + "') of this " + (same_name ? "name" : "rank") +
                 " already; let it leave first, or give another rank and name");
    return nullptr;
  }
  if (namesake != nullptr && same_name && take_over(*namesake, request)) return namesake;
  const WorkerId id = next_worker_++;
  Worker& worker = workers_[id];
  worker.id = id;
  worker.params = std::move(request);
  worker.own_former = namesake != nullptr;
  return &worker;
}

// A worker whose handle was freed without leaving, or a join whose caller gave up, goes on under a
// new handle. False if it cannot: it is leaving, or asked for something else.
bool Session::take_over(Worker& worker, JoinRequest& request) {
  if (worker.membership == Membership::kJoining) {
    const wire::Join& have = worker.params;
    if (have != request || worker.params.listens() != request.listens()) return false;
  } else {
    if (worker[kLeave].request != 0 || worker[kLeave].sent_before) return false;
    worker[kLeave].active = false;
    worker.membership = Membership::kResuming;
    worker.open = worker.grant_ready = worker.stopped = worker.end_is_lost = false;
    worker.ending.clear();
    worker.fences = 0;
    worker.phase.clear();
    worker[kPhase] = {kPhase};
    worker.members_told = false;
    forget_requests(worker);
  }
  worker.released = worker.advised = false;
  worker.params = std::move(request);
  return true;
}

void Session::join(const Ask& ask, JoinRequest request) {
  now_ = ask.now;
  Op op{ask.op, ask.timeout};
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (is_unreachable()) {
    return complete(op, Status::kUnreachable, join_text(request) + ": " + link_text());
  }
  Worker* worker = join_slot(op, request);
  if (worker == nullptr) return;
  Pending& join = (*worker)[kJoin];
  join.active = true;
  join.op = op;
  arm(op);
  if (join.request == 0 && worker->join_again_us == kNever) send_join(*worker);
}

// ---- Begin, targets, collect -------------------------------------------------------------------

// Refuses a call while another request than this one is in the way: the daemon has one of begin,
// targets and collect of a worker at a time.
void Session::check_wait(const Worker& worker, Kind kind, std::int64_t iteration) {
  const Pending& wait = worker[kWait];
  if (wait.op.id != 0) refuse_another(name_of(wait.kind));
  if (!wait.active || worker.stopped) return;
  if (wait.kind == kind && (kind == kBegin || wait.iteration == iteration)) return;
  refuse_until_answered(name_of(wait.kind), wait.iteration);
}

// One that is pending already is waited for on.
void Session::wait(Worker& worker, Op op, Kind kind, std::int64_t iteration) {
  Pending& wait = worker[kWait];
  wait.op = op;
  arm(op);
  if (!wait.active) {
    wait.active = true;
    wait.sent_before = false;
    wait.kind = kind;
    wait.iteration = iteration;
    worker.wait_since_us = now_;
    plan_telling(worker);
  }
  wake(worker, kWait);
}

void Session::check_begin(const Worker& worker) {
  if (worker[kPush].active) {
    refuse(Status::kState, "push(", worker[kPush].iteration,
           ") is not confirmed yet; push it again to wait for that");
  }
  if (worker.open) {
    refuse(Status::kState, "iteration ", worker.granted, " was granted and is not pushed yet");
  }
}

void Session::begin(const Ask& ask, WorkerId id) {
  call(ask, id, kBegin, -1, [&](Worker& worker, Op op) {
    check_wait(worker, kBegin, worker.next);
    check_stays(worker);
    const bool ready = worker.stopped || worker.grant_ready;
    if (!ready) {
      if (!worker.rounds) check_begin(worker);
      check_link();
      if (worker.rounds) end_round(worker);
    }
    Pending& wait = worker[kWait];
    if (worker.views && !wait.active) worker.shown = worker.data;
    end_phase(worker, !wait.active && !worker.grant_ready);
    wait.kind = kBegin;
    if (!ready) return this->wait(worker, op, kBegin, worker.next);
    wait.op = op;
    return worker.stopped ? deliver_stop(worker) : deliver_grant(worker, std::move(worker.grant));
  });
}

// What the order of the calls must be is the policy's affair, and the daemon says so.
void Session::peer_call(const Ask& ask, WorkerId id, Kind kind, std::int64_t iteration) {
  call(ask, id, kind, iteration, [&](Worker& worker, Op& op) {
    if (iteration == (kind == kTargets ? worker.targets.iteration : worker.collected.iteration)) {
      return deliver_peer_answer(worker, op, kind);
    }
    check_wait(worker, kind, iteration);
    check_stays(worker);
    if (worker.stopped) throw Refused{Status::kStopped, ended_text(worker)};
    check_link();
    wait(worker, op, kind, iteration);
  });
}

void Session::targets(const Ask& ask, WorkerId worker, std::int64_t iteration) {
  peer_call(ask, worker, kTargets, iteration);
}

void Session::collect(const Ask& ask, WorkerId worker, std::int64_t iteration) {
  peer_call(ask, worker, kCollect, iteration);
}

// ---- Consumed, restarted and phase -------------------------------------------------------------

// What they have in common: one caller at a time, and none beside a leave.
void Session::check_notice(const Worker& worker, Kind kind) {
  if (worker[kind].op.id != 0) refuse_another(name_of(kind));
  check_stays(worker);
}

// Precondition: this may be told, and nobody waits for the confirmation of an earlier one, whose
// place it takes.
void Session::tell(Worker& worker, Kind kind, Op op, std::int64_t iteration) {
  Pending& notice = worker[kind];
  SYNCD_CHECK(notice.op.id == 0);
  if (!notice.active || notice.iteration != iteration) {
    notice = {kind};
    notice.active = true;
    notice.iteration = iteration;
  }
  if (op.timeout.allowed_us <= 0) {
    complete_ok(op);
  } else {
    notice.op = op;
    arm(op);
  }
  wake(worker, kind);
}

void Session::consumed(const Ask& ask, WorkerId id, std::int64_t iteration) {
  call(ask, id, kConsumed, iteration, [&](Worker& worker, Op& op) {
    check_notice(worker, kConsumed);
    if (iteration <= worker.consumed) return complete_ok(op);
    const std::int64_t collected = worker.collected.iteration;
    if (collected < 0) refuse_state("nothing was collected yet; collect comes first");
    if (iteration > collected) {
      refuse(Status::kWrongIteration, "the latest collected iteration is ", collected, "");
    }
    if (worker.stopped) return complete_ok(op);  // the job has ended: it has no effect
    check_link();
    // A later one that is pending says as much.
    const Pending& notice = worker[kConsumed];
    tell(worker, kConsumed, op, notice.active ? std::max(iteration, notice.iteration) : iteration);
  });
}

void Session::restarted(const Ask& ask, WorkerId id, std::int64_t iteration) {
  call(ask, id, kRestarted, iteration, [&](Worker& worker, Op op) {
    check_notice(worker, kRestarted);
    if (worker.granted < 0) refuse_state("no iteration was granted yet; begin comes first");
    if (worker.stopped) throw Refused{Status::kStopped, ended_text(worker)};
    const bool computes = worker.open && !worker[kPush].active;
    if (!computes || worker.granted != iteration) {
      throw Refused{Status::kWrongIteration, computes
                                                 ? "iteration " + std::to_string(worker.granted) +
                                                       " is the one that it computes"
                                                 : "it computes no iteration now"};
    }
    check_link();
    clear_resync(worker);
    set_computing_since(worker, now_);
    tell(worker, kRestarted, op, iteration);
  });
}

void Session::phase(const Ask& ask, WorkerId id, std::string name, TimeUs lease_us) {
  call(ask, id, kPhase, -1, [&](Worker& worker, Op& op) {
    check_notice(worker, kPhase);
    if (worker.stopped) return complete_ok(op);  // the job has ended: it has no effect
    check_link();
    SYNCD_CHECK(name.empty() || check_phase(name, lease_us).empty());
    worker.phase = std::move(name);
    worker.phase_until_us = now_ + lease_us;
    worker[kPhase].active = false;  // whatever was announced before
    tell(worker, kPhase, op, -1);
  });
}

// By a begin or a push, of which the daemon hears now and knows by itself what that means; or by
// one that is pending there already, and then it must be told.
void Session::end_phase(Worker& worker, bool told_by_call) {
  if (worker.phase.empty()) return;
  worker.phase.clear();
  Pending& notice = worker[kPhase];
  notice.request = 0;
  notice.active = !told_by_call;
  complete_ok(notice.op);
}

// ---- Push --------------------------------------------------------------------------------------

// True if the push is to be made, or is pending already and is waited for on; false if it was
// counted already: it counts once.
bool Session::check_push(const Worker& worker, std::int64_t iteration) {
  const Pending& push = worker[kPush];
  if (push.op.id != 0) refuse_another("push");
  check_stays(worker);
  if (push.active) {
    if (push.iteration == iteration) return true;
    refuse(Status::kWrongIteration, "push(", push.iteration,
           ") is not confirmed yet and is the one that is due");
  }
  if (worker.open) {
    if (worker.granted == iteration) return true;
    refuse(Status::kWrongIteration, "iteration ", worker.granted, " is the one that is due");
  }
  if (worker.pushed < 0 && (worker.granted < 0 || worker.grant_ready)) {
    refuse_state("no iteration was granted yet; begin comes first");
  }
  if (worker.pushed == iteration) return false;
  refuse(Status::kWrongIteration, "iteration ", worker.due,
         " is the one that is due, after a begin");
}

void Session::push(const Ask& ask, WorkerId id, std::int64_t iteration, const PushInfo& info) {
  call(ask, id, kPush, iteration, [&](Worker& worker, Op& op) {
    if (!check_push(worker, iteration)) {
      return complete_ok(op, PushResult{iteration, worker.pushed_late});
    }
    check_link();
    Pending& push = worker[kPush];
    end_phase(worker, !push.active);
    push.op = op;
    arm(op);
    clear_resync(worker);
    if (!push.active) {
      push.active = true;
      push.sent_before = false;
      push.iteration = iteration;
      worker.push_info = info;
      const auto& signals = worker.params.signals;
      worker.computed_us = signals != nullptr ? signals->computed_us() : -1;
    }
    wake(worker, kPush);
  });
}

// ---- Leave and the rest ------------------------------------------------------------------------

void Session::leave(const Ask& ask, WorkerId id) {
  leave_as(ask, id, wire::LeaveKind::kLeft, {});
}

void Session::leave_as(const Ask& ask, WorkerId id, wire::LeaveKind kind, std::string reason) {
  call(ask, id, kLeave, -1, [&](Worker& worker, Op op) {
    Pending& leave = worker[kLeave];
    if (leave.op.id != 0) refuse_state("another leave is under way");
    check_link();
    if (!leave.active) {  // one that is sent stays what it was
      worker.leave_kind = kind;
      worker.leave_reason = std::move(reason);
    }
    leave.op = op;
    if (kind > wire::LeaveKind::kFinished) worker.must_save.reset();  // it cannot save any more
    if (worker.must_save) return deliver_must_save(worker);
    arm(op);
    leave.active = true;
    wake(worker, kLeave);
  });
}

void Session::explain(const Ask& ask, WorkerId worker) {
  ask_aside(ask, worker, kExplain);
}

void Session::members(const Ask& ask, WorkerId worker) {
  ask_aside(ask, worker, kMembers);
}

void Session::inspected(const Ask& ask, WorkerId id, std::uint64_t number, std::string_view text) {
  now_ = ask.now;
  const auto found = workers_.find(id);
  if (found != workers_.end() && found->second.membership == Membership::kJoined &&
      link_.usable()) {
    // Nobody waits for its answer.
    send(id, kSlots, wire::Inspected{found->second.ref, number, {text.begin(), text.end()}});
  }
  Op op{ask.op, ask.timeout};
  complete_ok(op);
}

void Session::ask_aside(const Ask& ask, WorkerId id, Kind kind) {
  call(ask, id, kind, -1, [&](Worker& worker, Op op) {
    check_link();
    send_aside(worker, kind, op, 0);
  });
}

void Session::request(const Ask& ask, WorkerId id, const char* name, wire::Body body) {
  call(ask, id, kRequest, -1, [&](Worker& worker, Op op) {
    check_link();
    Side& side = add_side(worker, kRequest, op, -1);
    side.name = name;
    side.body = std::move(body);
    wake(worker);
  });
}

// With an empty `op` no caller waits for the answer.
void Session::send_aside(Worker& worker, Kind kind, Op op, std::int64_t iteration,
                         std::uint64_t view) {
  add_side(worker, kind, op, iteration).view.view = view;
  wake(worker);
}

Session::Side& Session::add_side(Worker& worker, Kind kind, Op op, std::int64_t iteration) {
  Side& side = worker.sides.emplace_back();
  side.kind = kind;
  side.active = true;
  side.iteration = iteration;
  side.op = op;
  if (op.id != 0) arm(op);
  return side;
}

void Session::check_views(const Worker& worker) {
  if (worker.views) return;
  throw Refused{Status::kUnsupported, "job '" + worker.params.job + "' has no views"};
}

void Session::set_data(const Ask& ask, WorkerId id, std::vector<std::uint8_t> data) {
  call(ask, id, kData, -1, [&](Worker& worker, Op& op) {
    check_views(worker);
    worker.data = std::move(data);
    complete_ok(op);
  });
}

void Session::view(const Ask& ask, WorkerId id, std::uint64_t number) {
  call(ask, id, kView, -1, [&](Worker& worker, Op op) {
    check_views(worker);
    if (number == 0) number = worker.round.number;
    if (number == 0) refuse_state("no view was granted yet; begin comes first");
    check_link();
    send_aside(worker, kView, op, 0, number);
  });
}

void Session::cancel_begin(const Ask& ask, WorkerId id) {
  call(ask, id, kCancel, -1, [&](Worker& worker, Op& op) {
    Pending& wait = worker[kWait];
    complete(wait.op, Status::kCancelled, call_text(wait, worker) + " was cancelled");
    const bool known = wait.active && (wait.request != 0 || wait.sent_before);
    end_wait(worker);
    if (!known) return complete_ok(op);
    send_aside(worker, kCancel, op, wait.iteration);
  });
}

void Session::release(WorkerId id, TimeUs now) {
  now_ = now;
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  worker.released = true;
  worker.params.signals.reset();
  worker.advised = false;
  fail_waiting(worker, Status::kClosed, "the worker's handle was freed");
  const bool gone =
      worker.membership == Membership::kLeft || worker.membership == Membership::kFenced;
  if (gone) return erase(id);
  // A request that nobody will wait for must not hold up the others' view of this worker.
  if (!worker[kWait].active) return;
  end_wait(worker);
  send_aside(worker, kCancel, {}, worker[kWait].iteration);
}

void Session::close() {
  if (closed_) return;
  closed_ = true;
  link_.close();
  for (Connecting& op : connecting_) complete(op, Status::kCancelled, "the client was closed");
  connecting_.clear();
  fail_asked(Status::kCancelled, "the client was closed");
  for (auto& [id, worker] : workers_) {
    fail_waiting(worker, Status::kCancelled, "the client was closed");
  }
  workers_.clear();
  by_rank_.clear();
}

// ---- The connection ----------------------------------------------------------------------------

void Session::on_bytes(std::uint64_t number, std::span<const std::uint8_t> bytes, TimeUs now) {
  now_ = now;
  link_.on_bytes(number, bytes, now);
  if (!connecting_.empty()) check_refusal();
}

void Session::on_disconnected(std::uint64_t number, std::string_view reason, TimeUs now) {
  now_ = now;
  link_.on_disconnected(number, reason, now);
  check_refusal();
}

void Session::on_refused(std::uint64_t number, Status status, std::string_view reason, TimeUs now) {
  now_ = now;
  link_.on_refused(number, status, reason, now);
  check_refusal();
}

void Session::on_time(TimeUs now) {
  if (closed_) return;
  now_ = now;
  if (now >= link_.next_deadline()) link_.on_time(now);
  check_refusal();
  if (now >= scan_at_us_) expire();
  if (now >= say_at_us_) say_exchanges();
  if (!reported_unreachable_ && now >= unreachable_due_us()) fail_unreachable();
}

void Session::link_up() {
  reported_unreachable_ = false;
  for (Connecting& op : connecting_) complete_ok(op, connect_result());
  connecting_.clear();
  for (auto& [id, worker] : workers_) {
    const bool resumes = worker.membership == Membership::kResuming;
    const bool asks =
        worker.membership == Membership::kJoining || worker.membership == Membership::kDetached;
    if (resumes || (asks && has_pending(worker))) send_join(worker);
  }
}

void Session::link_down() {
  early_notices_.clear();
  fail_asked(Status::kUnreachable, link_text());
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = (at++)->second;
    forget_requests(worker);
    worker.join_again_us = worker.ask_until_us = kNever;
    // One whose loop has ended takes part no more: a daemon that has lost that it was sent away
    // would have the others wait for it. Its next call, if there is one, asks again.
    const bool over = worker.stopped && !has_pending(worker);
    if (worker.membership == Membership::kJoined) {
      worker.membership = over ? Membership::kDetached : Membership::kResuming;
    }
    if (worker[kWhy].active) finish_wait_timeout(worker, link_text());
    // Nobody waits for this join; if it had its effect, the daemon gives the place up by itself.
    if (worker.released && worker.membership == Membership::kJoining) erase(worker.id);
  }
}

}  // namespace syncd::client
