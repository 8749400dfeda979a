// syncctl from outside: what it shows, and the exit codes that its --help documents.
#include <gmock/gmock.h>

#include <filesystem>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/history.h"
#include "support/raw_client.h"
#include "support/syncctl_site.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Syncctl = SyncctlSite;

TEST_F(Syncctl, ShowsTheDaemonItsJobsAndWhoWaitsForWhom) {
  ApiClient client(daemon_.address());
  ApiWorker fast = client.join({.policy = "ssp:0", .host = "node-a", .rank = 0, .world_size = 2});
  ApiWorker slow = client.join({.policy = "ssp:0", .host = "node-b", .rank = 1, .world_size = 2});
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);

  RunResult result = ctl({"jobs"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("ssp:0"), HasSubstr("waiting for 1 of 2: 1")));

  ASSERT_TRUE(slow.begin(step).ok());
  ASSERT_TRUE(fast.iterate(1).ok());
  EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);

  result = ctl({"status"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr(daemon_.store_path()), HasSubstr("durable"),
                                HasSubstr("pid " + std::to_string(daemon_.pid()))));
  result = ctl({"workers", "job"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("node-a"), HasSubstr("node-b"),
                                HasSubstr("relative clock 1 is 1 ahead of the slowest (0)"),
                                HasSubstr("in iteration 0 for")));
  result = ctl({"history", "job"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("job_started"), HasSubstr("push")));

  for (const char* view : {"status", "jobs", "workers", "history"}) {
    std::vector<std::string> arguments = {"--json", view};
    if (std::string(view) == "workers" || std::string(view) == "history")
      arguments.push_back("job");
    result = ctl(arguments);
    EXPECT_EQ(result.ending, exited(0)) << result.err;
    EXPECT_TRUE(is_json(result.out)) << view << ": " << result.out;
  }
}

