// Policy strings taken apart: "bsp:5,backup=2" is the name "bsp" and the arguments "5" and
// "backup=2". Shared by all policies, so that they all complain alike. No thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/core/engine/policy.h"
#include "daemon/core/planners/names.h"

namespace syncd {

struct PolicyArgument {
  std::string key;  // empty: positional, as "=x" is, too
  std::string value;
};

struct PolicyText {
  std::string whole;  // for messages
  std::string name;
  std::vector<PolicyArgument> arguments;
  // What the file that it names says; null: it names none, or nobody has read it.
  std::shared_ptr<const topology::GraphFile> graph_file = nullptr;

  bool begins_unnamed() const { return !arguments.empty() && arguments[0].key.empty(); }
  bool is_one_unnamed() const { return arguments.size() == 1 && begins_unnamed(); }
};

// Null: `error` says what is wrong with the text and what is allowed.
using MakePolicy = std::unique_ptr<Policy>(const PolicyText& text, std::string& error);
using MakeOverlay = std::unique_ptr<Policy>(const PolicyText& text, std::unique_ptr<Policy> base,
                                            std::string& error);

PolicyText split_policy_text(std::string_view text);

// "policy 'ssp:x': <what>".
std::string policy_error(const PolicyText& text, std::string_view what);

// "policy 'hop:ring,skip=1,skip=2': skip is given twice".
std::string given_twice(const PolicyText& text, std::string_view what);

// The sentence for the first "key=value" argument whose key an earlier one has. Empty: there is
// none. Positional arguments are the policy's own matter. O(n log n).
std::string find_given_twice(const PolicyText& text);

// No count or bound of a policy makes sense beyond this; sums stay far from overflow.
inline constexpr std::int64_t kParameterMax = 1'000'000'000;

// An integer argument within [lowest, highest]; empty, with a sentence in `error`, if it is not
// one.
std::optional<std::int64_t> parse_policy_integer(const PolicyText& text, std::string_view what,
                                                 std::string_view value, std::int64_t lowest,
                                                 std::int64_t highest, std::string& error);

// A span of time such as "2s" or "500ms", within [0, a day]; units are us, ms, s, m and h, and 0
// needs none. Empty, with a sentence in `error`, if it is not one.
std::optional<Micros> parse_policy_span(const PolicyText& text, std::string_view what,
                                        std::string_view value, std::string& error);
// The shortest text that it reads back.
std::string span_text(Micros us);

// An argument "key=NAME" whose values have names. False: `error` says which.
template <class Enum>
bool parse_choice(const PolicyText& text, const PolicyArgument& argument, Enum& value,
                  std::string& error) {
  const std::optional<Enum> named = planners::parse_name<Enum>(argument.value);
  if (named) value = *named;
  if (!named) {
    error = policy_error(text, fmt::format("{} is '{}', allowed are {}", argument.key,
                                           argument.value, planners::kNames<Enum>));
  }
  return named.has_value();
}

// "unknown parameter 'x'; <takes>".
std::string unknown_parameter(const PolicyText& text, const PolicyArgument& argument,
                              std::string_view takes);

// A parameter "key=N" of a policy: a number of its Settings. An optional one has no default.
template <class Settings>
struct Parameter {
  std::string_view key;
  std::variant<std::int64_t Settings::*, std::optional<std::int64_t> Settings::*> value;
  std::int64_t lowest = 0;
  std::int64_t highest = kParameterMax;
};

// Sets what the argument names among `parameters`. False: `error` says what is wrong, with `takes`
// for one that is not among them.
template <class Parameters, class Settings>
bool parse_parameter(const PolicyText& text, const PolicyArgument& argument,
                     const Parameters& parameters, std::string_view takes, Settings& settings,
                     std::string& error) {
  for (const Parameter<Settings>& one : parameters) {
    if (one.key != argument.key) continue;
    const auto number =
        parse_policy_integer(text, one.key, argument.value, one.lowest, one.highest, error);
    if (number) std::visit([&](auto member) { settings.*member = *number; }, one.value);
    return number.has_value();
  }
  error = unknown_parameter(text, argument, takes);
  return false;
}

// ",max_ig=5,skip=2": the parameters that differ from their defaults.
template <class Parameters, class Settings>
std::string parameters_text(const Parameters& parameters, const Settings& settings) {
  const Settings defaults;
  std::string text;
  for (const Parameter<Settings>& one : parameters) {
    const auto of = [&](const Settings& from) {
      return std::visit([&](auto member) { return std::optional(from.*member); }, one.value);
    };
    if (of(settings) != of(defaults)) text += fmt::format(",{}={}", one.key, *of(settings));
  }
  return text;
}

}  // namespace syncd
