// A job's history, page by page, from a running daemon or from a store directory while the daemon
// is down. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/core/engine/record.h"
#include "daemon/tools/ctl/daemon_link.h"

namespace syncd::ctl {

class HistorySource {
 public:
  virtual ~HistorySource() = default;
  // False: it is certain that there is no such job. A daemon is not asked beforehand.
  virtual bool may_have(const std::string& job) const = 0;
  // Records of `job` (a name, or "#id") from a sequence on, at most records_max and perhaps fewer;
  // `next` is where to go on, 0 at the end. False: `error` says why.
  virtual bool read(const std::string& job, Sequence from, std::uint32_t records_max,
                    std::vector<Record>& records, Sequence& next, std::string& error) = 0;
};

std::unique_ptr<HistorySource> history_of(DaemonLink& link);

// Null, with the reason in `error`: there is no store, it is damaged, or of a newer version.
std::unique_ptr<HistorySource> history_in(const std::string& store_path, std::string& error);

}  // namespace syncd::ctl
