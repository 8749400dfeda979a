// What the parts of a message's way cost without any socket: encoding, decoding, one engine step.
// Google Benchmark's figures, and below them ratios to floors measured in the same run. One thread.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "daemon/core/engine/engine.h"
#include "proto/wire/wire.h"
#include "tests/bench/ratio_reporter.h"

namespace syncd::bench {
namespace {

const wire::WorkerRef kWorker{1, 17, 1, 18};

template <class Body>
wire::Message sample();
template <>
wire::Message sample<wire::Begin>() {
  return {1234, wire::Begin{kWorker, 1000}};
}
template <>
wire::Message sample<wire::Push>() {
  return {1234, wire::Push{kWorker, 1000, 0.25, 128, 0}};
}
template <>
wire::Message sample<wire::Granted>() {
  return {1234, wire::Granted{1000, wire::kStepPull, 2}};
}
template <>
wire::Message sample<wire::Pushed>() {
  return {1234, wire::Pushed{1000, false, false}};
}

template <class Body>
std::vector<std::uint8_t> sample_frame() {
  std::vector<std::uint8_t> frame;
  wire::Encoder().append(sample<Body>(), frame);
  return frame;
}

// ---- codec
// ----------------------------------------------------------------------------------------

// The floor: the frame's bytes are there already and are appended to what goes out.
template <class Body>
void copy_frame(benchmark::State& state) {
  const std::vector<std::uint8_t> frame = sample_frame<Body>();
  std::vector<std::uint8_t> out;
  for (auto _ : state) {
    out.clear();
    out.insert(out.end(), frame.begin(), frame.end());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
}

template <class Body>
void encode(benchmark::State& state) {
  const wire::Message message = sample<Body>();
  wire::Encoder encoder;
  std::vector<std::uint8_t> out;
  for (auto _ : state) {
    out.clear();
    encoder.append(message, out);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
}

template <class Body>
void decode(benchmark::State& state) {
  const std::vector<std::uint8_t> frame = sample_frame<Body>();
  const std::span<const std::uint8_t> payload(frame.data() + 4, frame.size() - 4);
  wire::Message message;
  std::string error;
  for (auto _ : state) {
    if (!wire::decode(payload, message, error)) state.SkipWithError(error.c_str());
    benchmark::DoNotOptimize(message);
  }
}

// ---- engine
// -----------------------------------------------------------------------------------------

constexpr Micros kStart = 1'000'000;

void expect(benchmark::State& state, bool holds, const char* what) {
  if (!holds) state.SkipWithError(what);
}

// A job whose workers have all begun their first iteration.
class RunningJob {
 public:
  RunningJob(benchmark::State& state, const char* policy, std::uint32_t workers)
      : engine_(options()) {
    for (std::uint32_t i = 0; i < workers; ++i) join(state, policy, i, workers);
    for (std::uint32_t i = 0; i < workers; ++i) step(i, wire::Begin{refs_[i], 0});
    expect(state, engine_.stats().grants == workers, "not every worker was let go");
  }

  // One of them, whichever comes, pushes and begins again, by the daemon's own way into the engine.
  // callgrind counts it by this name (README.md).
  [[gnu::noinline]] void random_push_and_begin() {
    random_ = random_ * 6364136223846793005U + 1442695040888963407U;
    const auto worker = static_cast<std::uint32_t>((random_ >> 32) * refs_.size() >> 32);
    if (at_.empty()) at_.resize(refs_.size());
    const Iteration k = at_[worker]++;
    effects_.clear();
    engine_.call({worker + 1, ++request_}, wire::Push{refs_[worker], k, 0.25, 128, 0}, ++now_,
                 effects_);
    benchmark::DoNotOptimize(effects_);
    effects_.clear();
    engine_.call({worker + 1, ++request_}, wire::Begin{refs_[worker], k + 1}, ++now_, effects_);
    benchmark::DoNotOptimize(effects_);
    ++turns_;
  }

  // The next worker in turn pushes and begins again.
  void push_and_begin() {
    step(next_, wire::Push{refs_[next_], iteration_, 0.25, 128, 0});
    benchmark::DoNotOptimize(effects_);
    step(next_, wire::Begin{refs_[next_], iteration_ + 1});
    benchmark::DoNotOptimize(effects_);
    ++turns_;
    if (++next_ < refs_.size()) return;
    next_ = 0;
    ++iteration_;
  }

  // Whether everybody who asked was let go.
  bool nobody_waits() const { return engine_.stats().grants == refs_.size() + turns_; }

 private:
  static EngineOptions options() {
    EngineOptions options;
    options.snapshot_every_records = UINT64_MAX;  // a snapshot is O(n), once in so many records
    return options;
  }

  void join(benchmark::State& state, const char* policy, std::uint32_t index,
            std::uint32_t workers) {
    wire::Join join;
    join.job = "bench";
    join.policy = policy;
    join.name = "worker-" + std::to_string(index);
    join.host = "bench";
    join.rank = static_cast<std::int32_t>(index);
    join.world_size = workers;
    step(index, std::move(join));
    const auto* joined = effects_.replies.empty()
                             ? nullptr
                             : std::get_if<wire::Joined>(&effects_.replies.back().body);
    expect(state, joined != nullptr, "a join was refused");
    refs_.push_back(joined != nullptr ? joined->worker : wire::WorkerRef{});
  }

  void step(std::uint32_t worker, wire::Body body) {
    now_ += 1;
    engine_.step(Request{{worker + 1, ++request_}, std::move(body)}, now_, effects_);
  }

  Engine engine_;
  Effects effects_;
  std::vector<wire::WorkerRef> refs_;
  std::uint32_t next_ = 0;
  Iteration iteration_ = 0;
  std::vector<Iteration> at_;  // each worker's, where they take no turns
  std::uint64_t random_ = 1;
  std::uint64_t turns_ = 0;
  RequestId request_ = 0;
  Micros now_ = kStart;
};

// Under ssp:3, where nobody has to wait as long as they take turns.
void engine_push_begin(benchmark::State& state) {
  RunningJob job(state, "ssp:3", static_cast<std::uint32_t>(state.range(0)));
  for (auto _ : state) job.push_and_begin();
  expect(state, job.nobody_waits(), "a worker had to wait: this is not what was to be measured");
}

// Under asp, in random order: every event finds its worker cold if they are many.
void engine_random(benchmark::State& state) {
  RunningJob job(state, "asp", static_cast<std::uint32_t>(state.range(0)));
  for (auto _ : state) job.random_push_and_begin();
  expect(state, job.nobody_waits(), "a worker had to wait under asp");
  state.counters["per_event"] = benchmark::Counter(
      2, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Under bsp, where everybody waits for the last: the time is that of one whole barrier.
void engine_barrier(benchmark::State& state) {
  RunningJob job(state, "bsp", static_cast<std::uint32_t>(state.range(0)));
  for (auto _ : state) {
    for (std::int64_t i = 0; i < state.range(0); ++i) job.push_and_begin();
  }
  expect(state, job.nobody_waits(), "a barrier did not open");
  state.counters["per_worker"] = benchmark::Counter(
      static_cast<double>(state.range(0)),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// The floor: bring as many bytes as a worker's state has into the cache and change them, worker
// after worker, through one pointer each.
void touch_worker(benchmark::State& state) {
  constexpr std::size_t kWorkerBytes = 320;
  struct Bytes {
    std::uint64_t words[kWorkerBytes / 8] = {};
  };
  std::vector<std::unique_ptr<Bytes>> workers(static_cast<std::size_t>(state.range(0)));
  for (auto& worker : workers) worker = std::make_unique<Bytes>();
  std::size_t next = 0;
  for (auto _ : state) {
    for (std::uint64_t& word : workers[next]->words) word += 1;
    benchmark::ClobberMemory();
    if (++next == workers.size()) next = 0;
  }
}

BENCHMARK(copy_frame<wire::Begin>)->Name("copy_frame/begin");
BENCHMARK(encode<wire::Begin>)->Name("encode/begin");
BENCHMARK(decode<wire::Begin>)->Name("decode/begin");
BENCHMARK(copy_frame<wire::Push>)->Name("copy_frame/push");
BENCHMARK(encode<wire::Push>)->Name("encode/push");
BENCHMARK(decode<wire::Push>)->Name("decode/push");
BENCHMARK(copy_frame<wire::Granted>)->Name("copy_frame/granted");
BENCHMARK(encode<wire::Granted>)->Name("encode/granted");
BENCHMARK(decode<wire::Granted>)->Name("decode/granted");
BENCHMARK(copy_frame<wire::Pushed>)->Name("copy_frame/pushed");
BENCHMARK(encode<wire::Pushed>)->Name("encode/pushed");
BENCHMARK(decode<wire::Pushed>)->Name("decode/pushed");
BENCHMARK(touch_worker)->Arg(100)->Arg(100'000);
BENCHMARK(engine_push_begin)->Arg(100)->Arg(100'000);
BENCHMARK(engine_random)->Arg(100)->Arg(1'000'000)->Iterations(200'000);
BENCHMARK(engine_barrier)->Arg(10)->Arg(100)->Arg(1000);

// ---- ratios
// -------------------------------------------------------------------------------------------

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  RatioReporter reporter;
  benchmark::RunSpecifiedBenchmarks(&reporter);
  std::printf("\nRatios to floors of the same run:\n");
  for (const char* message : {"begin", "push", "granted", "pushed"}) {
    for (const char* what : {"encode/", "decode/"}) {
      reporter.print_ratio(std::string(what) + message, std::string("copy_frame/") + message);
    }
  }
  for (const char* workers : {"100", "100000"}) {
    reporter.print_ratio(std::string("engine_push_begin/") + workers,
                         std::string("touch_worker/") + workers);
  }
  reporter.print_ratio("engine_push_begin/100000", "engine_push_begin/100");
  reporter.print_ratio("engine_random/1000000/iterations:200000",
                       "engine_random/100/iterations:200000");
  return reporter.failed() ? 1 : 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  return syncd::bench::run(argc, argv);
}
