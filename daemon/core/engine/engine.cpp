// Engine: routes events to jobs, owns the timers, keeps the table of connections. Runs on whatever
// one thread drives it.
#include "daemon/core/engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "daemon/core/engine/job.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/request_traits.h"
#include "proto/base/check.h"
#include "proto/base/number.h"
#include "proto/base/plain_text.h"
#include "proto/wire/announce.h"

namespace syncd {
namespace {

// Empty if what comes from outside fits its limit; else a sentence.
template <class Bytes>
std::string check_length(const char* what, const Bytes& value, std::size_t bytes_max) {
  if (value.size() <= bytes_max) return {};
  return fmt::format("{} is {} bytes long: at most {} are allowed", what, value.size(), bytes_max);
}

// Likewise for what others will be shown: it must be plain text, too.
std::string check_shown(const char* what, const std::string& value, std::size_t bytes_max) {
  std::string wrong = check_length(what, value, bytes_max);
  return wrong.empty() ? check_plain(what, value) : wrong;
}

// Invariant I8: what a returning worker reports must fit itself before it may change anything.
// `incarnation_known`, `epoch_known`: the highest that the daemon itself has given to workers of
// this job, which must be able to come back with them whatever others have claimed.
std::string check_claims(const wire::Join& join, Incarnation incarnation_known, Epoch epoch_known) {
  if (join.rank < -1) return fmt::format("rank {}: allowed are -1 (any) and up", join.rank);
  const Incarnation incarnation_max = std::max(limits::kIncarnationMax, incarnation_known);
  if (join.incarnation > incarnation_max) {
    return fmt::format("incarnation {} is out of range: allowed are 0 to {}", join.incarnation,
                       incarnation_max);
  }
  const Epoch epoch_max = std::max<Epoch>(limits::kIncarnationMax, epoch_known);
  if (join.epoch > epoch_max) {
    return fmt::format("epoch {} is out of range: allowed are 0 to {}", join.epoch, epoch_max);
  }
  for (const Iteration k : {join.granted, join.pushed, join.collected, join.consumed}) {
    if (k >= kNoIteration && k <= limits::kIterationMax) continue;
    return fmt::format("an iteration reported at the join is out of range: allowed are -1 to {}",
                       limits::kIterationMax);
  }
  if (join.collected > join.granted || join.consumed > join.collected) {
    return fmt::format(
        "iteration {} is reported as consumed and {} as collected, but only {} as granted",
        join.consumed, join.collected, join.granted);
  }
  if (join.pushed > join.granted) {
    return fmt::format("iteration {} is reported as pushed, but only {} as granted", join.pushed,
                       join.granted);
  }
  return join.phase.empty() ? std::string{} : check_phase(join.phase, join.phase_left_us);
}

std::string check_hang_after(Micros hang_after_us) {
  if (hang_after_us >= kAutoSpan && hang_after_us <= limits::kSpanMax) return {};
  return fmt::format("hang_after is {} us: allowed are 0 (off) to {}, and -1 (auto)", hang_after_us,
                     limits::kSpanMax);
}

// What it says of its launch, of the model that it begins with, and of its end.
std::string check_launch(const wire::Join& join) {
  if (join.exit_grace_us < kAutoSpan || join.exit_grace_us > limits::kPhaseLeaseMax) {
    return "exit_grace of " + std::to_string(join.exit_grace_us) +
           " us is out of range: allowed are -1 (as the job says) and 0 to " +
           std::to_string(limits::kPhaseLeaseMax);
  }
  if (join.heartbeat_timeout_ms != 0 && (join.heartbeat_timeout_ms < kHeartbeatTimeoutMinMs ||
                                         join.heartbeat_timeout_ms > kHeartbeatTimeoutMaxMs)) {
    return fmt::format(
        "heartbeat_timeout of {} ms is out of range: allowed are 0 (as the daemon says) "
        "and {} to {}",
        join.heartbeat_timeout_ms, kHeartbeatTimeoutMinMs, kHeartbeatTimeoutMaxMs);
  }
  std::string wrong = check_shown("the launch's name", join.launch, limits::kLaunchNameBytesMax);
  if (!wrong.empty()) return wrong;
  if (join.launch.empty() && join.launch_number != 0) {
    return "launch number " + std::to_string(join.launch_number) + " has no launch: give its name";
  }
  if (join.resume > wire::Resume::kContinue) {
    return "resume " + std::to_string(static_cast<int>(join.resume)) +
           " is unknown: allowed are 0 (auto), 1 (new) and 2 (continue)";
  }
  const bool continues = join.resume == wire::Resume::kContinue;
  if (continues && (join.resume_at < 0 || join.resume_at > limits::kIterationMax)) {
    return "iteration " + std::to_string(join.resume_at) +
           " to continue at is out of range: allowed are 0 to " +
           std::to_string(limits::kIterationMax);
  }
  return {};
}

// Empty, or why a job like that has no views.
std::string no_views(const JobSpec& spec) {
  if (!spec.views) return {};
  std::string error;
  const auto policy = make_policy(spec.policy, error, spec.graph_file);
  if (!policy || policy->family() == Family::kGather || Loop::may_have_views(policy->traits())) {
    return error;
  }
  return fmt::format(
      "job '{}' cannot have views under policy '{}', which has no barriers at which all workers "
      "meet: allowed are gather, bsp without backup and elastic_bsp",
      spec.name, spec.policy);
}

// A job whose workers form rounds has no start, and nobody is late in it.
void fit_to_rounds(const PolicyTraits& traits, JobSpec& spec) {
  spec.expected_workers = traits.round_max;
  spec.min_workers = 0;
  spec.views = false;  // it has them anyway
  if (spec.exit_grace_us == kAutoSpan) spec.exit_grace_us = Job::kGatherGraceUs;
  spec.warn_after_us = spec.evict_after_us = 0;
}

}  // namespace

std::string job_name_too_long(const std::string& job) {
  return check_length("the job's name", job, limits::kJobNameBytesMax);
}

Engine::Engine(EngineOptions options) {
  state_.options = std::move(options);
  next_job_ = state_.options.first_job;
  state_.has_room_for_worker = [this] { return has_room_for_worker(); };
}
Engine::~Engine() = default;

inline void Engine::open(Micros now, Effects& effects) {
  state_.effects = &effects;
  state_.now = std::max(state_.now, now);
}

void Engine::begin(Micros now, Effects& effects) {
  effects.clear();
  open(now, effects);
}

void Engine::step(Event event, Micros now, Effects& effects) {
  begin(now, effects);
  std::visit(
      [&](auto& e) {
        using T = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<T, Request>) {
          handle(e);
        } else if constexpr (std::is_same_v<T, Disconnected>) {
          on_disconnected(e);
        } else if constexpr (std::is_same_v<T, PlanReady>) {
          if (Job* job = find(e.job)) job->plan_ready(e);
        } else if constexpr (std::is_same_v<T, StoreState>) {
          const bool resumed = !state_.store.writable && e.writable;
          state_.store = std::move(e);
          if (resumed) {
            for (auto& [id, job] : jobs_) job->look_at_rounds();
          }
        } else if constexpr (std::is_same_v<T, Shutdown>) {
          shutting_down_ = true;
          for (auto& [id, job] : jobs_) {
            job->refuse_all_pending(Status::kShutdown, "the daemon is shutting down: " + e.reason);
          }
        }
      },
      event);
  finish();
}

