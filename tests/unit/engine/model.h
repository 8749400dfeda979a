// A naive model of one job, apart from the engine: plain arrays, and every rule recomputed from its
// definition after each event (ssp after Ho et al., NIPS 2013; bsp with backup workers after Chen
// et al., 2016). It is told each event and what the engine answered,
// and throws Violation where the two do not fit. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/job_spec.h"

namespace syncd::test {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A policy as the model understands it, beside the string that the engine gets.
struct Rules {
  enum class Kind { kAsp, kSsp, kBsp };
  std::string text;
  Kind kind = Kind::kAsp;
  std::int64_t staleness = 0;      // ssp:s
  std::int64_t every = 1;          // bsp:k
  std::int64_t backup = 0;         // bsp's b
  std::optional<Micros> delay_us;  // naive_wait
};

struct ModelWait {
  Caller caller;
  Iteration iteration = 0;
  Micros since = 0;
  std::optional<Micros> allowed_at;  // since when the rule allows it
};

struct ModelWorker {
  Rank rank = 0;
  std::string name, host;
  std::vector<std::uint8_t> data;
  WorkerState state = WorkerState::kRegistered;
  Incarnation incarnation = 0;
  Incarnation predecessor = 0;  // what it joined as, until it has used the life that it got
  Iteration before_jump = kNoIteration, after_jump = kNoIteration;  // of the latest jump
  Clock clock = 0, base = 0;
  Clock recorded_clock = 0;  // without a jump whose push is still to come
  Iteration granted = kNoIteration, pushed = kNoIteration, late = kNoIteration;
  std::uint64_t own_pushes = 0;
  std::optional<ModelWait> waiting;
  std::optional<wire::Granted> last_grant;  // what it was told, in this life of the daemon
  std::uint64_t others_at_pull = 0;
  std::optional<Micros> granted_at;  // of last_grant
  Micros waited = 0;
  ConnectionId connection = 0;
  std::optional<Micros> disconnected_at;
  Micros progress_at = 0;
  std::optional<Micros> phase_until;  // of a long phase that it has announced
  bool leased = false;                // ... or that an operator says it is in
  bool warned = false;
  bool listens = false;  // wants to be told of changes of membership
  // What its process hears once it is no member any more, if an operator has sent it away.
  std::optional<Status> dismissed;
  bool returned = false;  // it came back to a job that reassembles, with iterations of its own
  bool tells = false;     // its next grant says that the job goes on
  Epoch told_epoch = 0;   // with the answer to its join, in this life of the daemon

  Clock q() const { return clock - base; }
  bool active() const { return is_active(state); }
  // In a phase nobody expects progress before its lease is over.
  Micros late_from() const { return std::max(progress_at, phase_until.value_or(0)); }
  bool computing() const { return granted > pushed && granted > late; }
};

class Model {
 public:
  Model(Rules rules, JobSpec spec)
      : rules_(std::move(rules)), spec_(std::move(spec)), expected_(spec_.expected_workers) {}

  // One event and what the engine said to it. `next_deadline` is the engine's, after it.
  void observe(const Event& event, Micros now, const Effects& effects, Micros next_deadline);
  void observe_tick(Micros now, const Effects& effects, Micros next_deadline);
  void observe_declared(Micros now, const Effects& effects);

  // The daemon died; a new one was made from `records`, or from `snapshot` and those after it.
  void restart(std::span<const Record> records, const JobSnapshot* snapshot, Micros now);
  // Throws where the engine's state differs from the model's.
  void check_live(const JobSnapshot& snapshot) const;
  // The same for a state made from records, which tell of no grants, nor of the jumps that come
  // with them before the push does.
  void check_rebuilt(const JobSnapshot& snapshot) const;

  JobState state() const { return state_; }
  bool store_writable() const { return store_writable_; }
  const ModelWorker* find(Rank rank) const;
  const ModelWorker* find(const std::string& name) const;
  std::vector<const ModelWorker*> members() const;
  std::vector<const ModelWorker*> waiting() const;

 private:
  // ---- the policies' rules, from their definitions
  std::vector<const ModelWorker*> active() const;
  Clock q_min() const;
  Clock q_max() const;
  void raise_superstep();  // B
  bool allows(const ModelWorker& worker) const;
  std::set<Rank> waited_for(const ModelWorker& worker) const;
  bool keeps_clock(Clock q) const;
  std::pair<Clock, Clock> entry(Clock own, Clock base, bool returner) const;  // clock and base

