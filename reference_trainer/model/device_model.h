// What a model computes on a device, for SgdStepper (device_steppers.h). A Model<Device> has
//
//   class Data              made from (Device&, const StepperRequest&): the training data there,
//                           which all steppers on it share and only read
//   int kStages             steps of a part between which a worker may start over
//   bool kSparse            whether few parameters change
//   Model(Device&, const StepperRequest&, std::shared_ptr<const Data>, samples_max)
//   compute(Device&, int stage, const DevicePart&)
//                           stage 0, 1, ... of one part, then the next part's; it only tells
//
// and, static: rule(request), the SgdRule; parameters(request); training(request), the number of
// samples; loss(sum, samples), of a minibatch from what its parts added.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference_trainer/model/device_request.h"
#include "reference_trainer/model/device_steps.h"

namespace syncd::trainer {

// One part of a minibatch. Pointers are to device memory.
struct DevicePart {
  const Index* chosen = nullptr;  // [samples]: which of the training samples
  std::size_t samples = 0;
  std::uint32_t minibatch = 0;     // its number, which no other one of this stepper has
  bool last = false;               // of the minibatch
  const float* replica = nullptr;  // [parameters]
  float* gradient = nullptr;       // [parameters]: to add to
  float* loss = nullptr;           // to add to
};

// Device memory with a copy of the host's values.
template <typename Device, typename T>
typename Device::template Buffer<T> sent(Device& device, std::span<const T> values) {
  typename Device::template Buffer<T> buffer(device, values.size());
  device.copy_in(buffer.data(), values);
  return buffer;
}

}  // namespace syncd::trainer
