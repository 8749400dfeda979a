// See slowdown.h.
#include "reference_trainer/run/slowdown.h"

namespace syncd::trainer {

sim::Slowdown parse_slowdown(std::string_view text, int workers) {
  std::string error;
  const auto slowdown = sim::parse_slowdown(text, error);
  if (!slowdown) throw SlowdownError(error);
  const auto count = static_cast<std::uint32_t>(workers);
  error = sim::slowdown_problem(*slowdown, count, count);
  if (!error.empty()) throw SlowdownError(error);
  return *slowdown;
}

sim::SlowFactors slow_factors(std::string_view text, const WorkloadConfig& workload) {
  return {parse_slowdown(text, workload.workers), workload.seed,
          static_cast<std::uint32_t>(workload.workers)};
}

}  // namespace syncd::trainer
