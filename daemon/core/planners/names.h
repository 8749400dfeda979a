// Names of enumerations as texts spell them. Pure; any thread.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

namespace syncd::planners {

// The names of an enumeration's values, which count from 0, in their order: "last, ewma, median".
// Messages and help show it. Specialised beside each enumeration.
template <class Enum>
inline constexpr std::string_view kNames = {};

template <class Enum>
std::optional<Enum> parse_name(std::string_view name) {
  std::string_view rest = kNames<Enum>;
  for (int value = 0; !rest.empty(); ++value) {
    const std::string_view one = rest.substr(0, rest.find(", "));
    if (one == name) return static_cast<Enum>(value);
    rest.remove_prefix(std::min(rest.size(), one.size() + 2));
  }
  return std::nullopt;
}

template <class Enum>
requires(!kNames<Enum>.empty()) std::string_view to_string(Enum named) {
  std::string_view rest = kNames<Enum>;
  for (int value = 0; value < static_cast<int>(named); ++value) {
    rest.remove_prefix(rest.find(", ") + 2);
  }
  return rest.substr(0, rest.find(", "));
}

}  // namespace syncd::planners
