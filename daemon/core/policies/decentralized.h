// What the decentralized policies have in common: the graph follows the membership, and whenever a
// worker moves, those whose request may now be answered are looked at again. Run on the engine's
// thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/policy.h"
#include "daemon/core/engine/rank_map.h"
#include "daemon/core/policies/peer_graph.h"

namespace syncd {

class DecentralizedPolicy : public Policy {
 public:
  // Of `traits` its family is known.
  DecentralizedPolicy(PeerGraph graph, PolicyTraits traits)
      : Policy(decentralized(traits)), graph_(std::move(graph)) {}

  std::string check_workers(std::uint32_t fewest, std::uint32_t expected) const override;
  std::size_t dense_edges(std::size_t workers, const Hosts& hosts) const final;

  void on_created(PolicyHost& host) final;
  void on_start(PolicyHost& host) final;
  void on_disband(PolicyHost& host) final;
  void on_note(PolicyHost& host, const Record& record) final;
  void on_enter(PolicyHost& host, Rank rank) final;
  void on_exit(PolicyHost& host, Rank rank) final;
  void on_return(PolicyHost& host, Rank rank) final;
  void on_begin(PolicyHost& host, Rank rank) final;
  void on_targets(PolicyHost& host, Rank rank) final;
  void on_collect(PolicyHost& host, Rank rank) final;
  void on_consumed(PolicyHost& host, Rank rank) final;
  void on_push(PolicyHost& host, Rank rank, bool late) override;
  std::vector<std::int64_t> save() const final;
  bool load(std::span<const std::int64_t> state) final;

 protected:
  // Empty, or which parameter does not fit a job with this graph, and what does.
  virtual std::string check_graph(const topology::GraphOutline& graph) const {
    (void)graph;
    return {};
  }
  // Answers the worker's standing request if its rule allows that now.
  virtual void try_begin(PolicyHost& host, Rank rank) = 0;
  virtual void try_targets(PolicyHost& host, Rank rank) = 0;
  virtual void try_collect(PolicyHost& host, Rank rank) = 0;

  // Grants, and has those who wait for this worker's tokens looked at again.
  void grant(PolicyHost& host, Rank rank, Iteration iteration);
  // Has every standing request looked at again.
  void look_at_all(PolicyHost& host);
  // The largest number of iterations that an in-neighbour is behind this one; 0 without any.
  std::int64_t staleness(const PolicyHost& host, Rank rank, Iteration iteration) const;

  PeerGraph graph_;

 private:
  static PolicyTraits decentralized(PolicyTraits traits) {
    traits.family = Family::kDecentralized;
    return traits;
  }
  void rebuild(PolicyHost& host, std::optional<Rank> entering = {});
  void try_again(PolicyHost& host, Rank rank);
  void look_at(PolicyHost& host, std::span<const PeerEdge> edges);
  void settle(PolicyHost& host);

  bool started_ = false;
  std::string note_;          // what the latest graph is instead of the one that was asked for
  std::vector<Rank> queued_;  // to be looked at again, in this order
  RankMap<bool> is_queued_;
  bool settling_ = false;
};

}  // namespace syncd
