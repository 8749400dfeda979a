// One training job. It joins its parts: the roster keeps the workers, the loop answers their
// iterations, the recorder writes the history. What is left here is who takes part. The engine
// routes events here; the job sees only EngineServices of it. One thread at a time.
//
// Every fact that must survive a crash takes one path: a request is checked, a Record is made, and
// apply() changes the state; recovery feeds the same records to the same apply().
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "daemon/core/engine/admission.h"
#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/checkpoints.h"
#include "daemon/core/engine/connection_ends.h"
#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/group.h"
#include "daemon/core/engine/inspections.h"
#include "daemon/core/engine/liveness.h"
#include "daemon/core/engine/loop.h"
#include "daemon/core/engine/membership.h"
#include "daemon/core/engine/recorder.h"
#include "daemon/core/engine/roster.h"
#include "daemon/core/engine/straggler_watch.h"
#include "daemon/core/engine/watch.h"

namespace syncd {

class Job final : private Membership {
 public:
  // The reason that a job carries which ended because its last worker left. The history stores it,
  // and a restart recognises it by this very text.
  static constexpr const char* kFinishedReason = "finished: every worker has left";
  // Likewise what the reason begins with of one that a failed worker has stopped.
  static constexpr const char* kFailedReason = "failed";
  // Likewise of every reason of an end by which the work is done.
  static constexpr const char* kFinished = "finished: ";
  // Members of a round are missed early, and not right after a restart.
  static constexpr std::uint32_t kGatherHeartbeatTimeoutMs = 2'000;
  static constexpr Micros kGatherGraceUs = 2'000'000;
  static constexpr Micros kAmnestyUs = 30'000'000;
  // A job whose members form rounds ends by itself once it has had none for so long. Its reason
  // begins so, and a restart recognises that.
  static constexpr Micros kIdleUs = Micros{3600} * 1'000'000;
  static constexpr const char* kIdleReason = "idle";

  Job(const EngineServices& engine, JobSpec spec, std::unique_ptr<Policy> policy, Epoch epoch = 1);

