// The sum of fractions by which SpecSync's loss grows with time, compared without rounding errors,
// so that equal improvements are known to be equal. Pure; any thread, one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd::planners {

// S = weight * (1/T_1 + ... + 1/T_m), each T_i within 1 and 2^60, weight and m below 2^32.
class ExactSlope {
 public:
  ExactSlope(std::uint32_t weight, std::span<const Micros> spans);

  // The sign of `count - S * time` for a time of 0 to 2^61: -1, 0 or 1. In floating point where its
  // error cannot change the sign; else with as many bits as it takes to tell equal from nearly
  // equal. O(1), or, in the rare second case, O(m * bits of all different T_i) once.
  int compare(std::int64_t count, Micros time) const;

  // S itself, with a relative error of at most `relative_error()`.
  double value() const { return value_; }
  double relative_error() const { return relative_error_; }

 private:
  int compare_exactly(std::uint64_t count, std::uint64_t time) const;
  void expand() const;

  std::map<Micros, std::uint64_t> numerators_;  // weight times the number of workers, by T
  double value_ = 0;
  double relative_error_ = 0;
  // S in binary, whole part first, then 64 fractional bits a word; too small by less than one unit
  // of the last bit for each entry of numerators_. Empty until it is needed.
  mutable std::vector<std::uint64_t> digits_;
};

}  // namespace syncd::planners