TEST_F(Syncctl, CreatesAndStopsAJob) {
  RunResult result = ctl({"job", "create", "mine", "--policy", "ssp:2", "--workers", "1"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_EQ(ctl({"job", "create", "mine"}).ending, exited(1)) << "it exists already";
  ApiClient client(daemon_.address());
  ApiWorker worker = client.join({.job = "mine", .rank = 0});
  EXPECT_STREQ(syncd_worker_policy(worker.get()), "ssp:2");
  ASSERT_TRUE(worker.iterate(2).ok());
  EXPECT_EQ(ctl({"job", "stop", "mine", "--reason", "enough"}).ending, exited(0));
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_TRUE(worker.begin(step).ok());
  EXPECT_TRUE((step.flags & SYNCD_STEP_STOP) != 0);
  EXPECT_TRUE(worker.leave().ok());
  const auto stopped = export_history(directory_, daemon_, "mine").of_kind("job_stopped");
  ASSERT_EQ(stopped.size(), 1U);
  EXPECT_THAT(stopped[0].at("reason"), HasSubstr("enough"));
}

TEST_F(Syncctl, WritesAnExportIntoAFile) {
  Bystander(daemon_.address(), "job").expect_progress(5);
  const std::string path = directory_.file("export.csv");
  const RunResult result =
      ctl({"history", "export", "job", "--format", "csv", "--kind", "push", "--output", path});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_EQ(parse_csv(read_file(path)).pushes(0), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  const RunResult unwritable =
      ctl({"history", "export", "job", "--format", "csv", "--output", path + "/below"});
  EXPECT_TRUE(ended(unwritable, 4, path + "/below"));
}

TEST_F(Syncctl, ChecksCopiesAndBringsBackAStoreWhoseDaemonIsDown) {
  Bystander(daemon_.address(), "job").expect_progress(5);
  const std::string backup = directory_.file("backup");
  RunResult result = elsewhere({"store", "backup", backup, "--store", daemon_.store_path()});
  EXPECT_TRUE(ended(result, 4, "in use by another process"));
  EXPECT_EQ(daemon_.stop(), exited(0));

  result = elsewhere({"store", "check", daemon_.store_path()});
  EXPECT_EQ(result.ending, exited(0)) << result.out << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("job"), HasSubstr("sound")));
  result = elsewhere({"store", "backup", backup, "--store", daemon_.store_path()});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  result = elsewhere({"store", "compact", daemon_.store_path()});
  EXPECT_EQ(result.ending, exited(0)) << result.err;

  // A backup takes the place of what was lost, and a daemon goes on with it.
  std::filesystem::remove_all(daemon_.store_path());
  result = elsewhere({"store", "check", daemon_.store_path()});
  EXPECT_EQ(result.ending, exited(4));
  result = elsewhere({"store", "restore", backup, daemon_.store_path()});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  daemon_.start();
  EXPECT_EQ(export_history(directory_, daemon_, "job").pushes(0),
            (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST_F(Syncctl, PlansWithoutADaemon) {
  const std::string path = directory_.file("dssp.json");
  write_file(path, R"({"worker":{"latest_ms":100,"previous_ms":90},
                       "slowest":{"latest_ms":95,"previous_ms":45},"r_max":4,"now_ms":null})");
  for (const std::vector<std::string>& input :
       {std::vector<std::string>{path}, {"--input", path}, {"--input=" + path}}) {
    std::vector<std::string> arguments{"plan", "dssp"};
    arguments.insert(arguments.end(), input.begin(), input.end());
    const RunResult result = elsewhere(arguments);
    EXPECT_EQ(result.ending, exited(0)) << result.err;
    EXPECT_EQ(result.out, "{\"extra_iterations\":4,\"difference_ms\":5}\n");
  }

  RunResult result = elsewhere({"plan", "zipline", path});
  EXPECT_TRUE(ended(result, 2, "workers: is missing"));
  result = elsewhere({"plan", "zipline", path, "--beta", "x"});
  EXPECT_EQ(result.ending, exited(2));
  result = elsewhere({"plan", "specsync", directory_.file("nothing.json")});
  EXPECT_TRUE(ended(result, 2, "nothing.json"));
}

TEST_F(Syncctl, SimulatesWithoutADaemon) {
  RunResult result = elsewhere({"simulate", "--workers", "4", "--iteration-time", "constant:500",
                                "--duration-s", "10", "--compare", "bsp:2,backup=1,asp", "--json"});
  EXPECT_EQ(result.ending, exited(0)) << result.err;
  EXPECT_THAT(result.out, HasSubstr("\"policy\": \"bsp:2,backup=1\""));
  EXPECT_THAT(result.out, HasSubstr("\"policy\": \"asp\""));
  EXPECT_THAT(result.out, HasSubstr("\"iterations_per_s_per_worker\": 2.0"));
  result = elsewhere({"simulate", "--policy", "ssp:x"});
  EXPECT_TRUE(ended(result, 2, "'ssp:x'"));
  result = elsewhere({"simulate", "--workers", "2", "--policy", "bsp", "--leave", "0@0"});
  EXPECT_TRUE(ended(result, 1, "bsp stalled"));
}

TEST_F(Syncctl, SaysWhatIsWrongWithTheCodeThatBelongsToIt) {
  RunResult result = ctl({"workers", "nonesuch"});
  EXPECT_TRUE(ended(result, 1, "nonesuch"));

  result = ctl({"history", "export", "nonesuch", "--format", "csv"});
  EXPECT_TRUE(ended(result, 1, "nonesuch"));

  result = ctl({"frobnicate"});
  EXPECT_EQ(result.ending, exited(2));

  result = ctl({"history", "export", "job", "--format", "xml"});
  EXPECT_EQ(result.ending, exited(2));
  EXPECT_THAT(result.err, AllOf(HasSubstr("csv"), HasSubstr("jsonl")));

  result = elsewhere({"--addr", "unix:" + directory_.file("nobody.sock"), "status"});
  EXPECT_TRUE(ended(result, 3, "nobody.sock"));

  result = elsewhere({"history", "job", "--store", directory_.file("no-store")});
  EXPECT_TRUE(ended(result, 4, "no-store"));
  EXPECT_FALSE(exists(directory_.file("no-store"))) << "looking must not create one";
}

}  // namespace
}  // namespace syncd::test
