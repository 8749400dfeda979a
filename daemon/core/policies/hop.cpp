// See hop.h.
#include "daemon/core/policies/hop.h"

#include <algorithm>

#include "daemon/core/engine/limits.h"
#include "daemon/core/policies/decentralized.h"

namespace syncd {
namespace {

constexpr const char* kForm =
    "hop:GRAPH[,max_ig=N][,backup=B][,backup.RANK=B][,staleness=S][,skip=N][,skip_trigger=N]"
    "[,force=1]";

// How many in-neighbours' updates a reduce may lack: the paper's N_buw(i).
struct Backups {
  struct Range {  // these workers have a number of their own
    Rank first = 0, last = 0;
    std::int64_t count = 0;
  };
  std::int64_t count = 0;     // of all others
  std::vector<Range> ranges;  // in rank order, none of which overlap

  std::int64_t of(Rank rank) const {
    const auto it = std::lower_bound(ranges.begin(), ranges.end(), rank,
                                     [](const Range& range, Rank r) { return range.last < r; });
    return it != ranges.end() && it->first <= rank ? it->count : count;
  }
  // The first rank behind this one for which of() may say another number.
  Rank next_change(Rank rank) const {
    const auto it = std::lower_bound(ranges.begin(), ranges.end(), rank,
                                     [](const Range& range, Rank r) { return range.last < r; });
    if (it == ranges.end()) return limits::kWorkersPerJobMax;
    return it->first <= rank ? it->last + 1 : it->first;
  }
};

struct HopOptions {
  std::int64_t max_ig = 4;
  std::optional<Backups> backup;
  std::optional<std::int64_t> staleness;
  std::int64_t skip = 0;
  std::optional<std::int64_t> skip_trigger;
  std::int64_t force = 0;

  // With staleness, neighbours get no further ahead than S + 1: a higher trigger would never be
  // reached.
  std::int64_t trigger() const {
    const std::int64_t reached = staleness ? std::min(max_ig, *staleness + 1) : max_ig;
    return skip_trigger.value_or(reached);
  }
};
constexpr Parameter<HopOptions> kHopParameters[] = {
    {"max_ig", &HopOptions::max_ig, 1},
    // name() has the backups here
    {"staleness", &HopOptions::staleness},
    {"skip", &HopOptions::skip},
    {"skip_trigger", &HopOptions::skip_trigger, 1},
    {"force", &HopOptions::force, 0, 1},
};

class Hop final : public DecentralizedPolicy {
 public:
  Hop(topology::GraphSpec graph, const HopOptions& options)
      : DecentralizedPolicy(PeerGraph(std::move(graph), options.force == 1),
                            {.gap_bound = options.max_ig,
                             .jumps = options.skip > 0,
                             .peer_loop = {.staleness = options.staleness.value_or(0)}}),
        options_(options) {}

  std::string name() const override {
    const std::span parameters(kHopParameters);
    return "hop:" + graph_.spec().text() + parameters_text(parameters.first(1), options_) +
           (options_.backup ? backup_text(*options_.backup) : "") +
           parameters_text(parameters.subspan(1), options_);
  }

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Waiting& waiting = *host.worker(rank).waiting;
    const Iteration k = waiting.iteration;
    Reason reason;
    if (waiting.call == Call::kBegin) {
      reason.text = fmt::format(
          "iteration {} needs a token of every out-neighbour: none may be more "
          "than {} behind",
          k, options_.max_ig);
      for (const PeerEdge& edge : graph_.out(rank)) {
        if (k - host.worker(edge.peer).clock > options_.max_ig) {
          reason.waiting_for.push_back(edge.peer);
        }
      }
      return reason;
    }
    std::size_t counted = 0;
    for (const PeerEdge& edge : graph_.in(rank)) {
      if (k < edge.live_from) continue;
      ++counted;
      if (!usable(host, edge, k)) reason.waiting_for.push_back(edge.peer);
    }
    reason.text = fmt::format(
        "updates of iteration {}{} are needed from {} of {} in-neighbours, {} have sent one",
        k - options_.staleness.value_or(0), options_.staleness ? " or later" : "",
        counted - spare(rank, counted), counted, counted - reason.waiting_for.size());
    return reason;
  }

 protected:
  std::string check_graph(const topology::GraphOutline& graph) const override {
    if (!options_.backup) return {};
    const std::size_t workers = graph.nodes;
    for (const Backups::Range& range : options_.backup->ranges) {
      if (range.last < workers) continue;
      return fmt::format("{} is for worker {}, allowed are 0 to {} in a job of {}", key_of(range),
                         range.last, workers - 1, workers);
    }
    // How many share a host is not known yet.
    const bool clustered = topology::is_by_host(graph_.spec().kind);
    for (std::size_t i = 0; i < graph.degrees.size(); ++i) {
      const std::size_t degree = clustered ? workers - 1 : graph.degrees[i].in;
      const std::size_t end = i + 1 < graph.degrees.size() ? graph.degrees[i + 1].first : workers;
      for (Rank rank = graph.degrees[i].first; rank < end;
           rank = options_.backup->next_change(rank)) {
        const std::int64_t backup = options_.backup->of(rank);
        if (degree == 0 || backup < static_cast<std::int64_t>(degree)) continue;
        return fmt::format(
            "backup is {} for worker {}, which has {}{} in-neighbour{}, as it must wait for one",
            backup, rank, clustered ? "at most " : "", degree,
            degree == 1 ? ": allowed is 0" : fmt::format("s: allowed are 0 to {}", degree - 1));
      }
    }
    return {};
  }

