// One simulated run: a daemon, or a cluster's members, clients, the network and the disk between
// them, everything that can go wrong while it is allowed to, and calm afterwards, in which
// everybody must come to the end. All of it follows from the seed. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agenda.h"
#include "checks.h"
#include "client.h"
#include "cluster.h"
#include "daemon.h"
#include "disk.h"
#include "network.h"
#include "tests/support/random.h"

namespace syncd::simulation {

// Policies to run under, and what is known of them here.
struct Workload {
  std::string name;
  std::vector<Rule> policies;  // the first of them at first, to any other when an operator wants it
  bool decentralized = false;
  bool compute_first = false;
  bool acknowledges = false;
  bool rounds = false;
  int workers_min = 1;  // that its graph takes
};
const std::vector<Workload>& workloads();

struct Outcome {
  std::map<std::string, std::uint64_t> counts;
  std::uint64_t events = 0;
  Micros virtual_us = 0;
  std::uint64_t fingerprint = 0;  // of everything that was recorded
};

// Throws Violation. The same seed and workload give the same outcome.
// `traced`: what happens is printed.
Outcome run_world(const Workload& workload, std::uint64_t seed, bool traced = false);
// The same with the members of a cluster.
Outcome run_cluster_world(const Workload& workload, std::uint64_t seed, bool traced = false,
                          ClusterMistake mistake = ClusterMistake::kNone);

}  // namespace syncd::simulation
