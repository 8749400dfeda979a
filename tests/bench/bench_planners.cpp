// The planners on inputs like those of the papers. ZipLine stands beside sorting the end times (LSD
// radix sort) and going through them once, which is what any planner that sorts cannot do without.
// Google Benchmark's figures, and below them ratios of the same run. One thread.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/planners/abort_tuner.h"
#include "daemon/core/planners/dssp_controller.h"
#include "daemon/core/planners/radix_sort.h"
#include "daemon/core/planners/zipline.h"
#include "tests/bench/ratio_reporter.h"

namespace syncd::bench {
namespace {

using namespace syncd::planners;

// ---- ZipLine -----------------------------------------------------------------------------------

struct Size {
  std::int64_t workers;
  std::int64_t r;
};
constexpr std::array<Size, 4> kSizes{{{100, 15}, {1000, 15}, {1000, 150}, {100'000, 15}}};

// How unlike the workers' speeds are: what iterations take, from 1 s up. The paper's is the first.
// The others are the hard ones for `auto`: hardly a gap lies within another one.
struct Speeds {
  const char* suffix;
  Micros slowest;
  Micros last_start;
};
constexpr std::array<Speeds, 3> kSpeeds{
    {{"", 1'500'000, 50'000}, {"_like", 1'001'000, 1'010'000}, {"_equal", 1'000'000, 10'000}}};

// The ElasticBSP paper's generator, section 6.1, in microseconds: iterations of 1 to 1.5 s, started
// 10 to 50 ms after one another and followed for half a minute.
std::vector<Progression> sample_workers(std::int64_t count, const Speeds& speeds = kSpeeds[0]) {
  std::mt19937_64 random(20210101);
  std::uniform_int_distribution<Micros> interval(1'000'000, speeds.slowest);
  std::uniform_int_distribution<Micros> start(10'000, speeds.last_start);
  constexpr Micros kBase = 1'553'557'741'000'000;
  constexpr Micros kNow = 30'000'000;
  std::vector<Progression> workers(static_cast<std::size_t>(count));
  for (Progression& worker : workers) {
    const Micros each = interval(random);
    const Micros begun = start(random);
    worker = {kBase + begun + ((kNow - begun) / each + 1) * each, each};
  }
  return workers;
}

EndTimes sample_ends(benchmark::State& state, const std::vector<Progression>& workers) {
  std::string error;
  std::optional<EndTimes> ends =
      make_ends(workers, static_cast<std::uint32_t>(state.range(1)), error);
  if (!ends) state.SkipWithError(error.c_str());
  return ends.value_or(EndTimes{});
}

void zipline_ends(benchmark::State& state, const ZiplineOptions& options, const Speeds& speeds) {
  const EndTimes ends = sample_ends(state, sample_workers(state.range(0), speeds));
  std::string error;
  for (auto _ : state) {
    auto plan = plan_zipline(ends, options, error);
    if (!plan) state.SkipWithError(error.c_str());
    benchmark::DoNotOptimize(plan);
  }
}

// From last end and interval, without a matrix: what the daemon knows of its workers.
void zipline_series(benchmark::State& state, const ZiplineOptions& options, const Speeds& speeds) {
  const std::vector<Progression> workers = sample_workers(state.range(0), speeds);
  std::string error;
  for (auto _ : state) {
    auto plan = plan_zipline(workers, static_cast<std::uint32_t>(state.range(1)), options, error);
    if (!plan) state.SkipWithError(error.c_str());
    benchmark::DoNotOptimize(plan);
  }
}

// The floor: the bare end times, without whose they are, sorted by as many bits as they differ in,
// and one sweep.
void radix_floor(benchmark::State& state, const Speeds& speeds) {
  const EndTimes ends = sample_ends(state, sample_workers(state.range(0), speeds));
  std::vector<std::uint64_t> keys;
  for (auto _ : state) {
    Micros earliest = kTimeMax;
    Micros latest = -kTimeMax;
    for (std::size_t p = 0; p < ends.workers(); ++p) {
      earliest = std::min(earliest, ends.row(p).front());
      latest = std::max(latest, ends.row(p).back());
    }
    keys.clear();
    keys.reserve(ends.size());
    for (std::size_t p = 0; p < ends.workers(); ++p) {
      for (const Micros end : ends.row(p)) {
        keys.push_back(static_cast<std::uint64_t>(end - earliest));
      }
    }
    radix_sort(
        keys, 0,
        static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(latest - earliest))));
    std::uint64_t widest = 0;
    for (std::size_t i = 1; i < keys.size(); ++i) widest = std::max(widest, keys[i] - keys[i - 1]);
    benchmark::DoNotOptimize(widest);
  }
}

// ---- SpecSync ----------------------------------------------------------------------------------

struct SpecsyncLog {
  std::vector<WorkerSpan> workers;
  std::vector<LoggedPush> pushes;
};

// Workers that have each completed two iterations of 1 to 1.5 s, begun at random moments.
SpecsyncLog sample_log(std::int64_t count) {
  std::mt19937_64 random(20190707);
  std::uniform_int_distribution<Micros> interval(1'000'000, 1'500'000);
  SpecsyncLog log;
  for (std::int64_t i = 0; i < count; ++i) {
    const Micros span = interval(random);
    const Micros begun = static_cast<Micros>(random() % static_cast<std::uint64_t>(span));
    log.workers.push_back({begun + span, span});
    for (const Micros end : {begun + span, begun + 2 * span}) {
      log.pushes.push_back({static_cast<std::uint32_t>(i), end});
    }
  }
  std::sort(log.pushes.begin(), log.pushes.end(),
            [](const LoggedPush& a, const LoggedPush& b) { return a.time < b.time; });
  return log;
}

void abort_tuner(benchmark::State& state, TuningScope scope) {
  const SpecsyncLog log = sample_log(state.range(0));
  TuningOptions options;
  options.scope = scope;
  std::string error;
  for (auto _ : state) {
    auto tuning = tune_abort(log.workers, log.pushes, options, error);
    if (!tuning || tuning->off) state.SkipWithError("nothing was tuned");
    benchmark::DoNotOptimize(tuning);
  }
}

// The floor of scope job: looking at every difference between a push and a pull once.
void all_differences(benchmark::State& state) {
  const SpecsyncLog log = sample_log(state.range(0));
  for (auto _ : state) {
    std::int64_t within = 0;
    for (const WorkerSpan& worker : log.workers) {
      for (const LoggedPush& push : log.pushes) {
        const Micros difference = push.time - worker.pull;
        within += difference > 0 && difference < worker.span ? 1 : 0;
      }
    }
    benchmark::DoNotOptimize(within);
  }
}

// ---- DSSP --------------------------------------------------------------------------------------

void dssp_extra(benchmark::State& state) {
  std::string error;
  for (auto _ : state) {
    auto extra = dssp_extra_iterations({1'000'000'000, 999'000'000}, {999'900'000, 996'400'000},
                                       state.range(0), 1'000'000'000, error);
    benchmark::DoNotOptimize(extra);
  }
}

// ------------------------------------------------------------------------------------------------

std::string at(const std::string& name, const Size& size) {
  return name + "/" + std::to_string(size.workers) + "/" + std::to_string(size.r);
}

void register_all() {
  for (const Size& size : kSizes) {
    const std::vector<std::int64_t> args{size.workers, size.r};
    const auto add = [&](const std::string& name, auto function, const ZiplineOptions& options,
                         const Speeds& speeds = kSpeeds[0]) {
      benchmark::RegisterBenchmark(
          (name + speeds.suffix).c_str(),
          [=](benchmark::State& state) { function(state, options, speeds); })
          ->Args(args)
          ->Unit(benchmark::kMicrosecond);
    };
    ZiplineOptions options;
    for (const Speeds& speeds : kSpeeds) {
      benchmark::RegisterBenchmark(("radix_floor" + std::string(speeds.suffix)).c_str(),
                                   [=](benchmark::State& state) { radix_floor(state, speeds); })
          ->Args(args)
          ->Unit(benchmark::kMicrosecond);
      add("auto", zipline_ends, options, speeds);
      add("auto_series", zipline_series, options, speeds);
    }
    options.algorithm = ZiplineAlgorithm::kZiplineLinked;
    add("zipline_linked", zipline_ends, options);
    add("zipline_linked_series", zipline_series, options);
    // The others move or scan up to all workers for each end: hours with 100,000 of them.
    for (const ZiplineAlgorithm algorithm :
         {ZiplineAlgorithm::kZiplineOptBs, ZiplineAlgorithm::kZiplineOpt,
          ZiplineAlgorithm::kZipline, ZiplineAlgorithm::kFullGridScan,
          ZiplineAlgorithm::kGridScan}) {
      if (size.workers > 1000) break;
      options.algorithm = algorithm;
      add(std::string(to_string(algorithm)), zipline_ends, options);
    }
    ZiplineOptions rate;
    rate.objective = ZiplineObjective::kRate;
    rate.previous_barrier = 1'553'557'741'000'000;
    add("rate", zipline_ends, rate);
  }
  for (const TuningScope scope : {TuningScope::kJob, TuningScope::kWorker}) {
    benchmark::RegisterBenchmark(("abort_tuner_" + std::string(to_string(scope))).c_str(),
                                 [=](benchmark::State& state) { abort_tuner(state, scope); })
        ->Arg(100)
        ->Arg(1000)
        ->Arg(10'000)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("all_differences", all_differences)
      ->Arg(100)
      ->Arg(1000)
      ->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("dssp_extra", dssp_extra)->Arg(12)->Arg(1000);
}

void print_ratios(const RatioReporter& reporter) {
  std::printf("\nRatios of the same run:\n");
  for (const Size& size : kSizes) {
    for (const Speeds& speeds : kSpeeds) {
      for (const char* name : {"auto", "auto_series"}) {
        reporter.print_ratio(at(std::string(name) + speeds.suffix, size),
                             at(std::string("radix_floor") + speeds.suffix, size));
      }
    }
    for (const char* name : {"zipline_linked", "rate"}) {
      reporter.print_ratio(at(name, size), at("radix_floor", size));
    }
    // The order that the paper's table 4 reports.
    reporter.print_ratio(at("zipline_opt_bs", size), at("zipline_opt", size));
    reporter.print_ratio(at("zipline_opt", size), at("zipline", size));
    reporter.print_ratio(at("zipline", size), at("full_grid_scan", size));
    reporter.print_ratio(at("zipline_linked", size), at("zipline_opt_bs", size));
  }
  for (const char* workers : {"100", "1000"}) {
    for (const char* scope : {"abort_tuner_job/", "abort_tuner_worker/"}) {
      reporter.print_ratio(std::string(scope) + workers, std::string("all_differences/") + workers);
    }
  }
}

int run(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  print_ratios(reporter);
  return reporter.failed() ? 1 : 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  return syncd::bench::run(argc, argv);
}
