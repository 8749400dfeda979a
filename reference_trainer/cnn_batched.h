// C3F2-Net (cnn_network.h) for devices that are fast when one function runs for very many places at
// once: every step is made for all samples of a batch together. The network is written once,
// against a Device that knows memory, products of matrices and "run this for every index"; a GPU is
// one (cuda/cuda_backend.cu), and the tests run the very same steps on the CPU, where they are held
// against the plain network. Used by one thread.
//
// A Device has
//   template <typename T> class Buffer;      // Buffer(Device&, count); T* data(): device memory
//   void copy_in(T* to, span<const T>);      // from host memory
//   void copy_out(span<T>, const T* from);   // to host memory; waits until everything is done
//   void clear(float* values, count);        // to 0
//   void for_each(count, function);          // function(i) for i in [0, count), in any order
//   void multiply(transpose_a, transpose_b, m, n, k, a, stride_a, b, stride_b, into, c, stride_c,
//                 products);                 // as in gemm.h; product p is at a + p * stride_a ...
// whose calls take effect one after the other.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "reference_trainer/cnn_network.h"
#include "reference_trainer/gemm.h"

#ifdef __CUDACC__
#define SYNCD_TRAINER_DEVICE __host__ __device__
#else
#define SYNCD_TRAINER_DEVICE
#endif

namespace syncd::trainer {

// ---- What is done at one index. Pointers are to device memory.

// One value of the patches [sample][patch][area] of images [sample][channel][row][column].
struct GatherPatches {
  ConvShape shape;
  const float* input;
  float* columns;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    const std::size_t sample = i / shape.columns();
    const std::size_t patch = i / shape.area() % shape.patch();
    const std::size_t place = i % shape.area();
    const std::size_t channel = patch / (shape.kernel * shape.kernel);
    // Beyond the upper or left border these wrap around to something very large.
    const std::size_t row = place / shape.width + patch / shape.kernel % shape.kernel - pad();
    const std::size_t column = place % shape.width + patch % shape.kernel - pad();
    const bool inside = row < shape.height && column < shape.width;
    const std::size_t from =
        sample * shape.inputs() + (channel * shape.height + row) * shape.width + column;
    columns[i] = inside ? input[from] : 0.0F;
  }

  SYNCD_TRAINER_DEVICE std::size_t pad() const { return shape.kernel / 2; }
};

// One value of the images: the sum of what it got through all patches that it is in. Gathered
// rather than scattered, so that nobody adds to the same place at once and the sum's order is
// fixed.
struct CollectPatches {
  ConvShape shape;
  const float* columns;
  float* input;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    const std::size_t sample = i / shape.inputs();
    const std::size_t channel = i / shape.area() % shape.channels_in;
    const std::size_t y = i % shape.area() / shape.width;
    const std::size_t x = i % shape.width;
    const std::size_t pad = shape.kernel / 2;
    const float* patches =
        columns + sample * shape.columns() + channel * shape.kernel * shape.kernel * shape.area();
    float sum = 0;
    for (std::size_t ky = 0; ky < shape.kernel; ++ky) {
      for (std::size_t kx = 0; kx < shape.kernel; ++kx, patches += shape.area()) {
        const std::size_t row = y + pad - ky;
        const std::size_t column = x + pad - kx;
        const bool inside = row < shape.height && column < shape.width;
        if (inside) sum += patches[row * shape.width + column];
      }
    }
    input[i] = sum;
  }
};

// [sample][channel][area] becomes the channel's bias.
struct FillBias {
  std::size_t channels;
  std::size_t area;
  const float* bias;
  float* output;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    output[i] = bias[i / area % channels];
  }
};

struct Rectify {
  float* values;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    values[i] = values[i] < 0 ? 0 : values[i];
  }
};

struct RectifyBackward {
  const float* output;
  float* derivative;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    if (output[i] == 0) derivative[i] = 0;
  }
};

