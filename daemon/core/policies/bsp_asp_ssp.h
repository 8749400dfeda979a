// The plain baselines: asp, ssp:s and bsp[:k][,backup=b]. Run on the engine's
// thread.
#pragma once

#include <memory>
#include <string>

#include "daemon/core/engine/policy.h"
#include "daemon/core/policies/policy_text.h"

namespace syncd {

// Asynchronous: begin is always granted.
std::unique_ptr<Policy> make_asp(const PolicyText& text, std::string& error);

// Stale synchronous (Ho et al. 2013): begin is granted iff q_i - q_min <= s.
std::unique_ptr<Policy> make_ssp(const PolicyText& text, std::string& error);

// Bulk synchronous: a barrier every k iterations; with backup=b (Chen et al. 2016) it opens when
// all but b have arrived, and what the others then push is LATE.
std::unique_ptr<Policy> make_bsp(const PolicyText& text, std::string& error);

}  // namespace syncd
