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

Session::Op Session::start(const Ask& ask) {
  now_ = ask.now;
  return {ask.op, ask.timeout};
}

void Session::arm(const Op& op) {
  scan_at_us_ = std::min(scan_at_us_, op.timeout.deadline_us);
}

// The worker that an operation is for; null, and the operation has failed, if it can have none.
Session::Worker* Session::admit(Op& op, WorkerId id) {
  const auto refuse = [&](Status status, std::string reason) {
    complete(op, status, std::move(reason));
    return nullptr;
  };
  if (closed_) return refuse(Status::kClosed, "the client is closed");
  const auto found = workers_.find(id);
  if (found == workers_.end() || found->second.membership == Membership::kLeft) {
    return refuse(Status::kClosed, "the worker has left its job");
  }
  Worker& worker = found->second;
  if (worker.membership == Membership::kFenced) return refuse(Status::kFenced, worker.failure);
  // Asked for by one who did not wait, and then freed the handle.
  if (worker.released) return refuse(Status::kClosed, "the worker's handle was freed");
  return &worker;
}

// False, always.
bool Session::refuse(Op& op, Status status, Kind kind, std::int64_t iteration, const Worker& worker,
                     const std::string& reason) {
  complete(op, status, call_text(kind, iteration, worker) + ": " + reason);
  return false;
}

// A call that comes after the daemon has been lost for too long fails at once.
bool Session::admit_link(Op& op, Kind kind, std::int64_t iteration, const Worker& worker) {
  return link_.up() || now_ < unreachable_due_us() ||
         refuse(op, Status::kUnreachable, kind, iteration, worker, link_text());
}

// Sends what is now pending, or asks to resume first where the daemon would not at the last try.
void Session::wake(Worker& worker) {
  if (worker.membership == Membership::kDetached) {
    resume(worker);
  } else {
    send_pending(worker);
  }
}

void Session::clear_resync(Worker& worker) {
  if (std::exchange(worker.advised, false)) worker.params.signals->set_resync(false);
}

void Session::connect(const Ask& ask) {
  Op op = start(ask);
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (connect_op_.id != 0) return complete(op, Status::kState, "connect is under way already");
  if (link_.up()) return complete_ok(op, ConnectResult{link_.endpoint_text()});
  connect_op_ = op;
  arm(op);
  check_refusal();
}

void Session::ask(const Ask& ask, const wire::Body& request) {
  Op op = start(ask);
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
    const JoinRequest& have = worker.params;
    if (have.rank != request.rank || have.policy != request.policy ||
        have.world_size != request.world_size || have.data != request.data ||
        have.listens() != request.listens()) {
      return false;
    }
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
  Op op = start(ask);
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (now_ >= unreachable_due_us()) {
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
bool Session::refuse_other_wait(Op& op, Kind kind, std::int64_t iteration, const Worker& worker) {
  const Pending& wait = worker[kWait];
  const auto name = [&] { return std::string(name_of(wait.kind)); };
  if (wait.op.id != 0) {
    return !refuse(op, Status::kState, kind, iteration, worker,
                   "another " + name() + " of this worker is under way");
  }
  if (!wait.active || worker.stopped) return false;
  if (wait.kind == kind && (kind == kBegin || wait.iteration == iteration)) return false;
  return !refuse(op, Status::kState, kind, iteration, worker,
                 name() + "(" + std::to_string(wait.iteration) +
                     ") is not answered yet; call it again to wait for that");
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
  }
  wake(worker);
}

bool Session::admit_begin(Worker& worker, Op& op) {
  const auto refuse = [&](const std::string& reason) {
    return this->refuse(op, Status::kState, kBegin, worker.next, worker, reason);
  };
  if (refuse_other_wait(op, kBegin, worker.next, worker)) return false;
  if (worker[kLeave].active) return refuse("this worker is leaving");
  if (worker.stopped || worker.grant_ready) return true;
  if (worker[kPush].active) {
    return refuse("push(" + std::to_string(worker[kPush].iteration) +
                  ") is not confirmed yet; push it again to wait for that");
  }
  if (worker.open) {
    return refuse("iteration " + std::to_string(worker.granted) +
                  " was granted and is not pushed yet");
  }
  return admit_link(op, kBegin, worker.next, worker);
}

void Session::begin(const Ask& ask, WorkerId id) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_begin(*worker, op)) return;
  Pending& wait = (*worker)[kWait];
  end_phase(*worker, !wait.active && !worker->grant_ready);
  wait.kind = kBegin;
  if (worker->stopped || worker->grant_ready) {
    wait.op = op;
    return worker->stopped ? deliver_stop(*worker) : deliver_grant(*worker);
  }
  this->wait(*worker, op, kBegin, worker->next);
}

