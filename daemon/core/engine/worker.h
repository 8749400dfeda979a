// What the engine knows of one worker. Policies read it; only the job changes it. Plain data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/engine/event.h"
#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/lateness.h"
#include "daemon/core/engine/record.h"
#include "daemon/core/engine/straggler_detector.h"
#include "daemon/core/engine/types.h"

namespace syncd {

enum class Call : std::uint8_t { kBegin, kTargets, kCollect };
constexpr const char* to_string(Call call) {
  return call == Call::kBegin ? "begin" : call == Call::kTargets ? "targets" : "collect";
}

// A request that is not answered yet; a worker has one at a time.
struct Waiting {
  Caller caller;
  Iteration iteration = 0;  // as it was asked for
  Micros since = 0;
  Call call = Call::kBegin;
  bool arrives = false;  // in a job with views: the answer is a ViewGranted
};

// What outlives the daemon is a WorkerSnapshot; the rest is of this life of it.
struct Worker : WorkerSnapshot {
  std::uint32_t notices = 0;  // what its client wants to be told: wire::kNotice...
  // The life of the process that joined anew as this one, until it has used this one; 0: none.
  Incarnation predecessor = 0;

  wire::Granted last_grant;  // the answer itself, for a repeated request
  // The latest jump: iterations between these were neither computed nor pushed.
  Iteration before_jump = kNoIteration;
  Iteration after_jump = kNoIteration;
  Iteration asked = kNoIteration;  // what that grant was asked for: granted, or less before a jump

  // Decentralized: the latest iteration of which each call was answered; `targets` and `updates`
  // are the answers.
  Iteration targeted = kNoIteration;
  Iteration collected = kNoIteration;
  Iteration consumed = kNoIteration;

  Micros granted_at = -1;            // its last pull: the latest grant or, after a re-sync, restart
  Micros active_at = 0;              // the latest sign of progress
  Micros waited_us = 0;              // held in begin before the latest grant
  std::uint64_t others_at_pull = 0;  // pushes by others at its last pull

  // Of its latest push. -1: not known.
  Micros span_us = -1;    // from the pull
  Micros held_us = 0;     // in begin before that iteration's grant
  Micros dropped_us = 0;  // computed for it and dropped; not in a snapshot: for on_push() alone
  std::optional<double> loss;

  // SpecSync, in the iteration that it is in.
  bool resync = false;         // was sent, and not followed yet
  bool tells_resumed = false;  // of any policy: its next grant says that the job continues
  std::uint32_t restarts = 0;  // work dropped after a re-sync
  Micros wasted_us = 0;        // computed and dropped

  // How long it is usually silent within an iteration: its longest stretch in each.
  RecentSpans spans;
  Micros longest_us = 0;             // in this iteration so far
  Iteration span_of = kNoIteration;  // the latest granted iteration that `spans` has

  // Its own speed beside the others' (StragglerWatch), and when it began to turn.
  StragglerDetector::Track speed;
  Micros turned_at = 0;
  bool had_phase = false;  // in the iteration that it is in

  std::optional<Waiting> waiting;
  ConnectionId connection = 0;  // 0: not connected
  Micros disconnected_at = -1;
  std::uint32_t heartbeat_timeout_ms = 0;  // as its join asked; 0: as the daemon and the job say
  Micros exit_grace_us = kAutoSpan;        // as its join asked; kAutoSpan: as the job says
  Micros grace_us = 0;                     // how long its place is kept since disconnected_at
  bool closed = false;                     // the other side closed its connection then
  bool warned = false;                     // the log has named it as slow in this iteration
  Micros liveness_at = kNever;  // when its liveness timer fires; never later than it must
  // The long phase that it has announced, in which it is not late; empty: none. Once the lease is
  // over, its lateness counts from there. It began at phase_us.
  std::string phase;
  Epoch told_epoch = 0;  // in the answer to its join; 0: there was none in this life of the daemon
  std::vector<Rank> targets;
  std::vector<wire::PeerUpdate> updates;
  std::vector<std::uint8_t> shown;  // to the others of its next view, by its latest Arrive
  // Its latest view, of which it has the grant, and its place there; 0: none in this life.
  std::uint64_t view = 0;
  std::uint32_t view_rank = 0;
  Iteration view_first = kNoIteration;  // the first one that it was granted in that view

  Clock relative() const { return clock - base; }
  // An operator said that it is in this phase, and it may know nothing of it.
  bool leased() const { return !leased_phase.empty(); }
  bool active() const { return is_active(state); }
  // Of the latest grant its number alone is left.
  void forget_grant() {
    last_grant = {};
    granted_at = -1;
    waited_us = 0;
    asked = granted;
    resync = false;
    restarts = 0;
    wasted_us = 0;
  }
  // Since when it has shown no progress, as far as anybody expects some.
  Micros quiet_since() const {
    return phase.empty() ? active_at : std::max(active_at, phase_us + phase_lease_us);
  }
  // It has shown that it goes on. `excused_us`: what of its silence does not count.
  void progressed(Micros now, Micros excused_us) {
    longest_us = std::max(longest_us, now - quiet_since() - excused_us);
    active_at = now;
  }
  // It asks for its next iteration: what it was silent in this one is known.
  void end_span() {
    if (granted > span_of && granted_at >= 0) spans.add(longest_us);
    span_of = granted;
    longest_us = 0;
  }
  // The latest iteration whose push was answered, counted or not.
  Iteration answered() const { return std::max(pushed, late); }
  // Granted and not pushed. A decentralized worker may push before it computes.
  bool computing() const { return granted > answered(); }
  bool waits_in(Call call) const { return waiting && waiting->call == call; }
};

}  // namespace syncd
