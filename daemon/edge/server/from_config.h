// From a checked configuration to what a server is made of. Pure but for the store's directory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "daemon/edge/config/config.h"
#include "daemon/edge/server/server.h"
#include "daemon/edge/store/store.h"

namespace syncd::server {

// Opens the store, and makes the parents of a default path that nobody has made yet. Null, with a
// sentence that names the path and the cause in `error`, if that fails. Blocks on the disk.
std::unique_ptr<store::Store> open_store(const config::Config& config, std::string& error);

// Before open_store(), on demand: puts what is whole of a damaged store in its place, and says in
// the log what was dropped; calls `progress` again and again meanwhile. False, with a sentence in
// `error`: it cannot. Blocks on the disk.
bool salvage_store(const config::Config& config, const Server::LogSink& log,
                   const std::function<void()>& progress, std::string& error);

ServerOptions server_options(const config::Config& config, std::string version);

}  // namespace syncd::server
