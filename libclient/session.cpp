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

Session::Op Session::make_op(OpId id, Timeout timeout) {
  Op op;
  op.id = id;
  op.deadline_us = timeout.deadline_us;
  op.allowed_us = timeout.allowed_us;
  op.waiting = true;
  return op;
}

void Session::arm(const Op& op) {
  scan_at_us_ = std::min(scan_at_us_, op.deadline_us);
}

// The worker that an operation is for; null, and the operation has failed, if it can have none.
Session::Worker* Session::admit(Op& op, WorkerId worker) {
  if (closed_) {
    complete(op, Status::kClosed, "the client is closed");
    return nullptr;
  }
  const auto found = workers_.find(worker);
  if (found == workers_.end() || found->second.membership == Membership::kLeft) {
    complete(op, Status::kClosed, "the worker has left its job");
    return nullptr;
  }
  if (found->second.membership == Membership::kFenced) {
    complete(op, Status::kFenced, found->second.failure);
    return nullptr;
  }
  if (found->second.released) {  // asked for by one who did not wait, and then freed the handle
    complete(op, Status::kClosed, "the worker's handle was freed");
    return nullptr;
  }
  return &found->second;
}

// Whoever calls after the daemon has been lost for too long is told at once.
bool Session::admit_link(Op& op, const char* call, std::int64_t iteration, const Worker& worker,
                         TimeUs now) {
  if (now < unreachable_due_us()) return true;
  complete(op, Status::kUnreachable, call_text(call, iteration, worker) + ": " + link_text(now));
  return false;
}

// Sends what now stands, or asks to resume first where the daemon would not at the last try.
void Session::wake(Worker& worker, TimeUs now) {
  if (worker.membership == Membership::kDetached) {
    resume(worker, now);
  } else {
    send_standing(worker, now);
  }
}

void Session::clear_resync(Worker& worker) {
  if (worker.params.signals) worker.params.signals->set_resync(false);
}

void Session::connect(OpId op_id, Timeout timeout) {
  Op op = make_op(op_id, timeout);
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (connect_op_.waiting) return complete(op, Status::kState, "connect is under way already");
  if (link_.up()) return complete_ok(op, ConnectResult{link_.endpoint_text()});
  connect_op_ = op;
  arm(op);
  check_refusal();
}

void Session::ask(OpId op_id, wire::Body request, Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (!link_.up()) return complete(op, Status::kUnreachable, link_text(now));
  if (!link_.usable()) {
    return complete(op, Status::kUnreachable,
                    "the daemon at " + link_.endpoint_text() + " is shutting down");
  }
  asked_.push_back({send(Kind::kAsk, kNoWorker, std::move(request), now), op});
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
    if (worker.leave.request != 0 || worker.leave.sent_before) return false;
    worker.leave.active = false;
    worker.membership = Membership::kResuming;
    worker.open = worker.grant_ready = worker.stopped = worker.end_is_lost = false;
    worker.ending.clear();
    worker.fences = 0;
    worker.phase.clear();
    worker.phase_notice.standing = Standing{};
    worker.members_told = false;
    forget_requests(worker);
  }
  worker.released = false;
  worker.params = std::move(request);
  return true;
}

void Session::join(OpId op_id, JoinRequest request, Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  if (closed_) return complete(op, Status::kClosed, "the client is closed");
  if (now >= unreachable_due_us()) {
    return complete(op, Status::kUnreachable, join_text(request) + ": " + link_text(now));
  }
  Worker* worker = join_slot(op, request);
  if (worker == nullptr) return;
  worker->join.active = true;
  worker->join.op = op;
  arm(op);
  if (worker->join.request == 0 && worker->join_again_us == kNever) send_join(*worker, now);
}

// ---- Begin -------------------------------------------------------------------------------------

// Whether another request than this one keeps it from standing: the daemon has one of begin,
// targets and collect of a worker at a time.
bool Session::other_wait_stands(const Worker& worker, WaitCall call, std::int64_t iteration,
                                std::string& reason) const {
  if (worker.wait.op.waiting) {
    reason = std::string("another ") + name_of(worker.wait_call) + " of this worker is under way";
    return true;
  }
  if (!worker.wait.active || worker.stopped) return false;
  if (worker.wait_call == call && (call == WaitCall::kBegin || worker.wait_iteration == iteration))
    return false;
  reason = std::string(name_of(worker.wait_call)) + "(" + std::to_string(worker.wait_iteration) +
           ") is not answered yet; call it again to wait for that";
  return true;
}

// Precondition: a caller waits in `worker.wait`.
void Session::stand(Worker& worker, WaitCall call, std::int64_t iteration, TimeUs now) {
  SYNCD_CHECK(worker.wait.op.waiting);
  arm(worker.wait.op);
  if (!worker.wait.active) {
    worker.wait.active = true;
    worker.wait.sent_before = false;
    worker.wait_call = call;
    worker.wait_iteration = iteration;
  }
  wake(worker, now);
}

