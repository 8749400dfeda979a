// C3F2-Net (cnn_network.h), written once for all devices, against a Device (device_steps.h): a GPU,
// which is fast when one function runs for very many places at once, and the CPU. Every step is
// made for all samples of a batch together, or for as many as the device takes at a time. Used by
// one thread.
//
// What lies behind a convolution is ordered [channel][sample][place], so that each convolution is
// one product of matrices for all these samples, and so is the gradient of its weights. Bias,
// rectifier and pool are one step in each direction: of four values of which none is positive the
// pool chooses none, and only the chosen one has a derivative.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/device_steps.h"
#include "reference_trainer/model/gemm.h"

namespace syncd::trainer {

// A convolution for one number of samples, in the arithmetic of a device.
struct BatchedConv {
  BatchedConv(const ConvShape& shape, std::size_t sample_count)
      : channels_in(static_cast<Index>(shape.channels_in)),
        channels_out(static_cast<Index>(shape.channels_out)),
        patch(static_cast<Index>(shape.patch())),
        height(static_cast<Index>(shape.height)),
        area(shape.area()),
        width(shape.width),
        kernel(shape.kernel),
        window(shape.kernel * shape.kernel),
        pooled_width(shape.width / 2),
        pooled_area(shape.area() / 4),
        samples(sample_count) {}

  Index channels_in;
  Index channels_out;
  Index patch;
  Index height;
  Divider area;
  Divider width;
  Divider kernel;
  Divider window;  // places of a kernel
  Divider pooled_width;
  Divider pooled_area;
  Divider samples;

  std::size_t in() const { return std::size_t{channels_in} * planes(); }
  std::size_t out() const { return std::size_t{channels_out} * planes(); }
  std::size_t pooled() const { return out() / 4; }
  std::size_t columns() const { return std::size_t{patch} * planes(); }
  std::size_t planes() const { return std::size_t{samples.divisor()} * area.divisor(); }
};

// Where a convolution finds what goes in, in device memory: images, [sample][channel][place], or
// what lies behind a pool, [channel][sample][place].
struct Planes {
  const float* values;
  std::size_t from_channel;  // to the next
  std::size_t from_sample;

  SYNCD_TRAINER_DEVICE const float* plane(Index channel, Index sample) const {
    return values + channel * from_channel + sample * from_sample;
  }
};

// Stored bytes, of which some images are taken, as the network takes them.
struct NormalizeImages {
  const std::uint8_t* pixels;  // [image][channel][place]
  const Index* order;          // of the images
  const Index* chosen;         // the samples' places in it
  const float* normal;         // [channel][256]: what each byte means
  float* images;               // [sample][channel][place]

  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    const Index sample = i / kImageBytes;
    const Index within = i % kImageBytes;
    const std::uint8_t* stored = pixels + std::size_t{order[chosen[sample]]} * kImageBytes;
    images[i] = normal[within / kImageArea * 256 + stored[within]];
  }
};

struct ChooseLabels {
  const std::uint8_t* labels;  // [image]
  const Index* order;
  const Index* chosen;
  std::uint8_t* to;

  SYNCD_TRAINER_DEVICE void operator()(Index sample) const {
    to[sample] = labels[order[chosen[sample]]];
  }
};

// ---- What is done at one place
//
// Where places lie in planes, plane() does all of one, for a device that does one place after the
// other: what they have in common is worked out once, and the inner loops run along rows. It
// computes the same values, bit by bit.

// The places [first, last) of a row that have a neighbour so many columns to the right.
struct Reach {
  std::ptrdiff_t first;
  std::ptrdiff_t last;

  SYNCD_TRAINER_DEVICE Reach(std::ptrdiff_t right, std::ptrdiff_t width)
      : first(right < 0 ? -right : 0), last(right > 0 ? width - right : width) {
    if (first > width) first = width;
    if (last < first) last = first;
  }
};

// One value of the patches [patch][sample][place].
struct GatherPatches {
  BatchedConv conv;
  Planes source;
  float* columns;

  // What all places of a plane [patch][sample] have in common. Beyond the upper or left border,
  // what is below or right by these wraps around to something very large.
  struct Patch {
    Index channel;
    Index sample;
    Index below;
    Index right;