// One output. Rows of all planes are counted through: each plane has an even number of them.
struct MaxPool {
  std::size_t width;  // of the input
  const float* input;
  float* output;
  std::uint8_t* chosen;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    const float* square = input + i / (width / 2) * 2 * width + i % (width / 2) * 2;
    std::uint8_t best = 0;
    float largest = square[0];
    for (std::uint8_t place = 1; place < 4; ++place) {
      const float value = square[place / 2 * width + place % 2];
      if (value > largest) {
        largest = value;
        best = place;
      }
    }
    output[i] = largest;
    chosen[i] = best;
  }
};

struct MaxPoolBackward {
  std::size_t width;  // of the input
  const float* d_output;
  const std::uint8_t* chosen;
  float* d_input;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    float* square = d_input + i / (width / 2) * 2 * width + i % (width / 2) * 2;
    for (std::uint8_t place = 0; place < 4; ++place) {
      square[place / 2 * width + place % 2] = place == chosen[i] ? d_output[i] : 0.0F;
    }
  }
};

// One sample: see cross_entropy() in cnn_layers.h.
struct CrossEntropy {
  std::size_t classes;
  const std::uint8_t* labels;
  float* scores;
  float* losses;   // one per sample
  float* correct;  // 1 or 0

  SYNCD_TRAINER_DEVICE void operator()(std::size_t sample) const {
    float* own = scores + sample * classes;
    std::size_t best = 0;
    for (std::size_t c = 1; c < classes; ++c) {
      if (own[c] > own[best]) best = c;
    }
    const float largest = own[best];
    const std::size_t label = labels[sample];
    const float of_label = own[label] - largest;
    float sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      own[c] = expf(own[c] - largest);
      sum += own[c];
    }
    losses[sample] = logf(sum) - of_label;
    correct[sample] = best == label ? 1.0F : 0.0F;
    for (std::size_t c = 0; c < classes; ++c) own[c] /= sum;
    own[label] -= 1.0F;
  }
};

// sums[i] = sum of [i][area]
struct SumOverArea {
  std::size_t area;
  const float* values;
  float* sums;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    float sum = 0;
    for (std::size_t place = 0; place < area; ++place) sum += values[i * area + place];
    sums[i] = sum;
  }
};

// total[i] += sum over samples of [sample][i]
struct AddOverSamples {
  std::size_t samples;
  std::size_t count;
  const float* values;
  float* total;

  SYNCD_TRAINER_DEVICE void operator()(std::size_t i) const {
    float sum = 0;
    for (std::size_t sample = 0; sample < samples; ++sample) sum += values[sample * count + i];
    total[i] += sum;
  }
};

// ---- The network

template <typename Device>
class BatchedCnn : public CnnBackend {
 public:
  // `layout` must be that of `shape`.
  BatchedCnn(Device device, const CnnShape& shape, const CnnLayout& layout, std::size_t samples_max)
      : device_(std::move(device)),
        layout_(layout),
        classes_(shape.classes),
        hidden_(shape.hidden),
        samples_max_(samples_max),
        parameters_(device_, layout.parameters),
        gradient_(device_, layout.parameters),
        images_(device_, samples_max * shape.pixels()),
        labels_(device_, samples_max),
        hidden_values_(device_, samples_max * shape.hidden),
        d_hidden_(device_, samples_max * shape.hidden),
        scores_(device_, samples_max * shape.classes),
        losses_(device_, samples_max),
        correct_(device_, samples_max),
        d_pooled_(device_, samples_max * largest(&ConvShape::outputs) / 4),
        d_next_(device_, samples_max * largest(&ConvShape::outputs) / 4),
        d_rectified_(device_, samples_max * largest(&ConvShape::outputs)),
        columns_(device_, samples_max * largest(&ConvShape::columns)),
        parts_(device_, samples_max * largest(&ConvShape::weights)),
        host_gradient_(layout.parameters),
        host_losses_(samples_max),
        host_correct_(samples_max) {
    for (const ConvShape& conv : layout_.conv) {
      blocks_.push_back({Floats(device_, samples_max * conv.outputs()),
                         Floats(device_, samples_max * conv.outputs() / 4),
                         Bytes(device_, samples_max * conv.outputs() / 4)});
    }
  }