void Engine::tick(Micros now, Effects& effects, std::size_t timers_max) {
  begin(now, effects);
  TimerKey key;
  for (; timers_max > 0 && state_.timers.pop(state_.now, key); --timers_max) {
    if (Job* job = find(key.job)) job->timer(key);
  }
  finish();
}

void Engine::finish() {
  std::sort(state_.touched.begin(), state_.touched.end());
  state_.touched.erase(std::unique(state_.touched.begin(), state_.touched.end()),
                       state_.touched.end());
  for (const JobId id : state_.touched) take_snapshot(*jobs_.at(id));
  state_.touched.clear();
  if (state_.tails > limits::kReplayFactor * state_.options.snapshot_every_records) shorten_tails();
  state_.effects = nullptr;
}

void Engine::take_snapshot(Job& job) {
  state_.effects->snapshots.push_back(job.snapshot());
  state_.tails -= job.recorder().tail();
  job.snapshot_taken();
}

void Engine::take_snapshots(std::span<const JobId> jobs, Effects& effects) {
  begin(state_.now, effects);
  for (const JobId id : jobs) {
    Job* job = find(id);
    if (job != nullptr && job->recorder().tail() > 0) take_snapshot(*job);
  }
  state_.effects = nullptr;
}

// O(jobs), and seldom: it takes away more than so many mean tails.
void Engine::shorten_tails() {
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
    take_snapshot(*it->second);
    shortened_ = it->first;
    ++taken;
  }
}

// ---- requests
// ---------------------------------------------------------------------------------------

void Engine::refuse(const Caller& caller, Status status, std::string text) const {
  reply(caller, wire::Error{status, std::move(text)});
}

