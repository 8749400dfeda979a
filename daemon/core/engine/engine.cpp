// Engine: routes events to jobs, owns the timers, keeps the table of connections. Runs on whatever
// one thread drives it.
#include "daemon/core/engine/engine.h"

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "daemon/core/engine/job.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/request_traits.h"
#include "proto/base/number.h"
#include "proto/base/plain_text.h"

namespace syncd {
namespace {

// Binds a job to the effects of the event being handled, and lets go of it again.
class Bound {
 public:
  Bound(Job& job, Effects& effects) : job_(job) { job_.answers().bind(&effects); }
  ~Bound() { job_.answers().bind(nullptr); }
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

 private:
  Job& job_;
};

void refuse(const Caller& caller, Status status, std::string text, Effects& effects) {
  effects.replies.push_back({caller, false, wire::Error{status, std::move(text)}});
}
void refuse_as_shutting_down(const Caller& caller, Effects& effects) {
  refuse(caller, Status::kShutdown, "the daemon is shutting down", effects);
}

// Empty if what comes from outside fits its limit; else a sentence.
template <class Bytes>
std::string check_length(const char* what, const Bytes& value, std::size_t bytes_max) {
  if (value.size() <= bytes_max) return {};
  return std::string(what) + " is " + std::to_string(value.size()) + " bytes long: at most " +
         std::to_string(bytes_max) + " are allowed";
}

// Likewise for what others will be shown: it must be plain text, too.
std::string check_shown(const char* what, const std::string& value, std::size_t bytes_max) {
  std::string wrong = check_length(what, value, bytes_max);
  return wrong.empty() ? check_plain(what, value) : wrong;
}

// Answers repeat the job's name, and must fit a frame: one that is too long is refused first.
bool refuses_name(const Caller& caller, const std::string& job, Effects& effects) {
  std::string wrong = job_name_too_long(job);
  if (wrong.empty()) return false;
  refuse(caller, Status::kInvalid, std::move(wrong), effects);
  return true;
}

// Invariant I8: what a returning worker reports must fit itself before it may change anything.
// `incarnation_known`, `epoch_known`: the highest that the daemon itself has given to workers of
// this job, which must be able to come back with them whatever others have claimed.
std::string check_claims(const wire::Join& join, Incarnation incarnation_known, Epoch epoch_known) {
  const auto in_range = [](Iteration k) { return k >= kNoIteration && k <= limits::kIterationMax; };
  if (join.rank < -1) {
    return "rank " + std::to_string(join.rank) + ": allowed are -1 (any) and up";
  }
  const Incarnation incarnation_max = std::max(limits::kIncarnationMax, incarnation_known);
  if (join.incarnation > incarnation_max) {
    return "incarnation " + std::to_string(join.incarnation) +
           " is out of range: allowed are 0 to " + std::to_string(incarnation_max);
  }
  const Epoch epoch_max = std::max<Epoch>(limits::kIncarnationMax, epoch_known);
  if (join.epoch > epoch_max) {
    return "epoch " + std::to_string(join.epoch) + " is out of range: allowed are 0 to " +
           std::to_string(epoch_max);
  }
  if (!in_range(join.granted) || !in_range(join.pushed) || !in_range(join.collected) ||
      !in_range(join.consumed)) {
    return "an iteration reported at the join is out of range: allowed are -1 to " +
           std::to_string(limits::kIterationMax);
  }
  if (join.collected > join.granted || join.consumed > join.collected) {
    return "iteration " + std::to_string(join.consumed) + " is reported as consumed and " +
           std::to_string(join.collected) + " as collected, but only " +
           std::to_string(join.granted) + " as granted";
  }
  if (join.pushed > join.granted) {
    return "iteration " + std::to_string(join.pushed) + " is reported as pushed, but only " +
           std::to_string(join.granted) + " as granted";
  }
  return join.phase.empty() ? std::string{} : check_phase(join.phase, join.phase_left_us);
}

}  // namespace

std::string job_name_too_long(const std::string& job) {
  return check_length("the job's name", job, limits::kJobNameBytesMax);
}

Engine::Engine(EngineOptions options) {
  state_.options = std::move(options);
  state_.has_room_for_worker = [this] { return has_room_for_worker(); };
}
Engine::~Engine() = default;

void Engine::step(Event event, Micros now, Effects& effects) {
  effects.clear();
  state_.now = std::max(state_.now, now);
  std::visit(
      [&](auto& e) {
        using T = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<T, Request>) {
          handle(e, effects);
        } else if constexpr (std::is_same_v<T, Disconnected>) {
          on_disconnected(e, effects);
        } else if constexpr (std::is_same_v<T, PlanReady>) {
          const auto it = jobs_.find(e.job);
          if (it == jobs_.end()) return;
          Bound bound(*it->second, effects);
          it->second->plan_ready(e);
        } else if constexpr (std::is_same_v<T, StoreState>) {
          state_.store = std::move(e);
        } else if constexpr (std::is_same_v<T, Shutdown>) {
          shutting_down_ = true;
          for (auto& [id, job] : jobs_) {
            Bound bound(*job, effects);
            job->refuse_all_pending(Status::kShutdown, "the daemon is shutting down: " + e.reason);
          }
        }
      },
      event);
  finish(effects);
}

