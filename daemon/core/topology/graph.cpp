// See graph.h.
#include "daemon/core/topology/graph.h"

#include <algorithm>
#include <cmath>

#include "proto/base/check.h"

namespace syncd::topology {
namespace {

void sort_and_drop_repeats(std::vector<Node>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

// The farthest distance from `from`, and how many nodes were reached. `steps` must hold a
// kUnreachable per node. Stops when all are reached, so that a complete graph costs O(n).
struct Reach {
  std::uint32_t farthest = 0;
  std::size_t nodes = 0;
};
template <class Neighbours>
Reach breadth_first(Node from, std::size_t size, Neighbours neighbours,
                    std::span<std::uint32_t> steps, std::vector<Node>& queue) {
  queue.assign(1, from);
  steps[from] = 0;
  for (std::size_t next = 0; next < queue.size() && queue.size() < size; ++next) {
    const Node node = queue[next];
    for (const Node neighbour : neighbours(node)) {
      if (steps[neighbour] != kUnreachable) continue;
      steps[neighbour] = steps[node] + 1;
      queue.push_back(neighbour);
    }
  }
  return {steps[queue.back()], queue.size()};
}

// The first node that `from` does not reach along `neighbours`.
template <class Neighbours>
std::optional<Node> unreached(Node from, std::size_t size, Neighbours neighbours) {
  std::vector<std::uint32_t> steps(size, kUnreachable);
  std::vector<Node> queue;
  breadth_first(from, size, neighbours, steps, queue);
  const auto at = std::find(steps.begin(), steps.end(), kUnreachable);
  if (at == steps.end()) return std::nullopt;
  return static_cast<Node>(at - steps.begin());
}

// A pair of nodes of which the first does not reach the second.
std::optional<Edge> unconnected_pair(const Graph& graph) {
  if (graph.size() == 0) return std::nullopt;
  const auto out = [&](Node node) -> const std::vector<Node>& { return graph.out(node); };
  if (const auto node = unreached(0, graph.size(), out)) return Edge{0, *node};
  const auto in = [&](Node node) -> const std::vector<Node>& { return graph.in(node); };
  if (const auto node = unreached(0, graph.size(), in)) return Edge{*node, 0};
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
  return "worker " + std::to_string(node) + " receives from " +
         std::to_string(graph.in(node).size()) + " and sends to " +
         std::to_string(graph.out(node).size());
}

// Why equal weights do not do on a directed graph.
std::string uneven_influence(const Graph& graph) {
  std::optional<Node> uneven;
  for (Node node = 0; node < graph.size() && !uneven; ++node) {
    if (graph.in(node).size() != graph.out(node).size()) uneven = node;
  }
  if (uneven) {
    return "the graph is directed with unequal in- and out-degrees (" +
           with_degrees(graph, *uneven) + "), so that some workers would count more than others";
  }
  Node other = 0;
  while (other < graph.size() && is_one(column_sum(graph, other))) ++other;
  return "the graph is directed and its degrees differ between workers (" +
         with_degrees(graph, other) +
         " while others do not), so that some would count more than "
         "others";
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

bool Graph::has_edge(Node from, Node to) const {
  return std::binary_search(out_[from].begin(), out_[from].end(), to);
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

std::vector<std::uint32_t> distances_from(const Graph& graph, Node from) {
  std::vector<std::uint32_t> steps(graph.size(), kUnreachable);
  std::vector<Node> queue;
  breadth_first(
      from, graph.size(), [&](Node node) -> const std::vector<Node>& { return graph.out(node); },
      steps, queue);
  return steps;
}

Distances::Distances(const Graph& graph)
    : size_(graph.size()), steps_(size_ * size_, kUnreachable) {
  std::vector<Node> queue;
  for (Node from = 0; from < size_; ++from) {
    breadth_first(
        from, size_, [&](Node node) -> const std::vector<Node>& { return graph.out(node); },
        std::span(steps_).subspan(from * size_, size_), queue);
  }
}

std::optional<std::uint32_t> diameter(const Graph& graph) {
  std::vector<std::uint32_t> steps;
  std::vector<Node> queue;
  std::uint32_t longest = 0;
  for (Node from = 0; from < graph.size(); ++from) {
    steps.assign(graph.size(), kUnreachable);
    const Reach reach = breadth_first(
        from, graph.size(), [&](Node node) -> const std::vector<Node>& { return graph.out(node); },
        steps, queue);
    if (reach.nodes < graph.size()) return std::nullopt;
    longest = std::max(longest, reach.farthest);
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
          "the graph is not strongly connected: what worker " + std::to_string(pair.from) +
              " learns never reaches worker " + std::to_string(pair.to)};
}

Acceptance accept_with_metropolis() {
  return {true, Weighting::kMetropolis,
          "the workers' degrees differ, so updates get Metropolis weights"};
}

Acceptance accept_for_job(const Graph& graph, bool force) {
  if (const std::optional<Edge> pair = unconnected_pair(graph)) return refuse_unconnected(*pair);
  if (is_doubly_stochastic(graph)) return {true, Weighting::kEqual, ""};
  if (is_undirected(graph)) return accept_with_metropolis();
  const std::string uneven = uneven_influence(graph);
  if (force) return {true, Weighting::kEqual, "taken by force: " + uneven};
  return {false, Weighting::kEqual, uneven};
}

}  // namespace syncd::topology
