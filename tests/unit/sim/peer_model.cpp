// See peer_model.h.
#include "tests/unit/sim/peer_model.h"

#include <algorithm>
#include <stdexcept>

namespace syncd::test {
namespace {

using topology::Graph;
using topology::GraphKind;
using wire::PeerUpdate;

constexpr Iteration kNever = INT64_MIN / 4;  // before any iteration, with room to add to it

// The graph of so many workers; where there is none, or it does not hold together, the nearest one
// of its kind that does.
Graph connected_graph(GraphKind kind, const std::vector<std::string>& hosts) {
  std::string error;
  const auto graph = topology::generate({kind, "", nullptr}, hosts.size(), hosts, error);
  if (graph && topology::is_strongly_connected(*graph)) return *graph;
  switch (kind) {
    case GraphKind::kDoubleRing:
      return connected_graph(GraphKind::kRingBased, hosts);
    case GraphKind::kRingBased:
      return connected_graph(GraphKind::kRing, hosts);
    case GraphKind::kHalton:
      return connected_graph(GraphKind::kRingDirected, hosts);
    default:
      throw std::logic_error("no such graph: " + error);
  }
}

}  // namespace

std::string PeerRules::text() const {
  if (notify_ack) return "notify_ack:" + graph + ",force=1";
  std::string text = "hop:" + graph + ",max_ig=" + std::to_string(max_ig);
  if (backup) text += ",backup=" + std::to_string(*backup);
  for (const auto& [rank, number] : backup_of) {
    text += ",backup." + std::to_string(rank) + "=" + std::to_string(number);
  }
  if (staleness) text += ",staleness=" + std::to_string(*staleness);
  if (skip > 0) text += ",skip=" + std::to_string(skip);
  if (skip_trigger) text += ",skip_trigger=" + std::to_string(*skip_trigger);
  return text + ",force=1";
}

std::int64_t PeerRules::slots() const {
  return notify_ack ? 1 : max_ig + 1 + staleness.value_or(0) + (skip > 0 ? 1 : 0);
}

PeerModel::PeerModel(const PeerRules& rules, std::uint32_t ranks)
    : rules_(rules),
      workers_(ranks),
      edges_(std::size_t{ranks} * ranks),
      in_(ranks),
      out_(ranks),
      by_updates_(edges_.size()),
      by_tokens_(edges_.size()) {
  std::string error;
  const auto spec = topology::parse_graph_spec(rules.graph, error);
  if (!spec) throw std::logic_error(error);
  spec_ = *spec;
  if (rules.file) spec_.loaded = rules.file->graph;
}

// ---- membership
// -------------------------------------------------------------------------------------------

void PeerModel::start(const std::vector<Rank>& members) {
  started_ = true;
  active_ = members;
  for (const Rank rank : members) workers_[rank].active = true;
  rebuild();
}

Clock PeerModel::entry_clock(Rank rank) const {
  const Worker& worker = workers_[rank];
  if (worker.active) return worker.clock;  // its place was never given up
  Clock lowest = INT64_MAX;
  for (const Rank other : active_) lowest = std::min(lowest, workers_[other].clock - 1);
  if (active_.empty()) {
    lowest = -1;
    for (const Worker& other : workers_) lowest = std::max(lowest, other.clock);
  }
  return std::max(lowest, worker.clock);
}

void PeerModel::enter(Rank rank, Clock clock) {
  Worker& worker = workers_[rank];
  if (worker.active) {
    // One that takes its predecessor's place: the others must not wait for what that was doing.
    for (Rank other = 0; other < ranks(); ++other) {
      edge_of(rank, other).live = edge_of(other, rank).live = false;
    }
    active_.erase(std::lower_bound(active_.begin(), active_.end(), rank));
  }
  worker.active = true;
  worker.clock = worker.collected = worker.consumed = clock;
  worker.jump_set.reset();
  worker.standing.reset();
  active_.insert(std::lower_bound(active_.begin(), active_.end(), rank), rank);
  rebuild();
}

void PeerModel::exit(Rank rank) {
  workers_[rank].active = false;
  workers_[rank].standing.reset();
  active_.erase(std::lower_bound(active_.begin(), active_.end(), rank));
  if (started_) rebuild();
}

Graph PeerModel::graph_now() const {
  const Graph none(active_.size(), {});
  if (spec_.kind == GraphKind::kFile) {
    // A worker that the file does not know leaves all without neighbours.
    if (!active_.empty() && active_.back() >= spec_.loaded->size()) return none;
    return spec_.loaded->subgraph(active_);
  }
  if (active_.size() <= 1) return none;
  std::vector<std::string> hosts;
  for (const Rank rank : active_) hosts.push_back(workers_[rank].host);
  return connected_graph(spec_.kind, hosts);
}

void PeerModel::rebuild() {
  const Graph graph = graph_now();
  metropolis_ = topology::is_strongly_connected(graph) && topology::is_undirected(graph) &&
                !topology::is_doubly_stochastic(graph);
  for (auto& list : in_) list.clear();
  for (auto& list : out_) list.clear();
  std::vector<char> stays(edges_.size());
  for (Node node = 0; node < graph.size(); ++node) {
    const Rank to = active_[node];
    for (const Node source : graph.in(node)) {
      const Rank from = active_[source];
      in_[to].push_back(from);
      out_[from].push_back(to);
      stays[from * workers_.size() + to] = 1;
      Edge& edge = edge_of(from, to);
      if (edge.live) continue;
      // Nobody may wait for what was never sent, nor be sent what it does not expect.
      edge = {true, std::max(workers_[from].clock, workers_[to].clock) + 1, workers_[from].clock,
              -1};
    }
  }
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    if (stays[i] == 0) edges_[i].live = false;
  }
  for (auto& list : out_) std::sort(list.begin(), list.end());
  make_bounds(graph);
}

