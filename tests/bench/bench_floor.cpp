// Floors: what syncd takes beside a bare libuv server that moves frames of the same sizes, and what
// mode fast takes beside a store in memory. All over Unix sockets; the load is one thread.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/daemon.h"
#include "tests/bench/floor_server.h"
#include "tests/bench/measure.h"
#include "tests/bench/table.h"
#include "tests/bench/wire_load.h"

namespace syncd::bench {
namespace {

using test::Daemon;
using test::TempDir;

constexpr const char* kAbout =
    "syncd in ratios to a bare libuv server of the same run, and mode fast to a store in memory.";

struct Options {
  int rounds = 7;        // of each side, interleaved
  double seconds = 0.5;  // that a round measures
  std::vector<std::uint32_t> barriers = {10, 100, 1000};
  std::string directory = "/tmp";
  bool no_pin = false;
};

// Runs this thread, and what it starts, on the processor of the load or on those of servers.
void run_as(const Options& options, Processors processors) {
  if (!options.no_pin) run_on(processors);
}

// A bare libuv server in a process of its own.
class Floor {
 public:
  Floor(const TempDir& directory, FloorOptions options)
      : socket_path_(directory.file("floor.sock")) {
    options.socket_path = socket_path_;
    test::Command command;
    command.argv = {std::filesystem::read_symlink("/proc/self/exe").string()};
    for (std::string& word : floor_arguments(options)) command.argv.push_back(std::move(word));
    command.stdout_path = directory.file("floor.log");
    process_ = test::Process(command);
    test::wait_until("the floor to listen", [&] {
      if (!process_.running()) fail("the floor: " + test::read_file(command.stdout_path));
      return test::exists(socket_path_);
    });
  }
  std::string address() const { return "unix:" + socket_path_; }
  pid_t pid() const { return process_.pid(); }

