// The session's requests: what stands for a worker and is not sent on this connection yet goes out.
// Same thread as the session.
#include <utility>

#include "libclient/session.h"
#include "proto/base/check.h"

namespace syncd::client {

// Precondition: link_.usable().
std::uint64_t Session::send(Kind kind, WorkerId worker, wire::Body body, TimeUs now) {
  SYNCD_CHECK(link_.usable());
  const std::uint64_t id = next_request_++;
  requests_.emplace(id, Request{kind, worker});
  link_.send(id, std::move(body), now);
  return id;
}

// An answer to it that still comes is ignored.
void Session::forget(std::uint64_t& request) {
  if (request != 0) requests_.erase(std::exchange(request, 0));
}

// What was sent for this worker is void (its connection or its membership is gone) and will be sent
// again under the next one.
void Session::forget_requests(Worker& worker) {
  for (Standing* standing :
       {&worker.join, &worker.wait, &worker.push, &worker.consumed_notice.standing,
        &worker.restarted_notice.standing, &worker.phase_notice.standing, &worker.leave}) {
    if (standing->request != 0) standing->sent_before = true;
    forget(standing->request);
  }
  forget(worker.explain_request);
  for (Side& side : worker.sides) {
    forget(side.request);
    side.next_rank = 0;  // the parts of a list are of one daemon
    side.members = {};
  }
}

// Is there anything that this worker has to be a member for?
bool Session::has_standing(const Worker& worker) {
  return worker.join.active || worker.wait.active || worker.push.active || worker.leave.active ||
         worker.consumed_notice.standing.active || worker.restarted_notice.standing.active ||
         worker.phase_notice.standing.active || !worker.sides.empty();
}

void Session::send_join(Worker& worker, TimeUs now) {
  worker.join_again_us = kNever;
  if (!link_.usable()) return;
  const JoinRequest& params = worker.params;
  wire::Join join;
  join.job = params.job;
  join.policy = worker.any_policy ? std::string() : params.policy;
  join.name = params.name;
  join.host = params.host;
  join.rank = params.rank;
  join.world_size = params.world_size;
  join.data = params.data;
  if (params.listens()) join.notices = wire::kNoticeMembers | wire::kNoticePlan;
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
    if (in_phase(worker, now)) {
      join.phase = worker.phase;
      join.phase_left_us = worker.phase_until_us - now;
    }
  }
  worker.join.request = send(Kind::kJoin, worker.id, std::move(join), now);
}

// Asks the daemon to take this worker back under what we know of it.
void Session::resume(Worker& worker, TimeUs now) {
  worker.membership = Membership::kResuming;
  forget_requests(worker);
  send_join(worker, now);
}

void Session::send_notice(Worker& worker, Notice& notice, wire::Body body, TimeUs now) {
  if (!notice.standing.active || notice.standing.request != 0) return;
  notice.standing.request = send(Kind::kNotice, worker.id, std::move(body), now);
}

// In the order in which they were asked for: a push comes after the restart of its iteration, the
// next begin after what was consumed, at most one of push and begin, targets or collect stands at a
// time. A phase that is in force was announced after the push or begin that stands, which would end
// it. A leave comes after all of them.
void Session::send_standing(Worker& worker, TimeUs now) {
  if (!link_.usable() || worker.membership != Membership::kJoined) return;
  for (Side& side : worker.sides) {
    if (side.request != 0) continue;
    wire::Body body = wire::Explain{worker.ref};
    if (side.what == Aside::kCancel) body = wire::CancelBegin{worker.ref, side.iteration};
    if (side.what == Aside::kMembers) {
      body = wire::MembersRequest{worker.ref, side.next_rank};
      // The daemon tells of the changes after this again.
      if (side.next_rank == 0) worker.members_told = false;
    }
    side.request = send(Kind::kSide, worker.id, std::move(body), now);
  }
  const auto unsent = [](const Standing& standing) {
    return standing.active && standing.request == 0;
  };
  send_notice(worker, worker.restarted_notice,
              wire::Restarted{worker.ref, worker.restarted_notice.iteration}, now);
  send_notice(worker, worker.consumed_notice,
              wire::Consumed{worker.ref, worker.consumed_notice.iteration}, now);
  const bool ends_phase =
      unsent(worker.push) || (unsent(worker.wait) && worker.wait_call == WaitCall::kBegin);
  if (ends_phase && in_phase(worker, now)) {
    forget(worker.phase_notice.standing.request);
    worker.phase_notice.standing.active = true;
  }
  if (unsent(worker.push)) {
    worker.push_body.worker = worker.ref;
    worker.push.request = send(Kind::kPush, worker.id, worker.push_body, now);
  }
  if (unsent(worker.wait)) {
    const std::int64_t iteration = worker.wait_iteration;
    wire::Body body = wire::Begin{worker.ref, iteration};
    if (worker.wait_call == WaitCall::kTargets) body = wire::Targets{worker.ref, iteration};
    if (worker.wait_call == WaitCall::kCollect) body = wire::Collect{worker.ref, iteration};
    worker.wait.request = send(Kind::kWait, worker.id, std::move(body), now);
  }
  wire::Phase phase{worker.ref, {}, 0};
  if (in_phase(worker, now)) {
    phase.name = worker.phase;
    phase.lease_us = worker.phase_until_us - now;
  }
  send_notice(worker, worker.phase_notice, std::move(phase), now);
  if (unsent(worker.leave)) {
    worker.leave.request = send(Kind::kLeave, worker.id, wire::Leave{worker.ref}, now);
  }
}

}  // namespace syncd::client
