// What is common to everything that is written once for all devices (cnn_batched.h, mf_batched.h,
// svm_batched.h, device_steppers.h): what a Device is, and small pieces for what is done at one
// place. A GPU is a Device (cuda/device.cuh), and the CPU (cpu_device.h); the tests have one that
// runs the very same steps as a GPU on the CPU.
//
// A Device has its own memory and does one thing after the other, by itself: the calls below only
// tell it what to do, unless they say that they wait. It is used by one thread. Counts are at most
// kCountMax.
//
//   kSamplesAtOnce               how many samples the convolutions of a network take at a time
//   kKeepsPatches                whether their patches are kept for the way back, or gathered anew
//   kSeesHost                    whether its memory is the host's, and what it is told done at once
//   kPartsLeast                  into how many parts it cuts a minibatch, at least
//   Real                         in what sums over a sample's values are made
//   Buffer<T>(Device&, count)    its memory; T* data()
//   Pinned<T>(Device&, count)    memory of the host, zeros at first; T* data(), and T* seen(), its
//                                address for the device
//   Mark(Device&)                a place in what it was told
//
//   copy_in(T* to, span<const T>)       from the host, which may change it right afterwards
//   copy_out(span<T>, const T* from)    to the host; waits until everything is done
//   upload(T* to, const Pinned<T>&, count)      reads the host's memory when it is its turn
//   clear(T* values, count)             to 0
//   for_each(count, function)           function(i) for i in [0, count), in any order; or, where a
//       function has these, function.plane(i) for i in [0, function.planes()), which does the same
//   reduce(count, terms_most, function)
//       for i in [0, count): function.store(i, sum of function(i, t) for t in [0, terms)), where
//       terms is function.terms(i) and terms_most says how many these are at most, or about.
//       function(i, t) may do something besides, once for each t and in any order.
//   multiply(transpose_a, transpose_b, m, n, k, a, b, into, c)  as in gemm.h
//   known(count, most)          *count, where that is known already; otherwise most
//
//   stop_by(const StopRule&)    for_each and reduce, from here on, end early as it says
//   mark(Mark&)                 the mark is passed when what was told until now is done
//   bool passed(const Mark&)
//   wait(const Mark&)           waits
//   synchronize()               waits until everything is done
//   int gpu()                   devices of the same number see the same memory
//   void* stream()              cudaStream_t, or null
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "reference_trainer/model/device_view.h"

#ifdef __CUDACC__
#define SYNCD_TRAINER_DEVICE __host__ __device__
#else
#define SYNCD_TRAINER_DEVICE
#endif

namespace syncd::trainer {

// Places are counted in 32 bits: dividing 64 bits would take a GPU longer than the memory does.
using Index = std::uint32_t;
inline constexpr std::size_t kCountMax = std::size_t{1} << 31;

// Division by a number that is known beforehand, as a multiplication (Granlund and Montgomery,
// 1994). For dividends below kCountMax.
class Divider {
 public:
  constexpr explicit Divider(std::size_t divisor) : divisor_(static_cast<Index>(divisor)) {
    while ((std::uint64_t{1} << shift_) < divisor) ++shift_;
    const std::uint64_t rest = (std::uint64_t{1} << shift_) - divisor;
    multiplier_ = static_cast<Index>((rest << 32) / divisor + 1);
  }

  SYNCD_TRAINER_DEVICE Index divide(Index value) const {
    const auto high = static_cast<Index>((std::uint64_t{value} * multiplier_) >> 32);
    return (high + value) >> shift_;
  }
  SYNCD_TRAINER_DEVICE Index rest(Index value) const { return value - divide(value) * divisor_; }
  SYNCD_TRAINER_DEVICE Index divisor() const { return divisor_; }

 private:
  Index divisor_;
  Index multiplier_ = 0;
  Index shift_ = 0;
};

// Adds to a place that others of the same step may add to at the same time: those of a GPU; the
// CPU does one after the other.
SYNCD_TRAINER_DEVICE inline void atomic_add(float* place, float value) {
#ifdef __CUDA_ARCH__
  atomicAdd(place, value);
#else
  *place += value;
#endif
}

// A word that somebody else may write at any time; it orders nothing.
SYNCD_TRAINER_DEVICE inline std::uint32_t read_word(const std::uint32_t* word) {
#ifdef __CUDA_ARCH__
  return *static_cast<const volatile std::uint32_t*>(word);
#else
  return std::atomic_ref<std::uint32_t>(*const_cast<std::uint32_t*>(word))
      .load(std::memory_order_relaxed);
#endif
}
SYNCD_TRAINER_DEVICE inline void write_word(std::uint32_t* word, std::uint32_t value) {
#ifdef __CUDA_ARCH__
  *static_cast<volatile std::uint32_t*>(word) = value;
#else
  std::atomic_ref<std::uint32_t>(*word).store(value, std::memory_order_relaxed);
#endif
}

// When the rest of a minibatch is not to be computed. The words that say so are in the host's
// memory, which is far away: one place per step looks at them, and all others ask the device's own
// word. Minibatches are numbered, so that no word ever has to be cleared for the next one.
struct StopRule {
  const std::uint32_t* flag = nullptr;     // the host's: stop what runs while this is not 0
  const std::uint32_t* dropped = nullptr;  // the host's: stop the minibatch of this number
  std::uint32_t* stopped = nullptr;        // the device's: the last one that was stopped
  std::uint32_t minibatch = 0;             // the one at hand, from 1

  SYNCD_TRAINER_DEVICE bool applies() const { return stopped != nullptr; }
  SYNCD_TRAINER_DEVICE bool is_stopped() const {
    return applies() && read_word(stopped) == minibatch;
  }
  SYNCD_TRAINER_DEVICE void look() const {
    if (read_word(flag) != 0 || read_word(dropped) == minibatch) write_word(stopped, minibatch);
  }
};

// The blocks of parameters of which a minibatch has a gradient, in no fixed order.
struct Touched {
  std::uint32_t minibatch = 0;
  std::uint32_t* marks = nullptr;  // [blocks]: the last minibatch that each was in
  Index* list = nullptr;           // [blocks]
  std::uint32_t* count = nullptr;  // of the list

  // Of those that add the same block at the same time, one lists it.
  SYNCD_TRAINER_DEVICE void add(Index block) const {
    if (read_word(marks + block) == minibatch) return;
#ifdef __CUDA_ARCH__
    if (atomicExch(marks + block, minibatch) != minibatch) list[atomicAdd(count, 1U)] = block;
#else
    marks[block] = minibatch;
    list[(*count)++] = block;
#endif
  }
};

// total += the sum of the losses
template <typename Real>
struct AddLosses {
  Index samples;
  const float* losses;
  double* total;

  SYNCD_TRAINER_DEVICE Index terms(Index) const { return samples; }
  SYNCD_TRAINER_DEVICE Real operator()(Index, Index sample) const { return losses[sample]; }
  SYNCD_TRAINER_DEVICE void store(Index, Real sum) const { *total += static_cast<double>(sum); }
};

// total[i] += sum over the rows of [row][i]
struct AddRows {
  Index rows;
  Index count;
  const float* values;
  float* total;

  SYNCD_TRAINER_DEVICE Index terms(Index) const { return rows; }
  SYNCD_TRAINER_DEVICE float operator()(Index i, Index row) const {
    return values[row * count + i];
  }
  SYNCD_TRAINER_DEVICE void store(Index i, float sum) const { total[i] += sum; }
};

}  // namespace syncd::trainer
