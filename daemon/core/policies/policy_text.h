// Policy strings taken apart: "bsp:5,backup=2" is the name "bsp" and the arguments "5" and
// "backup=2". Shared by all policies, so that they all complain alike. No thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::topology {
struct GraphFile;
}

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
};

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

}  // namespace syncd
