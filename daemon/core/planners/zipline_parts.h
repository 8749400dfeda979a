// What the files of ZipLine share among themselves: rows of ends in either form, and the ends of
// all workers in the order of time. Not for others to include; zipline.h is.
#pragma once

#include <algorithm>
#include <bit>
#include <tuple>

#include "daemon/core/planners/radix_sort.h"
#include "daemon/core/planners/zipline.h"

namespace syncd::planners {

// The ends of one worker, in either form. `end(j)` counts from 0.
class MatrixRows {
 public:
  explicit MatrixRows(const EndTimes& ends) : ends_(ends) {}
  const EndTimes& matrix() const { return ends_; }
  std::size_t workers() const { return ends_.workers(); }
  std::size_t size() const { return ends_.size(); }
  std::size_t length(std::size_t worker) const { return ends_.row(worker).size(); }
  Micros first(std::size_t worker) const { return ends_.row(worker).front(); }
  Micros last(std::size_t worker) const { return ends_.row(worker).back(); }

  // How many of the worker's ends are at or before t.
  std::uint32_t count_until(std::size_t worker, Micros t) const {
    const std::span<const Micros> row = ends_.row(worker);
    return static_cast<std::uint32_t>(std::upper_bound(row.begin(), row.end(), t) - row.begin());
  }
  Micros end(std::size_t worker, std::size_t j) const { return ends_.row(worker)[j]; }

  // visit(end) for each of the worker's ends in order.
  template <class Visit>
  void each(std::size_t worker, Visit&& visit) const {
    for (const Micros end : ends_.row(worker)) visit(end);
  }
  // visit(start, end) for each time between two ends of a worker that starts before `limit`, in any
  // order; not for all of them if more() is false at times.
  template <class Visit, class More>
  void each_gap(Micros limit, Visit&& visit, More&& more) const {
    for (std::size_t p = 0; p < workers() && more(); ++p) {
      const std::span<const Micros> row = ends_.row(p);
      for (std::size_t j = 1; j < row.size() && row[j - 1] < limit; ++j) visit(row[j - 1], row[j]);
    }
  }

 private:
  const EndTimes& ends_;
};

class ProgressionRows {
 public:
  ProgressionRows(std::span<const Progression> workers, std::uint32_t r) : rows_(workers), r_(r) {}
  EndTimes matrix() const {
    EndTimes ends;
    ends.reserve(workers(), size());
    std::vector<Micros> row;
    for (std::size_t p = 0; p < workers(); ++p) {
      row.clear();
      each(p, [&](Micros end) { row.push_back(end); });
      ends.add_row(row);
    }
    return ends;
  }
  std::size_t workers() const { return rows_.size(); }
  std::size_t size() const { return rows_.size() * r_; }
  std::size_t length(std::size_t) const { return r_; }
  Micros first(std::size_t worker) const { return rows_[worker].first; }
  Micros last(std::size_t worker) const { return end(worker, r_ - 1); }

  std::uint32_t count_until(std::size_t worker, Micros t) const {
    const Progression& row = rows_[worker];
    if (t < row.first) return 0;
    if (row.interval == 0) return r_;
    const auto since = static_cast<std::uint64_t>(t - row.first);
    const auto interval = static_cast<std::uint64_t>(row.interval);
    // Divisions of 32 bits are several times faster, and spans of up to an hour fit.
    const std::uint64_t whole = (since | interval) >> 32 == 0
                                    ? std::uint64_t{static_cast<std::uint32_t>(since) /
                                                    static_cast<std::uint32_t>(interval)}
                                    : since / interval;
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(r_, whole + 1));
  }
  Micros end(std::size_t worker, std::size_t j) const {
    return rows_[worker].first + static_cast<Micros>(j) * rows_[worker].interval;
  }
  template <class Visit>
  void each(std::size_t worker, Visit&& visit) const {
    const Progression row = rows_[worker];
    for (std::uint32_t j = 0; j < r_; ++j) visit(row.first + static_cast<Micros>(j) * row.interval);
  }
  template <class Visit, class More>
  void each_gap(Micros limit, Visit&& visit, More&& more) const {
    for (std::size_t p = 0; p < workers() && more(); ++p) {
      const auto [first, interval] = rows_[p];
      Micros start = first;
      for (std::uint32_t j = 1; j < r_ && start < limit; ++j) {
        visit(start, start + interval);
        start += interval;
      }
    }
  }

