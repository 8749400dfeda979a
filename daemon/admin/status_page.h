// The /status page: the daemon and its jobs as JSON, for programs and for a glance. Pure; any
// thread.
#pragma once

#include <string>

#include "daemon/admin/snapshot.h"

namespace syncd::admin {

// Times are microseconds, moments since the Unix epoch; clocks are iterations.
std::string status_json(const Snapshot& snapshot);

}  // namespace syncd::admin
