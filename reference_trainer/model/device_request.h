// What a stepper on a device is made from: the workload's data, where they lie in the host's
// memory. Plain data; what it points to must live until the stepper is made.
#pragma once

#include <array>
#include <cstdint>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

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

// What each byte of an image means to the network, per channel.
using NormalPixels = std::array<std::array<float, 256>, kImageChannels>;

inline NormalPixels normal_pixels(const ImageView& data) {
  NormalPixels normal;
  for (std::size_t c = 0; c < kImageChannels; ++c) {
    for (std::size_t value = 0; value < 256; ++value) {
      normal[c][value] =
          static_cast<float>((static_cast<double>(value) / 255 - data.mean[c]) / data.deviation[c]);
    }
  }
  return normal;
}

}  // namespace syncd::trainer
