// How operations end: grants and stops handed out, timeouts, a daemon lost for too long, a worker
// that is fenced or has left. Same thread as the session.
#include <algorithm>
#include <utility>

#include "libclient/session.h"
#include "proto/base/check.h"

namespace syncd::client {

void Session::complete(Op& op, Status status, std::string message) {
  if (!op.waiting) return;
  completions_.push_back({op.id, status, std::move(message), std::monostate{}});
  op.waiting = false;  // only now: there may be no memory
}

// Precondition: grant_ready and a caller that waits. The caller pulls from now on, so that a
// re-sync that came before has no point any more.
void Session::deliver_grant(Worker& worker) {
  SYNCD_CHECK(worker.grant_ready && worker.wait.op.waiting);
  worker.grant_ready = false;
  worker.open = true;
  worker.due = worker.grant.iteration;
  clear_resync(worker);
  complete_ok(worker.wait.op, worker.grant);
}

// Precondition: a caller that waits. Begin alone has a flag for the end of the job.
void Session::deliver_stop(Worker& worker) {
  SYNCD_CHECK(worker.wait.op.waiting);
  if (worker.wait_call == WaitCall::kBegin) {
    complete_ok(worker.wait.op, Step{worker.next, 0, wire::kStepStop});
  } else {
    complete(worker.wait.op, Status::kStopped, wait_text(worker) + ": " + ended_text(worker));
  }
}

// The answer is there and stays: the caller may need to ask again.
void Session::deliver_peer_answer(Worker& worker, Op& op, WaitCall call) {
  if (call == WaitCall::kTargets) {
    complete_ok(op, TargetsResult{worker.targets.ranks});
  } else {
    complete_ok(op, CollectResult{worker.collected.updates});
  }
}

void Session::leave_done(Worker& worker) {
  worker.membership = Membership::kLeft;
  worker.leave.active = false;
  forget_requests(worker);
  complete_ok(worker.leave.op, std::monostate{});
  fail_waiting(worker, Status::kClosed, "the worker has left its job");
  forget_rank(worker);
  if (worker.released) erase(worker.id);
}

// Ends every call that waits on this worker; what stands keeps standing.
void Session::fail_waiting(Worker& worker, Status status, const std::string& reason) {
  const auto end = [&](Op& op, const char* call, std::int64_t iteration) {
    if (op.waiting) complete(op, status, call_text(call, iteration, worker) + ": " + reason);
  };
  if (worker.join.op.waiting)
    complete(worker.join.op, status, join_text(worker.params) + ": " + reason);
  end(worker.wait.op, name_of(worker.wait_call), worker.wait_iteration);
  for (Notice* notice : notices(worker)) {
    end(notice->standing.op, notice->call, notice->iteration);
  }
  end(worker.push.op, "push", worker.push_body.iteration);
  end(worker.leave.op, "leave", -1);
  for (Side& side : worker.sides) end(side.op, name_of(side.what), -1);
  worker.explaining = false;
  forget(worker.explain_request);
  std::erase_if(worker.sides, [&](Side& side) {
    const bool pointless = side.what != Aside::kCancel;
    if (pointless) forget(side.request);
    return pointless;  // a withdrawal is still sent, an answer has no reader any more
  });
}

void Session::fail_for_good(Worker& worker, const std::string& reason) {
  worker.failure =
      label(worker) + " of job '" + worker.params.job + "' is no longer a member: " + reason;
  worker.membership = Membership::kFenced;
  forget_requests(worker);
  fail_waiting(worker, Status::kFenced, worker.failure);
  if (worker.released) erase(worker.id);
}

// The daemon would not take the worker back now; the next call asks again.
void Session::detach(Worker& worker, const wire::Error& error) {
  worker.membership = Membership::kDetached;
  fail_waiting(worker, error.status, "the daemon did not let it resume: " + error.message);
  if (worker.released) erase(worker.id);
}

// A join whose caller gave up: if the daemon never saw it, it never was.
void Session::orphan_join(Worker& worker) {
  worker.released = true;
  worker.params.signals.reset();
}

void Session::abandon(OpId id) noexcept {
  const auto give_up = [id](Op& op) {
    const bool is_it = op.waiting && op.id == id;
    if (is_it) op.waiting = false;
    return is_it;
  };
  give_up(connect_op_);
  std::erase_if(asked_, [&](Asked& asked) { return give_up(asked.op); });
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = (at++)->second;
    for (Standing* standing : {&worker.wait, &worker.push, &worker.leave}) give_up(standing->op);
    for (Notice* notice : notices(worker)) give_up(notice->standing.op);
    for (Side& side : worker.sides) give_up(side.op);
    const bool joins = give_up(worker.join.op);
    if (joins) orphan_join(worker);
    const bool unseen = worker.join.request == 0 && !worker.join.sent_before;
    // It was to be taken back, but the daemon was not asked: the next call asks.
    const bool resumes = worker.membership == Membership::kResuming && worker.join.request == 0;
    if (resumes && link_.usable()) worker.membership = Membership::kDetached;
    if (joins && unseen && worker.membership == Membership::kJoining) erase(worker.id);
  }
}