// ---- the rules
// --------------------------------------------------------------------------------------------

// How many of the in-neighbours that count collect() may do without: never all.
std::int64_t PeerModel::spare(Rank rank, std::size_t counted) const {
  const auto own = rules_.backup_of.find(rank);
  const std::int64_t backup =
      own != rules_.backup_of.end() ? own->second : rules_.backup.value_or(0);
  return std::max<std::int64_t>(0, std::min(backup, static_cast<std::int64_t>(counted) - 1));
}

bool PeerModel::is_usable(Rank from, Rank to, Iteration k) const {
  const Iteration pushed = workers_[from].pushed;
  if (!rules_.staleness) return pushed >= k;
  // Nothing received over an edge yet: as if its last iteration without it had been.
  return std::max(pushed, edge(from, to).first - 1) >= k - *rules_.staleness;
}

// NOTIFY-ACK: whether `to` is done with what lies where the update of iteration k would go. A new
// edge has no ACKs to wait for, but there may be something that was sent before it came to be.
bool PeerModel::acknowledged(Rank from, Rank to, Iteration k) const {
  const Iteration first = edge(from, to).first;
  const Worker& reader = workers_[to];
  if (k == first) return reader.consumed >= reader.collected;
  return k < first || reader.consumed >= k - 1;
}

std::optional<std::vector<PeerUpdate>> PeerModel::gather(Rank rank, Iteration k) const {
  std::vector<PeerUpdate> updates{{rank, workers_[rank].pushed, 0}};
  std::size_t counted = 0;
  std::int64_t missing = 0;
  for (const Rank from : in_[rank]) {
    const Edge& way = edge(from, rank);
    if (k < way.first) continue;
    ++counted;
    if (!is_usable(from, rank, k)) {
      ++missing;
    } else if (!rules_.staleness) {
      updates.push_back({from, k, 0});
    } else if (const Iteration newest = workers_[from].pushed;
               newest >= way.first && newest > way.consumed) {
      updates.push_back({from, newest, 0});
    }
  }
  if (missing > spare(rank, counted)) return std::nullopt;
  weigh(rank, k, updates);
  return updates;
}

void PeerModel::weigh(Rank rank, Iteration k, std::vector<PeerUpdate>& updates) const {
  if (rules_.staleness) {
    // Hop, equation 2: the newer, the more. A worker's own may be too old, before a jump.
    double sum = 0;
    for (PeerUpdate& update : updates) {
      update.weight =
          std::max(0.0, static_cast<double>(update.iteration - k + *rules_.staleness + 1));
      sum += update.weight;
    }
    if (sum == 0) updates[0].weight = sum = 1;
    for (PeerUpdate& update : updates) update.weight /= sum;
    return;
  }
  double rest = 1;
  for (std::size_t i = 1; i < updates.size(); ++i) {
    const std::size_t degree = std::max(in_[rank].size(), in_[updates[i].rank].size());
    updates[i].weight = 1.0 / static_cast<double>(metropolis_ ? degree + 1 : updates.size());
    rest -= updates[i].weight;
  }
  updates[0].weight = rest;
}

