// What memory the daemon has after very many pushes to a store in memory, which is bounded.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "support/daemon.h"
#include "tests/bench/measure.h"
#include "tests/bench/table.h"
#include "tests/bench/wire_load.h"

namespace syncd::bench {
namespace {

constexpr const char* kAbout =
    "The daemon's resident memory after pushes to one job, and to 10,000, with the store in "
    "memory.";

void measure(const WireLoadOptions& size, std::uint64_t pushes, Table& table) {
  const test::TempDir directory("/tmp");
  const test::Daemon daemon(directory, {.store = "memory",
                                        .config = "[timeouts]\nheartbeat_timeout = \"10m\"\n",
                                        .flags = {"--log-level", "warn"}});
  WireLoadOptions options = size;
  options.address = daemon.address();
  WireLoad load(options);
  const double joined_mb = resident_mb(daemon.pid());
  const std::uint64_t messages = load.run(2 * pushes);  // each with a begin
  table.add({std::to_string(size.jobs), std::to_string(size.connections * size.depth),
             std::to_string(messages / 2), number(joined_mb, 0),
             number(resident_mb(daemon.pid()), 0)});
}

int run(int argc, char** argv) {
  std::uint64_t pushes = 10'000'000;
  CLI::App app{kAbout};
  app.add_option("--pushes", pushes, "how many, at least")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::printf("machine: %s\n\n", machine_line().c_str());
  Table table({"jobs", "workers", "pushes", "joined MB", "after MB"});
  measure({.connections = 64, .depth = 16}, pushes, table);
  measure({.connections = 50, .depth = 200, .jobs = 10'000}, pushes, table);
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) try {
  return syncd::bench::run(argc, argv);
} catch (const std::exception& error) {
  syncd::bench::fail(error.what());
}