  void try_begin(PolicyHost& host, Rank rank) override {
    const Clock clock = host.worker(rank).clock;
    if (try_jump(host, rank, clock)) return;
    for (const PeerEdge& edge : graph_.out(rank)) {
      if (clock + 1 - host.worker(edge.peer).clock > options_.max_ig) return;
    }
    grant(host, rank, clock + 1);
  }

  void try_targets(PolicyHost& host, Rank rank) override {
    const Iteration k = host.worker(rank).waiting->iteration;
    std::vector<Rank> targets;
    targets.reserve(graph_.out(rank).size());
    for (const PeerEdge& edge : graph_.out(rank)) {
      if (k >= edge.live_from && wants(host.worker(edge.peer).clock, k)) {
        targets.push_back(edge.peer);
      }
    }
    host.answer_targets(rank, std::move(targets));
  }

  void try_collect(PolicyHost& host, Rank rank) override {
    const Iteration k = host.worker(rank).waiting->iteration;
    auto updates = gather(host, rank, k);
    if (!updates && k == host.worker(rank).clock) return;
    // The set of a jump was there once. Where it is not to be had again, after a restart, the
    // worker goes on with what it has.
    if (!updates) updates = {{rank, host.worker(rank).pushed, 1.0}};
    mark_consumed(rank, *updates);
    host.answer_collect(rank, std::move(*updates));
  }

 private:
  static std::string key_of(const Backups::Range& range) {
    return fmt::format("backup.{}", range.first) +
           (range.last > range.first ? fmt::format("-{}", range.last) : "");
  }
  static std::string backup_text(const Backups& backup) {
    std::string text;
    for (const Backups::Range& range : backup.ranges) {
      text += fmt::format(",{}={}", key_of(range), range.count);
    }
    return backup.count > 0 || text.empty() ? fmt::format(",backup={}", backup.count) + text : text;
  }

  // How many of the in-neighbours that count collect() may do without: never all of them, also when
  // losses have left few.
  std::size_t spare(Rank rank, std::size_t counted) const {
    if (!options_.backup || counted == 0) return 0;
    return std::min(static_cast<std::size_t>(options_.backup->of(rank)), counted - 1);
  }

  // Whether a neighbour that is in iteration `clock` still has a use for an update of iteration k.
  bool wants(Clock clock, Iteration k) const {
    if (options_.staleness) return clock <= k + *options_.staleness;
    return !options_.backup || clock <= k;
  }

  // The newest update over this edge; one that was not sent yet counts as the one before its first.
  static Iteration newest(const PolicyHost& host, const PeerEdge& edge) {
    return std::max(host.worker(edge.peer).pushed, edge.live_from - 1);
  }

  // Whether collect(k) need not wait for this in-neighbour.
  bool usable(const PolicyHost& host, const PeerEdge& edge, Iteration k) const {
    if (options_.staleness) return newest(host, edge) >= k - *options_.staleness;
    // It has pushed all iterations up to its latest but those that it jumped over, which nobody
    // that it sends to still collects: a jump never goes past any of them.
    return host.worker(edge.peer).pushed >= k;
  }

  // What collect(k) would give now, or nothing if it would have to wait.
  std::optional<std::vector<PeerUpdate>> gather(const PolicyHost& host, Rank rank,
                                                Iteration k) const {
    std::vector<PeerUpdate> updates;
    updates.reserve(1 + graph_.in(rank).size());
    updates.push_back({rank, host.worker(rank).pushed, 0});
    std::size_t counted = 0, missing = 0;
    for (const PeerEdge& edge : graph_.in(rank)) {
      if (k < edge.live_from) continue;
      ++counted;
      if (!usable(host, edge, k)) {
        ++missing;
      } else if (!options_.staleness) {
        updates.push_back({edge.peer, k, edge.weight});
      } else if (const Iteration latest = host.worker(edge.peer).pushed;
                 latest >= edge.live_from && latest > edge.consumed) {
        updates.push_back({edge.peer, latest, 0});
      }
    }
    if (missing > spare(rank, counted)) return std::nullopt;
    if (options_.staleness) {
      weigh_by_age(updates, k - *options_.staleness);
    } else {
      graph_.weigh(updates);
    }
    return updates;
  }