void Session::erase(WorkerId id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  forget_requests(worker);
  forget_rank(worker);
  workers_.erase(found);
}

// ---- Timeouts ----------------------------------------------------------------------------------

void Session::expire(TimeUs now) {
  scan_at_us_ = kNever;
  if (connect_op_.waiting && connect_op_.deadline_us <= now) expire_connect();
  if (connect_op_.waiting) arm(connect_op_);
  std::erase_if(asked_, [&](Asked& asked) {
    auto& [request, op] = asked;
    if (op.deadline_us > now) return arm(op), false;
    complete(op, Status::kTimeout,
             link_.endpoint_text() + " did not answer within " + format_duration(op.allowed_us));
    requests_.erase(request);
    return true;
  });
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = at->second;
    expire_worker(worker, now);
    const bool orphan = worker.released && worker.membership == Membership::kJoining;
    const bool unseen = worker.join.request == 0 && !worker.join.sent_before;
    const WorkerId id = at->first;
    scan_at_us_ = std::min(scan_at_us_, earliest_deadline(worker));
    ++at;
    if (orphan && unseen) erase(id);
  }
}

void Session::expire_connect() {
  const std::string within = " within " + format_duration(connect_op_.allowed_us) + ": ";
  if (const auto& refusal = link_.latest_refusal()) {
    complete(connect_op_, refusal->status, "no daemon took us" + within + refusal->message);
  } else {
    complete(connect_op_, Status::kUnreachable,
             "no daemon answered" + within + link_.describe_errors());
  }
}

TimeUs Session::earliest_deadline(const Worker& worker) const {
  TimeUs earliest = worker.join_again_us;
  const auto look = [&](const Op& op) {
    if (op.waiting) earliest = std::min(earliest, op.deadline_us);
  };
  look(worker.join.op);
  look(worker.wait.op);
  look(worker.push.op);
  look(worker.consumed_notice.standing.op);
  look(worker.restarted_notice.standing.op);
  look(worker.phase_notice.standing.op);
  look(worker.leave.op);
  for (const Side& side : worker.sides) look(side.op);
  return earliest;
}

