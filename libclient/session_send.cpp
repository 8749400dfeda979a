// The session's requests: what is pending for a worker and is not sent on this connection yet goes
// out. Same thread as the session.
#include <utility>

#include "libclient/session.h"
#include "proto/base/check.h"

namespace syncd::client {

// Precondition: link_.usable(). The request's id says whose it is, so that its answer finds it; the
// number in the middle tells it from earlier ones, whose late answers must not.
std::uint64_t Session::send(WorkerId worker, Kind slot, const wire::Body& body) {
  SYNCD_CHECK(link_.usable());
  constexpr std::uint64_t kNumberMask = (1ULL << (kWorkerShift - kSlotBits)) - 1;
  const std::uint64_t id =
      (worker << kWorkerShift) | ((++requests_ & kNumberMask) << kSlotBits) | slot;
  link_.send(id, body, now_);
  return id;
}

// What was sent for this worker is void (its connection or its membership is gone) and will be sent
// again under the next one.
void Session::forget_requests(Worker& worker) {
  for_each_pending(worker, [](Pending& pending) {
    if (std::exchange(pending.request, 0) != 0) pending.sent_before = true;
  });
  for (Side& side : worker.sides) {
    if (side.kind != kMembers && side.kind != kView) continue;
    side.iteration = 0;  // the parts of a list are of one daemon
    side.members = {};
    side.view.members.clear();
  }
}

// Is there anything that this worker has to be a member for?
bool Session::has_pending(const Worker& worker) {
  bool any = !worker.sides.empty();
  for (int slot = kJoin; slot <= kLeave; ++slot) any = any || worker.pending[slot].active;
  return any;
}

void Session::send_join(Worker& worker) {
  worker.join_again_us = kNever;
  if (!link_.usable()) return;
  wire::Join join = worker.params;
  if (worker.any_policy) join.policy.clear();
  if (worker.params.listens()) {
    join.notices |=
        wire::kNoticeMembers | wire::kNoticePlan | wire::kNoticeStragglers | wire::kNoticeHang;
  }
  if (worker.params.inspects()) join.notices |= wire::kNoticeInspect;
  if (worker.membership != Membership::kJoining) {
    worker.membership = Membership::kResuming;
    join.rank = static_cast<std::int32_t>(worker.ref.rank);
    join.incarnation = worker.ref.incarnation;
    join.epoch = worker.ref.epoch;
    join.granted = worker.granted;
    join.pushed = worker.pushed;
    join.collected = worker.collected.iteration;
    // A set from before a jump may have been read without a word; it was, where a later push
    // follows.
    join.consumed = worker.pushed > join.collected ? join.collected : worker.consumed;
    if (in_phase(worker)) {
      join.phase = worker.phase;
      join.phase_left_us = worker.phase_until_us - now_;
    }
  }
  worker[kJoin].request = send(worker.id, kJoin, std::move(join));
}

// Asks the daemon to take this worker back under what we know of it.
void Session::resume(Worker& worker) {
  worker.membership = Membership::kResuming;
  forget_requests(worker);
  send_join(worker);
}

wire::Body Session::body_of(const Worker& worker, const Pending& pending) const {
  const wire::WorkerRef& ref = worker.ref;
  switch (pending.kind) {
    case kRestarted:
      return wire::Restarted{ref, pending.iteration};
    case kConsumed:
      return wire::Consumed{ref, pending.iteration};
    case kPush: {
      const PushInfo& info = worker.push_info;
      return wire::Push{ref,          pending.iteration, info.loss,
                        info.samples, info.bytes,        worker.computed_us};
    }
    case kBegin:
      if (worker.views) return wire::Arrive{ref, pending.iteration, worker.shown};
      return wire::Begin{ref, pending.iteration};
    case kTargets:
      return wire::Targets{ref, pending.iteration};
    case kCollect:
      return wire::Collect{ref, pending.iteration};
    case kPhase:
      if (!in_phase(worker)) return wire::Phase{ref, {}, 0};
      return wire::Phase{ref, worker.phase, worker.phase_until_us - now_};
    case kCancel:
      return wire::CancelBegin{ref, pending.iteration};
    case kMembers:
      return wire::MembersRequest{ref, static_cast<std::uint32_t>(pending.iteration)};
    case kView: {
      const auto& side = static_cast<const Side&>(pending);
      return wire::ViewRequest{ref, side.view.view, static_cast<std::uint32_t>(side.iteration)};
    }
    case kRequest: {
      wire::Body body = static_cast<const Side&>(pending).body;
      std::visit(
          [&](auto& made) {
            if constexpr (requires { made.worker = ref; }) made.worker = ref;
          },
          body);
      return body;
    }
    case kLeave:
      return wire::Leave{ref, worker.leave_kind, worker.leave_reason};
    default:
      return wire::Explain{ref};
  }
}

// In the order in which they were asked for: a push comes after the restart of its iteration, the
// next begin after what was consumed, at most one of push and begin, targets or collect is pending
// at a time. A phase that is in force was announced after the push or begin that is pending, which
// would end it. A leave comes after all of them.
void Session::send_pending(Worker& worker) {
  if (!link_.usable() || worker.membership != Membership::kJoined) return;
  for (Side& side : worker.sides) {
    if (!side.is_unsent()) continue;
    // The daemon tells of the changes after this again.
    if (side.kind == kMembers && side.iteration == 0) worker.members_told = false;
    side.request = send(worker.id, kSlots, body_of(worker, side));
  }
  for (int slot = kRestarted; slot <= kLeave; ++slot) {
    Pending& pending = worker.pending[slot];
    if (!pending.is_unsent()) continue;
    if ((pending.kind == kPush || pending.kind == kBegin) && in_phase(worker)) {
      worker[kPhase].active = true;
      worker[kPhase].request = 0;
    }
    pending.request = send(worker.id, static_cast<Kind>(slot), body_of(worker, pending));
  }
}

}  // namespace syncd::client
