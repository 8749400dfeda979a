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
  if (has_views()) return begin_in_view(*worker, caller, arrive);
  answers_.refuse(caller, Status::kUnsupported,
                  "begin({}) of {}: its job has no views: begin without data", k, label(*worker));
}

// As a begin of a job without views.
void Loop::begin_in_view(Worker& worker, const Caller& caller, const wire::Arrive& arrive) {
  const Iteration k = arrive.iteration;
  if (worker.computing() && k > worker.answered() && k <= worker.granted) {
    liveness_.end_phase(worker);
    answers_.reply(caller, view_grant(worker), true);
    return;
  }
  if (k <= worker.granted || k > due(worker)) {
    answers_.refuse(
        caller, Status::kWrongIteration, "begin({}) of {}: {}", k, label(worker),
        worker.computing()
            ? fmt::format("iteration {} was granted and is not pushed yet", worker.granted)
            : fmt::format("the iteration that is due is {}", due(worker)));
    return;
  }
  if (worker.state == WorkerState::kDraining) {
    if (answers_.refuses_store(caller)) return;
    answers_.reply(caller, view_stop(k, worker.dismissal), true);
    membership_.drain_out(worker, worker.dismissal);
    return;
  }
  if (!worker.waiting) {
    liveness_.progressed(worker);
    worker.end_span();
  }
  liveness_.end_phase(worker);
  worker.shown = arrive.data;
  const bool fresh = set_pending(worker, caller, k, Call::kBegin);
  worker.waiting->arrives = true;
  if (!fresh) return;
  if (roster_.state() == JobState::kWaiting) return membership_.set_ready(worker, true);
  if (worker.state == WorkerState::kRegistered) membership_.admit(worker);
  policy_->on_begin(*this, worker.rank);
}

// ---- views of a policy with barriers
// ---------------------------------------------------------------------------------------------

// The first iteration behind a barrier, and of a worker that is in no view yet.
bool Loop::opens_view(const Worker& worker, const Grant& grant) const {
  const std::int64_t every = policy_->traits().barrier_every;
  return worker.view == 0 || (grant.flags & wire::kStepBarrier) != 0 ||
         (every > 0 && worker.relative() % every == 0);
}

bool Loop::view_is_granted() const {
  const View* latest = views_.latest();
  if (latest == nullptr) return false;
  const Clock first = policy_->entry_clock(*this);
  return std::ranges::any_of(roster_.active(), [&](Rank rank) {
    const Worker& worker = roster_.at(rank);
    return worker.view == latest->number && worker.granted - worker.base >= first;
  });
}

bool Loop::may_open_view() const {
  return !replaying() && can_note() && !are_views_held_ && !held_.empty() &&
         held_.size() == roster_.active().size();
}

void Loop::release_views() {
  are_views_held_ = false;
  try_view();
}

void Loop::try_view() {
  if (!may_open_view()) return;
  Fact fact;
  fact.kind = RecordKind::kView;
  fact.iteration =
      views_.latest() == nullptr ? 1 : static_cast<Iteration>(views_.latest()->number) + 1;
  for (const auto& [rank, grant] : held_) fact.values.push_back(rank);
  fact.reason = view_reason();
  note(std::move(fact));
  // Each is in the view now, so that none of these is held again.
  for (auto& [rank, grant] : std::exchange(held_, {})) {
    Worker& worker = roster_.at(rank);
    if (!worker.waits_in(Call::kBegin)) continue;
    grant.flags |= wire::kStepPull | wire::kStepBarrier;
    give(worker, grant);
  }
}

// Who is in it and was not in the one before, and the other way round.
std::string Loop::view_reason() const {
  const View* before = views_.latest();
  if (before == nullptr) return "the first view";
  std::size_t stayed = 0, gone = 0;
  std::string first_gone;
  for (const ViewMember& member : before->members) {
    const Worker* worker = roster_.find(member.rank);
    const bool stays = worker != nullptr && worker->incarnation == member.incarnation &&
                       held_.contains(member.rank);
    stayed += stays ? 1 : 0;
    if (stays || gone++ > 0) continue;
    first_gone = "'" + member.name + "'";
  }
  const std::size_t joined = held_.size() - stayed;
  if (gone == 0 && joined == 0) return {};
  std::string text;
  if (gone > 0)
    text = first_gone + (gone == 1 ? "" : fmt::format(" and {} more", gone - 1)) + " left";
  if (joined > 0) text += fmt::format("{}{} joined", gone > 0 ? "; " : "", joined);
  return text;
}

Reason Loop::explain_view() const {
  Reason reason;
  RankList missing;
  for (const Rank rank : roster_.active()) {
    if (!held_.contains(rank)) missing.push_back(rank);
  }
  reason.text = can_note()
                    ? fmt::format("the next view opens when all {} workers have begun, {} so far",
                                  roster_.active().size(), held_.size())
                    : "the next view waits until the daemon can write its history (STORE)";
  reason.waiting_for = std::move(missing);
  return reason;
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
  const bool is_kept = worker.last_grant.iteration == worker.granted && worker.granted_at >= 0;
  if (gathers() || (!is_kept && worker.view_first == worker.granted)) {
    granted.flags = view->members[worker.view_rank].flags;
  } else {
    granted.flags = is_kept ? worker.last_grant.flags : wire::kStepPull;
  }
  granted.view = view->number;
  granted.rank = worker.view_rank;
  granted.size = static_cast<std::uint32_t>(view->members.size());
  granted.data = view->members.front().data;
  granted.reason = view->reason;
  checkpoints_.flagged(worker).put(granted);
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
  if (!replaying()) ++counters_.views;
  if (!gathers()) {
    if (!view.reason.empty()) {
      answers_.log(LogLevel::kInfo, "view_changed", nullptr,
                   {{"view", std::to_string(view.number)},
                    {"members", std::to_string(view.members.size())},
                    {"reason", view.reason}});
    }
    for (const ViewMember& member : view.members) {
      Worker* worker = roster_.find(member.rank);
      if (worker == nullptr || worker->incarnation != member.incarnation) continue;
      worker->view_first = worker->clock;
      if (recorder_.replaying()) worker->granted = worker->asked = worker->clock;
    }
    return;
  }
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
