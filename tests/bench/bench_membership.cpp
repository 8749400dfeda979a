// Membership at size: how long the last of very many workers waits for a barrier's release once the
// last has come to it, and until all survivors know of a worker whose socket was closed. Beside a
// bare libuv barrier of as many frames. Over Unix sockets; the load is one thread.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto/base/defaults.h"
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
    "How long a barrier of very many workers takes from the last arrival to the last release, and "
    "how "
    "long it takes from a closed socket until all survivors are told.";

struct Options {
  std::uint32_t connections = 1'000;
  std::uint32_t depth = 16;  // workers of a connection, of the barrier
  int rounds = 30;
  int grace_ms = 1'000;
};

// A bare libuv barrier in a process of its own.
class Floor {
 public:
  Floor(const TempDir& directory, std::uint32_t workers)
      : socket_path_(directory.file("floor.sock")) {
    test::Command command;
    command.argv = {std::filesystem::read_symlink("/proc/self/exe").string()};
    for (std::string& word : floor_arguments({socket_path_, workers, begin_frame_bytes()})) {
      command.argv.push_back(std::move(word));
    }
    command.stdout_path = directory.file("floor.log");
    process_ = test::Process(command);
    test::wait_until("the floor to listen", [&] {
      if (!process_.running()) fail("the floor: " + test::read_file(command.stdout_path));
      return test::exists(socket_path_);
    });
  }
  std::string address() const { return "unix:" + socket_path_; }

 private:
  std::string socket_path_;
  test::Process process_;
};

test::DaemonOptions daemon_options(const Options& options) {
  return {.store = "memory",
          .config = "[timeouts]\nheartbeat_timeout = \"10m\"\nworker_grace = \"" +
                    std::to_string(options.grace_ms) + "ms\"\n[limits]\nworkers_per_job_max = " +
                    std::to_string(options.connections * options.depth) + "\n",
          .flags = {"--log-level", "error"}};
}

