// A job's history, page by page, from a running daemon or from a store directory while the daemon
// is down. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "daemon/core/engine/record.h"
#include "daemon/tools/ctl/daemon_link.h"

namespace syncd::ctl {

struct HistoryPage {
  std::vector<Record> records;
  Sequence next = 0;    // where the next page begins; 0: the end
  Sequence first = {};  // of what is there of the job; 0: not said
};

// Records from a sequence on, at most records_max and perhaps fewer. False: `error` says why.
using ReadHistory = std::function<bool(Sequence from, std::uint32_t records_max, HistoryPage& page,
                                       std::string& error)>;

// Of a job by its name, or "#id".
ReadHistory history_of(DaemonLink& link, const std::string& job);

// The same in a store. `job_id` is 0 if it has no such job. Null, with the reason in `error`: there
// is no store, it is damaged, or of a newer version.
ReadHistory history_in(const std::string& store_path, const std::string& job, JobId& job_id,
                       std::string& error);

}  // namespace syncd::ctl