bool Session::admit_begin(Worker& worker, Op& op, TimeUs now) {
  const auto refuse = [&](const std::string& reason) {
    complete(op, Status::kState, call_text("begin", worker.next, worker) + ": " + reason);
    return false;
  };
  std::string other;
  if (other_wait_stands(worker, WaitCall::kBegin, worker.next, other)) return refuse(other);
  if (worker.leave.active) return refuse("this worker is leaving");
  if (worker.stopped || worker.grant_ready) return true;
  if (worker.push.active) {
    return refuse("push(" + std::to_string(worker.push_body.iteration) +
                  ") is not confirmed yet; push it again to wait for that");
  }
  if (worker.open) {
    return refuse("iteration " + std::to_string(worker.granted) +
                  " was granted and is not pushed yet");
  }
  return admit_link(op, "begin", worker.next, worker, now);
}

void Session::begin(OpId op_id, WorkerId id, Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_begin(*worker, op, now)) return;
  end_phase(*worker, !worker->wait.active && !worker->grant_ready);
  worker->wait.op = op;
  worker->wait_call = WaitCall::kBegin;
  if (worker->stopped) return deliver_stop(*worker);
  if (worker->grant_ready) return deliver_grant(*worker);
  stand(*worker, WaitCall::kBegin, worker->next, now);
}

// ---- Targets and collect -----------------------------------------------------------------------

// True if the request is to be made, or stands already and is waited for on. What the order of the
// calls must be is the policy's affair, and the daemon says so.
bool Session::admit_peer_call(Worker& worker, Op& op, WaitCall call, std::int64_t iteration,
                              TimeUs now) {
  const char* name = name_of(call);
  const auto refuse = [&](Status status, const std::string& reason) {
    complete(op, status, call_text(name, iteration, worker) + ": " + reason);
    return false;
  };
  const std::int64_t answered =
      call == WaitCall::kTargets ? worker.targets.iteration : worker.collected.iteration;
  if (iteration == answered) {
    deliver_peer_answer(worker, op, call);
    return false;
  }
  std::string other;
  if (other_wait_stands(worker, call, iteration, other)) return refuse(Status::kState, other);
  if (worker.leave.active) return refuse(Status::kState, "this worker is leaving");
  if (worker.stopped) return refuse(Status::kStopped, ended_text(worker));
  return admit_link(op, name, iteration, worker, now);
}

void Session::peer_call(OpId op_id, WorkerId id, WaitCall call, std::int64_t iteration,
                        Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_peer_call(*worker, op, call, iteration, now)) return;
  worker->wait.op = op;
  stand(*worker, call, iteration, now);
}

void Session::targets(OpId op, WorkerId worker, std::int64_t iteration, Timeout timeout,
                      TimeUs now) {
  peer_call(op, worker, WaitCall::kTargets, iteration, timeout, now);
}

void Session::collect(OpId op, WorkerId worker, std::int64_t iteration, Timeout timeout,
                      TimeUs now) {
  peer_call(op, worker, WaitCall::kCollect, iteration, timeout, now);
}

// ---- Consumed, restarted and phase -------------------------------------------------------------

// What they have in common: one caller at a time, and none beside a leave.
bool Session::admit_notice(Worker& worker, const Notice& notice, Op& op, std::int64_t iteration) {
  const bool busy = notice.standing.op.waiting;
  if (!busy && !worker.leave.active) return true;
  complete(op, Status::kState,
           call_text(notice.call, iteration, worker) + ": " +
               (busy ? std::string("another ") + notice.call + " of this worker is under way"
                     : "this worker is leaving"));
  return false;
}

// Precondition: this may be told, and nobody waits for the confirmation of an earlier one, whose
// place it takes.
void Session::tell(Worker& worker, Notice& notice, Op op, std::int64_t iteration, TimeUs now) {
  Standing& standing = notice.standing;
  SYNCD_CHECK(!standing.op.waiting);
  if (!standing.active || notice.iteration != iteration) {
    forget(standing.request);
    standing = Standing{};
    standing.active = true;
    notice.iteration = iteration;
  }
  if (op.allowed_us <= 0) {
    complete_ok(op, std::monostate{});
  } else {
    standing.op = op;
    arm(op);
  }
  wake(worker, now);
}

