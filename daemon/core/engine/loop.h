// The iterations of a job's workers: answers the calls of their loops (begin, push, targets,
// collect, consumed) and carries out what the policy decides about them. A call that the policy has
// not granted yet is the worker's pending request.
//
// Pending requests are not recorded: after a crash the workers ask again. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "daemon/core/engine/answers.h"
#include "daemon/core/engine/checkpoints.h"
#include "daemon/core/engine/counters.h"
#include "daemon/core/engine/engine_services.h"
#include "daemon/core/engine/liveness.h"
#include "daemon/core/engine/membership.h"
#include "daemon/core/engine/policy.h"
#include "daemon/core/engine/recorder.h"
#include "daemon/core/engine/roster.h"
#include "daemon/core/engine/straggler_watch.h"
#include "daemon/core/engine/views.h"

namespace syncd {

class Loop final : public PolicyHost {
 public:
  Loop(const EngineServices& engine, const JobSpec& spec, Roster& roster, Recorder& recorder,
       Answers& answers, Liveness& liveness, StragglerWatch& stragglers, Membership& membership,
       Checkpoints& checkpoints, JobCounters& counters, std::unique_ptr<Policy> policy);

  // ---- requests. Each is answered exactly once, now or later.
  void on(const Caller& caller, const wire::Begin& begin);
  void on(const Caller& caller, const wire::CancelBegin& cancel);
  void on(const Caller& caller, const wire::Push& push);
  void on(const Caller& caller, const wire::Restarted& restarted);
  void on(const Caller& caller, const wire::Targets& targets);
  void on(const Caller& caller, const wire::Collect& collect);
  void on(const Caller& caller, const wire::Consumed& consumed);
  void on(const Caller& caller, const wire::Arrive& arrive);

  // ---- pending requests. Each of these does nothing if the worker has none.
  void withdraw(Worker& worker);  // nothing is answered
  void refuse_pending(Worker& worker, Status status, std::string text);
  void stop_pending(Worker& worker, const std::string& reason);  // the worker's loop ends
  // The policy sees all that wait in begin once more, in the order in which they asked.
  void ask_again();

  // ---- the policy
  Policy& policy() { return *policy_; }
  const Policy& policy() const { return *policy_; }
  bool decentralized() const { return policy_->family() == Family::kDecentralized; }
  bool gathers() const { return policy_->family() == Family::kGather; }
  void switch_to(std::unique_ptr<Policy> policy);
  // It forgets what workers have done, of which none is active.
  void renew_policy();

  // ---- recorded facts, live or replayed
  void apply_push(const Record& record);
  void apply_note(const Record& record);  // of a barrier, a plan or a policy's own
  // All up to `clock` is over for the worker.
  void begin_life(Worker& worker, Clock clock);
  void restore(std::uint64_t pushes) { pushes_ = pushes; }
  std::string restore_views(const JobSnapshot& snapshot);  // empty, or what is impossible in it
  // ---- views of a policy with barriers: the next one opens once every active worker waits for it.
  // Does so if that is so now.
  void try_view();
  // The worker waits for that, and no longer for the policy.
  bool waits_for_view(const Worker& worker) const { return held_.contains(worker.rank); }
  Reason explain_view() const;
  // No view opens until release_views().
  void hold_views() { are_views_held_ = true; }
  void release_views();
  // Whether the view of the superstep that the policy has opened was granted.
  bool view_is_granted() const;
  // Whether the policy has barriers at which all meet.
  static bool may_have_views(const PolicyTraits& traits) {
    return traits.family == Family::kParameterServer && (traits.all_meet || traits.tells_barriers);
  }

  // ---- views
  Iteration due(const Worker& worker) const {  // the iteration whose begin is next
    if (gathers()) return due_round();
    return decentralized() ? worker.clock + 1 : worker.clock;
  }
  // With a parameter server from the grant to the push, otherwise to the answer of collect.
  bool in_iteration(const Worker& worker) const {
    if (!decentralized()) return worker.computing();
    return worker.granted == worker.clock && worker.collected < worker.granted;
  }
  Iteration due_round() const { return static_cast<Iteration>(policy_->round().round) + 1; }
  const Views& views() const { return views_; }
  bool has_views() const { return gathers() || spec_.views; }
  std::uint32_t pending() const { return pending_; }
  std::uint64_t barriers() const { return barriers_before_ + policy_->barriers(); }

