// Layers: see cnn_layers.h. No thread of its own.
#include "reference_trainer/cnn_layers.h"

#include <algorithm>
#include <cmath>

#include "reference_trainer/gemm.h"

namespace syncd::trainer {
namespace {

// The part of a row of outputs that an input row shifted by `shift` reaches: [first, last).
struct Reach {
  std::size_t first;
  std::size_t last;

  Reach(std::ptrdiff_t shift, std::size_t size) {
    const auto n = static_cast<std::ptrdiff_t>(size);
    first = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(-shift, 0, n));
    last = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(n - shift, 0, n));
    last = std::max(first, last);
  }
};

// Calls visit(columns row, input row, reach, shift) for every row of outputs and every place in the
// kernel; the input row is null where it lies in the padding.
template <typename Column, typename Input, typename Visit>
void for_each_row(const ConvShape& shape, Column* columns, Input* input, Visit&& visit) {
  const auto pad = static_cast<std::ptrdiff_t>(shape.kernel / 2);
  for (std::size_t c = 0; c < shape.channels_in; ++c) {
    for (std::size_t ky = 0; ky < shape.kernel; ++ky) {
      for (std::size_t kx = 0; kx < shape.kernel; ++kx) {
        const auto shift_x = static_cast<std::ptrdiff_t>(kx) - pad;
        const Reach reach(shift_x, shape.width);
        for (std::size_t y = 0; y < shape.height; ++y, columns += shape.width) {
          const auto row = static_cast<std::ptrdiff_t>(y + ky) - pad;
          const bool inside = row >= 0 && row < static_cast<std::ptrdiff_t>(shape.height);
          Input* from =
              inside ? input + (c * shape.height + static_cast<std::size_t>(row)) * shape.width
                     : nullptr;
          visit(columns, from, reach, shift_x);
        }
      }
    }
  }
}

// im2col: columns [patch][area].
template <typename T>
void gather_patches(const ConvShape& shape, const T* input, T* columns) {
  for_each_row(shape, columns, input,
               [&](T* to, const T* from, const Reach& reach, std::ptrdiff_t shift) {
                 if (from == nullptr) {
                   std::fill_n(to, shape.width, T{0});
                   return;
                 }
                 std::fill_n(to, reach.first, T{0});
                 const T* begin = from + (static_cast<std::ptrdiff_t>(reach.first) + shift);
                 std::copy_n(begin, reach.last - reach.first, to + reach.first);
                 std::fill_n(to + reach.last, shape.width - reach.last, T{0});
               });
}

// col2im: the sum of what each input pixel got through the patches that it is in.
template <typename T>
void scatter_patches(const ConvShape& shape, const T* columns, T* input) {
  std::fill_n(input, shape.inputs(), T{0});
  for_each_row(shape, columns, input,
               [](const T* from, T* to, const Reach& reach, std::ptrdiff_t shift) {
                 if (to == nullptr) return;
                 T* begin = to + (static_cast<std::ptrdiff_t>(reach.first) + shift);
                 const T* source = from + reach.first;
                 for (std::size_t i = 0; i < reach.last - reach.first; ++i) begin[i] += source[i];
               });
}

}  // namespace

template <typename T>
void convolve(const ConvShape& shape, const T* weights, const T* bias, const T* input, T* output,
              T* columns) {
  gather_patches(shape, input, columns);
  for (std::size_t o = 0; o < shape.channels_out; ++o) {
    std::fill_n(output + o * shape.area(), shape.area(), bias[o]);
  }
  multiply(Transpose::kNo, Transpose::kNo, shape.channels_out, shape.area(), shape.patch(), weights,
           columns, Into::kAdd, output);
}

template <typename T>
void convolve_backward(const ConvShape& shape, const T* weights, const T* input, const T* d_output,
                       T* d_weights, T* d_bias, T* d_input, T* columns) {
  // The patches are made anew rather than kept: that is cheaper than their memory.
  gather_patches(shape, input, columns);
  multiply(Transpose::kNo, Transpose::kYes, shape.channels_out, shape.patch(), shape.area(),
           d_output, columns, Into::kAdd, d_weights);
  for (std::size_t o = 0; o < shape.channels_out; ++o) {
    T sum = 0;
    for (std::size_t i = 0; i < shape.area(); ++i) sum += d_output[o * shape.area() + i];
    d_bias[o] += sum;
  }
  if (d_input == nullptr) return;
  multiply(Transpose::kYes, Transpose::kNo, shape.patch(), shape.area(), shape.channels_out,
           weights, d_output, Into::kOverwrite, columns);
  scatter_patches(shape, columns, d_input);
}