void Engine::tick(Micros now, Effects& effects, std::size_t timers_max) {
  effects.clear();
  state_.now = std::max(state_.now, now);
  TimerKey key;
  for (; timers_max > 0 && state_.timers.pop(state_.now, key); --timers_max) {
    const auto it = jobs_.find(key.job);
    if (it == jobs_.end()) continue;
    Bound bound(*it->second, effects);
    it->second->timer(key);
  }
  finish(effects);
}

void Engine::finish(Effects& effects) {
  std::sort(state_.touched.begin(), state_.touched.end());
  state_.touched.erase(std::unique(state_.touched.begin(), state_.touched.end()),
                       state_.touched.end());
  for (const JobId id : state_.touched) {
    take_snapshot(*jobs_.at(id), effects);
  }
  state_.touched.clear();
  if (state_.tails > limits::kReplayFactor * state_.options.snapshot_every_records)
    shorten_tails(effects);
}

void Engine::take_snapshot(Job& job, Effects& effects) {
  effects.snapshots.push_back(job.snapshot());
  state_.tails -= job.recorder().tail();
  job.snapshot_taken();
}

void Engine::take_snapshots(std::span<const JobId> jobs, Effects& effects) {
  effects.clear();
  for (const JobId id : jobs) {
    const auto it = jobs_.find(id);
    if (it != jobs_.end() && it->second->recorder().tail() > 0) take_snapshot(*it->second, effects);
  }
}

// O(jobs), and seldom: it takes away more than so many mean tails.
void Engine::shorten_tails(Effects& effects) {
  const std::uint64_t mean = std::max<std::uint64_t>(state_.tails / jobs_.size(), 1);
  auto it = jobs_.upper_bound(shortened_);
  int taken = 0;
  std::uint32_t workers = 0;
  for (std::size_t i = 0; i < jobs_.size() && taken < limits::kSnapshotsAtOnce &&
                          workers < limits::kWorkersPerJobDefault;
       ++i, ++it) {
    if (it == jobs_.end()) it = jobs_.begin();
    if (it->second->recorder().tail() < mean) continue;
    workers += it->second->roster().known();
    take_snapshot(*it->second, effects);
    shortened_ = it->first;
    ++taken;
  }
}

// ---- requests
// ---------------------------------------------------------------------------------------

// To the job of the worker that it is about.
template <class Body>
void Engine::route(const Caller& caller, const Body& body, Effects& effects) {
  if (Job* job = job_of(caller, body.worker, effects)) {
    Bound bound(*job, effects);
    if constexpr (requires { job->loop().on(caller, body); }) {
      job->loop().on(caller, body);
    } else {
      job->on(caller, body);
    }
  }
}

template <class Call>
void Engine::call(const Caller& caller, const Call& call, Micros now, Effects& effects) {
  effects.clear();
  state_.now = std::max(state_.now, now);
  if (shutting_down_) {
    refuse_as_shutting_down(caller, effects);
  } else {
    route(caller, call, effects);
  }
  if (must_finish()) finish(effects);
}
template void Engine::call(const Caller&, const wire::Push&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Begin&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Targets&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Collect&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Consumed&, Micros, Effects&);

