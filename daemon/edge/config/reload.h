// What of a new configuration a running daemon takes on, and whether the files that settings name
// have changed. Any thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "daemon/edge/config/config.h"

namespace syncd::config {

struct Reload {
  Config next;                // what was in force, with all of the new one that can change
  std::string changed;        // "log.level: \"info\" -> \"warn\", ..."
  std::string needs_restart;  // the keys of what was wanted and cannot change
};

// False, with a sentence in `error`: applied by half, it would admit clients that the whole keeps
// out.
bool plan_reload(const Config& in_force, const Config& wanted, Reload& reload, std::string& error);

// By the key of the setting that names a file ("tls.key"), a hash of what is in it. Those that
// cannot be read have none.
using FileHashes = std::map<std::string, std::size_t>;
FileHashes hash_named_files(const Config& config);

// The keys whose files differ, in alphabetical order: "auth.token_file, tls.key"; empty: none.
std::string differing_files(const FileHashes& before, const FileHashes& now);

// For the log. `files`: the settings whose files have changed.
std::vector<LogLine> reloaded_lines(const Reload& reload, const std::string& files);
std::vector<LogLine> refused_lines(const std::vector<std::string>& errors);

}  // namespace syncd::config