bool Engine::refuses(const Caller& caller, Status status, std::string wrong) const {
  if (wrong.empty()) return false;
  refuse(caller, status, std::move(wrong));
  return true;
}

// To the job of the worker that it is about.
template <class Body>
inline void Engine::route(const Caller& caller, const Body& body) {
  if (shutting_down_) return refuse(caller, Status::kShutdown, "the daemon is shutting down");
  Job* job =
      last_job_ != nullptr && body.worker.job == last_asked_ ? last_job_ : find(body.worker.job);
  if (job == nullptr) {
    return refuse(caller, Status::kUnknownJob, no_such_job(body.worker.job));
  }
  last_asked_ = body.worker.job;
  last_job_ = job;
  if constexpr (requires { job->loop().on(caller, body); }) {
    job->loop().on(caller, body);
  } else {
    job->on(caller, body);
  }
}

template <class Call>
void Engine::call(const Caller& caller, const Call& call, Micros now, Effects& effects) {
  SYNCD_CHECK(effects.replies.empty());
  open(now, effects);
  route(caller, call);
  if (!state_.touched.empty() ||
      state_.tails > limits::kReplayFactor * state_.options.snapshot_every_records) {
    finish();
  }
  state_.effects = nullptr;
}
template void Engine::call(const Caller&, const wire::Push&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Begin&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Targets&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Collect&, Micros, Effects&);
template void Engine::call(const Caller&, const wire::Consumed&, Micros, Effects&);

void Engine::handle(Request& request) {
  const Caller& caller = request.caller;
  std::visit(
      [&](auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (kTraits<T>.asker == Asker::kItsWorker) {
          route(caller, body);
        } else if (shutting_down_) {
          refuse(caller, Status::kShutdown, "the daemon is shutting down");
        } else if constexpr (std::is_same_v<T, wire::Join>) {
          on_join(request, body);
        } else if constexpr (std::is_same_v<T, wire::JobsRequest>) {
          reply(caller, jobs([](const std::string&) { return true; }, body.job));
        } else if constexpr (std::is_same_v<T, wire::WorkersRequest>) {
          on_workers(caller, body);
        } else if constexpr (std::is_same_v<T, wire::CreateJobRequest>) {
          on_create(request, body);
        } else if constexpr (std::is_same_v<T, wire::StopJobRequest>) {
          on_stop(caller, body);
        } else if constexpr (std::is_same_v<T, wire::SetPolicyRequest>) {
          on_set_policy(caller, body);
        } else if constexpr (std::is_same_v<T, wire::ManageWorkerRequest>) {
          on_manage(caller, body);
        } else if constexpr (std::is_same_v<T, wire::ExcludeRequest>) {
          on_exclude(caller, body);
        } else if constexpr (std::is_same_v<T, wire::InspectRequest>) {
          on_inspect(caller, body);
        } else if constexpr (std::is_same_v<T, wire::OrderCheckpoint>) {
          on_order(caller, body);
        } else if constexpr (std::is_same_v<T, wire::LatestCheckpoint>) {
          on_latest(caller, body);
        } else {
          static_assert(!kTraits<T>.reaches_engine(), "a branch for it is missing");
          refuse(caller, Status::kUnsupported,
                 fmt::format("this daemon does not serve requests of type {}",
                             wire::body_name(request.body)));
        }
      },
      request.body);
}

bool Engine::refuses_store(const Caller& caller) const {
  if (state_.store.writable) return false;
  refuse(caller, Status::kStore, "the daemon cannot write its history now: " + state_.store.reason);
  return true;
}

bool Engine::refuses_new_job(const Caller& caller, const JobSpec& spec) const {
  return refuses(caller, Status::kInvalid, validate(spec)) ||
         refuses(caller, Status::kLimit, too_large(spec));
}

bool Engine::refuses_unreadable(const Caller& caller, const std::string& name) const {
  const wire::JobStatus* found = find_unreadable(name);
  return found != nullptr && refuses(caller, Status::kStore, found->note);
}

// A name whose job has run to its end may be used again; a worker of the ended job may not.
bool Engine::makes_job(const wire::Join& join) const {
  const JobId id = find_job(join.job);
  if (id == 0) return true;
  const Job& job = *jobs_.at(id);
  if (join.incarnation != 0) return false;
  // What is left of a launch that has failed must not begin it again.
  return job.finished() || job.was_idle() || (job.failed() && !job.group().is_of_launch(join));
}

const std::string* Engine::policy_to_make(const wire::Join& join) const {
  // What the configuration declares has its file with it.
  if (!makes_job(join) || declared_.contains(join.job)) return nullptr;
  return join.policy.empty() ? &state_.options.defaults.policy : &join.policy;
}

