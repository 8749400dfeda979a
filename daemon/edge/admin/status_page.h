// The /status page: the daemon and its jobs as JSON, for programs and for a glance. Pure; any
// thread.
#pragma once

#include <string>

#include "daemon/edge/admin/snapshot.h"

namespace syncd::admin {

// Times are microseconds, moments since the Unix epoch; clocks are iterations. Where the store
// lies, and why it cannot be written, is for administrators.
std::string status_json(const Snapshot& snapshot, bool for_administrator);

}  // namespace syncd::admin