// What the order of the calls must be is the policy's affair, and the daemon says so.
void Session::peer_call(const Ask& ask, WorkerId id, Kind kind, std::int64_t iteration) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  const auto refuse = [&](Status status, const std::string& reason) {
    this->refuse(op, status, kind, iteration, *worker, reason);
  };
  if (iteration == (kind == kTargets ? worker->targets.iteration : worker->collected.iteration)) {
    return deliver_peer_answer(*worker, op, kind);
  }
  if (refuse_other_wait(op, kind, iteration, *worker)) return;
  if ((*worker)[kLeave].active) return refuse(Status::kState, "this worker is leaving");
  if (worker->stopped) return refuse(Status::kStopped, ended_text(*worker));
  if (admit_link(op, kind, iteration, *worker)) wait(*worker, op, kind, iteration);
}

void Session::targets(const Ask& ask, WorkerId worker, std::int64_t iteration) {
  peer_call(ask, worker, kTargets, iteration);
}

void Session::collect(const Ask& ask, WorkerId worker, std::int64_t iteration) {
  peer_call(ask, worker, kCollect, iteration);
}

// ---- Consumed, restarted and phase -------------------------------------------------------------

// What they have in common: one caller at a time, and none beside a leave.
bool Session::admit_notice(Worker& worker, Kind kind, Op& op, std::int64_t iteration) {
  const bool busy = worker[kind].op.id != 0;
  if (!busy && !worker[kLeave].active) return true;
  return refuse(op, Status::kState, kind, iteration, worker,
                busy ? std::string("another ") + name_of(kind) + " of this worker is under way"
                     : "this worker is leaving");
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
  wake(worker);
}

void Session::consumed(const Ask& ask, WorkerId id, std::int64_t iteration) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_notice(*worker, kConsumed, op, iteration)) return;
  const auto refuse = [&](Status status, const std::string& reason) {
    this->refuse(op, status, kConsumed, iteration, *worker, reason);
  };
  if (iteration <= worker->consumed) return complete_ok(op);
  if (worker->collected.iteration < 0) {
    return refuse(Status::kState, "nothing was collected yet; collect comes first");
  }
  if (iteration > worker->collected.iteration) {
    return refuse(Status::kWrongIteration, "the latest collected iteration is " +
                                               std::to_string(worker->collected.iteration));
  }
  if (worker->stopped) return complete_ok(op);  // the job has ended: it has no effect
  if (!admit_link(op, kConsumed, iteration, *worker)) return;
  // A later one that is pending says as much.
  const Pending& notice = (*worker)[kConsumed];
  tell(*worker, kConsumed, op, notice.active ? std::max(iteration, notice.iteration) : iteration);
}

void Session::restarted(const Ask& ask, WorkerId id, std::int64_t iteration) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_notice(*worker, kRestarted, op, iteration)) return;
  const auto refuse = [&](Status status, const std::string& reason) {
    this->refuse(op, status, kRestarted, iteration, *worker, reason);
  };
  if (worker->granted < 0) {
    return refuse(Status::kState, "no iteration was granted yet; begin comes first");
  }
  if (worker->stopped) return refuse(Status::kStopped, ended_text(*worker));
  const bool computes = worker->open && !(*worker)[kPush].active;
  if (!computes || worker->granted != iteration) {
    return refuse(Status::kWrongIteration, computes
                                               ? "iteration " + std::to_string(worker->granted) +
                                                     " is the one that it computes"
                                               : "it computes no iteration now");
  }
  if (!admit_link(op, kRestarted, iteration, *worker)) return;
  clear_resync(*worker);
  tell(*worker, kRestarted, op, iteration);
}

void Session::phase(const Ask& ask, WorkerId id, std::string name, TimeUs lease_us) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_notice(*worker, kPhase, op, -1)) return;
  if (worker->stopped) return complete_ok(op);  // the job has ended: it has no effect
  if (!admit_link(op, kPhase, -1, *worker)) return;
  SYNCD_CHECK(name.empty() || check_phase(name, lease_us).empty());
  worker->phase = std::move(name);
  worker->phase_until_us = now_ + lease_us;
  (*worker)[kPhase].active = false;  // whatever was announced before
  tell(*worker, kPhase, op, -1);
}

