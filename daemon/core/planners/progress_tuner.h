// SpecSync tuned for progress: the abort time and the count of pushes that let the job make most
// progress per second, by what a restart costs and by what each missed update costs. Pure functions
// over plain arrays; any thread.
#pragma once

#include <span>

#include "daemon/core/planners/abort_tuner.h"

namespace syncd::planners {

struct ProgressTuning {
  Micros abort_time = 0;  // 0: restarts do not pay
  double pushes = 0;      // a worker restarts if so many others or more have pushed by then
};

// Replays each worker's last iteration with restarts as they would have been: `workers` have its
// first pull, and how long it computes without a restart. Of the abort times, which are kSteps
// parts of the shortest span, and all counts, the pair of the greatest
//     (1 - wasted) / (1 + lambda * missed),
// where wasted is the share of all computing that restarts throw away, and missed is how many
// pushes by others come on the average between a worker's last pull and its push. A restart at D
// moves both by D: of the pushes after that, which nobody has seen yet, it misses as many as come
// on the average. Ties: no restarts, then the shorter time, then fewer restarts. Times and pushes
// as tune_abort() takes them; O(kSteps m log(m P)).
ProgressTuning tune_progress(std::span<const WorkerSpan> workers,
                             std::span<const LoggedPush> pushes, double lambda);

}  // namespace syncd::planners
