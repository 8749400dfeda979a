// What the GPU makes of the trainer's steppers: training throughput of `cnn`, and how soon a
// minibatch ends once the host says so. Prints a line per figure; asserts nothing. One thread.
//
//   bench_trainer_gpu [--short | --probe]
//
// --short: few rounds. --probe: only says which GPU there is.
//
// Exit status: 0; 1 something failed; 77 there is no GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "reference_trainer/cuda/device.cuh"
#include "reference_trainer/data/generate.h"
#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/device_steppers.h"
#include "tests/gpu/timing.cuh"

namespace syncd::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using cuda::check;
using cuda::CudaDevice;
using cuda::Event;

constexpr int kNoGpu = 77;

// What a worker does with a gradient: one kernel, as the parameter store's.
__global__ void apply_step(DeviceView view) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < view.parameters) {
    view.replica[i] += sgd_delta(view.rule, view.gradient, view.velocity, view.replica, i);
  }
}

void apply(const DeviceView& view) {
  const auto blocks = static_cast<unsigned>((view.parameters + 255) / 256);
  apply_step<<<blocks, 256, 0, static_cast<cudaStream_t>(view.stream)>>>(view);
  check(cudaGetLastError(), "starting a kernel");
}

const char* name_of(Precision precision) {
  return precision == Precision::kTf32 ? "tf32" : precision == Precision::kBf16 ? "bf16" : "float";
}

double quantile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  const auto place = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(place, values.size() - 1)];
}

class Bench {
 public:
  explicit Bench(bool is_short)
      : data_(prepare_images(
            generate_images({.training = 4096, .test = 64}, ImageFormat::kCifar10, 1), 1)),
        layout_(shape_),
        rounds_(is_short ? 3 : 50),
        trials_(is_short ? 20 : 2000) {}

