// A Device (device_steps.h) that is the CPU: its memory is the host's, and it does what it is told
// at once, on the calling thread. It has only what the steps of a network need (CnnSteps); no
// stepper runs on it. Used by one thread.
#pragma once

#include <cstddef>
#include <memory>

#include "reference_trainer/model/device_steps.h"
#include "reference_trainer/model/gemm.h"

namespace syncd::trainer {

class CpuDevice {
 public:
  // A sample's patches fit into the second level of cache, those of several do not. Gathering them
  // a second time costs no more than reading them from memory, and saves 0.7 MB for each sample.
  static constexpr std::size_t kSamplesAtOnce = 1;
  static constexpr bool kKeepsPatches = false;

  template <typename T>
  class Buffer {
   public:
    Buffer(CpuDevice&, std::size_t count) : memory_(std::make_unique_for_overwrite<T[]>(count)) {}
    T* data() { return memory_.get(); }
    const T* data() const { return memory_.get(); }

   private:
    std::unique_ptr<T[]> memory_;
  };

  template <typename Function>
  void for_each(std::size_t count, const Function& function) {
    if constexpr (requires { function.planes(); }) {
      const Index planes = function.planes();
      for (Index i = 0; i < planes; ++i) function.plane(i);
    } else {
      for (std::size_t i = 0; i < count; ++i) function(static_cast<Index>(i));
    }
  }

  template <typename Function>
  void reduce(std::size_t count, std::size_t, const Function& function) {
    for (std::size_t place = 0; place < count; ++place) {
      const auto i = static_cast<Index>(place);
      const Index terms = function.terms(i);
      float sum = 0;
      for (Index t = 0; t < terms; ++t) sum += function(i, t);
      function.store(i, sum);
    }
  }

  void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
                std::size_t k, const float* a, const float* b, Into into, float* c) {
    trainer::multiply(transpose_a, transpose_b, m, n, k, a, b, into, c);
  }
};

}  // namespace syncd::trainer
