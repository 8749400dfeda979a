// The list of policies: the only one. What a program must know of a policy it asks here; nothing
// else compares a policy's name with anything. How to add one stands in registry.cpp. Any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/policies/policy_text.h"

namespace syncd {

struct PolicyRow {
  std::string_view name;
  std::string_view form;  // what may be written: "bsp[:K][,backup=B]"
  // One of the two. An overlay is laid over another policy: "naive_wait:MS+BASE".
  MakePolicy* make = nullptr;
  MakeOverlay* lay_over = nullptr;
};

std::span<const PolicyRow> all_policies();
// Null: there is none of this name.
const PolicyRow* find_policy(std::string_view name);

// The traits of the policy that make_policy() makes from this text. Empty: it makes none, `error`
// says why. Reads no file.
std::optional<PolicyTraits> traits_of(std::string_view policy, std::string& error);
// Likewise, where a daemon or a history has named the policy. One that is unknown here, such as a
// newer daemon's, counts as a parameter server's that promises nothing.
PolicyTraits traits_or_none(std::string_view policy);

// "asp,bsp:5,backup=2,ssp:3" as "asp", "bsp:5,backup=2" and "ssp:3": a list of policies is split at
// the commas that a policy's name follows. Nothing is checked; an empty list is one empty policy.
std::vector<std::string> split_policy_list(std::string_view list);

}  // namespace syncd
