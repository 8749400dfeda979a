// Identifiers and times of the engine. Plain data, no thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace syncd {

using Micros = std::int64_t;  // a moment (since the Unix epoch) or a span, in microseconds
using JobId = std::uint32_t;  // given by the engine in order of creation, from 1
using Rank = std::uint32_t;   // a worker's number within its job, from 0
using Epoch = std::uint64_t;  // the life of a job's name: from 1, one more for each new job of it
using Incarnation = std::uint64_t;   // a worker's life: raised at every join that is not a resume
using Iteration = std::int64_t;      // from 0; kNoIteration: none yet
using Clock = std::int64_t;          // iterations completed, or the one it is in: see Family
using Sequence = std::uint64_t;      // of a job's records, from 1
using Ticket = std::uint64_t;        // of a batch of records handed to the store, from 1
using ConnectionId = std::uint64_t;  // given by the edge, never reused
using RequestId = std::uint64_t;     // given by the client, unique within its connection

inline constexpr Iteration kNoIteration = -1;
inline constexpr Micros kNever = INT64_MAX;

// Whether a clock counts iterations completed (a parameter server's view) or names the iteration
// that a worker is in (decentralized; -1 before the first). Or it is the number of the round that a
// worker was last in, from 1 (gather). A policy declares which it needs.
enum class Family : std::uint8_t { kParameterServer, kDecentralized, kGather };

enum class WorkerState : std::uint8_t {
  kRegistered = 0,  // joined, has not asked to begin yet
  kReady = 1,       // asked to begin; the job has not started
  kRunning = 2,     // active: counted in minima and barriers
  kDraining = 3,    // active; an operator has asked it to finish its iteration and leave
  kLeft = 4,
  kLost = 5,
};

enum class JobState : std::uint8_t { kWaiting = 0, kRunning = 1, kStopped = 2 };

// What broke a round first: a member that went, that others no longer wanted in it, or that began
// anew, by itself or because a newcomer waited.
enum class RoundBreak : std::uint8_t {
  kLost = 0,
  kFailed = 1,
  kPreempted = 2,
  kLeft = 3,
  kRestarted = 4,
  kNewcomer = 5,
  kExcluded = 6,
  kSpared = 7,
};
inline constexpr std::size_t kRoundBreaks = 8;

// Where a worker of a job with rounds is. One that has not begun yet is nowhere.
enum class RoundPart : std::uint8_t { kIn = 0, kWaiting = 1, kSpare = 2, kExcluded = 3 };
inline constexpr std::size_t kRoundParts = 4;
struct RoundFigures {
  std::array<std::uint32_t, kRoundParts> workers{};  // by RoundPart
  std::uint32_t excluded_hosts = 0;
};

constexpr bool is_active(WorkerState state) {
  return state == WorkerState::kRunning || state == WorkerState::kDraining;
}
constexpr bool is_member(WorkerState state) {
  return state != WorkerState::kLeft && state != WorkerState::kLost;
}

constexpr const char* to_string(WorkerState state) {
  constexpr const char* kNames[] = {"registered", "ready", "running", "draining", "left", "lost"};
  return state <= WorkerState::kLost ? kNames[static_cast<std::size_t>(state)] : "?";
}
constexpr const char* to_string(RoundBreak why) {
  constexpr const char* kNames[kRoundBreaks] = {"lost",      "failed",   "preempted", "left",
                                                "restarted", "newcomer", "excluded",  "spared"};
  return kNames[static_cast<std::size_t>(why)];
}
constexpr const char* to_string(RoundPart part) {
  constexpr const char* kNames[kRoundParts] = {"in_round", "waiting", "spare", "excluded"};
  return kNames[static_cast<std::size_t>(part)];
}
constexpr const char* to_string(JobState state) {
  constexpr const char* kNames[] = {"waiting", "running", "stopped"};
  return state <= JobState::kStopped ? kNames[static_cast<std::size_t>(state)] : "?";
}

}  // namespace syncd
