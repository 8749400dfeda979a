// See policy_text.h.
#include "daemon/core/policies/policy_text.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace syncd {
namespace {

struct SpanUnit {
  std::string_view name;
  Micros us;
};
constexpr SpanUnit kSpanUnits[] = {
    {"h", 3'600'000'000}, {"m", 60'000'000}, {"s", 1'000'000}, {"ms", 1'000}, {"us", 1}};

}  // namespace

PolicyText split_policy_text(std::string_view text) {
  PolicyText out;
  out.whole = std::string(text);
  const std::size_t colon = text.find(':');
  const std::size_t comma = text.find(',');
  const std::size_t name_end = std::min(colon, comma);
  out.name = std::string(text.substr(0, name_end));
  if (name_end == std::string_view::npos) return out;
  std::string_view rest = text.substr(name_end + 1);
  while (true) {
    const std::size_t end = rest.find(',');
    const std::string_view part = rest.substr(0, end);
    const std::size_t equals = part.find('=');
    // "=ring" is not "ring": it has a sign too many.
    if (equals == std::string_view::npos || equals == 0) {
      out.arguments.push_back({"", std::string(part)});
    } else {
      out.arguments.push_back(
          {std::string(part.substr(0, equals)), std::string(part.substr(equals + 1))});
    }
    if (end == std::string_view::npos) return out;
    rest = rest.substr(end + 1);
  }
}

std::string policy_error(const PolicyText& text, std::string_view what) {
  return fmt::format("policy '{}': {}", text.whole, what);
}

std::string given_twice(const PolicyText& text, std::string_view what) {
  return policy_error(text, fmt::format("{} is given twice", what));
}

std::string find_given_twice(const PolicyText& text) {
  std::set<std::string_view> keys;
  for (const PolicyArgument& argument : text.arguments) {
    if (!argument.key.empty() && !keys.insert(argument.key).second) {
      return given_twice(text, argument.key);
    }
  }
  return {};
}

std::string unknown_parameter(const PolicyText& text, const PolicyArgument& argument,
                              std::string_view takes) {
  const std::string& name = argument.key.empty() ? argument.value : argument.key;
  return policy_error(text, fmt::format("unknown parameter '{}'; {}", name, takes));
}

std::optional<std::int64_t> parse_policy_integer(const PolicyText& text, std::string_view what,
                                                 std::string_view value, std::int64_t lowest,
                                                 std::int64_t highest, std::string& error) {
  std::int64_t number = 0;
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (code == std::errc{} && end == value.data() + value.size() && number >= lowest &&
      number <= highest) {
    return number;
  }
  error = policy_error(text, fmt::format("{} is '{}', allowed are whole numbers from {} to {}",
                                         what, value, lowest, highest));
  return std::nullopt;
}

std::optional<Micros> parse_policy_span(const PolicyText& text, std::string_view what,
                                        std::string_view value, std::string& error) {
  constexpr Micros kDay = Micros{24} * 3600 * 1'000'000;
  const char* const end = value.data() + value.size();
  std::int64_t number = 0;
  const auto [rest, code] = std::from_chars(value.data(), end, number);
  if (code == std::errc{} && number >= 0) {
    const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
    if (unit.empty() && number == 0) return 0;
    for (const SpanUnit& one : kSpanUnits) {
      if (unit == one.name && number <= kDay / one.us) return number * one.us;
    }
  }
  error =
      policy_error(text, fmt::format("{} is '{}', allowed are spans of time from 0 to 24h, such "
                                     "as 2s or 500ms",
                                     what, value));
  return std::nullopt;
}

std::string span_text(Micros us) {
  if (us == 0) return "0";
  for (const SpanUnit& one : kSpanUnits) {
    if (us % one.us == 0) return fmt::format("{}{}", us / one.us, one.name);
  }
  return fmt::format("{}us", us);
}

}  // namespace syncd
