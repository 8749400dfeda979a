// The relative clocks q_i of a job's active workers as counts per value, so that minimum, maximum and
// "how many have reached x" need no loop over workers. One thread at a time.
#pragma once

#include <cstdint>
#include <map>

#include "daemon/engine/types.h"

namespace syncd {

class RelativeClocks {
 public:
  void add(Clock q) {
    ++counts_[q];
    ++size_;
  }
  // Precondition: q was added and not removed since.
  void remove(Clock q) {
    const auto it = counts_.find(q);
    if (--it->second == 0) counts_.erase(it);
    --size_;
  }
  void move(Clock from, Clock to) {
    remove(from);
    add(to);
  }
  void clear() {
    counts_.clear();
    size_ = 0;
  }

  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }
  // Precondition of both: not empty.
  Clock min() const { return counts_.begin()->first; }
  Clock max() const { return counts_.rbegin()->first; }

  // How many have q >= x. O(number of distinct values from x up), which a bounded policy keeps small.
  std::uint32_t count_at_least(Clock x) const {
    std::uint32_t count = 0;
    for (auto it = counts_.lower_bound(x); it != counts_.end(); ++it) count += it->second;
    return count;
  }

 private:
  std::map<Clock, std::uint32_t> counts_;
  std::uint32_t size_ = 0;
};

}  // namespace syncd
