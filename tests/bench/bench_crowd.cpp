// Very many workers: how long they take to join, and what the daemon's memory is while they wait.
// Over Unix sockets; the load is one thread.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "proto/base/defaults.h"
#include "proto/wire/wire.h"
#include "support/daemon.h"
#include "tests/bench/measure.h"
#include "tests/bench/table.h"
#include "tests/bench/wire_client.h"

namespace syncd::bench {
namespace {

using test::Daemon;
using test::TempDir;

constexpr const char* kAbout =
    "How long very many workers take to join, and what memory the daemon has while they wait.";

struct Case {
  std::uint32_t connections = 0;
  std::uint32_t workers = 0;  // over these connections by turns
  std::uint32_t jobs = 0;     // of workers / jobs each
};

class Crowd {
 public:
  Crowd(const Case& size, const std::string& address) : size_(size) {
    for (std::uint32_t i = 0; i < size.connections; ++i) {
      client_.add(address);
      send(i, wire::Hello{kProtocolMin, kProtocolMax, "bench", "1", ""});
      client_.flush();  // silent connections make room for others
    }
    await<wire::Welcome>([](const wire::Welcome&, std::uint64_t) {});
  }

  // All ask at once.
  void join() {
    refs_.resize(size_.workers);
    const std::uint32_t per_job = size_.workers / size_.jobs;
    for (std::uint32_t i = 0; i < size_.workers; ++i) {
      wire::Join join;
      join.job = "crowd-" + std::to_string(i / per_job);
      join.policy = "bsp";
      join.name = "worker-" + std::to_string(i % per_job);
      join.host = "bench";
      join.rank = static_cast<std::int32_t>(i % per_job);
      join.world_size = per_job;
      send(i, std::move(join));
    }
    await<wire::Joined>(
        [&](const wire::Joined& joined, std::uint64_t id) { refs_[id - 1] = joined.worker; });
  }

  // All but the first of each job, for which the others wait.
  void wait_in_begin() {
    for (std::uint32_t i = 0; i < size_.workers; ++i) {
      if (i % (size_.workers / size_.jobs) != 0) {
        client_.send(i % size_.connections, {size_.workers + i + 1, wire::Begin{refs_[i], 0}});
      }
    }
    // Once the daemon has answered these, it has read all that came before.
    for (std::uint32_t i = 0; i < size_.connections; ++i) send(i, wire::Heartbeat{});
    await<wire::HeartbeatAck>([](const wire::HeartbeatAck&, std::uint64_t) {});
  }

 private:
  void send(std::uint32_t index, wire::Body body) {
    client_.send(index % size_.connections, {index + 1, std::move(body)});
    ++unanswered_;
  }
  template <class Answer, class F>
  void await(F on_answer) {
    while (unanswered_ > 0) {
      client_.poll([&](std::size_t, std::span<const std::uint8_t> payload) {
        std::string error;
        if (!wire::decode(payload, message_, error)) fail("no message: " + error);
        if (const auto* refused = std::get_if<wire::Error>(&message_.body)) fail(refused->message);
        const auto* answer = std::get_if<Answer>(&message_.body);
        if (answer == nullptr) fail("unexpected " + std::string(wire::body_name(message_.body)));
        on_answer(*answer, message_.id);
        --unanswered_;
      });
    }
  }

  Case size_;
  WireClient client_;
  wire::Message message_;
  std::vector<wire::WorkerRef> refs_;
  std::uint64_t unanswered_ = 0;
};

void measure(const Case& size, const std::string& store, Table& table) {
  const TempDir directory("/tmp");
  const Daemon daemon(
      directory,
      {.store = store,
       .config = "[timeouts]\nheartbeat_timeout = \"10m\"\n[limits]\nconnections_max = 16000\n",
       .flags = {"--log-level", "warn"}});
  const double idle_mb = resident_mb(daemon.pid());
  const std::int64_t start_ns = now_ns();
  Crowd crowd(size, daemon.address());
  const std::int64_t connected_ns = now_ns();
  const std::int64_t cpu_ns = process_cpu_ns(daemon.pid());
  crowd.join();
  const std::int64_t joined_ns = now_ns();
  const std::int64_t joined_cpu_ns = process_cpu_ns(daemon.pid());
  crowd.wait_in_begin();
  table.add({std::to_string(size.workers) + " over " + std::to_string(size.connections) + " in " +
                 std::to_string(size.jobs) + " jobs, " + (store.empty() ? "disk" : store),
             number(static_cast<double>(connected_ns - start_ns) / 1e9, 2),
             number(static_cast<double>(joined_ns - connected_ns) / 1e9, 2),
             number(static_cast<double>(joined_cpu_ns - cpu_ns) / 1e3 / size.workers, 1),
             number(idle_mb, 0), number(resident_mb(daemon.pid()), 0)});
}

int run(int argc, char** argv) {
  bool is_short = false;
  CLI::App app{kAbout};
  app.add_flag("--short", is_short, "a hundredth of the workers");
  CLI11_PARSE(app, argc, argv);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::printf("machine: %s\n\n", machine_line().c_str());
  Table table({"workers over connections", "connect s", "join s", "daemon's us a join", "idle MB",
               "waiting MB"});
  const std::uint32_t share = is_short ? 100 : 1;
  for (const std::string store : {"memory", ""}) {
    measure({9'500 / share, 9'500 / share, 1}, store, table);
    measure({1'000 / share, 100'000 / share, 10}, store, table);
  }
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