const std::string* Engine::policy_to_make(const wire::CreateJobRequest& create) const {
  return create.policy.empty() ? &state_.options.defaults.policy : &create.policy;
}

void Engine::on_join(Request& request, wire::Join& join) {
  const Caller& caller = request.caller;
  Job* job = find(find_job(join.job));
  std::string wrong = job_name_too_long(join.job);
  if (wrong.empty()) {
    wrong = check_shown("the worker's name", join.name, limits::kWorkerNameBytesMax);
  }
  if (wrong.empty()) wrong = check_shown("the host's name", join.host, limits::kHostNameBytesMax);
  if (wrong.empty()) wrong = check_length("the policy", join.policy, limits::kPolicyBytesMax);
  if (wrong.empty()) {
    wrong = check_length("the member's data", join.data, limits::kMemberDataBytesMax);
  }
  if (wrong.empty()) wrong = check_launch(join);
  if (wrong.empty()) wrong = check_hang_after(join.hang_after_us);
  if (wrong.empty()) {
    wrong = job == nullptr ? check_claims(join, 0, 0)
                           : check_claims(join, job->recorder().next_incarnation() - 1,
                                          job->recorder().epoch());
  }
  if (wrong.empty() && join.name.empty()) wrong = "the worker's name is empty: give it one";
  if (refuses(caller, Status::kInvalid, std::move(wrong))) return;
  if (refuses_unreadable(caller, join.job)) return;
  if (makes_job(join)) {
    // Nor may what is left of an earlier launch begin what a later one has finished.
    if (job != nullptr && job->group().refuses_launch(caller, join)) return;
    const auto declared = declared_.find(join.job);
    if (declared == declared_.end() && !state_.options.auto_create) {
      return refuse(
          caller, Status::kUnknownJob,
          (job == nullptr ? "there is no job '" + join.job + "'"
                          : "job '" + join.job + "' has ended") +
              ", and this daemon does not let a join create one: create it first (syncctl job "
              "create)");
    }
    JobSpec spec = state_.options.defaults;
    if (declared != declared_.end()) {
      spec = declared->second;
    } else {
      spec.name = join.job;
      spec.graph_file = std::move(request.graph_file);
      if (!join.policy.empty()) spec.policy = join.policy;
      if (join.world_size != 0) spec.expected_workers = join.world_size;
      spec.views = join.views;
      spec.hang_after_us = join.hang_after_us;
      // It is asked to observe: a long evaluation is named, and costs no worker its place.
      if (spec.hang_after_us != 0 && spec.evict_after_us == kAutoSpan) spec.evict_after_us = 0;
    }
    if (refuses_new_job(caller, spec) || refuses(caller, Status::kInvalid, no_views(spec))) return;
    if (!has_room_for_worker()) {
      return refuse(caller, Status::kLimit, EngineServices(state_, 0).no_room_for_worker());
    }
    if (refuses_store(caller)) return;
    // A join that its own job would refuse makes none.
    std::string error;
    const Job trial(EngineServices(state_, 0), spec,
                    make_policy(spec.policy, error, spec.graph_file));
    if (trial.admission().refuses(caller, join)) return;
    // One that comes back to a daemon whose store is empty brings its job's epoch with it.
    const auto round_seen = static_cast<std::uint64_t>(std::max<Iteration>(join.granted, 0));
    job = create_job(spec, error, join.epoch, round_seen);
    if (job == nullptr) return refuse(caller, Status::kLimit, std::move(error));
  }
  job->join(caller, join, declared_.contains(join.job));
}

// For a job that is valid.
std::string Engine::too_large(const JobSpec& spec) const {
  const EngineOptions& options = state_.options;
  if (spec.expected_workers > options.workers_per_job_max) {
    return fmt::format(
        "job '{}' is to have {} workers: this daemon allows {} per job "
        "(limits.workers_per_job_max)",
        spec.name, spec.expected_workers, options.workers_per_job_max);
  }
  std::string error;
  const auto policy = make_policy(spec.policy, error, spec.graph_file);
  error = rounds_too_large(spec.name, policy->traits().round_max, options.workers_per_job_max);
  if (!error.empty()) return error;
  const std::size_t edges = policy->dense_edges(spec.expected_workers, nullptr);
  if (edges <= options.graph_edges_max) return {};
  return fmt::format(
      "job '{}' is to have a graph of {} edges: this daemon allows {} (limits.graph_edges_max); a "
      "sparse graph such as root_expander carries more workers",
      spec.name, edges, options.graph_edges_max);
}

