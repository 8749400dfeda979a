// The coordination engine: a deterministic state machine without I/O, threads, clocks or chance.
// What a file says that a policy names (`hop:file:PATH`), its caller reads and hands over with the
// request that makes the job; from then on it is part of the job's history.
//
// The daemon, the simulator, recovery and the tests drive this one class. One thread at a time.
//
// The same calls in the same order give the same effects, byte for byte (invariant I5).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine_options.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/event.h"
#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/kept_checkpoints.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/record.h"
#include "daemon/core/engine/types.h"

namespace syncd {

class Job;

struct EngineStats {
  std::uint32_t jobs = 0;             // not stopped
  std::uint32_t jobs_unreadable = 0;  // see Engine::stand_alone()
  std::uint32_t workers = 0;          // members of all jobs
  std::uint64_t pushes = 0;  // accepted since the engine was made; duplicates are not counted
  std::uint64_t grants = 0;
};

// Empty, or a sentence that names the length and what is allowed.
std::string job_name_too_long(const std::string& job);

class Engine {
 public:
  explicit Engine(EngineOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Applies one event at time `now` and fills `effects` (which is cleared first). `now` may not go
  // back: a smaller one counts as the latest seen. Timers due before `now` are the caller's to fire
  // first, by tick(). Never throws but bad_alloc.
  void step(Event event, Micros now, Effects& effects);
  // The same for one of a worker's calls of which there are many: Push, Begin, Targets, Collect,
  // Consumed. Precondition: `effects` is clear.
  template <class Call>
  void call(const Caller& caller, const Call& call, Micros now, Effects& effects);

  // Fires the timers that are due at `now`, at most so many of them; `effects` is cleared first.
  // While next_deadline() is not after `now`, some are left.
  void tick(Micros now, Effects& effects, std::size_t timers_max = SIZE_MAX);

  // The store was stalled in this time, which does not count towards any worker's lateness. Stalls
  // come in their order; a timer goes by those that are known when it fires.
  void add_store_stall(Micros from, Micros to) { state_.store_stalls.add(from, to); }

  // When tick() must be called next; kNever: no timer is set.
  Micros next_deadline() const { return state_.timers.next(); }

  // The policy of the job that this request would make; null: it makes none. Whoever brings the
  // request reads the file that the policy names, if it names one, before the step.
  const std::string* policy_to_make(const wire::Join& join) const;
  const std::string* policy_to_make(const wire::CreateJobRequest& create) const;

  // Declares a job (the configuration's [[job]]). Does nothing if a job of this name is there and
  // not stopped. On false, `error` names the setting that is wrong.
  bool declare_job(const JobSpec& spec, Micros now, Effects& effects, std::string& error);

  // Rebuilds one job from what the store has: its snapshot (or null) and the records after it. Jobs
  // must come in the order of their ids. On false, `error` names job and sequence.
  bool restore(const JobSnapshot* snapshot, std::span<const Record> records, std::string& error);
  // Instead of a job that restore() has refused: who asks for one of its name is told why with
  // STORE, and nothing is recorded of it. It is among jobs(), and has no workers.
  void stand_alone(const Record& created, const std::string& why);

  // Call once after the last restore: from now on every member that was there counts as
  // disconnected, and has its job's worker_grace to come back.
  void finish_restore(Micros now);

  // Of the jobs among these that there are: their records so far need no replay then.
  void take_snapshots(std::span<const JobId> jobs, Effects& effects);

  // What restore() would need to build the job as it is now. False: unknown job.
  bool snapshot(JobId job, JobSnapshot& out) const;

  // The job that a name or "#<id>" means: of several by one name, the latest. 0: none.
  JobId find_job(std::string_view name) const;
  // As find_job(), and finds jobs that stand alone, too.
  JobId stored_job(std::string_view name) const;
  // Null: there is no such job; what a worker of it is told then.
  const std::string* job_name(JobId job) const;
  static std::string no_such_job(JobId job);
  std::vector<JobId> job_ids() const;

  // Whose jobs somebody may see.
  using Visible = std::function<bool(const std::string& job)>;
  EngineStats stats() const;
  // Counts of those jobs alone; O(jobs).
  EngineStats stats(const Visible& visible) const;
  // The latest complete checkpoint of a job that is known no more: for who asks for that name, and
  // for the next job of it.
  void keep_checkpoint(const std::string& job, const CheckpointSnapshot& checkpoint);
  // The answer to wire::JobsRequest; O(workers).
  // `name`: of this job alone; empty: of all.
  wire::JobsReply jobs(const Visible& visible, std::string_view name = {}) const;
  // Jobs that are known no more had epochs up to this one: every new job's is above it.
  void forget_epochs(Epoch epoch) { epoch_forgotten_ = std::max(epoch_forgotten_, epoch); }
  // Whether workers speak over this connection; of one that has ended, that the step which was told
  // so has left some for another one of the same event.
  bool has_workers(ConnectionId connection) const {
    return state_.connections.contains(connection);
  }
  // True if the job exists and is not stopped.
  bool is_live(JobId job) const;
  bool knows(JobId job) const { return jobs_.contains(job); }
  std::size_t jobs_known() const { return jobs_.size(); }
  // As is done with the oldest one where there are kJobsMax, for who knows of a better choice.
  // False: there is no such job, or it goes on.
  bool forget(JobId stopped);
  // The figures of at most `jobs_max` jobs: those that go on first, and of each kind the latest.
  // How many are left out. O(jobs_max), and O(1) for each job left out.
  std::size_t figures(std::size_t jobs_max, std::vector<JobFigures>& out) const;
  // The barriers of a job, under all the policies it has had; if it was restored from a snapshot,
  // under those since then. 0: unknown job.
  std::uint64_t barriers(JobId job) const;
  // For jobs made and workers joined from now on; the same times as ever.
  void set_options(EngineOptions options) { state_.options = std::move(options); }
  Micros last_time() const { return state_.now; }  // the latest time seen, also in restored records

 private:
  // The beginning and the end of an event.
  void begin(Micros now, Effects& effects);
  void open(Micros now, Effects& effects);
  void finish();

  void handle(Request& request);
  template <class Body>
  void route(const Caller& caller, const Body& body);
  void on_join(Request& request, wire::Join& join);
  void on_create(Request& request, wire::CreateJobRequest& create);
  void on_stop(const Caller& caller, wire::StopJobRequest& stop);
  void on_set_policy(const Caller& caller, wire::SetPolicyRequest& request);
  void on_order(const Caller& caller, const wire::OrderCheckpoint& order);
  void on_latest(const Caller& caller, const wire::LatestCheckpoint& request) const;
  void on_manage(const Caller& caller, const wire::ManageWorkerRequest& request);
  void on_exclude(const Caller& caller, const wire::ExcludeRequest& request);
  void on_inspect(const Caller& caller, const wire::InspectRequest& request);
  void on_workers(const Caller& caller, const wire::WorkersRequest& request) const;
  void on_disconnected(const Disconnected& event);

  template <class Body>
  void reply(const Caller& caller, Body body, bool after_records = false) const {
    state_.effects->replies.emplace_back(caller, after_records, std::move(body));
  }
  void refuse(const Caller& caller, Status status, std::string text) const;
  // True: something is wrong, and the caller hears of it.
  bool refuses(const Caller& caller, Status status, std::string wrong) const;
  bool refuses_store(const Caller& caller) const;
  bool refuses_unreadable(const Caller& caller, const std::string& name) const;
  const wire::JobStatus* find_unreadable(std::string_view name) const;  // null: it can be read
  bool refuses_new_job(const Caller& caller, const JobSpec& spec) const;
  // The job of this name; null if there is none, which the caller has then been told.
  Job* named(const Caller& caller, const std::string& name) const;

  Job* find(JobId job) const;  // null: there is none
  std::string too_large(const JobSpec& spec) const;
  // Its epoch is the one after that of the last job by its name, and `epoch_least` at least. Null:
  // `error` says why.
  // Likewise the number of its last round.
  Job* create_job(const JobSpec& spec, std::string& error, Epoch epoch_least = 1,
                  std::uint64_t round_least = 0);
  bool makes_job(const wire::Join& join) const;
  bool forget_oldest_stopped();
  // Of the job by this name, or of an earlier one by it; null: there is none.
  const CheckpointSnapshot* latest_checkpoint(const std::string& name) const;
  void tell_forgotten_checkpoints();
  std::uint64_t launched_by(std::string_view name) const;
  // False: there are as many workers as are allowed, and no job that has ended can be forgotten.
  bool has_room_for_worker();
  void forget_workers_above(std::uint32_t count);
  bool needs_snapshot(const Job& job) const;
  void take_snapshot(Job& job);
  void shorten_tails();
  template <class F>
  void each_live_first(F f) const;

  EngineState state_;
  bool shutting_down_ = false;
  std::map<JobId, std::unique_ptr<Job>> jobs_;
  JobId next_job_ = 1;
  // The job of the latest request: its workers often ask one after the other.
  JobId last_asked_ = 0;
  Job* last_job_ = nullptr;
  std::map<std::string, JobId, std::less<>> by_name_;  // of several by one name, the latest
  std::uint64_t round_forgotten_ = 0;                  // likewise of rounds
  Epoch epoch_forgotten_ = 0;  // the highest of a job that is forgotten: no new one is below it
  // Jobs that stand alone; the note says why.
  std::map<std::string, wire::JobStatus, std::less<>> unreadable_;
  std::map<std::string, JobSpec, std::less<>> declared_;  // by the configuration
  KeptCheckpoints kept_;
  std::vector<std::string>
      checkpoints_gone_;  // of jobs by these names, which the log has yet to say
  JobId shortened_ = 0;   // the last job whose long tail was shortened
};

}  // namespace syncd