void Engine::handle(Request& request, Effects& effects) {
  if (shutting_down_) return refuse_as_shutting_down(request.caller, effects);
  std::visit(
      [&](auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (kTraits<T>.asker == Asker::kItsWorker) {
          route(request.caller, body, effects);
        } else if constexpr (std::is_same_v<T, wire::Join>) {
          on_join(request, body, effects);
        } else if constexpr (std::is_same_v<T, wire::JobsRequest>) {
          const auto all = [](const std::string&) { return true; };
          effects.replies.push_back({request.caller, false, jobs(all)});
        } else if constexpr (std::is_same_v<T, wire::WorkersRequest>) {
          on_workers(request.caller, body, effects);
        } else if constexpr (std::is_same_v<T, wire::CreateJobRequest>) {
          on_create(request, body, effects);
        } else if constexpr (std::is_same_v<T, wire::StopJobRequest>) {
          on_stop(request.caller, body, effects);
        } else if constexpr (std::is_same_v<T, wire::SetPolicyRequest>) {
          on_set_policy(request.caller, body, effects);
        } else if constexpr (std::is_same_v<T, wire::ManageWorkerRequest>) {
          on_manage(request.caller, body, effects);
        } else {
          static_assert(!kTraits<T>.reaches_engine(), "a branch for it is missing");
          refuse(request.caller, Status::kUnsupported,
                 "this daemon does not serve requests of type " +
                     std::string(wire::body_name(request.body)),
                 effects);
        }
      },
      request.body);
}

Job* Engine::find_job_of(const Caller& caller, const wire::WorkerRef& worker, Effects& effects) {
  const auto it = jobs_.find(worker.job);
  if (it == jobs_.end()) {
    refuse(caller, Status::kUnknownJob, no_such_job(worker.job), effects);
    return nullptr;
  }
  last_asked_ = worker.job;
  last_job_ = it->second.get();
  return last_job_;
}

bool Engine::store_refuses(const Caller& caller, Effects& effects) const {
  if (state_.store.writable) return false;
  refuse(caller, Status::kStore, "the daemon cannot write its history now: " + state_.store.reason,
         effects);
  return true;
}

// A name whose job has run to its end may be used again; a worker of the ended job may not.
bool Engine::makes_job(const wire::Join& join) const {
  const JobId id = find_job(join.job);
  return id == 0 || (jobs_.at(id)->finished() && join.incarnation == 0);
}

const std::string* Engine::policy_to_make(const wire::Join& join) const {
  // What the configuration declares has its file with it.
  if (!makes_job(join) || declared_.contains(join.job)) return nullptr;
  return join.policy.empty() ? &state_.options.defaults.policy : &join.policy;
}

const std::string* Engine::policy_to_make(const wire::CreateJobRequest& create) const {
  return create.policy.empty() ? &state_.options.defaults.policy : &create.policy;
}

