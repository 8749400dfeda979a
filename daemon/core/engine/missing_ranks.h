// Which ranks the start of a job still waits for: members that have not asked to begin and, if
// those are too few, the lowest ranks that no member has. Counted as members come and go: to show
// the first of them costs O(what is shown), whatever the job's size. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "daemon/core/engine/types.h"
#include "proto/wire/explanation.h"

namespace syncd {

// A set of ranks, kept as ranges of which no two touch. O(log n) each.
class RankSet {
 public:
  void insert(Rank rank);               // precondition: not in it
  void erase(Rank rank);                // precondition: in it
  Rank first_outside(Rank from) const;  // the lowest rank from here on that is not in it
  Rank last_outside(Rank below) const;  // the highest below; precondition: there is one
  using Ranges = std::map<Rank, Rank>;  // last rank by first rank
  const Ranges& ranges() const { return ranges_; }
  Ranges::const_iterator range_of(Rank rank) const;  // ranges().end(): in none

 private:
  Ranges ranges_;
};

class MissingRanks {
 public:
  explicit MissingRanks(std::uint32_t expected) : expected_(expected), free_end_(expected) {}

  void join(Rank rank);                // a member has it from now on
  void ready(Rank rank);               // that member asks to begin
  void unready(Rank rank);             // and has withdrawn that
  void leave(Rank rank);               // the member, which is not ready, has gone
  void expect(std::uint32_t workers);  // so many from now on; O(n)
  void clear() { *this = MissingRanks(expected_); }

  std::uint32_t ready() const { return ready_; }
  std::uint32_t count() const { return expected_ > ready_ ? expected_ - ready_ : 0; }
  // The first of them, in rank order and at most so many ranges. O(ranges_max).
  std::vector<RankRange> first(std::size_t ranges_max) const;

 private:
  std::uint32_t places_left() const { return expected_ > members_ ? expected_ - members_ : 0; }

  std::uint32_t expected_;
  std::uint32_t members_ = 0;
  std::uint32_t ready_ = 0;  // among the members
  RankSet held_;
  RankSet held_ready_;
  RankSet held_unready_;
  Rank free_end_;  // below it as many ranks are free as there are places left
};

}  // namespace syncd
