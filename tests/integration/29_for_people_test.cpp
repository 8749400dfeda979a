// What people look at and measure with, from outside: syncctl stragglers, explain and top, and
// syncbench.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstdlib>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"
#include "support/syncctl_site.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using ForPeople = SyncctlSite;

TEST_F(ForPeople, SaysWhyAWorkerWaitsAndWhoMadeTheOthersWait) {
  ApiClient client(daemon_.address());
  ApiWorker fast = client.join({.policy = "bsp", .host = "node-a", .rank = 0, .world_size = 2});
  ApiWorker slow = client.join({.policy = "bsp", .host = "node-b", .rank = 1, .world_size = 2});
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);
  ASSERT_TRUE(slow.begin(step).ok());
  ASSERT_TRUE(fast.iterate(1).ok());
  EXPECT_EQ(fast.begin(step, 20).status, SYNCD_E_TIMEOUT);

  RunResult result = ctl({"explain", "job", "0"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("rule   bsp"), HasSubstr("has waited"),
                                HasSubstr("node-b"), HasSubstr("superstep 1 opens when 2 of 2")));
  result = ctl({"explain", "job", "1"});
  EXPECT_THAT(result.out, HasSubstr("waited for by 1 worker: 0"));
  result = ctl({"explain", "job", "7"});
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("no worker '7'"));

  // The slow one pushes at last: it has let the fast one wait, and is charged with it.
  ASSERT_TRUE(slow.push(0).ok());
  ASSERT_TRUE(fast.begin(step).ok());
  ASSERT_TRUE(fast.push(1).ok());
  result = ctl({"--json", "stragglers", "job", "--since", "1h"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_TRUE(is_json(result.out)) << result.out;
  EXPECT_THAT(result.out, AllOf(HasSubstr("\"rank\": 1"), HasSubstr("\"waits\": 1\n"),
                                HasSubstr("node-b"), Not(HasSubstr("node-a"))));
  const std::string of_daemon = ctl({"stragglers", "job"}).out;
  EXPECT_EQ(ctl({"stragglers", "job", "--since", "soon"}).ending, exited(2));
  EXPECT_EQ(daemon_.stop(), exited(0));
  result = elsewhere({"stragglers", "job", "--store", daemon_.store_path()});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_EQ(result.out, of_daemon);
}

TEST_F(ForPeople, TopPrintsOneFrameIntoAPipe) {
  ApiClient client(daemon_.address());
  ApiWorker fast = client.join({.policy = "bsp", .host = "node-a", .rank = 0, .world_size = 2});
  ApiWorker slow = client.join({.policy = "bsp", .host = "node-b", .rank = 1, .world_size = 2});
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);
  ASSERT_TRUE(slow.begin(step).ok());
  ASSERT_TRUE(fast.iterate(1).ok());
  EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);

  RunResult result = ctl({"top", "job", "--once", "--interval", "100ms", "--sort", "waiting"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("workers 2/2  waiting 1  clocks 0..1"),
                                HasSubstr("node-b"), Not(HasSubstr("\x1b"))));
  EXPECT_LT(result.out.find("node-a"), result.out.find("node-b")) << "who waits comes first";
  result = ctl({"top", "--once", "--interval", "100ms"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("1 job\n"), HasSubstr("#1 job")));

  EXPECT_EQ(ctl({"top", "nobody", "--once"}).ending, exited(1));
  EXPECT_EQ(ctl({"top", "job", "--once", "--interval", "1"}).ending, exited(2));
  EXPECT_EQ(ctl({"top", "job", "--once", "--sort", "beauty"}).ending, exited(2));
  result = ctl({"top", "job"});
  EXPECT_EQ(result.ending, exited(2)) << "there is no terminal";
  EXPECT_THAT(result.err, HasSubstr("--once"));
}

class Syncbench : public ForPeople {
 protected:
  RunResult bench(std::vector<std::string> arguments) {
    std::vector<std::string> all = {program("syncbench"), "--addr", daemon_.address(), "--json"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run(all, directory_.path(), {{"HOME", directory_.path()}});
  }
  static std::uint64_t number(const RunResult& result, const std::string& key) {
    const std::size_t at = result.out.find("\"" + key + "\": ");
    if (at == std::string::npos) return UINT64_MAX;
    return std::strtoull(result.out.c_str() + at + key.size() + 4, nullptr, 10);
  }
};

TEST_F(Syncbench, CountsWhatTheDaemonCounts) {
  const RunResult result =
      bench({"--workers", "50", "--connections", "4", "--policy", "bsp", "--iterations", "20",
             "--ask-share", "0.2", "--ask", "members", "--member-bytes", "16", "--job", "load"});
  ASSERT_EQ(result.ending, exited(0)) << result.err;
  ASSERT_TRUE(is_json(result.out)) << result.out;
  EXPECT_EQ(number(result, "pushes"), 1000U);
  EXPECT_EQ(number(result, "daemon_pushes"), 1000U);
  EXPECT_EQ(number(result, "late"), 0U);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("\"mode\": \"durable\""), HasSubstr("\"policy\": \"bsp\"")));
  const History history = export_history(directory_, daemon_, "load");
  for (int rank = 0; rank < 50; ++rank) EXPECT_EQ(history.pushes(rank).size(), 20U) << rank;
  EXPECT_EQ(history.of_kind("worker_left").size(), 50U);
  EXPECT_EQ(history.of_kind("job_stopped").size(), 1U);
  // It has a job of its own.
  EXPECT_EQ(bench({"--iterations", "1", "--job", "load"}).ending, exited(2));
}

TEST_F(Syncbench, ByTimeAndWithComputing) {
  const RunResult result = bench({"--workers", "3", "--policy", "ssp:1", "--seconds", "0.3",
                                  "--iteration-time", "constant:5", "--slowdown", "fixed:0=2x"});
  ASSERT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_GT(number(result, "pushes"), 2U);
  EXPECT_EQ(number(result, "pushes"), number(result, "daemon_pushes"));
}

TEST_F(Syncbench, SaysWhatIsWrong) {
  RunResult result = bench({"--policy", "nothing"});
  EXPECT_EQ(result.ending, exited(1));
  EXPECT_THAT(result.err, HasSubstr("nothing"));
  result = bench({"--policy", "hop:ring"});
  EXPECT_EQ(result.ending, exited(2));
  EXPECT_THAT(result.err, HasSubstr("decentralized"));
  result = bench({"--iteration-time", "long"});
  EXPECT_EQ(result.ending, exited(2));
  EXPECT_THAT(result.err, HasSubstr("--iteration-time"));
  EXPECT_EQ(daemon_.stop(), exited(0));
  result = bench({});
  EXPECT_EQ(result.ending, exited(3));
  EXPECT_THAT(result.err, HasSubstr("no daemon answered"));
}

}  // namespace
}  // namespace syncd::test
