// Durations as text; see the header.
#include "daemon/edge/config/duration.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <vector>

#include "proto/base/number.h"
#include "proto/base/text.h"

namespace syncd::config {
namespace {

struct Unit {
  std::string_view name;
  Micros us;
};
// From long to short, so that show_duration() finds the longest one that fits.
constexpr std::array<Unit, 6> kUnits = {{{"d", 86'400'000'000},
                                         {"h", 3'600'000'000},
                                         {"m", 60'000'000},
                                         {"s", 1'000'000},
                                         {"ms", 1'000},
                                         {"us", 1}}};

}  // namespace

bool parse_duration(std::string_view text, Micros& us) {
  if (text == "0") {
    us = 0;
    return true;
  }
  const std::string_view number = text.substr(0, text.find_first_not_of("0123456789."));
  const std::vector<std::string_view> parts = split(number, '.');
  std::string decimals(parts.size() > 1 ? parts[1] : "0");
  std::int64_t whole = 0;
  std::int64_t millionths = 0;
  // Nine digits and six decimals in microseconds of a day stay below 2^63.
  if (parts.size() > 2 || parts[0].size() > 9 || decimals.empty() || decimals.size() > 6 ||
      !parse_number(parts[0], whole)) {
    return false;
  }
  decimals.resize(6, '0');
  parse_number(decimals, millionths);
  for (const Unit& unit : kUnits) {
    if (text.substr(number.size()) != unit.name) continue;
    if (whole > INT64_MAX / 2 / unit.us) return false;
    us = whole * unit.us + millionths * (unit.us / 1000) / 1000;
    return true;
  }
  return false;
}

std::string show_duration(Micros us) {
  for (const Unit& unit : kUnits) {
    if (us != 0 && us % unit.us == 0) return fmt::format("{}{}", us / unit.us, unit.name);
  }
  return "0s";
}

}  // namespace syncd::config