  void parameters(std::span<const float> values) override {
    device_.copy_in(parameters_.data(), values);
  }

  void clear_gradient() override { device_.clear(gradient_.data(), layout_.parameters); }

  BatchScore train(std::span<const float> images, std::span<const std::uint8_t> labels) override {
    forward(images, labels);
    backward(labels.size());
    return score(labels.size());
  }

  BatchScore evaluate(std::span<const float> images,
                      std::span<const std::uint8_t> labels) override {
    forward(images, labels);
    return score(labels.size());
  }

  std::span<const float> gradient() override {
    device_.copy_out(std::span(host_gradient_), gradient_.data());
    return host_gradient_;
  }

 private:
  using Floats = typename Device::template Buffer<float>;
  using Bytes = typename Device::template Buffer<std::uint8_t>;

  struct Block {
    Floats rectified;
    Floats pooled;
    Bytes chosen;
  };

  std::size_t largest(std::size_t (ConvShape::*size)() const) const {
    std::size_t most = 0;
    for (const ConvShape& conv : layout_.conv) {
      if ((conv.*size)() > most) most = (conv.*size)();
    }
    return most;
  }

  const float* weights(std::size_t layer) const {
    return parameters_.data() + layout_.layers[layer].weights;
  }
  const float* bias(std::size_t layer) const {
    return parameters_.data() + layout_.layers[layer].bias;
  }
  float* d_weights(std::size_t layer) { return gradient_.data() + layout_.layers[layer].weights; }
  float* d_bias(std::size_t layer) { return gradient_.data() + layout_.layers[layer].bias; }

  const float* input_of(std::size_t block) const {
    return block == 0 ? images_.data() : blocks_[block - 1].pooled.data();
  }

  void gather(std::size_t block, std::size_t samples) {
    const ConvShape& conv = layout_.conv[block];
    device_.for_each(samples * conv.columns(),
                     GatherPatches{conv, input_of(block), columns_.data()});
  }

  void connect(std::size_t layer, std::size_t samples, std::size_t in, std::size_t out,
               const float* input, float* output) {
    device_.for_each(samples * out, FillBias{out, 1, bias(layer), output});
    device_.multiply(Transpose::kNo, Transpose::kYes, samples, out, in, input, 0, weights(layer), 0,
                     Into::kAdd, output, 0, 1);
  }

  void connect_backward(std::size_t layer, std::size_t samples, std::size_t in, std::size_t out,
                        const float* input, const float* d_output, float* d_input) {
    device_.multiply(Transpose::kYes, Transpose::kNo, out, in, samples, d_output, 0, input, 0,
                     Into::kAdd, d_weights(layer), 0, 1);
    device_.for_each(out, AddOverSamples{samples, out, d_output, d_bias(layer)});
    device_.multiply(Transpose::kNo, Transpose::kNo, samples, in, out, d_output, 0, weights(layer),
                     0, Into::kOverwrite, d_input, 0, 1);
  }

