// The job that a simulation's options make. Pure functions.
#pragma once

#include <cstdint>

#include "daemon/core/engine/job_spec.h"
#include "daemon/tools/sim/simulation.h"

namespace syncd::sim {

inline constexpr const char* kJobName = "simulated";

JobSpec job_spec(const Options& options);

// The number of the host that a worker is on.
std::uint64_t host_of(Rank rank, const Options& options);

}  // namespace syncd::sim
