// What a piece of the loop's work costs the loop's thread. The system may interrupt the thread in
// the middle of a piece, which is no client's doing, so that only the thread's own clock is right.
// A reading of that takes a system call (800 ns where the monotonic clock takes 35): a piece of at
// most kShortNs is charged in monotonic time. One thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "proto/base/clock.h"

namespace syncd::net {

struct CostClocks {
  std::function<std::uint64_t()> monotonic_ns = [] { return clock_ns(CLOCK_MONOTONIC); };
  std::function<std::uint64_t()> thread_ns = [] { return clock_ns(CLOCK_THREAD_CPUTIME_ID); };
};

class CostMeter {
 public:
  static constexpr std::uint64_t kShortNs = 1'000'000;
  // A long piece is charged what the thread's clock has advanced since the latest reading, less
  // what was charged since. So that the reading is never older than this, one piece in as much time
  // begins with one.
  static constexpr std::uint64_t kReadingNs = 10'000'000;

  explicit CostMeter(CostClocks clocks) : clocks_(std::move(clocks)) {}

  void begin() {
    begun_ns_ = clocks_.monotonic_ns();
    if (begun_ns_ >= read_at_ns_ + kReadingNs || read_at_ns_ == 0) read_thread(begun_ns_);
  }
  // What the monotonic clock said then.
  std::uint64_t begun_ns() const { return begun_ns_; }
  // What the piece that began last has cost.
  std::uint64_t end() {
    const std::uint64_t now_ns = clocks_.monotonic_ns();
    const std::uint64_t elapsed_ns = now_ns - begun_ns_;
    if (elapsed_ns <= kShortNs) {
      charged_ns_ += elapsed_ns;
      return elapsed_ns;
    }
    const std::uint64_t charged_ns = charged_ns_;
    const std::uint64_t used_ns = read_thread(now_ns);
    return std::min(elapsed_ns, used_ns - std::min(used_ns, charged_ns));
  }

 private:
  // How much the thread has used since the reading before.
  std::uint64_t read_thread(std::uint64_t now_ns) {
    const std::uint64_t before_ns = std::exchange(thread_ns_, clocks_.thread_ns());
    read_at_ns_ = now_ns;
    charged_ns_ = 0;
    return thread_ns_ - before_ns;
  }

  CostClocks clocks_;
  std::uint64_t begun_ns_ = 0;
  std::uint64_t read_at_ns_ = 0;
  std::uint64_t thread_ns_ = 0;
  std::uint64_t charged_ns_ = 0;  // since then
};

}  // namespace syncd::net
