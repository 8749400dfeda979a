// Lists of policies: see policy_list.h. No thread of its own.
#include "reference_trainer/policy_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "reference_trainer/data_file.h"

namespace syncd::trainer {
namespace {

constexpr std::array<std::string_view, 9> kNames{
    "bsp", "asp", "ssp", "dssp", "elastic_bsp", "specsync", "hop", "notify_ack", "naive_wait"};
constexpr std::string_view kAllowed =
    "allowed: bsp[:k], asp, ssp:s, dssp:sL-sU, elastic_bsp:R, specsync[:...]+BASE, "
    "naive_wait:MS+BASE (as far as the daemon offers them)";

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::string_view leading_name(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && is_name_character(text[length])) ++length;
  return text.substr(0, length);
}

// True if a policy begins here: a known name that ends the text or is followed by a ':', a '+' or a
// ','. ("hop" in "graph=hop" stands after '=', not after a comma; "bsp=..." is a key, not a name.)
bool begins_policy(std::string_view text) {
  const std::string_view name = leading_name(text);
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return false;
  if (name.size() == text.size()) return true;
  const char next = text[name.size()];
  return next == ':' || next == '+' || next == ',';
}

void check_policy(std::string_view policy) {
  if (policy.empty() || policy.front() == ',') {
    throw PolicyListError(fmt::format("the first policy is missing; {}", kAllowed));
  }
  if (policy.back() == ',' || policy.find(",,") != policy.npos) {
    throw PolicyListError(
        fmt::format("nothing stands after a comma of {}; {}", show_field(policy), kAllowed));
  }
  if (!begins_policy(policy)) {
    throw PolicyListError(fmt::format("{} is not a policy; {}", show_field(policy), kAllowed));
  }
  const std::string_view name = leading_name(policy);
  if (name == "hop" || name == "notify_ack") {
    throw PolicyListError(
        fmt::format("{} is a decentralized policy, and the workers of this trainer share one "
                    "parameter store; {}",
                    show_field(policy), kAllowed));
  }
}

}  // namespace

std::vector<std::string> split_policies(std::string_view list) {
  std::vector<std::string> policies;
  std::size_t start = 0;
  for (;;) {
    std::size_t end = list.find(',', start);
    while (end != list.npos && !begins_policy(list.substr(end + 1))) end = list.find(',', end + 1);
    policies.emplace_back(list.substr(start, end - start));
    if (end == list.npos) break;
    start = end + 1;
  }
  for (const std::string& policy : policies) check_policy(policy);
  return policies;
}

std::string policy_slug(std::string_view policy) {
  std::string slug(policy);
  for (char& c : slug) {
    if (!is_name_character(c) && c != '.' && c != '-') c = '-';
  }
  return slug;
}

}  // namespace syncd::trainer
