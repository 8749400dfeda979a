// The facts that the engine needs again after a crash, as plain structs; record.fbs is their stored
// form. The engine makes them, the store keeps them, recovery hands them back. No thread.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd {

enum class RecordKind : std::uint8_t {
  kNone = 0,
  kJobCreated = 1,
  kJobStarted = 2,
  kJobStopped = 3,
  kWorkerJoined = 4,
  kWorkerLeft = 5,
  kWorkerLost = 6,
  kPush = 7,
  kBarrier = 8,
  kPolicySwitched = 9,
  kPlan = 10,
  kPolicyNote = 11,
  kWorkerDraining = 12,
  kWorkerLeased = 13,
  kJobReassembling = 14,
  kHang = 15,
  kCheckpointAsked = 16,
  kCheckpointFixed = 17,
  kCheckpointSaved = 18,
  kCheckpointComplete = 19,
  kCheckpointIncomplete = 20,
  kView = 21,
  kStragglerDetected = 22,
  kStragglerRecovered = 23,
};
inline constexpr std::uint8_t kRecordKindMax = 23;

// "job_created" and so on: the names that history and its exports show.
constexpr const char* to_string(RecordKind kind) {
  constexpr const char* kNames[] = {"none",
                                    "job_created",
                                    "job_started",
                                    "job_stopped",
                                    "worker_joined",
                                    "worker_left",
                                    "worker_lost",
                                    "push",
                                    "barrier",
                                    "policy_switched",
                                    "plan",
                                    "policy_note",
                                    "worker_draining",
                                    "worker_leased",
                                    "job_reassembling",
                                    "hang",
                                    "checkpoint_asked",
                                    "checkpoint_fixed",
                                    "checkpoint_saved",
                                    "checkpoint_complete",
                                    "checkpoint_incomplete",
                                    "view",
                                    "straggler_detected",
                                    "straggler_recovered"};
  static_assert(std::size(kNames) == kRecordKindMax + 1);
  return kind <= RecordKind{kRecordKindMax} ? kNames[static_cast<std::size_t>(kind)] : "?";
}

// Whether an answer that follows from it leaves only when it is on the disk, in mode fast too.
constexpr bool is_synced_always(RecordKind kind) {
  return kind == RecordKind::kCheckpointFixed || kind == RecordKind::kView;
}

inline constexpr std::int64_t kNoRank = -1;

// Who is in a view, at its place in the list.
struct ViewMember {
  Rank rank = 0;  // of the worker in the job
  Incarnation incarnation = 0;
  std::uint32_t flags = 0;  // of its grant
  std::string name;
  std::string host;
  std::vector<std::uint8_t> data;  // what it showed to the others

  bool operator==(const ViewMember&) const = default;
};

// Those who go on together from a barrier on, or from the beginning of a round.
struct View {
  std::uint64_t number = 0;
  std::string reason;  // why it is another than the one before
  std::vector<ViewMember> members;

  bool operator==(const View&) const = default;
};

// One struct for every kind; the comments say which kinds use a field. Others keep the default.
struct Record {
  RecordKind kind = RecordKind::kNone;
  JobId job = 0;
  Sequence sequence = 0;
  Micros time_us = 0;
  Epoch epoch = 0;
  std::int64_t rank = kNoRank;  // kNoRank: about the whole job
  Incarnation incarnation = 0;
  Iteration iteration = kNoIteration;

  std::string name;  // joined: the worker's; created: the job's; leased: the phase's
  std::string host;  // joined
  // joined: the clock it enters with. push: the clock after it. started again: where the group, or
  // else those that are new in it, begin
  Clock clock = 0;
  Clock base = 0;  // joined: clock minus relative clock
  // joined: a return with the same incarnation; started again: the job continues
  bool resumed = false;
  std::vector<std::uint8_t> data = {};  // joined: what the worker shows to the others

  bool late = false;  // push: the others had gone on without it
  // push: from the grant; leased: the lease; straggler: how long it has been so; -1: not known
  Micros span_us = -1;
  Micros waited_us = 0;        // push: held in begin before that grant
  std::int64_t staleness = 0;  // push: at that grant
  std::optional<double> loss;
  std::uint64_t samples = 0;
  std::uint64_t bytes = 0;
  std::uint32_t restarts = 0;  // push: times its work was dropped after a re-sync
  Micros wasted_us = 0;        // push: computed and dropped then
  bool declined = false;       // push: the last re-sync was not followed

  std::string policy;                  // created, switched
  std::uint32_t expected_workers = 0;  // joined: of the group that it is the first of; 0: as before
  std::uint32_t min_workers = 0;
  // created: the other settings, "key=value" lines. joined: its launch, where the job was of
  // another
  std::string config;

  // stopped, lost, note, draining, hang; left: if it was drained, or said why (exit_reason.h);
  // reassembling: whose failure
  std::string reason;

  std::int64_t superstep = -1;       // barrier, plan
  Micros predicted_us = -1;          // when the plan foresaw the barrier; -1: no plan
  Micros predicted_wait_us = -1;     // the wait of the first to arrive, as foreseen
  Micros wait_us = -1;               // barrier: as it came to be; hang: the longest wait
  std::vector<std::int64_t> values;  // plan; note; hang: the ranks at fault

  bool returned = false;  // joined: to a job that reassembles, in which it took part

