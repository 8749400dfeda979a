// One training job: answers its workers' requests, and joins its parts. The roster keeps the
// workers, the recorder writes the history, the policy decides when a worker may begin. The engine
// routes events here; the job sees only EngineServices of it. One thread at a time.
//
// Every fact that must survive a crash takes one path: a request is checked, a Record is made, and
// apply() changes the state; recovery feeds the same records to the same apply(). What the policy
// decides about waiting workers is not recorded: after a crash they ask again.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/policy.h"
#include "daemon/core/engine/recorder.h"
#include "daemon/core/engine/roster.h"

namespace syncd {

class Job final : public PolicyHost {
 public:
  // The reason that a job carries which ended because its last worker left. A new job may then take
  // its name without anybody's asking for it. It is stored, and recognised again after a restart by
  // this very text, which therefore never changes.
  static constexpr const char* kFinishedReason = "finished: every worker has left";

  // What the reason of a loss begins with that an operator asked for; stored and recognised
  // likewise.
  static constexpr const char* kKickedReason = "kicked by an operator";

  Job(EngineServices engine, JobSpec spec, std::unique_ptr<Policy> policy, Epoch epoch = 1);

  // Where effects go, from before an event until after it. Null during replay, when nobody waits
  // and nothing is said to the outside.
  void bind(Effects* effects) { effects_ = effects; }

  // Whether a join asks for what this job cannot be, whoever its members are: another policy, an
  // impossible rank. True: answered.
  bool refuses(const Caller& caller, const wire::Join& join);

  // ---- requests. Each answers its caller exactly once, then or later.
  void join(const Caller& caller, const wire::Join& join);
  void begin(const Caller& caller, const wire::Begin& begin);
  void cancel_begin(const Caller& caller, const wire::CancelBegin& cancel);
  void push(const Caller& caller, const wire::Push& push);
  void restarted(const Caller& caller, const wire::Restarted& restarted);
  void phase(const Caller& caller, const wire::Phase& phase);
  void targets(const Caller& caller, const wire::Targets& targets);
  void collect(const Caller& caller, const wire::Collect& collect);
  void consumed(const Caller& caller, const wire::Consumed& consumed);
  void leave(const Caller& caller, const wire::Leave& leave);
  void members(const Caller& caller, const wire::MembersRequest& request);
  void explain_to(const Caller& caller, const wire::Explain& explain);

  // ---- other events
  void stop(const std::string& reason);
  void manage(const Caller& caller, const wire::ManageWorkerRequest& request);
  // Empty, or why the job cannot go over to this policy.
  std::string check_switch(const Policy& policy) const;
  void switch_policy(const Policy& policy);
  void disconnected(Rank rank, const Disconnected& event);
  void timer(const TimerKey& key);
  void plan_ready(const PlanReady& ready);
  void answer_all_waiting(Status status, const std::string& text);

  // ---- history
  void record_creation();
  bool replay(const Record& record, std::string& error);
  bool restore_snapshot(const JobSnapshot& snapshot, std::string& error);
  void finish_restore();
  JobSnapshot snapshot() const;
  void snapshot_taken() { recorder_.snapshot_taken(); }
  std::uint64_t tail() const { return recorder_.tail(); }

  // ---- views
  JobId id() const { return engine_.job(); }
  Epoch epoch() const { return recorder_.epoch(); }
  Incarnation last_incarnation() const { return recorder_.next_incarnation() - 1; }
  const JobSpec& spec() const { return spec_; }
  JobState state() const { return roster_.state(); }
  const std::string& stop_reason() const { return stop_reason_; }
  bool finished() const { return state() == JobState::kStopped && stop_reason_ == kFinishedReason; }
  std::uint32_t member_count() const { return roster_.members(); }
  std::uint32_t workers_known() const { return roster_.known(); }  // with those that are gone
  const Roster& roster() const { return roster_; }
  std::uint64_t barriers() const { return barriers_before_ + policy_->barriers(); }
  JobFigures figures() const;  // O(1), but for its text
  wire::JobStatus status() const;
  wire::WorkerStatus worker_status(const Worker& worker) const;
  Explanation explain(const Worker& worker) const;

  // ---- PolicyHost
  Micros now() const override { return engine_.now(); }
  bool replaying() const override { return recorder_.replaying(); }
  const Worker& worker(Rank rank) const override { return roster_.at(rank); }
  const std::vector<Rank>& active() const override { return roster_.active(); }
  const RelativeClocks& clocks() const override { return roster_.clocks(); }
  Clock highest_relative() const override { return roster_.highest_relative(); }
  RankList active_below(Clock q) const override { return roster_.active_below(q); }
  std::uint64_t pushes() const override { return pushes_; }
  std::uint64_t pushes_by_others_since_pull(Rank rank) const override;
  void grant(Rank rank, const Grant& grant) override;
  void advance(Rank rank, Clock clock) override;
  bool resync(Rank rank) override;
  void answer_targets(Rank rank, std::vector<Rank> targets) override;
  void answer_collect(Rank rank, std::vector<PeerUpdate> updates) override;
  void preset_collect(Rank rank, Iteration iteration, std::vector<PeerUpdate> updates) override;
  void set_timer(std::int64_t rank, std::uint32_t kind, Micros at) override;
  void cancel_timer(std::int64_t rank, std::uint32_t kind) override;
  std::uint64_t request_plan(std::shared_ptr<const PlanWork> work) override;
  void note(Fact fact) override;

