// Loop: begins in jobs with views, and rounds. Runs on the engine's thread.
#include <algorithm>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/loop.h"

namespace syncd {

void Loop::on(const Caller& caller, const wire::Arrive& arrive) {
  Worker* worker = answers_.check(caller, arrive.worker);
  if (worker == nullptr) return;
  const Iteration k = arrive.iteration;
  if (arrive.data.size() > limits::kMemberDataBytesMax) {
    answers_.refuse(caller, Status::kInvalid,
                    "begin({}) of {}: its data is {} bytes long: at most {} are allowed", k,
                    label(*worker), arrive.data.size(), limits::kMemberDataBytesMax);
    return;
  }
  if (roster_.state() == JobState::kStopped) {
    answers_.reply(caller, view_stop(k, recorder_.stop_reason()));
    return;
  }
  if (gathers()) return arrive_in_round(*worker, caller, arrive);
  answers_.refuse(caller, Status::kUnsupported,
                  "begin({}) of {}: its job has no views: begin without data", k, label(*worker));
}

void Loop::arrive_in_round(Worker& worker, const Caller& caller, const wire::Arrive& arrive) {
  const Iteration k = arrive.iteration;
  const Iteration next = due(worker);
  const bool in_round = policy_->in_round(worker.rank);
  // Invariant I8: it may not have seen the answer.
  if (in_round && k >= 0 && k <= worker.granted) {
    answers_.reply(caller, view_grant(worker), true);
    return;
  }
  if (k < 0 || k <= worker.granted || k > next) {
    answers_.refuse(caller, Status::kWrongIteration, "begin({}) of {}: the round that is due is {}",
                    k, label(worker), next);
    return;
  }
  if (worker.state == WorkerState::kDraining) {
    if (answers_.refuses_store(caller)) return;
    answers_.reply(caller, view_stop(k, worker.dismissal), true);
    membership_.drain_out(worker, worker.dismissal);
    return;
  }
  if (!worker.waiting) liveness_.progressed(worker);
  liveness_.end_phase(worker);
  worker.shown = arrive.data;
  const bool fresh = set_pending(worker, caller, k, Call::kBegin);
  worker.waiting->arrives = true;
  if (fresh) policy_->on_begin(*this, worker.rank);
}

wire::ViewGranted Loop::view_grant(const Worker& worker) const {
  wire::ViewGranted granted;
  granted.iteration = worker.granted;
  granted.staleness = worker.last_grant.staleness;
  const View* view = views_.find(worker.view);
  if (view == nullptr || worker.view_rank >= view->members.size()) return granted;
  granted.flags = view->members[worker.view_rank].flags;
  granted.view = view->number;
  granted.rank = worker.view_rank;
  granted.size = static_cast<std::uint32_t>(view->members.size());
  granted.data = view->members.front().data;
  granted.reason = view->reason;
  granted.checkpoint = checkpoints_.flagged(worker);
  if (granted.checkpoint != 0) granted.flags |= wire::kStepCheckpoint;
  return granted;
}

wire::ViewGranted Loop::view_stop(Iteration iteration, const std::string& reason) {
  wire::ViewGranted stopped;
  stopped.iteration = iteration;
  stopped.flags = wire::kStepStop;
  stopped.reason = reason;
  return stopped;
}

// ---- records
// ---------------------------------------------------------------------------------------------

// The policy has named ranks.
void Loop::fill_view(Record& record) const {
  record.members.reserve(record.values.size());
  for (const std::int64_t rank : record.values) {
    const Worker& worker = roster_.at(static_cast<Rank>(rank));
    std::uint32_t flags = wire::kStepPull | wire::kStepBarrier;
    if (worker.tells_resumed) flags |= wire::kStepResumed;
    record.members.push_back(
        {worker.rank, worker.incarnation, flags, worker.name, worker.host, worker.shown});
  }
  record.values.clear();
}

void Loop::apply_view(const Record& record) {
  const View& view = views_.apply(record);
  see_view(view);
  if (!gathers()) return;
  answers_.log(LogLevel::kInfo, "round_formed", nullptr,
               {{"round", std::to_string(view.number)},
                {"members", std::to_string(view.members.size())},
                {"reason", view.reason}});
  for (const ViewMember& member : view.members) {
    Worker* worker = roster_.find(member.rank);
    if (worker == nullptr || worker->incarnation != member.incarnation) continue;
    worker->granted = worker->asked = record.iteration;
    if (worker->clock < record.iteration) roster_.set_clock(*worker, record.iteration);
  }
}

void Loop::see_view(const View& view) {
  for (std::uint32_t at = 0; at < view.members.size(); ++at) {
    const ViewMember& member = view.members[at];
    Worker* worker = roster_.find(member.rank);
    if (worker == nullptr || worker->incarnation != member.incarnation) continue;
    worker->view = view.number;
    worker->view_rank = at;
  }
}

std::string Loop::restore_views(const JobSnapshot& snapshot) {
  std::string wrong = views_.restore(snapshot);
  if (wrong.empty() && views_.latest() != nullptr) see_view(*views_.latest());
  return wrong;
}

// ---- what the policy decides
// ---------------------------------------------------------------------------------------------

void Loop::stop_begin(Rank rank, const std::string& reason) {
  stop_pending(roster_.at(rank), reason);
}

void Loop::fence(Rank rank, const std::string& reason) {
  membership_.lose(roster_.at(rank), std::string(Answers::kFencedReason) + reason);
}

// It must not overtake the grant of the round that it is about, which waits for the disk.
void Loop::tell_round(Rank rank, const RoundState& state) {
  const Worker& worker = roster_.at(rank);
  answers_.notify(worker.connection,
                  wire::RoundNotice{answers_.ref(worker), state.round, state.gone, state.room},
                  true);
}

}  // namespace syncd
