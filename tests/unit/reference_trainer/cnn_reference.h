// C3F2-Net written down a second time, in double and as plainly as can be, from the description in
// cnn_network.h: what every backend is held against. Shares no code with the product but the sizes.
// Used on the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "reference_trainer/model/cnn_network.h"
#include "reference_trainer/model/random.h"
#include "tests/unit/reference_trainer/batched_network.h"

namespace syncd::trainer::testing {

class ReferenceNet {
 public:
  explicit ReferenceNet(const CnnShape& shape) : shape_(shape), layout_(shape) {}

  const CnnLayout& layout() const { return layout_; }

  // Forwards, and backwards if `gradient` is not empty: the gradient of the samples' loss sum is
  // added to it (one value per parameter).
  BatchScore run(std::span<const double> parameters, std::span<const double> images,
                 std::span<const std::uint8_t> labels, std::span<double> gradient) const;

 private:
  using Values = std::vector<double>;

  // What one sample leaves behind for the way back.
  struct Trace {
    Values inputs[5];                    // of each layer
    Values outputs[5];                   // before the rectifier
    std::vector<std::size_t> chosen[3];  // of a convolution's outputs, by its pool
  };

  double forward(std::span<const double> parameters, std::span<const double> image,
                 std::uint8_t label, Trace& trace, bool& correct) const;
  void backward(std::span<const double> parameters, Trace& trace, std::uint8_t label,
                std::span<double> gradient) const;
  template <typename Visit>
  void for_each_tap(std::size_t layer, const Visit& visit) const;

  CnnShape shape_;
  CnnLayout layout_;
};

// Not square, and each convolution has another kernel, so that a mix-up shows.
inline constexpr CnnShape kReferenceShape{.channels = 2,
                                          .height = 8,
                                          .width = 16,
                                          .classes = 4,
                                          .conv = {{{3, 5}, {4, 3}, {3, 1}}},
                                          .hidden = 6};

// Kernels that reach beyond both borders of what they are laid on.
inline constexpr CnnShape kWideKernels{.channels = 1,
                                       .height = 16,
                                       .width = 8,
                                       .classes = 3,
                                       .conv = {{{2, 9}, {3, 5}, {2, 9}}},
                                       .hidden = 5};

std::vector<double> draw_normals(std::size_t count, std::uint64_t seed);

// Large enough for every layer to matter.
std::vector<double> draw_parameters(const CnnLayout& layout);

// A backend made for `samples_max` samples or more gives the double network's loss and gradient,
// for batches of several sizes, and the sum of the gradients of several batches.
void expect_agreement(CnnBackend& backend, const CnnShape& shape, std::size_t samples_max);

}  // namespace syncd::trainer::testing
