// Starting the floors and the daemon. One thread.
#include "tests/bench/servers.h"

#include <fstream>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

// A line of TOML for each setting, so that nothing depends on the environment or on the user's
// files.
std::string write_config(const SyncdOptions& syncd, const std::string& directory) {
  const std::string path = directory + "/syncd.toml";
  std::ofstream out(path);
  out << "[listen]\n";
  out << "tcp = \""
      << (syncd.endpoint.unix_path.empty() ? "127.0.0.1:" + std::to_string(syncd.endpoint.port)
                                           : std::string{})
      << "\"\n";
  out << "unix = \"" << syncd.endpoint.unix_path << "\"\n";
  out << "[store]\n";
  if (syncd.store == "memory") {
    out << "path = \"memory\"\n";
  } else {
    out << "path = \"" << syncd.store_path << "\"\nmode = \"" << syncd.store << "\"\n";
  }
  // One side's connections are silent while the other side is measured.
  out << "[timeouts]\nheartbeat_interval = \"60s\"\nheartbeat_timeout = \"600s\"\n";
  if (!out.flush()) fail(path + ": cannot be written");
  return path;
}

}  // namespace

Endpoint fresh_endpoint(const std::string& transport, const std::string& directory,
                        const std::string& name) {
  Endpoint endpoint;
  if (transport == "unix") {
    endpoint.unix_path = directory + "/" + name + ".sock";
  } else {
    endpoint.port = free_tcp_port();
  }
  return endpoint;
}

Child start_floor(const FloorOptions& options, const std::string& directory, Placement placement) {
  std::vector<std::string> command = {own_executable()};
  for (std::string& word : floor_command(options)) command.push_back(std::move(word));
  return Child(command, directory + "/floor.log", placement);
}

Child start_syncd(const Options& options, const SyncdOptions& syncd, const std::string& directory,
                  Placement placement) {
  const std::string config = write_config(syncd, directory);
  return Child({options.syncd, "--config", config}, directory + "/syncd.log", placement);
}

}  // namespace syncd::bench
