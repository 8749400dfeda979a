// Workers of decentralized jobs against a daemon that is killed in between.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"

namespace syncd::test {
namespace {

// What one worker saw in each iteration.
struct Seen {
  std::map<std::int64_t, std::vector<std::int32_t>> targets;
  std::map<std::int64_t, std::vector<syncd_update>> updates;
  std::string failure;
};

// One iteration in the order in which both papers' policies serve it.
Answer exchange(ApiWorker& worker, std::int64_t k, Seen& seen) {
  Answer answer = worker.targets(k, seen.targets[k]);
  if (answer.ok()) answer = worker.push(k);
  if (answer.ok()) answer = worker.collect(k, seen.updates[k]);
  if (answer.ok()) answer = worker.consumed(k, k % 2 == 0 ? 0 : 30'000);
  return answer;
}

void loop(ApiWorker& worker, int iterations, Seen& seen) {
  for (;;) {
    syncd_step step = SYNCD_STEP_INIT;
    Answer answer = worker.begin(step);
    if (answer.ok() && step.iteration >= iterations) return;
    if (answer.ok()) answer = exchange(worker, step.iteration, seen);
    if (!answer.ok()) {
      seen.failure = answer.text();
      return;
    }
  }
}

// Every iteration's set is one whole update of that iteration from each in-neighbour and itself.
void expect_exact(const std::vector<Seen>& seen, int iterations,
                  const std::vector<std::set<std::int32_t>>& in,
                  const std::vector<std::vector<std::int32_t>>& out) {
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    EXPECT_EQ(seen[rank].failure, "") << "worker " << rank;
    ASSERT_EQ(seen[rank].updates.size(), static_cast<std::size_t>(iterations));
    for (const auto& [k, updates] : seen[rank].updates) {
      std::set<std::int32_t> senders;
      double weights = 0;
      for (const syncd_update& update : updates) {
        EXPECT_EQ(update.iteration, k);
        EXPECT_EQ(update.reserved, 0U);
        senders.insert(update.rank);
        weights += update.weight;
      }
      EXPECT_EQ(senders, in[rank]) << "worker " << rank << ", iteration " << k;
      EXPECT_NEAR(weights, 1, 1e-9);
      EXPECT_EQ(seen[rank].targets.at(k), out[rank]);
    }
  }
}

struct Graph {
  std::string policy;
  std::vector<std::set<std::int32_t>> in;  // with the worker itself
  std::vector<std::vector<std::int32_t>> out;
};

class Decentralized : public ::testing::TestWithParam<Graph> {};

TEST_P(Decentralized, KillsOfTheDaemonLoseAndRepeatNothing) {
  TempDir directory;
  Daemon daemon(directory);
  ApiClient client(daemon.address());
  std::vector<ApiWorker> workers;
  for (std::int32_t rank = 0; rank < 3; ++rank) {
    workers.push_back(client.join({.policy = GetParam().policy, .rank = rank, .world_size = 3}));
  }
  std::vector<Seen> seen(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] { loop(workers[i], 300, seen[i]); });
  }
  for (int i = 0; i < 5; ++i) {
    daemon.kill();
    daemon.start();
    // Some of them are in the middle of something, whatever it is.
    EXPECT_EQ(syncctl(directory, daemon, {"jobs"}).ending, exited(0));
  }
  for (std::thread& thread : threads) thread.join();
  expect_exact(seen, 300, GetParam().in, GetParam().out);
  for (ApiWorker& worker : workers) EXPECT_TRUE(worker.leave().ok());
  const History history = export_history(directory, daemon, "job");
  std::vector<std::int64_t> all(300);
  std::iota(all.begin(), all.end(), 0);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(history.pushes(rank), all) << rank;
}

INSTANTIATE_TEST_SUITE_P(
    Policies, Decentralized,
    ::testing::Values(
        Graph{"hop:ring", {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, {{1, 2}, {0, 2}, {0, 1}}},
        Graph{"notify_ack:ring_directed", {{0, 2}, {0, 1}, {1, 2}}, {{1}, {2}, {0}}}),
    [](const auto& made) { return made.param.policy.substr(0, 3); });

}  // namespace
}  // namespace syncd::test
