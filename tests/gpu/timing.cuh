// A moment on a stream, for benchmarks: with its time, which device.cuh's marks do without.
#pragma once

#include <cuda_runtime.h>

#include "reference_trainer/cuda/device.cuh"

namespace syncd::trainer::cuda {

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "making an event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace syncd::trainer::cuda
