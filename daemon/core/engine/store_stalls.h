// When the store was stalled, so that no worker is late because of it. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "daemon/core/engine/types.h"

namespace syncd {

class StoreStalls {
 public:
  // Stalls come in their order; one that begins where the latest ends, or in it, is the same.
  void add(Micros from, Micros to) {
    if (!stalls_.empty() && from <= stalls_.back().to) {
      stalls_.back().to = std::max(stalls_.back().to, to);
      return;
    }
    if (stalls_.size() == kKept) stalls_.pop_front();
    stalls_.push_back({from, to});
  }

  // How much of the time from `since` to `until`. O(stalls since then).
  Micros within(Micros since, Micros until) const {
    if (stalls_.empty()) return 0;
    Micros sum = 0;
    for (auto stall = stalls_.rbegin(); stall != stalls_.rend() && stall->to > since; ++stall) {
      sum += std::max<Micros>(0, std::min(stall->to, until) - std::max(stall->from, since));
    }
    return sum;
  }

 private:
  struct Stall {
    Micros from, to;
  };
  static constexpr std::size_t kKept = 4096;  // what is older is forgotten
  std::deque<Stall> stalls_;
};

}  // namespace syncd