std::optional<PeerModel::Entry> PeerModel::begin(Rank rank) const {
  const Clock clock = workers_[rank].clock;
  if (rules_.notify_ack) return Entry{clock + 1, {}};
  if (rules_.skip > 0 && !out_[rank].empty()) {
    std::int64_t ahead = INT64_MAX;
    for (const Rank to : out_[rank]) ahead = std::min(ahead, workers_[to].clock - clock);
    const Iteration there = clock + std::min(rules_.skip, ahead);
    if (ahead >= rules_.jumps_from() && there > clock + 1) {
      if (auto set = gather(rank, there - 1)) return Entry{there, std::move(set)};
    }
  }
  for (const Rank to : out_[rank]) {
    if (clock + 1 - workers_[to].clock > rules_.max_ig) return std::nullopt;  // no token
  }
  return Entry{clock + 1, {}};
}

std::optional<std::vector<Rank>> PeerModel::targets(Rank rank, Iteration k) const {
  std::vector<Rank> targets;
  for (const Rank to : out_[rank]) {
    const Edge& way = edge(rank, to);
    const Clock there = workers_[to].clock;
    if (rules_.notify_ack && !acknowledged(rank, to, k)) return std::nullopt;
    if (k < way.first) continue;
    // Who is past it has no use for it (Hop, section 6.2).
    if (rules_.staleness ? there > k + *rules_.staleness : rules_.has_backup() && there > k) {
      continue;
    }
    targets.push_back(to);
  }
  return targets;
}

std::optional<std::vector<PeerUpdate>> PeerModel::collect(Rank rank, Iteration k) const {
  const Worker& worker = workers_[rank];
  if (worker.jump_set && k == worker.clock - 1) return worker.jump_set;
  return gather(rank, k);
}

bool PeerModel::can_answer(Rank rank) const {
  const Standing& standing = *workers_[rank].standing;
  switch (standing.call) {
    case Call::kBegin:
      return begin(rank).has_value();
    case Call::kTargets:
      return targets(rank, standing.iteration).has_value();
    case Call::kCollect:
      return collect(rank, standing.iteration).has_value();
  }
  return false;
}

std::int64_t PeerModel::lag(Rank rank, Iteration k) const {
  std::int64_t lag = in_[rank].empty() ? 0 : INT64_MIN;
  for (const Rank from : in_[rank]) lag = std::max(lag, k - workers_[from].clock);
  return lag;
}

void PeerModel::granted(Rank rank, const Entry& entry) {
  Worker& worker = workers_[rank];
  worker.standing.reset();
  worker.clock = entry.iteration;
  worker.jump_set = entry.jump_set;
  if (entry.jump_set) collected(rank, entry.iteration - 1, *entry.jump_set);
}

void PeerModel::collected(Rank rank, Iteration k, const std::vector<PeerUpdate>& updates) {
  Worker& worker = workers_[rank];
  worker.collected = std::max(worker.collected, k);
  for (const PeerUpdate& update : updates) {
    if (update.rank == rank || update.rank >= workers_.size()) continue;
    Edge& way = edge_of(update.rank, rank);
    way.consumed = std::max(way.consumed, update.iteration);
  }
}

void PeerModel::pushed(Rank rank, Iteration k) {
  workers_[rank].pushed = k;
  workers_[rank].pushes.insert(k);
}

// ---- deadlocks
// --------------------------------------------------------------------------------------------

