// Workers that wait until some rising number reaches a threshold of their own (the minimum relative
// clock, an open superstep). O(log n) to add, remove and release. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "daemon/engine/types.h"

namespace syncd {

class Waiters {
 public:
  void add(Rank rank, std::int64_t threshold, Micros since) {
    remove(rank);
    by_rank_[rank] = {threshold, since};
    by_threshold_.insert({threshold, rank});
  }

  void remove(Rank rank) {
    const auto it = by_rank_.find(rank);
    if (it == by_rank_.end()) return;
    by_threshold_.erase({it->second.first, rank});
    by_rank_.erase(it);
  }

  // Takes all whose threshold is at most `reached`, in order of (waiting since, rank).
  std::vector<Rank> take_due(std::int64_t reached) {
    std::vector<std::pair<Micros, Rank>> due;
    while (!by_threshold_.empty() && by_threshold_.begin()->first <= reached) {
      const Rank rank = by_threshold_.begin()->second;
      due.emplace_back(by_rank_.at(rank).second, rank);
      by_threshold_.erase(by_threshold_.begin());
      by_rank_.erase(rank);
    }
    std::sort(due.begin(), due.end());
    std::vector<Rank> ranks;
    ranks.reserve(due.size());
    for (const auto& [since, rank] : due) ranks.push_back(rank);
    return ranks;
  }

  bool empty() const { return by_rank_.empty(); }

 private:
  std::map<Rank, std::pair<std::int64_t, Micros>> by_rank_;  // threshold, since
  std::set<std::pair<std::int64_t, Rank>> by_threshold_;
};

}  // namespace syncd
