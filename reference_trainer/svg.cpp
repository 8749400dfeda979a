// Parts of charts: see svg.h. No thread of its own.
#include "reference_trainer/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace syncd::trainer {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// How many bytes the UTF-8 character at the beginning of `text` has; 0: it is none. As the Unicode
// standard's table 3-7 has it: no overlong forms, no surrogates, nothing past U+10FFFF.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto between = [](unsigned value, unsigned low, unsigned high) {
    return value >= low && value <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (between(first, 0xc2, 0xdf)) return between(byte(1), 0x80, 0xbf) ? 2 : 0;
  const bool third_is_tail = between(byte(2), 0x80, 0xbf);
  if (between(first, 0xe0, 0xef)) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;
    const unsigned high = first == 0xed ? 0x9f : 0xbf;
    return between(byte(1), low, high) && third_is_tail ? 3 : 0;
  }
  if (between(first, 0xf0, 0xf4)) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;
    const bool fourth_is_tail = between(byte(3), 0x80, 0xbf);
    return between(byte(1), low, high) && third_is_tail && fourth_is_tail ? 4 : 0;
  }
  return 0;
}

bool is_control(char character) {
  const auto code = static_cast<unsigned char>(character);
  return (code < 0x20 && character != '\t' && character != '\n') || code == 0x7f;
}

bool is_finite(const Point& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0 || is_control(text.front())) {
      result += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    switch (text.front()) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
  return result;
}

Range range_of(std::span<const double> values) {
  Range range{0, 1};
  bool any = false;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    range =
        any ? Range{std::min(range.low, value), std::max(range.high, value)} : Range{value, value};
    any = true;
  }
  if (range.low < range.high) return range;
  const double room = range.low == 0 ? 1 : std::abs(range.low) / 10;
  return {range.low - room, range.high + room};
}

double Scale::operator()(double value) const {
  const double width = from_.high - from_.low;
  if (!(width > 0)) return (to_low_ + to_high_) / 2;
  return to_low_ + (value - from_.low) / width * (to_high_ - to_low_);
}

double nice_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

Ticks nice_ticks(Range range, std::size_t most, bool whole) {
  Ticks ticks;
  const double width = range.high - range.low;
  if (!std::isfinite(width) || width <= 0) return ticks;
  most = std::max<std::size_t>(2, most);
  ticks.step = nice_step(std::max(width / static_cast<double>(most), width * 1e-12));
  if (whole) ticks.step = std::max(1.0, ticks.step);
  // A range that starts and ends at ticks has one more of them than steps.
  for (;;) {
    const double first = std::ceil(range.low / ticks.step - 1e-9);
    const double last = std::floor(range.high / ticks.step + 1e-9);
    if (last - first + 1 > static_cast<double>(most)) {
      ticks.step = nice_step(ticks.step * 1.5);
      continue;
    }
    const auto count = static_cast<std::size_t>(std::max(0.0, last - first + 1));
    for (std::size_t i = 0; i < count; ++i) {
      // Adding 0 turns -0 into 0.
      ticks.values.push_back((first + static_cast<double>(i)) * ticks.step + 0.0);
    }
    return ticks;
  }
}

Range nice_range(Range range, std::size_t most, bool whole) {
  const Ticks ticks = nice_ticks(range, most, whole);
  if (ticks.values.empty()) return range;
  return {std::floor(range.low / ticks.step + 1e-9) * ticks.step,
          std::ceil(range.high / ticks.step - 1e-9) * ticks.step};
}

std::string tick_label(double value, double step) {
  if (!std::isfinite(value) || !(step > 0)) return "";
  constexpr std::array<std::pair<double, const char*>, 3> kUnits{
      {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [unit, letter] : kUnits) {
    if (step < unit / 10 || std::abs(value) < unit || std::abs(value) < 1e4) continue;
    return tick_label(value / unit, step / unit) + letter;
  }
  if (std::abs(value) >= 1e12 || step < 1e-6) return fmt::format("{:.3g}", value);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
  return fmt::format("{:.{}f}", value, decimals);
}

std::string length(double value) {
  if (!std::isfinite(value)) return "0";
  // Far outside of any picture it no longer matters where, and programs that draw have limits.
  const double rounded = std::round(std::clamp(value, -1e5, 1e5) * 10) / 10 + 0.0;
  return rounded == std::trunc(rounded) ? fmt::format("{:.0f}", rounded)
                                        : fmt::format("{:.1f}", rounded);
}

std::vector<Point> thin(std::span<const Point> points, std::size_t most) {
  if (points.size() <= most) return {points.begin(), points.end()};
  // Two for the ends, two for every part.
  const std::size_t parts = (most - 2) / 2;
  const std::span<const Point> inner = points.subspan(1, points.size() - 2);
  std::vector<Point> result{points.front()};
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = inner.size() * part / parts;
    const std::size_t end = inner.size() * (part + 1) / parts;
    if (begin == end) continue;
    std::size_t lowest = end;
    std::size_t highest = end;
    for (std::size_t i = begin; i < end; ++i) {
      if (!is_finite(inner[i])) continue;
      if (lowest == end || inner[i].y < inner[lowest].y) lowest = i;
      if (highest == end || inner[i].y > inner[highest].y) highest = i;
    }
    if (lowest == end) {
      result.push_back(inner[begin]);
      continue;
    }
    result.push_back(inner[std::min(lowest, highest)]);
    if (lowest != highest) result.push_back(inner[std::max(lowest, highest)]);
  }
  result.push_back(points.back());
  return result;
}

std::string line_path(std::span<const Point> points, const Scale& x, const Scale& y) {
  std::string path;
  bool draws = false;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (!is_finite(points[i])) {
      draws = false;
      continue;
    }
    const std::string place = length(x(points[i].x)) + " " + length(y(points[i].y));
    if (draws) {
      path += "L" + place;
      continue;
    }
    path += "M" + place;
    const bool is_alone = i + 1 == points.size() || !is_finite(points[i + 1]);
    if (is_alone) path += "h0";
    draws = true;
  }
  return path;
}

}  // namespace syncd::trainer