  // ---- records
  void apply(const Record& record);  // believes them: replay
  void apply_joined(const Record& record);
  void apply_reassembling(const Record& record);
  void apply_started(const Record& record);
  static void begin_anew(ModelWorker& worker, Clock clock);
  std::int64_t wanted() const;              // so many the start waits for
  void check_record(const Record& record);  // against the rules, before it is applied
  void check_joined(const Record& record) const;
  void check_lost(const Record& record) const;
  void check_started(const Record& record) const;
  void check_beginning(const Record& record) const;

  // ---- events
  std::optional<Status> refusal(const Caller& caller, const wire::WorkerRef& ref);
  void on_begin(const Caller& caller, const wire::Begin& begin);
  void on_push(const Caller& caller, const wire::Push& push);
  void on_cancel(const Caller& caller, const wire::CancelBegin& cancel);
  void on_phase(const Caller& caller, const wire::Phase& phase);
  void end_phase(ModelWorker& worker);
  void on_members(const Caller& caller, const wire::MembersRequest& request);
  void on_leave(const Caller& caller, const wire::Leave& leave);
  void on_explain(const Caller& caller, const wire::Explain& explain);
  void on_manage(const Caller& caller, const wire::ManageWorkerRequest& request);
  void expect_exit(std::vector<RecordKind> kinds, Rank rank);
  void on_join(const Caller& caller, const wire::Join& join);
  void on_stop(const Caller& caller);
  void on_disconnected(ConnectionId connection);

  // ---- answers
  const wire::Body& answer(const Caller& caller, bool after_records);
  bool tells_of_dismissal(const Caller& caller) const;
  void expect_error(const Caller& caller, Status status);
  void expect_records(const std::vector<RecordKind>& kinds) const;
  void take_records();
  void jump_ahead();
  void release();
  void take_held_grants();
  void check_grant(ModelWorker& worker, const wire::Granted& granted);
  void withdraw(ModelWorker& worker, Micros now);
  void take_back(ModelWorker& worker, Status status);  // its begin was answered with this error
  void begin_event(Micros now, const Effects& effects);
  void end_event(Micros next_deadline);
  void check_snapshot(const JobSnapshot& snapshot) const;
  void check_state(Micros next_deadline) const;
  void check_nobody_overdue(Micros next_deadline) const;
  void check_notices();
  void take_version(std::uint64_t version);
  ModelWorker& at(Rank rank);

  // What the workers see of each other, and the life that it is about.
  using Seen = std::map<Rank, std::pair<wire::MemberStatus, Incarnation>>;
  Seen seen() const;

  Rules rules_;
  JobSpec spec_;
  JobState state_ = JobState::kWaiting;
  std::int64_t expected_ = 0;
  bool reassembling_ = false;  // waits for another start than its first
  std::int64_t left_ = 0;      // ... but not for these, which have done their part
  Epoch epoch_ = 1;
  Epoch group_epoch_ = 1;  // in which its iterations began to count
  Sequence sequence_ = 0;
  std::map<Rank, ModelWorker> workers_;
  std::int64_t superstep_ = 0;  // B
  std::uint64_t pushes_ = 0;
  Incarnation highest_incarnation_ = 0;
  std::optional<Micros> start_at_;
  bool store_writable_ = true;
  std::set<std::pair<Rank, Iteration>> counted_;  // pushes, each at most once

  // The event being looked at.
  Micros now_ = 0;
  const Effects* effects_ = nullptr;
  const wire::Join* joining_ = nullptr;
  bool restarting_ = false;  // a whole group, of which it is the first
  std::optional<Rank> kicked_;
  std::set<const Reply*> answered_;
  std::size_t records_taken_ = 0;
  Clock q_min_before_ = 0;
  Seen seen_before_;
  std::optional<Rank> listener_;  // who is to hear of the next change from now on
  bool in_tick_ = false;

  std::set<Rank> untold_;              // who hears of the next change
  std::uint64_t members_version_ = 0;  // the latest that the engine has told
  bool changed_since_ = true;
};

// Throws Violation with `text` unless `holds`.
void require(bool holds, const std::string& text);

}  // namespace syncd::test
