// One worker of a simulation: where it is in the trainer's loop, and what it holds. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "daemon/core/engine/worker.h"
#include "proto/wire/wire.h"

namespace syncd::sim {

// The updates that one neighbour has sent and this worker keeps, by iteration.
struct Inbox {
  // Far more than any policy's bound on the gap between two neighbours allows.
  static constexpr std::size_t kKept = 4096;
  std::vector<Iteration> received;  // rising

  void add(Iteration k) {
    if (received.size() == kKept) {
      received.erase(received.begin(), received.begin() + kKept / 2);
    }
    received.push_back(k);
  }
  bool has(Iteration k) const { return std::binary_search(received.begin(), received.end(), k); }
};

// The one place that a neighbour writes to under an unsafe baseline. Writes are planned when they
// are posted, in the order of their times.
struct Slot {
  struct Write {
    Iteration iteration = kNoIteration;
    Micros begins = 0;
    Micros ends = 0;
  };
  std::vector<Write> writes;
  Iteration whole = kNoIteration;  // of the latest write that has ended
  Iteration read = kNoIteration;   // the latest that was

  // Brings `whole` up to date. True: it is being overwritten.
  bool torn(Micros now) {
    std::size_t ended = 0;
    while (ended < writes.size() && writes[ended].ends <= now) ++ended;
    if (ended > 0) whole = writes[ended - 1].iteration;
    writes.erase(writes.begin(), writes.begin() + static_cast<std::ptrdiff_t>(ended));
    return !writes.empty() && writes.front().begins <= now;
  }
};

struct SimWorker {
  enum class Stage : std::uint8_t {
    kAbsent,     // no process
    kJoining,    // Joined is awaited
    kBegin,      // Granted is awaited
    kTargets,    // TargetsReply is awaited
    kPulling,    // the parameters are on their way over the server's link, computing comes next
    kPushing,    // the update is on its way over the server's link, push comes after it
    kSending,    // the data is on its way to the neighbours, push comes after it
    kPush,       // Pushed is awaited
    kComputing,  // until an End with its token
    kCollect,    // CollectReply is awaited
    kJumped,     // CollectReply of the iteration before a jump is awaited
    kStopped,    // the job has ended
  };
  Stage stage = Stage::kAbsent;
  // Raised whenever its process starts or ends: messages to or from another life are dropped.
  std::uint32_t life = 0;
  ConnectionId connection = 0;
  wire::WorkerRef ref;
  Iteration iteration = 0;
  Micros present_since = 0;
  Micros waiting_since = -1;  // in begin, targets or collect; -1: not waiting
  Micros computing_since = 0;
  Micros compute_us = 0;           // what this iteration takes
  std::uint32_t token = 0;         // of the End that it awaits
  Micros transferring_since = -1;  // -1: no transfer is under way
  std::vector<Rank> to_send;       // neighbours that its update has yet to go to, the next one last
  bool computed = false;           // decentralized: in this iteration, already
  bool begun = false;              // an iteration was granted in this life
  bool late = false;  // its latest push was LATE: the update is only in its own parameters

  std::unordered_map<Rank, Inbox> inboxes;  // looked up only, never walked through
  std::unordered_map<Rank, Slot> slots;     // likewise, of unsafe baselines
  Micros link_free_at = 0;                  // when what it has posted is sent
  Iteration consumed = kNoIteration;
  std::uint64_t iterations = 0;
  std::uint64_t own_pushes = 0;      // that counted
  std::uint64_t others_at_pull = 0;  // pushes by others at its last pull

  bool present() const { return stage != Stage::kAbsent && stage != Stage::kStopped; }
};

}  // namespace syncd::sim
