// Policy strings taken apart: "bsp:5,backup=2" is the name "bsp" and the arguments "5" and
// "backup=2". Shared by all policies, so that they all complain alike. No thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
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

// Every policy's name: what begins a policy in a list of them.
inline constexpr std::string_view kPolicyNames[] = {
    "asp", "bsp", "dssp", "elastic_bsp", "hop", "naive_wait", "notify_ack", "specsync", "ssp"};

constexpr bool is_policy_name(std::string_view name) {
  return std::find(std::begin(kPolicyNames), std::end(kPolicyNames), name) !=
         std::end(kPolicyNames);
}

// "asp,bsp:5,backup=2,ssp:3" as "asp", "bsp:5,backup=2" and "ssp:3": a list of policies is split at
// the commas that a policy's name follows. Nothing is checked; an empty list is one empty policy.
std::vector<std::string> split_policy_list(std::string_view list);

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
