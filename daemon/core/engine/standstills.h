// When the store stood still, so that it is held against nobody. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "daemon/core/engine/types.h"

namespace syncd {

class Standstills {
 public:
  // Spells come in their order; one that begins where the latest ends, or in it, is the same.
  void add(Micros from, Micros to) {
    if (!spells_.empty() && from <= spells_.back().to) {
      spells_.back().to = std::max(spells_.back().to, to);
      return;
    }
    if (spells_.size() == kKept) spells_.pop_front();
    spells_.push_back({from, to});
  }

  // How long of the time from `since` to `until`. O(spells since then).
  Micros within(Micros since, Micros until) const {
    if (spells_.empty()) return 0;
    Micros sum = 0;
    for (auto spell = spells_.rbegin(); spell != spells_.rend() && spell->to > since; ++spell) {
      sum += std::max<Micros>(0, std::min(spell->to, until) - std::max(spell->from, since));
    }
    return sum;
  }

 private:
  struct Spell {
    Micros from, to;
  };
  static constexpr std::size_t kKept = 4096;  // what is older is forgotten
  std::deque<Spell> spells_;
};

}  // namespace syncd
