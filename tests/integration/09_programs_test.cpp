// The programs that users get, from end to end: the C example and the reference trainer.
#include <gmock/gmock.h>

#include "support/daemon.h"
#include "support/history.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

TEST(Example, FitsItsLineUnderEachPolicy) {
  TempDir directory;
  for (const char* policy : {"bsp", "ssp:3", "asp"}) {
    Daemon daemon(directory, {.name = "syncd-" + std::string(policy), .store = "memory"});
    const RunResult result = run({SYNCD_TEST_EXAMPLE, "4", "200", policy}, directory.path(),
                                 {{"SYNCD_ADDR", daemon.address()}});
    EXPECT_EQ(result.ending, exited(0)) << result.err;
    EXPECT_THAT(result.out, HasSubstr("4 workers under " + std::string(policy) + ": y = "));
    const History history = export_history(directory, daemon, "parameter-server");
    EXPECT_EQ(history.of_kind("push").size(), 4U * 200U);
  }
}

TEST(Example, SaysThatNoDaemonAnswers) {
  TempDir directory;
  const RunResult result = run({SYNCD_TEST_EXAMPLE}, directory.path(),
                               {{"SYNCD_ADDR", "unix:" + directory.file("nobody.sock")},
                                {"SYNCD_CONNECT_TIMEOUT_SEC", "1"}});
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("SYNCD_E_UNREACHABLE"));
  EXPECT_THAT(result.err, HasSubstr("nobody.sock"));
}

}  // namespace
}  // namespace syncd::test