  // Of a checkpoint; `resumed` if it, complete, comes from the job that had the name before.
  std::uint64_t checkpoint = 0;  // its number within the job
  std::uint32_t shard = 0;       // saved: this one of `shards`
  std::uint32_t shards = 0;      // saved, complete. saved: 0: the worker has nothing to save
  std::string location = {};     // saved
  std::vector<ViewMember> members = {};  // view; its number is the iteration

  // push: from the grant until the worker's own computing was done; -1: it did not mark that
  Micros computed_us = -1;
  // push: a long phase was announced in the iteration, which says nothing of the worker's speed
  bool in_phase = false;
  double factor = 0;  // straggler: how many times its usual time its iterations took

  // push: what its own speed is told by; -1: not known
  Micros own_span_us() const { return computed_us >= 0 ? computed_us : span_us; }
  // push: after its computing, until the push; -1: not known
  Micros exchange_us() const {
    return computed_us >= 0 && span_us >= computed_us ? span_us - computed_us : -1;
  }

  bool operator==(const Record&) const = default;
};

// What outlives the daemon of a worker. First what every push touches, so that it lies in few lines
// of the cache.
struct WorkerSnapshot {
  Rank rank = 0;
  WorkerState state = WorkerState::kRegistered;
  Incarnation incarnation = 0;
  Clock clock = 0;                   // c_i; never goes down (see Family)
  Clock base = 0;                    // base_i: the relative clock q_i is clock minus base
  Iteration granted = kNoIteration;  // the latest begin that was granted
  Iteration pushed = kNoIteration;   // the latest push that counted
  Iteration late = kNoIteration;     // the latest push that was answered LATE
  std::uint64_t own_pushes = 0;      // that counted
  Micros last_push_us = -1;          // when it pushed; -1: never
  Micros previous_push_us = -1;      // and before that
  // Decentralized: the clock that its present life began with: all up to it is answered.
  Clock entered = kNoIteration;
  Micros phase_us = 0;  // since when it has been in the long phase that an operator set
  Micros phase_lease_us = 0;
  std::string leased_phase = {};  // that phase; empty: none
  std::string name;
  std::string host;
  std::vector<std::uint8_t> data = {};  // what it shows to the others
  // Why an operator sent it away: while it drains, and, until a new process has its place, after it
  // has left or was kicked. Likewise what it said itself when it left (exit_reason.h).
  std::string dismissal = {};
  // It has come back to a job that reassembles, with iterations that it was granted before.
  bool returned = false;
  Micros exchange_us = -1;  // of its latest push: from the mark on; -1: not known
  // It is slower than is usual for it: since when (-1: it is not), and how many times.
  Micros slow_since_us = -1;
  double slow_factor = 0;
  std::optional<double> usual = {};  // see StragglerDetector; in snapshots alone

  bool operator==(const WorkerSnapshot&) const = default;
};

inline constexpr std::size_t kCheckpointMemberValues = 4;
enum class CheckpointState : std::uint8_t { kQueued = 0, kOpen = 1, kComplete = 2 };

struct SavedShard {
  std::uint32_t shard = 0;
  Rank rank = 0;
  Iteration iteration = 0;  // the worker's next one
  std::string location;

  bool operator==(const SavedShard&) const = default;
};

struct CheckpointSnapshot {
  std::uint64_t number = 0;
  CheckpointState state = CheckpointState::kQueued;
  Epoch epoch = 0;
  Micros since_us = 0;  // open, or complete
  std::string reason;
  bool fixed = false;
  std::vector<std::int64_t> members;  // of an open one, in rank order: see Checkpoints::Member
  std::uint32_t shards = 0;           // 0: not known yet
  std::vector<SavedShard> saved;      // in the order of shards

  bool operator==(const CheckpointSnapshot&) const = default;
};

// A job after its record `sequence`; the records that follow it lead to the present.
struct JobSnapshot {
  Record created;
  Sequence sequence = 0;
  Micros time_us = 0;
  JobState state = JobState::kWaiting;
  Epoch epoch = 0;
  Incarnation next_incarnation = 1;
  std::uint64_t pushes = 0;
  Clock highest_clock = 0;
  std::vector<WorkerSnapshot> workers;  // in rank order
  std::string policy;
  std::vector<std::int64_t> policy_state;
  std::string stop_reason;
  std::uint32_t expected_workers = 0;  // of the present group; 0: as created
  bool reassembling = false;           // it waits for another start than its first
  std::uint32_t left = 0;              // reassembling: workers that are not waited for again
  Epoch group_epoch = 0;               // in which its iterations began to count; 0: epoch
  std::string launch;
  std::uint64_t launch_number = 0;
  std::string failure;  // of a job that reassembles because its last member failed
  std::vector<CheckpointSnapshot> checkpoints;  // the latest complete one, the open, the queued one
  std::uint64_t checkpoints_asked = 0;          // so many numbers were given
  Clock checkpoint_clock = 0;            // of the job when the latest one was asked for or fixed
  std::uint64_t checkpoint_closed = 0;   // the latest that is complete or was given up
  std::string checkpoint_closed_reason;  // why it was given up
  std::vector<View> views;               // the latest two
  std::string policy_text;               // what policy_state cannot hold: lines of the policy's own
  double noise = 0;                      // see StragglerDetector; 0: not known
  bool policy_set = false;               // the policy is an operator's

  bool operator==(const JobSnapshot&) const = default;
};

}  // namespace syncd
