// The two servers under comparison, each in a process of its own. One thread.
#pragma once

#include <string>

#include "tests/bench/endpoint.h"
#include "tests/bench/floor_server.h"
#include "tests/bench/options.h"
#include "tests/bench/process.h"

namespace syncd::bench {

// An endpoint of this transport ("unix", "tcp") that nobody listens on; a socket goes into
// `directory`.
Endpoint fresh_endpoint(const std::string& transport, const std::string& directory,
                        const std::string& name);

// A floor server that listens.
Child start_floor(const FloorOptions& options, const std::string& directory, Placement placement);

// A daemon that listens, with nothing configured but where, what its store is, and patience with
// silent connections.
struct SyncdOptions {
  Endpoint endpoint;
  std::string store = "memory";  // Options::store
  std::string store_path = {};   // unless "memory"
  std::string config = {};       // further text of its configuration file
};
Child start_syncd(const Options& options, const SyncdOptions& syncd, const std::string& directory,
                  Placement placement);

}  // namespace syncd::bench
