// See progress_tuner.h.
#include "daemon/core/planners/progress_tuner.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "daemon/core/planners/time_max.h"

namespace syncd::planners {
namespace {

constexpr std::int64_t kSteps = 64;
// A value must be better by so much, which no rounding is.
constexpr double kBetter = 1 + 1e-9;

}  // namespace

ProgressTuning tune_progress(std::span<const WorkerSpan> workers,
                             std::span<const LoggedPush> pushes, double lambda) {
  std::vector<Micros> times;
  times.reserve(pushes.size());
  for (const LoggedPush& push : pushes) times.push_back(push.time);
  std::sort(times.begin(), times.end());
  const auto until = [&](Micros time) {
    return std::upper_bound(times.begin(), times.end(), time) - times.begin();
  };
  const auto m = static_cast<double>(workers.size());
  Micros shortest = kTimeMax;
  double computed = 0, missed = 0;
  for (const WorkerSpan& worker : workers) {
    shortest = std::min(shortest, worker.span);
    computed += static_cast<double>(worker.span);
    // The last one is its own.
    missed += static_cast<double>(until(worker.pull + worker.span) - until(worker.pull) - 1);
  }
  const double rate = (m - 1) * m / computed;  // of others' pushes
  ProgressTuning best;
  double best_value = kBetter / (1 + lambda * missed / m);
  std::vector<double> seen(workers.size());
  for (std::int64_t step = 1; step < kSteps; ++step) {
    const Micros time = shortest / kSteps * step;
    if (time == 0) continue;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      seen[i] = static_cast<double>(until(workers[i].pull + time) - until(workers[i].pull));
    }
    std::sort(seen.begin(), seen.end(), std::greater<>());
    double left = missed, wasted = 0;
    for (std::size_t i = 0; i < seen.size() && seen[i] > 0; ++i) {
      left -= seen[i] - rate * static_cast<double>(time);
      wasted += static_cast<double>(time);
      if (i + 1 < seen.size() && seen[i + 1] == seen[i]) continue;
      const double value = computed / (computed + wasted) / (1 + lambda * std::max(left, 0.0) / m);
      if (value < best_value) continue;
      best_value = value * kBetter;
      best = {time, seen[i]};
    }
  }
  return best;
}

}  // namespace syncd::planners
