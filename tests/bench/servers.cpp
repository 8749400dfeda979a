// Starting the floors and the daemon. One thread.
#include "tests/bench/servers.h"

#include <unistd.h>

#include <fstream>

#include "tests/bench/client.h"
#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

// What no flag says: one side's connections are silent while the other side is measured.
std::string write_config(const std::string& directory, const std::string& more) {
  const std::string path = directory + "/syncd.toml";
  std::ofstream out(path);
  out << "[timeouts]\nheartbeat_timeout = \"10m\"\n" << more;
  if (!out.flush()) fail(path + ": cannot be written");
  return path;
}

Child listening(Child server, const Endpoint& endpoint) {
  const std::int64_t deadline = now_ns() + std::chrono::nanoseconds(kPatience).count();
  int fd = connect_to(endpoint);
  while (fd < 0) {
    server.check_alive();
    if (now_ns() > deadline) fail("a server does not listen on " + endpoint.text());
    usleep(2'000);
    fd = connect_to(endpoint);
  }
  close(fd);
  return server;
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
  return listening(Child(command, directory + "/floor.log", placement), options.endpoint);
}

Child start_syncd(const Options& options, const SyncdOptions& syncd, const std::string& directory,
                  Placement placement) {
  const bool over_tcp = syncd.endpoint.unix_path.empty();
  const bool in_memory = syncd.store == "memory";
  std::vector<std::string> command = {
      options.syncd,
      "--config",
      write_config(directory, syncd.config),
      "--tcp",
      over_tcp ? "127.0.0.1:" + std::to_string(syncd.endpoint.port) : "off",
      "--unix",
      over_tcp ? "off" : syncd.endpoint.unix_path,
      "--store",
      in_memory ? "memory" : syncd.store_path,
      "--log-level",
      "warn"};
  if (!in_memory) command.insert(command.end(), {"--mode", syncd.store});
  return listening(Child(command, directory + "/syncd.log", placement), syncd.endpoint);
}

}  // namespace syncd::bench
