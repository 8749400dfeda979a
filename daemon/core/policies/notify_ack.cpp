// See notify_ack.h.
#include "daemon/core/policies/notify_ack.h"

#include "daemon/core/policies/decentralized.h"

namespace syncd {
namespace {

class NotifyAck final : public DecentralizedPolicy {
 public:
  NotifyAck(PeerGraph graph, std::int64_t every)
      : DecentralizedPolicy(
            std::move(graph),
            {.gap_bound = 1, .peer_loop = {.push_follows_data = true, .batches = every}}),
        every_(every) {}

  std::string name() const override {
    std::string text = "notify_ack:" + graph_.spec().text();
    if (every_ != 1) text += ",every=" + std::to_string(every_);
    if (graph_.forced()) text += ",force=1";
    return text;
  }

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Waiting& waiting = *host.worker(rank).waiting;
    const Iteration k = waiting.iteration;
    if (waiting.call == Call::kTargets) {
      return {"iteration " + std::to_string(k) + " is sent when every out-neighbour has consumed " +
                  std::to_string(k - 1),
              RankList(not_acknowledged(host, rank, k - 1))};
    }
    return {"every in-neighbour's update of iteration " + std::to_string(k) + " is needed",
            RankList(not_notified(host, rank, k))};
  }

 protected:
  void try_begin(PolicyHost& host, Rank rank) override {
    grant(host, rank, host.worker(rank).clock + 1);
  }

  void try_targets(PolicyHost& host, Rank rank) override {
    const Iteration k = host.worker(rank).waiting->iteration;
    if (!not_acknowledged(host, rank, k - 1).empty()) return;
    std::vector<Rank> targets;
    for (const PeerEdge& edge : graph_.out(rank)) {
      if (k >= edge.live_from) targets.push_back(edge.peer);
    }
    host.answer_targets(rank, std::move(targets));
  }

  void try_collect(PolicyHost& host, Rank rank) override {
    const Iteration k = host.worker(rank).waiting->iteration;
    if (!not_notified(host, rank, k).empty()) return;
    std::vector<PeerUpdate> updates{{rank, k, 0}};
    for (const PeerEdge& edge : graph_.in(rank)) {
      if (k >= edge.live_from) updates.push_back({edge.peer, k, edge.weight});
    }
    graph_.weigh(updates);
    host.answer_collect(rank, std::move(updates));
  }

 private:
  // An edge's ACKs before its first iteration count as given. Only, its place may hold an update
  // that the neighbour still reads: of an earlier edge between the two, or of an earlier life of
  // this worker. So its first update waits until the neighbour reads nothing.
  std::vector<Rank> not_acknowledged(const PolicyHost& host, Rank rank, Iteration k) const {
    std::vector<Rank> missing;
    for (const PeerEdge& edge : graph_.out(rank)) {
      const Worker& peer = host.worker(edge.peer);
      const bool reads = k + 1 == edge.live_from && peer.consumed < peer.collected;
      if (reads || (k >= edge.live_from && peer.consumed < k)) missing.push_back(edge.peer);
    }
    return missing;
  }
  std::vector<Rank> not_notified(const PolicyHost& host, Rank rank, Iteration k) const {
    std::vector<Rank> missing;
    for (const PeerEdge& edge : graph_.in(rank)) {
      if (k >= edge.live_from && host.worker(edge.peer).pushed < k) missing.push_back(edge.peer);
    }
    return missing;
  }

  std::int64_t every_;
};

}  // namespace

std::unique_ptr<Policy> make_notify_ack(const PolicyText& text, std::string& error) {
  topology::GraphSpec spec;
  std::int64_t every = 1;
  std::int64_t force = 0;
  if (text.arguments.empty() || !text.arguments[0].key.empty()) {
    error = policy_error(text,
                         "notify_ack needs a graph: notify_ack:GRAPH[,every=N], such as "
                         "notify_ack:root_expander; graphs are " +
                             topology::known_graphs());
    return nullptr;
  }
  if (!parse_peer_graph(text, spec, error)) return nullptr;
  for (std::size_t i = 1; i < text.arguments.size(); ++i) {
    const PolicyArgument& argument = text.arguments[i];
    std::optional<std::int64_t> number;
    if (argument.key == "every") {
      number = parse_policy_integer(text, "every", argument.value, 1, 1'000'000'000, error);
      if (number) every = *number;
    } else if (argument.key == "force") {
      number = parse_policy_integer(text, "force", argument.value, 0, 1, error);
      if (number) force = *number;
    } else {
      error = policy_error(text, "unknown parameter '" +
                                     (argument.key.empty() ? argument.value : argument.key) +
                                     "'; notify_ack takes notify_ack:GRAPH[,every=N][,force=1]");
    }
    if (!number) return nullptr;
  }
  return std::make_unique<NotifyAck>(PeerGraph(std::move(spec), force == 1), every);
}

}  // namespace syncd
