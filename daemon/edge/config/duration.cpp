// Durations as text; see the header.
#include "daemon/edge/config/duration.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

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

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

bool parse_duration(std::string_view text, Micros& us) {
  if (text == "0") {
    us = 0;
    return true;
  }
  std::size_t at = 0;
  // Nine digits and six decimals in microseconds of a day stay below 2^63.
  std::int64_t whole = 0;
  while (at < text.size() && is_digit(text[at])) {
    if (at >= 9) return false;
    whole = whole * 10 + (text[at++] - '0');
  }
  if (at == 0) return false;
  std::int64_t millionths = 0;
  if (at < text.size() && text[at] == '.') {
    const std::size_t first = ++at;
    std::int64_t scale = 100'000;
    while (at < text.size() && is_digit(text[at])) {
      if (scale == 0) return false;
      millionths += (text[at++] - '0') * scale;
      scale /= 10;
    }
    if (at == first) return false;
  }
  for (const Unit& unit : kUnits) {
    if (text.substr(at) != unit.name) continue;
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
