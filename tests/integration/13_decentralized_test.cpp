// Workers of decentralized jobs against a live daemon: loops over graphs, who waits for whom, the
// order of calls, and a daemon that is killed in between.
#include <gmock/gmock.h>

#include <map>
#include <set>
#include <thread>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"

namespace syncd::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Decentralized : public ::testing::Test {
 protected:
  std::vector<ApiWorker> join(const std::string& policy, int workers) {
    std::vector<ApiWorker> joined;
    for (int rank = 0; rank < workers; ++rank) {
      joined.push_back(client_.join(
          {.policy = policy, .rank = rank, .world_size = static_cast<std::uint32_t>(workers)}));
    }
    return joined;
  }

  TempDir directory_;
  Daemon daemon_{directory_};
  ApiClient client_{daemon_.address()};
};

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

std::vector<Seen> loop_all(std::vector<ApiWorker>& workers, int iterations) {
  std::vector<Seen> seen(workers.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] { loop(workers[i], iterations, seen[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
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

TEST_F(Decentralized, HopOnARing) {
  auto workers = join("hop:ring", 4);
  const auto seen = loop_all(workers, 50);
  expect_exact(seen, 50, {{0, 1, 3}, {0, 1, 2}, {1, 2, 3}, {0, 2, 3}},
               {{1, 3}, {0, 2}, {1, 3}, {0, 2}});
  for (ApiWorker& worker : workers) EXPECT_TRUE(worker.leave().ok());
  const History history = export_history(directory_, daemon_, "job");
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(history.pushes(rank).size(), 50U);
}

TEST_F(Decentralized, NotifyAckOnADirectedRing) {
  auto workers = join("notify_ack:ring_directed", 4);
  const auto seen = loop_all(workers, 50);
  expect_exact(seen, 50, {{0, 3}, {0, 1}, {1, 2}, {2, 3}}, {{1}, {2}, {3}, {0}});
}

TEST_F(Decentralized, KillsOfTheDaemonLoseAndRepeatNothing) {
  for (const std::string policy : {"hop:ring", "notify_ack:ring"}) {
    std::vector<ApiWorker> workers;
    for (std::int32_t rank = 0; rank < 3; ++rank) {
      workers.push_back(client_.join(
          {.job = policy.substr(0, 3), .policy = policy, .rank = rank, .world_size = 3}));
    }
    std::vector<Seen> seen(3);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      threads.emplace_back([&, i] { loop(workers[i], 300, seen[i]); });
    }
    for (int i = 0; i < 5; ++i) {
      daemon_.kill();
      daemon_.start();
      // Some of them are in the middle of something, whatever it is.
      EXPECT_EQ(syncctl(directory_, daemon_, {"jobs"}).ending, exited(0));
    }
    for (std::thread& thread : threads) thread.join();
    expect_exact(seen, 300, {{0, 1, 2}, {0, 1, 2}, {0, 1, 2}}, {{1, 2}, {0, 2}, {0, 1}});
    const History history = export_history(directory_, daemon_, policy.substr(0, 3));
    for (int rank = 0; rank < 3; ++rank) {
      const auto pushes = history.pushes(rank);
      ASSERT_EQ(pushes.size(), 300U);
      for (std::int64_t k = 0; k < 300; ++k) EXPECT_EQ(pushes[static_cast<std::size_t>(k)], k);
    }
  }
}

TEST_F(Decentralized, ACollectThatWaitsSaysForWhom) {
  auto workers = join("hop:ring", 3);
  syncd_step step = SYNCD_STEP_INIT;
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(workers[static_cast<std::size_t>(rank)].begin(step, 0).status, SYNCD_E_TIMEOUT);
  }
  for (int rank : {2, 0, 1}) ASSERT_TRUE(workers[static_cast<std::size_t>(rank)].begin(step).ok());
  std::vector<std::int32_t> ranks;
  std::vector<syncd_update> updates;
  ASSERT_TRUE(workers[0].targets(0, ranks).ok());
  EXPECT_THAT(ranks, ElementsAre(1, 2));
  EXPECT_EQ(workers[0].collect(0, updates).status, SYNCD_E_STATE) << "the push comes first";
  ASSERT_TRUE(workers[0].push(0).ok());
  ASSERT_TRUE(workers[1].push(0).ok());
  const Answer answer = workers[0].collect(0, updates, 50);
  EXPECT_EQ(answer.status, SYNCD_E_TIMEOUT);
  EXPECT_TRUE(answer.retriable);
  EXPECT_THAT(answer.message, HasSubstr("collect(0) of worker 0 not answered after"));
  EXPECT_THAT(answer.message, HasSubstr("waiting for worker 2"));
  EXPECT_EQ(workers[0].begin(step).status, SYNCD_E_STATE) << "collect comes first";
  ASSERT_TRUE(workers[2].push(0).ok());
  ASSERT_TRUE(workers[0].collect(0, updates).ok());
  EXPECT_EQ(updates.size(), 3U);
  EXPECT_EQ(workers[0].consumed(1).status, SYNCD_E_WRONG_ITERATION);
  EXPECT_TRUE(workers[0].consumed(0).ok());
  EXPECT_EQ(workers[0].targets(7, ranks).status, SYNCD_E_WRONG_ITERATION);
}

TEST_F(Decentralized, AStoppedJobEndsACollectAndTheNextBeginSaysStop) {
  auto workers = join("hop:ring", 2);
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(workers[0].begin(step, 0).status, SYNCD_E_TIMEOUT);
  ASSERT_TRUE(workers[1].begin(step).ok());
  ASSERT_TRUE(workers[0].begin(step).ok());
  ASSERT_TRUE(workers[0].push(0).ok());
  std::vector<syncd_update> updates;
  EXPECT_EQ(workers[0].collect(0, updates, 0).status, SYNCD_E_TIMEOUT);
  ASSERT_EQ(syncctl(directory_, daemon_, {"job", "stop", "job"}).ending, exited(0));
  EXPECT_EQ(workers[0].collect(0, updates).status, SYNCD_E_STOPPED);
  ASSERT_TRUE(workers[0].begin(step).ok());
  EXPECT_TRUE((step.flags & SYNCD_STEP_STOP) != 0);
}

TEST_F(Decentralized, AParameterServerPolicyHasNoSuchCalls) {
  ApiWorker worker = client_.join({.policy = "ssp:3", .rank = 0});
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_TRUE(worker.begin(step).ok());
  std::vector<std::int32_t> ranks;
  const Answer answer = worker.targets(0, ranks);
  EXPECT_EQ(answer.status, SYNCD_E_UNSUPPORTED);
  EXPECT_THAT(answer.message, HasSubstr("policy 'ssp:3' has a parameter server"));
  std::vector<syncd_update> updates;
  EXPECT_EQ(worker.collect(0, updates).status, SYNCD_E_UNSUPPORTED);
  EXPECT_TRUE(worker.restarted(0).ok()) << "no advice, no effect";
  EXPECT_TRUE(worker.push(0).ok());
}

}  // namespace
}  // namespace syncd::test
