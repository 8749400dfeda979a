// Job: views, and rounds of workers that train together. Runs on the engine's thread.
#include <algorithm>

#include "daemon/core/engine/job.h"

namespace syncd {

void Job::on(const Caller& caller, const wire::ViewRequest& request) {
  if (answers_.check(caller, request.worker) == nullptr) return;
  if (!loop_.has_views()) {
    answers_.refuse(caller, Status::kUnsupported, "job '{}' has no views", spec_.name);
    return;
  }
  const View* view = loop_.views().find(request.view);
  if (view == nullptr) {
    answers_.refuse(caller, Status::kInvalid, "view {} of job '{}' is not kept: {}", request.view,
                    spec_.name, loop_.views().kept());
    return;
  }
  if (request.first_rank >= view->members.size()) {
    answers_.refuse(caller, Status::kInvalid,
                    "view {} of job '{}' has no rank {}: allowed are 0 to {}", request.view,
                    spec_.name, request.first_rank, view->members.size() - 1);
    return;
  }
  answers_.reply(caller, Views::page(*view, request.first_rank));
}

void Job::exclude(const Caller& caller, const wire::ExcludeRequest& request) {
  if (answers_.refuses_as_ended(caller)) return;
  if (request.host.empty()) {
    answers_.refuse(caller, Status::kInvalid, "the host's name is empty: name one");
    return;
  }
  std::string wrong = loop_.policy().exclude(loop_, request);
  if (!wrong.empty()) {
    answers_.refuse(caller, Status::kInvalid, "job '{}' has policy '{}': {}", spec_.name,
                    loop_.policy().name(), wrong);
    return;
  }
  answers_.reply(caller, wire::Ok{}, true);
  Answers::Fields fields = {{"host", request.host}};
  if (!request.reason.empty()) fields.emplace_back("reason", request.reason);
  answers_.log(LogLevel::kInfo, request.undo ? "host_admitted" : "host_excluded", nullptr,
               std::move(fields));
}

// Where a run has left no member behind, the next one's first joiner says MIN, MAX and the times,
// unless an operator has.
void Job::join_gather(const Caller& caller, const wire::Join& join, bool fixed) {
  const bool is_left = roster_.members() == 0 && roster_.known() > 0;
  std::unique_ptr<Policy> wanted;
  const bool is_new = join.incarnation == 0;  // no member that comes back
  const bool may = !fixed && !policy_set_ && engine_.options().auto_create;
  if (is_left && is_new && may && !join.policy.empty()) {
    std::string error;  // of which admission tells
    wanted = make_policy(join.policy, error);
    if (wanted && wanted->family() != Family::kGather) wanted = nullptr;
  }
  if (wanted) {
    std::string wrong = rounds_too_large(spec_.name, wanted->traits().round_max,
                                         engine_.options().workers_per_job_max);
    if (!wrong.empty()) return answers_.refuse(caller, Status::kLimit, std::move(wrong));
  }
  join_with(caller, without_claims(join), join.granted, wanted.get());
}

// What a joiner reports of itself counts for nothing: the job's records have every round.
wire::Join Job::without_claims(const wire::Join& join) {
  wire::Join plain = join;
  plain.granted = plain.pushed = plain.collected = plain.consumed = kNoIteration;
  plain.launch.clear();
  plain.launch_number = 0;
  plain.world_size = 0;
  return plain;
}

void Job::end_job(const std::string& reason) {
  stop(reason);
}

void Job::fill_round(wire::Joined& joined) const {
  if (!loop_.has_views()) return;
  joined.views = true;
  if (!loop_.gathers()) return;
  const RoundState state = loop_.policy().round();
  joined.round = state.round;
  joined.round_gone = state.gone;
  joined.round_room = state.room;
}

// Something has changed of which the policy is not told otherwise.
void Job::look_at_rounds() {
  if (roster_.running() && loop_.gathers()) loop_.policy().on_timer(loop_, kNoRank, 0);
  if (roster_.running()) loop_.try_view();
}

// ---- a job that its members have left
// ---------------------------------------------------------------------------------------------

// The members of a run that was killed say nothing, and each run may have a job of its own. Where
// only an operator can make a job, only an operator ends it.
void Job::watch_idle() {
  if (!loop_.gathers() || !is_live() || recorder_.replaying()) return;
  if (roster_.members() > 0 || roster_.known() == 0 || !engine_.options().auto_create) {
    engine_.cancel_timer(kNoRank, kTimerIdle);
  } else {
    engine_.set_timer(kNoRank, kTimerIdle, engine_.now() + kIdleUs);
  }
}

void Job::end_if_idle() {
  if (roster_.members() > 0) return;
  if (engine_.store_refusal() != nullptr) return watch_idle();
  stop(fmt::format("{}: no member for {}", kIdleReason, format_duration(kIdleUs)));
}

// ---- after a restart of the daemon
// ---------------------------------------------------------------------------------------------

void Job::begin_amnesty() {
  liveness_.set_amnesty(engine_.now() + kAmnestyUs);
}

void Job::end_amnesty() {
  liveness_.set_amnesty(engine_.now());
  roster_.each([&](Worker& worker) {
    if (is_member(worker.state)) liveness_.arm(worker);
  });
}

}  // namespace syncd