void Session::expire_worker(Worker& worker, TimeUs now) {
  const auto due = [&](const Op& op) { return op.waiting && op.deadline_us <= now; };
  const auto late = [&](Op& op, const std::string& what, const char* verb) {
    complete(op, Status::kTimeout,
             what + " not " + verb + " after " + format_duration(op.allowed_us) + ": " +
                 obstacle_text(worker, now));
  };
  if (due(worker.join.op)) {
    late(worker.join.op, join_text(worker.params), "answered");
    orphan_join(worker);
  }
  if (worker.join_again_us <= now) send_join(worker, now);
  if (due(worker.wait.op)) expire_wait(worker, now);
  if (due(worker.push.op)) {
    late(worker.push.op, call_text("push", worker.push_body.iteration, worker), "confirmed");
  }
  for (Notice* notice : notices(worker)) {
    Op& op = notice->standing.op;
    if (due(op)) late(op, call_text(notice->call, notice->iteration, worker), "confirmed");
  }
  if (due(worker.leave.op)) late(worker.leave.op, call_text("leave", -1, worker), "confirmed");
  for (Side& side : worker.sides) {
    if (!due(side.op)) continue;
    late(side.op, call_text(name_of(side.what), -1, worker), "answered");
  }
  std::erase_if(worker.sides, [&](Side& side) {
    const bool pointless = side.what != Aside::kCancel && !side.op.waiting;
    if (pointless) forget(side.request);
    return pointless;
  });
}

// The daemon knows who is waited for, so it is asked before the caller is told. An answer that
// comes meanwhile wins.
void Session::expire_wait(Worker& worker, TimeUs now) {
  const bool asked = worker.membership == Membership::kJoined && worker.wait.request != 0;
  if (worker.explaining) {
    finish_wait_timeout(worker,
                        "the daemon did not say why within " + format_duration(kExplainTimeoutUs));
  } else if (link_.usable() && asked) {
    worker.explaining = true;
    worker.wait.op.deadline_us = now + kExplainTimeoutUs;
    worker.explain_request = send(Kind::kExplain, worker.id, wire::Explain{worker.ref}, now);
  } else {
    finish_wait_timeout(worker, obstacle_text(worker, now));
  }
}

void Session::finish_wait_timeout(Worker& worker, const std::string& reason) {
  worker.explaining = false;
  forget(worker.explain_request);
  complete(worker.wait.op, Status::kTimeout,
           wait_text(worker) + " not " +
               (worker.wait_call == WaitCall::kBegin ? "granted" : "answered") + " after " +
               format_duration(worker.wait.op.allowed_us) + ": " + reason);
}

// ---- A daemon that cannot be had ---------------------------------------------------------------

TimeUs Session::unreachable_due_us() const {
  if (link_.up() || options_.reconnect_timeout_us == kNever) return kNever;
  const TimeUs since_us = link_.down_since_us();
  return options_.reconnect_timeout_us > kNever - since_us
             ? kNever
             : since_us + options_.reconnect_timeout_us;
}

void Session::fail_unreachable(TimeUs now) {
  reported_unreachable_ = true;
  const std::string reason = link_text(now);
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = at->second;
    const WorkerId id = at->first;
    const bool given_up = worker.grace_us >= 0 && now - link_.down_since_us() > worker.grace_us;
    fail_waiting(worker, Status::kUnreachable,
                 given_up ? reason + "; a daemon that runs has given this worker up after " +
                                format_duration(worker.grace_us) + " (worker_grace)"
                          : reason);
    ++at;
    if (!worker.join.active) continue;
    orphan_join(worker);
    if (worker.membership == Membership::kJoining && !worker.join.sent_before) erase(id);
  }
}

void Session::fail_asked(Status status, const std::string& reason) {
  for (auto& [request, op] : asked_) complete(op, status, reason);
  asked_.clear();
}

// A refusal is not waited out: the first connection fails with it as soon as nobody else is left to
// ask. Later ones keep trying, since whoever took us once may do so again.
void Session::check_refusal() {
  if (!connect_op_.waiting) return;
  const bool last = options_.one_round && link_.tried_all();
  const std::optional<Refusal>& refusal = last ? link_.latest_refusal() : link_.refusal();
  if (refusal) {
    complete(connect_op_, refusal->status, refusal->message);
  } else if (last) {
    complete(connect_op_, Status::kUnreachable, "no daemon answered: " + link_.describe_errors());
  }
}

}  // namespace syncd::client
