// How long a simulated worker computes in each iteration: a distribution, and what slows some
// workers or iterations down. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/engine/types.h"
#include "daemon/sim/trace.h"

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

struct Slowdown {
  double factor = 1;       // of iterations drawn by chance
  double probability = 0;  // that one is drawn; below 0: one in so many as there are workers
  std::vector<std::pair<Rank, double>> fixed;  // these workers are slower throughout
};

// "none", "random:6x@1/n", "random:6x@0.05", "fixed:3=4x[,5=2x]".
std::optional<Slowdown> parse_slowdown(std::string_view text, std::string& error);
const char* known_slowdowns();

// Microseconds of computing per (worker, iteration): the same for the same seed, whatever the
// policy.
class Durations {
 public:
  // `workers`: how many the job starts with, the n of "1/n".
  Durations(IterationTime time, Slowdown slowdown, std::uint64_t seed, std::uint32_t workers);
  // At least 1. Preconditions: iteration >= 0. O(1).
  Micros operator()(Rank worker, Iteration iteration) const;

 private:
  double base(Rank worker, Iteration iteration) const;

  IterationTime time_;
  std::uint64_t seed_;
  double factor_;
  double probability_;
  std::vector<double> worker_factor_;  // by rank; none beyond: 1
};

}  // namespace syncd::sim
