// Communication graphs by name: "ring", "root_expander", "file:PATH". A specification is taken
// apart once (parse), a graph is made from it for any number of workers (generate) and again
// whenever the workers of a job change (generate_for_membership). No thread; only load_graph_file
// does I/O.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/topology/graph.h"

namespace syncd::topology {

// More workers than any job may have, and as many edges as fit in 256 MiB: no graph is larger.
inline constexpr std::size_t kNodesMax = 1'000'000;
inline constexpr std::size_t kEdgesMax = std::size_t{1} << 24;
// Text of a graph with so many edges: 16 bytes are "65535 65534", its end, and some of a comment.
// It is read on the thread that serves everybody, in about 10 ns a byte.
constexpr std::size_t graph_file_bytes_max(std::size_t edges_max) {
  return std::min(16 * edges_max, std::size_t{1} << 24);
}

enum class GraphKind : std::uint8_t {
  kComplete,      // every two nodes, both ways
  kRing,          // i <-> i+1
  kRingDirected,  // i -> i+1 (ASAP, figure 3d: "chain")
  kRingBased,     // ring, and i <-> i + n/2; even n (Hop, figure 11)
  kDoubleRing,  // two ring-based graphs of n/2 nodes, joined node to node; n a multiple of 4 (Hop)
  kRootExpander,    // i -> i+1 and i -> i + round(sqrt n) (ASAP, section 3.4)
  kStar,            // 0 <-> i: the shape of a parameter server (ASAP, figure 3b)
  kHalton,          // i -> i+1 + n/2 and i -> i+1 + n/4, rounded down (MALT; ASAP, figure 10)
  kClustered,       // complete within a host, a ring between the hosts' lowest nodes (Hop, figure
                    // 21 b)
  kClusteredLinks,  // likewise, but from each host's highest node to the next one's lowest, so that
                    // no node has both links of a host of two nodes or more (Hop, figure 21 c)
  kFile,            // as the file says
};

// A graph's file as it was when it was read.
struct GraphFile {
  std::shared_ptr<const Graph> graph;  // null: `error` says why, and names the file (and the line)
  std::string error;
};

// True if the workers' hosts decide the edges.
constexpr bool is_by_host(GraphKind kind) {
  return kind == GraphKind::kClustered || kind == GraphKind::kClusteredLinks;
}

struct GraphSpec {
  GraphKind kind = GraphKind::kRing;
  std::string path;                     // kFile only
  std::shared_ptr<const Graph> loaded;  // kFile only: null until it was read
  std::string load_error = {};          // kFile only: why it could not be
  // The string that makes it again: "ring", "file:PATH".
  std::string text() const;
};

// Reads no file. Empty: `error` says what is wrong and what is allowed.
std::optional<GraphSpec> parse_graph_spec(std::string_view text, std::string& error);

// "complete, ring, ..., file:PATH": for messages and --help.
std::string known_graphs();

// ---- files. Blank lines and what follows a '#' are left out. Either
//   an edge list: "FROM TO" a line, blanks between them, nodes numbered from 0: FROM sends to TO.
//   An undirected graph lists both directions. There are as many nodes as the highest number says,
//   or as a line "nodes N" before the edges does; or an adjacency matrix: a line per node with a 0
//   or 1 per node, separated by commas; 1 in line i (from 0), column j says that i sends to j. The
//   diagonal is ignored.

// Errors name `name` and the line. O(size of the text).
std::optional<Graph> parse_graph_text(std::string_view text, const std::string& name,
                                      std::string& error);

// Whom the error is for: whoever could read the file anyway, or a client, who must learn nothing of
// what stands in it, nor why it cannot be read.
enum class FileErrors : std::uint8_t { kForOwner, kForClients };

// Does nothing unless the specification is a file that is not loaded yet: what was once read stays,
// whatever becomes of the file. False: `error` names the file (and the line). A pipe or a device is
// refused and does not block, and so is a file that is longer than graph_file_bytes_max().
bool load_graph_file(GraphSpec& spec, std::string& error, FileErrors errors = FileErrors::kForOwner,
                     std::size_t edges_max = kEdgesMax);

// The edge list that parse_graph_text makes the same graph of.
std::string to_edge_list(const Graph& graph);

// ---- graphs

// A graph of exactly `nodes` nodes, not checked for what a job needs (accept_for_job does that).
// `hosts`: a host name per node, which only those read that are by host; an empty name is a host of
// its own. Empty: `error` says why and, where it is the number, names the nearest that would do. A
// file that was not loaded is an error, and so are more edges than kEdgesMax. O(n + m).
std::optional<Graph> generate(const GraphSpec& spec, std::size_t nodes,
                              std::span<const std::string> hosts, std::string& error);

// Edges of the graph among so many nodes, where they may be many more than the nodes; 0 for a kind
// in which a node has four at most. `hosts` as in generate(); without them each node has its own.
// O(1), and O(nodes) by host.
std::size_t dense_edges(const GraphSpec& spec, std::size_t nodes,
                        std::span<const std::string> hosts);

// What a job must know of the graph before anybody has joined.
struct GraphOutline {
  std::size_t nodes = 0;
  // The in-degree of the nodes from `first` on, as far as the next element says another.
  struct Degree {
    Node first = 0;
    std::size_t in = 0;
    friend bool operator==(const Degree&, const Degree&) = default;
  };
  std::vector<Degree> degrees;
  Acceptance acceptance;  // accept_for_job() of it
};

// The same graph in outline; by host as if each node had one of its own. O(1) for what is
// generated: a client names any number of workers, and waits for the answer together with all
// others. O(n + m) for a file's.
std::optional<GraphOutline> outline(const GraphSpec& spec, std::size_t nodes, bool force,
                                    std::string& error);

// Where accept_for_job refuses a generated graph of `nodes` nodes: "; the nearest are 5 and 7", the
// closest numbers on either side, up to 8 away, that it takes. Empty: there are none, or the graph
// does not follow from the number alone. O(1).
std::string nearest_for_job(const GraphSpec& spec, std::size_t nodes, bool force);

struct MembershipGraph {
  Graph graph;  // node i is active[i]
  // What stands instead of the specified graph, or that a file's graph fell apart: a sentence
  // without a final stop. Empty: it is as specified.
  std::string note;
};

// The graph of a running job whose active workers are `active`, ranks in ascending order; `hosts`
// goes with them. A job must go on when a worker is lost, so this is stricter about what it gives
// and more lenient about what it takes than generate():
//  - generated graphs are made anew over the active workers in rank order. Where the generator
//  takes
//    no such number, or gives a graph that is not strongly connected (halton with 6 workers), the
//    nearest relative stands in: ring_based for double_ring with an even number, else ring; for
//    halton ring_directed. They have the same direction, equal weights and at most the same degree.
//    For complete and those by host with more than kEdgesMax edges it is ring.
//  - a file's graph only loses nodes; if what is left is not strongly connected, `note` says so,
//  and
//    the graph is given all the same.
// One worker, or none, is a graph without edges. Empty, with a sentence in `error`: a rank has no
// node in the file's graph. O(n + m).
std::optional<MembershipGraph> generate_for_membership(const GraphSpec& spec,
                                                       std::span<const Node> active,
                                                       std::span<const std::string> hosts,
                                                       std::string& error);

}  // namespace syncd::topology