void Engine::on_join(Request& request, wire::Join& join, Effects& effects) {
  const Caller& caller = request.caller;
  std::string wrong = job_name_too_long(join.job);
  if (wrong.empty()) {
    wrong = check_shown("the worker's name", join.name, limits::kWorkerNameBytesMax);
  }
  if (wrong.empty()) wrong = check_shown("the host's name", join.host, limits::kHostNameBytesMax);
  if (wrong.empty()) wrong = check_length("the policy", join.policy, limits::kPolicyBytesMax);
  if (wrong.empty())
    wrong = check_length("the member's data", join.data, limits::kMemberDataBytesMax);
  const JobId id = find_job(join.job);
  Job* job = id == 0 ? nullptr : jobs_.at(id).get();
  if (wrong.empty()) {
    wrong = job == nullptr ? check_claims(join, 0, 0)
                           : check_claims(join, job->recorder().next_incarnation() - 1,
                                          job->recorder().epoch());
  }
  if (wrong.empty() && join.name.empty()) wrong = "the worker's name is empty: give it one";
  if (!wrong.empty()) return refuse(caller, Status::kInvalid, std::move(wrong), effects);
  if (makes_job(join)) {
    const auto declared = declared_.find(join.job);
    if (declared == declared_.end() && !state_.options.auto_create) {
      const std::string why = job == nullptr ? "there is no job '" + join.job + "'"
                                             : "job '" + join.job + "' has ended";
      return refuse(caller, Status::kUnknownJob,
                    why +
                        ", and this daemon does not let a join create one: create it first "
                        "(syncctl job create)",
                    effects);
    }
    JobSpec spec = state_.options.defaults;
    if (declared != declared_.end()) {
      spec = declared->second;
    } else {
      spec.name = join.job;
      spec.graph_file = std::move(request.graph_file);
      if (!join.policy.empty()) spec.policy = join.policy;
      if (join.world_size != 0) spec.expected_workers = join.world_size;
    }
    if (std::string error = validate(spec); !error.empty()) {
      return refuse(caller, Status::kInvalid, std::move(error), effects);
    }
    if (std::string error = too_large(spec); !error.empty()) {
      return refuse(caller, Status::kLimit, std::move(error), effects);
    }
    if (!has_room_for_worker()) {
      return refuse(caller, Status::kLimit, EngineServices(state_, 0).no_room_for_worker(),
                    effects);
    }
    if (store_refuses(caller, effects)) return;
    std::string error;
    {
      // A join that its own job would refuse makes none.
      Job trial(EngineServices(state_, 0), spec, make_policy(spec.policy, error, spec.graph_file));
      Bound bound(trial, effects);
      if (trial.admission().refuses(caller, join)) return;
    }
    // One that comes back to a daemon whose store is empty brings its job's epoch with it.
    job = create_job(spec, effects, error, join.epoch);
    if (job == nullptr) return refuse(caller, Status::kLimit, std::move(error), effects);
  }
  Bound bound(*job, effects);
  job->join(caller, join);
}

// For a job that is valid.
std::string Engine::too_large(const JobSpec& spec) const {
  const std::string job = "job '" + spec.name + "' is to have ";
  if (spec.expected_workers > state_.options.workers_per_job_max) {
    return job + std::to_string(spec.expected_workers) + " workers: this daemon allows " +
           std::to_string(state_.options.workers_per_job_max) +
           " per job (limits.workers_per_job_max)";
  }
  std::string error;
  const auto policy = make_policy(spec.policy, error, spec.graph_file);
  const std::size_t edges = policy->dense_edges(spec.expected_workers, nullptr);
  if (edges <= state_.options.graph_edges_max) return {};
  return job + "a graph of " + std::to_string(edges) + " edges: this daemon allows " +
         std::to_string(state_.options.graph_edges_max) +
         " (limits.graph_edges_max); a sparse graph such as root_expander carries more workers";
}

Job* Engine::create_job(const JobSpec& spec, Effects& effects, std::string& error,
                        Epoch epoch_least) {
  if (jobs_.size() >= limits::kJobsMax && !forget_oldest_stopped()) {
    error = "this daemon runs " + std::to_string(jobs_.size()) +
            " jobs already, the most allowed: stop one first";
    return nullptr;
  }
  auto policy = make_policy(spec.policy, error, spec.graph_file);
  if (!policy) return nullptr;
  const auto named = by_name_.find(spec.name);
  const Epoch last =
      named == by_name_.end() ? epoch_forgotten_ : jobs_.at(named->second)->recorder().epoch();
  const JobId id = next_job_++;
  auto job = std::make_unique<Job>(EngineServices(state_, id), spec, std::move(policy),
                                   std::max(last + 1, epoch_least));
  Job* raw = job.get();
  jobs_[id] = std::move(job);
  by_name_[spec.name] = id;
  Bound bound(*raw, effects);
  raw->record_creation();
  return raw;
}

// Makes room for a new job. The forgotten one's history stays in the store.
bool Engine::forget_oldest_stopped() {
  for (const auto& [id, job] : jobs_) {
    if (!job->is_live()) return forget(id);
  }
  return false;
}

