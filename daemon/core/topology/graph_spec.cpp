// See graph_spec.h.
#include "daemon/core/topology/graph_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace syncd::topology {
namespace {

using Edges = std::vector<Edge>;

void both_ways(Edges& edges, Node a, Node b) {
  edges.push_back({a, b});
  edges.push_back({b, a});
}

void add_complete(Edges& edges, std::span<const Node> nodes) {
  for (const Node from : nodes) {
    for (const Node to : nodes) {
      if (from != to) edges.push_back({from, to});
    }
  }
}

std::size_t root_of(std::size_t nodes) {
  return static_cast<std::size_t>(std::lround(std::sqrt(nodes)));
}

// i -> i + offset for each of the offsets, around the circle of `nodes` nodes from `from` on.
using Offsets = std::vector<std::size_t>;
void add_circle(Edges& edges, std::size_t nodes, const Offsets& offsets, Node from = 0) {
  for (std::size_t i = 0; i < nodes; ++i) {
    for (const std::size_t offset : offsets) {
      const std::size_t to = (i + offset) % nodes;
      edges.push_back({from + static_cast<Node>(i), from + static_cast<Node>(to)});
    }
  }
}

Offsets ring_based(std::size_t nodes) {
  return {1, nodes - 1, nodes / 2};
}

Edges make_complete(std::size_t nodes) {
  Edges edges;
  std::vector<Node> all(nodes);
  std::iota(all.begin(), all.end(), 0);
  add_complete(edges, all);
  return edges;
}
Edges make_double_ring(std::size_t nodes) {
  Edges edges;
  const auto half = static_cast<Node>(nodes / 2);
  add_circle(edges, half, ring_based(half));
  add_circle(edges, half, ring_based(half), half);
  for (Node i = 0; i < half; ++i) both_ways(edges, i, i + half);
  return edges;
}
Edges make_star(std::size_t nodes) {
  Edges edges;
  for (std::size_t i = 1; i < nodes; ++i) both_ways(edges, 0, static_cast<Node>(i));
  return edges;
}

struct Generator {
  GraphKind kind;
  const char* name;
  std::size_t multiple_of;                          // the numbers of nodes it takes
  std::optional<GraphKind> relative;                // stands in for it when it cannot be made
  Offsets (*offsets)(std::size_t nodes) = nullptr;  // around the circle
  Edges (*make)(std::size_t nodes) = nullptr;       // neither: made in a way of its own
};
constexpr Generator kGenerators[] = {
    {GraphKind::kComplete, "complete", 1, GraphKind::kRing, nullptr, make_complete},
    {GraphKind::kRing,
     "ring",
     1,
     {},
     [](std::size_t n) {
       return Offsets{1, n - 1};
     }},
    {GraphKind::kRingDirected, "ring_directed", 1, {}, [](std::size_t) { return Offsets{1}; }},
    {GraphKind::kRingBased, "ring_based", 2, GraphKind::kRing, ring_based},
    {GraphKind::kDoubleRing, "double_ring", 4, GraphKind::kRingBased, nullptr, make_double_ring},
    {GraphKind::kRootExpander,
     "root_expander",
     1,
     {},
     [](std::size_t n) {
       return Offsets{1, root_of(n)};
     }},
    {GraphKind::kStar, "star", 1, {}, nullptr, make_star},
    {GraphKind::kHalton, "halton", 1, GraphKind::kRingDirected,
     [](std::size_t n) {
       return Offsets{1 + n / 2, 1 + n / 4};
     }},
    {GraphKind::kClustered, "clustered", 1, GraphKind::kRing},
    {GraphKind::kClusteredLinks, "clustered_links", 1, GraphKind::kRing},
};
constexpr std::string_view kFilePrefix = "file:";
// Generators that fail for some numbers do so for single ones.
constexpr std::size_t kNearestMax = 8;

const Generator& generator(GraphKind kind) {
  return kGenerators[static_cast<std::size_t>(kind)];
}
static_assert(std::size(kGenerators) == static_cast<std::size_t>(GraphKind::kFile));

std::string refusal(const GraphSpec& spec, const std::string& what) {
  return fmt::format("graph '{}': {}", spec.text(), what);
}

std::string not_loaded(const GraphSpec& spec) {
  return spec.load_error.empty() ? refusal(spec, "the file was not loaded") : spec.load_error;
}

std::string count_of(std::size_t count, const char* thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

// The end of a refusal. 0: there is none.
std::string nearest(std::size_t below, std::size_t above) {
  if (below == 0 && above == 0) return {};
  if (below == 0 || above == 0) return fmt::format("; the nearest is {}", below + above);
  return fmt::format("; the nearest are {} and {}", below, above);
}

// Where the number of nodes is wrong: a sentence.
std::string check_count(const GraphSpec& spec, std::size_t nodes) {
  if (nodes == 0) return refusal(spec, "a graph needs at least one worker");
  if (nodes > kNodesMax) {
    return refusal(
        spec, fmt::format("at most {} are allowed, not {}", count_of(kNodesMax, "worker"), nodes));
  }
  if (spec.kind == GraphKind::kFile) {
    if (spec.loaded->size() == nodes) return {};
    return refusal(spec, fmt::format("the file's graph is for exactly {}, not for {}",
                                     count_of(spec.loaded->size(), "worker"), nodes));
  }
  const std::size_t multiple = generator(spec.kind).multiple_of;
  if (nodes % multiple == 0) return {};
  const std::size_t below = nodes / multiple * multiple;
  return refusal(spec, fmt::format("the number of workers must be a multiple of {}, not {}{}",
                                   multiple, nodes, nearest(below, below + multiple)));
}

// A generated graph in which every node has edges to the same offsets from it, around the circle.
GraphOutline outline_circle(std::size_t nodes, std::vector<std::size_t> offsets) {
  std::size_t divisor = nodes;
  for (std::size_t& offset : offsets) {
    offset %= nodes;
    divisor = std::gcd(divisor, offset);
  }
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  const std::size_t self = !offsets.empty() && offsets.front() == 0 ? 1 : 0;
  GraphOutline out{nodes, {{0, offsets.size() - self}}, {true, Weighting::kEqual, ""}};
  // Node 0 reaches the multiples of the divisor.
  if (divisor > 1) out.acceptance = refuse_unconnected({0, 1});
  return out;
}

GraphOutline outline_generated(GraphKind kind, std::size_t nodes) {
  if (is_by_host(kind)) kind = GraphKind::kRing;
  if (const auto offsets = generator(kind).offsets) return outline_circle(nodes, offsets(nodes));
  if (kind == GraphKind::kDoubleRing) {
    GraphOutline out = outline_circle(nodes / 2, ring_based(nodes / 2));
    out.nodes = nodes;
    ++out.degrees.front().in;
    return out;
  }
  if (kind == GraphKind::kStar && nodes > 2) {
    return {nodes, {{0, nodes - 1}, {1, 1}}, accept_with_metropolis()};
  }
  return {nodes, {{0, nodes - 1}}, {true, Weighting::kEqual, ""}};
}

std::string too_many_edges(const GraphSpec& spec) {
  return refusal(spec, fmt::format("it would have more than {} edges, which is the limit: a sparse "
                                   "graph such as root_expander carries more workers",
                                   kEdgesMax));
}

// What keeps a graph of so many nodes from being made, whatever their hosts: a sentence.
std::string check_generate(const GraphSpec& spec, std::size_t nodes) {
  if (spec.kind == GraphKind::kFile && !spec.loaded) return not_loaded(spec);
  std::string error = check_count(spec, nodes);
  if (!error.empty()) return error;
  if (spec.kind == GraphKind::kComplete && nodes * (nodes - 1) > kEdgesMax) {
    return too_many_edges(spec);
  }
  return {};
}

// Nodes by host, in the order of their lowest ones. Without hosts each is alone.
std::vector<std::vector<Node>> clusters_of(std::size_t nodes, std::span<const std::string> hosts) {
  std::vector<std::vector<Node>> clusters;
  std::map<std::string_view, std::size_t> cluster_of;
  for (std::size_t i = 0; i < nodes; ++i) {
    std::size_t cluster = clusters.size();
    if (!hosts.empty() && !hosts[i].empty()) {
      cluster = cluster_of.try_emplace(hosts[i], cluster).first->second;
    }
    if (cluster == clusters.size()) clusters.emplace_back();
    clusters[cluster].push_back(static_cast<Node>(i));
  }
  return clusters;
}

std::size_t edges_of(std::span<const std::vector<Node>> clusters) {
  std::size_t count = 2 * clusters.size();
  for (const auto& cluster : clusters) count += cluster.size() * (cluster.size() - 1);
  return count;
}

std::optional<Graph> make_clustered(const GraphSpec& spec, std::size_t nodes,
                                    std::span<const std::string> hosts, std::string& error) {
  if (hosts.size() != nodes) {
    error = refusal(spec, fmt::format("it needs the host name of each of the {}, but {} were given",
                                      count_of(nodes, "worker"), hosts.size()));
    return std::nullopt;
  }
  const std::vector<std::vector<Node>> clusters = clusters_of(nodes, hosts);
  if (edges_of(clusters) > kEdgesMax) {
    error = too_many_edges(spec);
    return std::nullopt;
  }
  Edges edges;
  for (std::size_t i = 0; i < clusters.size(); ++i) {
    add_complete(edges, clusters[i]);
    if (clusters.size() == 1) break;
    const auto& next = clusters[(i + 1) % clusters.size()];
    const bool links = spec.kind == GraphKind::kClusteredLinks;
    both_ways(edges, links ? clusters[i].back() : clusters[i].front(), next.front());
  }
  return Graph(nodes, edges);
}

// What keeps the graph of `spec` from being used among these workers as it is: a sentence. Empty,
// with `graph` set, if nothing does.
std::string make_connected(const GraphSpec& spec, std::size_t nodes,
                           std::span<const std::string> hosts, Graph& graph) {
  std::string error;
  std::optional<Graph> made = generate(spec, nodes, hosts, error);
  if (!made) return error;
  if (!is_strongly_connected(*made)) {
    return refusal(spec, "it is not strongly connected with " + count_of(nodes, "worker"));
  }
  graph = std::move(*made);
  return {};
}

std::optional<MembershipGraph> reduced_file_graph(const GraphSpec& spec,
                                                  std::span<const Node> active,
                                                  std::string& error) {
  if (!spec.loaded) {
    error = not_loaded(spec);
    return std::nullopt;
  }
  if (!active.empty() && active.back() >= spec.loaded->size()) {
    error = refusal(spec, fmt::format("the file's graph is for {}, so worker {} has no place in it",
                                      count_of(spec.loaded->size(), "worker"), active.back()));
    return std::nullopt;
  }
  MembershipGraph result{spec.loaded->subgraph(active), ""};
  if (!is_strongly_connected(result.graph)) {
    result.note = refusal(spec, "what is left of the file's graph is not strongly connected");
  }
  return result;
}

}  // namespace

std::string GraphSpec::text() const {
  if (kind == GraphKind::kFile) return std::string(kFilePrefix) + path;
  return generator(kind).name;
}

std::string known_graphs() {
  std::string all;
  for (const Generator& each : kGenerators) all += std::string(each.name) + ", ";
  return all + std::string(kFilePrefix) + "PATH";
}

std::optional<GraphSpec> parse_graph_spec(std::string_view text, std::string& error) {
  if (text.starts_with(kFilePrefix)) {
    GraphSpec spec{GraphKind::kFile, std::string(text.substr(kFilePrefix.size())), nullptr};
    if (!spec.path.empty()) return spec;
    error = "graph 'file:' names no file: file:PATH";
    return std::nullopt;
  }
  for (const Generator& each : kGenerators) {
    if (text == each.name) return GraphSpec{each.kind, "", nullptr};
  }
  error = "graph '" + std::string(text) + "' is unknown: allowed are " + known_graphs();
  return std::nullopt;
}

std::optional<Graph> generate(const GraphSpec& spec, std::size_t nodes,
                              std::span<const std::string> hosts, std::string& error) {
  error = check_generate(spec, nodes);
  if (!error.empty()) return std::nullopt;
  if (spec.kind == GraphKind::kFile) return *spec.loaded;
  if (is_by_host(spec.kind)) return make_clustered(spec, nodes, hosts, error);
  const Generator& by = generator(spec.kind);
  if (by.make != nullptr) return Graph(nodes, by.make(nodes));
  Edges edges;
  add_circle(edges, nodes, by.offsets(nodes));
  return Graph(nodes, edges);
}

std::size_t dense_edges(const GraphSpec& spec, std::size_t nodes,
                        std::span<const std::string> hosts) {
  switch (spec.kind) {
    case GraphKind::kComplete:
      return nodes * (std::max<std::size_t>(nodes, 1) - 1);
    case GraphKind::kClustered:
    case GraphKind::kClusteredLinks:
      return hosts.empty() ? 0 : edges_of(clusters_of(nodes, hosts));
    case GraphKind::kFile:
      return spec.loaded ? spec.loaded->edges() : 0;
    default:
      return 0;
  }
}

std::optional<GraphOutline> outline(const GraphSpec& spec, std::size_t nodes, bool force,
                                    std::string& error) {
  error = check_generate(spec, nodes);
  if (!error.empty()) return std::nullopt;
  if (spec.kind != GraphKind::kFile) return outline_generated(spec.kind, nodes);
  GraphOutline out{nodes, {}, accept_for_job(*spec.loaded, force)};
  for (Node node = 0; node < nodes; ++node) {
    const std::size_t in = spec.loaded->in(node).size();
    if (out.degrees.empty() || out.degrees.back().in != in) out.degrees.push_back({node, in});
  }
  return out;
}

std::string nearest_for_job(const GraphSpec& spec, std::size_t nodes, bool force) {
  if (spec.kind == GraphKind::kFile || is_by_host(spec.kind)) return {};
  const auto fits = [&](std::size_t count) {
    std::string error;
    const std::optional<GraphOutline> graph = outline(spec, count, force, error);
    return graph && graph->acceptance.accepted;
  };
  std::size_t below = 0, above = 0;
  for (std::size_t step = 1; step <= kNearestMax; ++step) {
    if (below == 0 && step < nodes && fits(nodes - step)) below = nodes - step;
    if (above == 0 && fits(nodes + step)) above = nodes + step;
  }
  return nearest(below, above);
}

std::optional<MembershipGraph> generate_for_membership(const GraphSpec& spec,
                                                       std::span<const Node> active,
                                                       std::span<const std::string> hosts,
                                                       std::string& error) {
  if (spec.kind == GraphKind::kFile) return reduced_file_graph(spec, active, error);
  MembershipGraph result;
  result.graph = Graph(active.size(), {});
  if (active.size() <= 1) return result;
  const std::string why = make_connected(spec, active.size(), hosts, result.graph);
  if (why.empty()) return result;
  std::optional<GraphKind> relative = generator(spec.kind).relative;
  while (relative &&
         !make_connected({*relative, "", nullptr}, active.size(), {}, result.graph).empty()) {
    relative = generator(*relative).relative;
  }
  if (!relative) {
    error = why;
    return std::nullopt;
  }
  result.note = why + "; " + generator(*relative).name + " stands in for it";
  return result;
}

}  // namespace syncd::topology