  void throughput(int batch, Precision precision, bool interruptible) {
    const auto stepper = make(batch, precision, interruptible);
    const DeviceView view = stepper->view();
    const Event start;
    const Event end;
    constexpr int kIterations = 10;
    std::int64_t iteration = 0;
    const auto train = [&] {
      for (int i = 0; i < kIterations; ++i) {
        minibatch(*stepper, ++iteration);
        apply(view);
      }
    };
    for (int i = 0; i < 3; ++i) train();
    std::vector<double> per_second;
    for (int round = 0; round < rounds_; ++round) {
      check(cudaEventRecord(start.get(), static_cast<cudaStream_t>(view.stream)), "an event");
      train();
      check(cudaEventRecord(end.get(), static_cast<cudaStream_t>(view.stream)), "an event");
      check(cudaEventSynchronize(end.get()), "computing");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start.get(), end.get()), "reading the time");
      per_second.push_back(1e3 * kIterations * batch / static_cast<double>(ms));
    }
    std::printf(
        "cnn throughput  batch %4d  %-5s  %-15s %10.0f samples/s (median of %d; 10%% %.0f, "
        "90%% %.0f)\n",
        batch, name_of(precision), interruptible ? "interruptible" : "uninterrupted",
        quantile(per_second, 0.5), rounds_, quantile(per_second, 0.1), quantile(per_second, 0.9));
  }

  // From the moment that the host sets the flag until the stream has nothing left to do, at moments
  // spread over the whole minibatch.
  void abort(int batch, Precision precision) {
    const auto stepper = make(batch, precision, true);
    for (int i = 1; i <= 20; ++i) minibatch(*stepper, i);
    stepper->loss();
    const Clock::time_point before = Clock::now();
    for (int i = 1; i <= 20; ++i) minibatch(*stepper, i);
    stepper->loss();
    const double whole_us = us_since(before) / 20;
    std::vector<double> latencies;
    std::uint32_t* flag = stepper->resync_flag();
    for (int trial = 0; static_cast<int>(latencies.size()) < trials_ && trial < 3 * trials_;
         ++trial) {
      const double due_us = whole_us * (trial % 97) / 97;
      stepper->start({.worker = 0, .iteration = trial});
      const Clock::time_point start = Clock::now();
      int part = 0;
      while (us_since(start) < due_us) {
        if (part < stepper->micro_batches() && stepper->ready()) stepper->compute(part++);
      }
      if (part == 0) stepper->compute(part++);
      if (part == stepper->micro_batches() && stepper->finished()) continue;  // too late
      const Clock::time_point set = Clock::now();
      write_word(flag, 1);
      while (!stepper->finished()) {
      }
      latencies.push_back(us_since(set));
      stepper->drop();
      write_word(flag, 0);
    }
    if (latencies.empty()) {
      std::printf("cnn abort       batch %4d  %-5s  no trial caught the GPU at work\n", batch,
                  name_of(precision));
      return;
    }
    std::printf(
        "cnn abort       batch %4d  %-5s  p50 %.1f us  p99 %.1f us  max %.1f us (flag to "
        "idle, %zu trials; a whole minibatch takes %.1f us)\n",
        batch, name_of(precision), quantile(latencies, 0.5), quantile(latencies, 0.99),
        latencies.back(), latencies.size(), whole_us);
  }

 private:
  static double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }

  // As a worker's loop does.
  static void minibatch(Stepper& stepper, std::int64_t iteration) {
    stepper.start({.worker = 0, .iteration = iteration});
    for (int part = 0; part < stepper.micro_batches(); ++part) {
      while (!stepper.ready()) {
      }
      stepper.compute(part);
    }
  }

  std::unique_ptr<Stepper> make(int batch, Precision precision, bool interruptible) const {
    StepperRequest request{.config = {.kind = WorkloadKind::kCnn,
                                      .workers = 1,
                                      .batch = batch,
                                      .learning_rate = 0.001,
                                      .momentum = 0.9,
                                      .weight_decay = 0.0005,
                                      .backend = Backend::kCuda,
                                      .precision = precision},
                           .ratings = {},
                           .examples = {},
                           .images = view_images(data_),
                           .shape = shape_,
                           .layout = &layout_};
    auto stepper = make_device_stepper(CudaDevice(0, precision), request);
    stepper->interruptible(interruptible);
    make_workload(request.config, data_)->initialize(stepper->replica());
    stepper->replica_changed();
    return stepper;
  }

  SharedArrays data_;
  CnnShape shape_;
  CnnLayout layout_;
  int rounds_;
  int trials_;
};

int run(bool is_short, bool is_probe) {
  try {
    const int gpu = cuda::choose_gpu(0);
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, gpu), "asking for the GPU's properties");
    std::printf("%s, compute capability %d.%d\n", properties.name, properties.major,
                properties.minor);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_trainer_gpu: %s\n", error.what());
    return kNoGpu;
  }
  if (is_probe) return 0;
  try {
    Bench bench(is_short);
    for (const Precision precision : {Precision::kFloat, Precision::kTf32, Precision::kBf16}) {
      try {
        cuda::choose_gpu(0, precision);
      } catch (const std::exception& error) {
        std::printf("%s: left out: %s\n", name_of(precision), error.what());
        continue;
      }
      for (const int batch : {128, 1024}) {
        bench.throughput(batch, precision, false);
        bench.throughput(batch, precision, true);
        bench.abort(batch, precision);
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_trainer_gpu: %s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace syncd::trainer

int main(int argc, char** argv) {
  const bool is_short = argc == 2 && std::strcmp(argv[1], "--short") == 0;
  const bool is_probe = argc == 2 && std::strcmp(argv[1], "--probe") == 0;
  if (argc > 1 && !is_short && !is_probe) {
    std::fprintf(stderr, "usage: bench_trainer_gpu [--short | --probe]\n");
    return 2;
  }
  return syncd::trainer::run(is_short, is_probe);
}