    SYNCD_TRAINER_DEVICE Patch(const BatchedConv& conv, Index plane) {
      const Index patch = conv.samples.divide(plane);
      sample = plane - patch * conv.samples.divisor();
      channel = conv.window.divide(patch);
      const Index within = patch - channel * conv.window.divisor();
      const Index ky = conv.kernel.divide(within);
      below = ky - conv.kernel.divisor() / 2;
      right = within - ky * conv.kernel.divisor() - conv.kernel.divisor() / 2;
    }
  };

  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    const Index width = conv.width.divisor();
    const Index plane = conv.area.divide(i);
    const Index place = i - plane * conv.area.divisor();
    const Patch patch(conv, plane);
    const Index y = conv.width.divide(place);
    const Index row = y + patch.below;
    const Index column = place - y * width + patch.right;
    const bool inside = row < conv.height && column < width;
    columns[i] = inside ? source.plane(patch.channel, patch.sample)[row * width + column] : 0.0F;
  }

  SYNCD_TRAINER_DEVICE Index planes() const { return conv.patch * conv.samples.divisor(); }
  SYNCD_TRAINER_DEVICE void plane(Index at) const {
    const Index width = conv.width.divisor();
    const Patch patch(conv, at);
    const float* from = source.plane(patch.channel, patch.sample);
    const std::ptrdiff_t right = static_cast<std::int32_t>(patch.right);
    const Reach reach(right, width);
    float* to = columns + std::size_t{at} * conv.area.divisor();
    for (Index y = 0; y < conv.height; ++y, to += width) {
      const Index row = y + patch.below;
      if (row >= conv.height) {
        for (Index x = 0; x < width; ++x) to[x] = 0;
        continue;
      }
      const std::ptrdiff_t first = std::ptrdiff_t{row} * width + right;
      for (std::ptrdiff_t x = 0; x < reach.first; ++x) to[x] = 0;
      for (std::ptrdiff_t x = reach.first; x < reach.last; ++x) {
        to[x] = from[static_cast<std::size_t>(first + x)];
      }
      for (std::ptrdiff_t x = reach.last; x < width; ++x) to[x] = 0;
    }
  }
};

// One value of what went in, [channel][sample][place]: the sum of what it got through all patches
// that it is in. Gathered rather than scattered, so that nobody adds to the same place at once and
// the sum's order is fixed.
struct CollectPatches {
  BatchedConv conv;
  const float* columns;
  float* input;

  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    const Index width = conv.width.divisor();
    const Index plane = conv.area.divide(i);
    const Index place = i - plane * conv.area.divisor();
    const Index y = conv.width.divide(place);
    const Index x = place - y * width;
    float sum = 0;
    for_each_patch(plane, [&](const float* patches, Index below, Index right) {
      const Index row = y + below;
      const Index column = x + right;
      if (row < conv.height && column < width) sum += patches[row * width + column];
    });
    input[i] = sum;
  }

  SYNCD_TRAINER_DEVICE Index planes() const { return conv.channels_in * conv.samples.divisor(); }
  SYNCD_TRAINER_DEVICE void plane(Index at) const {
    const Index width = conv.width.divisor();
    float* sums = input + std::size_t{at} * conv.area.divisor();
    for (Index i = 0; i < conv.area.divisor(); ++i) sums[i] = 0;
    for_each_patch(at, [&](const float* patches, Index below, Index wrapped) {
      const std::ptrdiff_t right = static_cast<std::int32_t>(wrapped);
      const Reach reach(right, width);
      float* to = sums;
      for (Index y = 0; y < conv.height; ++y, to += width) {
        const Index row = y + below;
        if (row >= conv.height) continue;
        const float* from = patches + (std::ptrdiff_t{row} * width + right);
        for (std::ptrdiff_t x = reach.first; x < reach.last; ++x) to[x] += from[x];
      }
    });
  }

  // visit(the patches' plane, and how far below and right in it a place is found), for all patches
  // that a plane's places are in. Beyond the upper or left border, the latter wrap around to
  // something very large.
  template <typename Visit>
  SYNCD_TRAINER_DEVICE void for_each_patch(Index plane, const Visit& visit) const {
    const Index channel = conv.samples.divide(plane);
    const Index sample = plane - channel * conv.samples.divisor();
    const Index kernel = conv.kernel.divisor();
    const Index step = conv.samples.divisor() * conv.area.divisor();
    const float* patches = columns + std::size_t{channel} * conv.window.divisor() * step +
                           sample * conv.area.divisor();
    for (Index ky = 0; ky < kernel; ++ky) {
      for (Index kx = 0; kx < kernel; ++kx, patches += step) {
        visit(patches, kernel / 2 - ky, kernel / 2 - kx);
      }
    }
  }
};

