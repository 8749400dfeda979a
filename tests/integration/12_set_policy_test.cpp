// syncctl set-policy on a job that runs: who waits goes on by the new rule, the history has it, and
// it survives a restart; what is not allowed is said.
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

TEST_F(SetPolicy, SaysWhatIsWrong) {
  ApiWorker worker = join("bsp", 0, 1);
  ASSERT_TRUE(worker.iterate(1).ok());
  RunResult result = set("nonesuch", "asp");
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("there is no job 'nonesuch'"));
  result = set("job", "sps:3");
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, AllOf(HasSubstr("sps"), HasSubstr("ssp")));
  result = set("job", "hop:ring");
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("cannot go from policy 'bsp' to 'hop:ring'"));
  EXPECT_EQ(syncctl(directory_, daemon_, {"set-policy", "job"}).ending, exited(2));
  ASSERT_EQ(syncctl(directory_, daemon_, {"job", "stop", "job"}).ending, exited(0));
  result = set("job", "asp");
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("has ended"));
  EXPECT_TRUE(export_history(directory_, daemon_, "job").of_kind("policy_switched").empty());
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
  EXPECT_EQ(trailing.ending, exited(1));
  EXPECT_THAT(trailing.err, HasSubstr("there is no job '#1x'"));
}

TEST_F(SetPolicy, SurvivesARestart) {
  ApiWorker worker = join("bsp", 0, 1);
  ASSERT_TRUE(worker.iterate(1).ok());
  ASSERT_EQ(set("job", "ssp:7").ending, exited(0));
  daemon_.kill();
  daemon_.start();
  ASSERT_TRUE(worker.iterate(1).ok()) << "it resumes, whatever it asked for at its join";
  EXPECT_THAT(syncctl(directory_, daemon_, {"jobs"}).out, HasSubstr("ssp:7"));
}

}  // namespace
}  // namespace syncd::test
