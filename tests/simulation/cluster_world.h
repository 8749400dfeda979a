// A cluster whose records are clients' pushes, without an engine, in a world in which everything
// goes wrong. A run follows from its seed. One thread.
#pragma once

#include <cstdint>

#include "cluster.h"

namespace syncd::simulation {

// Throws a Violation.
ClusterFigures run_cluster(std::uint64_t seed, ClusterMistake mistake = ClusterMistake::kNone);

}  // namespace syncd::simulation