Job* Engine::create_job(const JobSpec& asked, std::string& error, Epoch epoch_least,
                        std::uint64_t round_least) {
  JobSpec spec = asked;
  if (jobs_.size() >= limits::kJobsMax && !forget_oldest_stopped()) {
    error = fmt::format("this daemon runs {} jobs already, the most allowed: stop one first",
                        jobs_.size());
    return nullptr;
  }
  auto policy = make_policy(spec.policy, error, spec.graph_file);
  if (!policy) return nullptr;
  const auto named = by_name_.find(spec.name);
  const Epoch last =
      named == by_name_.end() ? epoch_forgotten_ : jobs_.at(named->second)->recorder().epoch();
  const CheckpointSnapshot* before = latest_checkpoint(spec.name);
  std::uint64_t round = std::max(round_forgotten_, round_least);
  if (named != by_name_.end()) {
    round = std::max(round, jobs_.at(named->second)->loop().policy().round().round);
  }
  if (policy->family() == Family::kGather) {
    round = std::max(round, launched_by(spec.name));
    fit_to_rounds(policy->traits(), spec);
  }
  const JobId id = std::exchange(next_job_, next_job_ + state_.options.job_step);
  by_name_[spec.name] = id;
  auto& job = jobs_[id] = std::make_unique<Job>(EngineServices(state_, id), spec, std::move(policy),
                                                std::max(last + 1, epoch_least));
  job->record_creation(round);
  if (before != nullptr && !job->checkpoints().inherit(*before)) {
    keep_checkpoint(spec.name, CheckpointSnapshot(*before));
  }
  tell_forgotten_checkpoints();
  return job.get();
}

const CheckpointSnapshot* Engine::latest_checkpoint(const std::string& name) const {
  const auto named = by_name_.find(name);
  const CheckpointSnapshot* latest =
      named == by_name_.end() ? nullptr : jobs_.at(named->second)->checkpoints().latest();
  return latest != nullptr ? latest : kept_.find(name);
}

void Engine::keep_checkpoint(const std::string& job, const CheckpointSnapshot& checkpoint) {
  kept_.add(job, checkpoint, checkpoints_gone_);
}

void Engine::tell_forgotten_checkpoints() {
  for (const std::string& job : checkpoints_gone_) {
    state_.effects->log.push_back(
        {LogLevel::kWarn,
         "checkpoint_forgotten",
         {{"job", job}, {"reason", "too many checkpoints of jobs that are gone are kept"}}});
  }
  checkpoints_gone_.clear();
}

// The latest round of the job by this name whose workers are in a job that lives: these would be
// refused if rounds began at 1 again. 0: none.
std::uint64_t Engine::launched_by(std::string_view name) const {
  if (!name.starts_with(kRendezvousPrefix)) return 0;
  name.remove_prefix(kRendezvousPrefix.size());
  std::uint64_t round = 0;
  for (const auto& [id, job] : jobs_) {
    const Launch& launch = job->group().launch();
    if (job->is_live() && launch.name == name) round = std::max(round, launch.number);
  }
  return std::min<std::uint64_t>(round, limits::kIterationMax);
}

// Makes room for a new job. The forgotten one's history stays in the store.
bool Engine::forget_oldest_stopped() {
  for (const auto& [id, job] : jobs_) {
    if (!job->is_live()) return forget(id);
  }
  return false;
}

bool Engine::has_room_for_worker() {
  if (state_.workers >= state_.options.workers_max) {
    forget_workers_above(state_.options.workers_max - 1);
  }
  return state_.workers < state_.options.workers_max;
}

// Else the log would stay for its last records once it is forgotten.
bool Engine::needs_snapshot(const Job& job) const {
  return state_.options.keeps_log && job.recorder().tail() > 0;
}

// The oldest of jobs that have ended, as far as there are such jobs.
void Engine::forget_workers_above(std::uint32_t count) {
  for (auto it = jobs_.begin(); state_.workers > count && it != jobs_.end();) {
    const auto& [id, job] = *it++;
    // While jobs are restored there is nowhere to put a snapshot.
    if (needs_snapshot(*job) && state_.effects == nullptr) continue;
    if (job->roster().known() > 0) forget(id);
  }
}

bool Engine::forget(JobId stopped) {
  const auto it = jobs_.find(stopped);
  if (it == jobs_.end() || it->second->is_live()) return false;
  const auto named = by_name_.find(it->second->spec().name);
  if (named != by_name_.end() && named->second == it->first) by_name_.erase(named);
  forget_epochs(it->second->recorder().epoch());
  round_forgotten_ = std::max(round_forgotten_, it->second->loop().policy().round().round);
  if (needs_snapshot(*it->second) && state_.effects != nullptr) take_snapshot(*it->second);
  state_.tails -= it->second->recorder().tail();
  state_.workers -= it->second->roster().known();
  if (const auto* latest = it->second->checkpoints().latest()) {
    keep_checkpoint(it->second->spec().name, *latest);
  }
  it->second->checkpoints().forget();
  jobs_.erase(it);
  last_job_ = nullptr;
  return true;
}

