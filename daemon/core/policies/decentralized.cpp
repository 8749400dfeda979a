// See decentralized.h.
#include "daemon/core/policies/decentralized.h"

#include <algorithm>
#include <utility>

namespace syncd {
namespace {

// The reasons of notes, stored, hence never changed. Of the one that carries a file's graph,
constexpr const char* kGraphFile = "graph file";
// and of the one with PeerGraph::unrecorded_clocks().
constexpr const char* kNewEdges = "new edges";

}  // namespace

std::string DecentralizedPolicy::check_workers(std::uint32_t, std::uint32_t expected) const {
  std::string why;
  const auto graph = graph_.plan(expected, why);
  if (graph) why = check_graph(*graph);
  return why.empty() ? why : "policy '" + name() + "': " + why;
}

std::size_t DecentralizedPolicy::dense_edges(std::size_t workers, const Hosts& hosts) const {
  const topology::GraphSpec& spec = graph_.spec();
  const bool counts = topology::is_by_host(spec.kind) && hosts;
  return topology::dense_edges(spec, workers, counts ? hosts() : std::vector<std::string>());
}

// ---- membership
// -------------------------------------------------------------------------------------------

void DecentralizedPolicy::rebuild(PolicyHost& host, std::optional<Rank> entering) {
  std::string note = graph_.rebuild(host, entering);
  if (note != note_) {
    note_ = std::move(note);
    Fact fact;
    fact.reason =
        note_.empty() ? "graph: " + graph_.spec().text() + " as specified" : "graph: " + note_;
    host.note(std::move(fact));
  }
  if (!host.replaying()) {
    Fact fact;
    fact.reason = kNewEdges;
    fact.values = graph_.unrecorded_clocks(host);
    if (!fact.values.empty()) host.note(std::move(fact));
  }
  look_at_all(host);
}

void DecentralizedPolicy::on_created(PolicyHost& host) {
  Fact fact;
  fact.reason = kGraphFile;
  fact.values = graph_.file_edges();
  if (!fact.values.empty()) host.note(std::move(fact));
}

void DecentralizedPolicy::on_start(PolicyHost& host) {
  started_ = true;
  graph_.forget_clocks();
  rebuild(host);
}

void DecentralizedPolicy::on_disband(PolicyHost&) {
  started_ = false;
}

void DecentralizedPolicy::on_note(PolicyHost& host, const Record& record) {
  if (record.reason == kNewEdges) return graph_.set_clocks(host, record.values);
  if (record.reason != kGraphFile || !graph_.set_file_edges(record.values)) return;
  // In an older history it may come after the start.
  if (started_) rebuild(host);
}

void DecentralizedPolicy::on_enter(PolicyHost& host, Rank rank) {
  if (started_) rebuild(host, rank);
}

void DecentralizedPolicy::on_exit(PolicyHost& host, Rank rank) {
  if (!started_) return;
  // Where a new process takes its place, on_enter() follows.
  if (is_member(host.worker(rank).state)) return graph_.cut(rank);
  rebuild(host);
}

// It may know of answers that a daemon which was started again does not.
void DecentralizedPolicy::on_return(PolicyHost& host, Rank) {
  look_at_all(host);
}

// ---- the loop
// ---------------------------------------------------------------------------------------------

void DecentralizedPolicy::on_begin(PolicyHost& host, Rank rank) {
  try_again(host, rank);
  settle(host);
}
void DecentralizedPolicy::on_targets(PolicyHost& host, Rank rank) {
  try_again(host, rank);
  settle(host);
}
void DecentralizedPolicy::on_collect(PolicyHost& host, Rank rank) {
  try_again(host, rank);
  settle(host);
}
void DecentralizedPolicy::on_consumed(PolicyHost& host, Rank rank) {
  look_at(host, graph_.in(rank));
  settle(host);
}
void DecentralizedPolicy::on_push(PolicyHost& host, Rank rank, bool) {
  look_at(host, graph_.out(rank));
  settle(host);
}

void DecentralizedPolicy::grant(PolicyHost& host, Rank rank, Iteration iteration) {
  Grant grant;
  grant.iteration = iteration;
  grant.staleness = staleness(host, rank, iteration);
  host.grant(rank, grant);
  look_at(host, graph_.in(rank));
}

std::int64_t DecentralizedPolicy::staleness(const PolicyHost& host, Rank rank,
                                            Iteration iteration) const {
  const std::span<const PeerEdge> in = graph_.in(rank);
  if (in.empty()) return 0;
  Clock lowest = host.worker(in[0].peer).clock;
  for (const PeerEdge& edge : in) lowest = std::min(lowest, host.worker(edge.peer).clock);
  return iteration - lowest;
}

// ---- looking again
// ----------------------------------------------------------------------------------------

void DecentralizedPolicy::try_again(PolicyHost& host, Rank rank) {
  if (!host.worker(rank).waiting) return;
  if (std::exchange(is_queued_.get(rank), true)) return;
  queued_.push_back(rank);
}

void DecentralizedPolicy::look_at(PolicyHost& host, std::span<const PeerEdge> edges) {
  for (const PeerEdge& edge : edges) try_again(host, edge.peer);
}

void DecentralizedPolicy::look_at_all(PolicyHost& host) {
  for (const Rank rank : host.active()) try_again(host, rank);
  settle(host);
}

// One grant may allow the next: by a queue, so that a long chain of them needs no stack.
void DecentralizedPolicy::settle(PolicyHost& host) {
  if (settling_) return;
  settling_ = true;
  for (std::size_t i = 0; i < queued_.size(); ++i) {
    const Rank rank = queued_[i];
    is_queued_.get(rank) = false;
    const Worker& worker = host.worker(rank);
    if (!worker.active() || !worker.waiting) continue;
    switch (worker.waiting->call) {
      case Call::kBegin:
        try_begin(host, rank);
        break;
      case Call::kTargets:
        try_targets(host, rank);
        break;
      case Call::kCollect:
        try_collect(host, rank);
        break;
    }
  }
  queued_.clear();
  settling_ = false;
}

// ---- snapshot
// ---------------------------------------------------------------------------------------------

std::vector<std::int64_t> DecentralizedPolicy::save() const {
  std::vector<std::int64_t> out{started_ ? 1 : 0};
  graph_.save(out);
  return out;
}

bool DecentralizedPolicy::load(std::span<const std::int64_t> state) {
  if (state.empty() || state[0] < 0 || state[0] > 1) return false;
  started_ = state[0] == 1;
  return graph_.take(state.subspan(1));
}

}  // namespace syncd