// Where the pooled values of a convolution lie: [channel][sample][place], or for the last one
// [sample][channel][place], as the fully connected layers take them.
struct PooledPlace {
  BatchedConv conv;
  bool by_sample;

  SYNCD_TRAINER_DEVICE Index plane(Index i) const { return conv.pooled_area.divide(i); }
  SYNCD_TRAINER_DEVICE Index channel(Index i) const { return conv.samples.divide(plane(i)); }

  // The place of the i-th value, counted by [channel][sample][place].
  SYNCD_TRAINER_DEVICE Index operator()(Index i) const {
    if (!by_sample) return i;
    const Index place = i - plane(i) * conv.pooled_area.divisor();
    const Index sample = plane(i) - channel(i) * conv.samples.divisor();
    return (sample * conv.channels_out + channel(i)) * conv.pooled_area.divisor() + place;
  }

  // The first of the four values in front of the pool that the i-th one is made of.
  SYNCD_TRAINER_DEVICE Index square(Index i) const {
    const Index place = i - plane(i) * conv.pooled_area.divisor();
    const Index y = conv.pooled_width.divide(place);
    const Index x = place - y * conv.pooled_width.divisor();
    return plane(i) * conv.area.divisor() + 2 * y * conv.width.divisor() + 2 * x;
  }
};

inline constexpr std::uint8_t kNoneChosen = 4;

// One pooled value, from the four products it is made of.
struct BiasRectifyPool {
  PooledPlace place;
  const float* products;
  const float* bias;
  float* pooled;
  std::uint8_t* chosen;

  // The largest of four, the first of equals; of NaNs alone one is left. Without a branch, which a
  // CPU would guess wrong half of the time.
  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    const float* upper = products + place.square(i);
    const float* lower = upper + place.conv.width.divisor();
    const float above = upper[1] > upper[0] ? upper[1] : upper[0];
    const float below = lower[1] > lower[0] ? lower[1] : lower[0];
    const float largest = below > above ? below : above;
    const float sum = largest + bias[place.channel(i)];
    // How many of the first three are not it.
    const int not_0 = upper[0] != largest;
    const int not_1 = (upper[1] != largest) & not_0;
    const int not_2 = (lower[0] != largest) & not_1;
    const int none = sum <= 0;
    pooled[place(i)] = sum < 0 ? 0 : sum;
    chosen[i] =
        static_cast<std::uint8_t>(none * kNoneChosen + (1 - none) * (not_0 + not_1 + not_2));
  }
};

// The derivatives of the four products.
struct PoolRectifyBackward {
  PooledPlace place;
  const float* d_pooled;
  const std::uint8_t* chosen;
  float* d_products;

  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    float* upper = d_products + place.square(i);
    float* lower = upper + place.conv.width.divisor();
    const float derivative = d_pooled[place(i)];
    upper[0] = chosen[i] == 0 ? derivative : 0.0F;
    upper[1] = chosen[i] == 1 ? derivative : 0.0F;
    lower[0] = chosen[i] == 2 ? derivative : 0.0F;
    lower[1] = chosen[i] == 3 ? derivative : 0.0F;
  }
};

// Adds the derivative of each channel's bias.
struct ConvBiasGradient {
  PooledPlace place;
  const float* d_pooled;
  const std::uint8_t* chosen;
  float* d_bias;

  SYNCD_TRAINER_DEVICE Index terms(Index) const {
    return place.conv.samples.divisor() * place.conv.pooled_area.divisor();
  }
  SYNCD_TRAINER_DEVICE float operator()(Index channel, Index t) const {
    const Index i = channel * terms(channel) + t;
    return chosen[i] == kNoneChosen ? 0.0F : d_pooled[place(i)];
  }
  SYNCD_TRAINER_DEVICE void store(Index channel, float sum) const { d_bias[channel] += sum; }
};

