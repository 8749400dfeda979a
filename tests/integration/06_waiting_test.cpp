// A begin that is not granted in time says who is being waited for, as <syncd/client.h> promises;
// so does syncctl, and the request stays standing.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Waiting : public ::testing::Test {
 protected:
  // Worker `rank` of a job of `world_size` on a host of its own.
  ApiWorker join(const std::string& policy, std::int32_t rank, std::uint32_t world_size) {
    return client_.join({.policy = policy,
                         .host = "node-" + std::string(1, static_cast<char>('a' + rank)),
                         .rank = rank,
                         .world_size = world_size});
  }

  // What a begin that cannot be granted says.
  Answer timed_out(ApiWorker& worker, std::int64_t timeout_ms = 50) {
    syncd_step step = SYNCD_STEP_INIT;
    step.iteration = -77;
    const Answer answer = worker.begin(step, timeout_ms);
    EXPECT_EQ(answer.status, SYNCD_E_TIMEOUT) << answer.text();
    EXPECT_TRUE(answer.retriable);
    EXPECT_FALSE(answer.fatal);
    EXPECT_EQ(step.iteration, -77) << "a failed call leaves its results alone";
    return answer;
  }

  TempDir directory_;
  Daemon daemon_{directory_, {.store = "memory"}};
  ApiClient client_{daemon_.address()};
};

TEST_F(Waiting, BeforeTheStartNamesThoseWhoAreMissing) {
  ApiWorker zero = join("bsp", 0, 16);
  ApiWorker one = join("bsp", 1, 16);
  ApiWorker three = join("bsp", 3, 16);
  ApiWorker idle = join("bsp", 5, 16);  // has joined, and does not ask to begin
  timed_out(zero);
  timed_out(one);
  const Answer answer = timed_out(three);
  EXPECT_THAT(answer.message,
              ContainsRegex("begin\\(0\\) of worker 3 not granted after [0-9.]+ m?s"));
  EXPECT_THAT(answer.message, HasSubstr("start: 3 of 16 expected workers are ready"));
  EXPECT_THAT(answer.message, HasSubstr("waiting for 13 workers: 2, 4-15"));
  EXPECT_THAT(answer.message, HasSubstr("worker 2 (not joined)"));
  EXPECT_THAT(answer.message, HasSubstr("worker 5 (node-f, clock 0, no push yet, registered)"));
}

TEST_F(Waiting, UnderSspNamesTheSlowestItsHostClockAndLastPush) {
  ApiWorker fast = join("ssp:1", 0, 2);
  ApiWorker slow = join("ssp:1", 1, 2);
  timed_out(fast);  // the request stays standing, and is granted when the job starts
  ASSERT_TRUE(slow.iterate(1).ok());
  ASSERT_TRUE(fast.iterate(3).ok());  // two ahead of the slow one, so that the next one is too far
  const Answer answer = timed_out(fast);
  EXPECT_THAT(answer.message,
              ContainsRegex("begin\\(3\\) of worker 0 not granted after [0-9.]+ m?s: "
                            "ssp:1: relative clock 3 is 2 ahead of the slowest \\(1\\), allowed 1; "
                            "waiting for worker 1 \\(node-b, clock 1, last push [0-9.]+ m?s ago"));
  const RunResult shown = syncctl(directory_, daemon_, {"workers", "job"});
  EXPECT_THAT(shown.out, AllOf(HasSubstr("node-a"), HasSubstr("relative clock 3 is 2 ahead")));
  // It goes on as soon as the slow one does.
  ASSERT_TRUE(slow.iterate(1).ok());
  EXPECT_TRUE(fast.iterate(1).ok());
}

TEST_F(Waiting, UnderSspASlowWorkerInItsIterationIsSaidToBe) {
  ApiWorker fast = join("ssp:0", 0, 2);
  ApiWorker slow = join("ssp:0", 1, 2);
  timed_out(fast);
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_TRUE(slow.begin(step).ok());
  ASSERT_TRUE(fast.iterate(1).ok());
  const Answer answer = timed_out(fast);
  EXPECT_THAT(answer.message,
              ContainsRegex("worker 1 \\(node-b, clock 0, no push yet, in iteration 0 for "));
}

TEST_F(Waiting, UnderBspNamesAllWhoHaveNotFinishedTheSuperstep) {
  constexpr int kWorkers = 12;
  std::vector<ApiWorker> workers;
  for (int rank = 0; rank < kWorkers; ++rank) workers.push_back(join("bsp", rank, kWorkers));
  for (int rank = 0; rank < kWorkers - 1; ++rank) {
    timed_out(workers[static_cast<std::size_t>(rank)], 0);
  }
  for (const int rank : {11, 0, 4}) {
    ASSERT_TRUE(workers[static_cast<std::size_t>(rank)].iterate(1).ok()) << rank;
  }
  const Answer answer = timed_out(workers[0]);
  EXPECT_THAT(answer.message, HasSubstr("begin(1) of worker 0 not granted"));
  EXPECT_THAT(answer.message,
              HasSubstr("bsp: superstep 1 opens when 12 of 12 workers have finished "
                        "superstep 0, 3 "));
  EXPECT_THAT(answer.message, HasSubstr("waiting for 9 workers: 1-3, 5-10"));
  EXPECT_THAT(answer.message, HasSubstr("worker 1 (node-b, clock 0, no push yet, in iteration 0"));
  // Only the first few are described one by one.
  EXPECT_THAT(answer.message, AllOf(HasSubstr("worker 9 (node-j"), Not(HasSubstr("worker 10 ("))));
}

// A worker whose connection is gone is said to be disconnected while its place is kept.
TEST_F(Waiting, ADisconnectedWorkerIsSaidToBe) {
  ApiWorker here = join("bsp", 0, 2);
  {
    ApiClient other(daemon_.address());
    ApiWorker gone = other.join({.policy = "bsp", .host = "node-z", .rank = 1, .world_size = 2});
    timed_out(here);
    ASSERT_TRUE(gone.iterate(1).ok());
    ASSERT_TRUE(here.iterate(2).ok());
  }
  std::string message;
  wait_until("the message to say so", [&] {
    message = timed_out(here, 20).message;
    return HasFailure() || message.find("disconnected") != std::string::npos;
  });
  EXPECT_THAT(message, ContainsRegex("worker 1 \\(node-z, clock 1, last push [0-9.]+ m?s ago, "
                                     "disconnected [0-9.]+ [mu]?s ago\\)"));
}

}  // namespace
}  // namespace syncd::test
