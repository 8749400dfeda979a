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

// A failure must not look like a success to the caller.
Status failure_of(const wire::Error& error) {
  return static_cast<std::int32_t>(error.status) < 0 ? error.status : Status::kProtocol;
}

}  // namespace

// ---- Answers to requests -----------------------------------------------------------------------

// Null: of a call that was given up, or that is in flight no more.
Session::Pending* Session::find_pending(Worker& worker, std::uint64_t request) {
  const auto slot = request & ((1U << kSlotBits) - 1);
  if (slot < kSlots) {
    Pending& pending = worker.pending[slot];
    return pending.request == request ? &pending : nullptr;
  }
  const auto at = std::find_if(worker.sides.begin(), worker.sides.end(),
                               [&](const Side& side) { return side.request == request; });
  return at != worker.sides.end() ? &*at : nullptr;
}

void Session::link_message(const wire::Message& message) {
  if (message.id == 0) return notice(message.body);
  const WorkerId worker = message.id >> kWorkerShift;
  if (worker == kNoWorker) return on_asked(message.id, message.body);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  Pending* pending = find_pending(found->second, message.id);
  if (pending == nullptr) return;
  pending->request = 0;
  const std::size_t before = workers_.size();
  on_answer(found->second, *pending, message.body);
  if (workers_.size() != before) return;  // it is gone
  if (found->second.end_is_lost) step_out_if_over(found->second);
}

void Session::on_asked(std::uint64_t request, const wire::Body& body) {
  const auto found = asked_.find(request);
  if (found == asked_.end()) return;
  link_.note_progress();
  Op& op = found->second;
  if (const auto* error = std::get_if<wire::Error>(&body)) {
    complete(op, failure_of(*error), error->message);
  } else {
    complete_ok(op, AskResult{std::make_shared<wire::Body>(body)});
  }
  asked_.erase(found);
}

// It was told of an end, and came back for the sake of a pending call, to a daemon that had lost
// that end: now that the call is answered, the others must not wait for one who begins no more. Its
// next call, if there is one, asks again.
void Session::step_out_if_over(Worker& worker) {
  if (worker.membership != Membership::kJoined || has_pending(worker)) return;
  if (!link_.usable()) return;  // the daemon goes away, and does not take it back by itself
  worker.end_is_lost = false;
  worker.membership = Membership::kDetached;
  send(worker.id, kLeave, wire::Leave{worker.ref});  // nobody waits for its answer
}

void Session::on_answer(Worker& worker, Pending& pending, const wire::Body& body) {
  const Kind kind = pending.kind;
  if (const auto* error = std::get_if<wire::Error>(&body)) {
    if (retried_elsewhere(*error)) return;
    return on_refused(worker, pending, {failure_of(*error), error->message});
  }
  link_.note_progress();
  if (kind == kRequest) {
    return end_side(worker, pending, AskResult{std::make_shared<wire::Body>(body)});
  }
  if (const auto* granted = std::get_if<wire::Granted>(&body)) {
    // The end of the job is said so to whatever waits.
    if (&pending == &worker[kWait] && (granted->flags & wire::kStepStop) != 0) {
      return on_stopped(worker, {});
    }
    Step step = make_step(granted->iteration, granted->flags, granted->staleness);
    step.checkpoint = granted->checkpoint;
    step.shard = granted->shard;
    step.shards = granted->shards;
    if (kind == kBegin) return on_granted(worker, std::move(step));
    if (kind == kLeave && (step.flags & wire::kStepCheckpoint) != 0) {
      return on_leave_held(worker, step);
    }
  } else if (const auto* view = std::get_if<wire::ViewGranted>(&body)) {
    if (&pending == &worker[kWait] && (view->flags & wire::kStepStop) != 0) {
      return on_stopped(worker, view->reason);
    }
    if (kind == kBegin) return on_granted(worker, Step(*view));
  } else if (const auto* pushed = std::get_if<wire::Pushed>(&body)) {
    if (kind == kPush) return on_pushed(worker, pushed->late);
  } else if (std::holds_alternative<wire::Ok>(body)) {
    if (kind == kLeave) return leave_done(worker);
    if (kind == kRestarted || kind == kConsumed || kind == kPhase) return on_noted(worker, pending);
    if (kind == kCancel) return end_side(worker, pending, std::monostate{});
  } else if (const auto* joined = std::get_if<wire::Joined>(&body)) {
    if (kind == kJoin) return on_joined(worker, *joined);
  } else if (const auto* targets = std::get_if<wire::TargetsReply>(&body)) {
    if (kind == kTargets) return on_peer_answer(worker, worker.targets = *targets);
  } else if (const auto* collected = std::get_if<wire::CollectReply>(&body)) {
    if (kind == kCollect) return on_peer_answer(worker, worker.collected = *collected);
  } else if (const auto* page = std::get_if<wire::MembersReply>(&body)) {
    if (kind == kMembers) return on_page(worker, static_cast<Side&>(pending), *page);
  } else if (const auto* members = std::get_if<wire::ViewReply>(&body)) {
    if (kind == kView) return on_view_page(worker, static_cast<Side&>(pending), *members);
  } else if (const auto* given = std::get_if<Explanation>(&body)) {
    if (kind == kExplain) return end_side(worker, pending, *given);
    // Of iteration -1: the grant or the request is under way, so that there is nobody to name.
    const bool is_late = given->iteration < 0;
    if (kind == kWhy) {
      return finish_wait_timeout(worker,
                                 is_late ? "the daemon was about to answer" : to_text(*given));
    }
    if (kind == kTellWait) {
      on_wait_explained(worker, *given);
      return end_side(worker, pending, std::monostate{});
    }
  }
  // A defect of the daemon. The call fails rather than the connection, which would only bring the
  // same answer again.
  on_refused(worker, pending,
             {Status::kProtocol, "the daemon answered with " + std::string(wire::body_name(body)) +
                                     ", which does not belong to this request"});
}

