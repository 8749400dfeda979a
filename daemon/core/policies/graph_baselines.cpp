// See graph_baselines.h.
#include "daemon/core/policies/graph_baselines.h"

#include <algorithm>

#include "daemon/core/policies/decentralized.h"

namespace syncd {
namespace {

class Baseline : public DecentralizedPolicy {
 public:
  Baseline(const char* name, topology::GraphSpec graph, bool force, const PolicyTraits& traits)
      : DecentralizedPolicy(PeerGraph(std::move(graph), force), traits),
        name_(name),
        force_(force) {}

  std::string name() const override {
    return std::string(name_) + ":" + graph_.spec().text() + (force_ ? ",force=1" : "");
  }

 protected:
  void try_begin(PolicyHost& host, Rank rank) override {
    grant(host, rank, host.worker(rank).clock + 1);
  }

  void try_targets(PolicyHost& host, Rank rank) override {
    const Iteration k = host.worker(rank).waiting->iteration;
    std::vector<Rank> targets;
    for (const PeerEdge& edge : graph_.out(rank)) {
      if (k >= edge.live_from) targets.push_back(edge.peer);
    }
    host.answer_targets(rank, std::move(targets));
  }

  // Each in-neighbour's update of the iteration that `choose` says; nothing is waited for.
  template <class Choose>
  void answer(PolicyHost& host, Rank rank, const Choose& choose) {
    const Iteration k = host.worker(rank).waiting->iteration;
    std::vector<PeerUpdate> updates{{rank, k, 0}};
    for (const PeerEdge& edge : graph_.in(rank)) {
      const Iteration chosen = choose(edge.peer, k);
      if (chosen >= edge.live_from) updates.push_back({edge.peer, chosen, edge.weight});
    }
    graph_.weigh(updates);
    host.answer_collect(rank, std::move(updates));
  }

 private:
  const char* name_;
  bool force_;
};

class GraphBarrier final : public Baseline {
 public:
  GraphBarrier(topology::GraphSpec graph, bool force)
      : Baseline("barrier", std::move(graph), force,
                 {.gap_bound = 1, .peer_loop = {.push_follows_data = true, .unsafe = true}}) {}

  void on_push(PolicyHost& host, Rank rank, bool late) override {
    const Iteration k = host.worker(rank).pushed;
    if (!lacks(host, k)) {
      passed_ = k;  // so that each of those that wait need not look at all
      look_at_all(host);
      passed_ = kNoIteration;
    }
    Baseline::on_push(host, rank, late);
  }

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Iteration k = host.worker(rank).waiting->iteration;
    return {fmt::format("the barrier opens when every worker has pushed iteration {}", k),
            RankList(missing(host, k))};
  }

 protected:
  void try_collect(PolicyHost& host, Rank rank) override {
    const Iteration wanted = host.worker(rank).waiting->iteration;
    if (wanted > passed_ && lacks(host, wanted)) return;
    answer(host, rank, [](Rank, Iteration k) { return k; });
  }

 private:
  static bool lacks(const PolicyHost& host, Iteration k) {
    return std::ranges::any_of(host.active(),
                               [&](Rank rank) { return host.worker(rank).pushed < k; });
  }
  static std::vector<Rank> missing(const PolicyHost& host, Iteration k) {
    std::vector<Rank> ranks;
    for (const Rank rank : host.active()) {
      if (host.worker(rank).pushed < k) ranks.push_back(rank);
    }
    return ranks;
  }

  Iteration passed_ = kNoIteration;  // the iteration whose barrier opens in this call
};

class GraphAsync final : public Baseline {
 public:
  GraphAsync(topology::GraphSpec graph, bool force)
      : Baseline(
            "async", std::move(graph), force,
            {.waits = false,
             .peer_loop = {.push_follows_data = true, .unsafe = true, .any_iteration = true}}) {}

  Reason explain(const PolicyHost&, Rank) const override { return {"no call waits", {}}; }

 protected:
  void try_collect(PolicyHost& host, Rank rank) override {
    answer(host, rank, [&](Rank peer, Iteration) { return host.worker(peer).pushed; });
  }
};

template <class Made>
std::unique_ptr<Policy> make(const PolicyText& text, std::string& error) {
  if (!text.begins_unnamed()) {
    error =
        policy_error(text, fmt::format("{} needs a graph: {}:GRAPH, such as {}:complete; "
                                       "graphs are {}",
                                       text.name, text.name, text.name, topology::known_graphs()));
    return nullptr;
  }
  topology::GraphSpec spec;
  if (!parse_peer_graph(text, spec, error)) return nullptr;
  std::optional<std::int64_t> force;
  for (std::size_t i = 1; i < text.arguments.size(); ++i) {
    const PolicyArgument& argument = text.arguments[i];
    if (argument.key != "force") {
      error = unknown_parameter(text, argument,
                                fmt::format("{0} takes {0}:GRAPH[,force=1]", text.name));
      return nullptr;
    }
    force = parse_policy_integer(text, "force", argument.value, 0, 1, error);
    if (!force) return nullptr;
  }
  return std::make_unique<Made>(std::move(spec), force == 1);
}

}  // namespace

std::unique_ptr<Policy> make_graph_barrier(const PolicyText& text, std::string& error) {
  return make<GraphBarrier>(text, error);
}

std::unique_ptr<Policy> make_graph_async(const PolicyText& text, std::string& error) {
  return make<GraphAsync>(text, error);
}

}  // namespace syncd
