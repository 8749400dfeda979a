// From a checked configuration to what a server is made of. Pure but for the store's directory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/edge/config/config.h"
#include "daemon/edge/server/server.h"
#include "daemon/edge/store/store.h"

namespace syncd::server {

store::Options store_options(const config::Config& config);
// Of a default path, whose parents nobody may have made yet.
bool make_store_parents(const config::Config& config, std::string& error);

// Opens the store, and makes the parents of a default path that nobody has made yet. Null, with a
// sentence that names the path and the cause in `error`, if that fails. Blocks on the disk.
std::unique_ptr<store::Store> open_store(const config::Config& config, std::string& error);

// The same; on demand, it first puts what is whole of a damaged store in its place. The log says
// what was dropped, and that a store in memory keeps nothing. Calls `progress` again and again
// meanwhile.
std::unique_ptr<store::Store> prepare_store(const config::Config& config, bool salvage,
                                            const Server::LogSink& log,
                                            const std::function<void()>& progress,
                                            std::string& error);

// What whoever started the daemon listens on for it, for the configuration and for the server.
// False, with a sentence in `error`, if it cannot be used.
bool take_sockets(config::InheritedSockets& found, std::vector<net::ListenSocket>& sockets,
                  std::string& error);
// Says so in the log.
LogLine inherited_line(const config::InheritedSockets& found, std::size_t sockets);

ServerOptions server_options(const config::Config& config, std::string version);

}  // namespace syncd::server