bool Session::in_phase(const Worker& worker) const {
  return !worker.phase.empty() && now_ < worker.phase_until_us;
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

// True if the push is to be made, or is pending already and is waited for on.
bool Session::admit_push(Worker& worker, Op& op, std::int64_t iteration) {
  const Pending& push = worker[kPush];
  const auto refuse = [&](Status status, const std::string& reason) {
    return this->refuse(op, status, kPush, iteration, worker, reason);
  };
  if (push.op.id != 0) return refuse(Status::kState, "another push of this worker is under way");
  if (worker[kLeave].active) return refuse(Status::kState, "this worker is leaving");
  if (push.active) {
    return push.iteration == iteration ||
           refuse(Status::kWrongIteration, "push(" + std::to_string(push.iteration) +
                                               ") is not confirmed yet and is the one that is due");
  }
  if (worker.open) {
    return worker.granted == iteration ||
           refuse(Status::kWrongIteration,
                  "iteration " + std::to_string(worker.granted) + " is the one that is due");
  }
  if (worker.pushed < 0 && (worker.granted < 0 || worker.grant_ready)) {
    return refuse(Status::kState, "no iteration was granted yet; begin comes first");
  }
  if (worker.pushed != iteration) {
    return refuse(Status::kWrongIteration, "iteration " + std::to_string(worker.due) +
                                               " is the one that is due, after a begin");
  }
  complete_ok(op, PushResult{worker.pushed_late});  // counted already, and counts once
  return false;
}

void Session::push(const Ask& ask, WorkerId id, std::int64_t iteration, const PushInfo& info) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_push(*worker, op, iteration)) return;
  if (!admit_link(op, kPush, iteration, *worker)) return;
  Pending& push = (*worker)[kPush];
  end_phase(*worker, !push.active);
  push.op = op;
  arm(op);
  clear_resync(*worker);
  if (!push.active) {
    push.active = true;
    push.sent_before = false;
    push.iteration = iteration;
    worker->push_body = {{}, iteration, info.loss, info.samples, info.bytes};
  }
  wake(*worker);
}

// ---- Leave and the rest ------------------------------------------------------------------------

void Session::leave(const Ask& ask, WorkerId id) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  Pending& leave = (*worker)[kLeave];
  if (leave.op.id != 0) {
    refuse(op, Status::kState, kLeave, -1, *worker, "another leave is under way");
    return;
  }
  if (!admit_link(op, kLeave, -1, *worker)) return;
  leave.op = op;
  arm(op);
  leave.active = true;
  wake(*worker);
}

void Session::explain(const Ask& ask, WorkerId worker) {
  ask_aside(ask, worker, kExplain);
}

void Session::members(const Ask& ask, WorkerId worker) {
  ask_aside(ask, worker, kMembers);
}

void Session::ask_aside(const Ask& ask, WorkerId id, Kind kind) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_link(op, kind, -1, *worker)) return;
  send_aside(*worker, kind, op, 0);
}

// With an empty `op` no caller waits for the answer.
void Session::send_aside(Worker& worker, Kind kind, Op op, std::int64_t iteration) {
  Side& side = worker.sides.emplace_back();
  side.kind = kind;
  side.active = true;
  side.iteration = iteration;
  side.op = op;
  if (op.id != 0) arm(op);
  wake(worker);
}

void Session::cancel_begin(const Ask& ask, WorkerId id) {
  Op op = start(ask);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  Pending& wait = (*worker)[kWait];
  complete(wait.op, Status::kCancelled, call_text(wait, *worker) + " was cancelled");
  const bool known = wait.active && (wait.request != 0 || wait.sent_before);
  end_wait(*worker);
  if (!known) return complete_ok(op);
  send_aside(*worker, kCancel, op, wait.iteration);
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
  complete(connect_op_, Status::kCancelled, "the client was closed");
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
  check_refusal();
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
  if (!reported_unreachable_ && now >= unreachable_due_us()) fail_unreachable();
}

TimeUs Session::next_deadline() const {
  if (closed_) return kNever;
  const TimeUs unreachable = reported_unreachable_ ? kNever : unreachable_due_us();
  return std::min({link_.next_deadline(), scan_at_us_, unreachable});
}

void Session::link_up() {
  reported_unreachable_ = false;
  complete_ok(connect_op_, ConnectResult{link_.endpoint_text()});
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
