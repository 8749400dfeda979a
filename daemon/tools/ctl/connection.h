// How a tool's command line says which daemon is meant. One thread.
#pragma once

#include <string>
#include <vector>

#include "daemon/tools/ctl/commands.h"
#include "daemon/tools/ctl/daemon_link.h"

namespace CLI {
class App;
}

namespace syncd::ctl {

// Whom to ask, and as whom: what the options say, and where they say nothing, the variables of the
// client library. False: `error` says what is wrong with them.
bool how_to_ask(const Options& options, Address& address, std::string& error);

// The options of the command line that how_to_ask() reads, and --timeout-ms and --json.
void add_connection_options(CLI::App& app, Options& options);

}  // namespace syncd::ctl
