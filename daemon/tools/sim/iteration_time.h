// How long a simulated worker computes in each iteration: a distribution, times what slows
// some of them down (slowdown.h). Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/core/engine/types.h"
#include "daemon/tools/sim/slowdown.h"
#include "daemon/tools/sim/trace.h"

namespace syncd::sim {

struct IterationTime {
  enum class Kind { kConstant, kUniform, kUniformEach, kNormal, kLognormal, kTrace };
  Kind kind = Kind::kConstant;
  // constant: the time; uniform: the lower bound; normal: the mean; lognormal: the median
  double first_us = 1'000'000;
  // uniform: the upper bound, normal: the deviation, both in microseconds; lognormal: sigma
  double second = 0;
  std::shared_ptr<const Trace> trace;
};

// "constant:MS", "uniform:A-B" (one speed per worker for the whole run), "uniform_each:A-B",
// "normal:MEAN,DEVIATION" (a draw below 1 us counts as 1 us) and "lognormal:MEDIAN,SIGMA" (drawn at
// every iteration), "trace:FILE" (which is read here). Times in milliseconds, fractions allowed.
// Empty: `error` says what is wrong and what is allowed.
std::optional<IterationTime> parse_iteration_time(std::string_view text, std::string& error);
const char* known_iteration_times();

// Microseconds of computing per (worker, iteration): the same for the same seed, whatever the
// policy.
class Durations {
 public:
  // `workers`: how many the job starts with, the n of "1/n".
  Durations(IterationTime time, const Slowdown& slowdown, std::uint64_t seed,
            std::uint32_t workers);
  // At least 1. Preconditions: iteration >= 0. O(1).
  Micros operator()(Rank worker, Iteration iteration) const;

 private:
  double base(Rank worker, Iteration iteration) const;

  IterationTime time_;
  std::uint64_t seed_;
  SlowFactors slow_;
};

}  // namespace syncd::sim
