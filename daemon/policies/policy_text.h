// Policy strings taken apart: "bsp:5,backup=2" is the name "bsp" and the arguments "5" and
// "backup=2". Shared by all policies, so that they all complain alike. No thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncd {

struct PolicyArgument {
  std::string key;  // empty: positional
  std::string value;
};

struct PolicyText {
  std::string whole;  // for messages
  std::string name;
  std::vector<PolicyArgument> arguments;
};

PolicyText split_policy_text(std::string_view text);

// "policy 'ssp:x': <what>".
std::string policy_error(const PolicyText& text, std::string_view what);

// An integer argument within [lowest, highest]; empty, with a sentence in `error`, if it is not
// one.
std::optional<std::int64_t> parse_policy_integer(const PolicyText& text, std::string_view what,
                                                 std::string_view value, std::int64_t lowest,
                                                 std::int64_t highest, std::string& error);

}  // namespace syncd
