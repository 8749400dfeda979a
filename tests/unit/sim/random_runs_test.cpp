// Random runs of every policy on 4 to 64 workers, with slowdowns, losses, leaves, joins, returns
// and switches: what the policies promise must hold at every event, and nothing may come to a
// stand. Decentralized ones on every graph, in both orders of sending and computing.
// SYNCD_PROPERTY_RUNS=N runs N times as many; 20 are 20,000 of each family.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "daemon/core/topology/graph_spec.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"
#include "tests/unit/sim/peer_checker.h"

namespace syncd::sim {
namespace {

using test::Random;

const std::vector<std::string> kParameterServer = {
    "asp",
    "bsp",
    "bsp:3",
    "bsp,backup=1",
    "bsp:2,backup=2",
    "ssp:0",
    "ssp:3",
    "naive_wait:40+ssp:2",
    "dssp:1-4",
    "dssp:0-8",
    "dssp:3-3",
    "naive_wait:20+dssp:1-5",
    "naive_wait:30+elastic_bsp:5",
    "specsync:fixed,60,0.2+asp",
    "specsync:fixed,40,0.1,max_restarts=3+ssp:2",
    "specsync:adaptive+dssp:1-4",
    "specsync:adaptive,scope=worker,auto_off=off+asp",
    "specsync:adaptive,scope=forecast+asp",
    "specsync:adaptive,scope=forecast,budget=20,max_restarts=2,auto_off=off+ssp:3",
    "elastic_bsp:1",
    "elastic_bsp:5",
    "elastic_bsp:15,zipline_linked,median",
    "elastic_bsp:10,ewma,objective=rate,beta=4",
    "elastic_bsp:8,predictor=auto",
};
const char* const kTimes[] = {"constant:100", "uniform:50-200", "uniform_each:50-200",
                              "lognormal:100,0.8"};
const char* const kSlowdowns[] = {"none", "random:6x@1/n", "random:20x@0.02", "fixed:1=4x"};

// What becomes of a job's members, and when.
struct Trouble {
  std::uint32_t fewest = 2;     // workers that stay at any time
  std::uint32_t newcomers = 4;  // ranks that the job did not start with
  bool switches = false;        // of the policy, too
};

void add_events(Options& options, Random& random, const Trouble& trouble) {
  std::vector<Rank> there;
  for (Rank rank = 0; rank < options.workers; ++rank) there.push_back(rank);
  std::vector<Rank> away;
  Rank next_rank = options.workers;
  const auto at_most = std::max<Micros>(2, options.duration_us / random.between(3, 15));
  // After the job has started, which takes each worker three messages.
  Micros at = 4 * options.delay_us + random.between(1, at_most);
  while (at < options.duration_us) {
    if (random.one_in(3) && there.size() > trouble.fewest) {
      const std::size_t which = random.below(there.size());
      const auto kind = random.one_in(2) ? TimedEvent::Kind::kFail : TimedEvent::Kind::kLeave;
      options.events.push_back({at, kind, there[which], {}});
      away.push_back(there[which]);
      there.erase(there.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (random.one_in(2) && !away.empty()) {
      // At times at once: before it was missed.
      const std::size_t which = random.below(away.size());
      options.events.push_back({at, TimedEvent::Kind::kJoin, away[which], {}});
      there.push_back(away[which]);
      away.erase(away.begin() + static_cast<std::ptrdiff_t>(which));
    } else if (random.one_in(3) && next_rank < options.workers + trouble.newcomers) {
      there.push_back(next_rank);
      options.events.push_back({at, TimedEvent::Kind::kJoin, next_rank++, {}});
    } else if (trouble.switches && random.one_in(2)) {
      options.events.push_back({at, TimedEvent::Kind::kSwitch, 0,
                                kParameterServer[random.below(kParameterServer.size())]});
    }
    at += random.one_in(4) ? 0 : random.between(1, at_most);
  }
}

// 4 to 64 workers, more often few: a run costs as much as it has workers and edges.
std::uint32_t random_size(Random& random) {
  switch (random.below(6)) {
    case 0:
      return static_cast<std::uint32_t>(random.between(33, 64));
    case 1:
    case 2:
      return static_cast<std::uint32_t>(random.between(13, 32));
    default:
      return static_cast<std::uint32_t>(random.between(4, 12));
  }
}

// A job of `workers`, of which each computes about so many iterations.
Options random_options(Random& random, std::uint32_t workers, std::int64_t iterations) {
  Options options;
  std::string error;
  options.seed = random.next();
  options.workers = workers;
  options.iteration_time = *parse_iteration_time(kTimes[random.below(4)], error);
  options.slowdown = *parse_slowdown(kSlowdowns[random.below(4)], error);
  options.delay_us = random.one_in(2) ? 0 : random.between(1, 50'000);
  options.duration_us = iterations * 100'000;
  options.worker_grace_us = random.between(0, options.duration_us / 20);
  options.transfer_us = random.one_in(3) ? random.between(1, 30'000) : 0;
  return options;
}

std::string describe(const Options& options) {
  std::string text = options.policy + ", " + std::to_string(options.workers) + " workers, delay " +
                     std::to_string(options.delay_us) + " us, transfer " +
                     std::to_string(options.transfer_us) + " us, seed " +
                     std::to_string(options.seed);
  for (const TimedEvent& event : options.events) {
    const char* names[] = {"fail", "leave", "join", "switch"};
    text += "\n  " + std::to_string(event.at) +
            " us: " + names[static_cast<std::size_t>(event.kind)] + " " +
            (event.policy.empty() ? std::to_string(event.rank) : event.policy);
  }
  return text;
}

// ---- parameter servers

constexpr std::uint64_t kParts = 4;  // to run side by side

class ServerRuns : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ServerRuns, KeepTheirPromises) {
  const std::uint64_t runs = 1000 * test::property_runs();
  test::CheckerTotals totals;
  for (std::uint64_t run = GetParam(); run < runs && !HasFailure(); run += kParts) {
    Random random(run);
    const std::uint32_t workers = random_size(random);
    Options options = random_options(random, workers, 40 + 800 / workers);
    options.policy = kParameterServer[random.below(kParameterServer.size())];
    options.plan_delay_us = random.one_in(2) ? 0 : random.between(1, 500'000);
    if (!random.one_in(8)) add_events(options, random, {3, 6, true});
    SCOPED_TRACE(describe(options) + "\nrun " + std::to_string(run));
    test::run_checked(options, &totals);
  }
  if (HasFailure()) return;
  // They come across what they are there for.
  EXPECT_GT(totals.grants, 100 * runs / kParts);
  EXPECT_GT(totals.known_staleness, totals.grants / 2);
  EXPECT_GT(totals.at_bound, totals.grants / 20);
  EXPECT_GT(totals.exits, runs / kParts);
  EXPECT_GT(totals.switches, runs / kParts);
  EXPECT_GT(totals.without_backups, runs / kParts);
  EXPECT_GT(totals.advices, runs / kParts);
}

INSTANTIATE_TEST_SUITE_P(Parts, ServerRuns, testing::Range<std::uint64_t>(0, kParts));

// ---- decentralized policies

using test::PeerRules;
using test::PeerTotals;

enum class Setting { kStandard, kBackup, kStaleness, kHybrid, kNotifyAck };

constexpr const char* kGraphs[] = {
    "complete", "ring",   "ring_directed", "ring_based",      "double_ring", "root_expander",
    "star",     "halton", "clustered",     "clustered_links", "file:random"};

// As if read from a file: a ring through all nodes in some order, and edges across it.
std::shared_ptr<const topology::Graph> random_graph(Random& random, std::uint32_t nodes) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < nodes; ++i) order.push_back(i);
  random.shuffle(order);
  const bool undirected = random.one_in(2);
  std::vector<topology::Edge> edges;
  const auto add = [&](std::uint32_t from, std::uint32_t to) {
    edges.push_back({from, to});
    if (undirected) edges.push_back({to, from});
  };
  for (std::uint32_t i = 0; i < nodes; ++i) add(order[i], order[(i + 1) % nodes]);
  for (std::uint64_t i = random.below(2 * nodes); i > 0; --i) {
    add(order[random.below(nodes)], order[random.below(nodes)]);
  }
  return std::make_shared<const topology::Graph>(nodes, edges);
}

// The graph with about so many workers; `workers` becomes a number that it takes.
topology::Graph make_graph(const std::string& text, std::uint32_t& workers) {
  std::string error;
  const auto spec = *topology::parse_graph_spec(text, error);
  for (;; ++workers) {
    const std::vector<std::string> hosts(workers);
    auto graph = topology::generate(spec, workers, hosts, error);
    if (graph && topology::is_strongly_connected(*graph)) return std::move(*graph);
  }
}

PeerRules random_rules(Random& random, const topology::Graph& graph, Setting setting) {
  PeerRules rules;
  rules.notify_ack = setting == Setting::kNotifyAck;
  if (rules.notify_ack) return rules;
  rules.max_ig = random.between(1, 6);
  if (setting == Setting::kBackup || setting == Setting::kHybrid) {
    // Each must have somebody to wait for.
    const std::size_t fewest = topology::degree_range(graph).in_min;
    rules.backup = fewest == 0 ? 0 : random.below(std::min<std::size_t>(fewest, 4));
    for (Rank rank = 0; rank < graph.size(); ++rank) {
      const std::size_t degree = graph.in(rank).size();
      if (degree < 2 || !random.one_in(fewest < 2 ? 2 : 8)) continue;
      rules.backup_of[rank] = static_cast<std::int64_t>(1 + random.below(degree - 1));
    }
  }
  if (setting == Setting::kStaleness || setting == Setting::kHybrid) {
    rules.staleness = random.between(0, 5);
  }
  if (setting != Setting::kStandard && random.one_in(2)) {
    rules.skip = random.between(1, 10);
    if (random.one_in(2)) rules.skip_trigger = random.between(1, rules.max_ig + 2);
  }
  return rules;
}

class PeerRuns : public testing::TestWithParam<Setting> {
 protected:
  PeerTotals run_all(bool changes, std::uint64_t runs) {
    PeerTotals totals;
    runs *= test::property_runs();
    for (std::uint64_t run = 0; run < runs && !HasFailure(); ++run) run_one(run, changes, totals);
    return totals;
  }

 private:
  void run_one(std::uint64_t run, bool changes, PeerTotals& totals) {
    Random random(run * 16 + static_cast<std::uint64_t>(GetParam()) * 2 + (changes ? 1 : 0));
    const std::string name = kGraphs[run % std::size(kGraphs)];
    const bool from_file = name == "file:random";
    std::uint32_t workers = random_size(random);
    const auto graph = from_file
                           ? random_graph(random, workers)
                           : std::make_shared<const topology::Graph>(make_graph(name, workers));
    PeerRules rules = random_rules(random, *graph, GetParam());
    rules.graph = name;
    if (from_file) {
      rules.file = std::make_shared<const topology::GraphFile>(topology::GraphFile{graph, {}});
    }
    Options options = random_options(random, workers, 20 + 400 / workers);
    options.policy = rules.text();
    options.serial = random.one_in(2);
    if (random.one_in(2)) {
      std::string error;
      options.host_sizes = *parse_hosts(std::to_string(1 + random.below(workers)), workers, error);
    }
    Trouble trouble;
    trouble.fewest = static_cast<std::uint32_t>(random.between(1, 4));
    // One newcomer whom a file does not know, and nobody has neighbours any more.
    if (from_file) trouble.newcomers = random.one_in(8) ? 1 : 0;
    if (changes) add_events(options, random, trouble);
    SCOPED_TRACE(describe(options) + "\nrun " + std::to_string(run));
    const Result result = test::run_peers_checked(options, rules, totals);
    if (!changes) {
      EXPECT_EQ(result.overwritten_updates, 0U);
    }
  }
};

std::string setting_name(const testing::TestParamInfo<Setting>& tested) {
  const char* names[] = {"standard", "backup", "staleness", "hybrid", "notify_ack"};
  return names[static_cast<std::size_t>(tested.param)];
}

// The runs are worth what they come across.
void expect_variety(const PeerTotals& totals, Setting setting) {
  const bool backup = setting == Setting::kBackup || setting == Setting::kHybrid;
  const bool staleness = setting == Setting::kStaleness || setting == Setting::kHybrid;
  EXPECT_GT(totals.updates, 50 * totals.runs);
  EXPECT_GT(totals.overwritten, 50 * totals.runs);
  EXPECT_GT(totals.reached, 20 * totals.runs);
  EXPECT_EQ(totals.missing > 2 * totals.runs, backup);
  EXPECT_EQ(totals.stale > 2 * totals.runs, staleness);
  EXPECT_EQ(totals.left_out > 2 * totals.runs, backup);
  EXPECT_EQ(totals.jumps > totals.runs / 10, backup || staleness);
  EXPECT_EQ(totals.token_checks == 0, setting == Setting::kNotifyAck);
}

TEST_P(PeerRuns, KeepTheirPromisesOnAFixedGraph) {
  const PeerTotals totals = run_all(false, 80);
  if (HasFailure()) return;
  expect_variety(totals, GetParam());
  EXPECT_GT(totals.bounds_hold, 100 * totals.runs);
  EXPECT_EQ(totals.bounds_hold, totals.bounds);
}

TEST_P(PeerRuns, KeepTheirPromisesWhateverBecomesOfTheirMembers) {
  const PeerTotals totals = run_all(true, 120);
  if (HasFailure()) return;
  expect_variety(totals, GetParam());
  EXPECT_GT(totals.changes, 8 * totals.runs);
  EXPECT_GT(totals.answers_to_changes, totals.runs);
  // What new edges leave open is soon over.
  EXPECT_GT(totals.changed_bounds_hold, totals.changed_bounds / 10 * 9);
}

INSTANTIATE_TEST_SUITE_P(Settings, PeerRuns,
                         testing::Values(Setting::kStandard, Setting::kBackup, Setting::kStaleness,
                                         Setting::kHybrid, Setting::kNotifyAck),
                         setting_name);

}  // namespace
}  // namespace syncd::sim
