// What parameter-server policies share: bounds of their parameters, and who is behind. Run on the
// engine's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/engine/policy.h"

namespace syncd {

// The active workers whose relative clock is below q, in rank order. O(n): for explanations.
std::vector<Rank> active_below(const PolicyHost& host, Clock q);

}  // namespace syncd
