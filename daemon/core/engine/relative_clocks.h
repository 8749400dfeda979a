// The relative clocks q_i of a job's active workers as counts per value, so that minimum, maximum
// and "how many have reached x" need no loop over workers. One thread at a time.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>

#include "daemon/core/engine/types.h"
#include "proto/base/check.h"

namespace syncd {

class RelativeClocks {
 public:
  void add(Clock q) {
    ++counts_[q];
    ++size_;
    ++changes_;
  }
  // Precondition: q was added and not removed since.
  void remove(Clock q) {
    const auto it = counts_.find(q);
    SYNCD_CHECK(it != counts_.end());
    if (--it->second == 0) counts_.erase(it);
    --size_;
    ++changes_;
  }
  // Precondition: as remove()'s. Mostly to the next value, which lies beside it.
  void move(Clock from, Clock to) {
    const auto it = counts_.find(from);
    SYNCD_CHECK(it != counts_.end());
    const auto next = std::next(it);
    if (next != counts_.end() && next->first == to) {
      ++next->second;
    } else {
      ++counts_[to];
    }
    if (--it->second == 0) counts_.erase(it);
    ++changes_;
  }
  void clear() {
    counts_.clear();
    size_ = 0;
    ++changes_;
  }

  // Grows with every change.
  std::uint64_t changes() const { return changes_; }
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }
  // Precondition of both: not empty.
  Clock min() const {
    SYNCD_CHECK(!empty());
    return counts_.begin()->first;
  }
  Clock max() const {
    SYNCD_CHECK(!empty());
    return counts_.rbegin()->first;
  }

  // The q that exactly n workers have reached: the n-th largest. Precondition: 1 <= n <= size().
  // O(1) for all of them, else O(number of distinct values above it), which a bounded policy keeps
  // small.
  Clock nth_largest(std::uint32_t n) const {
    SYNCD_CHECK(n >= 1 && n <= size_);
    if (n == size_) return min();
    auto it = counts_.rbegin();
    for (std::uint32_t seen = it->second; seen < n; seen += it->second) ++it;
    return it->first;
  }

 private:
  std::map<Clock, std::uint32_t> counts_;
  std::uint32_t size_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace syncd
