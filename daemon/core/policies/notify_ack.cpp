// See notify_ack.h.
#include "daemon/core/policies/notify_ack.h"

#include "daemon/core/policies/decentralized.h"

namespace syncd {
namespace {

struct NotifyAckSettings {
  std::int64_t every = 1;
  std::int64_t force = 0;
};
constexpr Parameter<NotifyAckSettings> kNotifyAckParameters[] = {
    {"every", &NotifyAckSettings::every, 1}, {"force", &NotifyAckSettings::force, 0, 1}};

class NotifyAck final : public DecentralizedPolicy {
 public:
  NotifyAck(topology::GraphSpec graph, const NotifyAckSettings& settings)
      : DecentralizedPolicy(
            PeerGraph(std::move(graph), settings.force == 1),
            {.gap_bound = 1, .peer_loop = {.push_follows_data = true, .batches = settings.every}}),
        settings_(settings) {}

  std::string name() const override {
    return "notify_ack:" + graph_.spec().text() + parameters_text(kNotifyAckParameters, settings_);
  }

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Waiting& waiting = *host.worker(rank).waiting;
    const Iteration k = waiting.iteration;
    if (waiting.call == Call::kTargets) {
      return {
          fmt::format("iteration {} is sent when every out-neighbour has consumed {}", k, k - 1),
          RankList(not_acknowledged(host, rank, k - 1))};
    }
    return {fmt::format("every in-neighbour's update of iteration {} is needed", k),
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

  NotifyAckSettings settings_;
};

}  // namespace

std::unique_ptr<Policy> make_notify_ack(const PolicyText& text, std::string& error) {
  if (!text.begins_unnamed()) {
    error = policy_error(text,
                         "notify_ack needs a graph: notify_ack:GRAPH[,every=N], such as "
                         "notify_ack:root_expander; graphs are " +
                             topology::known_graphs());
    return nullptr;
  }
  topology::GraphSpec spec;
  if (!parse_peer_graph(text, spec, error)) return nullptr;
  NotifyAckSettings settings;
  for (std::size_t i = 1; i < text.arguments.size(); ++i) {
    if (!parse_parameter(text, text.arguments[i], kNotifyAckParameters,
                         "notify_ack takes notify_ack:GRAPH[,every=N][,force=1]", settings,
                         error)) {
      return nullptr;
    }
  }
  return std::make_unique<NotifyAck>(std::move(spec), settings);
}

}  // namespace syncd
