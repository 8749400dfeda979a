// See missing_ranks.h.
#include "daemon/core/engine/missing_ranks.h"

#include <algorithm>
#include <iterator>

#include "proto/base/check.h"

namespace syncd {

void RankSet::insert(Rank rank) {
  auto next = ranges_.upper_bound(rank);
  Rank last = rank;
  if (next != ranges_.end() && next->first == rank + 1) {
    last = next->second;
    next = ranges_.erase(next);
  }
  if (next != ranges_.begin() && std::prev(next)->second + 1 == rank) {
    std::prev(next)->second = last;
  } else {
    ranges_.emplace_hint(next, rank, last);
  }
}

void RankSet::erase(Rank rank) {
  SYNCD_CHECK(range_of(rank) != ranges_.end());
  const auto it = std::prev(ranges_.upper_bound(rank));
  if (it->second > rank) ranges_.emplace_hint(std::next(it), rank + 1, it->second);
  if (it->first < rank) {
    it->second = rank - 1;
  } else {
    ranges_.erase(it);
  }
}

RankSet::Ranges::const_iterator RankSet::range_of(Rank rank) const {
  const auto next = ranges_.upper_bound(rank);
  if (next == ranges_.begin() || std::prev(next)->second < rank) return ranges_.end();
  return std::prev(next);
}

Rank RankSet::first_outside(Rank from) const {
  const auto range = range_of(from);
  return range == ranges_.end() ? from : range->second + 1;
}

Rank RankSet::last_outside(Rank below) const {
  SYNCD_CHECK(below > 0);
  const auto range = range_of(below - 1);
  return (range == ranges_.end() ? below : range->first) - 1;
}

void MissingRanks::join(Rank rank) {
  held_.insert(rank);
  held_unready_.insert(rank);
  // One place less is left: this one, or the highest of those that others would have had.
  if (places_left() > 0 && rank >= free_end_) free_end_ = held_.last_outside(free_end_);
  ++members_;
}

void MissingRanks::ready(Rank rank) {
  held_unready_.erase(rank);
  held_ready_.insert(rank);
  ++ready_;
}

void MissingRanks::unready(Rank rank) {
  held_ready_.erase(rank);
  held_unready_.insert(rank);
  --ready_;
}

void MissingRanks::leave(Rank rank) {
  held_.erase(rank);
  held_unready_.erase(rank);
  const bool full = places_left() == 0;
  --members_;
  if (places_left() == 0) return;
  // One place more is left: the lowest of those that were too many.
  if (full) free_end_ = 0;
  if (full || rank >= free_end_) free_end_ = held_.first_outside(free_end_) + 1;
}

void MissingRanks::expect(std::uint32_t workers) {
  if (workers == expected_) return;
  MissingRanks other(workers);
  for (const auto& [first, last] : held_.ranges()) {
    for (Rank rank = first; rank <= last; ++rank) other.join(rank);
  }
  for (const auto& [first, last] : held_ready_.ranges()) {
    for (Rank rank = first; rank <= last; ++rank) other.ready(rank);
  }
  *this = std::move(other);
}

std::vector<RankRange> MissingRanks::first(std::size_t ranges_max) const {
  std::vector<RankRange> out;
  if (count() == 0) return out;
  std::uint32_t left = count();
  // False: enough of them.
  const auto add = [&](Rank first, Rank last) {
    last = first + std::min(last - first, left - 1);
    if (!out.empty() && out.back().last + 1 == first) {
      out.back().last = last;
    } else if (out.size() < ranges_max) {
      out.push_back({first, last});
    } else {
      return false;
    }
    left -= last - first + 1;
    return left > 0;
  };
  const Rank end = places_left() > 0 ? free_end_ : 0;
  // Below it everybody is missing who is not ready.
  for (Rank from = 0; (from = held_ready_.first_outside(from)) < end;) {
    const auto next = held_ready_.ranges().upper_bound(from);
    const Rank last = next == held_ready_.ranges().end() ? end - 1 : std::min(next->first, end) - 1;
    if (!add(from, last)) return out;
    from = last + 1;
  }
  const auto cut = held_unready_.range_of(end);
  if (cut != held_unready_.ranges().end() && !add(end, cut->second)) return out;
  for (auto it = held_unready_.ranges().upper_bound(end); it != held_unready_.ranges().end();
       ++it) {
    if (!add(it->first, it->second)) return out;
  }
  return out;
}

}  // namespace syncd