// [sample][out], in place.
struct BiasRectify {
  Divider out;
  const float* bias;
  float* values;

  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    const float value = values[i] + bias[out.rest(i)];
    values[i] = value < 0 ? 0 : value;
  }
};

// Goes back through the rectifier, in place, and adds the derivative of each output's bias.
struct RectifyBackward {
  Index samples;
  Index out;
  const float* values;
  float* derivatives;
  float* d_bias;

  SYNCD_TRAINER_DEVICE Index terms(Index) const { return samples; }
  SYNCD_TRAINER_DEVICE float operator()(Index i, Index sample) const {
    const Index at = sample * out + i;
    const float derivative = values[at] == 0 ? 0 : derivatives[at];
    derivatives[at] = derivative;
    return derivative;
  }
  SYNCD_TRAINER_DEVICE void store(Index i, float sum) const { d_bias[i] += sum; }
};

// One sample: softmax and cross-entropy of its scores, which are replaced by the loss's
// derivatives.
struct CrossEntropy {
  Index classes;
  const std::uint8_t* labels;
  const float* bias;
  float* scores;
  float* losses;          // one per sample
  std::uint8_t* correct;  // 1 or 0

  SYNCD_TRAINER_DEVICE void operator()(Index sample) const {
    float* own = scores + sample * classes;
    Index best = 0;
    for (Index c = 0; c < classes; ++c) {
      own[c] += bias[c];
      if (own[c] > own[best]) best = c;
    }
    const float largest = own[best];
    const Index label = labels[sample];
    const float of_label = own[label] - largest;
    float sum = 0;
    for (Index c = 0; c < classes; ++c) {
      own[c] = expf(own[c] - largest);
      sum += own[c];
    }
    losses[sample] = logf(sum) - of_label;
    correct[sample] = best == label ? 1 : 0;
    for (Index c = 0; c < classes; ++c) own[c] /= sum;
    own[label] -= 1.0F;
  }
};

// ---- The network

// Its memory and its steps, for batches of up to `samples_max`.
template <typename Device>
class CnnSteps {
 public:
  // `layout` must be that of `shape`.
  CnnSteps(Device& device, const CnnShape& shape, const CnnLayout& layout, std::size_t samples_max)
      : layout_(layout),
        classes_(shape.classes),
        hidden_(shape.hidden),
        samples_max_(samples_max),
        blocks_{make_block(device, 0), make_block(device, 1), make_block(device, 2)},
        products_(device, slice_of(samples_max) * largest(&ConvShape::outputs)),
        hidden_values_(device, samples_max * shape.hidden),
        d_hidden_(device, samples_max * shape.hidden),
        scores_(device, samples_max * shape.classes),
        losses_(device, samples_max),
        correct_(device, samples_max),
        d_pooled_(device, samples_max * largest(&ConvShape::outputs) / 4),
        d_next_(device, samples_max * largest(&ConvShape::outputs) / 4) {
    if (slice_of(samples_max) * largest(&ConvShape::columns) > kCountMax) {
      throw std::invalid_argument("a batch is larger than a device counts");
    }
  }

  const CnnLayout& layout() const { return layout_; }
  const float* losses() const { return losses_.data(); }
  const std::uint8_t* correct() const { return correct_.data(); }

  // Leaves the scores' derivatives behind for backward(), and losses() and correct(). The images'
  // values are those that the network takes, [sample][channel][place].
  void forward(Device& device, const float* parameters, const float* images,
               const std::uint8_t* labels, std::size_t samples) {
    convolve(device, parameters, images, samples);
    score(device, parameters, labels, samples);
  }

