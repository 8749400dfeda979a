// The sizes of C3F2-Net, and what is computed on the CPU: see cnn_network.h and backends.h. The
// build always optimizes this file, whose loops a compiler can vectorize. No thread of its own.
#include "reference_trainer/model/cnn_network.h"

#include <fmt/format.h>

#include <stdexcept>

#include "reference_trainer/model/backends.h"
#include "reference_trainer/model/cpu_device.h"
#include "reference_trainer/model/device_steppers.h"

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

std::unique_ptr<Stepper> make_cpu_stepper(const StepperRequest& request) {
  return make_device_stepper(CpuDevice(), request);
}

}  // namespace syncd::trainer