  Loop& loop() { return loop_; }
  const Admission& admission() const { return admission_; }
  const Group& group() const { return group_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  const Checkpoints& checkpoints() const { return checkpoints_; }

  // ---- a worker's requests beside its loop's. Each is answered exactly once.
  // `fixed`: the configuration says the job's policy, whatever joiners ask for.
  void join(const Caller& caller, const wire::Join& join, bool fixed = false);
  void on(const Caller& caller, const wire::Phase& phase);
  void on(const Caller& caller, const wire::Leave& leave);
  void on(const Caller& caller, const wire::MembersRequest& request);
  void on(const Caller& caller, const wire::Explain& explain);
  void on(const Caller& caller, const wire::ViewRequest& request);
  void on(const Caller& caller, const wire::Exchanging& exchanging);
  void on(const Caller& caller, const wire::Inspected& inspected);
  void on(const Caller& caller, const wire::AskCheckpoint& request);
  void on(const Caller& caller, const wire::Checkpointed& answer);

  // ---- other events
  void stop(const std::string& reason);
  void manage(const Caller& caller, const wire::ManageWorkerRequest& request);
  void exclude(const Caller& caller, const wire::ExcludeRequest& request);
  void inspect(const Caller& caller, const wire::InspectRequest& request);
  // Empty, or why the job cannot go over to this policy.
  std::string check_switch(const Policy& policy) const;
  // `reason`: why a joiner did it; empty: an operator did.
  void switch_policy(const Policy& policy, const std::string& reason = {});
  void disconnected(Rank rank, const Disconnected& event);
  void timer(const TimerKey& key);
  void plan_ready(const PlanReady& ready);
  void look_at_rounds();
  void refuse_all_pending(Status status, const std::string& text);

  // ---- history
  // `round`: the last one of the job by this name before; 0: none.
  void record_creation(std::uint64_t round = 0);
  bool replay(const Record& record, std::string& error);
  bool restore_snapshot(const JobSnapshot& snapshot, std::string& error);
  void finish_restore();
  JobSnapshot snapshot() const;
  void snapshot_taken() { recorder_.snapshot_taken(); }

  // ---- views
  const JobSpec& spec() const { return spec_; }
  const Roster& roster() const { return roster_; }
  const Recorder& recorder() const { return recorder_; }
  const Loop& loop() const { return loop_; }
  JobState state() const { return roster_.state(); }
  bool is_live() const { return state() != JobState::kStopped; }
  // Its work is done, or a worker has failed: a join may make a new job by its name.
  bool finished() const { return !is_live() && recorder_.stop_reason().starts_with(kFinished); }
  bool failed() const;
  // It was left without members, and ended by itself: likewise.
  bool was_idle() const;
  JobFigures figures() const;  // O(1), but for its text; under gather O(workers)
  wire::JobStatus status() const;
  wire::WorkerStatus worker_status(const Worker& worker) const;

 private:
  // ---- Membership
  void set_ready(Worker& worker, bool ready) override;
  void admit(Worker& worker) override;
  void drain_out(Worker& worker, const std::string& reason) override;
  void lose(Worker& worker, const std::string& reason) override;
  Micros keeps_until(const Worker& worker) const override { return watch_.keeps_until(worker); }
  bool exchanges(const Worker& worker) const override {
    return watch_.exchanging_since(worker) >= 0;
  }
  void end_job(const std::string& reason) override;
  void end_amnesty() override;

  // job.cpp
  bool resume(const Caller& caller, const wire::Join& join, Worker& worker, Iteration seen);
  void enter_anew(const Caller& caller, const wire::Join& join, Rank rank);
  void join_with(const Caller& caller, const wire::Join& join, Iteration seen,
                 const Policy* taken_over = nullptr);
  void adopt_claims(Worker& worker, const wire::Join& join);
  // `seen`: the latest grant that the worker says it has.
  void reply_joined(const Caller& caller, Worker& worker, bool resumed, bool after_records,
                    Iteration seen);
  void attach(Worker& worker, const Caller& caller);
  static void take_graces(Worker& worker, const wire::Join& join);
  std::uint32_t heartbeat_timeout_ms(const Worker& worker) const;
  Micros exit_grace(const Worker& worker) const;
  void set_grace(Worker& worker, const Disconnected& event);
  void listen(Worker& worker, std::uint32_t notices);
  void members_changed();
  void start(std::vector<std::int64_t> left_out);
  void drain(Worker& worker, const std::string& reason);
  void end_group(const wire::Join& join, bool supersedes);
  void reassemble(const Worker* last);
  void after_exit(const Worker& gone);
  Worker* find_by_rank_or_name(const std::string& text, std::string& error);

  // job_rounds.cpp
  void join_gather(const Caller& caller, const wire::Join& join, bool fixed);
  static wire::Join without_claims(const wire::Join& join);
  void fill_round(wire::Joined& joined) const;
  void begin_amnesty();
  void watch_idle();
  void end_if_idle();

  // job_history.cpp
  Record joined(const Worker& worker) const;
  void commit(Record&& record);  // numbers it, hands it to the store, applies it
  void commit(RecordKind kind, const Worker& worker, const std::string& reason);
  void apply(const Record& record);  // the one place where a recorded fact changes the state
  void apply_started(const Record& record);
  void apply_joined(const Record& record);
  void apply_exit(const Record& record, WorkerState state);
  void apply_draining(const Record& record);
  void apply_leased(const Record& record);
  void apply_stopped(const Record& record);
  void apply_switched(const Record& record);
  std::string check_record(const Record& record) const;

  // job_views.cpp
  Explanation explain(const Worker& worker) const;
  Reason explain_start() const;
  RankList missing() const;  // whom the start waits for
  WaitedFor describe(Rank rank) const;

  EngineServices engine_;
  JobSpec spec_;
  JobCounters counters_;
  Roster roster_;
  Recorder recorder_;
  Answers answers_;
  Liveness liveness_;
  Checkpoints checkpoints_;
  StragglerWatch stragglers_;
  Loop loop_;
  Group group_;
  Admission admission_;
  ConnectionEnds connections_;
  bool close_together_ = false;  // as of the last one that closed
  bool policy_set_ = false;      // an operator has switched it
  Watch watch_;
  Inspections inspections_;
  Micros start_at_ = kNever;  // when min_workers are enough; set when the first worker is ready
  std::uint64_t members_version_ = 0;      // a time, so that it grows over a restart
  std::set<Rank> members_notice_pending_;  // will be told of the next change of membership
};

}  // namespace syncd
