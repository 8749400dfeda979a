// Slow workers on purpose: by what factor one iteration of one worker takes longer. The answer
// depends on (seed, worker, iteration) alone, so that every policy of a comparison meets the same
// slow iterations. Immutable; any thread.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer {

// A --slowdown text that cannot be used; what() says what is wrong and what is allowed.
class SlowdownError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Slowdown {
 public:
  Slowdown() = default;  // none

  // Takes one of
  //   none
  //   random:6x@0.05      each iteration is 6 times as long with probability 0.05
  //   random:6x@1/n       likewise with probability 1 / (number of workers); 1/8 and so on too
  //   fixed:3=4x[,5=2x]   worker 3 takes 4 times as long, worker 5 twice, always
  // Factors are 1 to 1000. Throws SlowdownError.
  static Slowdown parse(std::string_view text, int workers);

  double factor(std::uint64_t seed, int worker, std::int64_t iteration) const;
  double largest_factor() const;

 private:
  double random_factor_ = 1;
  double probability_ = 0;
  std::vector<double> fixed_factors_;  // by worker; empty: none
};

}  // namespace syncd::trainer