  // Adds what the samples of the latest forward() say.
  void backward(Device& device, const float* parameters, const float* images, float* gradient,
                std::size_t samples) {
    connected_backward(device, parameters, gradient, samples);
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      convolve_backward(device, parameters, images, gradient, i, samples);
    }
  }

  // ---- The same in smaller steps: forward() is the first two, backward() the others.

  // The convolutions.
  void convolve(Device& device, const float* parameters, const float* images, std::size_t samples) {
    if (samples > samples_max_) {
      throw std::invalid_argument("a batch is larger than the network was made for");
    }
    for_each_slice(samples, [&](std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < blocks_.size(); ++i) {
        const BatchedConv conv(layout_.conv[i], count);
        const Slice own = slice(i, first);
        gather(device, conv, images, i, first);
        device.multiply(Transpose::kNo, Transpose::kNo, conv.channels_out, conv.planes(),
                        conv.patch, parameters + layout_.layers[i].weights, own.columns,
                        Into::kOverwrite, products_.data());
        device.for_each(conv.pooled(), BiasRectifyPool{pooled_place(conv, i), products_.data(),
                                                       parameters + layout_.layers[i].bias,
                                                       own.pooled, own.chosen});
      }
    });
  }

  // What is behind them.
  void score(Device& device, const float* parameters, const std::uint8_t* labels,
             std::size_t samples) {
    connect(device, parameters, 3, samples, layout_.features, hidden_, blocks_.back().pooled.data(),
            hidden_values_.data());
    device.for_each(
        samples * hidden_,
        BiasRectify{Divider(hidden_), parameters + layout_.layers[3].bias, hidden_values_.data()});
    connect(device, parameters, 4, samples, hidden_, classes_, hidden_values_.data(),
            scores_.data());
    device.for_each(samples, CrossEntropy{static_cast<Index>(classes_), labels,
                                          parameters + layout_.layers[4].bias, scores_.data(),
                                          losses_.data(), correct_.data()});
  }

  // Back through these; adds their gradient.
  void connected_backward(Device& device, const float* parameters, float* gradient,
                          std::size_t samples) {
    const auto rows = static_cast<Index>(samples);
    connect_backward(device, parameters, gradient, 4, samples, hidden_, classes_,
                     hidden_values_.data(), scores_.data(), d_hidden_.data());
    device.reduce(classes_, samples,
                  AddRows{rows, static_cast<Index>(classes_), scores_.data(),
                          gradient + layout_.layers[4].bias});
    device.reduce(hidden_, samples,
                  RectifyBackward{rows, static_cast<Index>(hidden_), hidden_values_.data(),
                                  d_hidden_.data(), gradient + layout_.layers[3].bias});
    connect_backward(device, parameters, gradient, 3, samples, layout_.features, hidden_,
                     blocks_.back().pooled.data(), d_hidden_.data(), d_pooled_.data());
  }

  // Back through one convolution, from the last (2) to the first (0); adds its gradient.
  void convolve_backward(Device& device, const float* parameters, const float* images,
                         float* gradient, std::size_t i, std::size_t samples) {
    const CnnLayout::Layer& layer = layout_.layers[i];
    for_each_slice(samples, [&](std::size_t first, std::size_t count) {
      const BatchedConv conv(layout_.conv[i], count);
      const Slice own = slice(i, first);
      const PooledPlace place = pooled_place(conv, i);
      if constexpr (!Device::kKeepsPatches) gather(device, conv, images, i, first);
      const float* d_pooled = d_pooled_.data() + first * layout_.conv[i].outputs() / 4;
      device.for_each(conv.pooled(),
                      PoolRectifyBackward{place, d_pooled, own.chosen, products_.data()});
      device.reduce(conv.channels_out, conv.pooled() / conv.channels_out,
                    ConvBiasGradient{place, d_pooled, own.chosen, gradient + layer.bias});
      device.multiply(Transpose::kNo, Transpose::kYes, conv.channels_out, conv.patch, conv.planes(),
                      products_.data(), own.columns, Into::kAdd, gradient + layer.weights);
      if (i == 0) return;  // nobody asks for the derivatives of the images
      // The patches have done their work; their derivatives take their place.
      device.multiply(Transpose::kYes, Transpose::kNo, conv.patch, conv.planes(), conv.channels_out,
                      parameters + layer.weights, products_.data(), Into::kOverwrite, own.columns);
      device.for_each(conv.in(), CollectPatches{conv, own.columns,
                                                d_next_.data() + first * layout_.conv[i].inputs()});
    });
    std::swap(d_pooled_, d_next_);
  }

 private:
  using Floats = typename Device::template Buffer<float>;
  using Bytes = typename Device::template Buffer<std::uint8_t>;

  struct Block {
    Floats columns;
    Floats pooled;
    Bytes chosen;
  };

  // Where the values of some samples begin.
  struct Slice {
    float* columns;
    float* pooled;
    std::uint8_t* chosen;
  };

  Slice slice(std::size_t block, std::size_t first) {
    const ConvShape& conv = layout_.conv[block];
    return {blocks_[block].columns.data() + (Device::kKeepsPatches ? first * conv.columns() : 0),
            blocks_[block].pooled.data() + first * conv.outputs() / 4,
            blocks_[block].chosen.data() + first * conv.outputs() / 4};
  }

  // Of so many samples, how many the device's convolutions take at a time.
  static std::size_t slice_of(std::size_t samples) {
    return std::min(samples, Device::kSamplesAtOnce);
  }
  template <typename Visit>
  static void for_each_slice(std::size_t samples, const Visit& visit) {
    for (std::size_t first = 0; first < samples; first += Device::kSamplesAtOnce) {
      visit(first, slice_of(samples - first));
    }
  }

  Block make_block(Device& device, std::size_t i) const {
    const ConvShape& conv = layout_.conv[i];
    const std::size_t patches = Device::kKeepsPatches ? samples_max_ : slice_of(samples_max_);
    return {Floats(device, patches * conv.columns()),
            Floats(device, samples_max_ * conv.outputs() / 4),
            Bytes(device, samples_max_ * conv.outputs() / 4)};
  }

  std::size_t largest(std::size_t (ConvShape::*size)() const) const {
    std::size_t most = 0;
    for (const ConvShape& conv : layout_.conv) {
      if ((conv.*size)() > most) most = (conv.*size)();
    }
    return most;
  }

  PooledPlace pooled_place(const BatchedConv& conv, std::size_t block) const {
    return {conv, block + 1 == blocks_.size()};
  }

  // The patches of some samples in front of a convolution.
  void gather(Device& device, const BatchedConv& conv, const float* images, std::size_t block,
              std::size_t first) {
    const std::size_t area = conv.area.divisor();
    Planes source{images + first * conv.channels_in * area, area, conv.channels_in * area};
    if (block > 0) {
      source = {slice(block - 1, first).pooled, conv.samples.divisor() * area, area};
    }
    device.for_each(conv.columns(), GatherPatches{conv, source, slice(block, first).columns});
  }

  void connect(Device& device, const float* parameters, std::size_t layer, std::size_t samples,
               std::size_t in, std::size_t out, const float* input, float* output) {
    device.multiply(Transpose::kNo, Transpose::kYes, samples, out, in, input,
                    parameters + layout_.layers[layer].weights, Into::kOverwrite, output);
  }

  // But for the bias.
  void connect_backward(Device& device, const float* parameters, float* gradient, std::size_t layer,
                        std::size_t samples, std::size_t in, std::size_t out, const float* input,
                        const float* d_output, float* d_input) {
    const std::size_t weights = layout_.layers[layer].weights;
    device.multiply(Transpose::kYes, Transpose::kNo, out, in, samples, d_output, input, Into::kAdd,
                    gradient + weights);
    device.multiply(Transpose::kNo, Transpose::kNo, samples, in, out, d_output,
                    parameters + weights, Into::kOverwrite, d_input);
  }

  CnnLayout layout_;
  std::size_t classes_;
  std::size_t hidden_;
  std::size_t samples_max_;
  std::array<Block, 3> blocks_;
  Floats products_;  // of the block at hand, then their derivatives
  Floats hidden_values_;
  Floats d_hidden_;
  Floats scores_;
  Floats losses_;
  Bytes correct_;
  Floats d_pooled_;  // of the block at hand
  Floats d_next_;    // of the block before it
};

