// Lists of policies: see policy_list.h. No thread of its own.
#include "reference_trainer/policy_list.h"

#include <fmt/format.h>

#include <cctype>

#include "daemon/policies/policy_text.h"
#include "reference_trainer/data_file.h"

namespace syncd::trainer {
namespace {

constexpr std::string_view kAllowed =
    "allowed: bsp[:k][,backup=b], asp, ssp:s, dssp:sL-sU, elastic_bsp:R, specsync[:...]+BASE, "
    "naive_wait:MS+BASE, hop:GRAPH[,max_ig=N]..., notify_ack:GRAPH[,every=N]";

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

void check_policy(std::string_view policy) {
  if (policy.empty() || policy.front() == ',') {
    throw PolicyListError(fmt::format("the first policy is missing; {}", kAllowed));
  }
  if (policy.back() == ',' || policy.find(",,") != policy.npos) {
    throw PolicyListError(
        fmt::format("nothing stands after a comma of {}; {}", show_field(policy), kAllowed));
  }
  const PolicyText text = split_policy_text(policy);
  if (!is_policy_name(std::string_view(text.name).substr(0, text.name.find('+')))) {
    throw PolicyListError(fmt::format("{} is not a policy; {}", show_field(policy), kAllowed));
  }
}

}  // namespace

std::vector<std::string> split_policies(std::string_view list) {
  std::vector<std::string> policies = split_policy_list(list);
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
