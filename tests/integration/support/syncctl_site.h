// A daemon, and syncctl that asks it or reads its store. Use it from the test's main thread.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/c_api.h"
#include "support/daemon.h"

namespace syncd::test {

class SyncctlSite : public ::testing::Test {
 protected:
  RunResult ctl(const std::vector<std::string>& arguments) {
    return syncctl(directory_, daemon_, arguments);
  }
  // Without being told where the daemon is.
  RunResult elsewhere(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program("syncctl"));
    return run(arguments, directory_.path(), {{"HOME", directory_.path()}});
  }

  TempDir directory_;
  Daemon daemon_{directory_};
};

// Two workers: the first has pushed once and waits for the second, which is in its first iteration.
struct OneWaits {
  explicit OneWaits(const Daemon& daemon, const std::string& policy = "bsp")
      : client(daemon.address()),
        fast(client.join({.policy = policy, .host = "node-a", .rank = 0, .world_size = 2})),
        slow(client.join({.policy = policy, .host = "node-b", .rank = 1, .world_size = 2})) {
    syncd_step step = SYNCD_STEP_INIT;
    EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);
    EXPECT_TRUE(slow.begin(step).ok());
    EXPECT_TRUE(fast.iterate(1).ok());
    EXPECT_EQ(fast.begin(step, 20).status, SYNCD_E_TIMEOUT);
  }

  ApiClient client;
  ApiWorker fast, slow;
};

}  // namespace syncd::test