// What the samples' losses, and whether they are right, come to.
inline BatchScore sum_up(std::span<const float> losses, std::span<const std::uint8_t> correct) {
  BatchScore sum;
  for (const float loss : losses) sum.loss_sum += double{loss};
  for (const std::uint8_t right : correct) sum.correct += right;
  return sum;
}

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

// The network for stored images: see device_model.h. Its four stages, of about ten
// kernels each: forwards through the convolutions; forwards and backwards through what is behind
// them; backwards through the last convolution; backwards through the others.
template <typename Device>
class CnnModel {
 public:
  static constexpr int kStages = 4;
  static constexpr Index kTouchedBlock = 0;

  // The images as bytes, as they were read, and the samples' order.
  struct Data {
    Data(Device& device, const StepperRequest& request)
        : pixels(sent(device, request.images.all_pixels)),
          labels(sent(device, request.images.labels)),
          order(sent(device, request.images.order)),
          normal(device, kImageChannels * 256) {
      const NormalPixels table = normal_pixels(request.images);
      for (std::size_t c = 0; c < kImageChannels; ++c) {
        device.copy_in(normal.data() + c * 256, std::span<const float>(table[c]));
      }
    }

    Sent<Device, std::uint8_t> pixels;
    Sent<Device, std::uint8_t> labels;
    Sent<Device, Index> order;
    typename Device::template Buffer<float> normal;
  };

