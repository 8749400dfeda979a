// See engine_watch.h.
#include "tests/fuzz/engine_watch.h"

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/request_traits.h"
#include "proto/base/plain_text.h"

namespace syncd::fuzz {
namespace {

// The reason that a loss begins with for which an operator has asked.
constexpr std::string_view kKicked = "kicked by an operator";
constexpr std::string_view kDrained = "drained by an operator";

template <class Job>
auto* worker_of(Job& job, std::int64_t rank) {
  const auto at = std::find_if(job.workers.begin(), job.workers.end(),
                               [&](const auto& worker) { return worker.rank == rank; });
  return at == job.workers.end() ? nullptr : &*at;
}

// By its rank, or by a name that one worker alone has. The host is the same for all.
const WorkerSnapshot* worker_called(const JobSnapshot& job, const std::string& text) {
  std::uint32_t rank = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (code == std::errc{} && end == text.data() + text.size()) return worker_of(job, rank);
  // One that comes back under its name at another rank leaves its old place behind: the latest is
  // meant.
  const WorkerSnapshot* latest = nullptr;
  for (const WorkerSnapshot& worker : job.workers) {
    if (worker.name != text) continue;
    if (latest == nullptr || worker.incarnation > latest->incarnation) latest = &worker;
  }
  return latest;
}

bool decentralized(const std::string& policy) {
  return policy.starts_with("hop") || policy.starts_with("notify_ack");
}

// In any engine, the moment of the look aside.
bool same(JobSnapshot a, JobSnapshot b) {
  a.time_us = b.time_us = 0;
  return a == b;
}

std::string text_of(const JobSnapshot& job, const WorkerSnapshot& worker) {
  return "worker " + std::to_string(worker.rank) + " of " + job.created.name + ", policy " +
         job.policy;
}

const wire::WorkerRef* worker_named_by(const wire::Body& request) {
  return std::visit(
      [](const auto& body) -> const wire::WorkerRef* {
        if constexpr (kTraits<std::decay_t<decltype(body)>>.asker == Asker::kItsWorker) {
          return &body.worker;
        } else {
          return nullptr;
        }
      },
      request);
}

// What looks, and never changes anything that the engine knows of.
bool only_reads(const wire::Body& request) {
  return facts_of(request).is_request() && facts_of(request).effect == Effect::kReads;
}

std::optional<Status> status_of(const wire::Body& answer) {
  const auto* error = std::get_if<wire::Error>(&answer);
  return error != nullptr ? std::optional(error->status) : std::nullopt;
}

}  // namespace

EngineWatch::Jobs EngineWatch::jobs() const {
  Jobs jobs;
  for (const JobId id : engine_.job_ids()) {
    require(engine_.snapshot(id, jobs[id]), "a job without a snapshot");
  }
  return jobs;
}

const JobSnapshot* EngineWatch::job_called(const std::string& name) const {
  const auto at = before_.find(engine_.find_job(name));
  return at == before_.end() ? nullptr : &at->second;
}

void EngineWatch::look() {
  Jobs jobs = this->jobs();
  for (const auto& [id, was] : now_) {
    require(jobs.contains(id), "a job is lost", was.created.name);
    compare(was, jobs.at(id));
  }
  std::erase_if(acknowledged_, [&](const auto& push) {
    const JobSnapshot& job = jobs.at(std::get<0>(push.first));
    return job.reassembling;  // none of it may count any more
  });
  for (const auto& [life, iteration] : acknowledged_) {
    const auto& [job, rank, incarnation] = life;
    const WorkerSnapshot* worker = worker_of(jobs.at(job), rank);
    require(worker != nullptr, "a worker is lost that has pushed");
    if (worker->incarnation != incarnation) continue;
    require(worker->pushed >= iteration, "an acknowledged push is lost",
            text_of(jobs.at(job), *worker));
  }
  now_ = std::move(jobs);
}

// What holds from any moment to the next.
void EngineWatch::compare(const JobSnapshot& was, const JobSnapshot& is) const {
  const std::string& job = was.created.name;
  require(is.sequence >= was.sequence && is.epoch >= was.epoch, "a history goes back", job);
  require(is.pushes >= was.pushes, "pushes are lost", job);
  if (was.state == JobState::kStopped) {
    require(same(was, is), "a job goes on that has ended", job);
    return;
  }
  for (const WorkerSnapshot& old : was.workers) {
    const WorkerSnapshot* worker = worker_of(is, old.rank);
    require(worker != nullptr, "a worker is lost", job);
    const std::string who = text_of(is, old);
    require(worker->incarnation >= old.incarnation, "an incarnation goes down", who);
    // A group that is started again may begin anew.
    if (was.reassembling || is.reassembling || was.epoch != is.epoch) continue;
    require(worker->clock >= old.clock, "a clock goes down", who);
    if (worker->incarnation != old.incarnation) continue;
    require(worker->pushed >= old.pushed && worker->own_pushes >= old.own_pushes,
            "a worker's pushes are lost", who);
    require(worker->granted >= old.granted, "a grant is taken back", who);
    if (is_member(old.state)) continue;
    require(worker->state == old.state && worker->dismissal == old.dismissal &&
                worker->pushed == old.pushed,
            "a life goes on that has ended", who);
  }
}

// ---- one request

void EngineWatch::before(ConnectionId connection, const wire::Body& request) {
  look();
  before_ = now_;
  fenced_.clear();
  expected_.reset();
  if (const wire::WorkerRef* ref = worker_named_by(request)) expected_ = refusal(connection, *ref);
  if (const auto* manage = std::get_if<wire::ManageWorkerRequest>(&request)) {
    expected_ = refusal(*manage);
  }
}

// What whoever speaks for this worker is told, if it is not to.
std::optional<Status> EngineWatch::refusal(ConnectionId connection,
                                           const wire::WorkerRef& ref) const {
  const auto job = before_.find(ref.job);
  if (job == before_.end()) return Status::kUnknownJob;
  const WorkerSnapshot* worker = worker_of(job->second, ref.rank);
  if (worker == nullptr) return Status::kUnknownWorker;
  if (ref.epoch != job->second.epoch || ref.incarnation != worker->incarnation) {
    return Status::kFenced;
  }
  if (!is_member(worker->state)) {
    const bool is_over = !worker->dismissal.empty() && !worker->dismissal.starts_with(kKicked);
    return is_over ? Status::kStopped : Status::kFenced;
  }
  const auto at = attached_.find({ref.job, ref.rank});
  const bool here =
      at != attached_.end() && at->second == std::pair(worker->incarnation, connection);
  return here ? std::nullopt : std::optional(Status::kFenced);
}

std::optional<Status> EngineWatch::refusal(const wire::ManageWorkerRequest& request) const {
  if (request.job.size() > limits::kJobNameBytesMax) return Status::kInvalid;
  const JobSnapshot* job = job_called(request.job);
  if (job == nullptr) return Status::kUnknownJob;
  if (request.worker.size() > limits::kWorkerNameBytesMax ||
      request.text.size() > limits::kReasonBytesMax || !is_plain(request.text)) {
    return Status::kInvalid;
  }
  if (job->state == JobState::kStopped) return Status::kStopped;
  const WorkerSnapshot* worker = worker_called(*job, request.worker);
  if (worker == nullptr) return Status::kUnknownWorker;
  if (!is_member(worker->state)) return Status::kState;
  if (request.action > wire::WorkerAction::kLease) return Status::kUnsupported;
  if (request.action != wire::WorkerAction::kLease) return {};
  const bool leasable = !request.text.empty() &&
                        request.text.size() <= limits::kPhaseNameBytesMax && request.lease_us > 0 &&
                        request.lease_us <= limits::kPhaseLeaseMax;
  return leasable ? std::nullopt : std::optional(Status::kInvalid);
}

void EngineWatch::after(const wire::Body& request, const wire::Body* answer) {
  look();
  const std::string_view name = wire::body_name(request);
  const wire::WorkerRef* ref = worker_named_by(request);
  if (expected_) {
    require(answer != nullptr, "it waits, and is to be refused", name);
    require(status_of(*answer) == expected_, "it is not refused as it should be",
            std::string(name) + ", " + std::string(status_name(*expected_)) + " and not " +
                std::string(wire::body_name(*answer)) + " " +
                std::string(status_name(status_of(*answer).value_or(Status::kOk))));
    check_unchanged();
  } else if (answer != nullptr && ref != nullptr) {
    require(status_of(*answer) != Status::kFenced, "a member in good standing is fenced", name);
  }
  const bool refused = answer != nullptr && status_of(*answer).has_value();
  // Whatever is wrong with a change, nothing of it may happen.
  const bool is_administrative = facts_of(request).is_administrative();
  if (only_reads(request) || (is_administrative && refused)) check_unchanged();
  check_pushes(request, answer);
  if (const auto* join = std::get_if<wire::Join>(&request)) check_joined(*join, answer);
  if (answer == nullptr) {
    require(!is_administrative && !only_reads(request), "it waits for nothing", name);
    return;
  }
  if (ref != nullptr && !expected_) check_drained(*ref, request, *answer);
  if (const auto* manage = std::get_if<wire::ManageWorkerRequest>(&request)) {
    check_manage(*manage, *answer);
  } else if (const auto* set = std::get_if<wire::SetPolicyRequest>(&request)) {
    check_policy(*set, *answer);
  } else if (const auto* stop = std::get_if<wire::StopJobRequest>(&request)) {
    check_stop(*stop, *answer);
  } else if (const auto* why = std::get_if<Explanation>(answer)) {
    check_explanation(*ref, *why);
  } else if (const auto* workers = std::get_if<wire::WorkersReply>(answer)) {
    check_workers(std::get<wire::WorkersRequest>(request), *workers);
  } else if (const auto* members = std::get_if<wire::MembersReply>(answer)) {
    check_members(std::get<wire::MembersRequest>(request), *members);
  } else if (const auto* list = std::get_if<wire::JobsReply>(answer)) {
    check_jobs(*list);
  } else if (!facts_of(request).reaches_engine()) {
    require(status_of(*answer) == Status::kUnsupported, "the edge's request is served", name);
  }
}

void EngineWatch::answered(ConnectionId connection, const wire::Body& answer) {
  const auto* joined = std::get_if<wire::Joined>(&answer);
  if (joined == nullptr) return;
  const wire::WorkerRef& ref = joined->worker;
  attached_[{ref.job, ref.rank}] = {ref.incarnation, connection};
}

void EngineWatch::notified(const wire::Body& notice) {
  if (const auto* fenced = std::get_if<wire::FencedNotice>(&notice)) {
    fenced_.emplace(fenced->worker.job, fenced->worker.rank, fenced->worker.incarnation);
  }
}

void EngineWatch::closed(ConnectionId connection) {
  std::erase_if(attached_, [&](const auto& at) { return at.second.second == connection; });
}

// ---- what a request may change

void EngineWatch::check_unchanged() const {
  require(now_.size() == before_.size(), "a job comes of a request that makes none");
  for (const auto& [id, was] : before_) {
    require(same(was, now_.at(id)), "it changes a job, and is to change nothing", was.created.name);
  }
}

// A push that is acknowledged counts once, and nothing else does but what a joiner reports.
void EngineWatch::check_pushes(const wire::Body& request, const wire::Body* answer) {
  const auto* push = std::get_if<wire::Push>(&request);
  const auto* pushed = answer != nullptr ? std::get_if<wire::Pushed>(answer) : nullptr;
  const bool counts = pushed != nullptr && !pushed->late && !pushed->duplicate;
  if (pushed != nullptr) {
    require(push != nullptr && pushed->iteration == push->iteration,
            "another push is acknowledged");
    if (!pushed->late) {
      Iteration& latest =
          acknowledged_[{push->worker.job, push->worker.rank, push->worker.incarnation}];
      latest = std::max(latest, push->iteration);
    }
  }
  if (std::holds_alternative<wire::Join>(request)) return;
  for (const auto& [id, was] : before_) {
    const bool this_one = counts && push->worker.job == id;
    require(now_.at(id).pushes == was.pushes + (this_one ? 1 : 0),
            "pushes are lost, or counted again", was.created.name);
  }
}

// Whom an operator has sent away does not come back as the one that it was.
void EngineWatch::check_joined(const wire::Join& join, const wire::Body* answer) const {
  require(answer != nullptr, "a join waits");
  const auto* joined = std::get_if<wire::Joined>(answer);
  if (joined == nullptr || join.incarnation == 0) return;
  const auto job = before_.find(joined->worker.job);
  if (job == before_.end()) return;
  const WorkerSnapshot* worker = worker_of(job->second, joined->worker.rank);
  if (worker == nullptr || worker->name != join.name) return;
  require(is_member(worker->state) || worker->dismissal.empty(),
          "one comes back that was sent away", text_of(job->second, *worker));
}

// One that drains gets nothing more to do, and leaves with its push, or where it asks for more.
void EngineWatch::check_drained(const wire::WorkerRef& ref, const wire::Body& request,
                                const wire::Body& answer) const {
  const JobSnapshot& job = before_.at(ref.job);
  const WorkerSnapshot* was = worker_of(job, ref.rank);
  const WorkerSnapshot* is = worker_of(now_.at(ref.job), ref.rank);
  if (was->state != WorkerState::kDraining || job.state == JobState::kStopped) return;
  const std::string who = text_of(job, *was);
  const auto* granted = std::get_if<wire::Granted>(&answer);
  const bool told_stop = granted != nullptr && (granted->flags & wire::kStepStop) != 0;
  if (granted != nullptr && !told_stop) {
    require(granted->iteration == was->granted && is->granted == was->granted,
            "one that drains is granted more", who);
  }
  const auto* pushed = std::get_if<wire::Pushed>(&answer);
  const bool leaves =
      told_stop || (pushed != nullptr && !pushed->duplicate && !decentralized(job.policy));
  if (leaves) {
    require(is->state == WorkerState::kLeft && is->dismissal == was->dismissal,
            "one that drains does not leave", who);
  } else if (!std::holds_alternative<wire::Leave>(request)) {
    require(is->state == WorkerState::kDraining, "one that drains leaves too early", who);
  }
}

// ---- administrative requests

void EngineWatch::check_manage(const wire::ManageWorkerRequest& request,
                               const wire::Body& answer) const {
  if (expected_) return;
  const JobSnapshot& job = *job_called(request.job);
  const JobSnapshot& job_now = now_.at(job.created.job);
  const WorkerSnapshot& was = *worker_called(job, request.worker);
  const WorkerSnapshot& is = *worker_of(job_now, was.rank);
  const std::string who = text_of(job, was);
  require(std::holds_alternative<wire::Ok>(answer), "an operator is refused", who);
  require(is.incarnation == was.incarnation && is.clock == was.clock && is.pushed == was.pushed &&
              is.own_pushes == was.own_pushes,
          "an operator's request changes what a worker has done", who);
  for (const WorkerSnapshot& other : job.workers) {
    if (other.rank == was.rank) continue;
    require(worker_of(job_now, other.rank)->state == other.state,
            "another worker goes than the one that was meant", text_of(job, other));
  }
  const auto at = attached_.find({job.created.job, was.rank});
  const bool connected = at != attached_.end() && at->second.first == was.incarnation;
  const bool fenced = fenced_.contains({job.created.job, was.rank, was.incarnation});
  switch (request.action) {
    case wire::WorkerAction::kKick:
      require(is.state == WorkerState::kLost && is.dismissal.starts_with(kKicked),
              "a kicked worker stays", who);
      require(fenced == connected, "a kicked worker is not told, or told twice", who);
      require(job_now.state == job.state, "a kick ends the job", who);
      return;
    case wire::WorkerAction::kLease:
      require(is.state == was.state && is.leased_phase == request.text,
              "a lease is not what was asked for", who);
      return;
    case wire::WorkerAction::kDrain:
      break;
  }
  require(!fenced, "a drained worker is fenced", who);
  require(is.dismissal.starts_with(kDrained), "a drained worker is told no reason", who);
  if (was.state == WorkerState::kDraining) {
    require(is == was, "a second drain changes something", who);
  } else if (was.state == WorkerState::kRegistered) {
    require(is.state == WorkerState::kLeft, "one that has nothing to end does not leave", who);
  } else if (!decentralized(job.policy)) {
    const bool computing = was.granted > std::max(was.pushed, was.late);
    require(is.state == (computing ? WorkerState::kDraining : WorkerState::kLeft),
            "one leaves with its work undone, or stays without any", who);
  } else {
    require(is.state == WorkerState::kDraining || is.state == WorkerState::kLeft,
            "a drained worker stays", who);
  }
}

// A switch keeps every clock, and has all relative clocks begin anew.
void EngineWatch::check_policy(const wire::SetPolicyRequest& request,
                               const wire::Body& answer) const {
  if (status_of(answer)) return;
  require(std::holds_alternative<wire::Ok>(answer), "a switch is answered otherwise");
  const JobSnapshot& was = *job_called(request.job);
  const JobSnapshot& is = now_.at(was.created.job);
  require(was.state != JobState::kStopped, "a job switches that has ended", was.created.name);
  require(!decentralized(was.policy) && !decentralized(request.policy) && !decentralized(is.policy),
          "a switch to where iterations count differently", request.policy);
  require(is.state == was.state, "a switch starts or ends a job", was.created.name);
  if (is.policy == was.policy) return check_unchanged();
  for (const WorkerSnapshot& worker : was.workers) {
    const WorkerSnapshot& then = *worker_of(is, worker.rank);
    require(then.clock == worker.clock && then.pushed == worker.pushed &&
                then.state == worker.state && then.incarnation == worker.incarnation,
            "a switch changes a worker", text_of(is, worker));
    require(then.base == then.clock, "a relative clock does not begin anew", text_of(is, worker));
  }
}

void EngineWatch::check_stop(const wire::StopJobRequest& request, const wire::Body& answer) const {
  if (status_of(answer)) return;
  const JobSnapshot& job = now_.at(job_called(request.job)->created.job);
  require(job.state == JobState::kStopped, "a job goes on that was stopped", job.created.name);
}

// ---- what can be read

void EngineWatch::check_explanation(const wire::WorkerRef& ref,
                                    const Explanation& explanation) const {
  const JobSnapshot& job = now_.at(ref.job);
  require(!explanation.rule.empty() && !explanation.text.empty(), "an explanation of nothing",
          job.created.name);
  require(explanation.iteration >= 0 || explanation.waited_for_count == 0,
          "one that does not wait waits for somebody", job.created.name);
  require(explanation.ranks.empty() == (explanation.waited_for_count == 0),
          "as many are waited for as are named", explanation.ranks);
  if (job.state != JobState::kRunning) return;
  for (const WaitedFor& other : explanation.workers) {
    const WorkerSnapshot* worker = worker_of(job, other.rank);
    require(worker != nullptr && is_active(worker->state), "one is waited for that takes no part",
            job.policy + ": " + explanation.ranks);
  }
}

void EngineWatch::check_workers(const wire::WorkersRequest& request,
                                const wire::WorkersReply& reply) const {
  const JobSnapshot& job = *job_called(request.job);
  auto next = reply.workers.begin();
  for (const WorkerSnapshot& worker : job.workers) {
    if (worker.rank < request.first_rank) continue;
    if (next == reply.workers.end()) {
      require(reply.next_rank == worker.rank, "a page ends without a next one", job.created.name);
      return;
    }
    require(next->rank == worker.rank && next->name == worker.name && next->clock == worker.clock &&
                next->incarnation == worker.incarnation,
            "another worker is listed", text_of(job, worker));
    require(next->data == (request.with_data ? worker.data : std::vector<std::uint8_t>{}),
            "a worker is listed with other data", text_of(job, worker));
    require(!next->connected || is_member(worker.state), "one speaks that has gone",
            text_of(job, worker));
    ++next;
  }
  require(next == reply.workers.end() && reply.next_rank < 0,
          "workers are listed that nobody knows", job.created.name);
}

void EngineWatch::check_members(const wire::MembersRequest& request,
                                const wire::MembersReply& reply) const {
  const JobSnapshot& job = now_.at(request.worker.job);
  auto next = reply.members.begin();
  for (const WorkerSnapshot& worker : job.workers) {
    if (worker.rank < request.first_rank) continue;
    if (next == reply.members.end()) {
      require(reply.next_rank == worker.rank, "a page ends without a next one", job.created.name);
      return;
    }
    const bool gone =
        next->state == wire::MemberState::kLeft || next->state == wire::MemberState::kLost;
    require(next->rank == worker.rank && next->name == worker.name && next->data == worker.data &&
                gone != is_member(worker.state),
            "another member is listed", text_of(job, worker));
    ++next;
  }
  require(next == reply.members.end() && reply.next_rank < 0,
          "members are listed that nobody knows", job.created.name);
}

void EngineWatch::check_jobs(const wire::JobsReply& reply) const {
  require(reply.jobs.size() + reply.omitted == now_.size(), "jobs are not listed");
  for (const wire::JobStatus& job : reply.jobs) {
    require(now_.contains(job.id), "a job is listed that nobody knows", job.name);
    require(now_.at(job.id).pushes == job.pushes && now_.at(job.id).epoch == job.epoch,
            "a job is listed as another", job.name);
  }
}

}  // namespace syncd::fuzz
