// Eight clients push without a pause while the daemon is killed again and again, or while the
// network between them does whatever a network may do: every push that was acknowledged is in the
// history exactly once, each worker's in order, and no call returns another error than that its own
// timeout is over.
//
//   SYNCD_PROPERTY_SEED=<n>  runs the network tests with that one seed only
//   SYNCD_PROPERTY_RUNS=<n>  n times as many seeds
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "support/chaos_proxy.h"
#include "support/daemon.h"
#include "support/history.h"
#include "support/pushers.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"

namespace syncd::test {
namespace {

// Snapshots often, so that a kill may come in the middle of one and recovery begins from them; and
// no worker is given up because a busy machine keeps it away for long.
constexpr const char* kConfig = "[timeouts]\nworker_grace = \"5m\"\nexit_grace = \"5m\"\n";
const std::string kSnapshots = "limits.snapshot_every_records=500";

// Starts the daemon and kills it again as soon as it has logged so many lines: "starting" alone, or
// "recovered", or that it listens.
void kill_while_it_starts(Daemon& daemon, std::size_t lines) {
  daemon.launch();
  wait_until("line " + std::to_string(lines) + " of a start",
             [&] { return lines_of(daemon.log_of_this_life()).size() >= lines; });
  daemon.kill();
}

// Eight records are few enough to be written at once in mode fast.
class DaemonKilledFiftyTimes : public ::testing::TestWithParam<const char*> {};

TEST_P(DaemonKilledFiftyTimes, UnderEightClientsThatPushWithoutAPause) {
  const int kKills = 50 * static_cast<int>(property_runs());
  constexpr std::uint64_t kSeed = 1;
  Random random(kSeed);
  TempDir directory;
  Daemon daemon(directory, {.mode = GetParam(), .config = kConfig, .test_limits = {kSnapshots}});
  Pushers pushers({.address = daemon.address(), .policy = "ssp:8", .clients = 8, .seed = kSeed});
  for (int kill = 1; kill <= kKills; ++kill) {
    // A moment is a number of acknowledged pushes, so that each kill finds all at work.
    pushers.await(1 + random.below(160));
    daemon.kill();
    if (random.one_in(5)) kill_while_it_starts(daemon, 1 + random.below(4));
    daemon.start();
  }
  pushers.await(160);
  pushers.finish(1);
  RecordProperty("acknowledged", static_cast<int>(pushers.acknowledged()));
  expect_exactly_once(export_history(directory, daemon, "job"), pushers);
  EXPECT_EQ(daemon.stop(), exited(0));
  expect_exactly_once(export_store(directory, daemon, "job"), pushers);
}

INSTANTIATE_TEST_SUITE_P(Modes, DaemonKilledFiftyTimes, ::testing::Values("durable", "fast"),
                         [](const auto& made) { return std::string(made.param); });

std::vector<std::uint64_t> network_seeds() {
  if (const char* one = std::getenv("SYNCD_PROPERTY_SEED")) {
    return {std::strtoull(one, nullptr, 10)};
  }
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t seed = 1; seed <= 6 * property_runs(); ++seed) seeds.push_back(seed);
  return seeds;
}

class HostileNetwork : public ::testing::TestWithParam<std::uint64_t> {};

// Four clients with two workers each, so that one connection carries several frames at once. Even
// seeds: Unix sockets, and the daemon is killed as well. Odd ones: TCP.
TEST_P(HostileNetwork, LosesNothingAndCountsNothingTwice) {
  const std::uint64_t seed = GetParam();
  const bool tcp = seed % 2 != 0;
  TempDir directory;
  Daemon daemon(directory, {.tcp = tcp ? "127.0.0.1:0" : "off",
                            .config = std::string(kConfig) + "heartbeat_timeout = \"1s\"\n",
                            .test_limits = {kSnapshots, "timeouts.handshake_timeout=1s",
                                            "timeouts.write_timeout=1s"}});
  ChaosProxy network({.listen = tcp ? "127.0.0.1:0" : "unix:" + directory.file("network"),
                      .upstream = tcp ? daemon.tcp_address() : daemon.address(),
                      .seed = seed});
  Pushers pushers({.address = network.address(),
                   .policy = seed % 4 < 2 ? "asp" : "ssp:4",
                   .clients = 4,
                   .workers_each = 2,
                   .seed = seed});
  for (int kills = 0; !network.all_fates_struck();) {
    pushers.await(40);
    if (tcp || kills == 3) continue;
    ++kills;
    daemon.kill();
    daemon.start();
  }
  pushers.finish(1);
  RecordProperty("acknowledged", static_cast<int>(pushers.acknowledged()));
  RecordProperty("connections", static_cast<int>(network.connections()));
  EXPECT_GE(network.connections(), kFates);
  expect_exactly_once(export_history(directory, daemon, "job"), pushers);
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostileNetwork, ::testing::ValuesIn(network_seeds()),
                         [](const auto& made) { return "seed_" + std::to_string(made.param); });

}  // namespace
}  // namespace syncd::test
