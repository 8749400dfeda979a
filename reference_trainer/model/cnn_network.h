// C3F2-Net: three convolutional and two fully connected layers, the five-layer AlexNet of the
// ElasticBSP paper (Zhao et al., section 6.2.1).
//
//   3 x [convolution, rectifier, 2 x 2 max-pool], fully connected, rectifier, fully connected,
//   softmax with cross-entropy
//
// The paper gives the number of layers, not their sizes. Ours: 5 x 5 kernels to 32 channels, 3 x 3
// to 32, 3 x 3 to 64 (as in AlexNet the kernels shrink and the channels grow), 256 hidden units:
// 295,146 parameters for 10 classes, nine tenths of them in the fully connected layers, as the
// paper says of its net. It also crops images to 28 x 28; ours are the whole 32 x 32.
//
// The layers are written once for all devices (cnn_batched.h); cuda/ has what they need of CUDA,
// cpu_device.h what of the CPU. What they compute is held against a network in double that the
// tests have written down a second time (cnn_reference.h there), to 1e-4 of the gradient's norm and
// of each derivative.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace syncd::trainer {

// A convolution with stride 1 whose border is padded with zeros, so that height and width stay.
struct ConvShape {
  std::size_t channels_in = 0;
  std::size_t channels_out = 0;
  std::size_t kernel = 1;  // odd
  std::size_t height = 0;
  std::size_t width = 0;

  constexpr std::size_t area() const { return height * width; }
  // Inputs of one output.
  constexpr std::size_t patch() const { return channels_in * kernel * kernel; }
  constexpr std::size_t inputs() const { return channels_in * area(); }
  constexpr std::size_t outputs() const { return channels_out * area(); }
  constexpr std::size_t weights() const { return channels_out * patch(); }
  constexpr std::size_t columns() const { return patch() * area(); }  // patches side by side
};

struct CnnShape {
  struct Conv {
    std::size_t channels = 0;
    std::size_t kernel = 0;  // odd
  };
  std::size_t channels = 3;  // of an image
  std::size_t height = 32;   // a multiple of 8, because each of three pools halves it
  std::size_t width = 32;    // likewise
  std::size_t classes = 10;  // 1 to 256
  std::array<Conv, 3> conv{{{32, 5}, {32, 3}, {64, 3}}};
  std::size_t hidden = 256;

  std::size_t pixels() const { return channels * height * width; }
};

// Where the layers' parameters lie in the flat vector: weights, then biases, layer after layer.
struct CnnLayout {
  struct Layer {
    std::size_t weights = 0;  // place of the first
    std::size_t weight_count = 0;
    std::size_t bias = 0;  // place of the first
    std::size_t bias_count = 0;
    std::size_t fan_in = 0;  // inputs of one output
  };
  explicit CnnLayout(const CnnShape& shape);

  std::array<ConvShape, 3> conv;  // sizes of the convolutions
  std::size_t features = 0;       // values of an image behind the last pool
  std::array<Layer, 5> layers;    // 0 to 2 convolutional, 3 and 4 fully connected
  std::size_t parameters = 0;
};

}  // namespace syncd::trainer
