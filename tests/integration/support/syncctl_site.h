// A daemon, and syncctl that asks it or reads its store. Use it from the test's main thread.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace syncd::test