void Session::on_refused(Worker& worker, Pending& pending, const wire::Error& error) {
  const Kind kind = pending.kind;
  if (kind == kJoin) {
    return pending.active ? on_join_refused(worker, error) : on_resume_refused(worker, error);
  }
  if (kind == kWhy) {
    finish_wait_timeout(worker, "the daemon does not say why: " + error.message);
  }
  if (error.status == Status::kFenced) return on_fenced(worker, error.message);
  if (kind == kWhy) return;
  if (&pending == &worker[kWait]) return on_wait_refused(worker, error);
  const std::string text = call_text(pending, worker) + ": " + error.message;
  if (kind >= kExplain) {
    complete(pending.op, error.status, text);
    return end_side(worker, pending, std::monostate{});
  }
  const bool over = error.status == Status::kStopped;
  if (kind == kLeave &&
      (over || error.status == Status::kUnknownJob || error.status == Status::kUnknownWorker)) {
    return leave_done(worker);  // nobody waits for this worker any more, which is what was asked
  }
  pending.active = false;
  if (over) on_stopped(worker, error.message);
  if (kind == kPhase) worker.phase.clear();
  Status status = error.status;
  if (kind == kPush) {
    // What was granted here is no iteration of the worker's life there: a new one has begun.
    if (status == Status::kState) status = Status::kWrongIteration;
    if (status == Status::kWrongIteration) drop_granted(worker);
  }
  complete(pending.op, status, text);
  if (kind == kLeave && worker.released) erase(worker.id);
}

// The daemon cannot answer now, but it or another may soon. True if the request is to be sent again
// on the next connection.
bool Session::retried_elsewhere(const wire::Error& error) {
  if (error.status != Status::kShutdown && error.status != Status::kUnreachable) return false;
  // After a ShutdownNotice other answers may still be on their way; without one nothing else tells
  // us to go.
  if (link_.usable()) link_.fail("the daemon cannot go on: " + error.message, now_);
  return true;
}

// ---- Join --------------------------------------------------------------------------------------

void Session::on_joined(Worker& worker, const wire::Joined& joined) {
  forget_rank(worker);
  worker.membership = Membership::kJoined;
  worker.ref = joined.worker;
  worker.joined_at = joined.iteration;
  worker.grace_us = joined.worker_grace_us;
  worker.world_size = joined.world_size;
  observe(worker, joined.hang_after_us);
  take_views(worker, joined);
  by_rank_[rank_key(worker.ref)] = worker.id;
  const auto early = early_notices_.find(rank_key(worker.ref));
  if (early != early_notices_.end() && early->second.worker == worker.ref) {
    tell_members(worker, early->second.version);
    early_notices_.erase(early);
  }
  Pending& join = worker[kJoin];
  // While it was away, much may have changed.
  if (!join.active && joined.members_version != 0) tell_members(worker, joined.members_version);
  if (join.active) {
    join.active = join.sent_before = false;
    worker.own_former = false;
    worker.due = worker.next = joined.iteration;
    complete_ok(join.op,
                JoinResult{worker.id, joined.worker.rank, joined.world_size, joined.iteration,
                           joined.policy, joined.durable, joined.resumed, joined.views});
    // Whoever asked has given up: the others must not wait for a worker that nobody runs.
    if (worker.released) worker[kLeave].active = true;
  } else {
    worker.end_is_lost = worker.stopped;
    if (!joined.resumed) on_new_life(worker);
    if (worker.rounds) {
      adopt_round(worker, joined);
    } else {
      adopt_iteration(worker, joined.iteration);
    }
  }
  send_pending(worker);
}

