// See policy_text.h.
#include "daemon/core/policies/policy_text.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace syncd {

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

}  // namespace syncd
