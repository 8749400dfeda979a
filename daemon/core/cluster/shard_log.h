// The end of a shard's log, seen by its leader: appends batches to it and removes old entries, by
// fenced transactions, one at a time. It takes records and answers, and says what to send and up to
// where records are committed. No clock, no I/O; one thread.
//
// What always holds:
//  - A batch that was sent once never changes, and is sent again until an answer decides.
//  - Records are committed in the order in which they were added, each once.
//  - Nothing is committed after deposed() or unfit().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/cluster/format.h"
#include "daemon/core/cluster/transaction.h"

namespace syncd::cluster {

class ShardLog {
 public:
  // A leader of `term` that has read `tail` and `first`. `nonces`: this process's latest nonce; its
  // counter goes on from there.
  ShardLog(ShardKeys keys, Term term, Nonce& nonces, const Tail& tail, const First& first);

  // What one event changed: never divided.
  struct Change {
    std::string records;              // as the store has them
    std::vector<JobId> removed = {};  // whose keys go; at most kRemovedMax
    std::optional<Meta> meta = {};
  };
  // Its ticket: one more each time, from 1.
  Ticket add(Change change);
  // Puts a snapshot's parts, then a pointer to it in the transaction of an entry at or behind the
  // last change that was added. An older snapshot of the job that has no pointer yet is dropped.
  // Precondition: the job was not removed, and `sequence` rises within it.
  void add_snapshot(JobId job, Sequence sequence, std::string bytes);
  // Removes entries before this one. Precondition: it is at most one behind the tail.
  void remove_before(Index index);

  // What is to be sent, unless an attempt is under way or there is nothing to do.
  std::optional<Attempt> next();
  // A time-out is Answer::kUnknown.
  void on_answer(std::uint64_t attempt, const Answer& answer);

  Ticket committed() const { return committed_; }
  // Whose snapshots can be read from etcd since the last call: up to which sequence of each.
  std::vector<std::pair<JobId, Sequence>> take_pointers() { return std::exchange(pointers_, {}); }
  const Tail& tail() const { return tail_; }
  Index first() const { return first_.index; }
  bool deposed() const { return state_ == State::kDeposed; }
  // etcd refused for good: the member gives the shard up.
  bool unfit() const { return state_ == State::kUnfit; }

 private:
  enum class State : std::uint8_t { kLeads, kDeposed, kUnfit };
  struct Queued {
    Ticket ticket;
    Change change;
  };
  struct Snapshot {
    bool is_put() const { return parts_put == pointer.parts; }
    Ticket after = 0;  // the last change that it may have in it
    std::string bytes;
    std::uint32_t parts_put = 0;
    Pointer pointer;
  };
  // One step: a transaction that is sent until it is decided, and what is true afterwards.
  struct Step {
    enum class Kind : std::uint8_t { kEntryPart, kEntry, kSnapshotPart, kRemoval };
    Kind kind = Kind::kEntry;
    Transaction transaction;
    JobId job = 0;          // kSnapshotPart
    Sequence sequence = 0;  // likewise
    Index first = 0;        // kRemoval
  };

  void choose();
  void freeze();
  void choose_snapshot_part(JobId job, const Snapshot& snapshot);
  Transaction fenced(std::string compared, std::string value) const;
  void succeeded();
  void decide_otherwise(const Answer& answer);

  ShardKeys keys_;
  Term term_;
  Nonce& nonces_;
  Tail tail_;
  First first_;
  State state_ = State::kLeads;
  std::deque<Queued> queue_;
  std::map<JobId, Snapshot> snapshots_;
  bool entry_is_due_ = false;  // entries and the parts of snapshots take turns
  Index remove_before_ = 0;
  Ticket added_ = 0;
  Ticket committed_ = 0;

  // The batch that is frozen, while there is one.
  std::optional<Tail> frozen_;
  Ticket frozen_ticket_ = 0;
  std::vector<std::string> frozen_parts_;  // not put yet, the last one first
  std::uint32_t frozen_parts_put_ = 0;
  Transaction frozen_entry_;
  std::vector<std::pair<JobId, Sequence>> frozen_pointers_;

  std::vector<std::pair<JobId, Sequence>> pointers_;
  std::optional<Step> step_;
  bool under_way_ = false;
  std::uint64_t attempt_ = 0;
};

}  // namespace syncd::cluster
