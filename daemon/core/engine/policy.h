// The interface between the engine and a synchronization policy. A policy decides, from clocks,
// times and its parameters alone, when a waiting worker may go on; it knows no connections, no
// messages and no store. The engine tells it what happened; it answers through PolicyHost, then or
// at any later call. One thread at a time.
//
// How to add one stands in policies/registry.cpp. Nothing in the engine names a policy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/rank_list.h"
#include "daemon/core/engine/relative_clocks.h"
#include "daemon/core/engine/types.h"
#include "daemon/core/engine/worker.h"

namespace syncd::topology {
struct GraphFile;
}

namespace syncd {

// How a begin is granted.
struct Grant {
  std::uint32_t flags = 0;                // kStepBarrier, kStepSkip; the engine adds kStepPull
  std::optional<Iteration> iteration;     // decentralized skip: another one than was asked for
  std::optional<std::int64_t> staleness;  // decentralized; else the engine gives q_i - q_min
};

// The last round of a job whose workers form rounds, as they hear of it.
struct RoundState {
  std::uint64_t round = 0;  // 0: there was none
  std::uint32_t gone = 0;   // members that are gone from it, or have begun anew
  std::uint32_t room = 0;   // workers that wait and could be taken into the next

  bool operator==(const RoundState&) const = default;
};

// Why a worker's request is not granted yet (invariant I7).
struct Reason {
  std::string text;  // the rule's numbers, without a final stop
  RankList waiting_for;
};

using wire::PeerUpdate;  // rank, iteration, weight

// Something for the history that a policy knows: on_note() gives it back after a crash. The policy
// fills kind (also kPlan or kBarrier), rank, reason, values and a plan's numbers; the engine the
// rest.
struct Fact : Record {
  Fact() { kind = RecordKind::kPolicyNote; }
};

// What a policy may ask and do. The engine's job implements it; an overlay wraps it, to see or to
// hold back what its base policy decides (a delayed grant, an armed timer).
class PolicyHost {
 public:
  virtual ~PolicyHost() = default;

  // ---- facts
  virtual Micros now() const = 0;
  // Whether stored records are being applied again: what note() stored follows by on_note().
  virtual bool replaying() const = 0;
  virtual const Worker& worker(Rank rank) const = 0;    // precondition: known
  virtual const std::vector<Rank>& active() const = 0;  // in rank order
  virtual const RelativeClocks& clocks() const = 0;     // of the active workers
  virtual Clock highest_relative() const = 0;           // of all there ever were; O(n)
  // Of the latest iterations of active workers that mark it, in microseconds.
  virtual const RelativeClocks& exchanges() const = 0;
  // What the worker's latest iteration took beyond its computing and the shortest exchange of all:
  // it waited for another there. 0 if it does not mark its computing.
  Micros exchange_wait_us(const Worker& worker) const {
    return worker.active() && worker.exchange_us >= 0 ? worker.exchange_us - exchanges().min() : 0;
  }
  virtual std::uint64_t pushes() const = 0;  // by all, late ones left out
  // Pushes by others since this worker's last pull: a difference of two counters.
  virtual std::uint64_t pushes_by_others_since_pull(Rank rank) const = 0;

  // The active workers whose relative clock is below q. O(n): for explanations.
  virtual RankList active_below(Clock q) const = 0;

  // ---- decisions about a worker that waits in begin
  // How long a grant is held back before the worker hears of it: by an overlay, each time.
  virtual Micros grant_delay() const { return 0; }
  virtual void grant(Rank rank, const Grant& grant) = 0;  // does nothing if it does not wait there

  // A barrier opens: from now on workers are granted relative clock q and beyond. All that they
  // pushed before is behind it. Before the grants.
  virtual void barrier(Clock q) { (void)q; }

  // ---- decisions about clocks
  virtual void advance(Rank rank, Clock clock) = 0;  // c_i := clock, which must not be lower

  // ---- advice to a worker that computes. False: it does not compute, or cannot be reached.
  virtual bool resync(Rank rank) = 0;

