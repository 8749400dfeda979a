// What of a new configuration a running daemon takes on. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "daemon/edge/config/config.h"

namespace syncd::config {

struct Reload {
  Config next;                // what was in force, with all of the new one that can change
  std::string changed;        // "log.level: \"info\" -> \"warn\", ..."
  std::string needs_restart;  // the keys of what was wanted and cannot change
};

// False, with a sentence in `error`: half of it would leave the daemon open to somebody whom the
// whole keeps out.
bool plan_reload(const Config& in_force, const Config& wanted, Reload& reload, std::string& error);

// For the log. `files`: the settings whose files have changed.
std::vector<LogLine> reloaded_lines(const Reload& reload, const std::string& files);
std::vector<LogLine> refused_lines(const std::vector<std::string>& errors);

}  // namespace syncd::config