// A worker that comes back goes on where the daemon says. What its caller computes now is pushed
// all the same, and the daemon says what becomes of it.
void Session::adopt_iteration(Worker& worker, std::int64_t iteration) {
  if (worker.open || worker[kPush].active) return;
  if (worker.grant_ready && worker.granted == iteration) return;
  worker.grant_ready = false;
  // A decentralized worker that has pushed is still within its iteration; what it begins is the
  // next one all the same.
  worker.next = std::max(iteration, worker.pushed + 1);
  if (worker[kWait].kind == kBegin) worker[kWait].iteration = worker.next;
}

// The daemon had given this worker up and takes it in anew. With a parameter server it may still
// push what it computes; what it waited for from its neighbours, and they from it, is over.
void Session::on_new_life(Worker& worker) {
  for (const Kind kind : {kConsumed, kRestarted}) {
    worker[kind].active = false;
    complete_ok(worker[kind].op);  // nobody waits for it any more
  }
  // Nor for what was collected before. Said as unread to a daemon that knows of neither, it would
  // look like slots that are read for ever.
  worker.consumed = std::max(worker.consumed, worker.collected.iteration);
  Pending& wait = worker[kWait];
  if (!wait.active || wait.kind == kBegin) return;
  end_wait(worker);
  worker.open = false;  // what was granted can never be pushed any more
  set_computing_since(worker, kNever);
  complete(wait.op, Status::kWrongIteration,
           call_text(wait, worker) +
               ": the daemon had given this worker up meanwhile, and the others went on without "
               "it; the next begin says where it takes part again");
}

void Session::on_join_refused(Worker& worker, const wire::Error& error) {
  if (worker.released) return erase(worker.id);  // nobody waits for it any more
  Pending& join = worker[kJoin];
  const bool ours = worker.own_former || join.sent_before;
  if (error.status == Status::kRankTaken && ours && ask_again(worker)) return;
  const bool over = error.status == Status::kFenced || error.status == Status::kStopped;
  if (over && worker.membership != Membership::kJoining) {
    // The life that a new handle was to go on with has ended: it begins another one.
    worker.membership = Membership::kJoining;
    worker.granted = worker.pushed = worker.consumed = -1;
    worker.targets = {-1, {}};
    worker.collected = {-1, {}};
    for (int slot = kRestarted; slot <= kLeave; ++slot) {
      worker.pending[slot] = {static_cast<Kind>(slot)};
    }
    worker.phase.clear();
    forget_rank(worker);
    return send_join(worker);
  }
  complete(join.op, error.status, join_text(worker.params) + ": " + error.message);
  erase(worker.id);
}

// Our own former self, whose connection or membership ends just now, may hold the place until the
// daemon has noticed. False once that would have been noticed.
bool Session::ask_again(Worker& worker) {
  if (worker.ask_until_us == kNever) {
    // A cluster's leader may let us give it up earlier than it notices that we have gone.
    const TimeUs least_us = link_.several_daemons() ? kNoticedAfterUs : 0;
    worker.ask_until_us = now_ + kRankRetryUs +
                          std::max(TimeUs{link_.welcome().heartbeat_timeout_ms} * 1000, least_us);
  }
  if (now_ >= worker.ask_until_us) return false;
  worker.join_again_us = now_ + kRankRetryUs;
  scan_at_us_ = std::min(scan_at_us_, worker.join_again_us);
  return true;
}

void Session::forget_rank(const Worker& worker) {
  const auto at = by_rank_.find(rank_key(worker.ref));
  if (at != by_rank_.end() && at->second == worker.id) by_rank_.erase(at);
}

void Session::on_resume_refused(Worker& worker, const wire::Error& error) {
  if (error.status == Status::kPolicyMismatch && !worker.any_policy) {
    worker.any_policy = true;  // the operator has switched the job's policy since we joined
    return send_join(worker);
  }
  const Pending& leave = worker[kLeave];
  if (error.status == Status::kFenced) {
    // A leave whose answer was lost with the last connection has had its effect.
    if (leave.active && leave.sent_before) return leave_done(worker);
    return fail_for_good(worker, error.message);
  }
  if (error.status == Status::kStopped) {
    on_stopped(worker, error.message);
    if (leave.active) return leave_done(worker);
  }
  // The daemon would not take the worker back now; the next call asks again.
  worker.membership = Membership::kDetached;
  fail_waiting(worker, error.status, "the daemon did not let it resume: " + error.message);
  if (worker.released) erase(worker.id);
}