  // ---- answers to decentralized calls. They wait as a begin does; each does nothing if the worker
  // does not wait there.
  virtual void answer_targets(Rank rank, std::vector<Rank> targets) = 0;
  virtual void answer_collect(Rank rank, std::vector<PeerUpdate> updates) = 0;
  // The set that collect(iteration) of this worker gives from now on, although it has not asked
  // yet: for a jump, together with the grant that makes it.
  virtual void preset_collect(Rank rank, Iteration iteration, std::vector<PeerUpdate> updates) = 0;

  // ---- time, and work off the loop. rank kNoRank: the job's own. kind: the policy's own numbers.
  virtual void set_timer(std::int64_t rank, std::uint32_t kind, Micros at) = 0;
  virtual void cancel_timer(std::int64_t rank, std::uint32_t kind) = 0;
  virtual std::uint64_t request_plan(std::shared_ptr<const PlanWork> work) = 0;  // the plan's id

  // ---- history. A barrier also makes base_i := c_i for all. During replay this does nothing,
  // because the stored record follows and reaches the policy by on_note().
  virtual void note(Fact fact) = 0;

  // ---- rounds: of these an overlay passes none on.
  // The latest view that was noted: a fact of kind kView, whose iteration is the view's number and
  // whose values are the ranks in order. Null: none.
  virtual const View* view() const { return nullptr; }
  // Whether the store takes records now.
  virtual bool can_note() const { return true; }
  // The worker that waits in begin is answered STOP, and why.
  virtual void stop_begin(Rank rank, const std::string& reason) { (void)rank, (void)reason; }
  // The worker is lost, and hears that its work is no longer wanted.
  virtual void fence(Rank rank, const std::string& reason) { (void)rank, (void)reason; }
  virtual void end_job(const std::string& reason) { (void)reason; }
  // The last round is broken, by this first.
  virtual void round_broken(RoundBreak why) { (void)why; }
  virtual void tell_round(Rank rank, const RoundState& state) { (void)rank, (void)state; }
  // After a restart of the daemon no worker is lost before this, or before it is over by itself.
  virtual void end_amnesty() {}
};

// What becomes of a push before it counts.
struct PushVerdict {
  bool late = false;
  Clock clock = 0;  // c_i after it
};

// What a worker does in an iteration under a decentralized policy.
struct PeerLoop {
  // The push is the notice that the update has arrived (NOTIFY-ACK): it is called after the data,
  // which holds what was computed in this iteration. Otherwise it says that the data was sent.
  bool push_follows_data = false;
  std::int64_t batches = 1;    // computed one after the other before that
  std::int64_t staleness = 0;  // by how many iterations an update that is read may be older
  // A baseline that loses updates: each is posted into the one slot of its edge, over what is
  // there, and nobody waits until it has arrived. What is read is the update that collect named or,
  // with `any_iteration`, whatever is in the slot and was not read before.
  bool unsafe = false;
  bool any_iteration = false;

  friend bool operator==(const PeerLoop&, const PeerLoop&) = default;
};

// What others than the engine must know of a policy. Constant; traits_of() (policies/registry.h)
// gives them to whom has the policy's text only.
struct PolicyTraits {
  Family family = Family::kParameterServer;
  // False: every begin is granted at once.
  bool waits = true;
  // By how many iterations a worker may be ahead at a grant: of the slowest that it waits for, or,
  // decentralized, of each neighbour. Empty: no bound.
  std::optional<std::int64_t> gap_bound = {};
  // Barriers before every so many iterations, which no grant tells of; 0: none.
  std::int64_t barrier_every = 0;
  // Barriers elsewhere, of which grants tell (kStepBarrier).
  bool tells_barriers = false;
  // No barrier opens before all workers are there.
  bool all_meet = false;
  // Every grant is held back for so long.
  Micros grant_delay_us = 0;
  // It may advise a worker to drop its work and pull again.
  bool may_resync = false;
  // Workers that are left behind may go on without iterations that they have not pushed.
  bool jumps = false;
  // Of Family::kGather: so many are in a round at most.
  std::uint32_t round_max = 0;
  PeerLoop peer_loop = {};  // decentralized policies only