  void forward(std::span<const float> images, std::span<const std::uint8_t> labels) {
    const std::size_t samples = labels.size();
    if (samples > samples_max_ || images.size() != samples * layout_.conv[0].inputs()) {
      throw std::invalid_argument("a batch is larger than the backend was made for");
    }
    device_.copy_in(images_.data(), images);
    device_.copy_in(labels_.data(), labels);
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const ConvShape& conv = layout_.conv[i];
      Block& block = blocks_[i];
      float* rectified = block.rectified.data();
      gather(i, samples);
      device_.for_each(samples * conv.outputs(),
                       FillBias{conv.channels_out, conv.area(), bias(i), rectified});
      device_.multiply(Transpose::kNo, Transpose::kNo, conv.channels_out, conv.area(), conv.patch(),
                       weights(i), 0, columns_.data(), conv.columns(), Into::kAdd, rectified,
                       conv.outputs(), samples);
      device_.for_each(samples * conv.outputs(), Rectify{rectified});
      device_.for_each(samples * conv.outputs() / 4,
                       MaxPool{conv.width, rectified, block.pooled.data(), block.chosen.data()});
    }
    connect(3, samples, layout_.features, hidden_, blocks_.back().pooled.data(),
            hidden_values_.data());
    device_.for_each(samples * hidden_, Rectify{hidden_values_.data()});
    connect(4, samples, hidden_, classes_, hidden_values_.data(), scores_.data());
    device_.for_each(samples, CrossEntropy{classes_, labels_.data(), scores_.data(), losses_.data(),
                                           correct_.data()});
  }

  void backward(std::size_t samples) {
    connect_backward(4, samples, hidden_, classes_, hidden_values_.data(), scores_.data(),
                     d_hidden_.data());
    device_.for_each(samples * hidden_, RectifyBackward{hidden_values_.data(), d_hidden_.data()});
    connect_backward(3, samples, layout_.features, hidden_, blocks_.back().pooled.data(),
                     d_hidden_.data(), d_pooled_.data());
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      const ConvShape& conv = layout_.conv[i];
      const Block& block = blocks_[i];
      float* d_output = d_rectified_.data();
      device_.for_each(
          samples * conv.outputs() / 4,
          MaxPoolBackward{conv.width, d_pooled_.data(), block.chosen.data(), d_output});
      device_.for_each(samples * conv.outputs(), RectifyBackward{block.rectified.data(), d_output});
      convolve_backward(i, samples, d_output);
      std::swap(d_pooled_, d_next_);
    }
  }

  // The derivatives of block i's parameters, and those of its input into d_next_.
  void convolve_backward(std::size_t i, std::size_t samples, const float* d_output) {
    const ConvShape& conv = layout_.conv[i];
    gather(i, samples);
    device_.multiply(Transpose::kNo, Transpose::kYes, conv.channels_out, conv.patch(), conv.area(),
                     d_output, conv.outputs(), columns_.data(), conv.columns(), Into::kOverwrite,
                     parts_.data(), conv.weights(), samples);
    device_.for_each(conv.weights(),
                     AddOverSamples{samples, conv.weights(), parts_.data(), d_weights(i)});
    device_.for_each(samples * conv.channels_out,
                     SumOverArea{conv.area(), d_output, parts_.data()});
    device_.for_each(conv.channels_out,
                     AddOverSamples{samples, conv.channels_out, parts_.data(), d_bias(i)});
    if (i == 0) return;  // nobody asks for the derivatives of the images
    device_.multiply(Transpose::kYes, Transpose::kNo, conv.patch(), conv.area(), conv.channels_out,
                     weights(i), 0, d_output, conv.outputs(), Into::kOverwrite, columns_.data(),
                     conv.columns(), samples);
    device_.for_each(samples * conv.inputs(),
                     CollectPatches{conv, columns_.data(), d_next_.data()});
  }

  BatchScore score(std::size_t samples) {
    device_.copy_out(std::span(host_losses_).first(samples), losses_.data());
    device_.copy_out(std::span(host_correct_).first(samples), correct_.data());
    BatchScore result;
    for (std::size_t s = 0; s < samples; ++s) {
      result.loss_sum += double{host_losses_[s]};
      result.correct += host_correct_[s] != 0;
    }
    return result;
  }

  Device device_;
  CnnLayout layout_;
  std::size_t classes_;
  std::size_t hidden_;
  std::size_t samples_max_;
  Floats parameters_;
  Floats gradient_;
  Floats images_;
  Bytes labels_;
  std::vector<Block> blocks_;
  Floats hidden_values_;
  Floats d_hidden_;
  Floats scores_;
  Floats losses_;
  Floats correct_;
  Floats d_pooled_;     // of the block at hand
  Floats d_next_;       // of the block before it
  Floats d_rectified_;  // of the block at hand
  Floats columns_;
  Floats parts_;  // [sample]: what is still to be summed up over the samples
  std::vector<float> host_gradient_;
  std::vector<float> host_losses_;
  std::vector<float> host_correct_;
};

}  // namespace syncd::trainer