void Session::on_fenced(Worker& worker, const std::string& message) {
  if (worker.membership != Membership::kJoined) return;
  worker.fences += 1;
  // Taken back and thrown out again with nothing done in between: that would go on for ever.
  if (worker.fences > 1) return fail_for_good(worker, message);
  resume(worker);
}

// A worker that nobody calls for may hang: as a member it would be waited for again. It comes back
// with its next call.
void Session::on_fenced_notice(Worker& worker, const std::string& message) {
  if (worker.membership != Membership::kJoined) return;
  if (worker.rounds) break_round(worker);
  if (has_pending(worker)) return on_fenced(worker, message);
  if (worker.released) return erase(worker.id);
  worker.membership = Membership::kDetached;
}

// ---- Begin, targets, collect -------------------------------------------------------------------

void Session::on_wait_refused(Worker& worker, const wire::Error& error) {
  if (error.status == Status::kStopped) return on_stopped(worker, error.message);
  end_wait(worker);
  Pending& wait = worker[kWait];
  // The two sides disagree on where this worker is: the next call asks the daemon first.
  const bool begin = wait.kind == kBegin;
  if (begin && error.status == Status::kWrongIteration) worker.membership = Membership::kDetached;
  // Refused for the very iteration that was granted here: this is no iteration of the worker's life
  // there, and the way is free for the next begin.
  Status status = error.status;
  const bool unknown_there =
      status == Status::kWrongIteration || (status == Status::kState && wait.kind == kTargets);
  // After a jump, the set of the iteration before the granted one is collected.
  const bool about_granted = wait.iteration == worker.granted ||
                             (wait.kind == kCollect && wait.iteration + 1 == worker.granted);
  if (!begin && unknown_there && worker.open && about_granted) {
    status = Status::kWrongIteration;
    drop_granted(worker);
  }
  complete(wait.op, status, call_text(wait, worker) + ": " + error.message);
}

// The granted iteration can never be pushed any more, so the way is free for the next begin.
void Session::drop_granted(Worker& worker) {
  worker.open = false;
  set_computing_since(worker, kNever);
  worker.next = std::max(worker.next, worker.joined_at);
}

void Session::set_computing_since(Worker& worker, TimeUs since) {
  if (worker.params.signals != nullptr) worker.params.signals->set_computing_since(since);
}

// The request is pending no more; its caller, if there is one, is still to be told.
void Session::end_wait(Worker& worker) {
  worker[kWait].active = false;
  worker[kWait].request = 0;
  worker.tell_wait_us = kNever;
  worker[kWhy] = {kWhy};
}

template <typename Reply>
void Session::on_peer_answer(Worker& worker, Reply& kept) {
  Pending& wait = worker[kWait];
  worker.fences = 0;
  kept.iteration = wait.iteration;
  end_wait(worker);
  if (wait.op.id != 0) deliver_peer_answer(worker, wait.op, wait.kind);
}

void Session::on_granted(Worker& worker, Step&& granted) {
  worker.fences = 0;
  end_wait(worker);
  worker.granted = granted.iteration;
  worker.next = granted.iteration;
  worker.granted_at_us = now_;
  // The daemon says SKIP for a jump that it made within this request; only this side knows of one
  // that happened while this worker was away. Where it has lost its history it may go back. Rounds
  // are no steps of a clock.
  if (granted.iteration > worker.due && !worker.rounds) granted.flags |= wire::kStepSkip;
  if (granted.iteration != worker.due && !worker.rounds) granted.flags |= wire::kStepPull;
  if (granted.view != 0) enter_view(worker, granted.view);
  clear_resync(worker);
  if (worker[kWait].op.id != 0) return deliver_grant(worker, std::move(granted));
  worker.grant = std::move(granted);
  worker.grant_ready = true;
}

void Session::on_stopped(Worker& worker, std::string_view why) {
  if (!std::exchange(worker.stopped, true)) tell_event(worker, {.kind = Event::Kind::kStop});
  if (!why.empty()) worker.ending = why;
  if (worker.rounds) break_round(worker);  // so that its caller begins, and learns of it
  end_wait(worker);
  deliver_stop(worker);
}

// ---- Push, and what is told --------------------------------------------------------------------