  friend bool operator==(const PolicyTraits&, const PolicyTraits&) = default;
};

class Policy {
 public:
  explicit Policy(const PolicyTraits& traits) : traits_(traits) {}
  virtual ~Policy() = default;

  // The policy string that makes this very policy again, all parameters written out only where they
  // differ from the default: "ssp:3".
  virtual std::string name() const = 0;
  const PolicyTraits& traits() const { return traits_; }
  Family family() const { return traits_.family; }
  // How often all workers that count have ended a superstep together under this policy. O(1).
  virtual std::uint64_t barriers() const { return 0; }
  // Whether the policy can run a job of `expected` workers, which may have as few as `fewest`:
  // empty, or a sentence that names the parameter in the way and what is allowed.
  virtual std::string check_workers(std::uint32_t fewest, std::uint32_t expected) const {
    (void)fewest, (void)expected;
    return {};
  }

  // Edges among so many workers, where they may be many more than these; 0 for a policy without a
  // graph (topology::dense_edges). `hosts` is asked for the host of each where that counts; null:
  // each has its own.
  using Hosts = std::function<std::vector<std::string>()>;
  virtual std::size_t dense_edges(std::size_t workers, const Hosts& hosts) const {
    (void)workers, (void)hosts;
    return 0;
  }

  // ---- membership. The worker's facts are set before on_enter, and still there in on_exit, but it
  // is no longer among active() and clocks() then. After each, whoever may now go on must be
  // granted. The relative clock at which a newcomer enters; never below any bound of the policy.
  virtual Clock entry_clock(const PolicyHost& host) const {
    return host.clocks().empty() ? host.highest_relative() : host.clocks().min();
  }
  // Whether a worker that comes back may keep a relative clock q: only if that breaks no bound.
  virtual bool keeps_clock(const PolicyHost& host, Clock q) const {
    (void)host, (void)q;
    return true;
  }
  virtual void on_enter(PolicyHost& host, Rank rank) { (void)host, (void)rank; }
  virtual void on_exit(PolicyHost& host, Rank rank) { (void)host, (void)rank; }
  // The same, for a policy to which it matters how: `record` is of kind kWorkerLeft or kWorkerLost.
  virtual void on_gone(PolicyHost& host, const Record& record) {
    on_exit(host, static_cast<Rank>(record.rank));
  }
  // The job was made, under this policy. Nobody has joined.
  virtual void on_created(PolicyHost& host) { (void)host; }
  // An active worker came back in its own place: a new connection or, with a parameter server, a
  // new life (a decentralized worker's new life is an exit and an entry: it has no update of the
  // iteration it was in). Its clock may have risen to what it reported of itself.
  virtual void on_return(PolicyHost& host, Rank rank) { (void)host, (void)rank; }
  // The job starts under this policy, or goes over to it: on_enter was called for every active
  // worker, on_begin for none yet.
  virtual void on_start(PolicyHost& host) { (void)host; }
  // No worker is active any more, and the job waits for another start. Only of a decentralized
  // policy: one with a parameter server is made anew.
  virtual void on_disband(PolicyHost& host) { (void)host; }
  // After a restart of the daemon and the last replayed record, if the job runs: timers are to be
  // set and plans to be asked for again. No worker waits yet.
  virtual void on_restored(PolicyHost& host) { (void)host; }

