// Hop and NOTIFY-ACK in random worlds: Table 1's bounds, queue capacities, whole updates, and no
// deadlock, on every graph. SYNCD_PROPERTY_RUNS=N runs N times as many.
#include <gtest/gtest.h>

#include <algorithm>
#include "peer_world.h"
#include "tests/support/property_runs.h"

namespace syncd::test {
namespace {

struct Graph {
  const char* name;
  std::vector<std::uint32_t> sizes;
};
const Graph kGraphs[] = {
    {"complete", {2, 4, 7, 16}},
    {"ring", {4, 5, 16, 64}},
    {"ring_directed", {4, 9, 16, 33}},
    {"ring_based", {4, 6, 16, 64}},
    {"double_ring", {8, 12, 16, 64}},
    {"root_expander", {4, 9, 25, 64}},
    {"star", {4, 8, 16}},
    {"halton", {4, 8, 16}},
    {"clustered", {4, 9, 16, 33}},
};

struct Totals {
  std::uint64_t reduces = 0, jumps = 0, missing = 0;
};

// One or two for all, where every worker has more in-neighbours than that, and for a few workers a
// number of their own.
void choose_backup(PeerWorldOptions& options, std::mt19937_64& random) {
  const topology::Graph graph = graph_of(options);
  const auto most = [&](std::uint32_t rank) {
    return static_cast<std::int64_t>(graph.in(rank).size()) - 1;
  };
  std::int64_t all = 1 + static_cast<std::int64_t>(random() % 2);
  for (std::uint32_t rank = 0; rank < options.workers; ++rank) all = std::min(all, most(rank));
  options.backup.assign(options.workers, all);
  options.policy += ",backup=" + std::to_string(all);
  const std::uint32_t step = 1 + options.workers / 4;
  for (std::uint32_t rank = static_cast<std::uint32_t>(random()) % step; rank < options.workers;
       rank += step) {
    options.backup[rank] =
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most(rank) + 1));
    options.policy +=
        ",backup." + std::to_string(rank) + "=" + std::to_string(options.backup[rank]);
  }
}

// Every setting on every graph; the seed chooses the rest.
Totals run_all(bool notify_ack, bool membership, std::uint64_t seeds) {
  Totals totals;
  std::uint64_t seed = 0;
  for (std::uint64_t round = 0; round < seeds * property_runs(); ++round) {
    for (const Graph& graph : kGraphs) {
      std::mt19937_64 random(++seed * 77 + (membership ? 1 : 0));
      PeerWorldOptions options;
      options.seed = seed;
      options.graph = graph.name;
      options.workers = graph.sizes[random() % graph.sizes.size()];
      options.membership = membership;
      options.notify_ack = notify_ack;
      options.serial = random() % 2 == 0;
      options.steps = 200 + static_cast<int>(random() % 600);
      if (notify_ack) {
        options.policy = std::string("notify_ack:") + graph.name;
      } else {
        options.max_ig = 1 + static_cast<std::int64_t>(random() % 5);
        options.policy = std::string("hop:") + graph.name;
        options.policy += ",max_ig=" + std::to_string(options.max_ig);
        const auto kind = random() % 4;
        if (kind == 1 || kind == 3) choose_backup(options, random);
        if (kind == 2 || kind == 3) options.staleness = static_cast<std::int64_t>(random() % 5);
        if (options.staleness) options.policy += ",staleness=" + std::to_string(*options.staleness);
        if (kind != 0 && random() % 2 == 0) {
          options.skip = 2 + static_cast<std::int64_t>(random() % 9);
          options.policy += ",skip=" + std::to_string(options.skip) + ",skip_trigger=2";
        }
      }
      options.policy += ",force=1";
      try {
        PeerWorld world(options);
        world.run();
        totals.reduces += world.reduces();
        totals.jumps += world.jumps();
        totals.missing += world.missing();
      } catch (const PeerViolation& violation) {
        ADD_FAILURE() << violation.what();
        return totals;
      }
    }
  }
  return totals;
}

TEST(PeerProperty, HopOnAFixedGraphKeepsItsBounds) {
  const Totals totals = run_all(false, false, 20);
  // The worlds must come across what they are there for.
  EXPECT_GT(totals.reduces, 1000U);
  EXPECT_GT(totals.jumps, 10U);
  EXPECT_GT(totals.missing, 10U);
}

TEST(PeerProperty, HopGoesOnWhateverBecomesOfItsMembers) {
  EXPECT_GT(run_all(false, true, 40).reduces, 1000U);
}

TEST(PeerProperty, NotifyAckOnAFixedGraphReducesWholeUpdates) {
  const Totals totals = run_all(true, false, 15);
  EXPECT_GT(totals.reduces, 1000U);
  EXPECT_EQ(totals.missing, 0U);
}

TEST(PeerProperty, NotifyAckGoesOnWhateverBecomesOfItsMembers) {
  EXPECT_GT(run_all(true, true, 25).reduces, 1000U);
}

}  // namespace
}  // namespace syncd::test
