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
  RelativeClocks() = default;
  RelativeClocks(const RelativeClocks&) = delete;
  RelativeClocks& operator=(const RelativeClocks&) = delete;

  void add(Clock q) {
    ++counts_[q];
    ++size_;
    ++changes_;
  }
  // Precondition: q was added and not removed since.
  void remove(Clock q) {
    const auto it = counts_.find(q);
    SYNCD_CHECK(it != counts_.end());
    if (--it->second == 0) erase(it);
    --size_;
    ++changes_;
  }
  // Precondition: as remove()'s. Workers mostly go to the next value, one after the other.
  void move(Clock from, Clock to) {
    if (from_ == counts_.end() || from_->first != from || to_->first != to) find_both(from, to);
    ++to_->second;
    if (--from_->second == 0) erase(from_);
    ++changes_;
  }
  void clear() {
    counts_.clear();
    from_ = counts_.end();
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
  using Counts = std::map<Clock, std::uint32_t>;

  // Of the first ones to come to a value, and of the last ones to leave it: never inlined, so that
  // the way of all others is short.
  [[gnu::noinline]] void find_both(Clock from, Clock to) {
    from_ = counts_.find(from);
    SYNCD_CHECK(from_ != counts_.end());
    to_ = counts_.try_emplace(to).first;
  }
  [[gnu::noinline]] void erase(Counts::iterator it) {
    counts_.erase(it);
    from_ = counts_.end();
  }

  Counts counts_;
  // Of the latest move, as long as no value has gone since; from_ == end(): not known.
  Counts::iterator from_ = counts_.end(), to_;
  std::uint32_t size_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace syncd
