// What the C interface adds: syncd_should_resync() beside a bare atomic load, and begin and push
// through it beside the same frames over a bare socket. The daemon is embedded, on a thread of its
// own, with its store in memory. Google Benchmark's figures, and below them ratios of the same run.
#include <benchmark/benchmark.h>
#include <syncd/client.h>
#include <syncd/server.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

#include "support/c_api.h"
#include "support/files.h"
#include "support/raw_client.h"
#include "tests/bench/ratio_reporter.h"

namespace syncd::bench {
namespace {

using test::ApiClient;
using test::ApiWorker;

class Daemon {
 public:
  Daemon() {
    syncd_server_options options = SYNCD_SERVER_OPTIONS_INIT;
    const std::string socket = directory_.file("socket");
    options.tcp = "off";
    options.unix_path = socket.c_str();
    options.store = "memory";
    syncd_error* error = nullptr;
    if (syncd_server_start(&options, &server_, &error) != SYNCD_OK) {
      throw std::runtime_error(syncd_error_message(error));
    }
  }
  ~Daemon() { syncd_server_stop(server_, SYNCD_TIMEOUT_DEFAULT, nullptr); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;
  std::string address() const { return syncd_server_address(server_, 0); }

 private:
  test::TempDir directory_;
  syncd_server* server_ = nullptr;
};

void should_resync(benchmark::State& state, const Daemon& daemon) {
  ApiClient client(daemon.address());
  ApiWorker worker = client.join({.job = "resync", .policy = "asp"});
  for (auto _ : state) benchmark::DoNotOptimize(syncd_should_resync(worker.get()));
}

void bare_load(benchmark::State& state) {
  std::atomic<std::uint32_t> flag{0};
  benchmark::DoNotOptimize(&flag);
  for (auto _ : state) {
    benchmark::DoNotOptimize(flag.load(std::memory_order_relaxed));
    benchmark::ClobberMemory();
  }
}

void c_interface(benchmark::State& state, const Daemon& daemon) {
  ApiClient client(daemon.address());
  ApiWorker worker = client.join({.job = "c-interface", .policy = "asp"});
  for (auto _ : state) {
    if (!worker.iterate(1).ok()) state.SkipWithError("an iteration failed");
  }
}

void bare_socket(benchmark::State& state, const Daemon& daemon) {
  test::RawClient client(daemon.address());
  client.hello();
  test::RawWorker worker(client, test::join_of("bare-socket", 0, 1, "asp"));
  std::int64_t iteration = worker.joined().iteration;
  for (auto _ : state) {
    worker.begin(iteration);
    worker.push(iteration++);
  }
}

int run(int argc, char** argv) {
  const Daemon daemon;
  benchmark::RegisterBenchmark("bare_load", bare_load);
  benchmark::RegisterBenchmark("should_resync",
                               [&](benchmark::State& state) { should_resync(state, daemon); });
  benchmark::RegisterBenchmark("bare_socket", [&](benchmark::State& state) {
    bare_socket(state, daemon);
  })->UseRealTime();
  benchmark::RegisterBenchmark("c_interface", [&](benchmark::State& state) {
    c_interface(state, daemon);
  })->UseRealTime();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  RatioReporter reporter(RatioReporter::Time::kReal);
  benchmark::RunSpecifiedBenchmarks(&reporter);
  std::printf("\nRatios of the same run:\n");
  reporter.print_ratio("should_resync", "bare_load");
  reporter.print_ratio("c_interface/real_time", "bare_socket/real_time");
  return reporter.failed() ? 1 : 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  return syncd::bench::run(argc, argv);
}
