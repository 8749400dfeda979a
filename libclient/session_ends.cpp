// How operations end: grants and stops handed out, timeouts, a daemon lost for too long, a worker
// that is fenced or has left. Same thread as the session.
#include <algorithm>
#include <utility>

#include "libclient/session.h"
#include "proto/base/check.h"

namespace syncd::client {

void Session::complete(Op& op, Status status, std::string message) {
  if (op.id == 0) return;
  completions_.emplace_back(op.id, status, std::move(message));
  op.id = 0;  // only now: there may be no memory
}

// Precondition: a caller waits. It pulls from now on, so that a re-sync that came before has no
// point any more.
void Session::deliver_grant(Worker& worker, Step&& grant) {
  SYNCD_CHECK(worker[kWait].op.id != 0);
  worker.grant_ready = false;
  worker.open = true;
  set_computing_since(worker, worker.granted_at_us);
  worker.due = grant.iteration;
  expect_exchange(worker);
  clear_resync(worker);
  complete_ok(worker[kWait].op, std::move(grant));
}

// Only begin has a flag for the end of the job.
void Session::deliver_stop(Worker& worker) {
  Pending& wait = worker[kWait];
  if (wait.op.id == 0) return;
  if (wait.kind == kBegin) {
    Step stop = make_step(worker.next, wire::kStepStop);
    stop.reason = ended_text(worker);
    complete_ok(wait.op, std::move(stop));
  } else {
    complete(wait.op, Status::kStopped, call_text(wait, worker) + ": " + ended_text(worker));
  }
}

// The answer is there and stays: the caller may need to ask again.
void Session::deliver_peer_answer(Worker& worker, Op& op, Kind kind) {
  if (kind == kTargets) {
    complete_ok(op, worker.targets);
  } else {
    complete_ok(op, worker.collected);
  }
}

void Session::leave_done(Worker& worker) {
  worker.membership = Membership::kLeft;
  worker.tell_wait_us = kNever;
  worker[kLeave].active = false;
  forget_requests(worker);
  complete_ok(worker[kLeave].op);
  fail_waiting(worker, Status::kClosed, "the worker has left its job");
  forget_rank(worker);
  if (worker.released) erase(worker.id);
}

// The worker is still a member: it saves, and leaves again. One whose handle was freed cannot.
void Session::on_leave_held(Worker& worker, const Step& step) {
  Pending& leave = worker[kLeave];
  if (worker.released) {
    leave.request = 0;
    return send_pending(worker);
  }
  leave.active = false;
  worker.must_save = step;
  deliver_must_save(worker);
}

// To the leave that waits; if none does, the next one.
void Session::deliver_must_save(Worker& worker) {
  Op& op = worker[kLeave].op;
  if (op.id == 0) return;
  Completion& made = completions_.emplace_back(
      op.id, Status::kCheckpoint,
      call_text(kLeave, -1, worker) + ": checkpoint " +
          std::to_string(worker.must_save->checkpoint) +
          " is wanted of this worker first: save, say so, and leave again");
  made.result = *worker.must_save;
  op.id = 0;
  worker.must_save.reset();
}

// Ends every call that waits on this worker; what is pending stays so.
void Session::fail_waiting(Worker& worker, Status status, const std::string& reason) {
  for_each_pending(worker, [&](Pending& pending) {
    if (pending.op.id == 0) return;
    complete(pending.op, status, call_text(pending, worker) + ": " + reason);
  });
  worker[kWhy] = {kWhy};
  drop_unread_sides(worker);
}

// Those that are over. A withdrawal, and what is to be told, is still sent without a caller;
// another answer has no reader.
void Session::drop_unread_sides(Worker& worker) {
  std::erase_if(worker.sides, [](const Side& side) {
    const bool has_reader = side.kind == kCancel || side.kind == kTellWait || side.op.id != 0;
    return !side.active || !has_reader;
  });
}

void Session::fail_for_good(Worker& worker, const std::string& reason) {
  worker.failure =
      label(worker) + " of job '" + worker.params.job + "' is no longer a member: " + reason;
  worker.membership = Membership::kFenced;
  worker.tell_wait_us = kNever;
  forget_requests(worker);
  fail_waiting(worker, Status::kFenced, worker.failure);
  if (worker.released) erase(worker.id);
}

// A join whose caller gave up: if the daemon never saw it, it never was.
void Session::orphan_join(Worker& worker) {
  worker.released = true;
  worker.advised = false;
  worker.params.signals.reset();
}

void Session::abandon(OpId id) noexcept {
  const auto give_up = [id](Op& op) { return op.id == id && std::exchange(op.id, 0) != 0; };
  std::erase_if(connecting_, [id](const Connecting& op) { return op.id == id; });
  std::erase_if(asked_, [&](const auto& asked) { return asked.second.id == id; });
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = (at++)->second;
    const bool joins = worker[kJoin].op.id == id;
    for_each_pending(worker, [&](Pending& pending) { give_up(pending.op); });
    if (joins) orphan_join(worker);
    const Pending& join = worker[kJoin];
    const bool unseen = join.request == 0 && !join.sent_before;
    // It was to be taken back, but the daemon was not asked: the next call asks.
    const bool resumes = worker.membership == Membership::kResuming && join.request == 0;
    if (resumes && link_.usable()) worker.membership = Membership::kDetached;
    if (joins && unseen && worker.membership == Membership::kJoining) erase(worker.id);
  }
}