void Session::consumed(OpId op_id, WorkerId id, std::int64_t iteration, Timeout timeout,
                       TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  Notice& notice = worker->consumed_notice;
  const auto refuse = [&](Status status, const std::string& reason) {
    complete(op, status, call_text("consumed", iteration, *worker) + ": " + reason);
  };
  if (!admit_notice(*worker, notice, op, iteration)) return;
  if (iteration <= worker->consumed) return complete_ok(op, std::monostate{});
  if (worker->collected.iteration < 0) {
    return refuse(Status::kState, "nothing was collected yet; collect comes first");
  }
  if (iteration > worker->collected.iteration) {
    return refuse(Status::kWrongIteration, "the latest collected iteration is " +
                                               std::to_string(worker->collected.iteration));
  }
  if (worker->stopped) return complete_ok(op, std::monostate{});  // nobody waits for it any more
  if (!admit_link(op, notice.call, iteration, *worker, now)) return;
  // A later one that stands says as much.
  if (notice.standing.active) iteration = std::max(iteration, notice.iteration);
  tell(*worker, notice, op, iteration, now);
}

void Session::restarted(OpId op_id, WorkerId id, std::int64_t iteration, Timeout timeout,
                        TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  const auto refuse = [&](Status status, const std::string& reason) {
    complete(op, status, call_text("restarted", iteration, *worker) + ": " + reason);
  };
  if (!admit_notice(*worker, worker->restarted_notice, op, iteration)) return;
  if (worker->granted < 0) {
    return refuse(Status::kState, "no iteration was granted yet; begin comes first");
  }
  if (worker->stopped) return refuse(Status::kStopped, ended_text(*worker));
  if (worker->push.active || !worker->open || worker->granted != iteration) {
    const bool computing = worker->open && !worker->push.active;
    return refuse(Status::kWrongIteration, computing
                                               ? "iteration " + std::to_string(worker->granted) +
                                                     " is the one that it computes"
                                               : "it computes no iteration now");
  }
  if (!admit_link(op, "restarted", iteration, *worker, now)) return;
  clear_resync(*worker);
  tell(*worker, worker->restarted_notice, op, iteration, now);
}

void Session::phase(OpId op_id, WorkerId id, std::string name, TimeUs lease_us, Timeout timeout,
                    TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  Notice& notice = worker->phase_notice;
  if (!admit_notice(*worker, notice, op, -1)) return;
  if (worker->stopped) return complete_ok(op, std::monostate{});  // nobody waits for it any more
  if (!admit_link(op, notice.call, -1, *worker, now)) return;
  SYNCD_CHECK(name.empty() || check_phase(name, lease_us).empty());
  worker->phase = std::move(name);
  worker->phase_until_us = now + lease_us;
  forget(notice.standing.request);  // whatever was announced before
  notice.standing.active = false;
  tell(*worker, notice, op, -1, now);
}

bool Session::in_phase(const Worker& worker, TimeUs now) {
  return !worker.phase.empty() && now < worker.phase_until_us;
}

// By a begin or a push, of which the daemon hears now and knows by itself what that means; or by
// one that stands there already, and then it must be told.
void Session::end_phase(Worker& worker, bool told_by_call) {
  if (worker.phase.empty()) return;
  worker.phase.clear();
  Standing& standing = worker.phase_notice.standing;
  forget(standing.request);
  standing.active = !told_by_call;
  complete_ok(standing.op, std::monostate{});
}

// ---- Push --------------------------------------------------------------------------------------