template <typename T>
void rectify(std::span<T> values) {
  // Not std::max, which would turn a diverged network's NaN into 0 and hide it.
  for (T& value : values) value = value < T{0} ? T{0} : value;
}

template <typename T>
void rectify_backward(std::span<const T> output, std::span<T> derivative) {
  for (std::size_t i = 0; i < output.size(); ++i) {
    derivative[i] = output[i] == T{0} ? T{0} : derivative[i];
  }
}

template <typename T>
void max_pool(std::size_t channels, std::size_t height, std::size_t width, const T* input,
              T* output, std::uint8_t* chosen) {
  for (std::size_t row = 0; row < channels * height; row += 2) {
    const T* upper = input + row * width;
    const T* lower = upper + width;
    for (std::size_t x = 0; x < width; x += 2) {
      const T candidates[] = {upper[x], upper[x + 1], lower[x], lower[x + 1]};
      std::uint8_t best = 0;
      for (std::uint8_t i = 1; i < 4; ++i) {
        if (candidates[i] > candidates[best]) best = i;
      }
      *output++ = candidates[best];
      *chosen++ = best;
    }
  }
}

template <typename T>
void max_pool_backward(std::size_t channels, std::size_t height, std::size_t width,
                       const T* d_output, const std::uint8_t* chosen, T* d_input) {
  for (std::size_t row = 0; row < channels * height; row += 2) {
    T* upper = d_input + row * width;
    for (std::size_t x = 0; x < width; x += 2) {
      T* const places[] = {upper + x, upper + x + 1, upper + width + x, upper + width + x + 1};
      for (T* place : places) *place = 0;
      *places[*chosen++] = *d_output++;
    }
  }
}

template <typename T>
void connect(std::size_t samples, std::size_t in, std::size_t out, const T* weights, const T* bias,
             const T* input, T* output) {
  for (std::size_t s = 0; s < samples; ++s) std::copy_n(bias, out, output + s * out);
  multiply(Transpose::kNo, Transpose::kYes, samples, out, in, input, weights, Into::kAdd, output);
}

template <typename T>
void connect_backward(std::size_t samples, std::size_t in, std::size_t out, const T* weights,
                      const T* input, const T* d_output, T* d_weights, T* d_bias, T* d_input) {
  multiply(Transpose::kYes, Transpose::kNo, out, in, samples, d_output, input, Into::kAdd,
           d_weights);
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::size_t o = 0; o < out; ++o) d_bias[o] += d_output[s * out + o];
  }
  multiply(Transpose::kNo, Transpose::kNo, samples, in, out, d_output, weights, Into::kOverwrite,
           d_input);
}

template <typename T>
BatchScore cross_entropy(std::size_t classes, std::span<const std::uint8_t> labels, T* scores) {
  BatchScore result;
  for (const std::uint8_t label : labels) {
    const T* best = std::max_element(scores, scores + classes);
    result.correct += static_cast<std::size_t>(best - scores) == label;
    const T largest = *best;
    const T of_label = scores[label];
    T sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      scores[c] = std::exp(scores[c] - largest);
      sum += scores[c];
    }
    result.loss_sum += std::log(double{sum}) - double{of_label - largest};
    for (std::size_t c = 0; c < classes; ++c) scores[c] /= sum;
    scores[label] -= T{1};
    scores += classes;
  }
  return result;
}

// NOLINTBEGIN(bugprone-macro-parentheses): T is a type.
#define SYNCD_TRAINER_LAYERS(T)                                                                  \
  template void convolve<T>(const ConvShape&, const T*, const T*, const T*, T*, T*);             \
  template void convolve_backward<T>(const ConvShape&, const T*, const T*, const T*, T*, T*, T*, \
                                     T*);                                                        \
  template void rectify<T>(std::span<T>);                                                        \
  template void rectify_backward<T>(std::span<const T>, std::span<T>);                           \
  template void max_pool<T>(std::size_t, std::size_t, std::size_t, const T*, T*, std::uint8_t*); \
  template void max_pool_backward<T>(std::size_t, std::size_t, std::size_t, const T*,            \
                                     const std::uint8_t*, T*);                                   \
  template void connect<T>(std::size_t, std::size_t, std::size_t, const T*, const T*, const T*,  \
                           T*);                                                                  \
  template void connect_backward<T>(std::size_t, std::size_t, std::size_t, const T*, const T*,   \
                                    const T*, T*, T*, T*);                                       \
  template BatchScore cross_entropy<T>(std::size_t, std::span<const std::uint8_t>, T*);
// NOLINTEND(bugprone-macro-parentheses)

SYNCD_TRAINER_LAYERS(float)
SYNCD_TRAINER_LAYERS(double)

}  // namespace syncd::trainer
