// The communication graph of a decentralized job: who sends to whom, how far apart workers are,
// whether a job can run on it, and how updates are weighted. Plain data and pure functions; any
// thread. How graphs are made is in graph_spec.h, spectral figures are in spectral.h.
//
// A node stands for a worker. An edge u -> v says that u sends its updates to v: u is an
// in-neighbour of v, v an out-neighbour of u (Hop, section 2). Every node also uses its own update;
// that self-loop is understood everywhere and stored nowhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace syncd::topology {

using Node = std::uint32_t;

struct Edge {
  Node from = 0;
  Node to = 0;
  friend bool operator==(const Edge&, const Edge&) = default;
};

class Graph {
 public:
  Graph() = default;
  // `nodes` nodes, numbered from 0, and the edges in any order. Repeated edges count once,
  // self-loops not at all. Precondition: edges name nodes below `nodes`. O(n + m log m).
  Graph(std::size_t nodes, std::span<const Edge> edges);

  std::size_t size() const { return in_.size(); }
  std::size_t edges() const { return edges_; }
  // Neighbours in ascending order, without the node itself.
  const std::vector<Node>& in(Node node) const { return in_[node]; }
  const std::vector<Node>& out(Node node) const { return out_[node]; }

  // The graph that is left when only these nodes stay; node i of it is kept[i]. Precondition:
  // `kept` ascends and names nodes of this graph. O(n + m).
  Graph subgraph(std::span<const Node> kept) const;

  friend bool operator==(const Graph&, const Graph&) = default;

 private:
  std::vector<std::vector<Node>> in_;
  std::vector<std::vector<Node>> out_;
  std::size_t edges_ = 0;
};

// ---- structure

struct DegreeRange {
  std::size_t in_min = 0;
  std::size_t in_max = 0;
  std::size_t out_min = 0;
  std::size_t out_max = 0;
};

// All zero for a graph without nodes. O(n).
DegreeRange degree_range(const Graph& graph);

// Every edge has its opposite. O(m).
bool is_undirected(const Graph& graph);

// All in-degrees and all out-degrees are the same number. O(n).
bool is_regular(const Graph& graph);

// Every node reaches every other; true for one node or none. O(n + m).
bool is_strongly_connected(const Graph& graph);

// Whether equal weights, P = A / in-degree with self-loops, give every worker the same influence:
// the columns of P sum to 1 as its rows do (ASAP, section 3.2). O(n + m).
bool is_doubly_stochastic(const Graph& graph);

// ---- distances

inline constexpr std::uint32_t kUnreachable = UINT32_MAX;

// The number of edges on the shortest path from each node to each other one, kUnreachable where
// there is none. Takes 4 n^2 bytes; O(n (n + m)).
class Distances {
 public:
  explicit Distances(const Graph& graph);
  std::size_t size() const { return size_; }
  std::uint32_t operator()(Node from, Node to) const { return steps_[from * size_ + to]; }

 private:
  std::size_t size_;
  std::vector<std::uint32_t> steps_;
};

// The longest of all shortest paths; empty unless the graph is strongly connected. O(n (n + m)).
std::optional<std::uint32_t> diameter(const Graph& graph);

// ---- weights

enum class Weighting : std::uint8_t {
  kEqual,       // 1 / (in-degree + 1) each
  kMetropolis,  // 1 / (1 + the larger of the two degrees); the own update takes the rest
};

constexpr const char* to_string(Weighting weighting) {
  return weighting == Weighting::kEqual ? "equal" : "metropolis";
}

// What a node's reduce multiplies each update with; the sum is 1.
struct RowWeights {
  double own = 1;
  std::vector<double> in;  // in the order of Graph::in(node)
};

// Precondition of kMetropolis: the graph is undirected. It makes the whole matrix symmetric, hence
// doubly stochastic, whatever the degrees (the mixing matrix that decentralized SGD asks for; Hop,
// section 2). O(degree).
RowWeights row_weights(const Graph& graph, Weighting weighting, Node node);

// ---- whether a job may run on it

struct Acceptance {
  bool accepted = false;
  Weighting weighting = Weighting::kEqual;
  // A sentence without a final stop: why it is refused, or what is unusual about what was accepted
  // (Metropolis weights, or taken by force). Empty: nothing to say.
  std::string reason;
};

// A job needs a strongly connected graph on which every worker counts alike (Hop, section 2; ASAP,
// section 3.2). Equal weights where they are doubly stochastic; Metropolis weights on any other
// undirected graph; another directed graph only if `force`, with equal weights. O(n + m).
Acceptance accept_for_job(const Graph& graph, bool force = false);

// Its two answers that follow from a generator alone: the first node does not reach the second, and
// an undirected graph whose degrees differ.
Acceptance refuse_unconnected(const Edge& pair);
Acceptance accept_with_metropolis();

}  // namespace syncd::topology
