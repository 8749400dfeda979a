// --slowdown of a run. The simulator parses it and draws the slow iterations
// (daemon/tools/sim/slowdown.h), so that a text and a seed mean the same with a clock and with
// --virtual-time. Pure functions.
#pragma once

#include <stdexcept>
#include <string_view>

#include "daemon/tools/sim/slowdown.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// A --slowdown text that cannot be used; what() names the flag, the text, what is wrong and what is
// allowed.
class SlowdownError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Both throw SlowdownError.
sim::Slowdown parse_slowdown(std::string_view text, int workers);
sim::SlowFactors slow_factors(std::string_view text, const WorkloadConfig& workload);

}  // namespace syncd::trainer