// True if the push is to be made, or stands already and is waited for on.
bool Session::admit_push(Worker& worker, Op& op, std::int64_t iteration) {
  const auto refuse = [&](Status status, const std::string& reason) {
    complete(op, status, call_text("push", iteration, worker) + ": " + reason);
    return false;
  };
  if (worker.push.op.waiting) {
    return refuse(Status::kState, "another push of this worker is under way");
  }
  if (worker.leave.active) return refuse(Status::kState, "this worker is leaving");
  if (worker.push.active) {
    if (worker.push_body.iteration == iteration) return true;
    return refuse(Status::kWrongIteration, "push(" + std::to_string(worker.push_body.iteration) +
                                               ") is not confirmed yet and is the one that is due");
  }
  if (worker.open) {
    if (worker.granted == iteration) return true;
    return refuse(Status::kWrongIteration,
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

void Session::push(OpId op_id, WorkerId id, std::int64_t iteration, const PushInfo& info,
                   Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr || !admit_push(*worker, op, iteration)) return;
  if (!admit_link(op, "push", iteration, *worker, now)) return;
  end_phase(*worker, !worker->push.active);
  worker->push.op = op;
  arm(op);
  clear_resync(*worker);
  if (!worker->push.active) {
    worker->push.active = true;
    worker->push.sent_before = false;
    worker->push_body.iteration = iteration;
    worker->push_body.loss = info.loss;
    worker->push_body.samples = info.samples;
    worker->push_body.bytes = info.bytes;
  }
  wake(*worker, now);
}

// ---- Leave and the rest ------------------------------------------------------------------------

void Session::leave(OpId op_id, WorkerId id, Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  if (worker->leave.op.waiting) {
    return complete(op, Status::kState,
                    call_text("leave", -1, *worker) + ": another leave is under way");
  }
  if (!admit_link(op, "leave", -1, *worker, now)) return;
  worker->leave.op = op;
  arm(op);
  worker->leave.active = true;
  wake(*worker, now);
}

void Session::explain(OpId op, WorkerId worker, Timeout timeout, TimeUs now) {
  ask_aside(op, worker, Aside::kExplain, timeout, now);
}

void Session::members(OpId op, WorkerId worker, Timeout timeout, TimeUs now) {
  ask_aside(op, worker, Aside::kMembers, timeout, now);
}

void Session::ask_aside(OpId op_id, WorkerId id, Aside what, Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  if (!admit_link(op, name_of(what), -1, *worker, now)) return;
  Side side;
  side.what = what;
  side.op = op;
  worker->sides.push_back(std::move(side));
  arm(op);
  wake(*worker, now);
}

void Session::cancel_begin(OpId op_id, WorkerId id, Timeout timeout, TimeUs now) {
  Op op = make_op(op_id, timeout);
  Worker* worker = admit(op, id);
  if (worker == nullptr) return;
  complete(worker->wait.op, Status::kCancelled, wait_text(*worker) + " was cancelled");
  const bool known = worker->wait.request != 0 || worker->wait.sent_before;
  const bool standing = std::exchange(worker->wait.active, false);
  forget(worker->wait.request);
  forget(worker->explain_request);
  worker->explaining = false;
  if (!standing || !known) return complete_ok(op, std::monostate{});
  Side side;
  side.what = Aside::kCancel;
  side.iteration = worker->wait_iteration;
  side.op = op;
  worker->sides.push_back(std::move(side));
  arm(op);
  wake(*worker, now);
}

void Session::release(WorkerId id, TimeUs now) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  worker.released = true;
  worker.params.signals.reset();
  fail_waiting(worker, Status::kClosed, "the worker's handle was freed");
  const bool gone =
      worker.membership == Membership::kLeft || worker.membership == Membership::kFenced;
  if (gone) return erase(id);
  // A request that nobody will wait for must not hold up the others' view of this worker.
  if (worker.wait.active) {
    worker.wait.active = false;
    forget(worker.wait.request);
    Side side;
    side.what = Aside::kCancel;
    side.iteration = worker.wait_iteration;
    worker.sides.push_back(std::move(side));
    wake(worker, now);
  }
}

void Session::close() {
  if (closed_) return;
  closed_ = true;
  link_.close();
  requests_.clear();
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
  link_.on_bytes(number, bytes, now);
  check_refusal();
}

void Session::on_disconnected(std::uint64_t number, std::string_view reason, TimeUs now) {
  link_.on_disconnected(number, reason, now);
  check_refusal();
}

void Session::on_refused(std::uint64_t number, Status status, std::string_view reason, TimeUs now) {
  link_.on_refused(number, status, reason, now);
  check_refusal();
}

void Session::on_time(TimeUs now) {
  if (closed_) return;
  if (now >= link_.next_deadline()) link_.on_time(now);
  check_refusal();
  if (now >= scan_at_us_) expire(now);
  if (!reported_unreachable_ && now >= unreachable_due_us()) fail_unreachable(now);
}

TimeUs Session::next_deadline() const {
  if (closed_) return kNever;
  const TimeUs unreachable = reported_unreachable_ ? kNever : unreachable_due_us();
  return std::min({link_.next_deadline(), scan_at_us_, unreachable});
}

void Session::link_up(TimeUs now) {
  reported_unreachable_ = false;
  complete_ok(connect_op_, ConnectResult{link_.endpoint_text()});
  for (auto& [id, worker] : workers_) {
    const bool resumes = worker.membership == Membership::kResuming;
    const bool asks =
        worker.membership == Membership::kJoining || worker.membership == Membership::kDetached;
    if (resumes || (asks && has_standing(worker))) send_join(worker, now);
  }
}

void Session::link_down(TimeUs now) {
  requests_.clear();
  early_notices_.clear();
  fail_asked(Status::kUnreachable, link_text(now));
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = (at++)->second;
    forget_requests(worker);
    worker.join_again_us = worker.ask_until_us = kNever;
    // One whose loop has ended takes part no more: a daemon that has lost that it was sent away
    // would have the others wait for it. Its next call, if there is one, asks again.
    const bool over = worker.stopped && !has_standing(worker);
    if (worker.membership == Membership::kJoined) {
      worker.membership = over ? Membership::kDetached : Membership::kResuming;
    }
    if (worker.explaining) finish_wait_timeout(worker, link_text(now));
    // Nobody waits for this join; if it had its effect, the daemon gives the place up by itself.
    if (worker.released && worker.membership == Membership::kJoining) erase(worker.id);
  }
}

}  // namespace syncd::client