bool Engine::has_room_for_worker() {
  for (auto it = jobs_.begin();
       state_.workers >= state_.options.workers_max && it != jobs_.end();) {
    const auto& [id, job] = *it++;
    if (job->roster().known() > 0) forget(id);  // if it has ended
  }
  return state_.workers < state_.options.workers_max;
}

bool Engine::forget(JobId stopped) {
  const auto it = jobs_.find(stopped);
  if (it == jobs_.end() || it->second->is_live()) return false;
  const auto named = by_name_.find(it->second->spec().name);
  if (named != by_name_.end() && named->second == it->first) by_name_.erase(named);
  forget_epochs(it->second->recorder().epoch());
  state_.tails -= it->second->recorder().tail();
  state_.workers -= it->second->roster().known();
  jobs_.erase(it);
  last_job_ = nullptr;
  return true;
}

bool Engine::declare_job(const JobSpec& spec, Micros now, Effects& effects, std::string& error) {
  effects.clear();
  state_.now = std::max(state_.now, now);
  error = validate(spec);
  if (!error.empty()) return false;
  declared_[spec.name] = spec;
  const JobId id = find_job(spec.name);
  if (id != 0 && jobs_.at(id)->is_live()) return true;
  const bool made = create_job(spec, effects, error) != nullptr;
  finish(effects);
  return made;
}

void Engine::on_create(Request& request, wire::CreateJobRequest& create, Effects& effects) {
  const Caller& caller = request.caller;
  if (refuses_name(caller, create.name, effects)) return;
  JobSpec spec = state_.options.defaults;
  spec.name = create.name;
  spec.graph_file = std::move(request.graph_file);
  if (!create.policy.empty()) spec.policy = create.policy;
  if (create.expected_workers != 0) spec.expected_workers = create.expected_workers;
  spec.min_workers = create.min_workers;
  if (std::string error = validate(spec); !error.empty()) {
    return refuse(caller, Status::kInvalid, std::move(error), effects);
  }
  if (std::string error = too_large(spec); !error.empty()) {
    return refuse(caller, Status::kLimit, std::move(error), effects);
  }
  const JobId id = find_job(spec.name);
  if (id != 0 && jobs_.at(id)->is_live()) {
    return refuse(caller, Status::kJobExists,
                  "job '" + spec.name + "' exists already (#" + std::to_string(id) + ", " +
                      to_string(jobs_.at(id)->state()) + "): stop it first, or choose another name",
                  effects);
  }
  if (store_refuses(caller, effects)) return;
  std::string error;
  if (create_job(spec, effects, error) == nullptr) {
    return refuse(caller, Status::kLimit, std::move(error), effects);
  }
  effects.replies.push_back({caller, true, wire::Ok{}});
}

JobId Engine::named(const Caller& caller, const std::string& name, Effects& effects) const {
  if (refuses_name(caller, name, effects)) return 0;
  const JobId id = find_job(name);
  if (id == 0) refuse(caller, Status::kUnknownJob, "there is no job '" + name + "'", effects);
  return id;
}

void Engine::on_stop(const Caller& caller, wire::StopJobRequest& stop, Effects& effects) {
  const JobId id = named(caller, stop.job, effects);
  if (id == 0) return;
  std::string wrong = check_shown("the reason", stop.reason, limits::kReasonBytesMax);
  if (!wrong.empty()) return refuse(caller, Status::kInvalid, std::move(wrong), effects);
  if (store_refuses(caller, effects)) return;
  Job& job = *jobs_.at(id);
  Bound bound(job, effects);
  job.stop(stop.reason.empty() ? "stopped by an operator"
                               : "stopped by an operator: " + stop.reason);
  effects.replies.push_back({caller, true, wire::Ok{}});
}

