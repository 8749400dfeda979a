// Every policy by name: one line each. No thread, no state.
#include <algorithm>
#include <string>

#include "daemon/engine/limits.h"
#include "daemon/engine/policy.h"
#include "daemon/policies/bsp_asp_ssp.h"
#include "daemon/policies/dssp.h"
#include "daemon/policies/hop.h"
#include "daemon/policies/naive_wait.h"
#include "daemon/policies/notify_ack.h"
#include "daemon/policies/policy_text.h"

namespace syncd {
namespace {

struct Base {
  const char* name;
  const char* form;
  std::unique_ptr<Policy> (*make)(const PolicyText&, std::string&);
};
constexpr Base kBases[] = {
    {"asp", "asp", make_asp},
    {"bsp", "bsp[:K][,backup=B]", make_bsp},
    {"ssp", "ssp:S", make_ssp},
    {"dssp", "dssp:SL-SU", make_dssp},
    {"hop", "hop:GRAPH[,max_ig=N][,backup=B][,staleness=S][,skip=N]", make_hop},
    {"notify_ack", "notify_ack:GRAPH[,every=N]", make_notify_ack},
};

struct Overlay {
  const char* name;
  const char* form;
  std::unique_ptr<Policy> (*make)(const PolicyText&, std::unique_ptr<Policy>, std::string&);
};
constexpr Overlay kOverlays[] = {
    {"naive_wait", "naive_wait:MS+BASE", make_naive_wait},
};

}  // namespace

std::unique_ptr<Policy> make_policy(std::string_view text, std::string& error) {
  if (text.size() > limits::kPolicyBytesMax) {
    error = "the policy is " + std::to_string(text.size()) + " bytes long: at most " +
            std::to_string(limits::kPolicyBytesMax) + " are allowed";
    return nullptr;
  }
  const std::size_t plus = text.find('+');
  const PolicyText first = split_policy_text(text.substr(0, plus));
  for (const Overlay& overlay : kOverlays) {
    if (first.name != overlay.name) continue;
    if (plus == std::string_view::npos) {
      error = policy_error(first, std::string(overlay.name) + " is laid over another policy: " +
                                      overlay.form + ", where BASE is such as asp");
      return nullptr;
    }
    auto base = make_policy(text.substr(plus + 1), error);
    return base ? overlay.make(first, std::move(base), error) : nullptr;
  }
  for (const Base& base : kBases) {
    if (first.name != base.name) continue;
    if (plus == std::string_view::npos) return base.make(first, error);
    error = "policy '" + std::string(text) + "': nothing can be laid under " + base.name;
    return nullptr;
  }
  error = "policy '" + std::string(text) + "' is unknown: allowed are " + known_policies();
  return nullptr;
}

std::string known_policies() {
  std::string all;
  for (const Base& base : kBases) all += (all.empty() ? "" : ", ") + std::string(base.form);
  for (const Overlay& overlay : kOverlays) all += ", " + std::string(overlay.form);
  return all;
}

// A policy's own commas come before arguments, and no argument starts with a policy's name.
std::vector<std::string> split_policy_list(std::string_view list) {
  std::vector<std::string> policies;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view piece = list.substr(0, comma);
    const std::string_view name = piece.substr(0, piece.find_first_of(":+"));
    const auto is_named = [name](const auto& known) { return known.name == name; };
    const bool begins = std::any_of(std::begin(kBases), std::end(kBases), is_named) ||
                        std::any_of(std::begin(kOverlays), std::end(kOverlays), is_named);
    if (policies.empty() || begins) {
      policies.emplace_back(piece);
    } else {
      policies.back().append(",").append(piece);
    }
    if (comma == std::string_view::npos) return policies;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace syncd
