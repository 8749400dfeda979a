// The exact answer without sorting all ends.
//
// A *gap* is the time from one end of a worker to its next, closed at its start and open at its
// end: throughout it that start is the worker's latest end. So the earliest of all latest ends, as
// time goes by, is the earliest start among the gaps that contain the moment, and a gap that lies
// within another one never says anything. The waits to compare are those at the ends of the
// remaining gaps (theorem 3: nothing else can lessen the wait). Of R n gaps few remain: with
// iterations of 1 to 1.5 seconds mostly those near 1.5.
//
// To find them: a table of the latest end among all gaps that start within a slice of time; then
// the gaps that reach further than all that started in earlier slices; these few are sorted. O(R n)
// and the sort.
//
// Where workers are nearly equally fast, hardly any gap lies within another one, and all of them
// remain. Then slices are finer, and of what remains in each only the first and the last start are
// noted: the first ends a wait that is known without sorting, and the last tells how short the
// waits between the others could be at best. Only slices that could beat the shortest known wait
// are sorted (the thought behind finding the widest gap between numbers in linear time).
#include <array>
#include <bit>
#include <span>

#include "daemon/core/planners/zipline_parts.h"

namespace syncd::planners {
namespace {

struct Gap {
  Micros start;
  Micros end;
};

// A table of so many slices fits the second-level cache, and more than these do not pay.
constexpr std::size_t kCachedSlices = std::size_t{1} << 15;
constexpr std::size_t kSlicesMax = std::size_t{1} << 18;

// After the first worker's last end waiting only grows: a gap without an end starts there.
constexpr Micros kOpenEnd = INT64_MAX;

// Slices of time from `base` on, a power of two long, so many that each has a few gaps to itself,
// but no more than fit the second-level cache.
class Slices {
 public:
  Slices(Micros base, Micros last, std::size_t wanted) : base_(base) {
    const auto range = static_cast<std::uint64_t>(last - base);
    while ((range >> shift_) >= wanted) ++shift_;
    count_ = static_cast<std::size_t>(range >> shift_) + 1;
  }
  std::size_t of(Micros time) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(time - base_) >> shift_);
  }
  std::size_t count() const { return count_; }

 private:
  Micros base_;
  unsigned shift_ = 0;
  std::size_t count_ = 1;
};

// visit(start, end) for the gaps of all workers that start before anybody has ended for the last
// time: later ones lie within the gap that starts there.
template <class Rows, class Visit>
void each_gap(const Rows& rows, const Reach& reach, Visit&& visit) {
  rows.each_gap(reach.earliest_last, visit, [] { return true; });
}

// The gaps that `choose(start, end)` picks; nothing if they are more than `most`.
template <class Rows, class Choose>
std::optional<std::vector<Gap>> gaps_if_few(const Rows& rows, const Reach& reach, std::size_t most,
                                            Choose&& choose) {
  std::vector<Gap> gaps;
  const auto visit = [&](Micros start, Micros end) {
    if (choose(start, end)) gaps.push_back({start, end});
  };
  rows.each_gap(reach.earliest_last, visit, [&] { return gaps.size() <= most; });
  if (gaps.size() > most) return std::nullopt;
  return gaps;
}

// Where each slice's gaps begin in `gaps`, which become grouped by slice; one more for the end.
std::vector<std::size_t> group_by_slice(std::vector<Gap>& gaps, const Slices& slices) {
  std::vector<std::size_t> begin(slices.count() + 1);
  for (const Gap& gap : gaps) ++begin[slices.of(gap.start) + 1];
  for (std::size_t i = 1; i < begin.size(); ++i) begin[i] += begin[i - 1];
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  std::vector<Gap> grouped(gaps.size());
  for (const Gap& gap : gaps) grouped[next[slices.of(gap.start)]++] = gap;
  gaps.swap(grouped);
  return begin;
}

// Goes through the gaps in the order of their starts. Each that reaches further than all before
// becomes the one that bounds the wait when the one that did so ends.
class Sweep {
 public:
  // What starts from now on follows gaps that cover everything before `reached`.
  void set_reached(Micros reached) { reached_ = reached; }
  void take(const Gap& gap) {
    if (gap.end <= reached_) return;
    const Micros wait = reached_ - gap.start;
    if (!any_ || wait < best_.wait || (wait == best_.wait && reached_ < best_.time)) {
      best_ = {reached_, wait};
    }
    any_ = true;
    reached_ = gap.end;
  }
  Barrier best() const { return best_; }

 private:
  Micros reached_ = 0;
  bool any_ = false;
  Barrier best_;
};