double ms(std::int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

void report(const std::string& what, std::vector<double> took_ms, std::vector<double> floor_ms,
            Table& table) {
  const double floor = percentile(floor_ms, 0.99);
  const double p99 = percentile(took_ms, 0.99);
  table.add({what, number(percentile(took_ms, 0.5), 2), number(p99, 2), number(floor, 2),
             number(p99 / floor, 1)});
}

// Returns the floor's times for as many connections with one worker each.
void measure_barrier(const Options& options, Table& table) {
  const TempDir directory("/tmp");
  const std::uint32_t workers = options.connections * options.depth;
  const Floor floor(directory, workers);
  const Daemon daemon(directory, daemon_options(options));
  WireLoadOptions load_options = {.address = daemon.address(),
                                  .connections = options.connections,
                                  .depth = options.depth,
                                  .policy = "bsp"};
  WireLoad load(load_options);
  load_options.address = floor.address();
  load_options.is_echo = load_options.single_frame = true;
  WireLoad bare(load_options);
  std::vector<double> took, bare_took;
  for (int i = -1; i < options.rounds; ++i) {
    const double ours = ms(load.barrier_ns(WireLoad::Barrier::kRelease));
    const double floors = ms(bare.barrier_ns(WireLoad::Barrier::kRelease));
    if (i < 0) continue;  // it warms up
    took.push_back(ours);
    bare_took.push_back(floors);
  }
  report("bsp barrier of " + std::to_string(workers) + " workers over " +
             std::to_string(options.connections) + " connections",
         took, bare_took, table);
}

// One worker for each connection, all of one bsp job; all want to know of changes of membership.
class Group {
 public:
  Group(std::uint32_t workers, const std::string& address) : refs_(workers) {
    for (std::uint32_t i = 0; i < workers; ++i) {
      client_.add(address);
      send(i, wire::Hello{kProtocolMin, kProtocolMax, "bench", "1", ""});
      client_.flush();
    }
    await<wire::Welcome>(workers, [](std::size_t, const wire::Welcome&) {});
    for (std::uint32_t i = 0; i < workers; ++i) {
      wire::Join join;
      join.job = "group";
      join.policy = "bsp";
      join.name = "worker-" + std::to_string(i);
      join.host = "bench";
      join.rank = static_cast<std::int32_t>(i);
      join.world_size = workers;
      join.notices = wire::kNoticeMembers;
      send(i, std::move(join));
    }
    await<wire::Joined>(
        workers, [&](std::size_t i, const wire::Joined& joined) { refs_[i] = joined.worker; });
    for (std::uint32_t i = 0; i < workers; ++i) send(i, wire::Begin{refs_[i], 0});
    await<wire::Granted>(workers, [](std::size_t, const wire::Granted&) {});
  }

  // The last worker's socket is closed while all others wait for it. Adds how long it took until
  // each of them knew that it was cut off, and until each was released, beyond the grace.
  void lose_one(int grace_ms, std::vector<double>& told_ms, std::vector<double>& released_ms) {
    const std::size_t survivors = refs_.size() - 1;
    for (std::size_t i = 0; i < survivors; ++i) send(i, wire::Push{refs_[i], iteration_, {}, 0, 0});
    await<wire::Pushed>(survivors, [](std::size_t, const wire::Pushed&) {});
    ++iteration_;
    // Who has asked who is there is told of the next change.
    for (std::size_t i = 0; i < survivors; ++i) {
      send(i, wire::MembersRequest{refs_[i], 0});
      send(i, wire::Begin{refs_[i], iteration_});
    }
    await<wire::MembersReply>(survivors, [](std::size_t, const wire::MembersReply&) {});
    client_.drop(survivors);
    refs_.pop_back();
    const std::int64_t start_ns = now_ns();
    await<wire::MembersNotice>(survivors, [&](std::size_t, const wire::MembersNotice&) {
      told_ms.push_back(ms(now_ns() - start_ns));
    });
    await<wire::Granted>(survivors, [&](std::size_t, const wire::Granted&) {
      released_ms.push_back(ms(now_ns() - start_ns) - grace_ms);
    });
  }
  std::size_t workers() const { return refs_.size(); }

 private:
  void send(std::size_t connection, wire::Body body) {
    client_.send(connection, {++request_, std::move(body)});
  }
  // So many answers or notices of this type; others that come meanwhile are skipped.
  template <class Body, class F>
  void await(std::size_t count, F on_body) {
    while (count > 0) {
      client_.poll([&](std::size_t connection, std::span<const std::uint8_t> payload) {
        std::string error;
        if (!wire::decode(payload, message_, error)) fail("no message: " + error);
        if (const auto* refused = std::get_if<wire::Error>(&message_.body)) fail(refused->message);
        const auto* body = std::get_if<Body>(&message_.body);
        if (body == nullptr) return;
        on_body(connection, *body);
        --count;
      });
    }
  }

  WireClient client_;
  wire::Message message_;
  std::vector<wire::WorkerRef> refs_;
  std::int64_t iteration_ = 0;
  std::uint64_t request_ = 0;
};

void measure_loss(const Options& options, Table& table) {
  const TempDir directory("/tmp");
  const Floor floor(directory, options.connections);
  const Daemon daemon(directory, daemon_options(options));
  WireLoad bare({.address = floor.address(),
                 .connections = options.connections,
                 .depth = 1,
                 .is_echo = true,
                 .single_frame = true});
  Group group(options.connections, daemon.address());
  std::vector<double> told, released, bare_took;
  const int losses = std::min<int>(options.rounds, static_cast<int>(options.connections) - 2);
  for (int i = 0; i < losses; ++i) {
    bare_took.push_back(ms(bare.barrier_ns(WireLoad::Barrier::kRelease)));
    group.lose_one(options.grace_ms, told, released);
  }
  const std::string of = " of " + std::to_string(options.connections);
  report("closed socket, until each survivor" + of + " is told", told, bare_took, table);
  report("the same, until it is released, beyond worker_grace", released, bare_took, table);
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app{kAbout};
  app.option_defaults()->always_capture_default();
  app.add_option("--connections", options.connections)->check(CLI::Range(3, 16'000));
  app.add_option("--depth", options.depth, "workers of a connection, of the barrier")
      ->check(CLI::Range(1, 64));
  app.add_option("--rounds", options.rounds, "barriers, and closed sockets")
      ->check(CLI::Range(1, 1000));
  app.add_option("--grace-ms", options.grace_ms, "worker_grace")->check(CLI::Range(100, 60'000));
  CLI11_PARSE(app, argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::printf("machine: %s\n\n", machine_line().c_str());
  Table table({"milliseconds", "p50", "p99", "libuv's p99", "p99 / libuv's"});
  measure_barrier(options, table);
  measure_loss(options, table);
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