bool Engine::declare_job(const JobSpec& spec, Micros now, Effects& effects, std::string& error) {
  begin(now, effects);
  error = validate(spec);
  if (error.empty()) {
    declared_[spec.name] = spec;
    const bool is_there = is_live(find_job(spec.name)) || unreadable_.contains(spec.name);
    if (!is_there) create_job(spec, error);
  }
  finish();
  return error.empty();
}

void Engine::on_create(Request& request, wire::CreateJobRequest& create) {
  const Caller& caller = request.caller;
  if (refuses(caller, Status::kInvalid, job_name_too_long(create.name))) return;
  JobSpec spec = state_.options.defaults;
  spec.name = create.name;
  spec.graph_file = std::move(request.graph_file);
  if (!create.policy.empty()) spec.policy = create.policy;
  if (create.expected_workers != 0) spec.expected_workers = create.expected_workers;
  spec.min_workers = create.min_workers;
  if (refuses_unreadable(caller, spec.name) || refuses_new_job(caller, spec)) return;
  const JobId id = find_job(spec.name);
  if (is_live(id)) {
    return refuse(
        caller, Status::kJobExists,
        fmt::format("job '{}' exists already (#{}, {}): stop it first, or choose another name",
                    spec.name, id, to_string(jobs_.at(id)->state())));
  }
  if (refuses_store(caller)) return;
  std::string error;
  create_job(spec, error);
  if (!refuses(caller, Status::kLimit, std::move(error))) reply(caller, wire::Ok{}, true);
}

Job* Engine::named(const Caller& caller, const std::string& name) const {
  if (refuses(caller, Status::kInvalid, job_name_too_long(name)) ||
      refuses_unreadable(caller, name)) {
    return nullptr;
  }
  Job* job = find(find_job(name));
  if (job == nullptr) refuse(caller, Status::kUnknownJob, "there is no job '" + name + "'");
  return job;
}

void Engine::on_stop(const Caller& caller, wire::StopJobRequest& stop) {
  Job* job = named(caller, stop.job);
  if (job == nullptr ||
      refuses(caller, Status::kInvalid,
              check_shown("the reason", stop.reason, limits::kReasonBytesMax)) ||
      refuses_store(caller)) {
    return;
  }
  job->stop(stop.reason.empty() ? "stopped by an operator"
                                : "stopped by an operator: " + stop.reason);
  reply(caller, wire::Ok{}, true);
}

void Engine::on_manage(const Caller& caller, const wire::ManageWorkerRequest& request) {
  Job* job = named(caller, request.job);
  if (job == nullptr ||
      refuses(caller, Status::kInvalid,
              check_length("the worker's name", request.worker, limits::kWorkerNameBytesMax)) ||
      refuses(caller, Status::kInvalid,
              check_shown("the reason", request.text, limits::kReasonBytesMax)) ||
      refuses_store(caller)) {
    return;
  }
  job->manage(caller, request);
}

void Engine::on_exclude(const Caller& caller, const wire::ExcludeRequest& request) {
  Job* job = named(caller, request.job);
  if (job == nullptr ||
      refuses(caller, Status::kInvalid,
              check_shown("the host's name", request.host, limits::kHostNameBytesMax)) ||
      refuses(caller, Status::kInvalid,
              check_shown("the reason", request.reason, limits::kReasonBytesMax)) ||
      refuses_store(caller)) {
    return;
  }
  job->exclude(caller, request);
}

void Engine::on_inspect(const Caller& caller, const wire::InspectRequest& request) {
  Job* job = named(caller, request.job);
  if (job == nullptr ||
      refuses(caller, Status::kInvalid,
              check_length("the worker's name", request.worker, limits::kWorkerNameBytesMax))) {
    return;
  }
  job->inspect(caller, request);
}

void Engine::on_order(const Caller& caller, const wire::OrderCheckpoint& order) {
  if (Job* job = named(caller, order.job)) job->checkpoints().order(caller, order);
}