  CnnModel(Device& device, const StepperRequest& request, std::shared_ptr<const Data> data,
           std::size_t samples_max)
      : data_(std::move(data)),
        steps_(device, request.shape, *request.layout, samples_max),
        images_(device, samples_max * kImageBytes),
        labels_(device, samples_max) {}

  static SgdRule rule(const StepperRequest& request) {
    SgdRule rule{.scale = 1.0F / static_cast<float>(request.config.batch),
                 .momentum = static_cast<float>(request.config.momentum),
                 .weight_decay = static_cast<float>(request.config.weight_decay)};
    for (std::size_t i = 0; i < request.layout->layers.size(); ++i) {
      const CnnLayout::Layer& layer = request.layout->layers[i];
      rule.decayed[i] = {.first = layer.weights, .count = layer.weight_count};
    }
    return rule;
  }
  static std::size_t parameters(const StepperRequest& request) {
    return request.layout->parameters;
  }
  static std::size_t training(const StepperRequest& request) { return request.images.training; }
  static double loss(double sum, double samples) { return sum / samples; }

  void compute(Device& device, int stage, const DevicePart& part) {
    const std::size_t samples = part.samples;
    const auto count = static_cast<Index>(samples);
    switch (stage) {
      case 0:
        load(device, part);
        steps_.convolve(device, part.replica, images_.data(), samples);
        return;
      case 1:
        steps_.score(device, part.replica, labels_.data(), samples);
        device.reduce(1, samples,
                      AddLosses<typename Device::Real>{count, steps_.losses(), part.loss});
        steps_.connected_backward(device, part.replica, part.gradient, samples);
        return;
      case 2:
        steps_.convolve_backward(device, part.replica, images_.data(), part.gradient, 2, samples);
        return;
      default:
        steps_.convolve_backward(device, part.replica, images_.data(), part.gradient, 1, samples);
        steps_.convolve_backward(device, part.replica, images_.data(), part.gradient, 0, samples);
    }
  }

  // Of a part, without a gradient; waits.
  BatchScore score(Device& device, const DevicePart& part) {
    load(device, part);
    steps_.forward(device, part.replica, images_.data(), labels_.data(), part.samples);
    std::vector<float> losses(part.samples);
    std::vector<std::uint8_t> correct(part.samples);
    device.copy_out(std::span(losses), steps_.losses());
    device.copy_out(std::span(correct), steps_.correct());
    return sum_up(losses, correct);
  }

 private:
  // The part's images and labels, as the network takes them.
  void load(Device& device, const DevicePart& part) {
    device.for_each(part.samples * kImageBytes,
                    NormalizeImages{data_->pixels.data(), data_->order.data(), part.chosen,
                                    data_->normal.data(), images_.data()});
    device.for_each(part.samples, ChooseLabels{data_->labels.data(), data_->order.data(),
                                               part.chosen, labels_.data()});
  }

  std::shared_ptr<const Data> data_;
  CnnSteps<Device> steps_;
  typename Device::template Buffer<float> images_;
  typename Device::template Buffer<std::uint8_t> labels_;
};

}  // namespace syncd::trainer
