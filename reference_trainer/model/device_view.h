// A stepper's memory on its device, as seen by what works on that device too: a parameter store or
// update queues in its memory, which change the replica there instead of through the host. Host
// code; the pointers here are the device's and mean nothing to the host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace syncd::trainer {

// How a step follows from a gradient, the same on every device. For parameter i:
//   velocity[i] = momentum * velocity[i] + scale * gradient[i] + decay(i) * replica[i]
//   delta[i] = -rate * velocity[i]
// where decay(i) is weight_decay inside of `decayed` and 0 elsewhere. Without a velocity (null in
// DeviceView), as with momentum 0.
struct SgdRule {
  struct Range {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  double rate = 0;
  float scale = 1;  // 1 / samples where the gradient is a sum over samples
  float momentum = 0;
  float weight_decay = 0;
  std::array<Range, 8> decayed{};  // those with count 0 count for nothing
};

// Device memory of one stepper, which owns it; it stays where it is as long as the stepper lives.
struct DeviceView {
  std::size_t parameters = 0;
  float* replica = nullptr;         // [parameters]: what the worker computes with
  const float* gradient = nullptr;  // [parameters]: of the minibatch, once all parts are computed
  float* velocity = nullptr;        // [parameters], or null
  SgdRule rule = {};
  void* stream = nullptr;  // cudaStream_t: whoever queues work here needs no synchronization
};

}  // namespace syncd::trainer
