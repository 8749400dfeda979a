// C3F2-Net on the CPU: see cnn_network.h. No thread of its own.
#include "reference_trainer/cnn_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

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

class CpuBackend : public CnnBackend {
 public:
  CpuBackend(const CnnShape& shape, std::size_t samples_max)
      : net_(shape, samples_max), gradient_(net_.layout().parameters) {}

  void parameters(std::span<const float> values) override { parameters_ = values; }

  void clear_gradient() override { std::fill(gradient_.begin(), gradient_.end(), 0.0F); }

  BatchScore train(std::span<const float> images, std::span<const std::uint8_t> labels) override {
    return net_.run(parameters_, images, labels, gradient_);
  }

  std::span<const float> gradient() override { return gradient_; }

  BatchScore evaluate(std::span<const float> images,
                      std::span<const std::uint8_t> labels) override {
    return net_.run(parameters_, images, labels, {});
  }

 private:
  CnnNet<float> net_;
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

template <typename T>
CnnNet<T>::CnnNet(const CnnShape& shape, std::size_t samples_max)
    : layout_(shape),
      classes_(shape.classes),
      hidden_(shape.hidden),
      samples_max_(samples_max),
      hidden_values_(samples_max * shape.hidden),
      scores_(samples_max * shape.classes),
      d_hidden_(samples_max * shape.hidden) {
  std::size_t outputs_max = 0;
  std::size_t columns_max = 0;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const ConvShape& conv = layout_.conv[i];
    blocks_[i].rectified.resize(samples_max * conv.outputs());
    blocks_[i].pooled.resize(samples_max * conv.outputs() / 4);
    blocks_[i].chosen.resize(samples_max * conv.outputs() / 4);
    outputs_max = std::max(outputs_max, conv.outputs());
    columns_max = std::max(columns_max, conv.columns());
  }
  d_pooled_.resize(samples_max * outputs_max / 4);
  d_next_.resize(d_pooled_.size());
  d_rectified_.resize(outputs_max);
  columns_.resize(columns_max);
}

template <typename T>
BatchScore CnnNet<T>::run(std::span<const T> parameters, std::span<const T> images,
                          std::span<const std::uint8_t> labels, std::span<T> gradient) {
  const std::size_t samples = labels.size();
  if (samples > samples_max_ || images.size() != samples * layout_.conv[0].inputs() ||
      parameters.size() != layout_.parameters ||
      (!gradient.empty() && gradient.size() != layout_.parameters)) {
    throw std::invalid_argument(fmt::format(
        "the network takes up to {} samples of {} values and {} parameters; got {} samples, {} "
        "values, {} parameters",
        samples_max_, layout_.conv[0].inputs(), layout_.parameters, samples, images.size(),
        parameters.size()));
  }
  forward(parameters.data(), images.data(), samples);
  const BatchScore score = cross_entropy(classes_, labels, scores_.data());
  if (!gradient.empty()) backward(parameters.data(), images.data(), samples, gradient.data());
  return score;
}

template <typename T>
void CnnNet<T>::forward(const T* parameters, const T* images, std::size_t samples) {
  const T* input = images;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const ConvShape& conv = layout_.conv[i];
    const CnnLayout::Layer& layer = layout_.layers[i];
    Block& block = blocks_[i];
    for (std::size_t s = 0; s < samples; ++s) {
      T* rectified = block.rectified.data() + s * conv.outputs();
      convolve(conv, parameters + layer.weights, parameters + layer.bias, input + s * conv.inputs(),
               rectified, columns_.data());
      rectify(std::span<T>(rectified, conv.outputs()));
      const std::size_t pooled = s * conv.outputs() / 4;
      max_pool(conv.channels_out, conv.height, conv.width, rectified, block.pooled.data() + pooled,
               block.chosen.data() + pooled);
    }
    input = block.pooled.data();
  }
  const CnnLayout::Layer& first = layout_.layers[3];
  const CnnLayout::Layer& second = layout_.layers[4];
  connect(samples, layout_.features, hidden_, parameters + first.weights, parameters + first.bias,
          input, hidden_values_.data());
  rectify(std::span<T>(hidden_values_.data(), samples * hidden_));
  connect(samples, hidden_, classes_, parameters + second.weights, parameters + second.bias,
          hidden_values_.data(), scores_.data());
}

template <typename T>
void CnnNet<T>::backward(const T* parameters, const T* images, std::size_t samples, T* gradient) {
  const CnnLayout::Layer& first = layout_.layers[3];
  const CnnLayout::Layer& second = layout_.layers[4];
  connect_backward(samples, hidden_, classes_, parameters + second.weights, hidden_values_.data(),
                   scores_.data(), gradient + second.weights, gradient + second.bias,
                   d_hidden_.data());
  rectify_backward(std::span<const T>(hidden_values_.data(), samples * hidden_),
                   std::span<T>(d_hidden_.data(), samples * hidden_));
  connect_backward(samples, layout_.features, hidden_, parameters + first.weights,
                   blocks_[2].pooled.data(), d_hidden_.data(), gradient + first.weights,
                   gradient + first.bias, d_pooled_.data());
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const ConvShape& conv = layout_.conv[i];
    const CnnLayout::Layer& layer = layout_.layers[i];
    const Block& block = blocks_[i];
    const T* input = i > 0 ? blocks_[i - 1].pooled.data() : images;
    for (std::size_t s = 0; s < samples; ++s) {
      const std::size_t pooled = s * conv.outputs() / 4;
      max_pool_backward(conv.channels_out, conv.height, conv.width, d_pooled_.data() + pooled,
                        block.chosen.data() + pooled, d_rectified_.data());
      rectify_backward(
          std::span<const T>(block.rectified.data() + s * conv.outputs(), conv.outputs()),
          std::span<T>(d_rectified_.data(), conv.outputs()));
      // The derivatives of this block's input are the pooled ones of the block before.
      T* d_input = i > 0 ? d_next_.data() + s * conv.inputs() : nullptr;
      convolve_backward(conv, parameters + layer.weights, input + s * conv.inputs(),
                        d_rectified_.data(), gradient + layer.weights, gradient + layer.bias,
                        d_input, columns_.data());
    }
    std::swap(d_pooled_, d_next_);
  }
}

template class CnnNet<float>;
template class CnnNet<double>;

}  // namespace syncd::trainer
