// syncctl's commands in a cluster whose shards have a daemon each.
#include <gmock/gmock.h>

#include <future>
#include <nlohmann/json.hpp>
#include <string>

#include "../libclient/fake_server.h"
#include "daemon/tools/ctl/commands.h"
#include "daemon/tools/ctl/connection.h"
#include "daemon/tools/ctl/daemon_link.h"

namespace syncd::ctl {
namespace {

using client::FakeCluster;
using client::FakeServer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

wire::JobStatus job_of(std::uint32_t id, std::string name) {
  wire::JobStatus job;
  job.id = id;
  job.name = std::move(name);
  job.state = "running";
  return job;
}

struct Ran {
  int code = 0;
  std::string out;
  std::string err;
};
Ran run(int (*command)(const Options&), const Options& options) {
  Ran ran;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ran.code = command(options);
  ran.out = testing::internal::GetCapturedStdout();
  ran.err = testing::internal::GetCapturedStderr();
  return ran;
}

class CtlShards : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::uint32_t shard : {0U, 1U, 2U}) {
      cluster_[shard].behave(
          [&](auto& behaviour) { behaviour.jobs = {job_of(10 - shard, cluster_.job(shard))}; });
    }
    options_.addresses = cluster_[1].address();
    options_.timeout_ms = 60'000;
    options_.json = true;
  }
  void lose(std::uint32_t shard) {
    for (const std::uint32_t other : {0U, 1U, 2U}) {
      if (other == shard) continue;
      cluster_[other].behave(
          [&](auto& behaviour) { behaviour.others[static_cast<std::int32_t>(shard)] = ""; });
    }
    options_.timeout_ms = 300;
  }
  static std::vector<std::uint32_t> values(const std::string& json, const char* key) {
    std::vector<std::uint32_t> all;
    for (const auto& item : nlohmann::json::parse(json)) all.push_back(item.at(key));
    return all;
  }

  FakeCluster cluster_{3};
  Options options_;
};

TEST_F(CtlShards, JobsOfAllAreShown) {
  const Ran ran = run(run_jobs, options_);
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_THAT(values(ran.out, "id"), ElementsAre(8, 9, 10));
  EXPECT_EQ(ran.err, "");
}

TEST_F(CtlShards, EachDaemonSaysHowItIs) {
  Ran ran = run(run_status, options_);
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_THAT(values(ran.out, "shard"), ElementsAre(0, 1, 2));
  EXPECT_THAT(values(ran.out, "pid"), ElementsAre(1000, 1001, 1002));
  options_.json = false;
  ran = run(run_status, options_);
  EXPECT_THAT(ran.out, HasSubstr("shard 2 of 3\nsyncd 0.0.1 at " + cluster_[2].address()));
}

TEST_F(CtlShards, OneThatIsMissingIsNamedAndTheRestShown) {
  lose(2);
  for (const auto command : {run_jobs, run_status}) {
    const Ran ran = run(command, options_);
    EXPECT_EQ(ran.code, kExitUnreachable);
    EXPECT_EQ(nlohmann::json::parse(ran.out).size(), 2U);
    EXPECT_THAT(ran.err, HasSubstr("syncctl: shard 2 is missing: no daemon answered"));
    EXPECT_THAT(ran.err, HasSubstr("no daemon serves shard 2 at the moment"));
  }
  options_.once = true;
  options_.interval = "100ms";
  const Ran ran = run(run_top, options_);
  EXPECT_EQ(ran.code, kExitUnreachable);
  EXPECT_THAT(ran.out, HasSubstr(cluster_.job(0)));
  EXPECT_THAT(ran.out, HasSubstr(cluster_.job(1)));
  EXPECT_THAT(ran.err, HasSubstr("syncctl: shard 2 is missing: "));
}

TEST_F(CtlShards, AJobsDaemonIsAskedAboutIt) {
  for (const std::string& job : {cluster_.job(2), std::string("#5")}) {
    options_.job = job;
    const Ran ran = run(run_stop, options_);
    EXPECT_EQ(ran.code, kExitOk) << ran.err;
  }
  EXPECT_EQ(cluster_[0].received("StopJobRequest"), 0U);
  EXPECT_EQ(cluster_[1].received("StopJobRequest"), 0U);
  EXPECT_EQ(cluster_[2].received("StopJobRequest"), 2U);
  EXPECT_EQ(cluster_[0].received("Hello"), 0U) << "no one else is";
}

TEST_F(CtlShards, AJobWhoseShardIsMissingIsAnError) {
  lose(0);
  options_.job = cluster_.job(0);
  const Ran ran = run(run_stop, options_);
  EXPECT_EQ(ran.code, kExitUnreachable);
  EXPECT_THAT(ran.err, HasSubstr("syncctl: shard 0: no daemon answered"));
}

TEST_F(CtlShards, ABackupSaysOfWhichItIs) {
  options_.other = "/backup";
  Ran ran = run(run_checkpoint, options_);
  EXPECT_EQ(nlohmann::json::parse(ran.out).at("shard"), 1);
  options_.json = false;
  ran = run(run_checkpoint, options_);
  EXPECT_THAT(ran.out, HasSubstr("has copied its store (shard 1 of 3) to /backup;"));
}

TEST(CtlShard, OfASingleDaemonNothingIsSaid) {
  FakeServer server;
  Options options;
  options.addresses = server.address();
  options.json = true;
  Ran ran = run(run_status, options);
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  const auto status = nlohmann::json::parse(ran.out);
  EXPECT_TRUE(status.is_object());
  EXPECT_FALSE(status.contains("shard"));
  options.json = false;
  options.other = "/backup";
  ran = run(run_checkpoint, options);
  EXPECT_THAT(ran.out, HasSubstr("has copied its store to /backup;"));
  EXPECT_THAT(run(run_status, options).out, Not(HasSubstr("shard")));
}

// While another member takes over, all refuse.
TEST(CtlSeveral, MembersAreTriedAgainUntilOneTakesOver) {
  FakeServer first;
  FakeServer second;
  for (FakeServer* const server : {&first, &second}) {
    server->behave([](auto& behaviour) { behaviour.refuse_hello = Status::kShutdown; });
  }
  Options options;
  options.addresses = first.address() + "," + second.address();
  Address address;
  std::string error;
  ASSERT_TRUE(how_to_ask(options, address, error)) << error;
  DaemonLink link;
  auto opened = std::async(std::launch::async, [&] { return link.open(address, 60'000); });
  second.await("Hello", 2);
  second.behave([](auto& behaviour) { behaviour.refuse_hello = Status::kOk; });
  EXPECT_TRUE(opened.get()) << link.error();
  EXPECT_EQ(link.endpoint(), second.address());
}

}  // namespace
}  // namespace syncd::ctl
