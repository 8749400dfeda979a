// Virtual time: what is to happen when. Two things at the same moment happen in the order in which
// they were put down. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "daemon/core/engine/types.h"

namespace syncd::simulation {

class Agenda {
 public:
  using Action = std::function<void()>;

  Micros now() const { return now_; }
  // A moment that has passed counts as the present.
  void at(Micros moment, Action action) {
    actions_.emplace(std::pair(moment < now_ ? now_ : moment, next_++), std::move(action));
  }
  void in(Micros span, Action action) { at(now_ + span, std::move(action)); }

  // Lets the next thing happen. False: there is none.
  bool step() {
    if (actions_.empty()) return false;
    const auto first = actions_.begin();
    now_ = first->first.first;
    const Action action = std::move(first->second);
    actions_.erase(first);
    action();
    return true;
  }

 private:
  Micros now_ = 0;
  std::uint64_t next_ = 0;
  std::map<std::pair<Micros, std::uint64_t>, Action> actions_;
};

}  // namespace syncd::simulation
