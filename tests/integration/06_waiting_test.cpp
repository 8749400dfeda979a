// A begin that is not granted in time says who is being waited for, as <syncd/client.h> promises;
// so does syncctl, and the request stays pending. The texts are in tests/golden/engine.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(Waiting, UnderSspNamesTheSlowestItsHostClockAndLastPush) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory"});
  ApiClient client(daemon.address());
  ApiWorker fast = client.join({.policy = "ssp:1", .host = "node-a", .rank = 0, .world_size = 2});
  ApiWorker slow = client.join({.policy = "ssp:1", .host = "node-b", .rank = 1, .world_size = 2});
  syncd_step step = SYNCD_STEP_INIT;
  step.iteration = -77;
  // The request stays pending, and is granted when the job starts.
  EXPECT_EQ(fast.begin(step, 50).status, SYNCD_E_TIMEOUT);
  ASSERT_TRUE(slow.iterate(1).ok());
  ASSERT_TRUE(fast.iterate(3).ok());  // two ahead of the slow one, so that the next one is too far
  const Answer answer = fast.begin(step, 50);
  EXPECT_EQ(answer.status, SYNCD_E_TIMEOUT) << answer.text();
  EXPECT_TRUE(answer.retriable);
  EXPECT_FALSE(answer.fatal);
  EXPECT_EQ(step.iteration, -77) << "a failed call leaves its results alone";
  EXPECT_THAT(answer.message,
              ContainsRegex("begin\\(3\\) of worker 0 not granted after [0-9.]+ m?s: "
                            "ssp:1: relative clock 3 is 2 ahead of the slowest \\(1\\), allowed 1; "
                            "waiting for worker 1 \\(node-b, clock 1, last push [0-9.]+ m?s ago"));
  const RunResult shown = syncctl(directory, daemon, {"workers", "job"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("node-a"), HasSubstr("relative clock 3 is 2 ahead")));
  // It goes on as soon as the slow one does.
  ASSERT_TRUE(slow.iterate(1).ok());
  EXPECT_TRUE(fast.iterate(1).ok());
}

}  // namespace
}  // namespace syncd::test