  // Equation 2 of the paper: an update weighs the more the newer it is.
  static void weigh_by_age(std::vector<PeerUpdate>& updates, Iteration oldest) {
    double sum = 0;
    for (PeerUpdate& update : updates) {
      update.weight = static_cast<double>(std::max<std::int64_t>(0, update.iteration - oldest + 1));
      sum += update.weight;
    }
    // Before a jump the own update may be older than any that is used.
    if (sum == 0) updates[0].weight = sum = 1;
    for (PeerUpdate& update : updates) update.weight /= sum;
  }

  void mark_consumed(Rank rank, const std::vector<PeerUpdate>& updates) {
    if (!options_.staleness) return;
    auto update = updates.begin() + 1;  // both in rank order; the first is the own
    for (PeerEdge& edge : graph_.in(rank)) {
      if (update == updates.end()) return;
      if (update->rank == edge.peer) edge.consumed = (update++)->iteration;
    }
  }

  bool try_jump(PolicyHost& host, Rank rank, Clock clock) {
    if (options_.skip == 0 || graph_.out(rank).empty()) return false;
    std::int64_t ahead = INT64_MAX;
    for (const PeerEdge& edge : graph_.out(rank)) {
      ahead = std::min(ahead, host.worker(edge.peer).clock - clock);
    }
    if (ahead < options_.trigger()) return false;
    const Iteration to = clock + std::min(options_.skip, ahead);
    if (to <= clock + 1) return false;
    auto updates = gather(host, rank, to - 1);
    if (!updates) return false;
    mark_consumed(rank, *updates);
    host.preset_collect(rank, to - 1, std::move(*updates));
    grant(host, rank, to);
    return true;
  }

  HopOptions options_;
};

// "backup.3" or "backup.3-7".
constexpr std::string_view kBackupOf = "backup.";

bool add_range(const PolicyText& text, const std::string& key, std::int64_t count, Backups& backup,
               std::string& error) {
  const std::string_view ranks = std::string_view(key).substr(kBackupOf.size());
  const std::size_t dash = ranks.find('-');
  constexpr std::int64_t kRankMax = limits::kWorkersPerJobMax - 1;
  const auto rank = [&](std::string_view value, std::int64_t lowest) {
    return parse_policy_integer(text, "the worker of " + key, value, lowest, kRankMax, error);
  };
  const auto first = rank(ranks.substr(0, dash), 0);
  if (!first) return false;
  const auto last = dash == std::string_view::npos ? first : rank(ranks.substr(dash + 1), *first);
  if (!last) return false;
  const Backups::Range range{static_cast<Rank>(*first), static_cast<Rank>(*last), count};
  for (const Backups::Range& other : backup.ranges) {
    if (range.last < other.first || other.last < range.first) continue;
    error = policy_error(text, fmt::format("{}: worker {} has a number already", key,
                                           std::max(range.first, other.first)));
    return false;
  }
  backup.ranges.push_back(range);
  return true;
}

// The same numbers, said in the shortest way.
void tidy(Backups& backup) {
  std::erase_if(backup.ranges, [&](const auto& range) { return range.count == backup.count; });
  std::sort(backup.ranges.begin(), backup.ranges.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Backups::Range> merged;
  for (const Backups::Range& range : backup.ranges) {
    if (!merged.empty() && merged.back().last + 1 == range.first &&
        merged.back().count == range.count) {
      merged.back().last = range.last;
    } else {
      merged.push_back(range);
    }
  }
  backup.ranges = std::move(merged);
}

}  // namespace

std::unique_ptr<Policy> make_hop(const PolicyText& text, std::string& error) {
  if (!text.begins_unnamed()) {
    error = policy_error(text, fmt::format("hop needs a graph: {}, such as "
                                           "hop:ring_based,max_ig=5,backup=1; graphs are {}",
                                           kForm, topology::known_graphs()));
    return nullptr;
  }
  topology::GraphSpec spec;
  if (!parse_peer_graph(text, spec, error)) return nullptr;
  HopOptions options;
  for (std::size_t i = 1; i < text.arguments.size(); ++i) {
    const PolicyArgument& argument = text.arguments[i];
    if (argument.key != "backup" && !argument.key.starts_with(kBackupOf)) {
      if (!parse_parameter(text, argument, kHopParameters, std::string("hop takes ") + kForm,
                           options, error)) {
        return nullptr;
      }
      continue;
    }
    const auto number =
        parse_policy_integer(text, argument.key, argument.value, 0, kParameterMax, error);
    if (!number) return nullptr;
    if (!options.backup) options.backup.emplace();
    if (argument.key == "backup") {
      options.backup->count = *number;
    } else if (!add_range(text, argument.key, *number, *options.backup, error)) {
      return nullptr;
    }
  }
  if (options.backup) tidy(*options.backup);
  if (options.skip > 0 && !options.backup && !options.staleness) {
    error = policy_error(text,
                         "skip needs backup or staleness: without them every neighbour waits for "
                         "the updates that a jump leaves out");
    return nullptr;
  }
  if (options.skip_trigger && options.skip == 0) {
    error = policy_error(text, "skip_trigger says nothing without skip");
    return nullptr;
  }
  return std::make_unique<Hop>(std::move(spec), options);
}

}  // namespace syncd
