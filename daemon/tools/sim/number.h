// The words that texts of the simulator are made of. Pure functions.
#pragma once

#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "proto/base/number.h"

namespace syncd::sim {

// A whole text as a finite number.
inline std::optional<double> number(std::string_view text) {
  double value = 0;
  if (!parse_number(text, value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

// The text before and after the first `at`. Without one, all is before it.
inline std::pair<std::string_view, std::string_view> split(std::string_view text, char at) {
  const std::size_t position = text.find(at);
  if (position == std::string_view::npos) return {text, {}};
  return {text.substr(0, position), text.substr(position + 1)};
}

}  // namespace syncd::sim
