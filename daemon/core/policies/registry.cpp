// See registry.h. No thread, no state.
//
// To add a policy x, and what fails if a step is forgotten:
//  1. Write x.h and x.cpp in this folder, which builds every .cpp: a class, which hands its traits
//     to Policy's constructor, and make_x(), which reads parameters with parse_parameter()
//     (policy_text.h). packaging.rooms names what it must not include.
//  2. Include x.h here and add a row to kPolicies. policy_page_test fails for a page without a row.
//  3. Add its page: in README.md here a section with a picture (doc/draw) and a row of the table, a
//     row in the top level's README.md, an item in packaging/man/syncd.8.md. policy_page_test fails
//     for a row without each of these, and if an example of the section does not behave as its
//     traits say.
//  4. Add its test, tests/golden/engine/x.txt. policy_page_test fails without one.
//  5. Add it to the policies that tests/unit/engine/event_list.cpp draws from and that
//     effect_hashes_test.cpp expects, and make the hashes anew (SYNCD_REWRITE_EFFECT_HASHES=1).
//     Nothing fails without that.
//  6. Run engine_golden_test, once with SYNCD_REWRITE_GOLDEN=1: refusals that list all policies are
//     made anew. Without that it fails.
#include "daemon/core/policies/registry.h"

#include <algorithm>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "daemon/core/policies/bsp_asp_ssp.h"
#include "daemon/core/policies/dssp.h"
#include "daemon/core/policies/elastic_bsp.h"
#include "daemon/core/policies/gather.h"
#include "daemon/core/policies/graph_baselines.h"
#include "daemon/core/policies/hop.h"
#include "daemon/core/policies/naive_wait.h"
#include "daemon/core/policies/notify_ack.h"
#include "daemon/core/policies/specsync.h"
#include "proto/base/suggest.h"

namespace syncd {
namespace {

// In the order in which messages name them.
constexpr PolicyRow kPolicies[] = {
    {"asp", "asp", make_asp},
    {"bsp", "bsp[:K][,backup=B]", make_bsp},
    {"ssp", "ssp:S", make_ssp},
    {"dssp", "dssp:SL-SU", make_dssp},
    {"elastic_bsp", "elastic_bsp:R[,ALGORITHM][,predictor=P][,objective=max|rate][,beta=B]",
     make_elastic_bsp},
    {"hop",
     "hop:GRAPH[,max_ig=N][,backup=B][,backup.RANK=B][,staleness=S][,skip=N[,skip_trigger=N]]"
     "[,force=1]",
     make_hop},
    {"notify_ack", "notify_ack:GRAPH[,every=N][,force=1]", make_notify_ack},
    {"barrier", "barrier:GRAPH[,force=1] (unsafe baseline)", make_graph_barrier},
    {"async", "async:GRAPH[,force=1] (unsafe baseline)", make_graph_async},
    {"gather", "gather:MIN[-MAX][,last_call=T][,regroup_wait=T][,straggle_wait=T]", make_gather},
    {"naive_wait", "naive_wait:MS+BASE", nullptr, make_naive_wait},
    {"specsync",
     "specsync[:adaptive[,scope=job|worker|forecast][,cap=span|authors]|:progress|:fixed,ABORT_"
     "TIME_"
     "MS,ABORT_RATE]"
     "[,budget=P][,max_restarts=N][,auto_off=on|off]+BASE",
     nullptr, make_specsync},
};

static_assert(std::all_of(std::begin(kPolicies), std::end(kPolicies),
                          [](const PolicyRow& row) { return row.form.starts_with(row.name); }));

// " (did you mean ssp:3?)" for "spp:3", or " (did you mean ssp:S?)" where it says no more than a
// name; empty if no name is near.
std::string hint_for(std::string_view text, std::string_view name) {
  std::string plain(name);
  for (char& c : plain) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  std::vector<std::string> names;
  for (const PolicyRow& row : kPolicies) names.emplace_back(row.name);
  const std::string near = nearest(plain, names);
  if (near.empty()) return {};
  const std::string_view rest = text.substr(std::min(name.size(), text.size()));
  return fmt::format(" (did you mean {}?)",
                     rest.empty() ? std::string(find_policy(near)->form) : near + std::string(rest));
}

}  // namespace

std::span<const PolicyRow> all_policies() {
  return kPolicies;
}

const PolicyRow* find_policy(std::string_view name) {
  const auto* const row = std::find_if(std::begin(kPolicies), std::end(kPolicies),
                                       [&](const PolicyRow& each) { return each.name == name; });
  return row != std::end(kPolicies) ? row : nullptr;
}

std::unique_ptr<Policy> make_policy(std::string_view text, std::string& error,
                                    std::shared_ptr<const topology::GraphFile> graph_file) {
  if (text.size() > limits::kPolicyBytesMax) {
    error = fmt::format("the policy is {} bytes long: at most {} are allowed", text.size(),
                        limits::kPolicyBytesMax);
    return nullptr;
  }
  const std::size_t plus = text.find('+');
  PolicyText first = split_policy_text(text.substr(0, plus));
  const PolicyRow* row = find_policy(first.name);
  if (row == nullptr) {
    error = fmt::format("policy '{}' is unknown{}: allowed are {}", text,
                        hint_for(text, first.name), known_policies());
    return nullptr;
  }
  error = find_given_twice(first);
  if (!error.empty()) return nullptr;
  if (row->lay_over != nullptr) {
    if (plus == std::string_view::npos) {
      error = policy_error(first, fmt::format("{} is laid over another policy: {}, where BASE is "
                                              "such as asp",
                                              row->name, row->form));
      return nullptr;
    }
    auto base = make_policy(text.substr(plus + 1), error, std::move(graph_file));
    if (base && base->family() == Family::kGather) {
      error = policy_error(first, fmt::format("nothing can be laid over '{}', whose workers push "
                                              "nothing",
                                              base->name()));
      return nullptr;
    }
    return base ? row->lay_over(first, std::move(base), error) : nullptr;
  }
  if (plus != std::string_view::npos) {
    error = fmt::format("policy '{}': nothing can be laid under {}", text, first.name);
    return nullptr;
  }
  first.graph_file = std::move(graph_file);
  return row->make(first, error);
}

std::string known_policies() {
  std::string all;
  for (const PolicyRow& row : kPolicies) all.append(all.empty() ? "" : ", ").append(row.form);
  return all;
}

std::optional<PolicyTraits> traits_of(std::string_view policy, std::string& error) {
  const auto made = make_policy(policy, error);
  return made ? std::optional(made->traits()) : std::nullopt;
}

PolicyTraits traits_or_none(std::string_view policy) {
  std::string error;
  return traits_of(policy, error).value_or(PolicyTraits{});
}

// A policy's own commas come before arguments, and no argument starts with a policy's name.
std::vector<std::string> split_policy_list(std::string_view list) {
  std::vector<std::string> policies;
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view piece = list.substr(0, comma);
    if (policies.empty() || find_policy(piece.substr(0, piece.find_first_of(":+"))) != nullptr) {
      policies.emplace_back(piece);
    } else {
      policies.back().append(",").append(piece);
    }
    if (comma == std::string_view::npos) return policies;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace syncd
