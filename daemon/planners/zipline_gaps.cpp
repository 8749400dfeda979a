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
// and the sort; where no gap lies within another one (all workers equally fast) that is all of
// them.
#include <array>
#include <bit>

#include "daemon/planners/zipline_parts.h"

namespace syncd::planners {
namespace {

struct Gap {
  Micros start;
  Micros end;
};

// With more than this share of many gaps left, a radix sort of all ends is as fast.
constexpr std::size_t kFewShare = 6;
constexpr std::size_t kMany = 4096;

template <class Rows>
std::size_t few(const Rows& rows) {
  return rows.size() < kMany ? SIZE_MAX : rows.size() / kFewShare;
}

// After the first worker's last end waiting only grows: a gap without an end starts there.
constexpr Micros kOpenEnd = INT64_MAX;

// Slices of time from `base` on, a power of two long, so many that each has a few gaps to itself,
// but no more than fit the second-level cache.
class Slices {
 public:
  Slices(Micros base, Micros last, std::size_t gaps) : base_(base) {
    const std::size_t wanted =
        std::bit_ceil(std::clamp<std::size_t>(gaps / kGapsEach, kFewest, kMost));
    const auto range = static_cast<std::uint64_t>(last - base);
    while ((range >> shift_) >= wanted) ++shift_;
    count_ = static_cast<std::size_t>(range >> shift_) + 1;
  }
  std::size_t of(Micros time) const {
    return static_cast<std::size_t>(static_cast<std::uint64_t>(time - base_) >> shift_);
  }
  std::size_t count() const { return count_; }

 private:
  static constexpr std::size_t kGapsEach = 8;
  static constexpr std::size_t kFewest = 64;
  static constexpr std::size_t kMost = 32768;

  Micros base_;
  unsigned shift_ = 0;
  std::size_t count_ = 1;
};

// visit(start, end) for the gaps of all workers that start before anybody has ended for the last
// time: later ones lie within the gap that starts there.
template <class Rows, class Visit>
void each_gap(const Rows& rows, const Reach& reach, Visit&& visit) {
  const auto stop = [&](Micros start) { return start >= reach.earliest_last; };
  for (std::size_t p = 0; p < rows.workers(); ++p) rows.each_gap(p, visit, stop);
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
  explicit Sweep(Micros begin) : reached_(begin) {}
  void take(const Gap& gap) {
    if (gap.end <= reached_) return;
    const Micros wait = reached_ - gap.start;
    if (!any_ || wait < best_.wait) best_ = {reached_, wait};
    any_ = true;
    reached_ = gap.end;
  }
  Barrier best() const { return best_; }

 private:
  Micros reached_;  // the gaps so far cover everything before this
  bool any_ = false;
  Barrier best_;
};

// Nothing if more than `most` gaps remain to be sorted.
template <class Rows>
std::optional<Barrier> solve(const Rows& rows, std::size_t most) {
  const Reach reach = reach_of(rows);
  const Gap last{reach.earliest_last, kOpenEnd};
  const Slices slices(reach.earliest_first, reach.earliest_last, rows.size());

  // furthest[i + 1]: the latest end of those that start in slice i; then, in or before it. What
  // ends before everybody has ended once says nothing.
  std::vector<Micros> furthest(slices.count() + 1, reach.latest_first);
  each_gap(rows, reach, [&](Micros start, Micros end) {
    Micros& slot = furthest[slices.of(start) + 1];
    slot = std::max(slot, end);
  });
  for (std::size_t i = 1; i < furthest.size(); ++i) {
    furthest[i] = std::max(furthest[i], furthest[i - 1]);
  }

  std::vector<Gap> gaps;
  each_gap(rows, reach, [&](Micros start, Micros end) {
    if (end > furthest[slices.of(start)]) gaps.push_back({start, end});
  });
  if (gaps.size() > most) return std::nullopt;
  const std::vector<std::size_t> begin = group_by_slice(gaps, slices);
  Sweep sweep(reach.latest_first);
  const auto at = [&](std::size_t i) { return gaps.begin() + static_cast<std::ptrdiff_t>(i); };
  for (std::size_t i = 0; i < slices.count(); ++i) {
    std::sort(at(begin[i]), at(begin[i + 1]),
              [](const Gap& a, const Gap& b) { return a.start < b.start; });
    for (std::size_t j = begin[i]; j < begin[i + 1]; ++j) sweep.take(gaps[j]);
  }
  sweep.take(last);
  return sweep.best();
}

}  // namespace

Barrier zipline_gaps(const MatrixRows& rows) {
  return *solve(rows, SIZE_MAX);
}

Barrier zipline_gaps(const ProgressionRows& rows) {
  return *solve(rows, SIZE_MAX);
}

std::optional<Barrier> zipline_gaps_if_few(const MatrixRows& rows) {
  return solve(rows, few(rows));
}

std::optional<Barrier> zipline_gaps_if_few(const ProgressionRows& rows) {
  return solve(rows, few(rows));
}

}  // namespace syncd::planners
