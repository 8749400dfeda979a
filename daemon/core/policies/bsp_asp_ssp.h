// The plain baselines: asp, ssp:s and bsp[:k][,backup=b]. Run on the engine's
// thread.
#pragma once

#include "daemon/core/policies/policy_text.h"

namespace syncd {

// Asynchronous: begin is always granted.
MakePolicy make_asp;

// Stale synchronous (Ho et al. 2013): begin is granted iff q_i - q_min <= s.
MakePolicy make_ssp;

// Bulk synchronous: a barrier every k iterations; with backup=b (Chen et al. 2016) it opens when
// all but b have arrived, and what the others then push is LATE.
MakePolicy make_bsp;

}  // namespace syncd
