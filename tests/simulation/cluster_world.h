// Members that run the parts of daemon/core/cluster against a model etcd, for one shard, in a world
// in which everything goes wrong. A run follows from its seed. One thread.
#pragma once

#include <cstdint>

#include "violation.h"

namespace syncd::simulation {

// What is broken on purpose, which the run must notice.
enum class ClusterMistake : std::uint8_t {
  kNone,
  kSkipsTheFence,  // transactions do not compare the leader key
  kSkipsTheTail,   // nor the tail
  kGrantsTooLong,  // the lease counts from its answer, not from its sending
  kServesOn,       // who hands the shard over serves until the key has gone
};

// What happened, so that a test sees that it did.
struct ClusterFigures {
  std::uint64_t acknowledged = 0;
  std::uint64_t terms = 0;
  std::uint64_t entries = 0;
  std::uint64_t removals = 0;
  std::uint64_t rebuilt = 0;  // copies, from snapshots
  std::uint64_t deposed = 0;  // logs
  std::uint64_t unknown = 0;  // answers
  std::uint64_t late = 0;     // transactions that landed long after they were sent
  std::uint64_t failed = 0;   // recoveries
  std::uint64_t large = 0;    // entries in parts
  std::uint64_t given = 0;    // terms of a member that the leader before had chosen
};

// Throws a Violation.
ClusterFigures run_cluster(std::uint64_t seed, ClusterMistake mistake = ClusterMistake::kNone);

}  // namespace syncd::simulation
