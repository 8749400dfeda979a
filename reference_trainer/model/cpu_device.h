// A Device (device_steps.h) that is the CPU: its memory is the host's, and it does what it is told
// at once, on the calling thread. Used by one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "reference_trainer/model/batch.h"
#include "reference_trainer/model/device_steps.h"
#include "reference_trainer/model/gemm.h"

namespace syncd::trainer {

class CpuDevice {
 public:
  // A sample's patches fit into the second level of cache, those of several do not. Gathering them
  // a second time costs no more than reading them from memory, and saves 0.7 MB for each sample.
  static constexpr std::size_t kSamplesAtOnce = 1;
  static constexpr bool kKeepsPatches = false;
  static constexpr bool kSeesHost = true;
  static constexpr std::size_t kPartsLeast = kMicroBatches;  // under every policy the same sums
  using Real = double;

  template <typename T>
  class Buffer {
   public:
    Buffer(CpuDevice&, std::size_t count) : memory_(std::make_unique_for_overwrite<T[]>(count)) {}
    T* data() { return memory_.get(); }
    const T* data() const { return memory_.get(); }
    T* seen() { return memory_.get(); }

   private:
    std::unique_ptr<T[]> memory_;
  };
  template <typename T>
  class Pinned : public Buffer<T> {
   public:
    Pinned(CpuDevice& device, std::size_t count) : Buffer<T>(device, count) {
      std::fill_n(this->data(), count, T{});
    }
  };
  struct Mark {
    explicit Mark(CpuDevice&) {}
  };

  template <typename T>
  void copy_in(T* to, std::span<const T> from) {
    std::copy(from.begin(), from.end(), to);
  }
  template <typename T>
  void copy_out(std::span<T> to, const T* from) {
    std::copy_n(from, to.size(), to.begin());
  }
  template <typename T>
  void upload(T* to, const Pinned<T>& from, std::size_t count) {
    std::copy_n(from.data(), count, to);
  }
  template <typename T>
  void clear(T* values, std::size_t count) {
    std::fill_n(values, count, T{});
  }

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
      decltype(function(i, i)) sum = 0;
      for (Index t = 0; t < terms; ++t) sum += function(i, t);
      function.store(i, sum);
    }
  }

  void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
                std::size_t k, const float* a, const float* b, Into into, float* c) {
    trainer::multiply(transpose_a, transpose_b, m, n, k, a, b, into, c);
  }

  std::size_t known(const std::uint32_t* count, std::size_t) const { return *count; }
  // The stepper itself looks at the words between two stages, and none of these takes long.
  void stop_by(const StopRule&) {}
  void mark(Mark&) {}
  bool passed(const Mark&) const { return true; }
  void wait(const Mark&) const {}
  void synchronize() const {}
  int gpu() const { return -1; }
  void* stream() const { return nullptr; }
};

}  // namespace syncd::trainer
