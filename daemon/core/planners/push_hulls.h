// Answers "which push of these would it have been best to wait for" in logarithmic time: for a
// worker of SpecSync the gain is the number of pushes, the loss grows with time, and the best of a
// run of pushes lies on the upper convex hull of the points (time, number). Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd::planners {

class PushHulls {
 public:
  // `times`: of all pushes, ascending, at most 2^32 - 1; it must outlive this. O(P log P).
  explicit PushHulls(std::span<const Micros> times);

  // The k in [first, last) with the greatest k * gain - times[k] * loss, of equals the smallest.
  // The range must not be empty, gain below 2^61, loss below 2^32. O(log^2 P).
  std::size_t best(std::size_t first, std::size_t last, Micros gain, std::uint32_t loss) const;

 private:
  // Hulls of aligned runs of kRun << level pushes; the hull of a run begins where the run does.
  struct Level {
    std::vector<std::uint32_t> points;
    std::vector<std::uint32_t> counts;
  };
  static constexpr std::size_t kRun = 32;  // shorter runs are searched from end to end

  std::span<const Micros> times_;
  std::vector<Level> levels_;
};

}  // namespace syncd::planners
