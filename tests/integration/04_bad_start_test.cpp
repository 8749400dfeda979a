// A store or a configuration that cannot be used: the daemon does not start, says why in one
// sentence that names the place, and exits with the code that documents the kind of failure. The
// kinds of them are in unit/config/load_test.cpp, unit/store and unit/capi/server_capi_test.cpp.
#include <gmock/gmock.h>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kConfigurationFailed = 2;
constexpr int kStoreFailed = 3;

class BadStart : public ::testing::Test {
 protected:
  RunResult syncd(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = {program("syncd")};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run(argv, directory_.path(), {{"HOME", directory_.path()}});
  }

  void TearDown() override { bystander_.expect_progress(); }

  TempDir directory_;
  // Somebody else's daemon on the same machine, which must not notice any of this.
  Daemon other_{directory_, {.name = "other"}};
  Bystander bystander_{other_.address()};
};

TEST_F(BadStart, AStoreBelowADirectoryThatIsMissingIsRefused) {
  const std::string path = directory_.file("no/store");
  for (const bool only_checked : {false, true}) {
    const RunResult result =
        syncd({"--store", path, only_checked ? "--check-config" : "--tcp=off"});
    EXPECT_EQ(result.ending, exited(kStoreFailed)) << result.out;
    EXPECT_THAT(result.err, AllOf(HasSubstr(path), HasSubstr("does not exist")));
  }
}

TEST_F(BadStart, AnUnknownKeyIsNamedWithFileAndLineAndTheKnownOnes) {
  const std::string path = directory_.file("bad.toml");
  const std::string socket = directory_.file("s.sock");
  write_file(path,
             "[store]\nmode = \"fast\"\nmood = \"durable\"\n[listen]\nunix = \"" + socket + "\"\n");
  for (const bool only_checked : {false, true}) {
    const RunResult result =
        syncd({"--config", path, only_checked ? "--check-config" : "--tcp=off"});
    EXPECT_EQ(result.ending, exited(kConfigurationFailed)) << result.out;
    EXPECT_THAT(result.err, AllOf(HasSubstr(path + ":3"), HasSubstr("mood"), HasSubstr("mode")));
  }
  EXPECT_FALSE(exists(socket));
}

}  // namespace
}  // namespace syncd::test