 private:
  std::string socket_path_;
  test::Process process_;
};

test::DaemonOptions daemon_options(const std::string& store, const std::string& mode) {
  return {.name = "syncd-" + mode + "-" + (store.empty() ? "disk" : store),
          .store = store,
          .mode = mode,
          // One side is silent while the other one is measured.
          .config = "[timeouts]\nheartbeat_timeout = \"10m\"\n",
          .flags = {"--log-level", "warn"}};
}

struct Pair {
  std::vector<double> ours, floor;
};

// Rounds in turn, of which the first warms up.
Pair rounds(const Options& options, const std::function<double()>& ours,
            const std::function<double()>& floor) {
  Pair pair;
  for (int i = -1; i < options.rounds; ++i) {
    double a = 0;
    double b = 0;
    if (i % 2 == 0) a = ours();
    b = floor();
    if (i % 2 != 0) a = ours();
    if (i < 0) continue;
    pair.ours.push_back(a);
    pair.floor.push_back(b);
  }
  return pair;
}

void report(const std::string& what, const Pair& pair, int decimals, Table& table) {
  table.add({what, number(median(pair.ours), decimals), number(median(pair.floor), decimals),
             paired_ratio(pair.ours, pair.floor)});
}

// The server's processor time, in microseconds, for one of what the load counts.
double cpu_us(const Options& options, WireLoad& load, pid_t server) {
  const std::int64_t before_ns = process_cpu_ns(server);
  const auto messages = static_cast<double>(load.run_for(options.seconds));
  return static_cast<double>(process_cpu_ns(server) - before_ns) / 1e3 / messages;
}

// `single_frame`: a pair is compared with one echoed frame, else a message with an echoed frame.
void measure_echo(const Options& options, std::size_t depth, bool single_frame, Table& table) {
  const TempDir directory(options.directory);
  run_as(options, Processors::kOfServers);
  const Floor floor(directory, {});
  const Daemon daemon(directory, daemon_options("memory", "durable"));
  run_as(options, Processors::kOfLoad);
  WireLoad bare(
      {.address = floor.address(), .depth = depth, .is_echo = true, .single_frame = single_frame});
  WireLoad load({.address = daemon.address(), .depth = depth});
  const double messages = single_frame ? 2 : 1;
  const Pair pair = rounds(
      options, [&] { return messages * cpu_us(options, load, daemon.pid()); },
      [&] { return cpu_us(options, bare, floor.pid()); });
  report("processor time us, " + std::string(single_frame ? "a pair" : "a message") +
             " / a frame, " + "64 x " + std::to_string(depth),
         pair, 2, table);
}

double barrier_us(const Options& options, WireLoad& load, WireLoad::Barrier barrier) {
  std::vector<double> took_us;
  const std::int64_t end_ns = now_ns() + static_cast<std::int64_t>(options.seconds * 1e9);
  do {
    took_us.push_back(static_cast<double>(load.barrier_ns(barrier)) / 1e3);
  } while (now_ns() < end_ns);
  return median(took_us);
}

void measure_barrier(const Options& options, std::uint32_t workers, Table& table) {
  const TempDir directory(options.directory);
  run_as(options, Processors::kOfServers);
  const Floor floor(directory, {{}, workers, begin_frame_bytes()});
  const Daemon daemon(directory, daemon_options("memory", "durable"));
  run_as(options, Processors::kOfLoad);
  WireLoad bare({.address = floor.address(),
                 .connections = workers,
                 .depth = 1,
                 .is_echo = true,
                 .single_frame = true});
  WireLoad load({.address = daemon.address(), .connections = workers, .depth = 1, .policy = "bsp"});
  using Barrier = WireLoad::Barrier;
  for (const Barrier barrier : {Barrier::kBurst, Barrier::kRelease}) {
    const Pair pair = rounds(
        options, [&] { return barrier_us(options, load, barrier); },
        [&] { return barrier_us(options, bare, barrier); });
    report("barrier of " + std::to_string(workers) +
               (barrier == Barrier::kBurst ? " us, from the last begin"
                                           : " us, from the last push and begin"),
           pair, 0, table);
  }
}

double pairs_per_s(const Options& options, WireLoad& load, std::vector<double>& medians_us) {
  const std::int64_t start_ns = now_ns();
  const auto messages = static_cast<double>(load.run_for(options.seconds));
  const double seconds = static_cast<double>(now_ns() - start_ns) / 1e9;
  medians_us.push_back(median(load.took_us()));
  return messages / 2 / seconds;
}

void measure_fast(const Options& options, Table& table) {
  const TempDir directory(options.directory);
  // What it costs to wake the thread that writes shows only if that has a processor of its own.
  run_as(options, Processors::kAny);
  const Daemon fast(directory, daemon_options("", "fast"));
  const Daemon memory(directory, daemon_options("memory", "durable"));
  const WireLoadOptions one = {.connections = 1, .depth = 1, .is_timed = true};
  WireLoadOptions to_fast = one;
  to_fast.address = fast.address();
  WireLoadOptions to_memory = one;
  to_memory.address = memory.address();
  WireLoad on_disk(to_fast);
  WireLoad in_memory(to_memory);
  Pair took_us;
  const Pair per_s = rounds(
      options, [&] { return pairs_per_s(options, on_disk, took_us.ours); },
      [&] { return pairs_per_s(options, in_memory, took_us.floor); });
  report("pairs/s of one worker, mode fast / store in memory", per_s, 0, table);
  for (std::vector<double>* side : {&took_us.ours, &took_us.floor})
    side->erase(side->begin());  // warmed up
  report("the same, a pair us, median", took_us, 1, table);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{kAbout};
  app.option_defaults()->always_capture_default();
  app.add_option("--rounds", options.rounds, "rounds of each side, interleaved")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "what one round measures")
      ->check(CLI::Range(0.01, 60.0));
  app.add_option("--barriers", options.barriers, "workers of a barrier")
      ->check(CLI::Range(2, 5'000))
      ->delimiter(',');
  app.add_option("--dir", options.directory, "where the store and sockets lie meanwhile")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--no-pin", options.no_pin,
               "let load and servers run on any processor, instead of the load on the first and "
               "the servers on the others");
  CLI11_PARSE(app, argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::printf("machine: %s; %s on %s\n", machine_line().c_str(), options.directory.c_str(),
              file_system_of(options.directory).c_str());
  std::printf("%d rounds of %g s each, medians\n\n", options.rounds, options.seconds);
  Table table({"what", "syncd", "floor", "syncd / floor"});
  measure_echo(options, 16, false, table);
  measure_echo(options, 1, true, table);
  for (const std::uint32_t workers : options.barriers) measure_barrier(options, workers, table);
  measure_fast(options, table);
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) try {
  syncd::bench::FloorOptions floor;
  if (syncd::bench::parse_floor_arguments(argc, argv, floor)) syncd::bench::run_floor_server(floor);
  return syncd::bench::run(argc, argv);
} catch (const std::exception& error) {
  syncd::bench::fail(error.what());
}
