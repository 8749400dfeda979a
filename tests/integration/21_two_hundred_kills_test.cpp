// The daemon is killed two hundred times under sixty-four workers that push without a pause, with
// every push on disk before it is acknowledged, and some of the workers are killed in between:
// every acknowledged push is in the history exactly once, in its worker's order, nothing else is,
// and every worker goes on to the end.
//
//   SYNCD_KILLS=<n>          so many kills instead
//   SYNCD_PROPERTY_SEED=<n>  other moments
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "support/daemon.h"
#include "support/history.h"
#include "support/pushers.h"
#include "support/workers.h"
#include "tests/support/random.h"

namespace syncd::test {
namespace {

constexpr int kPushers = 56;  // threads of this process, in 14 clients
constexpr int kMortals = 8;   // processes that are killed too

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<Milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Of a worker that was killed so often: a push may be on disk whose acknowledgement it did not live
// to write down, one a life.
void expect_exactly_once_but(const History& history, const WorkerGroup& mortals,
                             const std::map<int, int>& deaths) {
  expect_exactly_once(history, mortals);
  for (int rank = mortals.options().first_rank; rank < mortals.end_rank(); ++rank) {
    const auto died = deaths.find(rank);
    const std::size_t unseen = died == deaths.end() ? 0 : static_cast<std::size_t>(died->second);
    EXPECT_LE(history.pushes(rank).size(), mortals.acknowledged(rank).size() + unseen)
        << "worker " << rank;
  }
}

TEST(DaemonKilledTwoHundredTimes, UnderSixtyFourWorkersOfWhichSomeAreKilledToo) {
  const std::uint64_t kills = from_environment("SYNCD_KILLS", 200);
  const std::uint64_t seed = from_environment("SYNCD_PROPERTY_SEED", 1);
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  TempDir directory;
  // Snapshots often, so that a kill may come in the middle of one and recovery begins from them.
  Daemon daemon(directory, {.config = "[timeouts]\nworker_grace = \"10m\"\nexit_grace = \"10m\"\n",
                            .test_limits = {"limits.snapshot_every_records=2000"}});
  Pushers pushers({.address = daemon.address(),
                   .policy = "ssp:16",
                   .clients = kPushers / 4,
                   .workers_each = 4,
                   .world_size = kPushers + kMortals,
                   .seed = seed});
  WorkerGroup mortals(directory, {.address = daemon.address(),
                                  .policy = "ssp:16",
                                  .workers = kMortals,
                                  .first_rank = kPushers,
                                  .world_size = kPushers + kMortals,
                                  .iterations = 1'000'000'000,
                                  .iteration_ms = 0});
  std::map<int, int> deaths;
  std::int64_t restarts_ms = 0;
  std::int64_t longest_ms = 0;
  const std::int64_t began_ms = now_ms();
  for (std::uint64_t kill = 1; kill <= kills; ++kill) {
    // A moment is a number of acknowledged pushes, so that each kill finds all at work.
    pushers.await(1 + random.below(500));
    if (random.one_in(4)) {
      const int victim = kPushers + static_cast<int>(random.below(kMortals));
      mortals.restart(victim);
      ++deaths[victim];
    }
    const std::int64_t killed_ms = now_ms();
    daemon.kill();
    daemon.start();
    restarts_ms += now_ms() - killed_ms;
    longest_ms = std::max(longest_ms, now_ms() - killed_ms);
  }
  // All of them go on.
  std::vector<std::size_t> before;
  for (int rank = kPushers; rank < mortals.end_rank(); ++rank) {
    before.push_back(mortals.acknowledged(rank).size());
  }
  for (int rank = kPushers; rank < mortals.end_rank(); ++rank) {
    wait_until("worker " + std::to_string(rank) + " to go on", [&] {
      return mortals.acknowledged(rank).size() > before[static_cast<std::size_t>(rank - kPushers)];
    });
  }
  const std::int64_t took_ms = now_ms() - began_ms;
  // The pushers leave at the same iteration, or the others would keep the bound of ssp against
  // them.
  pushers.finish(1);
  const RunResult stopped = syncctl(directory, daemon, {"job", "stop", "job"});
  EXPECT_EQ(stopped.ending, exited(0)) << stopped.err;
  mortals.expect_all_finish();

  const auto check = [&](const History& history) {
    expect_exactly_once_but(history, mortals, deaths);
    for (int rank = 0; rank < kPushers; ++rank) {
      EXPECT_EQ(history.pushes(rank), pushers.pushes(rank)) << "of worker " << rank;
    }
    EXPECT_TRUE(history.of_kind("worker_lost").empty());
  };
  const History history = export_history(directory, daemon, "job");
  check(history);
  EXPECT_EQ(daemon.stop(), exited(0));
  check(export_store(directory, daemon, "job"));
  int died = 0;
  for (const auto& [rank, times] : deaths) died += times;
  std::printf(
      "%llu kills of the daemon and %d of workers, %zu pushes, %zu timeouts of callers, %.1f s; "
      "from kill to serving again %.0f ms in the mean, %lld ms at most\n",
      static_cast<unsigned long long>(kills), died, history.of_kind("push").size(),
      pushers.timeouts(), static_cast<double>(took_ms) / 1000,
      static_cast<double>(restarts_ms) / static_cast<double>(kills),
      static_cast<long long>(longest_ms));
}

}  // namespace
}  // namespace syncd::test
