// Random worlds for decentralized policies: workers that follow the protocol against the real
// engine, in any order that chance brings, with updates written into rotating slots as a trainer
// does. Whatever must hold is checked at every event, by means that know nothing of the policies'
// own state. One thread, no clock but the world's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/core/topology/bounds.h"
#include "daemon/core/topology/graph_spec.h"

namespace syncd::test {

struct PeerWorldOptions {
  std::string policy;  // "hop:ring_based,max_ig=3,backup=1"
  std::string graph;
  bool notify_ack = false;
  std::int64_t max_ig = 4;
  std::vector<std::int64_t> backup;  // by rank; empty: none
  std::optional<std::int64_t> staleness;
  std::int64_t skip = 0;
  std::uint32_t workers = 8;
  bool serial = false;      // computes before it sends
  bool membership = false;  // losses, leaves, joins, returns, reconnects, restarts of the daemon
  int steps = 600;          // events of the disorder
  std::uint64_t seed = 0;
};

struct PeerViolation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The graph that a world of these has; throws PeerViolation.
topology::Graph graph_of(const PeerWorldOptions& options);

class PeerWorld {
 public:
  explicit PeerWorld(const PeerWorldOptions& options);
  // Throws PeerViolation.
  void run();
  std::uint64_t reduces() const { return reduces_; }
  std::uint64_t jumps() const { return jumps_; }
  std::uint64_t missing() const { return missing_; }  // updates that backup did without
  Iteration furthest() const;

 private:
  enum class At { kBegin, kCompute, kTargets, kPush, kCollect, kConsumed, kGone };
  struct Process {
    std::string name;
    ConnectionId connection = 0;
    bool joined = false;
    wire::WorkerRef ref;
    At at = At::kBegin;
    bool stands = false;  // a request is on its way
    RequestId request = 0;
    Iteration k = 0;  // begin that is asked for, then the iteration that it is in
    Iteration granted = -1, pushed = -1, collected = -1, consumed = -1;
    bool sent = false, computed = false;  // in this iteration
    int compute_left = 0;
    int slowness = 1;
    std::vector<std::uint32_t> targets;
    std::vector<wire::PeerUpdate> reading;  // readable until the next begin is granted
    bool done = false;
  };

  void send(std::size_t p, wire::Body body);
  void step(Event event);
  void drive(const Effects& effects);
  void answer(std::size_t p, const wire::Body& body);
  void act(std::size_t p);
  void join(std::size_t p, bool again);
  void disorder();
  void restart_daemon();
  void check();
  void check_collect(std::size_t p, const wire::CollectReply& reply);
  void check_reading(std::size_t p, const wire::PeerUpdate& update);
  bool can_act(const Process& p) const;
  std::size_t process_of(Rank rank) const;
  [[noreturn]] void fail(const std::string& what) const;

  PeerWorldOptions options_;
  std::mt19937_64 random_;
  std::unique_ptr<Engine> engine_;
  std::vector<Record> records_;
  Micros now_ = 1'000'000;
  std::vector<Process> processes_;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  std::map<Rank, std::set<Iteration>> pushes_;  // acknowledged
  // What lies in the slots that `from` writes to at `to`.
  std::map<std::pair<Rank, Rank>, std::map<std::int64_t, Iteration>> slots_;
  std::int64_t slot_count_ = 0;
  std::map<std::pair<Rank, Rank>, Iteration> reduced_;  // the newest of `from` at `to`
  topology::Graph graph_;
  std::unique_ptr<topology::GapBounds> bounds_;  // on a fixed membership
  std::unique_ptr<topology::Distances> distances_;
  std::uint64_t reduces_ = 0, jumps_ = 0, missing_ = 0;
};

}  // namespace syncd::test
