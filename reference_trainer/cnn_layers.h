// The layers of a convolutional network on the CPU, forwards and backwards. Tensors are flat and
// row-major: an image is [channel][row][column], a batch of vectors [sample][value]. Every function
// is pure but for the memory that it is given, and exists for float (training) and double (what the
// tests hold the float version and finite differences against).
//
// Backward functions take the loss's derivative with respect to what the layer put out (d_output)
// and give it with respect to what went in (d_input, overwritten) and to the layer's parameters
// (d_weights, d_bias: added to, so that a minibatch can be summed up piece by piece).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace syncd::trainer {

// A convolution with stride 1 whose border is padded with zeros, so that height and width stay.
struct ConvShape {
  std::size_t channels_in = 0;
  std::size_t channels_out = 0;
  std::size_t kernel = 1;  // odd
  std::size_t height = 0;
  std::size_t width = 0;

  constexpr std::size_t area() const { return height * width; }
  constexpr std::size_t patch() const {
    return channels_in * kernel * kernel;
  }  // inputs of one output
  constexpr std::size_t inputs() const { return channels_in * area(); }
  constexpr std::size_t outputs() const { return channels_out * area(); }
  constexpr std::size_t weights() const {
    return channels_out * patch();
  }                                                                   // [out][in][row][column]
  constexpr std::size_t columns() const { return patch() * area(); }  // scratch memory it needs
};

// One image. `columns` is scratch memory of shape.columns() values: the image's patches side by
// side (im2col), which makes the convolution a product of two matrices.
template <typename T>
void convolve(const ConvShape& shape, const T* weights, const T* bias, const T* input, T* output,
              T* columns);

// d_input may be null where nobody asks for it (the first layer).
template <typename T>
void convolve_backward(const ConvShape& shape, const T* weights, const T* input, const T* d_output,
                       T* d_weights, T* d_bias, T* d_input, T* columns);

// max(0, x), in place. Backwards: clears the derivative where the output is 0, in place.
template <typename T>
void rectify(std::span<T> values);
template <typename T>
void rectify_backward(std::span<const T> output, std::span<T> derivative);

// The largest of each 2 x 2 square; height and width are even. `chosen` (one per output) remembers
// which of the four it was, the first of equals.
template <typename T>
void max_pool(std::size_t channels, std::size_t height, std::size_t width, const T* input,
              T* output, std::uint8_t* chosen);
template <typename T>
void max_pool_backward(std::size_t channels, std::size_t height, std::size_t width,
                       const T* d_output, const std::uint8_t* chosen, T* d_input);

// output [samples][out] = input [samples][in] . transpose of weights [out][in] + bias
template <typename T>
void connect(std::size_t samples, std::size_t in, std::size_t out, const T* weights, const T* bias,
             const T* input, T* output);
template <typename T>
void connect_backward(std::size_t samples, std::size_t in, std::size_t out, const T* weights,
                      const T* input, const T* d_output, T* d_weights, T* d_bias, T* d_input);

struct BatchScore {
  double loss_sum = 0;      // over the samples, of -log(probability of the label)
  std::size_t correct = 0;  // samples whose label has the highest score
};

// Softmax and cross-entropy of [sample][class]. Replaces the scores by the derivatives of the
// samples' loss sum. A label must be below `classes`.
template <typename T>
BatchScore cross_entropy(std::size_t classes, std::span<const std::uint8_t> labels, T* scores);

}  // namespace syncd::trainer
