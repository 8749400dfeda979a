// How fast parameters are pushed to and pulled from a store in a GPU's memory, beside a copy of the
// same bytes within that memory, in the same run. Prints a table; asserts nothing. Where there is
// no GPU it says so and ends with status 77.
//
//   build/.../bench_store [ROUNDS]
//
// A copy reads and writes 4 bytes per parameter, as a pull does. A push with momentum reads the
// gradient, reads and writes the velocity and the replica, writes the step, and adds to the store:
// 32 bytes per parameter. Ratios are of bytes per second; times are medians.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

#include "reference_trainer/cuda/machine.cuh"
#include "tests/gpu/timing.cuh"

namespace syncd::trainer {
namespace {

constexpr int kSkipped = 77;
constexpr std::size_t kBytesOfCopy = 2 * sizeof(float);  // per parameter, read and written
constexpr std::size_t kBytesOfPush = 8 * sizeof(float);
constexpr int kOther = 1;  // the worker that changes the store between two pulls
constexpr int kWorkers = 2;

using cuda::check;
using cuda::CudaMachine;
using cuda::Event;

// Median of what `queue` takes on the stream, in microseconds; `prepare` is not counted.
template <typename Prepare, typename Queue>
double median_us(int rounds, void* stream, const Prepare& prepare, const Queue& queue) {
  const auto on = static_cast<cudaStream_t>(stream);
  const Event start;
  const Event end;
  std::vector<float> times;
  for (int round = -3; round < rounds; ++round) {  // the first ones warm up
    prepare();
    check(cudaDeviceSynchronize(), "preparing");
    check(cudaEventRecord(start.get(), on), "recording an event");
    queue();
    check(cudaEventRecord(end.get(), on), "recording an event");
    check(cudaEventSynchronize(end.get()), "measuring");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start.get(), end.get()), "measuring");
    if (round >= 0) times.push_back(ms);
  }
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds / 2)] * 1e3;
}

void measure(MachineDevice<CudaMachine>& device, std::size_t parameters, int rounds) {
  const std::vector<float> initial(parameters);
  const auto store =
      device.create(device_store_shape({.parameters = parameters}, kWorkers), initial);
  const auto own = device.stand_in(parameters, 0);
  const auto other = device.stand_in(parameters, 0);
  const DeviceView view = own->view();
  const auto port = store->port(0, view);
  const auto other_port = store->port(kOther, other->view());
  const SgdRule rule{.rate = 0.01F,
                     .scale = 1,
                     .momentum = 0.9F,
                     .weight_decay = 0.0005F,
                     .decayed = {{{.first = 0, .count = parameters}}}};
  const auto nothing = [] {};
  const double copy_us = median_us(rounds, view.stream, nothing, [&] {
    check(cudaMemcpyAsync(view.replica, view.gradient, parameters * sizeof(float),
                          cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(view.stream)),
          "copying");
  });
  const double pull_us = median_us(
      rounds, view.stream, [&] { other_port->push(rule); }, [&] { port->pull(); });
  const double unchanged_us = median_us(rounds, view.stream, nothing, [&] { port->pull(); });
  const double push_us = median_us(rounds, view.stream, nothing, [&] { port->push(rule); });
  if (port->wait()) std::printf("(a pull was not whole)\n");
  const auto rate = [&](std::size_t bytes, double us) {
    return static_cast<double>(parameters * bytes) / us / 1e3;  // GB/s
  };
  const double copy = rate(kBytesOfCopy, copy_us);
  const double pull = rate(kBytesOfCopy, pull_us);
  const double push = rate(kBytesOfPush, push_us);
  std::printf("%9.1f  %8.1f  %8.0f  %8.1f  %8.0f  %5.2f  %9.1f  %8.1f  %8.0f  %5.2f\n",
              static_cast<double>(parameters) * sizeof(float) / 1e6, copy_us, copy, pull_us, pull,
              pull / copy, unchanged_us, push_us, push, push / copy);
}

int run(int rounds) {
  int gpus = 0;
  const cudaError_t status = cudaGetDeviceCount(&gpus);
  if (status != cudaSuccess || gpus == 0) {
    std::printf("NOT MEASURED: there is no GPU that CUDA can use (%s)\n",
                cudaGetErrorString(status));
    return kSkipped;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's properties");
  std::printf("%s, medians of %d\n", properties.name, rounds);
  std::printf(
      "       MB   copy us      GB/s   pull us      GB/s  ratio  unchanged   push us      "
      "GB/s  ratio\n");
  MachineDevice<CudaMachine> device{CudaMachine()};
  for (const std::size_t parameters :
       {std::size_t{295'146}, std::size_t{4} << 20, std::size_t{64} << 20}) {
    measure(device, parameters, rounds);
  }
  return 0;
}

}  // namespace
}  // namespace syncd::trainer

int main(int argc, char** argv) {
  try {
    return syncd::trainer::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 51);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_store: %s\n", error.what());
    return 1;
  }
}
