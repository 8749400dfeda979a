// Cutting a list of policies apart where a policy may hold commas itself. Pure functions.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::trainer {

// A policy text that cannot be used; what() says what is wrong and what is allowed.
class PolicyListError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Splits "bsp,bsp:2,backup=1,ssp:3" into bsp | bsp:2,backup=1 | ssp:3: a comma separates only where
// a policy's name follows. What stands after the name is the daemon's to judge. Throws
// PolicyListError for an empty list or item and for text that begins with no known name.
std::vector<std::string> split_policies(std::string_view list);

// "ssp:3" -> "ssp-3": letters, digits, '.', '_' and '-' stay, everything else becomes '-'. For file
// and job names.
std::string policy_slug(std::string_view policy);

}  // namespace syncd::trainer
