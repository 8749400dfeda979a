// naive_wait:MS+<base>: the baseline of SpecSync's section III. Runs on the engine's thread.
#pragma once

#include <memory>
#include <string>

#include "daemon/core/engine/policy.h"
#include "daemon/core/policies/policy_text.h"

namespace syncd {

// Delays each grant by MS milliseconds after the base policy would have given it.
std::unique_ptr<Policy> make_naive_wait(const PolicyText& text, std::unique_ptr<Policy> base,
                                        std::string& error);

}  // namespace syncd
