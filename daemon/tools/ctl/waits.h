// The commands about waiting: who made others wait (stragglers), and why one worker waits
// (explain). One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::ctl {

// Whether "4, 23, 40-47" (compress_ranks()) names a rank. Ranks behind its "and N more" are not
// known, and count as not named.
bool names_rank(const std::string& ranks, std::uint32_t rank);

// The worker of a rank, or else of a name; null: none.
const wire::WorkerStatus* find_worker(const std::vector<wire::WorkerStatus>& workers,
                                      const std::string& wanted);

// What `explain` says of `worker` to people, with the job's policy (empty: not known). Pure.
std::string explain_text(const std::vector<wire::WorkerStatus>& workers,
                         const wire::WorkerStatus& worker, const std::string& policy,
                         std::int64_t now_us);

// What `explain` says of a job: who is at fault while workers wait for too long. Pure.
std::string explain_job_text(const wire::JobStatus& job);

// What of --since is the earliest time that counts: so long before `now_us`. False: it is no
// duration.
bool since_time(const std::string& since, std::int64_t now_us, std::int64_t& since_us);

}  // namespace syncd::ctl