void Engine::on_manage(const Caller& caller, const wire::ManageWorkerRequest& request,
                       Effects& effects) {
  const JobId id = named(caller, request.job, effects);
  if (id == 0) return;
  std::string wrong =
      check_length("the worker's name", request.worker, limits::kWorkerNameBytesMax);
  if (wrong.empty()) wrong = check_shown("the reason", request.text, limits::kReasonBytesMax);
  if (!wrong.empty()) return refuse(caller, Status::kInvalid, std::move(wrong), effects);
  if (store_refuses(caller, effects)) return;
  Job& job = *jobs_.at(id);
  Bound bound(job, effects);
  job.manage(caller, request);
}

void Engine::on_set_policy(const Caller& caller, wire::SetPolicyRequest& request,
                           Effects& effects) {
  const JobId id = named(caller, request.job, effects);
  if (id == 0) return;
  Job& job = *jobs_.at(id);
  std::string error;
  const auto policy = make_policy(request.policy, error);
  if (policy) error = job.check_switch(*policy);
  if (!error.empty()) {
    return refuse(caller, job.state() == JobState::kStopped ? Status::kStopped : Status::kInvalid,
                  std::move(error), effects);
  }
  if (store_refuses(caller, effects)) return;
  Bound bound(job, effects);
  effects.replies.push_back({caller, true, wire::Ok{}});
  job.switch_policy(*policy);
}

// ---- views
// --------------------------------------------------------------------------------------------

bool Engine::is_live(JobId job) const {
  const auto it = jobs_.find(job);
  return it != jobs_.end() && it->second->is_live();
}

EngineStats Engine::stats(const Visible& visible) const {
  EngineStats stats;
  for (const auto& [id, job] : jobs_) {
    if (!visible(job->spec().name)) continue;
    stats.pushes += job->loop().pushes();
    if (!job->is_live()) continue;
    ++stats.jobs;
    stats.workers += job->roster().members();
  }
  return stats;
}

wire::JobsReply Engine::jobs(const Visible& visible) const {
  wire::JobsReply reply;
  // As many as fit an answer: first those that still go on, then the latest of the others.
  std::size_t bytes = 0;
  for (const bool stopped : {false, true}) {
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
      if (it->second->is_live() == stopped) continue;
      if (!visible(it->second->spec().name)) continue;
      if (bytes > limits::kHistoryReplyBytesMax) {
        ++reply.omitted;
        continue;
      }
      wire::JobStatus status = it->second->status();
      bytes += 192 + status.name.size() + status.policy.size() + status.note.size();
      reply.jobs.push_back(std::move(status));
    }
  }
  std::sort(reply.jobs.begin(), reply.jobs.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return reply;
}

void Engine::on_workers(const Caller& caller, const wire::WorkersRequest& request,
                        Effects& effects) const {
  const JobId id = named(caller, request.job, effects);
  if (id == 0) return;
  const Job& job = *jobs_.at(id);
  wire::WorkersReply reply;
  reply.now_us = state_.now;
  std::size_t bytes = 0;
  job.roster().walk(request.first_rank, [&](const Worker& worker) {
    wire::WorkerStatus status = job.worker_status(worker);
    if (request.with_data) status.data = worker.data;
    bytes += 240 + status.name.size() + status.host.size() + status.reason.size() +
             status.waiting_for.size() + status.late_rule.size() + status.data.size();
    if (bytes > limits::kHistoryReplyBytesMax && !reply.workers.empty()) {
      reply.next_rank = worker.rank;
      return false;
    }
    reply.workers.push_back(std::move(status));
    return true;
  });
  effects.replies.push_back({caller, false, std::move(reply)});
}

std::size_t Engine::figures(std::size_t jobs_max, std::vector<JobFigures>& out) const {
  out.clear();
  std::size_t left_out = 0;
  for (const bool stopped : {false, true}) {
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
      if (it->second->is_live() == stopped) continue;
      if (out.size() < jobs_max) {
        out.push_back(it->second->figures());
      } else {
        ++left_out;
      }
    }
  }
  return left_out;
}

JobId Engine::find_job(std::string_view name) const {
  if (name.starts_with('#')) {
    JobId id = 0;
    return parse_number(name.substr(1), id) && jobs_.contains(id) ? id : 0;
  }
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? 0 : it->second;
}

const std::string* Engine::job_name(JobId job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second->spec().name;
}