  // ---- PolicyHost
  Micros now() const override { return engine_.now(); }
  bool replaying() const override { return recorder_.replaying(); }
  const Worker& worker(Rank rank) const override { return roster_.at(rank); }
  const std::vector<Rank>& active() const override { return roster_.active(); }
  const RelativeClocks& clocks() const override { return roster_.clocks(); }
  Clock highest_relative() const override { return roster_.highest_relative(); }
  const RelativeClocks& exchanges() const override { return roster_.exchanges(); }
  RankList active_below(Clock q) const override { return roster_.active_below(q); }
  std::uint64_t pushes() const override { return pushes_; }
  std::uint64_t pushes_by_others_since_pull(Rank rank) const override;
  void grant(Rank rank, const Grant& grant) override;
  void barrier(Clock q) override {
    if (!replaying()) checkpoints_.barrier(q);
  }
  void advance(Rank rank, Clock clock) override;
  bool resync(Rank rank) override;
  void answer_targets(Rank rank, std::vector<Rank> targets) override;
  void answer_collect(Rank rank, std::vector<PeerUpdate> updates) override;
  void preset_collect(Rank rank, Iteration iteration, std::vector<PeerUpdate> updates) override;
  void set_timer(std::int64_t rank, std::uint32_t kind, Micros at) override;
  void cancel_timer(std::int64_t rank, std::uint32_t kind) override;
  std::uint64_t request_plan(std::shared_ptr<const PlanWork> work) override;
  void note(Fact fact) override;
  const View* view() const override { return views_.latest(); }
  bool can_note() const override { return engine_.store_refusal() == nullptr; }
  void stop_begin(Rank rank, const std::string& reason) override;
  void fence(Rank rank, const std::string& reason) override;
  void end_job(const std::string& reason) override { membership_.end_job(reason); }
  void round_broken(RoundBreak why) override {
    if (!replaying()) ++counters_.rounds_broken[static_cast<std::size_t>(why)];
  }
  void tell_round(Rank rank, const RoundState& state) override;
  void end_amnesty() override { membership_.end_amnesty(); }

 private:
  Worker* check_peer_call(const Caller& caller, const wire::WorkerRef& ref, const char* call,
                          Iteration iteration);
  wire::Granted repeat_grant(const Worker& worker) const;
  // False: it took the place of an equal one.
  bool set_pending(Worker& worker, const Caller& caller, Iteration iteration, Call call);
  Waiting end_pending(Worker& worker);
  void give(Worker& worker, const Grant& grant);  // of one that waits in begin
  void announce(const Record& plan);
  // loop_views.cpp
  void arrive_in_round(Worker& worker, const Caller& caller, const wire::Arrive& arrive);
  wire::ViewGranted view_grant(const Worker& worker) const;
  static wire::ViewGranted view_stop(Iteration iteration, const std::string& reason);
  void fill_view(Record& record) const;
  void apply_view(const Record& record);
  void see_view(const View& view);
  bool opens_view(const Worker& worker, const Grant& grant) const;
  void begin_in_view(Worker& worker, const Caller& caller, const wire::Arrive& arrive);
  bool may_open_view() const;
  std::string view_reason() const;

  EngineServices engine_;
  const JobSpec& spec_;
  Roster& roster_;
  Recorder& recorder_;
  Answers& answers_;
  Liveness& liveness_;
  StragglerWatch& stragglers_;
  Membership& membership_;
  Checkpoints& checkpoints_;
  JobCounters& counters_;
  std::unique_ptr<Policy> policy_;
  Views views_;
  bool are_views_held_ = false;
  std::map<Rank, Grant> held_;         // granted by the policy, until the view opens
  std::uint64_t barriers_before_ = 0;  // under the policies before this one
  std::uint64_t pushes_ = 0;
  std::uint32_t pending_ = 0;
  std::uint64_t next_plan_ = 1;
};

}  // namespace syncd
