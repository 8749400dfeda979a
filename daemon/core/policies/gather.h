// gather:MIN[-MAX]: workers form rounds of MIN to MAX members, as the agents of torchrun do. There
// are no pushes: a begin says that its worker is ready for the next round, and ends its part in the
// last. How a round forms, breaks and ends stands in README.md here, in the section of gather.
#pragma once

#include <memory>
#include <string>

#include "daemon/core/policies/policy_text.h"

namespace syncd {

std::unique_ptr<Policy> make_gather(const PolicyText& text, std::string& error);

}  // namespace syncd
