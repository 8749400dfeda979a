// The sizes of C3F2-Net, and the network on the CPU: see cnn_network.h. The build always optimizes
// this file, whose loops a compiler can vectorize. No thread of its own.
#include "reference_trainer/model/cnn_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reference_trainer/model/cnn_batched.h"
#include "reference_trainer/model/cpu_device.h"

namespace syncd::trainer {
namespace {

constexpr std::size_t kClassesMax = 256;  // a label is a byte

void check(const CnnShape& shape) {
  const bool even = shape.height > 0 && shape.width > 0 && shape.height % 8 == 0 &&
                    shape.width % 8 == 0 && shape.channels > 0;
  bool conv = true;
  for (const auto& layer : shape.conv) conv = conv && layer.channels > 0 && layer.kernel % 2 == 1;
  if (even && conv && shape.hidden > 0 && shape.classes > 0 && shape.classes <= kClassesMax) return;
  throw std::invalid_argument(fmt::format(
      "a network for {} classes of images of {} x {} x {} is not allowed; allowed: 1 to "
      "{} classes, a height and width that are multiples of 8, odd kernels, no layer "
      "without outputs",
      shape.classes, shape.channels, shape.height, shape.width, kClassesMax));
}

// Reads images, labels and parameters where they are.
class CpuBackend : public CnnBackend {
 public:
  CpuBackend(const CnnShape& shape, std::size_t samples_max)
      : shape_(shape),
        samples_max_(samples_max),
        steps_(device_, shape, CnnLayout(shape), samples_max),
        gradient_(steps_.layout().parameters) {}

  void parameters(std::span<const float> values) override {
    if (values.size() != gradient_.size()) {
      throw std::invalid_argument(
          fmt::format("the network has {} parameters; got {}", gradient_.size(), values.size()));
    }
    parameters_ = values;
  }

  void clear_gradient() override { std::fill(gradient_.begin(), gradient_.end(), 0.0F); }

  BatchScore train(std::span<const float> images, std::span<const std::uint8_t> labels) override {
    const BatchScore score = evaluate(images, labels);
    steps_.backward(device_, parameters_.data(), source(images, labels), gradient_.data(),
                    labels.size());
    return score;
  }

  std::span<const float> gradient() override { return gradient_; }

  BatchScore evaluate(std::span<const float> images,
                      std::span<const std::uint8_t> labels) override {
    check_batch(shape_, samples_max_, images, labels);
    steps_.forward(device_, parameters_.data(), source(images, labels), labels.size());
    return sum_up({steps_.losses(), labels.size()}, {steps_.correct(), labels.size()});
  }

 private:
  FloatImages source(std::span<const float> images, std::span<const std::uint8_t> labels) const {
    return {images.data(), labels.data(), static_cast<Index>(shape_.channels),
            static_cast<Index>(shape_.height * shape_.width)};
  }

  CnnShape shape_;
  std::size_t samples_max_;
  CpuDevice device_;
  CnnSteps<CpuDevice> steps_;
  std::vector<float> gradient_;
  std::span<const float> parameters_;
};

}  // namespace

CnnLayout::CnnLayout(const CnnShape& shape) {
  check(shape);
  std::size_t place = 0;
  const auto add = [&](Layer& layer, std::size_t outputs, std::size_t fan_in) {
    layer = {.weights = place,
             .weight_count = outputs * fan_in,
             .bias = place + outputs * fan_in,
             .bias_count = outputs,
             .fan_in = fan_in};
    place += layer.weight_count + layer.bias_count;
  };
  std::size_t channels = shape.channels;
  for (std::size_t i = 0; i < conv.size(); ++i) {
    conv[i] = {.channels_in = channels,
               .channels_out = shape.conv[i].channels,
               .kernel = shape.conv[i].kernel,
               .height = shape.height >> i,
               .width = shape.width >> i};
    add(layers[i], conv[i].channels_out, conv[i].patch());
    channels = conv[i].channels_out;
  }
  features = conv.back().outputs() / 4;
  add(layers[3], shape.hidden, features);
  add(layers[4], shape.classes, shape.hidden);
  parameters = place;
}

std::unique_ptr<CnnBackend> make_cpu_backend(const CnnShape& shape, std::size_t samples_max) {
  return std::make_unique<CpuBackend>(shape, samples_max);
}

}  // namespace syncd::trainer