void Engine::on_latest(const Caller& caller, const wire::LatestCheckpoint& request) const {
  if (refuses(caller, Status::kInvalid, job_name_too_long(request.job)) ||
      refuses_unreadable(caller, request.job)) {
    return;
  }
  const Job* job = find(find_job(request.job));
  const CompleteCheckpoint* kept = kept_.find(request.job);
  if (job != nullptr) return reply(caller, job->checkpoints().latest(kept, request));
  if (kept == nullptr) {
    return refuse(caller, Status::kUnknownJob, "there is no job '" + request.job + "'");
  }
  wire::LatestCheckpointReply out;
  kept->put(request, out);
  reply(caller, std::move(out));
}

void Engine::on_set_policy(const Caller& caller, wire::SetPolicyRequest& request) {
  Job* job = named(caller, request.job);
  if (job == nullptr) return;
  std::string error;
  const auto policy = make_policy(request.policy, error);
  if (policy) error = job->check_switch(*policy);
  const Status status = job->is_live() ? Status::kInvalid : Status::kStopped;
  if (refuses(caller, status, std::move(error)) || refuses_store(caller)) return;
  reply(caller, wire::Ok{}, true);
  job->switch_policy(*policy);
}

// ---- views
// --------------------------------------------------------------------------------------------

Job* Engine::find(JobId job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : it->second.get();
}

bool Engine::is_live(JobId job) const {
  const Job* known = find(job);
  return known != nullptr && known->is_live();
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

EngineStats Engine::stats() const {
  EngineStats stats = this->stats([](const std::string&) { return true; });
  stats.jobs_unreadable = static_cast<std::uint32_t>(unreadable_.size());
  stats.pushes = state_.pushes;
  stats.grants = state_.grants;
  return stats;
}

// Every job: first those that are live, then the others, and of each kind the latest first.
template <class F>
void Engine::each_live_first(F f) const {
  for (const bool live : {true, false}) {
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it) {
      if (it->second->is_live() == live) f(*it->second);
    }
  }
}

