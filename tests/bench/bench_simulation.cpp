// How many engine events per second the simulator drives, and beside it the same engine in a bare
// loop without a network, durations or measuring: what the simulator adds. One thread.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "daemon/tools/sim/simulation.h"

namespace syncd::bench {
namespace {

constexpr std::uint32_t kWorkers = 1000;

EngineOptions engine_options() {
  EngineOptions options;
  options.snapshot_every_records = UINT64_MAX;
  options.defaults.warn_after_us = 0;
  options.defaults.evict_after_us = 0;
  return options;
}

// Rounds of begin and push, worker after worker, under ssp:3: the engine alone.
void BM_bare_engine(benchmark::State& state) {
  Engine engine(engine_options());
  Effects effects;
  std::vector<wire::WorkerRef> refs;
  engine.step(Request{{1, 0}, wire::CreateJobRequest{"job", "ssp:3", kWorkers, 0}}, 0, effects);
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
    wire::Join join;
    join.job = "job";
    join.name = "worker-" + std::to_string(rank);
    join.host = "node";
    join.rank = static_cast<std::int32_t>(rank);
    engine.step(Request{{rank + 2, 0}, join}, 0, effects);
    refs.push_back(std::get<wire::Joined>(effects.replies.front().body).worker);
  }
  std::int64_t iteration = 0;
  std::int64_t events = 0;
  for (auto _ : state) {
    for (const wire::WorkerRef& ref : refs) {
      engine.step(Request{{ref.rank + 2, 0}, wire::Begin{ref, iteration}}, iteration * 2, effects);
      benchmark::DoNotOptimize(effects);
    }
    for (const wire::WorkerRef& ref : refs) {
      wire::Push push;
      push.worker = ref;
      push.iteration = iteration;
      engine.step(Request{{ref.rank + 2, 0}, std::move(push)}, iteration * 2 + 1, effects);
      benchmark::DoNotOptimize(effects);
    }
    ++iteration;
    events += 2 * kWorkers;
  }
  state.SetItemsProcessed(events);
}

// A whole run of 20 virtual seconds, iterations of about 100 ms.
void simulate(benchmark::State& state, const char* policy, Micros delay_us) {
  sim::Options options;
  options.workers = kWorkers;
  options.policy = policy;
  options.duration_us = 20'000'000;
  options.delay_us = delay_us;
  std::string error;
  options.iteration_time = *sim::parse_iteration_time("uniform_each:80-120", error);
  std::int64_t events = 0;
  for (auto _ : state) {
    const sim::Result result = sim::Simulation(options).run();
    if (result.stalled || !result.refused.empty()) state.SkipWithError("the run came to a stand");
    events += static_cast<std::int64_t>(result.engine_events);
  }
  state.SetItemsProcessed(events);
}

void BM_simulate_ssp(benchmark::State& state) {
  simulate(state, "ssp:3", 0);
}
void BM_simulate_ssp_delay(benchmark::State& state) {
  simulate(state, "ssp:3", 1000);
}
void BM_simulate_asp(benchmark::State& state) {
  simulate(state, "asp", 0);
}
void BM_simulate_hop(benchmark::State& state) {
  simulate(state, "hop:ring_based,max_ig=4,backup=1", 1000);
}

BENCHMARK(BM_bare_engine)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_simulate_ssp)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_simulate_ssp_delay)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_simulate_asp)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_simulate_hop)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace syncd::bench

BENCHMARK_MAIN();
