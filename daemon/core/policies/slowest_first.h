// The workers of a job, slowest first: the lowest clock; of equals the one whose latest push is
// oldest, no push yet (-1) being oldest of all; then the lowest rank. One that has just pushed has
// the latest push of all, so that it moves in O(log n) of the different clocks, of which a bounded
// policy has few. Elsewhere it costs the way from the nearer end of those of its clock: one that
// enters is mostly near an end. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "daemon/core/engine/rank_map.h"
#include "daemon/core/engine/types.h"

namespace syncd {

class SlowestFirst {
 public:
  // Puts the worker where it belongs, whether it was in here or not.
  void put(Rank rank, Clock clock, Micros last_push) {
    Place* known = places_.find(rank);
    if (known != nullptr && known->in) {
      if (known->clock == clock && known->last_push == last_push) return;
      take_out(*known);
    }
    Place& place = known != nullptr ? *known : places_.get(rank);
    place.clock = clock;
    place.last_push = last_push;
    place.in = true;
    Ends& ends = by_clock_[clock];
    const Rank before = last_slower(ends, last_push, rank);
    place.before = before;
    place.after = std::exchange(before != kNobody ? places_.at(before).after : ends.first, rank);
    (place.after != kNobody ? places_.at(place.after).before : ends.last) = rank;
  }

  void remove(Rank rank) {
    Place* place = places_.find(rank);
    if (place == nullptr || !place->in) return;
    take_out(*place);
    place->in = false;
  }

  void clear() {
    places_.clear();
    by_clock_.clear();
  }

  bool empty() const { return by_clock_.empty(); }
  // Precondition: not empty.
  Rank slowest() const { return by_clock_.begin()->second.first; }

 private:
  static constexpr Rank kNobody = UINT32_MAX;
  struct Place {
    Clock clock = 0;
    Micros last_push = 0;
    Rank before = kNobody, after = kNobody;  // of the same clock
    bool in = false;
  };
  struct Ends {
    Rank first = kNobody, last = kNobody;
  };

  bool is_slower(Rank other, Micros last_push, Rank rank) const {
    const Place& place = places_.at(other);
    return place.last_push != last_push ? place.last_push < last_push : other < rank;
  }
  // The last one that is slower, sought from both ends at once; kNobody: none is.
  Rank last_slower(const Ends& ends, Micros last_push, Rank rank) const {
    Rank slower = kNobody, from_front = ends.first, from_back = ends.last;
    while (from_back != kNobody) {
      if (is_slower(from_back, last_push, rank)) return from_back;
      from_back = places_.at(from_back).before;
      if (!is_slower(from_front, last_push, rank)) return slower;
      slower = from_front;
      from_front = places_.at(from_front).after;
    }
    return kNobody;
  }

  void take_out(const Place& place) {
    const auto it = by_clock_.find(place.clock);
    (place.before != kNobody ? places_.at(place.before).after : it->second.first) = place.after;
    (place.after != kNobody ? places_.at(place.after).before : it->second.last) = place.before;
    if (it->second.first == kNobody) by_clock_.erase(it);
  }

  RankMap<Place> places_;           // of all that have ever been in here
  std::map<Clock, Ends> by_clock_;  // nobody's clock is not in it
};

}  // namespace syncd