 private:
  // job_membership.cpp
  std::optional<Rank> place_for(const Caller& caller, const wire::Join& join);
  bool resume(const Caller& caller, const wire::Join& join, Worker& worker);
  void enter_anew(const Caller& caller, const wire::Join& join, Rank rank);
  void adopt_claims(Worker& worker, const wire::Join& join);
  Clock own_clock(const Worker* known, const wire::Join& join) const;
  std::pair<Clock, Clock> entry_clocks(Clock own, Clock base, bool returns) const;
  void attach(Worker& worker, ConnectionId connection);
  void listen(Worker& worker, std::uint32_t notices);
  void members_changed();
  static wire::MemberState member_state(const Worker& worker);
  void maybe_start();
  void start(std::vector<std::int64_t> left_out);
  void admit(Worker& worker);
  void finish_if_over();
  void lose(Worker& worker, const std::string& reason);
  // Empty, or why one more worker would be too many.
  std::string too_many_members() const;
  std::string too_many_edges(const std::string& host) const;
  bool refuses_epoch(const Caller& caller, const wire::Join& join);
  std::string check_world(const wire::Join& join) const;
  std::string second_group_hint() const;
  Worker* worker_called(const std::string& text, std::string& error);
  void drain(Worker& worker, const std::string& reason);
  void drain_out(Worker& worker, const std::string& reason);
  void set_phase(Worker& worker, const std::string& name, Micros lease_us);
  void end_phase(Worker& worker);
  void check_liveness(Worker& worker);
  void progressed(Worker& worker);
  Micros silent_since(const Worker& worker) const;
  Micros liveness_deadline(const Worker& worker) const;
  void arm_liveness(Worker& worker);

  // job_history.cpp
  void commit(Record&& record);      // numbers it, hands it to the store, applies it
  void apply(const Record& record);  // the one place where a recorded fact changes the state
  void apply_started(const Record& record);
  void apply_joined(const Record& record);
  void begin_life(Worker& worker, Clock clock);
  void apply_push(const Record& record);
  void apply_exit(const Record& record, WorkerState state);
  void apply_draining(const Record& record);
  void apply_leased(const Record& record);
  void apply_stopped(const Record& record);
  void apply_switched(const Record& record);
  std::string check_record(const Record& record) const;

  // job_views.cpp
  Reason explain_start() const;
  RankList missing() const;  // whom the start waits for
  WaitedFor describe(Rank rank) const;

  // job.cpp
  Worker* check(const Caller& caller, const wire::WorkerRef& ref);
  Worker* find(Rank rank) { return roster_.find(rank); }
  const Worker* find(Rank rank) const { return roster_.find(rank); }
  Worker& at(Rank rank) { return roster_.at(rank); }
  bool decentralized() const { return policy_->family() == Family::kDecentralized; }
  Iteration due(const Worker& worker) const;  // the iteration whose begin is next
  bool in_iteration(const Worker& worker) const;
  wire::Granted repeat_grant(const Worker& worker) const;
  void wait_in_begin(Worker& worker, const Caller& caller, Iteration iteration);
  // Makes the request a standing one. False: it took the place of an equal one.
  bool stand(Worker& worker, const Caller& caller, Iteration iteration, Call call);
  Waiting end_waiting(Worker& worker);
  Worker* check_peer_call(const Caller& caller, const wire::WorkerRef& ref, const char* call,
                          Iteration iteration);
  void reask_all_waiting();
  void withdraw(Worker& worker);  // its request is no longer standing; nothing is answered
  void refuse(const Caller& caller, Status status, std::string text);
  template <class Body>
  void reply(const Caller& caller, Body body, bool after_records = false) {
    if (effects_ == nullptr || caller.connection == 0) return;
    Reply& reply = effects_->replies.emplace_back();
    reply.to = caller;
    // The end of a job must be on disk before a worker hears of it. Else the job would be live
    // again after a crash, and wait for a worker that has ended its loop.
    reply.after_records = after_records || state() == JobState::kStopped;
    reply.body.emplace<Body>(std::move(body));
  }
  void log(LogLevel level, std::string event, const Worker* worker,
           std::vector<std::pair<std::string, std::string>> fields = {});
  bool store_refuses(const Caller& caller);
  wire::WorkerRef ref(const Worker& worker) const;
  static Status dismissed_status(const Worker& worker);
  void refuse_dismissed(const Caller& caller, const Worker& worker);
  void reply_joined(const Caller& caller, const Worker& worker, bool resumed, bool after_records);
  void announce_plan(const Record& plan);
  std::string called(const Worker& worker) const;  // "worker 3 (node-a/worker-3)"

  EngineServices engine_;
  JobSpec spec_;
  std::unique_ptr<Policy> policy_;
  std::uint64_t barriers_before_ = 0;  // under the policies before this one
  Roster roster_;
  Recorder recorder_;
  std::string stop_reason_;
  std::uint64_t pushes_ = 0;
  std::uint32_t waiting_ = 0;
  Micros start_at_ = kNever;  // when min_workers are enough; set when the first worker is ready
  std::uint64_t next_plan_ = 1;
  std::uint64_t members_version_ = 0;  // a time, so that it grows over a restart
  std::set<Rank> members_untold_;      // are to hear of the next change of membership
  JobCounters counters_;
  Effects* effects_ = nullptr;
};

}  // namespace syncd
