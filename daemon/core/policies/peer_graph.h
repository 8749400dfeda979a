// The communication graph of a running decentralized job: which edges there are between its active
// workers now, and from which iteration on each of them counts. Shared by Hop and NOTIFY-ACK. Run
// on the engine's thread.
//
// Workers come and go while others are in the middle of their iterations. A generated graph is made
// anew over the active workers in rank order; a file's graph only loses nodes. An edge that is new
// then counts from the iteration after the later one that its two ends are in, so that nobody waits
// for an update that was never sent, nor sends one that nobody expects. An edge that stays keeps
// what it was. Grants are in no record, so that the job's history has the iterations that a new
// edge counts from beside the loss or the join that made it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/policy.h"
#include "daemon/core/engine/rank_map.h"
#include "daemon/core/policies/policy_text.h"
#include "daemon/core/topology/graph_spec.h"

namespace syncd {

struct PeerEdge {
  Rank peer = 0;
  bool is_new = false;  // since the latest rebuild()
  Iteration live_from = 0;
  double weight = 0;                  // of an in-edge, in a reduce in which nothing is missing
  Iteration consumed = kNoIteration;  // of an in-edge: the newest update that a reduce was given
};

class PeerGraph {
  using Lists = RankMap<std::vector<PeerEdge>>;
  template <class SomeLists>
  static auto of(SomeLists& lists, Rank rank) {
    auto* const edges = lists.find(rank);
    return edges != nullptr ? std::span(*edges) : decltype(std::span(*edges))();
  }

 public:
  PeerGraph(topology::GraphSpec spec, bool force) : spec_(std::move(spec)), force_(force) {}

  const topology::GraphSpec& spec() const { return spec_; }
  // The graph of a job of so many workers, or why it cannot use this one. Which workers share a
  // host is not known before they join: one that is by host is made as if each had its own. One
  // worker has nobody to talk to, whatever the graph.
  std::optional<topology::GraphOutline> plan(std::uint32_t workers, std::string& error) const;

  // The graph of a `file:` as whole numbers (number of nodes; from, to of each edge), and back, for
  // the job's history: what becomes of the file after the job was made changes nothing. Empty, or
  // false: there is none, or these are none.
  std::vector<std::int64_t> file_edges() const;
  bool set_file_edges(std::span<const std::int64_t> edges);

  // Edges over the active workers, from now on, of which `entering` is a new one. The sentence is
  // empty unless the graph is not the one that was asked for. O(n + m).
  std::string rebuild(const PolicyHost& host, std::optional<Rank> entering);
  // All clocks may begin anew.
  void forget_clocks() { recorded_.clear(), assumed_.clear(); }
  // The rank's edges end: those of the next rebuild() are new. To be followed by that.
  void cut(Rank rank);
  // What the new edges of the latest rebuild() count from and no record says, for the job's
  // history: rank and clock in turn; -1 - rank where it is not known that the worker is there. And
  // back, after the same rebuild().
  std::vector<std::int64_t> unrecorded_clocks(const PolicyHost& host);
  void set_clocks(const PolicyHost& host, std::span<const std::int64_t> clocks);

  // In rank order. None for a rank that is not active.
  std::span<PeerEdge> in(Rank rank) { return of(in_, rank); }
  std::span<PeerEdge> out(Rank rank) { return of(out_, rank); }
  std::span<const PeerEdge> in(Rank rank) const { return of(in_, rank); }
  std::span<const PeerEdge> out(Rank rank) const { return of(out_, rank); }
  // Weights of a reduce in which some updates may be missing, the own one first and the others with
  // their edges' weights: equal ones are made equal again, else the own update takes the rest.
  void weigh(std::span<PeerUpdate> updates) const;

  // The edges as whole numbers, and back.
  void save(std::vector<std::int64_t>& out) const;
  bool take(std::span<const std::int64_t> state);

 private:
  bool is_known(const PolicyHost& host, Rank rank) const;
  // What a new edge of this worker counts from.
  Clock clock_of(const PolicyHost& host, Rank rank) const;
  Iteration first_of(const PolicyHost& host, Rank from, Rank to) const {
    return std::max(clock_of(host, from), clock_of(host, to)) + 1;
  }

  topology::GraphSpec spec_;
  bool force_;
  topology::Weighting weighting_ = topology::Weighting::kEqual;
  Lists in_, out_;
  Rank ranks_ = 0;  // all edges are between ranks below it
  // Of the latest rebuild().
  std::optional<Rank> entering_;
  Clock highest_ = kNoIteration;  // that a worker may have reached
  RankMap<Clock> recorded_;       // what unrecorded_clocks() said that is known; for replay
  RankMap<Clock> assumed_;  // what it said that is not, where it is ahead of the worker's clock
};

// The graph of a decentralized policy, which is its first argument. False: `error` says what is
// wrong with it.
bool parse_peer_graph(const PolicyText& text, topology::GraphSpec& spec, std::string& error);

}  // namespace syncd