void Session::on_pushed(Worker& worker, bool late) {
  Pending& push = worker[kPush];
  worker.fences = 0;
  push.active = false;
  worker.open = false;
  set_computing_since(worker, kNever);
  worker.pushed = push.iteration;
  worker.pushed_late = late;
  worker.due = worker.next = push.iteration + 1;
  complete_ok(push.op, PushResult{push.iteration, late});
}

void Session::on_noted(Worker& worker, Pending& notice) {
  worker.fences = 0;
  notice.active = false;
  if (notice.kind == kConsumed) worker.consumed = std::max(worker.consumed, notice.iteration);
  complete_ok(notice.op);
}

// ---- What was asked beside the loop ------------------------------------------------------------

// One part of a list.
void Session::on_page(Worker& worker, Side& side, const wire::MembersReply& page) {
  // What was told while the list was asked for may be in it; the next change is not.
  if (side.iteration == 0) {
    worker.members_told = false;
    side.members.version = page.version;
  }
  auto& all = side.members.members;
  all.insert(all.end(), page.members.begin(), page.members.end());
  if (page.next_rank < 0) {
    return end_side(worker, side, std::move(side.members));
  }
  if (page.next_rank > side.iteration && page.next_rank <= INT32_MAX) {
    side.iteration = page.next_rank;
    return send_pending(worker);
  }
  const std::string wrong = "the daemon's list goes on at rank " + std::to_string(page.next_rank) +
                            " after rank " + std::to_string(side.iteration);
  complete(side.op, Status::kProtocol, call_text(side, worker) + ": " + wrong);
  end_side(worker, side, std::monostate{});
}

// ---- Events ------------------------------------------------------------------------------------

void Session::tell_event(const Worker& worker, Event event) {
  if (worker.params.listens()) events_.push_back({worker.params.signals, std::move(event)});
}

// Once, until the worker has asked who is there.
void Session::tell_members(Worker& worker, std::uint64_t version) {
  if (std::exchange(worker.members_told, true)) return;
  tell_event(worker, {.kind = Event::Kind::kMembers, .version = version});
}

// One may overtake the Joined that it follows, which waits for the daemon's disk.
void Session::on_members_notice(const wire::MembersNotice& notice) {
  if (Worker* worker = find_ref(notice.worker)) return tell_members(*worker, notice.version);
  if (early_notices_.size() < workers_.size()) early_notices_[rank_key(notice.worker)] = notice;
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
void Session::notice(const wire::Body& body) {
  if (const auto* stop = std::get_if<wire::StopNotice>(&body)) {
    if (Worker* worker = find_ref(stop->worker)) {
      on_stopped(*worker, "job '" + worker->params.job + "' has ended: " + stop->message);
    }
  } else if (const auto* fenced = std::get_if<wire::FencedNotice>(&body)) {
    if (Worker* worker = find_ref(fenced->worker)) on_fenced_notice(*worker, fenced->message);
  } else if (const auto* resync = std::get_if<wire::ResyncNotice>(&body)) {
    Worker* worker = find_ref(resync->worker);
    const bool current = worker != nullptr && worker->granted == resync->iteration &&
                         (worker->open || worker->grant_ready) && !(*worker)[kPush].active;
    if (current && worker->params.signals) {
      worker->advised = true;
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
  } else if (const auto* round = std::get_if<wire::RoundNotice>(&body)) {
    if (Worker* worker = find_ref(round->worker)) {
      on_round(*worker, {round->round, round->gone, round->room});
    }
  } else if (const auto* straggler = std::get_if<wire::StragglerNotice>(&body)) {
    if (const Worker* worker = find_ref(straggler->worker)) {
      tell_event(*worker, {.kind = Event::Kind::kStraggler, .straggler = *straggler});
    }
  } else if (const auto* hang = std::get_if<wire::HangNotice>(&body)) {
    if (const Worker* worker = find_ref(hang->worker)) {
      tell_event(*worker, {.kind = Event::Kind::kHang,
                           .iteration = hang->iteration,
                           .wait_us = hang->waiting_us,
                           .hang = *hang});
    }
  } else if (const auto* inspect = std::get_if<wire::InspectNotice>(&body)) {
    const Worker* worker = find_ref(inspect->worker);
    if (worker != nullptr && worker->params.inspects()) {
      inspections_.push_back({worker->params.signals, worker->id, inspect->number});
    }
  } else if (const auto* shutdown = std::get_if<wire::ShutdownNotice>(&body)) {
    link_.drain(shutdown->message, now_);
  }
}

}  // namespace syncd::client