  // ---- the loop
  // A worker asks to begin its next iteration, and waits until grant() is called for it. Called
  // once per request; also for each waiting worker when this policy takes over from another.
  virtual void on_begin(PolicyHost& host, Rank rank) = 0;
  // The request was withdrawn (timeout, lost connection, loss); it may be made again.
  virtual void on_cancel(PolicyHost& host, Rank rank) { (void)host, (void)rank; }
  // By how much the worker is ahead of the slowest that counts for this policy, where those are not
  // all active ones: for a grant that an overlay held back.
  virtual std::optional<std::int64_t> lead(const PolicyHost& host, Rank rank) const {
    (void)host, (void)rank;
    return {};
  }
  // Judges a push of iteration k before it is recorded; must not change anything.
  virtual PushVerdict judge_push(const PolicyHost& host, Rank rank, Iteration k) const {
    return {false, family() == Family::kParameterServer ? k + 1 : host.worker(rank).clock};
  }
  // A push was recorded; the worker's facts include it.
  virtual void on_push(PolicyHost& host, Rank rank, bool late) {
    (void)host, (void)rank, (void)late;
  }
  // The worker followed a re-sync: it has pulled again, which its facts show.
  virtual void on_restarted(PolicyHost& host, Rank rank) { (void)host, (void)rank; }
  // Decentralized policies: the worker waits in targets or collect (worker.waiting says for which
  // iteration), or has consumed its collected updates. Called once per request.
  virtual void on_targets(PolicyHost& host, Rank rank) { (void)host, (void)rank; }
  virtual void on_collect(PolicyHost& host, Rank rank) { (void)host, (void)rank; }
  virtual void on_consumed(PolicyHost& host, Rank rank) { (void)host, (void)rank; }

  // ---- time, plans, history
  virtual void on_timer(PolicyHost& host, std::int64_t rank, std::uint32_t kind) {
    (void)host, (void)rank, (void)kind;
  }
  virtual void on_plan(PolicyHost& host, std::uint64_t plan, std::span<const std::int64_t> result) {
    (void)host, (void)plan, (void)result;
  }
  // Replay only: a record that note() made.
  virtual void on_note(PolicyHost& host, const Record& record) { (void)host, (void)record; }

  // ---- explanation and snapshot
  // Why this waiting worker is not granted yet. Called only when somebody asks: it may cost O(n).
  virtual Reason explain(const PolicyHost& host, Rank rank) const = 0;
  // What the policy must still know after a restart, beside the workers' facts.
  virtual std::vector<std::int64_t> save() const { return {}; }
  // False: not a state that save() made.
  virtual bool load(std::span<const std::int64_t> state) { return state.empty(); }
  // Likewise what is no number.
  virtual std::string save_text() const { return {}; }
  virtual bool load_text(std::string_view text) { return text.empty(); }

  // ---- Family::kGather
  // The job is the next by its name; rounds are numbered on from this one.
  virtual void number_from(std::uint64_t round) { (void)round; }
  virtual RoundState round() const { return {}; }
  // True: the worker is in the last round, with its grant, and has not begun anew since.
  virtual bool in_round(Rank rank) const { return (void)rank, false; }
  // O(workers).
  virtual RoundFigures round_figures(const PolicyHost& host) const {
    return (void)host, RoundFigures{};
  }
  // Takes the state of the policy before over, which is of the same family, and this one's settings
  // apply. False: it cannot, so that the job begins with this policy as with a new one.
  virtual bool take_over(PolicyHost& host, const Policy& before) {
    return (void)host, (void)before, false;
  }
  // Keeps a host's workers out of rounds, or no longer. Empty, or why not.
  virtual std::string exclude(PolicyHost& host, const wire::ExcludeRequest& request) {
    (void)host, (void)request;
    return "hosts can be excluded only under gather";
  }
  // For people: the job's rounds, and what the worker is in them. Empty: nothing to add.
  virtual std::string describe(const PolicyHost& host) const { return (void)host, std::string{}; }
  virtual std::string describe(const PolicyHost& host, Rank rank) const {
    return (void)host, (void)rank, std::string{};
  }

 protected:
  void set_traits(const PolicyTraits& traits) { traits_ = traits; }

 private:
  PolicyTraits traits_;
};

// Makes a policy from its string, such as "ssp:3" or "naive_wait:50+bsp". Null: `error` says what
// is wrong and what is allowed. `graph_file`: what the file that the string names says
// (read_graph_file). Without it the policy is made, but its check_workers() refuses every job.
std::unique_ptr<Policy> make_policy(
    std::string_view text, std::string& error,
    std::shared_ptr<const topology::GraphFile> graph_file = nullptr);

// "asp, bsp[:K][,backup=B], ssp:S": for messages and --help.
std::string known_policies();

}  // namespace syncd
