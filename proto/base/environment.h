// Variables of the environment. Not while another thread changes one.
#pragma once

#include <cstdlib>
#include <string>

namespace syncd {

// Empty where it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The same, and takes it out of the environment, so that no child believes it is meant.
inline std::string take_from_environment(const char* name) {
  std::string value = environment(name);
  unsetenv(name);
  return value;
}

}  // namespace syncd
