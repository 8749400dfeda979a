// See peer_graph.h.
#include "daemon/core/policies/peer_graph.h"

#include <algorithm>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "daemon/core/topology/graph.h"

namespace syncd {
namespace {

const PeerEdge* find_edge(std::span<const PeerEdge> edges, Rank peer) {
  const auto it =
      std::lower_bound(edges.begin(), edges.end(), peer,
                       [](const PeerEdge& edge, Rank rank) { return edge.peer < rank; });
  return it != edges.end() && it->peer == peer ? &*it : nullptr;
}

}  // namespace

bool parse_peer_graph(const PolicyText& text, topology::GraphSpec& spec, std::string& error) {
  std::string why;
  auto parsed = topology::parse_graph_spec(text.arguments[0].value, why);
  if (!parsed) {
    error = policy_error(text, why);
    return false;
  }
  spec = std::move(*parsed);
  if (spec.kind == topology::GraphKind::kFile && text.graph_file) {
    spec.loaded = text.graph_file->graph;
    spec.load_error = text.graph_file->error;
  }
  return true;
}

std::optional<topology::GraphOutline> PeerGraph::plan(std::uint32_t workers,
                                                      std::string& error) const {
  const bool unread = spec_.kind == topology::GraphKind::kFile && !spec_.loaded;
  if (workers == 1 && !unread)
    return topology::GraphOutline{1, {{0, 0}}, {true, topology::Weighting::kEqual, ""}};
  auto graph = topology::outline(spec_, workers, force_, error);
  if (!graph || graph->acceptance.accepted) return graph;
  const bool by_force = topology::outline(spec_, workers, true, error)->acceptance.accepted;
  error = graph->acceptance.reason;
  if (by_force) {
    error += "; force=1 takes it all the same";
  } else if (const auto others = topology::nearest_for_job(spec_, workers, force_);
             !others.empty()) {
    error = fmt::format("with {} workers {}{}", workers, error, others);
  }
  return std::nullopt;
}

std::string PeerGraph::rebuild(const PolicyHost& host, std::optional<Rank> entering) {
  entering_ = entering;
  if (!host.replaying()) {
    // The next one, or by a jump one that some other worker was in, which may have gone.
    highest_ = host.highest_relative() + 1;
  }
  const RankMap<Clock> assumed = std::exchange(assumed_, {});
  assumed.for_each([&](Rank rank, Clock clock) {
    const bool is_active = std::ranges::binary_search(host.active(), rank);
    if (is_active && clock > host.worker(rank).clock) assumed_.get(rank) = clock;
  });
  const std::vector<Rank>& active = host.active();
  std::vector<std::string> hosts;
  hosts.reserve(active.size());
  for (const Rank rank : active) hosts.push_back(host.worker(rank).host);
  std::string error;
  auto made = topology::generate_for_membership(spec_, active, hosts, error);
  // With a rank that is not in a file's graph, or without the file, nobody has neighbours; the
  // sentence says so.
  const topology::Graph graph =
      made ? std::move(made->graph) : topology::Graph(active.size(), std::span<topology::Edge>());
  std::string note = made ? std::move(made->note) : std::move(error);
  const topology::Acceptance acceptance = topology::accept_for_job(graph, true);
  weighting_ = acceptance.weighting;

  const Lists before = std::move(in_);
  ranks_ = active.empty() ? 0 : active.back() + 1;
  in_.clear();
  out_.clear();
  for (topology::Node node = 0; node < graph.size(); ++node) {
    const Rank to = active[node];
    const topology::RowWeights weights = topology::row_weights(graph, weighting_, node);
    for (std::size_t i = 0; i < graph.in(node).size(); ++i) {
      const Rank from = active[graph.in(node)[i]];
      const PeerEdge* known = find_edge(of(before, to), from);
      PeerEdge edge;
      if (known != nullptr) {
        edge = *known;
      } else {
        edge.live_from = first_of(host, from, to);
      }
      edge.peer = from;
      edge.is_new = known == nullptr;
      edge.weight = weights.in[i];
      in_.get(to).push_back(edge);
      out_.get(from).push_back({to, edge.is_new, edge.live_from});
    }
  }
  return note;
}

void PeerGraph::cut(Rank rank) {
  in_.get(rank).clear();
  for (const PeerEdge& edge : out(rank)) {
    std::erase_if(in_.get(edge.peer), [rank](const PeerEdge& other) { return other.peer == rank; });
  }
}

// Who has not come back since a restart may have been granted another iteration than records say.
bool PeerGraph::is_known(const PolicyHost& host, Rank rank) const {
  return host.replaying() || rank == entering_ || host.worker(rank).told_epoch != 0;
}

Clock PeerGraph::clock_of(const PolicyHost& host, Rank rank) const {
  Clock clock = host.worker(rank).clock;
  if (const Clock* recorded = recorded_.find(rank); recorded != nullptr && host.replaying()) {
    clock = std::max(clock, *recorded);
  }
  if (const Clock* assumed = assumed_.find(rank)) clock = std::max(clock, *assumed);
  return is_known(host, rank) ? clock : std::max(clock, highest_);
}

std::vector<std::int64_t> PeerGraph::unrecorded_clocks(const PolicyHost& host) {
  std::vector<std::int64_t> clocks;
  const auto add = [&](Rank rank) {
    const Worker& worker = host.worker(rank);
    if (!is_known(host, rank)) {
      const Clock clock = clock_of(host, rank);
      if (std::exchange(assumed_.get(rank, kNoIteration), clock) != clock) {
        clocks.insert(clocks.end(), {-1 - std::int64_t{rank}, clock});
      }
      return;
    }
    Clock& recorded = recorded_.get(rank, kNoIteration);
    const bool is_granted = worker.computing() && worker.clock == worker.granted;
    // It may be behind a grant that it was given in an earlier life of the daemon and never saw.
    if (is_granted ? recorded == worker.clock : recorded <= worker.clock) return;
    recorded = worker.clock;
    clocks.insert(clocks.end(), {rank, worker.clock});
  };
  in_.for_each([&](Rank to, const std::vector<PeerEdge>& edges) {
    for (const PeerEdge& edge : edges) {
      if (!edge.is_new) continue;
      add(edge.peer);
      add(to);
    }
  });
  return clocks;
}

void PeerGraph::set_clocks(const PolicyHost& host, std::span<const std::int64_t> clocks) {
  for (std::size_t i = 0; i + 1 < clocks.size(); i += 2) {
    const bool is_known = clocks[i] >= 0;
    const auto rank = static_cast<Rank>(is_known ? clocks[i] : -1 - clocks[i]);
    if (clocks[i + 1] > limits::kIterationMax) continue;
    (is_known ? recorded_ : assumed_).get(rank) = clocks[i + 1];
  }
  in_.for_each([&](Rank to, std::vector<PeerEdge>& edges) {
    for (PeerEdge& edge : edges) {
      if (edge.is_new) edge.live_from = first_of(host, edge.peer, to);
    }
  });
  out_.for_each([&](Rank from, std::vector<PeerEdge>& edges) {
    for (PeerEdge& edge : edges) {
      if (edge.is_new) edge.live_from = first_of(host, from, edge.peer);
    }
  });
}

void PeerGraph::weigh(std::span<PeerUpdate> updates) const {
  if (weighting_ == topology::Weighting::kEqual) {
    for (PeerUpdate& update : updates) update.weight = 1.0 / static_cast<double>(updates.size());
    return;
  }
  updates[0].weight = 1;
  for (const PeerUpdate& update : updates.subspan(1)) updates[0].weight -= update.weight;
}

std::vector<std::int64_t> PeerGraph::file_edges() const {
  if (!spec_.loaded) return {};
  const topology::Graph& graph = *spec_.loaded;
  std::vector<std::int64_t> edges{static_cast<std::int64_t>(graph.size())};
  edges.reserve(1 + 2 * graph.edges());
  for (topology::Node from = 0; from < graph.size(); ++from) {
    for (const topology::Node to : graph.out(from)) edges.insert(edges.end(), {from, to});
  }
  return edges;
}

bool PeerGraph::set_file_edges(std::span<const std::int64_t> edges) {
  if (edges.size() % 2 != 1 || edges[0] < 0 ||
      edges[0] > static_cast<std::int64_t>(topology::kNodesMax)) {
    return false;
  }
  std::vector<topology::Edge> pairs;
  for (std::size_t i = 1; i < edges.size(); i += 2) {
    if (edges[i] < 0 || edges[i] >= edges[0] || edges[i + 1] < 0 || edges[i + 1] >= edges[0]) {
      return false;
    }
    pairs.push_back(
        {static_cast<topology::Node>(edges[i]), static_cast<topology::Node>(edges[i + 1])});
  }
  spec_.loaded = std::make_shared<const topology::Graph>(static_cast<std::size_t>(edges[0]), pairs);
  return true;
}

void PeerGraph::save(std::vector<std::int64_t>& out) const {
  std::size_t count = 0;
  in_.for_each([&](Rank, const auto& edges) { count += edges.size(); });
  const std::vector<std::int64_t> file = file_edges();
  out.push_back(static_cast<std::int64_t>(file.size()));
  out.insert(out.end(), file.begin(), file.end());
  out.push_back(static_cast<std::int64_t>(weighting_));
  out.push_back(ranks_);
  out.push_back(static_cast<std::int64_t>(count));
  in_.for_each([&](Rank to, const auto& edges) {
    for (const PeerEdge& edge : edges) {
      out.insert(out.end(), {to, edge.peer, edge.live_from, edge.consumed});
    }
  });
  assumed_.for_each([&](Rank rank, Clock clock) { out.insert(out.end(), {rank, clock}); });
}

bool PeerGraph::take(std::span<const std::int64_t> state) {
  if (state.empty() || state[0] < 0 || static_cast<std::uint64_t>(state[0]) >= state.size()) {
    return false;
  }
  const auto file = state.subspan(1, static_cast<std::size_t>(state[0]));
  if (!file.empty() && !set_file_edges(file)) return false;
  state = state.subspan(1 + file.size());
  if (state.size() < 3) return false;
  const std::int64_t ranks = state[1];
  const std::int64_t count = state[2];
  if (state[0] < 0 || state[0] > 1 || ranks < 0 || count < 0 ||
      ranks > static_cast<std::int64_t>(topology::kNodesMax) ||
      static_cast<std::uint64_t>(count) > (state.size() - 3) / 4) {
    return false;
  }
  weighting_ = static_cast<topology::Weighting>(state[0]);
  ranks_ = static_cast<Rank>(ranks);
  in_.clear();
  out_.clear();
  for (std::size_t at = 3; at < 3 + 4 * static_cast<std::size_t>(count); at += 4) {
    if (state[at] < 0 || state[at] >= ranks || state[at + 1] < 0 || state[at + 1] >= ranks) {
      return false;
    }
    const auto to = static_cast<Rank>(state[at]);
    const auto from = static_cast<Rank>(state[at + 1]);
    in_.get(to).push_back({from, false, state[at + 2], 0, state[at + 3]});
    out_.get(from).push_back({to, false, state[at + 2]});
  }
  // Weights follow from degrees, as row_weights() has them.
  in_.for_each([this](Rank, std::vector<PeerEdge>& edges) {
    for (PeerEdge& edge : edges) {
      std::size_t degree = edges.size();
      if (weighting_ == topology::Weighting::kMetropolis) {
        degree = std::max(degree, in(edge.peer).size());
      }
      edge.weight = 1.0 / static_cast<double>(degree + 1);
    }
  });
  state = state.subspan(3 + 4 * static_cast<std::size_t>(count));
  if (state.size() % 2 != 0) return false;
  for (; !state.empty(); state = state.subspan(2)) {
    if (state[0] < 0 || state[0] >= ranks || state[1] > limits::kIterationMax) return false;
    assumed_.get(static_cast<Rank>(state[0])) = state[1];
  }
  return true;
}

}  // namespace syncd
