// A barrier of N workers: syncd under bsp beside a bare libuv barrier. Prints how long the release
// takes after the last worker has come, how many barriers a second go through, and what one costs
// the server. The load is one thread.
#include <cstdio>

#include "tests/bench/client.h"
#include "tests/bench/iteration_load.h"
#include "tests/bench/measure.h"
#include "tests/bench/options.h"
#include "tests/bench/servers.h"
#include "tests/bench/table.h"
#include "tests/bench/workers.h"

namespace syncd::bench {
namespace {

constexpr const char* kAbout =
    "Barriers through syncd (policy bsp), in ratios to a bare libuv barrier of the same frames.";

struct Side {
  double workers = 0;
  Child server;
  Client client;
  std::unique_ptr<IterationLoad> load;
  bool releases = true;  // whether release_us() makes sense
  std::vector<double> release_us, release_p99_us, barriers_per_s, cpu_us;

  // Half of the time for releases, half for cycles.
  void round(double seconds, bool counts) {
    std::vector<double> releases_us;
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds / 2 * 1e9);
    while (releases && now_ns() < end) releases_us.push_back(load->release_us());
    const IterationRound cycle = load->run(server.pid(), seconds / 2);
    if (!counts) return;
    release_us.push_back(percentile(releases_us, 0.5));
    release_p99_us.push_back(percentile(releases_us, 0.99));
    barriers_per_s.push_back(cycle.iterations_per_s / workers);
    cpu_us.push_back(cycle.cpu_us_per_iteration);
  }
};

std::vector<std::string> row(const std::string& name, const Side& side) {
  return {name, side.releases ? number(median(side.release_us)) : "-",
          side.releases ? number(median(side.release_p99_us)) : "-",
          number(median(side.barriers_per_s), 0), number(median(side.cpu_us), 2)};
}

std::vector<std::string> ratio_row(const std::string& name, const Side& syncd, const Side& floor) {
  return {name, paired_ratio(syncd.release_us, floor.release_us),
          paired_ratio(syncd.release_p99_us, floor.release_p99_us),
          paired_ratio(syncd.barriers_per_s, floor.barriers_per_s),
          paired_ratio(syncd.cpu_us, floor.cpu_us)};
}

struct Case {
  std::string transport;
  std::size_t workers;
  std::size_t connections;
};

void start_floor_side(Side& side, const Case& c, const std::string& directory,
                      const std::string& name, IterationLoad::Requests requests) {
  const Endpoint endpoint = fresh_endpoint(c.transport, directory, name);
  const auto begin_bytes =
      static_cast<std::uint32_t>(frame_bytes(begin_message(Worker{}, 0, kFloorIteration)));
  side.server = start_floor({endpoint, static_cast<std::uint32_t>(c.workers), begin_bytes},
                            directory, Placement::kApart);
  side.load = std::make_unique<IterationLoad>(
      side.client, connect_to_floor(side.client, endpoint, c.workers, c.connections), requests,
      IterationLoad::Ending::kTogether);
  side.workers = static_cast<double>(c.workers);
  side.releases = requests == IterationLoad::Requests::kPushAndBegin;
  side.load->start();
}

void measure(const Options& options, const Case& c, Table& table) {
  const TempDir directory(options.directory);
  Side plain;
  start_floor_side(plain, c, directory.path(), "plain", IterationLoad::Requests::kBeginAlone);
  Side alike;
  start_floor_side(alike, c, directory.path(), "alike", IterationLoad::Requests::kPushAndBegin);

  Side syncd;
  const Endpoint real = fresh_endpoint(c.transport, directory.path(), "syncd");
  syncd.server = start_syncd(options, {real, options.store, directory.path() + "/store"},
                             directory.path(), Placement::kApart);
  syncd.load = std::make_unique<IterationLoad>(
      syncd.client,
      connect_to_syncd(syncd.client, real, "barrier", "bsp", c.workers, c.connections),
      IterationLoad::Requests::kPushAndBegin, IterationLoad::Ending::kTogether);
  syncd.workers = static_cast<double>(c.workers);
  syncd.load->start();

  Side* order[] = {&plain, &alike, &syncd};
  for (int i = -1; i < options.rounds; ++i) {  // the first warms up
    for (Side* side : order) side->round(options.seconds, i >= 0);
    std::swap(order[0], order[2]);
  }
  const std::string label =
      c.transport + ", " + std::to_string(c.workers) + "/" + std::to_string(c.connections) + ": ";
  table.add(row(label + "libuv, one frame each", plain));
  table.add(row(label + "libuv, same frames", alike));
  table.add(row(label + "syncd", syncd));
  table.add(ratio_row("  syncd / libuv, one frame each", syncd, plain));
  table.add(ratio_row("  syncd / libuv, same frames", syncd, alike));
}

int run(int argc, char** argv) {
  Options defaults;
  defaults.sizes = {10, 100, 1000};
  defaults.per_connection = {1, 50};  // 50: a node agent's
  const Options options = parse_options(argc, argv, kAbout, "workers", defaults);
  pin_this_thread();
  std::printf("machine: %s\n", machine_line().c_str());
  std::printf("begin: %zu bytes, push: %zu bytes; store: %s; %d rounds of %g s each, medians%s\n\n",
              frame_bytes(begin_message(Worker{}, 0, 1000)),
              frame_bytes(push_message(Worker{}, 0, 1000)), options.store.c_str(), options.rounds,
              options.seconds, options.pin ? "; load and server on processors apart" : "");
  Table table(
      {"transport, workers/connections", "release p50 us", "p99", "barriers/s", "CPU us/worker"});
  for (const std::string& transport : options.transports) {
    for (const int size : options.sizes) {
      for (const int shared : options.per_connection) {
        if (shared > 1 && size < 2 * shared) continue;
        measure(
            options,
            {transport, static_cast<std::size_t>(size), static_cast<std::size_t>(size / shared)},
            table);
      }
    }
  }
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  syncd::bench::FloorOptions floor;
  if (syncd::bench::parse_floor_command(argc, argv, floor)) syncd::bench::run_floor_server(floor);
  return syncd::bench::run(argc, argv);
}
