// The session's reading of what the daemon says: answers to requests, and notifications. Same
// thread as the session.
#include <algorithm>
#include <utility>

#include "libclient/session.h"

namespace syncd::client {
namespace {

std::uint64_t rank_key(const wire::WorkerRef& ref) {
  return (std::uint64_t{ref.job} << 32) | ref.rank;
}

// An answer of a type that does not belong to its request is a defect of the daemon. The call fails
// with this rather than the connection, which would only bring the same answer again.
wire::Error misplaced(const wire::Body& body) {
  wire::Error error;
  error.status = Status::kProtocol;
  error.message = "the daemon answered with " + std::string(wire::body_name(body)) +
                  ", which does not belong to this request";
  return error;
}

// The answer's error, if it is one or none that was expected.
template <typename Expected>
bool is_error(const wire::Body& body, wire::Error& error) {
  if (std::holds_alternative<Expected>(body)) return false;
  const auto* given = std::get_if<wire::Error>(&body);
  error = given != nullptr ? *given : misplaced(body);
  // A failure must not look like a success to the caller.
  if (static_cast<std::int32_t>(error.status) >= 0) error.status = Status::kProtocol;
  return true;
}

}  // namespace

void Session::link_message(const wire::Message& message, TimeUs now) {
  if (message.id == 0) return notice(message.body, now);
  const auto found = requests_.find(message.id);
  if (found == requests_.end()) return;  // of a call that was given up
  const Request request = found->second;
  requests_.erase(found);
  if (request.kind == Kind::kAsk) return on_asked(message.id, message.body);
  if (const auto at = workers_.find(request.worker); at != workers_.end()) {
    if (!std::holds_alternative<wire::Error>(message.body)) link_.note_progress();
    on_answer(at->second, request, message, now);
  }
  const auto left = workers_.find(request.worker);
  if (left != workers_.end()) step_out_if_over(left->second, now);
}

void Session::on_asked(std::uint64_t request, const wire::Body& body) {
  link_.note_progress();
  const auto found = std::ranges::find(asked_, request, &Asked::request);
  if (found == asked_.end()) return;
  Op& op = found->op;
  if (const auto* error = std::get_if<wire::Error>(&body)) {
    // A failure must not look like a success to the caller.
    const bool is_failure = static_cast<std::int32_t>(error->status) < 0;
    complete(op, is_failure ? error->status : Status::kProtocol, error->message);
  } else {
    complete_ok(op, AskResult{std::make_shared<wire::Body>(body)});
  }
  asked_.erase(found);
}

// It was told of an end, and came back for the sake of a call that stood, to a daemon that had lost
// that end: now that the call is answered, the others must not wait for one who begins no more. Its
// next call, if there is one, asks again.
void Session::step_out_if_over(Worker& worker, TimeUs now) {
  if (!worker.end_is_lost || worker.membership != Membership::kJoined || has_standing(worker)) {
    return;
  }
  if (!link_.usable()) return;  // the daemon goes away, and does not take it back by itself
  worker.end_is_lost = false;
  worker.membership = Membership::kDetached;
  std::uint64_t unanswered = send(Kind::kLeave, worker.id, wire::Leave{worker.ref}, now);
  forget(unanswered);
}

void Session::on_answer(Worker& worker, const Request& request, const wire::Message& message,
                        TimeUs now) {
  switch (request.kind) {
    case Kind::kJoin:
      worker.join.request = 0;
      return on_join_answer(worker, message.body, now);
    case Kind::kWait:
      worker.wait.request = 0;
      return on_wait_answer(worker, message.body, now);
    case Kind::kPush:
      worker.push.request = 0;
      return on_push_answer(worker, message.body, now);
    case Kind::kNotice:
      return on_notice_answer(worker, message.id, message.body, now);
    case Kind::kLeave:
      worker.leave.request = 0;
      return on_leave_answer(worker, message.body, now);
    case Kind::kExplain:
      worker.explain_request = 0;
      return on_explanation(worker, message.body, now);
    case Kind::kSide:
      return on_side_answer(worker, message.id, message.body, now);
    case Kind::kAsk:
      return;  // has no worker
  }
}

// The daemon cannot answer now, but it or another may soon. True if the request is to be sent again
// on the next connection.
bool Session::retried_elsewhere(const wire::Body& body, TimeUs now) {
  const auto* error = std::get_if<wire::Error>(&body);
  if (error == nullptr) return false;
  if (error->status != Status::kShutdown && error->status != Status::kUnreachable) return false;
  // After a ShutdownNotice other answers may still be on their way; without one nothing else tells
  // us to go.
  if (link_.usable()) link_.fail("the daemon cannot go on: " + error->message, now);
  return true;
}

// ---- Join --------------------------------------------------------------------------------------

void Session::on_join_answer(Worker& worker, const wire::Body& body, TimeUs now) {
  if (retried_elsewhere(body, now)) return;
  wire::Error error;
  if (!is_error<wire::Joined>(body, error)) {
    on_joined(worker, std::get<wire::Joined>(body), now);
  } else if (worker.join.active) {
    on_join_refused(worker, error, now);
  } else {
    on_resume_refused(worker, error, now);
  }
}

void Session::on_joined(Worker& worker, const wire::Joined& joined, TimeUs now) {
  forget_rank(worker);
  worker.membership = Membership::kJoined;
  worker.ref = joined.worker;
  worker.joined_at = joined.iteration;
  worker.grace_us = joined.worker_grace_us;
  by_rank_[rank_key(worker.ref)] = worker.id;
  const auto early = early_notices_.find(rank_key(worker.ref));
  if (early != early_notices_.end() && early->second.worker == worker.ref) {
    tell_members(worker, early->second.version);
    early_notices_.erase(early);
  }
  // While it was away, much may have changed.
  if (!worker.join.active && joined.members_version != 0) {
    tell_members(worker, joined.members_version);
  }
  if (worker.join.active) {
    worker.join = Standing{.op = worker.join.op};
    worker.own_former = false;
    worker.due = worker.next = joined.iteration;
    JoinResult result;
    result.worker = worker.id;
    result.rank = joined.worker.rank;
    result.world_size = joined.world_size;
    result.iteration = joined.iteration;
    result.policy = joined.policy;
    result.durable = joined.durable;
    result.resumed = joined.resumed;
    complete_ok(worker.join.op, std::move(result));
    // Whoever asked has given up: the others must not wait for a worker that nobody runs.
    if (worker.released) worker.leave.active = true;
  } else {
    worker.end_is_lost = worker.stopped;
    if (!joined.resumed) on_new_life(worker);
    adopt_iteration(worker, joined.iteration);
  }
  send_standing(worker, now);
}

// A worker that comes back goes on where the daemon says. What its caller computes now is pushed
// all the same, and the daemon says what becomes of it.
void Session::adopt_iteration(Worker& worker, std::int64_t iteration) {
  if (worker.open || worker.push.active) return;
  if (worker.grant_ready && worker.granted == iteration) return;
  worker.grant_ready = false;
  // A decentralized worker that has pushed is still within its iteration; what it begins is the
  // next one all the same.
  worker.next = std::max(iteration, worker.pushed + 1);
  if (worker.wait_call == WaitCall::kBegin) worker.wait_iteration = worker.next;
}

// The daemon had given this worker up and takes it in anew. With a parameter server it may still
// push what it computes; what it waited for from its neighbours, and they from it, is over.
void Session::on_new_life(Worker& worker) {
  for (Notice* notice : {&worker.consumed_notice, &worker.restarted_notice}) {
    notice->standing.active = false;
    complete_ok(notice->standing.op, std::monostate{});  // nobody waits for it any more
  }
  // Nor for what was collected before. Said as unread to a daemon that knows of neither, it would
  // look like slots that are read for ever.
  worker.consumed = std::max(worker.consumed, worker.collected.iteration);
  if (!worker.wait.active || worker.wait_call == WaitCall::kBegin) return;
  end_wait(worker);
  worker.open = false;  // what was granted can never be pushed any more
  complete(worker.wait.op, Status::kWrongIteration,
           wait_text(worker) +
               ": the daemon had given this worker up meanwhile, and the others went on without "
               "it; the next begin says where it takes part again");
}

void Session::on_join_refused(Worker& worker, const wire::Error& error, TimeUs now) {
  if (worker.released) return erase(worker.id);  // nobody waits for it any more
  const bool ours = worker.own_former || worker.join.sent_before;
  if (error.status == Status::kRankTaken && ours && ask_again(worker, now)) return;
  const bool over = error.status == Status::kFenced || error.status == Status::kStopped;
  if (over && worker.membership != Membership::kJoining) {
    // The life that a new handle was to go on with has ended: it begins another one.
    worker.membership = Membership::kJoining;
    worker.granted = worker.pushed = worker.consumed = -1;
    worker.targets = {-1, {}};
    worker.collected = {-1, {}};
    worker.wait = worker.push = worker.leave = Standing{};
    for (Notice* notice : notices(worker)) notice->standing = Standing{};
    worker.phase.clear();
    forget_rank(worker);
    send_join(worker, now);
    return;
  }
  complete(worker.join.op, error.status, join_text(worker.params) + ": " + error.message);
  erase(worker.id);
}

// Our own former self, whose connection or membership ends just now, may hold the place until the
// daemon has noticed. False once that would have been noticed.
bool Session::ask_again(Worker& worker, TimeUs now) {
  if (worker.ask_until_us == kNever) {
    worker.ask_until_us = now + kRankRetryUs + TimeUs{link_.welcome().heartbeat_timeout_ms} * 1000;
  }
  if (now >= worker.ask_until_us) return false;
  worker.join_again_us = now + kRankRetryUs;
  scan_at_us_ = std::min(scan_at_us_, worker.join_again_us);
  return true;
}

void Session::forget_rank(const Worker& worker) {
  const auto at = by_rank_.find(rank_key(worker.ref));
  if (at != by_rank_.end() && at->second == worker.id) by_rank_.erase(at);
}

void Session::on_resume_refused(Worker& worker, const wire::Error& error, TimeUs now) {
  if (error.status == Status::kPolicyMismatch && !worker.any_policy) {
    worker.any_policy = true;  // the operator has switched the job's policy since we joined
    send_join(worker, now);
    return;
  }
  // A leave whose answer was lost with the last connection has had its effect.
  const bool left = worker.leave.active && worker.leave.sent_before;
  if (error.status == Status::kFenced) {
    if (left) return leave_done(worker);
    return fail_for_good(worker, error.message);
  }
  if (error.status == Status::kStopped) {
    on_stopped(worker, error.message);
    if (worker.leave.active) return leave_done(worker);
  }
  detach(worker, error);
}

void Session::on_fenced(Worker& worker, const std::string& message, TimeUs now) {
  if (worker.membership != Membership::kJoined) return;
  worker.fences += 1;
  // Taken back and thrown out again with nothing done in between: that would go on for ever.
  if (worker.fences > 1) return fail_for_good(worker, message);
  resume(worker, now);
}

// A worker that nobody calls for may hang: as a member it would be waited for again. It comes back
// with its next call.
void Session::on_fenced_notice(Worker& worker, const std::string& message, TimeUs now) {
  if (worker.membership != Membership::kJoined) return;
  if (has_standing(worker)) return on_fenced(worker, message, now);
  if (worker.released) return erase(worker.id);
  worker.membership = Membership::kDetached;
}

// ---- Begin, targets, collect -------------------------------------------------------------------

void Session::on_wait_answer(Worker& worker, const wire::Body& body, TimeUs now) {
  if (retried_elsewhere(body, now)) return;
  const auto* granted = std::get_if<wire::Granted>(&body);
  // The end of the job is said so to whatever waits.
  if (granted != nullptr && (granted->flags & wire::kStepStop) != 0) return on_stopped(worker, {});
  const auto peer_answer = [&](const auto& reply, auto& kept) {
    worker.fences = 0;
    kept = reply;
    kept.iteration = worker.wait_iteration;
    end_wait(worker);
    if (worker.wait.op.waiting) deliver_peer_answer(worker, worker.wait.op, worker.wait_call);
  };
  wire::Error error;
  if (worker.wait_call == WaitCall::kTargets) {
    if (is_error<wire::TargetsReply>(body, error)) return on_wait_refused(worker, error, now);
    peer_answer(std::get<wire::TargetsReply>(body), worker.targets);
  } else if (worker.wait_call == WaitCall::kCollect) {
    if (is_error<wire::CollectReply>(body, error)) return on_wait_refused(worker, error, now);
    peer_answer(std::get<wire::CollectReply>(body), worker.collected);
  } else {
    if (is_error<wire::Granted>(body, error)) return on_wait_refused(worker, error, now);
    on_granted(worker, *granted);
  }
}

void Session::on_wait_refused(Worker& worker, const wire::Error& error, TimeUs now) {
  if (error.status == Status::kFenced) return on_fenced(worker, error.message, now);
  if (error.status == Status::kStopped) return on_stopped(worker, error.message);
  end_wait(worker);
  // The two sides disagree on where this worker is: the next call asks the daemon first.
  const bool begin = worker.wait_call == WaitCall::kBegin;
  if (begin && error.status == Status::kWrongIteration) worker.membership = Membership::kDetached;
  // Refused for the very iteration that was granted here: this is no iteration of the worker's life
  // there, and the way is free for the next begin.
  Status status = error.status;
  const bool unknown_there = status == Status::kWrongIteration ||
                             (status == Status::kState && worker.wait_call == WaitCall::kTargets);
  // After a jump, the set of the iteration before the granted one is collected.
  const bool about_granted =
      worker.wait_iteration == worker.granted ||
      (worker.wait_call == WaitCall::kCollect && worker.wait_iteration + 1 == worker.granted);
  if (!begin && unknown_there && worker.open && about_granted) {
    status = Status::kWrongIteration;
    worker.open = false;
    worker.next = std::max(worker.next, worker.joined_at);
  }
  complete(worker.wait.op, status, wait_text(worker) + ": " + error.message);
}

// The request does not stand any more; its caller, if there is one, is still to be told.
void Session::end_wait(Worker& worker) {
  worker.wait.active = false;
  worker.explaining = false;
  forget(worker.wait.request);
  forget(worker.explain_request);
}

void Session::on_granted(Worker& worker, const wire::Granted& granted) {
  worker.fences = 0;
  end_wait(worker);
  worker.granted = granted.iteration;
  worker.next = granted.iteration;
  worker.grant = Step{granted.iteration, granted.staleness, granted.flags};
  // The daemon says SKIP for a jump that it made within this request; one that happened while this
  // worker was away is known here alone.
  if (granted.iteration != worker.due) worker.grant.flags |= wire::kStepSkip | wire::kStepPull;
  worker.grant_ready = true;
  clear_resync(worker);
  if (worker.wait.op.waiting) deliver_grant(worker);
}

void Session::on_stopped(Worker& worker, std::string_view why) {
  if (!std::exchange(worker.stopped, true)) tell_event(worker, {.kind = Event::Kind::kStop});
  if (!why.empty()) worker.ending = why;
  end_wait(worker);
  if (worker.wait.op.waiting) deliver_stop(worker);
}

void Session::on_explanation(Worker& worker, const wire::Body& body, TimeUs now) {
  if (!worker.explaining || retried_elsewhere(body, now)) return;
  wire::Error error;
  if (!is_error<Explanation>(body, error)) {
    return finish_wait_timeout(worker, explanation_text(std::get<Explanation>(body)));
  }
  finish_wait_timeout(worker, "the daemon does not say why: " + error.message);
  if (error.status == Status::kFenced) on_fenced(worker, error.message, now);
}

// ---- Push --------------------------------------------------------------------------------------

void Session::on_push_answer(Worker& worker, const wire::Body& body, TimeUs now) {
  if (retried_elsewhere(body, now)) return;
  wire::Error error;
  if (is_error<wire::Pushed>(body, error)) return on_push_refused(worker, error, now);
  on_pushed(worker, std::get<wire::Pushed>(body));
}

void Session::on_pushed(Worker& worker, const wire::Pushed& pushed) {
  const std::int64_t iteration = worker.push_body.iteration;
  worker.fences = 0;
  worker.push.active = false;
  worker.open = false;
  worker.pushed = iteration;
  worker.pushed_late = pushed.late;
  worker.due = iteration + 1;
  worker.next = iteration + 1;
  complete_ok(worker.push.op, PushResult{pushed.late});
}

void Session::on_push_refused(Worker& worker, const wire::Error& error, TimeUs now) {
  if (error.status == Status::kFenced) return on_fenced(worker, error.message, now);
  worker.push.active = false;
  if (error.status == Status::kStopped) on_stopped(worker, error.message);
  // What was granted here is no iteration of the worker's life there: a new one has begun.
  Status status = error.status;
  if (status == Status::kState) status = Status::kWrongIteration;
  if (status == Status::kWrongIteration) {
    // This iteration can never be pushed any more, so the way is free for the next begin.
    worker.open = false;
    worker.next = std::max(worker.next, worker.joined_at);
  }
  complete(worker.push.op, status,
           call_text("push", worker.push_body.iteration, worker) + ": " + error.message);
}

// ---- Consumed, restarted and phase
// --------------------------------------------------------------------

void Session::on_notice_answer(Worker& worker, std::uint64_t request, const wire::Body& body,
                               TimeUs now) {
  const auto all = notices(worker);
  const auto found = std::find_if(all.begin(), all.end(), [&](const Notice* each) {
    return each->standing.request == request;
  });
  if (found == all.end()) return;
  Notice& notice = **found;
  notice.standing.request = 0;
  if (retried_elsewhere(body, now)) return;
  wire::Error error;
  const bool failed = is_error<wire::Ok>(body, error);
  if (failed && error.status == Status::kFenced) return on_fenced(worker, error.message, now);
  notice.standing.active = false;
  if (failed && error.status == Status::kStopped) on_stopped(worker, error.message);
  if (failed) {
    if (&notice == &worker.phase_notice) worker.phase.clear();
    return complete(notice.standing.op, error.status,
                    call_text(notice.call, notice.iteration, worker) + ": " + error.message);
  }
  worker.fences = 0;
  if (&notice == &worker.consumed_notice)
    worker.consumed = std::max(worker.consumed, notice.iteration);
  complete_ok(notice.standing.op, std::monostate{});
}

// ---- Leave, and what the driver asked beside the loop ------------------------------------------

void Session::on_leave_answer(Worker& worker, const wire::Body& body, TimeUs now) {
  if (retried_elsewhere(body, now)) return;
  wire::Error error;
  if (!is_error<wire::Ok>(body, error)) return leave_done(worker);
  switch (error.status) {
    case Status::kFenced:
      return on_fenced(worker, error.message, now);
    case Status::kStopped:
    case Status::kUnknownJob:
    case Status::kUnknownWorker:
      return leave_done(worker);  // nobody waits for this worker any more, which is what was asked
    default:
      worker.leave.active = false;
      complete(worker.leave.op, error.status,
               call_text("leave", -1, worker) + ": " + error.message);
      if (worker.released) erase(worker.id);
  }
}

void Session::on_side_answer(Worker& worker, std::uint64_t request, const wire::Body& body,
                             TimeUs now) {
  const auto at = std::find_if(worker.sides.begin(), worker.sides.end(),
                               [&](const Side& side) { return side.request == request; });
  if (at == worker.sides.end()) return;
  at->request = 0;
  if (retried_elsewhere(body, now)) return;
  wire::Error error{Status::kOk, {}};
  const bool failed = at->what == Aside::kCancel    ? is_error<wire::Ok>(body, error)
                      : at->what == Aside::kMembers ? is_error<wire::MembersReply>(body, error)
                                                    : is_error<Explanation>(body, error);
  if (failed && error.status == Status::kFenced) return on_fenced(worker, error.message, now);
  if (!failed && at->what == Aside::kMembers) {
    const auto& page = std::get<wire::MembersReply>(body);
    // What was told while the list was asked for may be in it; the next change is not.
    if (at->next_rank == 0) worker.members_told = false;
    if (!take_page(*at, page, error)) return send_standing(worker, now);
  }
  Side side = std::move(*at);
  worker.sides.erase(at);
  if (error.status != Status::kOk) {
    complete(side.op, error.status,
             call_text(name_of(side.what), -1, worker) + ": " + error.message);
  } else if (side.what == Aside::kMembers) {
    complete_ok(side.op, std::move(side.members));
  } else if (side.what == Aside::kCancel) {
    complete_ok(side.op, std::monostate{});
  } else {
    complete_ok(side.op, std::get<Explanation>(body));
  }
}

// Takes one part of a list. False: there are more. In true, `error` may say why there is no list.
bool Session::take_page(Side& side, const wire::MembersReply& page, wire::Error& error) {
  if (side.next_rank == 0) side.members.version = page.version;
  auto& all = side.members.members;
  all.insert(all.end(), page.members.begin(), page.members.end());
  if (page.next_rank < 0) return true;
  if (page.next_rank > side.next_rank && page.next_rank <= INT32_MAX) {
    side.next_rank = static_cast<std::uint32_t>(page.next_rank);
    return false;
  }
  error = {Status::kProtocol, "the daemon's list goes on at rank " +
                                  std::to_string(page.next_rank) + " after rank " +
                                  std::to_string(side.next_rank)};
  return true;
}

// ---- Events ------------------------------------------------------------------------------------

void Session::tell_event(const Worker& worker, Event event) {
  if (worker.params.listens()) events_.push_back({worker.params.signals, event});
}

// Once, until the worker has asked who is there.
void Session::tell_members(Worker& worker, std::uint64_t version) {
  if (std::exchange(worker.members_told, true)) return;
  tell_event(worker, {.kind = Event::Kind::kMembers, .version = version});
}

// One may overtake the Joined that it follows, which waits for the daemon's disk.
void Session::on_members_notice(const wire::MembersNotice& notice) {
  if (Worker* worker = find_ref(notice.worker)) return tell_members(*worker, notice.version);
  if (early_notices_.size() < requests_.size()) early_notices_[rank_key(notice.worker)] = notice;
}

// ---- Notifications -----------------------------------------------------------------------------

// Only the exact incarnation is meant: a late notification of an earlier life has no effect.
Session::Worker* Session::find_ref(const wire::WorkerRef& ref) {
  const auto id = by_rank_.find(rank_key(ref));
  if (id == by_rank_.end()) return nullptr;
  const auto found = workers_.find(id->second);
  return found != workers_.end() && found->second.ref == ref ? &found->second : nullptr;
}

// One of a type that this build does not know is skipped.
void Session::notice(const wire::Body& body, TimeUs now) {
  if (const auto* stop = std::get_if<wire::StopNotice>(&body)) {
    if (Worker* worker = find_ref(stop->worker)) {
      on_stopped(*worker, "job '" + worker->params.job + "' has ended: " + stop->message);
    }
  } else if (const auto* fenced = std::get_if<wire::FencedNotice>(&body)) {
    if (Worker* worker = find_ref(fenced->worker)) on_fenced_notice(*worker, fenced->message, now);
  } else if (const auto* resync = std::get_if<wire::ResyncNotice>(&body)) {
    Worker* worker = find_ref(resync->worker);
    const bool current = worker != nullptr && worker->granted == resync->iteration &&
                         (worker->open || worker->grant_ready) && !worker->push.active;
    if (current && worker->params.signals) {
      worker->params.signals->set_resync(true);
      tell_event(*worker, {.kind = Event::Kind::kResync, .iteration = resync->iteration});
    }
  } else if (const auto* members = std::get_if<wire::MembersNotice>(&body)) {
    on_members_notice(*members);
  } else if (const auto* plan = std::get_if<wire::PlanNotice>(&body)) {
    if (const Worker* worker = find_ref(plan->worker)) {
      tell_event(
          *worker,
          {.kind = Event::Kind::kPlan, .iteration = plan->iteration, .wait_us = plan->wait_us});
    }
  } else if (const auto* shutdown = std::get_if<wire::ShutdownNotice>(&body)) {
    link_.drain(shutdown->message, now);
  }
}

}  // namespace syncd::client