std::string Engine::no_such_job(JobId job) {
  return "there is no job #" + std::to_string(job) + " at this daemon: join again";
}

std::vector<JobId> Engine::job_ids() const {
  std::vector<JobId> ids;
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  return ids;
}

EngineStats Engine::stats() const {
  EngineStats stats;
  stats.pushes = state_.pushes;
  stats.grants = state_.grants;
  for (const auto& [id, job] : jobs_) {
    if (!job->is_live()) continue;
    ++stats.jobs;
    stats.workers += job->roster().members();
  }
  return stats;
}

std::uint64_t Engine::barriers(JobId job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? 0 : it->second->loop().barriers();
}

// ---- connections
// ------------------------------------------------------------------------------------------

void Engine::on_disconnected(const Disconnected& event, Effects& effects) {
  const auto it = state_.connections.find(event.connection);
  if (it == state_.connections.end()) return;
  std::vector<std::pair<JobId, Rank>> members;
  const auto end = it->second.size() <= limits::kWorkersAtOnce
                       ? it->second.end()
                       : std::next(it->second.begin(), limits::kWorkersAtOnce);
  members.assign(it->second.begin(), end);
  it->second.erase(it->second.begin(), end);
  if (it->second.empty()) state_.connections.erase(it);
  for (const auto& [id, rank] : members) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) continue;  // stopped, and forgotten since
    Bound bound(*job->second, effects);
    job->second->disconnected(rank, event);
  }
}

// ---- recovery
// -----------------------------------------------------------------------------------------------

bool Engine::restore(const JobSnapshot* snapshot, std::span<const Record> records,
                     std::string& error) {
  const Record* created = nullptr;
  if (snapshot != nullptr) {
    created = &snapshot->created;
  } else if (!records.empty()) {
    created = &records.front();
  }
  if (created == nullptr || created->kind != RecordKind::kJobCreated || created->job == 0) {
    error = "a job's history does not begin with its creation";
    return false;
  }
  const std::string called = "job '" + created->name + "' (#" + std::to_string(created->job) + ")";
  if (!jobs_.empty() && jobs_.rbegin()->first >= created->job) {
    error = called + " is stored out of order";
    return false;
  }
  JobSpec spec;
  spec.name = created->name;
  spec.policy = snapshot != nullptr ? snapshot->policy : created->policy;
  spec.expected_workers = created->expected_workers;
  spec.min_workers = created->min_workers;
  if (!parse_config_text(created->config, spec)) {
    error = called + ": its stored settings are malformed: " + created->config;
    return false;
  }
  error = validate_stored(spec);
  auto policy = error.empty() ? make_policy(spec.policy, error) : nullptr;
  if (!policy) {
    error = called + ": " + error;
    return false;
  }
  auto job = std::make_unique<Job>(EngineServices(state_, created->job), spec, std::move(policy));
  const auto replay = [&] {
    if (snapshot != nullptr && !job->restore_snapshot(*snapshot, error)) {
      error = called + ": " + error;
      return false;
    }
    return std::all_of(records.begin(), records.end(),
                       [&](const Record& record) { return job->replay(record, error); });
  };
  // What it has timed, it timed at its own records' times, which may be before those of the job
  // that was restored last.
  const Micros latest = std::exchange(state_.now, 0);
  const bool replayed = replay();
  state_.now = std::max(state_.now, latest);
  if (!replayed) return false;
  // As when a job is created. Should all of them still go on, none may be dropped.
  if (jobs_.size() >= limits::kJobsMax) forget_oldest_stopped();
  by_name_[spec.name] = created->job;
  jobs_[created->job] = std::move(job);
  next_job_ = created->job + 1;
  return true;
}

void Engine::finish_restore(Micros now) {
  state_.now = std::max(state_.now, now);
  state_.tails = 0;
  for (auto& [id, job] : jobs_) {
    job->finish_restore();
    state_.tails += job->recorder().tail();
  }
}

bool Engine::snapshot(JobId job, JobSnapshot& out) const {
  const auto it = jobs_.find(job);
  if (it == jobs_.end()) return false;
  out = it->second->snapshot();
  return true;
}

}  // namespace syncd
