// See graph.h.
#include "daemon/core/topology/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "proto/base/check.h"

namespace syncd::topology {
namespace {

void sort_and_drop_repeats(std::vector<Node>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

// `steps` must hold a kUnreachable for each node; `queue` gets those that are reached, nearest
// first. Stops when all are reached, so that a complete graph costs O(n).
using Neighbours = const std::vector<Node>& (Graph::*)(Node) const;
void breadth_first(const Graph& graph, Node from, Neighbours neighbours,
                   std::span<std::uint32_t> steps, std::vector<Node>& queue) {
  queue.assign(1, from);
  steps[from] = 0;
  for (std::size_t next = 0; next < queue.size() && queue.size() < graph.size(); ++next) {
    const Node node = queue[next];
    for (const Node neighbour : (graph.*neighbours)(node)) {
      if (steps[neighbour] != kUnreachable) continue;
      steps[neighbour] = steps[node] + 1;
      queue.push_back(neighbour);
    }
  }
}

// The first node that `from` does not reach along `neighbours`.
std::optional<Node> unreached(const Graph& graph, Node from, Neighbours neighbours) {
  std::vector<std::uint32_t> steps(graph.size(), kUnreachable);
  std::vector<Node> queue;
  breadth_first(graph, from, neighbours, steps, queue);
  const auto at = std::find(steps.begin(), steps.end(), kUnreachable);
  if (at == steps.end()) return std::nullopt;
  return static_cast<Node>(at - steps.begin());
}

// A pair of nodes of which the first does not reach the second.
std::optional<Edge> unconnected_pair(const Graph& graph) {
  if (graph.size() == 0) return std::nullopt;
  if (const auto node = unreached(graph, 0, &Graph::out)) return Edge{0, *node};
  if (const auto node = unreached(graph, 0, &Graph::in)) return Edge{*node, 0};
  return std::nullopt;
}

// Of P = A / in-degree, self-loops included.
double column_sum(const Graph& graph, Node node) {
  double sum = 1.0 / static_cast<double>(graph.in(node).size() + 1);
  for (const Node to : graph.out(node)) sum += 1.0 / static_cast<double>(graph.in(to).size() + 1);
  return sum;
}

// Far above the rounding errors of a sum of a million terms, far below the least true deviation of
// the graphs that generators make.
bool is_one(double sum) {
  return std::abs(sum - 1) < 1e-9;
}

std::string with_degrees(const Graph& graph, Node node) {
  return fmt::format("worker {} receives from {} and sends to {}", node, graph.in(node).size(),
                     graph.out(node).size());
}

// Why equal weights do not do on a directed graph.
std::string uneven_influence(const Graph& graph) {
  std::optional<Node> uneven;
  for (Node node = 0; node < graph.size() && !uneven; ++node) {
    if (graph.in(node).size() != graph.out(node).size()) uneven = node;
  }
  if (uneven) {
    return fmt::format(
        "the graph is directed with unequal in- and out-degrees ({}), so that some "
        "workers would count more than others",
        with_degrees(graph, *uneven));
  }
  Node other = 0;
  while (other < graph.size() && is_one(column_sum(graph, other))) ++other;
  return fmt::format(
      "the graph is directed and its degrees differ between workers ({} while others "
      "do not), so that some would count more than others",
      with_degrees(graph, other));
}

}  // namespace

Graph::Graph(std::size_t nodes, std::span<const Edge> edges) : in_(nodes), out_(nodes) {
  for (const Edge& edge : edges) {
    SYNCD_CHECK(edge.from < nodes && edge.to < nodes);
    if (edge.from == edge.to) continue;
    out_[edge.from].push_back(edge.to);
    in_[edge.to].push_back(edge.from);
  }
  for (std::vector<Node>& list : in_) sort_and_drop_repeats(list);
  for (std::vector<Node>& list : out_) {
    sort_and_drop_repeats(list);
    edges_ += list.size();
  }
}

Graph Graph::subgraph(std::span<const Node> kept) const {
  constexpr Node kGone = UINT32_MAX;
  std::vector<Node> renamed(size(), kGone);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    SYNCD_CHECK(kept[i] < size() && (i == 0 || kept[i - 1] < kept[i]));
    renamed[kept[i]] = static_cast<Node>(i);
  }
  std::vector<Edge> left;
  for (const Node from : kept) {
    for (const Node to : out_[from]) {
      if (renamed[to] != kGone) left.push_back({renamed[from], renamed[to]});
    }
  }
  return {kept.size(), left};
}

DegreeRange degree_range(const Graph& graph) {
  if (graph.size() == 0) return {};
  DegreeRange range{SIZE_MAX, 0, SIZE_MAX, 0};
  for (Node node = 0; node < graph.size(); ++node) {
    range.in_min = std::min(range.in_min, graph.in(node).size());
    range.in_max = std::max(range.in_max, graph.in(node).size());
    range.out_min = std::min(range.out_min, graph.out(node).size());
    range.out_max = std::max(range.out_max, graph.out(node).size());
  }
  return range;
}

bool is_undirected(const Graph& graph) {
  for (Node node = 0; node < graph.size(); ++node) {
    if (graph.in(node) != graph.out(node)) return false;
  }
  return true;
}

bool is_regular(const Graph& graph) {
  const DegreeRange range = degree_range(graph);
  return range.in_min == range.out_max && range.out_min == range.in_max;
}

bool is_strongly_connected(const Graph& graph) {
  return !unconnected_pair(graph);
}

bool is_doubly_stochastic(const Graph& graph) {
  for (Node node = 0; node < graph.size(); ++node) {
    if (!is_one(column_sum(graph, node))) return false;
  }
  return true;
}

Distances::Distances(const Graph& graph)
    : size_(graph.size()), steps_(size_ * size_, kUnreachable) {
  std::vector<Node> queue;
  for (Node from = 0; from < size_; ++from) {
    const auto steps = std::span(steps_).subspan(from * size_, size_);
    breadth_first(graph, from, &Graph::out, steps, queue);
  }
}

std::optional<std::uint32_t> diameter(const Graph& graph) {
  std::vector<std::uint32_t> steps;
  std::vector<Node> queue;
  std::uint32_t longest = 0;
  for (Node from = 0; from < graph.size(); ++from) {
    steps.assign(graph.size(), kUnreachable);
    breadth_first(graph, from, &Graph::out, steps, queue);
    if (queue.size() < graph.size()) return std::nullopt;
    longest = std::max(longest, steps[queue.back()]);
  }
  return longest;
}

RowWeights row_weights(const Graph& graph, Weighting weighting, Node node) {
  const std::vector<Node>& in = graph.in(node);
  SYNCD_CHECK(weighting != Weighting::kMetropolis || in == graph.out(node));
  RowWeights row;
  row.in.reserve(in.size());
  if (weighting == Weighting::kEqual) {
    row.own = 1.0 / static_cast<double>(in.size() + 1);
    row.in.assign(in.size(), row.own);
    return row;
  }
  double others = 0;
  for (const Node neighbour : in) {
    const std::size_t degree = std::max(in.size(), graph.in(neighbour).size());
    row.in.push_back(1.0 / static_cast<double>(degree + 1));
    others += row.in.back();
  }
  row.own = 1 - others;
  return row;
}

Acceptance refuse_unconnected(const Edge& pair) {
  return {false, Weighting::kEqual,
          fmt::format("the graph is not strongly connected: what worker {} learns never reaches "
                      "worker {}",
                      pair.from, pair.to)};
}

Acceptance accept_with_metropolis() {
  return {true, Weighting::kMetropolis,
          "the workers' degrees differ, so updates get Metropolis weights"};
}

Acceptance accept_for_job(const Graph& graph, bool force) {
  if (graph.edges() == 0 && graph.size() > 1) {
    return {
        false, Weighting::kEqual,
        "the graph has no edges, so no worker would send to any other: each needs one to it and "
        "one from it"};
  }
  if (const std::optional<Edge> pair = unconnected_pair(graph)) return refuse_unconnected(*pair);
  if (is_doubly_stochastic(graph)) return {true, Weighting::kEqual, ""};
  if (is_undirected(graph)) return accept_with_metropolis();
  const std::string uneven = uneven_influence(graph);
  if (force) return {true, Weighting::kEqual, "taken by force: " + uneven};
  return {false, Weighting::kEqual, uneven};
}

}  // namespace syncd::topology
