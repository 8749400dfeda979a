// What a simulated run throws when something does not hold.
#pragma once

#include <stdexcept>
#include <string>

namespace syncd::simulation {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void require(bool holds, const std::string& text) {
  if (!holds) throw Violation(text);
}

}  // namespace syncd::simulation
