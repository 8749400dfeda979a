// Every policy by name: one line each. No thread, no state.
#include <algorithm>
#include <string>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/policy.h"
#include "daemon/core/policies/bsp_asp_ssp.h"
#include "daemon/core/policies/dssp.h"
#include "daemon/core/policies/elastic_bsp.h"
#include "daemon/core/policies/hop.h"
#include "daemon/core/policies/naive_wait.h"
#include "daemon/core/policies/notify_ack.h"
#include "daemon/core/policies/policy_text.h"
#include "daemon/core/policies/specsync.h"

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
    {"elastic_bsp", "elastic_bsp:R[,ALGORITHM][,PREDICTOR][,objective=max|rate][,beta=B]",
     make_elastic_bsp},
    {"hop",
     "hop:GRAPH[,max_ig=N][,backup=B][,backup.RANK=B][,staleness=S][,skip=N[,skip_trigger=N]]"
     "[,force=1]",
     make_hop},
    {"notify_ack", "notify_ack:GRAPH[,every=N][,force=1]", make_notify_ack},
};

struct Overlay {
  const char* name;
  const char* form;
  std::unique_ptr<Policy> (*make)(const PolicyText&, std::unique_ptr<Policy>, std::string&);
};
constexpr Overlay kOverlays[] = {
    {"naive_wait", "naive_wait:MS+BASE", make_naive_wait},
    {"specsync",
     "specsync[:adaptive[,scope=job|worker][,cap=span|authors]|:fixed,ABORT_TIME_MS,ABORT_RATE]"
     "[,max_restarts=N][,auto_off=on|off]+BASE",
     make_specsync},
};

// Lists of policies are split by the same names.
static_assert(std::all_of(std::begin(kBases), std::end(kBases),
                          [](const Base& base) { return is_policy_name(base.name); }) &&
              std::all_of(std::begin(kOverlays), std::end(kOverlays),
                          [](const Overlay& overlay) { return is_policy_name(overlay.name); }));

}  // namespace

std::unique_ptr<Policy> make_policy(std::string_view text, std::string& error,
                                    std::shared_ptr<const topology::GraphFile> graph_file) {
  if (text.size() > limits::kPolicyBytesMax) {
    error = "the policy is " + std::to_string(text.size()) + " bytes long: at most " +
            std::to_string(limits::kPolicyBytesMax) + " are allowed";
    return nullptr;
  }
  const std::size_t plus = text.find('+');
  PolicyText first = split_policy_text(text.substr(0, plus));
  if (is_policy_name(first.name)) {
    error = find_given_twice(first);
    if (!error.empty()) return nullptr;
  }
  for (const Overlay& overlay : kOverlays) {
    if (first.name != overlay.name) continue;
    if (plus == std::string_view::npos) {
      error = policy_error(first, std::string(overlay.name) + " is laid over another policy: " +
                                      overlay.form + ", where BASE is such as asp");
      return nullptr;
    }
    auto base = make_policy(text.substr(plus + 1), error, std::move(graph_file));
    return base ? overlay.make(first, std::move(base), error) : nullptr;
  }
  for (const Base& base : kBases) {
    if (first.name != base.name) continue;
    first.graph_file = std::move(graph_file);
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

}  // namespace syncd
