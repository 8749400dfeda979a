// What is in the files that settings name, told from what was in them before.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "daemon/edge/config/config.h"

namespace syncd::config {

// By the key of the setting that names a file ("tls.key"), a hash of what is in it. Those that
// cannot be read have none.
using FileHashes = std::map<std::string, std::size_t>;
FileHashes hash_named_files(const Config& config);

// The keys whose files differ, in alphabetical order: "auth.token_file, tls.key"; empty: none.
std::string differing_files(const FileHashes& before, const FileHashes& now);

}  // namespace syncd::config
