// What the two sides of a simulation share, the daemon's and the workers': the clock, the network
// between them, and the counts. Of equal times what was planned first comes first. One thread at a
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <queue>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/core/engine/job_spec.h"
#include "daemon/tools/sim/model.h"
#include "daemon/tools/sim/sim_worker.h"
#include "daemon/tools/sim/simulation.h"
#include "daemon/tools/sim/tally.h"

namespace syncd::sim {

// Data: a worker's update reaches a neighbour. DataArrived: it has reached all of them. Cut: a
// connection closes.
struct Data {
  Rank from = 0;
  Iteration iteration = 0;
};
struct DataArrived {};
struct Cut {};

// The frequent bodies lie in the message itself, so that it needs no memory of its own.
using Payload = std::variant<wire::Begin, wire::Granted, wire::Push, wire::Pushed, wire::Targets,
                             wire::TargetsReply, wire::Collect, wire::CollectReply, wire::Consumed,
                             Data, DataArrived, Cut, std::unique_ptr<wire::Body>>;

struct Message {
  Micros at = 0;
  std::uint64_t order = 0;
  ConnectionId connection = 0;  // of a worker, or the operator's
  bool to_daemon = false;       // else to the worker
  Payload body;
};

inline ConnectionId connection_of(Rank rank, std::uint32_t life) {
  return (ConnectionId{life} << 32) | (rank + 1);
}
inline Rank rank_of(ConnectionId connection) {
  return static_cast<Rank>(connection & UINT32_MAX) - 1;
}
// Who creates the job and switches it.
inline constexpr ConnectionId kOperator = ConnectionId{1} << 63;

// The job that the options make.
inline constexpr const char* kJobName = "simulated";

JobSpec job_spec(const Options& options);

struct World {
  World(Simulation& simulation, Options what)
      : outer(simulation), options(std::move(what)), tally(options) {
    std::stable_sort(options.events.begin(), options.events.end(),
                     [](const TimedEvent& a, const TimedEvent& b) { return a.at < b.at; });
    Rank ranks = options.workers;
    for (const TimedEvent& event : options.events) ranks = std::max(ranks, event.rank + 1);
    workers.resize(ranks);
  }

  template <class Body>
  void post(ConnectionId connection, bool to_daemon, Body&& body) {
    const Micros at = now + options.delay_us;
    if constexpr (std::is_constructible_v<Payload, Body>) {
      messages.push({at, ++order, connection, to_daemon, std::forward<Body>(body)});
    } else {
      messages.push({at, ++order, connection, to_daemon,
                     std::make_unique<wire::Body>(std::forward<Body>(body))});
    }
  }
  template <class Body>
  void to_worker(ConnectionId connection, Body&& body) {
    post(connection, false, std::forward<Body>(body));
  }
  template <class Body>
  void to_daemon(ConnectionId connection, Body&& body) {
    post(connection, true, std::forward<Body>(body));
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
