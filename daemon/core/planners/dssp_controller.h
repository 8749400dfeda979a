// DSSP's controller: how many iterations beyond the bound a fastest worker may run so that it stops
// when the slowest one is about to end an iteration, and so waits least (Zhao et al., ICDCS 2019;
// ElasticBSP paper, section 7). A pure function; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/core/engine/types.h"

namespace syncd::planners {

// A worker's two latest pushes, in microseconds.
struct PushTimes {
  Micros latest = 0;
  Micros previous = 0;
};

struct ExtraIterations {
  std::int64_t extra = 0;  // r*: 0 to r_max
  Micros difference = 0;   // between the two ends that lie closest together: never negative
};

// Predicts the worker's ends, latest + r * interval for r = 0..r_max, and the slowest one's,
// latest + q * interval for q = 1..r_max + 1, and returns the r of the closest pair, the smaller of
// equals. A slowest worker that is overdue (its next end was before `now`) is predicted by its
// first r_max + 1 ends later than now; if its interval is 0, by now + 1, now + 2, ... O(r_max).
//
// Nothing, and a sentence in `error`, if a previous push is later than the latest one, r_max is not
// within 0 and kExtraMax, or a time is beyond +-2^60 microseconds or an end would be.
inline constexpr std::int64_t kExtraMax = std::int64_t{1} << 24;
std::optional<ExtraIterations> dssp_extra_iterations(const PushTimes& worker,
                                                     const PushTimes& slowest, std::int64_t r_max,
                                                     std::optional<Micros> now, std::string& error);

}  // namespace syncd::planners