 private:
  std::span<const Progression> rows_;
  std::uint32_t r_;
};

// The span of time in which a plan can lie.
struct Reach {
  Micros earliest_first = 0;  // nothing happens before
  Micros latest_first = 0;    // before it, somebody has not ended yet
  Micros earliest_last = 0;   // after it, waiting can only grow
  Micros latest_last = 0;
};

template <class Rows>
Reach reach_of(const Rows& rows) {
  Reach reach{kTimeMax, -kTimeMax, kTimeMax, -kTimeMax};
  for (std::size_t p = 0; p < rows.workers(); ++p) {
    const Micros first = rows.first(p);
    const Micros last = rows.last(p);
    reach.earliest_first = std::min(reach.earliest_first, first);
    reach.latest_first = std::max(reach.latest_first, first);
    reach.earliest_last = std::min(reach.earliest_last, last);
    reach.latest_last = std::max(reach.latest_last, last);
  }
  return reach;
}

// All ends in the order of time, those of one time in the order of workers.
class TimeOrder {
 public:
  template <class Rows>
  explicit TimeOrder(const Rows& rows) {
    const Reach reach = reach_of(rows);
    base_ = reach.earliest_first;
    const auto range = static_cast<std::uint64_t>(reach.latest_last - base_);
    worker_bits_ = static_cast<unsigned>(std::bit_width(rows.workers() - 1));
    if (std::bit_width(range) + static_cast<int>(worker_bits_) <= 64) {
      packed_.reserve(rows.size());
      for (std::size_t p = 0; p < rows.workers(); ++p) {
        rows.each(p, [&](Micros end) {
          packed_.push_back((static_cast<std::uint64_t>(end - base_) << worker_bits_) | p);
        });
      }
      // The workers' bits need no pass: the keys come in the order of workers, and equals keep it.
      radix_sort(packed_, worker_bits_, static_cast<unsigned>(std::bit_width(range)));
    } else {
      loose_.reserve(rows.size());
      for (std::size_t p = 0; p < rows.workers(); ++p) {
        rows.each(p, [&](Micros end) { loose_.push_back({end, static_cast<std::uint32_t>(p)}); });
      }
      std::sort(loose_.begin(), loose_.end(), [](const Event& a, const Event& b) {
        return std::tie(a.time, a.worker) < std::tie(b.time, b.worker);
      });
    }
  }

  // visit(time, worker) for each end in order.
  template <class Visit>
  void each(Visit&& visit) const {
    const std::uint64_t mask = (std::uint64_t{1} << worker_bits_) - 1;
    for (const std::uint64_t key : packed_) {
      visit(base_ + static_cast<Micros>(key >> worker_bits_),
            static_cast<std::uint32_t>(key & mask));
    }
    for (const Event& event : loose_) visit(event.time, event.worker);
  }

 private:
  struct Event {
    Micros time;
    std::uint32_t worker;
  };

  Micros base_ = 0;
  unsigned worker_bits_ = 0;
  std::vector<std::uint64_t> packed_;  // (time - base) << worker_bits | worker, if that fits
  std::vector<Event> loose_;           // else these
};

// What an algorithm found; iterations follow from the time (or, for a heuristic, are its own).
struct Barrier {
  Micros time = 0;
  Micros wait = 0;
};

Barrier full_grid_scan(const EndTimes& ends);
ZiplinePlan grid_scan(const EndTimes& ends);
Barrier zipline(const EndTimes& ends);
Barrier zipline_opt(const EndTimes& ends);
Barrier zipline_opt_bs(const EndTimes& ends);
Barrier zipline_linked(std::size_t workers, const TimeOrder& order);

// These two are there for rows in either form.
// Nothing where more than `most` gaps would have to be sorted: where equally fast workers end one
// after another as evenly as can be. With more than one in kFewShare, that takes as long as a radix
// sort of all ends.
inline constexpr std::size_t kFewShare = 6;
template <class Rows>
std::optional<Barrier> zipline_gaps(const Rows& rows, std::size_t most);
// The end that wastes the least share of the superstep; nothing if no end qualifies. O(R n) after a
// radix sort.
template <class Rows>
std::optional<Barrier> best_rate(const Rows& rows, const ZiplineOptions& options);

}  // namespace syncd::planners