// The latest end of the gaps that start before each slice; one more for all of them. What ends
// before everybody has ended once says nothing.
template <class Rows>
std::vector<Micros> furthest_before(const Rows& rows, const Reach& reach, const Slices& slices) {
  std::vector<Micros> furthest(slices.count() + 1, reach.latest_first);
  each_gap(rows, reach, [&](Micros start, Micros end) {
    Micros& slot = furthest[slices.of(start) + 1];
    slot = std::max(slot, end);
  });
  for (std::size_t i = 1; i < furthest.size(); ++i) {
    furthest[i] = std::max(furthest[i], furthest[i - 1]);
  }
  return furthest;
}

void sort_by_start(std::span<Gap> gaps) {
  std::sort(gaps.begin(), gaps.end(), [](const Gap& a, const Gap& b) { return a.start < b.start; });
}

// Nothing if more than `most` gaps remain to be sorted.
template <class Rows>
std::optional<Barrier> solve_few(const Rows& rows, const Reach& reach, const Slices& slices,
                                 const std::vector<Micros>& before, std::size_t most) {
  std::optional<std::vector<Gap>> left = gaps_if_few(
      rows, reach, most, [&](Micros start, Micros end) { return end > before[slices.of(start)]; });
  if (!left) return std::nullopt;
  std::vector<Gap>& gaps = *left;
  const std::vector<std::size_t> begin = group_by_slice(gaps, slices);
  Sweep sweep;
  sweep.set_reached(reach.latest_first);
  for (std::size_t i = 0; i < slices.count(); ++i) {
    const auto slice = std::span(gaps).subspan(begin[i], begin[i + 1] - begin[i]);
    sort_by_start(slice);
    for (const Gap& gap : slice) sweep.take(gap);
  }
  sweep.take({reach.earliest_last, kOpenEnd});
  return sweep.best();
}

// The same where hardly a gap lies within another one.
template <class Rows>
std::optional<Barrier> solve_many(const Rows& rows, const Reach& reach, const Slices& slices,
                                  const std::vector<Micros>& before, std::size_t most) {
  struct Starts {
    Micros first = kTimeMax;
    Micros last = -kTimeMax;
  };
  std::vector<Starts> starts(slices.count());
  const auto note = [&](Micros start, Micros end) {
    const std::size_t slice = slices.of(start);
    if (end <= before[slice]) return;
    starts[slice].first = std::min(starts[slice].first, start);
    starts[slice].last = std::max(starts[slice].last, start);
  };
  each_gap(rows, reach, note);
  note(reach.earliest_last, kOpenEnd);
  Sweep sweep;
  for (std::size_t i = 0; i < slices.count(); ++i) {
    if (starts[i].last < starts[i].first) continue;  // nothing is left
    sweep.set_reached(before[i]);
    sweep.take({starts[i].first, kOpenEnd});
  }
  // Within a slice, waits begin after what earlier ones have reached and end at its last start.
  const Micros known = sweep.best().wait;
  const auto may_beat = [&](Micros start, Micros end) {
    const std::size_t slice = slices.of(start);
    return end > before[slice] && starts[slice].last > starts[slice].first &&
           before[slice] - starts[slice].last < known;
  };
  std::optional<std::vector<Gap>> left = gaps_if_few(rows, reach, most, may_beat);
  if (!left) return std::nullopt;
  std::vector<Gap>& gaps = *left;
  if (may_beat(reach.earliest_last, kOpenEnd)) gaps.push_back({reach.earliest_last, kOpenEnd});
  sort_by_start(gaps);
  std::size_t slice = SIZE_MAX;
  for (const Gap& gap : gaps) {
    if (slices.of(gap.start) != slice) {
      slice = slices.of(gap.start);
      sweep.set_reached(before[slice]);
    }
    sweep.take(gap);
  }
  return sweep.best();
}

}  // namespace

template <class Rows>
std::optional<Barrier> zipline_gaps(const Rows& rows, std::size_t most) {
  const Reach reach = reach_of(rows);
  const auto slices_of = [&](std::size_t count_max) {
    const std::size_t wanted = std::clamp<std::size_t>(rows.size() / 4, 64, count_max);
    return Slices(reach.earliest_first, reach.earliest_last, std::bit_ceil(wanted));
  };
  Slices slices = slices_of(kCachedSlices);
  std::vector<Micros> before = furthest_before(rows, reach, slices);
  if (const auto barrier = solve_few(rows, reach, slices, before, rows.size() / kFewShare)) {
    return barrier;
  }
  if (rows.size() / 16 > kCachedSlices) {
    slices = slices_of(kSlicesMax);
    before = furthest_before(rows, reach, slices);
  }
  return solve_many(rows, reach, slices, before, most);
}

template std::optional<Barrier> zipline_gaps(const MatrixRows&, std::size_t);
template std::optional<Barrier> zipline_gaps(const ProgressionRows&, std::size_t);

}  // namespace syncd::planners
