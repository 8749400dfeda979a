// A Device (device_steps.h) that is the CPU, for tests: what a GPU computes is computed here by the
// same code. It runs places backwards, on which no result may depend, and hands out memory full of
// NaN, which nobody may read before it is written. It does what it is told at once, or later, when
// the test says so (HostQueue). Used by one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "reference_trainer/model/device_steps.h"
#include "reference_trainer/model/gemm.h"

namespace syncd::trainer::testing {

// What a device was told and has not done yet.
struct HostQueue {
  bool at_once = true;
  std::deque<std::function<void()>> told;
  int skipped = 0;  // steps that a StopRule kept from running

  bool step() {
    if (told.empty()) return false;
    const std::function<void()> next = std::move(told.front());
    told.pop_front();
    next();
    return true;
  }
  void run() {
    while (step()) {
    }
  }
};

class HostDevice {
 public:
  static constexpr std::size_t kSamplesAtOnce = kCountMax;
  static constexpr bool kKeepsPatches = true;
  static constexpr bool kSeesHost = false;
  static constexpr std::size_t kPartsLeast = 1;
  using Real = float;

  template <typename T>
  class Buffer {
   public:
    Buffer(HostDevice&, std::size_t count) : memory_(count, junk()) {}
    T* data() { return memory_.data(); }
    const T* data() const { return memory_.data(); }

   private:
    static T junk() {
      if constexpr (std::numeric_limits<T>::has_quiet_NaN) {
        return std::numeric_limits<T>::quiet_NaN();
      } else {
        return std::numeric_limits<T>::max();
      }
    }
    std::vector<T> memory_;
  };

  template <typename T>
  class Pinned {
   public:
    Pinned(HostDevice&, std::size_t count) : memory_(count) {}
    T* data() { return memory_.data(); }
    const T* data() const { return memory_.data(); }
    T* seen() { return memory_.data(); }

   private:
    std::vector<T> memory_;
  };

  class Mark {
   public:
    explicit Mark(HostDevice&) {}

   private:
    friend class HostDevice;
    int made_ = 0;
    std::shared_ptr<int> reached_ = std::make_shared<int>(0);
  };

  explicit HostDevice(std::shared_ptr<HostQueue> queue = std::make_shared<HostQueue>())
      : queue_(std::move(queue)) {}

  int gpu() const { return 0; }
  void* stream() const { return nullptr; }

  template <typename T>
  void copy_in(T* to, std::span<const T> from) {
    tell([to, values = std::vector<T>(from.begin(), from.end())] {
      std::copy(values.begin(), values.end(), to);
    });
  }
  template <typename T>
  void copy_out(std::span<T> to, const T* from) {
    synchronize();
    std::copy_n(from, to.size(), to.begin());
  }
  template <typename T>
  void upload(T* to, const Pinned<T>& from, std::size_t count) {
    tell([to, memory = from.data(), count] { std::copy_n(memory, count, to); });
  }
  template <typename T>
  void clear(T* values, std::size_t count) {
    tell([values, count] { std::fill_n(values, count, T{}); });
  }

  template <typename Function>
  void for_each(std::size_t count, const Function& function) {
    tell([this_step = Step{stop_, queue_.get()}, count, function] {
      this_step.run(count, [&](std::size_t i) { function(static_cast<Index>(i)); });
    });
  }

  template <typename Function>
  void reduce(std::size_t count, std::size_t, const Function& function) {
    tell([this_step = Step{stop_, queue_.get()}, count, function] {
      this_step.run(count, [&](std::size_t place) {
        const auto i = static_cast<Index>(place);
        float sum = 0;
        for (Index t = function.terms(i); t-- > 0;) sum += function(i, t);
        function.store(i, sum);
      });
    });
  }

  // Runs whatever the StopRule says, as a library's products do.
  void multiply(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n,
                std::size_t k, const float* a, const float* b, Into into, float* c) {
    tell([=] { trainer::multiply(transpose_a, transpose_b, m, n, k, a, b, into, c); });
  }

  std::size_t known(const std::uint32_t*, std::size_t most) const { return most; }
  void stop_by(const StopRule& rule) { stop_ = rule; }

  void mark(Mark& mark) {
    tell([reached = mark.reached_, made = ++mark.made_] { *reached = made; });
  }
  bool passed(const Mark& mark) const { return *mark.reached_ == mark.made_; }
  void wait(const Mark& mark) const {
    while (!passed(mark) && queue_->step()) {
    }
  }
  void synchronize() const { queue_->run(); }

 private:
  struct Step {
    StopRule stop;
    HostQueue* queue;

    // While one place of a step looks at the host's words, others are done already or not yet: of a
    // step that finds them set, every second place is done.
    template <typename Function>
    void run(std::size_t count, const Function& function) const {
      if (stop.is_stopped()) {
        ++queue->skipped;
        return;
      }
      if (stop.applies()) stop.look();
      const std::size_t stride = stop.is_stopped() ? 2 : 1;
      for (std::size_t i = 0; i < count; i += stride) function(count - 1 - i);
    }
  };

  void tell(std::function<void()> what) {
    if (queue_->at_once) {
      what();
    } else {
      queue_->told.push_back(std::move(what));
    }
  }

  std::shared_ptr<HostQueue> queue_;
  StopRule stop_;
};

}  // namespace syncd::trainer::testing
