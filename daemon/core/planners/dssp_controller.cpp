// See dssp_controller.h.
#include "daemon/core/planners/dssp_controller.h"

#include <algorithm>
#include <cstdlib>

#include "daemon/core/planners/time_max.h"

namespace syncd::planners {
namespace {

// An ascending series of predicted ends: at(0), at(1), ...
struct Series {
  Micros first;
  Micros interval;
  Micros at(std::int64_t i) const { return first + i * interval; }
};

bool check(const char* who, const PushTimes& pushes, std::int64_t steps, std::string& error) {
  const auto [latest, previous] = pushes;
  const std::string name = who;
  if (latest < -kTimeMax || latest > kTimeMax || previous < -kTimeMax) {
    error = name + ": the pushes at " + std::to_string(previous) + " and " +
            std::to_string(latest) + " us are out of range, allowed is -2^60 to 2^60";
  } else if (previous > latest) {
    error = name + ": the previous push at " + std::to_string(previous) +
            " us is later than the latest one at " + std::to_string(latest) + " us";
  } else if (latest - previous > (kTimeMax - std::max(latest, Micros{0})) / steps) {
    error = name + ": " + std::to_string(steps) + " intervals of " +
            std::to_string(latest - previous) + " us reach beyond 2^60 us";
  }
  return error.empty();
}

// The slowest worker's ends.
Series slowest_ends(const PushTimes& slowest, std::optional<Micros> now) {
  const Micros interval = slowest.latest - slowest.previous;
  const Micros next = slowest.latest + interval;
  if (!now || next >= *now) return {next, interval};
  if (interval == 0) return {*now + 1, 1};
  const Micros missed = (*now - slowest.latest) / interval;  // ends up to and at now
  return {slowest.latest + (missed + 1) * interval, interval};
}

}  // namespace

std::optional<ExtraIterations> dssp_extra_iterations(const PushTimes& worker,
                                                     const PushTimes& slowest, std::int64_t r_max,
                                                     std::optional<Micros> now,
                                                     std::string& error) {
  error.clear();
  if (r_max < 0 || r_max > kExtraMax) {
    error = "r_max is " + std::to_string(r_max) + ", allowed is 0 to " + std::to_string(kExtraMax);
    return std::nullopt;
  }
  // One more interval than there are ends, for an overdue series begins up to one after now.
  if (!check("worker", worker, r_max + 2, error) || !check("slowest", slowest, r_max + 2, error)) {
    return std::nullopt;
  }
  const Micros span = (r_max + 2) * std::max(Micros{1}, slowest.latest - slowest.previous);
  if (now && (*now < -kTimeMax || *now > kTimeMax - span)) {
    error =
        "now is " + std::to_string(*now) + " us: it and the ends after it must lie within 2^60 us";
    return std::nullopt;
  }
  const Series mine{worker.latest, worker.latest - worker.previous};
  const Series theirs = slowest_ends(slowest, now);
  ExtraIterations best{0, std::abs(mine.at(0) - theirs.at(0))};
  // Both series ascend: from any pair, only stepping on the earlier of the two can bring them
  // closer.
  for (std::int64_t r = 0, q = 0; r <= r_max && q <= r_max;) {
    const Micros difference = std::abs(mine.at(r) - theirs.at(q));
    if (difference < best.difference) best = {r, difference};
    if (mine.at(r) < theirs.at(q)) {
      ++r;
    } else {
      ++q;
    }
  }
  return best;
}

}  // namespace syncd::planners
