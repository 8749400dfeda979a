// What the two sides of a simulation share, the daemon's and the workers': the clock, the network
// between them, and the counts. Of equal times what was planned first comes first. One thread at a
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "daemon/core/engine/job_spec.h"
#include "daemon/tools/sim/model.h"
#include "daemon/tools/sim/sim_worker.h"
#include "daemon/tools/sim/simulation.h"
#include "daemon/tools/sim/tally.h"

namespace syncd::sim {

enum class MessageKind : std::uint8_t {
  // to the daemon
  kJoin,
  kBegin,
  kPush,
  kRestarted,
  kTargets,
  kCollect,
  kConsumed,
  kLeave,
  kCut,
  kSwitch,
  // to a worker
  kJoined,
  kGranted,
  kPushed,
  kTargetsReply,
  kCollectReply,
  kResync,
  kStop,
  kData,         // from another worker
  kDataArrived,  // at all the neighbours to which it was sent
};

struct Message {
  Micros at = 0;
  std::uint64_t order = 0;
  Iteration iteration = 0;
  Rank worker = 0;
  std::uint32_t life = 0;
  std::uint32_t extra = 0;  // granted: flags; pushed: late; data: the sender; switch: which event
  MessageKind kind = MessageKind::kJoin;
};

inline ConnectionId connection_of(Rank rank, std::uint32_t life) {
  return (ConnectionId{life} << 32) | (rank + 1);
}

// The job that the options make.
inline constexpr const char* kJobName = "simulated";

JobSpec job_spec(const Options& options);

// The number of the host that a worker is on.
std::uint64_t host_of(Rank rank, const Options& options);

struct World {
  World(Simulation& simulation, Options what)
      : outer(simulation), options(std::move(what)), tally(options) {
    std::stable_sort(options.events.begin(), options.events.end(),
                     [](const TimedEvent& a, const TimedEvent& b) { return a.at < b.at; });
    Rank ranks = options.workers;
    for (const TimedEvent& event : options.events) ranks = std::max(ranks, event.rank + 1);
    workers.resize(ranks);
  }

  void post(MessageKind kind, Rank worker, std::uint32_t life, Iteration iteration,
            std::uint32_t extra = 0) {
    messages.push({now + options.delay_us, ++order, iteration, worker, life, extra, kind});
  }
  // From a worker to the daemon.
  void say(MessageKind kind, Rank rank, Iteration iteration) {
    post(kind, rank, workers[rank].life, iteration);
  }

  Simulation& outer;  // for the observer
  Options options;    // events in order of time
  Micros now = 0;
  Micros progress_at = 0;        // when a worker was last answered
  std::uint64_t order = 0;       // of what was planned last
  std::queue<Message> messages;  // all take equally long
  std::vector<SimWorker> workers;
  Tally tally;
};

}  // namespace syncd::sim