void Session::erase(WorkerId id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  Worker& worker = found->second;
  forget_rank(worker);
  workers_.erase(found);
}

// ---- Timeouts ----------------------------------------------------------------------------------

void Session::expire() {
  scan_at_us_ = kNever;
  for (Connecting& op : connecting_) {
    if (op.timeout.deadline_us <= now_) expire_connect(op);
    if (op.id == 0) continue;
    arm(op);
    if (op.take_over_until_us > now_) {
      scan_at_us_ = std::min(scan_at_us_, op.take_over_until_us);
    }
  }
  erase_connected();
  std::erase_if(asked_, [&](const auto& asked) {
    Op op = asked.second;
    if (op.timeout.deadline_us > now_) return arm(op), false;
    complete(
        op, Status::kTimeout,
        link_.endpoint_text() + " did not answer within " + format_duration(op.timeout.allowed_us));
    return true;
  });
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = (at++)->second;
    expire_worker(worker);
    scan_at_us_ = std::min({scan_at_us_, worker.join_again_us, worker.tell_wait_us});
    for_each_pending(worker, [&](const Pending& pending) {
      if (pending.op.id != 0) arm(pending.op);
    });
    const bool orphan = worker.released && worker.membership == Membership::kJoining;
    const Pending& join = worker[kJoin];
    if (orphan && join.request == 0 && !join.sent_before) erase(worker.id);
  }
}

void Session::expire_connect(Op& op) {
  const std::string within = " within " + format_duration(op.timeout.allowed_us) + ": ";
  if (const auto& refusal = link_.latest_refusal()) {
    complete(op, refusal->status, "no daemon took us" + within + link_.describe(*refusal));
  } else {
    complete(op, Status::kUnreachable, "no daemon answered" + within + link_.describe_errors());
  }
}

void Session::expire_worker(Worker& worker) {
  for_each_pending(worker, [&](Pending& pending) {
    if (pending.op.id == 0 || pending.op.timeout.deadline_us > now_) return;
    if (&pending == &worker[kWait]) return expire_wait(worker);
    const bool is_answered = pending.kind == kJoin || pending.kind >= kExplain;
    complete(pending.op, Status::kTimeout,
             call_text(pending, worker) + " not " + (is_answered ? "answered" : "confirmed") +
                 " after " + format_duration(pending.op.timeout.allowed_us) + ": " +
                 obstacle_text(worker));
    if (pending.kind == kJoin) orphan_join(worker);
  });
  if (worker.join_again_us <= now_) send_join(worker);
  if (worker.tell_wait_us <= now_) ask_wait(worker);
  drop_unread_sides(worker);
}

// The daemon knows who is waited for, so it is asked before the caller is told. An answer that
// comes meanwhile wins.
void Session::expire_wait(Worker& worker) {
  const bool asked = worker.membership == Membership::kJoined && worker[kWait].request != 0;
  Pending& why = worker[kWhy];
  if (why.active) {
    finish_wait_timeout(worker,
                        "the daemon did not say why within " + format_duration(kExplainTimeoutUs));
  } else if (link_.usable() && asked) {
    why.active = true;
    worker[kWait].op.timeout.deadline_us = now_ + kExplainTimeoutUs;
    why.request = send(worker.id, kWhy, wire::Explain{worker.ref});
  } else {
    finish_wait_timeout(worker, obstacle_text(worker));
  }
}

void Session::finish_wait_timeout(Worker& worker, const std::string& reason) {
  worker[kWhy] = {kWhy};
  Pending& wait = worker[kWait];
  complete(wait.op, Status::kTimeout,
           call_text(wait, worker) + " not " + (wait.kind == kBegin ? "granted" : "answered") +
               " after " + format_duration(wait.op.timeout.allowed_us) + ": " + reason);
}

// ---- A daemon that cannot be had ---------------------------------------------------------------

void Session::fail_unreachable() {
  reported_unreachable_ = true;
  const std::string reason = link_text();
  for (auto at = workers_.begin(); at != workers_.end();) {
    Worker& worker = (at++)->second;
    const bool given_up = worker.grace_us >= 0 && now_ - link_.down_since_us() > worker.grace_us;
    fail_waiting(worker, Status::kUnreachable,
                 given_up ? reason + "; a daemon that runs has given this worker up after " +
                                format_duration(worker.grace_us) + " (worker_grace)"
                          : reason);
    const Pending& join = worker[kJoin];
    if (!join.active) continue;
    orphan_join(worker);
    if (worker.membership == Membership::kJoining && !join.sent_before) erase(worker.id);
  }
}

void Session::fail_asked(Status status, const std::string& reason) {
  for (auto& [request, op] : asked_) complete(op, status, reason);
  asked_.clear();
}

// A refusal is not waited out: the first connection fails with it as soon as nobody else is left to
// ask. Later ones keep trying, since whoever took us once may do so again.
void Session::check_refusal() {
  for (Connecting& op : connecting_) {
    const bool may_be_taken_over = now_ < op.take_over_until_us && link_.several_daemons();
    const bool last = options_.one_round && link_.tried_all() && !may_be_taken_over;
    const std::optional<Refusal>& refusal = last ? link_.latest_refusal() : link_.refusal();
    if (refusal) {
      complete(op, refusal->status, link_.describe(*refusal));
    } else if (last) {
      complete(op, Status::kUnreachable, "no daemon answered: " + link_.describe_errors());
    }
  }
  erase_connected();
}

}  // namespace syncd::client