wire::JobsReply Engine::jobs(const Visible& visible, std::string_view name) const {
  wire::JobsReply reply;
  if (!name.empty()) {
    const wire::JobStatus* alone = find_unreadable(name);
    const Job* job = alone == nullptr ? find(find_job(name)) : nullptr;
    if (job != nullptr && visible(job->spec().name)) reply.jobs.push_back(job->status());
    if (alone != nullptr && visible(alone->name)) reply.jobs.push_back(*alone);
    return reply;
  }
  std::size_t bytes = 0;  // as many jobs as fit an answer
  const auto add = [&](const std::string& of, const auto& status_of) {
    if (!visible(of)) return;
    if (bytes > limits::kHistoryReplyBytesMax) {
      ++reply.omitted;
      return;
    }
    wire::JobStatus status = status_of();
    bytes += 192 + status.name.size() + status.policy.size() + status.note.size() +
             status.hang.size() + status.hang_ranks.size();
    reply.jobs.push_back(std::move(status));
  };
  for (const auto& [of, status] : unreadable_) {
    add(of, [&status] { return status; });
  }
  each_live_first([&](const Job& job) { add(job.spec().name, [&job] { return job.status(); }); });
  std::sort(reply.jobs.begin(), reply.jobs.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return reply;
}

void Engine::on_workers(const Caller& caller, const wire::WorkersRequest& request) const {
  const Job* job = named(caller, request.job);
  if (job == nullptr) return;
  wire::WorkersReply out;
  out.now_us = state_.now;
  std::size_t bytes = 0;
  job->roster().walk(request.first_rank, [&](const Worker& worker) {
    wire::WorkerStatus status = job->worker_status(worker);
    if (request.with_data) status.data = worker.data;
    bytes += 240 + status.name.size() + status.host.size() + status.reason.size() +
             status.waiting_for.size() + status.late_rule.size() + status.data.size();
    if (bytes > limits::kHistoryReplyBytesMax && !out.workers.empty()) {
      out.next_rank = worker.rank;
      return false;
    }
    out.workers.push_back(std::move(status));
    return true;
  });
  reply(caller, std::move(out));
}

std::size_t Engine::figures(std::size_t jobs_max, std::vector<JobFigures>& out) const {
  out.clear();
  each_live_first([&](const Job& job) {
    if (out.size() < jobs_max) out.push_back(job.figures());
  });
  return jobs_.size() - out.size();
}

JobId Engine::find_job(std::string_view name) const {
  if (name.starts_with('#')) {
    JobId id = 0;
    return parse_number(name.substr(1), id) && jobs_.contains(id) ? id : 0;
  }
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? 0 : it->second;
}

JobId Engine::stored_job(std::string_view name) const {
  const wire::JobStatus* alone = find_unreadable(name);
  return alone == nullptr ? find_job(name) : alone->id;
}

const wire::JobStatus* Engine::find_unreadable(std::string_view name) const {
  const auto found = std::ranges::find_if(unreadable_, [&](const auto& item) {
    return item.first == name || name == fmt::format("#{}", item.second.id);
  });
  return found == unreadable_.end() ? nullptr : &found->second;
}

const std::string* Engine::job_name(JobId job) const {
  const Job* known = find(job);
  return known == nullptr ? nullptr : &known->spec().name;
}

std::string Engine::no_such_job(JobId job) {
  return fmt::format("there is no job #{} at this daemon: join again", job);
}

std::vector<JobId> Engine::job_ids() const {
  std::vector<JobId> ids;
  for (const auto& [id, job] : jobs_) ids.push_back(id);
  return ids;
}

std::uint64_t Engine::barriers(JobId job) const {
  const Job* known = find(job);
  return known == nullptr ? 0 : known->loop().barriers();
}

// ---- connections
// ------------------------------------------------------------------------------------------

void Engine::on_disconnected(const Disconnected& event) {
  const auto it = state_.connections.find(event.connection);
  if (it == state_.connections.end()) return;
  auto& all = it->second;
  const auto end = all.size() <= limits::kWorkersAtOnce
                       ? all.end()
                       : std::next(all.begin(), limits::kWorkersAtOnce);
  const std::vector<std::pair<JobId, Rank>> members(all.begin(), end);
  all.erase(all.begin(), end);
  if (all.empty()) state_.connections.erase(it);
  for (const auto& [id, rank] : members) {
    // The job may have stopped, and been forgotten since.
    if (Job* job = find(id)) job->disconnected(rank, event);
  }
}

// ---- recovery
// -----------------------------------------------------------------------------------------------

bool Engine::restore(const JobSnapshot* snapshot, std::span<const Record> records,
                     std::string& error) {
  const Record* created = snapshot != nullptr ? &snapshot->created
                          : records.empty()   ? nullptr
                                              : &records.front();
  if (created == nullptr || created->kind != RecordKind::kJobCreated || created->job == 0) {
    error = "a job's history does not begin with its creation";
    return false;
  }
  const std::string label = fmt::format("job '{}' (#{})", created->name, created->job);
  if (!jobs_.empty() && jobs_.rbegin()->first >= created->job) {
    error = label + " is stored out of order";
    return false;
  }
  JobSpec spec;
  spec.name = created->name;
  spec.policy = snapshot != nullptr ? snapshot->policy : created->policy;
  spec.expected_workers = created->expected_workers;
  spec.min_workers = created->min_workers;
  if (!parse_config_text(created->config, spec)) {
    error = label + ": its stored settings are malformed: " + created->config;
    return false;
  }
  error = validate_stored(spec);
  auto policy = error.empty() ? make_policy(spec.policy, error) : nullptr;
  if (!policy) {
    error = label + ": " + error;
    return false;
  }
  auto job = std::make_unique<Job>(EngineServices(state_, created->job), spec, std::move(policy));
  const auto replay = [&] {
    if (snapshot != nullptr && !job->restore_snapshot(*snapshot, error)) {
      error = label + ": " + error;
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
  if (!replayed) {
    state_.workers -= job->roster().known();
    job->checkpoints().forget();
    state_.timers.cancel_job(created->job, 0);
    return false;
  }
  unreadable_.erase(spec.name);  // of an earlier job
  // As when a job is created. Should all of them still go on, none may be dropped.
  if (jobs_.size() >= limits::kJobsMax) forget_oldest_stopped();
  JobId& named = by_name_[spec.name];
  if (named != 0 && job->checkpoints().latest() == nullptr) {
    // It had no room for the one of the job that had the name before.
    const auto* complete = jobs_.at(named)->checkpoints().latest();
    if (complete != nullptr) keep_checkpoint(spec.name, *complete);
  }
  named = created->job;
  jobs_[created->job] = std::move(job);
  next_job_ = created->job + state_.options.job_step;
  forget_workers_above(state_.options.workers_max);
  return true;
}

void Engine::stand_alone(const Record& created, const std::string& why) {
  wire::JobStatus& status = unreadable_[created.name];
  status.id = created.job;
  status.name = created.name;
  status.policy = created.policy;
  status.state = "unreadable";
  status.epoch = created.epoch;
  status.created_us = created.time_us;
  status.note = why;
  forget_epochs(created.epoch);
  next_job_ = std::max(next_job_, created.job + state_.options.job_step);
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
  const Job* known = find(job);
  if (known != nullptr) out = known->snapshot();
  return known != nullptr;
}

}  // namespace syncd
