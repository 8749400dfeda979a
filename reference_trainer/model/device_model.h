// What a model computes on a device, for SgdStepper (device_steppers.h). A Model<Device> has
//
//   class Data              made from (Device&, const StepperRequest&): the training data there,
//                           which all steppers on it share and only read
//   int kStages             steps of a part between which a worker may start over
//   Index kTouchedBlock     of how many parameters the blocks are that a minibatch touches few of,
//                           and lists (Touched); 0: it changes all parameters
//   Model(Device&, const StepperRequest&, std::shared_ptr<const Data>, samples_max)
//   compute(Device&, int stage, const DevicePart&)
//                           stage 0, 1, ... of one part, then the next part's; it only tells
//
//   BatchScore score(Device&, const DevicePart&)
//                           if it can: of a part, without a gradient; waits
//
// and, static: rule(request), the SgdRule; parameters(request); training(request), the number of
// samples; loss(sum, samples), of a minibatch from what its parts added.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/device_steps.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// What a stepper on a device is made from: the workload's data, where they lie in the host's
// memory. Plain data; what it points to must live until the stepper is made.
struct StepperRequest {
  WorkloadConfig config;
  std::int32_t worker = 0;  // workers are dealt out to the devices by it

  RatingView ratings = {};  // mf
  double mean_rating = 0;

  ExampleView examples = {};  // svm

  ImageView images = {};  // cnn
  CnnShape shape = {};
  const CnnLayout* layout = nullptr;  // that of the shape
};

// One part of a minibatch. Pointers are to device memory.
struct DevicePart {
  const Index* chosen = nullptr;  // [samples]: which of the training samples
  std::size_t samples = 0;
  bool last = false;               // of the minibatch
  const float* replica = nullptr;  // [parameters]
  float* gradient = nullptr;       // [parameters]: to add to
  double* loss = nullptr;          // to add to
  Touched touched;                 // to list what the gradient was added to
};

// The host's values where the device sees them: in a copy, or where they are.
template <typename Device, typename T>
using Sent =
    std::conditional_t<Device::kSeesHost, std::span<const T>, typename Device::template Buffer<T>>;
template <typename Device, typename T>
Sent<Device, T> sent(Device& device, std::span<const T> values) {
  if constexpr (Device::kSeesHost) {
    return values;
  } else {
    typename Device::template Buffer<T> buffer(device, values.size());
    device.copy_in(buffer.data(), values);
    return buffer;
  }
}

}  // namespace syncd::trainer
