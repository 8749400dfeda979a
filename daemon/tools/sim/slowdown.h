// What --slowdown says, of `syncctl simulate`, `syncbench` and `reference_trainer`: which
// iterations of which workers take longer. One parser and one draw for all three, so that a text
// means the same in virtual time and with a clock. Immutable once made; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd::sim {

struct Slowdown {
  double factor = 1;        // of iterations drawn by chance
  double probability = 0;   // that one is drawn
  bool per_worker = false;  // the probability is divided by the number of workers ("1/n")
  // That so many iterations in a row are drawn together: the share of slow ones stays the same.
  std::int64_t run_length = 1;
  std::optional<Rank> only;                    // chance concerns this worker and no other
  std::vector<std::pair<Rank, double>> fixed;  // these workers are slower throughout
};

// One of
//   none
//   random:6x@0.05      each iteration takes 6 times as long with probability 0.05
//   random:6x@1/8       likewise with probability 1/8
//   random:6x@1/n       likewise with probability 1 / (number of workers)
//   random:6x@1/n,for=20
//                       likewise, for 20 iterations in a row: a machine that is busy for a while
//   random:3=6x@1/8     chance concerns worker 3 and no other (with for=20 too)
//   fixed:3=4x[,5=2x]   worker 3 takes 4 times as long, worker 5 twice, always
// Empty: `error` names --slowdown, the text, what is wrong and what is allowed.
std::optional<Slowdown> parse_slowdown(std::string_view text, std::string& error);
const char* known_slowdowns();

// Why a job that starts with so many workers, and may have ranks up to `ranks`, cannot have this
// slowdown; empty: it can.
std::string slowdown_problem(const Slowdown& slowdown, std::uint32_t workers, std::uint32_t ranks);

// How many times as long each iteration takes: a function of seed, worker and iteration only, so
// that all policies of a comparison meet the same slow iterations.
class SlowFactors {
 public:
  // `workers`: how many the job starts with, the n of "1/n".
  SlowFactors(const Slowdown& slowdown, std::uint64_t seed, std::uint32_t workers);
  double operator()(Rank worker, Iteration iteration) const;
  double largest() const;

 private:
  std::uint64_t seed_;
  double factor_;
  double probability_;
  std::uint64_t run_length_;
  std::optional<Rank> only_;
  std::vector<double> worker_factor_;  // by rank; none beyond: 1
};

}  // namespace syncd::sim
