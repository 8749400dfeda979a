// Policies as text, lists of them, graphs by name, and graph files: [what, for how many workers,
// text]. What is accepted is written as a text that means the same.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/engine/policy.h"
#include "daemon/core/policies/policy_text.h"
#include "daemon/core/policies/registry.h"
#include "daemon/core/topology/bounds.h"
#include "daemon/core/topology/graph_spec.h"
#include "daemon/core/topology/spectral.h"
#include "tests/fuzz/check.h"

namespace {

using namespace syncd;

// Graphs larger than this are read, but not measured.
constexpr std::size_t kMeasuredMax = 40;

void try_policy(std::string_view text, std::uint32_t workers) {
  std::string error;
  const auto policy = make_policy(text, error);
  if (!policy) {
    fuzz::require(!error.empty(), "a policy is refused without a word", text);
    return;
  }
  const std::string name = policy->name();
  const auto again = make_policy(name, error);
  fuzz::require(again != nullptr, "a policy's own name is refused", name + ": " + error);
  fuzz::require(again->name() == name, "a policy's name changes", name + ", " + again->name());
  fuzz::require(again->traits() == policy->traits() && again->check_workers(workers, workers) ==
                                                           policy->check_workers(workers, workers),
                "a policy's name makes another one", name);
  const auto state = policy->save();
  fuzz::require(policy->load(state), "a policy refuses its own state", name);
}

void try_list(std::string_view text) {
  const std::vector<std::string> items = split_policy_list(text);
  std::string joined;
  for (const std::string& item : items) joined += (joined.empty() ? "" : ",") + item;
  fuzz::require(!items.empty(), "a list of no policies");
  fuzz::require(joined.size() <= text.size() + items.size(), "a list grows", joined);
  for (const std::string& item : items) {
    const PolicyText parts = split_policy_text(item);
    fuzz::require(parts.whole == item && !policy_error(parts, "x").empty(), "a policy changes",
                  item);
    (void)find_given_twice(parts);
  }
}

void measure(const topology::Graph& graph) {
  const topology::Acceptance answer = topology::accept_for_job(graph, true);
  fuzz::require(answer.accepted || !answer.reason.empty(), "a graph is refused without a word");
  if (graph.size() == 0) return;
  const bool strong = topology::is_strongly_connected(graph);
  fuzz::require(topology::diameter(graph).has_value() == strong, "a diameter without a way");
  if (answer.accepted) {
    std::vector<double> columns(graph.size(), 0);
    for (topology::Node node = 0; node < graph.size(); ++node) {
      const topology::RowWeights weights = topology::row_weights(graph, answer.weighting, node);
      double sum = weights.own;
      for (const double weight : weights.in) sum += weight;
      fuzz::require(std::abs(sum - 1) < 1e-9, "weights that do not sum to 1");
    }
  }
  const double gap = topology::spectral_gap(graph);
  // Where workers do not count alike, the second singular value may be above 1.
  fuzz::require(gap < 1 + 1e-6 && (gap > -1e-6 || !topology::is_doubly_stochastic(graph)),
                "a spectral gap outside 0 to 1");
  std::string error;
  const auto setting = topology::parse_gap_setting("standard", error);
  const topology::GapBounds bounds = topology::gap_bounds(graph, *setting);
  for (topology::Node i = 0; i < graph.size(); ++i) {
    fuzz::require(bounds(i, i).value_or(-1) == 0, "a worker ahead of itself");
  }
}

void try_graph_text(std::string_view text) {
  std::string error;
  const auto graph = topology::parse_graph_text(text, "graph.txt", error);
  if (!graph) {
    fuzz::require(error.starts_with("graph.txt"), "an error that does not name the file", error);
    return;
  }
  if (graph->size() > 100'000) return;
  const auto again = topology::parse_graph_text(topology::to_edge_list(*graph), "again", error);
  fuzz::require(again.has_value(), "what was written is refused", error);
  fuzz::require(*again == *graph, "a graph changes when it is written");
  if (graph->size() <= kMeasuredMax) measure(*graph);
}

void try_graph_name(std::string_view text, std::uint32_t workers) {
  std::string error;
  const auto spec = topology::parse_graph_spec(text, error);
  if (!spec) {
    fuzz::require(!error.empty(), "a graph is refused without a word", text);
    return;
  }
  const auto again = topology::parse_graph_spec(spec->text(), error);
  fuzz::require(again && again->kind == spec->kind && again->path == spec->path,
                "a graph's own name means another one", spec->text());
  const auto graph = topology::generate(*spec, workers, {}, error);
  if (!graph) {
    fuzz::require(!error.empty(), "a graph cannot be made, without a word", text);
    return;
  }
  fuzz::require(graph->size() == workers, "a graph of another size", text);
  measure(*graph);
  // A job goes on with whoever is left.
  std::vector<topology::Node> active;
  for (topology::Node node = 0; node < workers; node += 1 + node % 3) active.push_back(node);
  const auto left = topology::generate_for_membership(*spec, active, {}, error);
  fuzz::require(left && left->graph.size() == active.size(), "no graph for those who are left",
                error);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::uint32_t workers = data[1] % (kMeasuredMax + 1);
  const std::string_view text = fuzz::text_of({data + 2, size - 2});
  std::string error;
  switch (data[0] % 5) {
    case 0:
      try_policy(text, workers);
      break;
    case 1:
      try_list(text);
      break;
    case 2:
      try_graph_text(text);
      break;
    case 3:
      try_graph_name(text, workers);
      break;
    case 4:
      fuzz::require(topology::parse_gap_setting(text, error) || !error.empty(),
                    "a setting is refused without a word", text);
      break;
  }
  return 0;
}
