// What the engine is told once and for all its jobs. Plain data.
#pragma once

#include <cstdint>

#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/limits.h"

namespace syncd {

struct EngineOptions {
  bool auto_create = true;  // a join may create a job that does not exist
  bool durable = true;      // told to joiners
  JobSpec defaults;         // for jobs made by a join or a request: thresholds, policy
  // Of a job that sets none: as long as a client may need to notice, and to come back.
  Micros exit_grace_us = 3'500'000;
  std::uint64_t snapshot_every_records = 100'000;
  std::uint32_t workers_per_job_max = limits::kWorkersPerJobMax;  // members at once
  std::uint32_t graph_edges_max = limits::kGraphEdgesDefault;     // of a job that is made or grows
  // At least so long a worker's place is kept that was there before a restart and has not come back
  // yet, however short its job's worker_grace. In a cluster: workers look for the new leader then.
  Micros restart_grace_us = 0;
  // Of a cluster's shards, each gives ids that no other one gives.
  JobId first_job = 1;
  JobId job_step = 1;
  // The store has a log that stays until snapshots cover it, of jobs that are forgotten, too.
  bool keeps_log = false;
  std::uint32_t workers_max = limits::kWorkersPerJobMax;  // of all jobs, with those that are gone
};

}  // namespace syncd
