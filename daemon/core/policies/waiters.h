// Workers that wait until some rising number reaches a threshold of their own (the minimum relative
// clock, an open superstep). Adding and removing is O(log t) in the number of different thresholds
// t, of which a policy has few at a time; releasing n workers is O(n log n) for their order. One
// thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/core/engine/rank_map.h"
#include "daemon/core/engine/types.h"

namespace syncd {

class Waiters {
 public:
  void add(Rank rank, std::int64_t threshold, Micros since) {
    Place& place = places_.get(rank);
    if (place.waits) remove(rank);
    std::vector<Waiter>& together = with(threshold);
    place = {threshold, together.size(), true};
    together.push_back({since, rank});
  }

  void remove(Rank rank) {
    Place* place = places_.find(rank);
    if (place == nullptr || !place->waits) return;
    const auto it = by_threshold_.find(place->threshold);
    // The last one of its threshold takes its place: order is made when they are released.
    it->second[place->index] = it->second.back();
    places_.at(it->second.back().rank).index = place->index;
    it->second.pop_back();
    place->waits = false;
    if (it->second.empty()) discard(it);
  }

  // Takes all whose threshold is at most `reached`, in order of (waiting since, rank).
  std::vector<Rank> take_due(std::int64_t reached) {
    due_.clear();
    while (!by_threshold_.empty() && by_threshold_.begin()->first <= reached) {
      const std::vector<Waiter>& together = by_threshold_.begin()->second;
      due_.insert(due_.end(), together.begin(), together.end());
      discard(by_threshold_.begin());
    }
    // Mostly they are in the order in which they have come.
    if (!std::is_sorted(due_.begin(), due_.end())) std::sort(due_.begin(), due_.end());
    std::vector<Rank> ranks;
    ranks.reserve(due_.size());
    for (const Waiter& waiter : due_) {
      places_.at(waiter.rank).waits = false;
      ranks.push_back(waiter.rank);
    }
    return ranks;
  }

  bool empty() const { return by_threshold_.empty(); }

 private:
  struct Waiter {
    Micros since = 0;
    Rank rank = 0;
    friend bool operator<(const Waiter& a, const Waiter& b) {
      return a.since != b.since ? a.since < b.since : a.rank < b.rank;
    }
  };
  struct Place {
    std::int64_t threshold = 0;
    std::size_t index = 0;  // in its threshold's array
    bool waits = false;
  };
  using ByThreshold = std::map<std::int64_t, std::vector<Waiter>>;

  // Those who wait for this threshold. Superstep after superstep the same memory is used again.
  std::vector<Waiter>& with(std::int64_t threshold) {
    const auto [it, fresh] = by_threshold_.try_emplace(threshold);
    if (fresh) it->second.swap(spare_);
    return it->second;
  }
  void discard(ByThreshold::iterator it) {
    it->second.clear();
    if (it->second.capacity() > spare_.capacity()) it->second.swap(spare_);
    by_threshold_.erase(it);
  }

  RankMap<Place> places_;     // of all that have ever waited
  ByThreshold by_threshold_;  // no array in it is empty
  std::vector<Waiter> spare_;
  std::vector<Waiter> due_;  // while take_due() runs
};

}  // namespace syncd
