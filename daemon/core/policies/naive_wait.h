// naive_wait:MS+<base>: the baseline of SpecSync's section III. Runs on the engine's thread.
#pragma once

#include "daemon/core/policies/policy_text.h"

namespace syncd {

// Delays each grant by MS milliseconds after the base policy would have given it.
MakeOverlay make_naive_wait;

}  // namespace syncd
