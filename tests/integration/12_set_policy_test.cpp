// syncctl set-policy on a job that runs: who waits goes on by the new rule, and the history has it.
// What is refused is in tests/golden/engine (decentralized_refusals, job_stop).
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SetPolicy : public ::testing::Test {
 protected:
  RunResult set(const std::string& job, const std::string& policy) {
    return syncctl(directory_, daemon_, {"set-policy", job, policy});
  }
  ApiWorker join(const std::string& policy, std::int32_t rank, std::uint32_t world_size = 2) {
    return client_.join({.policy = policy, .rank = rank, .world_size = world_size});
  }

  TempDir directory_;
  Daemon daemon_{directory_};
  ApiClient client_{daemon_.address()};
};

TEST_F(SetPolicy, ARunningJobGoesOverFromBspToSsp) {
  ApiWorker fast = join("bsp", 0);
  ApiWorker slow = join("bsp", 1);
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);
  ASSERT_TRUE(slow.begin(step).ok());
  ASSERT_TRUE(fast.iterate(1).ok());
  const Answer held = fast.begin(step, 0);
  ASSERT_EQ(held.status, SYNCD_E_TIMEOUT) << "bsp: the other has not pushed";
  EXPECT_THAT(held.message, HasSubstr("bsp"));

  const RunResult result = set("job", "ssp:2");
  ASSERT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_EQ(result.out, "");
  ASSERT_TRUE(fast.begin(step).ok()) << "the standing request is granted by the new policy";
  EXPECT_EQ(step.iteration, 1);
  ASSERT_TRUE(fast.push(1).ok());
  ASSERT_TRUE(fast.iterate(2).ok());
  const Answer bounded = fast.begin(step, 0);
  ASSERT_EQ(bounded.status, SYNCD_E_TIMEOUT);
  EXPECT_THAT(bounded.message, AllOf(HasSubstr("ssp:2"), HasSubstr("allowed 2")));

  const History history = export_history(directory_, daemon_, "job");
  const auto switched = history.of_kind("policy_switched");
  ASSERT_EQ(switched.size(), 1U);
  EXPECT_EQ(switched[0].at("policy"), "ssp:2");
  EXPECT_EQ(history.pushes(0), (std::vector<std::int64_t>{0, 1, 2, 3}));
  EXPECT_THAT(syncctl(directory_, daemon_, {"jobs"}).out, HasSubstr("ssp:2"));
  ASSERT_EQ(set("job", "ssp:2").ending, exited(0)) << "it has it already";
  EXPECT_EQ(export_history(directory_, daemon_, "job").of_kind("policy_switched").size(), 1U);
}

TEST_F(SetPolicy, IsFoundInTheStoreByNameAndByExactNumber) {
  ApiWorker worker = join("bsp", 0, 1);
  ASSERT_TRUE(worker.iterate(1).ok());
  ASSERT_EQ(set("#1", "asp").ending, exited(0));
  EXPECT_EQ(set("#1x", "asp").ending, exited(1));
  daemon_.stop();
  const auto stored = [&](const std::string& job) {
    return run({program("syncctl"), "history", job, "--store", daemon_.store_path()},
               directory_.path(), {});
  };
  EXPECT_THAT(stored("job").out, HasSubstr("policy_switched"));
  EXPECT_THAT(stored("#1").out, HasSubstr("policy_switched"));
  const RunResult trailing = stored("#1x");
  EXPECT_TRUE(ended(trailing, 1, "there is no job '#1x'"));
}

}  // namespace
}  // namespace syncd::test
