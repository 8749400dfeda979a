// The sizes of C3F2-Net, and what is computed on the CPU: see cnn_network.h and backends.h. The
// build always optimizes this file, whose loops a compiler can vectorize. No thread of its own.
#include "reference_trainer/model/cnn_network.h"

#include "reference_trainer/model/backends.h"
#include "reference_trainer/model/cpu_device.h"
#include "reference_trainer/model/device_steppers.h"

namespace syncd::trainer {
CnnLayout::CnnLayout(const CnnShape& shape) {
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