std::vector<Rank> PeerModel::deadlocked() const {
  // Whoever does not wait may get arbitrarily far, and so may whoever waits for those alone.
  std::vector<char> free(workers_.size());
  std::vector<Rank> left;
  for (const Rank rank : active_) {
    free[rank] = workers_[rank].standing ? 0 : 1;
    if (free[rank] == 0) left.push_back(rank);
  }
  const auto gets_on = [&](Rank rank) {
    const Standing& standing = *workers_[rank].standing;
    const Iteration k = standing.iteration;
    std::size_t counted = 0;
    std::int64_t missing = 0;
    switch (standing.call) {
      case Call::kBegin:
        if (rules_.notify_ack) return true;
        return std::all_of(out_[rank].begin(), out_[rank].end(), [&](Rank to) {
          return free[to] != 0 || k - workers_[to].clock <= rules_.max_ig;
        });
      case Call::kTargets:
        if (!rules_.notify_ack) return true;
        return std::all_of(out_[rank].begin(), out_[rank].end(),
                           [&](Rank to) { return free[to] != 0 || acknowledged(rank, to, k); });
      case Call::kCollect:
        for (const Rank from : in_[rank]) {
          if (k < edge(from, rank).first) continue;
          ++counted;
          missing += free[from] == 0 && !is_usable(from, rank, k) ? 1 : 0;
        }
        return missing <= spare(rank, counted);
    }
    return false;
  };
  while (std::erase_if(left, [&](Rank rank) {
           free[rank] = gets_on(rank) ? 1 : 0;
           return free[rank] != 0;
         }) > 0) {
  }
  return left;
}

// ---- Table 1
// ----------------------------------------------------------------------------------------------

// One edge u -> v, first counted in iteration f, gives two bounds:
//  - v collects: it is in iteration k only after collect(k - 1), which, if k - 1 >= f, needed u's
//    update of k - 1 (with staleness s: of k - 1 - s, and "nothing yet" counts as f - 1). So
//    c_v <= max(c_u + s + 1, f + s).
//  - u takes v's tokens on entering, from the moment that the edge is there: c_u <= max(c_v +
//    max_ig, what c_u was then). NOTIFY-ACK: u is in k only after targets(k - 1), which, if k - 2
//    >= f, needed v's ACK of k - 2: c_u <= max(c_v + 2, f + 1).
// Clocks only rise, so each goes on to hold for as long as the edge stays. Along a path the maxima
// add up: c_i <= max(c_j + gap, free) with gap = length x step, as Table 1 has it, and `free` from
// the recursion below, the least over all shortest paths. In the beginning all edges count from 0,
// and c_j + gap is the larger; after a change it is so again once j has come close enough to what
// the new edges count from.
void PeerModel::make_bounds(const Graph& graph) {
  std::fill(by_updates_.begin(), by_updates_.end(), Bound{});
  std::fill(by_tokens_.begin(), by_tokens_.end(), Bound{});
  const topology::Distances distances(graph);
  const bool collects = !rules_.has_backup();  // else an update may be done without
  const std::int64_t stale = rules_.staleness.value_or(0);
  const std::int64_t token = rules_.notify_ack ? 2 : rules_.max_ig;
  std::vector<Node> order(graph.size());
  for (Node i = 0; i < graph.size(); ++i) order[i] = i;
  for (Node j = 0; j < graph.size(); ++j) {
    const Rank from = active_[j];
    const auto bound = [&](std::vector<Bound>& bounds, Node i) -> Bound& {
      return bounds[active_[i] * workers_.size() + from];
    };
    // Each node after those that are nearer to j.
    if (collects) {
      std::sort(order.begin(), order.end(),
                [&](Node a, Node b) { return distances(j, a) < distances(j, b); });
      for (const Node v : order) {
        const std::uint32_t steps = distances(j, v);
        if (steps == topology::kUnreachable) break;
        Bound& to = bound(by_updates_, v);
        to = {true, std::int64_t{steps} * (stale + 1), steps == 0 ? kNever : INT64_MAX};
        for (const Node u : graph.in(v)) {
          if (steps == 0 || distances(j, u) + 1 != steps) continue;
          const Iteration first = edge(active_[u], active_[v]).first;
          to.free =
              std::min(to.free, std::max(bound(by_updates_, u).free + stale + 1, first + stale));
        }
      }
    }
    std::sort(order.begin(), order.end(),
              [&](Node a, Node b) { return distances(a, j) < distances(b, j); });
    for (const Node u : order) {
      const std::uint32_t steps = distances(u, j);
      if (steps == topology::kUnreachable) break;
      Bound& to = bound(by_tokens_, u);
      to = {true, std::int64_t{steps} * token, steps == 0 ? kNever : INT64_MAX};
      for (const Node v : graph.out(u)) {
        if (steps == 0 || distances(v, j) + 1 != steps) continue;
        const Edge& way = edge(active_[u], active_[v]);
        const Iteration then = rules_.notify_ack ? way.first + 1 : way.sender_at;
        to.free = std::min(to.free, std::max(bound(by_tokens_, v).free + token, then));
      }
    }
  }
}

}  // namespace syncd::test
