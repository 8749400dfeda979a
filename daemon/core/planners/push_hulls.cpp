// See push_hulls.h.
#include "daemon/core/planners/push_hulls.h"

#include <algorithm>

#include "daemon/core/planners/wide_integer.h"

namespace syncd::planners {
namespace {

// Adds point k, later than all on the hull, and takes off what it hides. Of points in one line the
// first and the last stay: among equals the earliest is wanted.
void add_to_hull(std::span<const Micros> times, std::uint32_t* hull, std::uint32_t& count,
                 std::uint32_t k) {
  if (count > 0 && times[hull[count - 1]] == times[k]) --count;  // at one time the highest counts
  while (count > 1) {
    const std::uint32_t a = hull[count - 2];
    const std::uint32_t b = hull[count - 1];
    const Wide old_rise = Wide{b - a} * (times[k] - times[a]);
    const Wide new_rise = Wide{k - a} * (times[b] - times[a]);
    if (old_rise > new_rise) break;
    --count;
  }
  hull[count++] = k;
}

}  // namespace

PushHulls::PushHulls(std::span<const Micros> times) : times_(times) {
  for (std::size_t run = kRun; run <= times.size(); run *= 2) {
    Level level;
    level.points.resize(times.size());
    for (std::size_t begin = 0; begin + run <= times.size(); begin += run) {
      std::uint32_t* const hull = level.points.data() + begin;
      std::uint32_t count = 0;
      if (levels_.empty()) {
        for (std::size_t k = begin; k < begin + run; ++k) {
          add_to_hull(times, hull, count, static_cast<std::uint32_t>(k));
        }
      } else {
        const Level& below = levels_.back();
        for (const std::size_t half : {begin, begin + run / 2}) {
          const std::uint32_t* const part = below.points.data() + half;
          const std::uint32_t part_count = below.counts[half / (run / 2)];
          for (std::uint32_t i = 0; i < part_count; ++i) add_to_hull(times, hull, count, part[i]);
        }
      }
      level.counts.push_back(count);
    }
    levels_.push_back(std::move(level));
  }
}

std::size_t PushHulls::best(std::size_t first, std::size_t last, Micros gain,
                            std::uint32_t loss) const {
  // Whether k is strictly better than an earlier one.
  const auto better = [&](std::size_t k, std::size_t than) {
    return Wide{k - than} * gain > Wide{times_[k] - times_[than]} * loss;
  };
  std::size_t best = first;
  while (first < last) {
    // The longest aligned run that begins here and fits.
    std::size_t level = 0;
    std::size_t run = kRun;
    if (first % run != 0 || first + run > last) {
      const std::size_t end = std::min(last, (first / kRun + 1) * kRun);
      for (; first < end; ++first) {
        if (better(first, best)) best = first;
      }
      continue;
    }
    while (first % (2 * run) == 0 && first + 2 * run <= last) {
      run *= 2;
      ++level;
    }
    const std::uint32_t* const hull = levels_[level].points.data() + first;
    std::uint32_t low = 0;
    std::uint32_t high = levels_[level].counts[first / run] - 1;
    while (low < high) {
      const std::uint32_t middle = (low + high) / 2;
      if (better(hull[middle + 1], hull[middle])) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (better(hull[low], best)) best = hull[low];
    first += run;
  }
  return best;
}

}  // namespace syncd::planners
