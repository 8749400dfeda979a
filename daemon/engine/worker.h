// What the engine knows of one worker. Policies read it; only the job changes it. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/engine/event.h"
#include "daemon/engine/types.h"

namespace syncd {

// A begin that is not granted yet.
struct Waiting {
  Caller caller;
  Iteration iteration = 0;  // as it was asked for
  Micros since = 0;
};

struct Worker {
  Rank rank = 0;
  std::string name;
  std::string host;
  WorkerState state = WorkerState::kRegistered;
  Incarnation incarnation = 0;

  Clock clock = 0;  // c_i of POLICIES.md; never goes down
  Clock base = 0;   // base_i: relative() is q_i

  Iteration granted = kNoIteration;  // the latest begin that was granted
  Iteration pushed = kNoIteration;   // the latest push that counted
  Iteration late = kNoIteration;     // the latest push that was answered LATE
  wire::Granted last_grant;          // the answer itself, for a repeated request

  Micros granted_at = -1;    // when it was granted: the worker pulls then
  Micros last_push_at = -1;  // the two latest pushes; -1: none
  Micros previous_push_at = -1;
  Micros active_at = 0;              // the latest sign of progress
  Micros waited_us = 0;              // held in begin before the latest grant
  std::uint64_t own_pushes = 0;      // of this worker, late ones left out
  std::uint64_t others_at_pull = 0;  // pushes by others when it was granted last

  std::optional<Waiting> waiting;
  ConnectionId connection = 0;  // 0: not connected
  Micros disconnected_at = -1;
  bool warned = false;          // the log has named it as slow in this iteration
  Micros liveness_at = kNever;  // when its liveness timer fires; never later than it must

  Clock relative() const { return clock - base; }
  bool active() const { return is_active(state); }
  // Of the latest grant its number alone is left.
  void forget_grant() {
    last_grant = {};
    granted_at = -1;
    waited_us = 0;
  }
  // The latest iteration whose push was answered, counted or not.
  Iteration answered() const { return std::max(pushed, late); }
  bool computing() const { return granted > answered(); }
};

}  // namespace syncd
