// A daemon that serves one of a cluster's shards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/base/shard.h"
#include "tests/unit/server/server_fixture.h"

namespace syncd::server {
namespace {

using testing::HasSubstr;

// By proto/base/shard.h, of 3 shards.
std::string job_of(std::uint32_t shard) {
  for (int i = 0;; ++i) {
    std::string name = "job-" + std::to_string(i);
    if (shard_of(name, 3) == shard) return name;
  }
}

class ShardsTest : public ServerTest {
 protected:
  ServerOptions of_shard(std::uint32_t shard) const {
    ServerOptions o = options();
    o.shard = shard;
    o.shards = 3;
    o.whereabouts = [](std::uint32_t of) { return of == 2 ? "tls:node-b:7119" : ""; };
    return o;
  }
  void serve(std::uint32_t shard) {
    ASSERT_EQ(start(of_shard(shard), store::make_memory_store()), StartError::kNone) << error_;
  }
  // The answer to a Hello that wants this shard.
  wire::Body greet(std::int32_t shard) {
    client_ = std::make_unique<RawClient>(directory_ + "/s");
    client_->send({1, wire::Hello{kProtocolMin, kProtocolMax, "c", "1", "", shard}});
    EXPECT_TRUE(run_until([&] {
      client_->receive();
      return !client_->messages.empty();
    }));
    return client_->messages.empty() ? wire::Body() : client_->messages.front().body;
  }

  std::unique_ptr<RawClient> client_;
};

TEST_F(ShardsTest, WhoWantsThisShardOrAnyIsWelcome) {
  serve(1);
  for (const std::int32_t wanted : {-1, 1}) {
    const auto welcome = std::get<wire::Welcome>(greet(wanted));
    EXPECT_EQ(welcome.shard, 1U);
    EXPECT_EQ(welcome.shards, 3U);
  }
}

TEST_F(ShardsTest, WhoWantsAnotherIsSentThere) {
  serve(1);
  EXPECT_EQ(std::get<wire::Redirect>(greet(2)), (wire::Redirect{2, "tls:node-b:7119", 250}));
  EXPECT_TRUE(run_until([&] {
    client_->receive();
    return client_->ended;
  })) << "the daemon closes the connection";
  EXPECT_EQ(std::get<wire::Redirect>(greet(0)), (wire::Redirect{0, "", 250})) << "nobody leads it";
}

TEST_F(ShardsTest, AShardThatThereIsNotIsRefused) {
  serve(1);
  const auto error = std::get<wire::Error>(greet(3));
  EXPECT_EQ(error.status, Status::kInvalid);
  EXPECT_THAT(error.message, HasSubstr("allowed: 0 to 2"));
}

TEST_F(ShardsTest, ASingleDaemonHasOne) {
  start();
  EXPECT_EQ(std::get<wire::Welcome>(greet(0)).shards, 1U);
  EXPECT_THAT(std::get<wire::Error>(greet(1)).message, HasSubstr("allowed: 0 to 0"));
}

TEST_F(ShardsTest, JobsOfOtherShardsAreRefusedByName) {
  serve(1);
  auto client = connect();
  const std::string other = job_of(0);
  const wire::CreateJobRequest create{other, "asp", 1, 0};
  EXPECT_THAT(
      ask<wire::Error>(*client, create).message,
      HasSubstr("'" + other + "' is of shard 0 of this cluster, and this daemon serves shard 1"));
  wire::Join join;
  join.job = other;
  join.policy = "asp";
  join.name = "w";
  join.world_size = 1;
  EXPECT_EQ(ask<wire::Error>(*client, join).status, Status::kInvalid);
  EXPECT_EQ(ask<wire::Error>(*client, wire::StopJobRequest{"#6", ""}).status, Status::kInvalid);
  EXPECT_TRUE(ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs.empty());
}

TEST_F(ShardsTest, JobIdsAreOfItsShard) {
  serve(2);
  auto client = connect();
  std::vector<JobId> ids;
  for (int i = 0, made = 0; made < 3; ++i) {
    const std::string name = "job-" + std::to_string(i);
    if (shard_of(name, 3) != 2) continue;
    ask<wire::Ok>(*client, wire::CreateJobRequest{name, "asp", 1, 0});
    ++made;
  }
  for (const wire::JobStatus& job : ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs) {
    ids.push_back(job.id);
  }
  EXPECT_THAT(ids, testing::ElementsAre(5, 8, 11));
}

TEST_F(ShardsTest, OfTheConfigurationsJobsItMakesItsOwn) {
  ServerOptions o = of_shard(1);
  for (const std::uint32_t shard : {0U, 1U, 2U}) {
    JobSpec& spec = o.jobs.emplace_back();
    spec.name = job_of(shard);
    spec.policy = "asp";
    spec.expected_workers = 1;
  }
  ASSERT_EQ(start(std::move(o), store::make_memory_store()), StartError::kNone) << error_;
  auto client = connect();
  const auto jobs = ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs;
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].name, job_of(1));
}

TEST_F(ShardsTest, AReloadLeavesTheShardAsItIs) {
  serve(2);
  ASSERT_TRUE(server_->reconfigure(options(), error_)) << error_;
  EXPECT_EQ(std::get<wire::Welcome>(greet(2)).shards, 3U);
  auto client = connect();
  ask<wire::Ok>(*client, wire::CreateJobRequest{job_of(2), "asp", 1, 0});
  EXPECT_EQ(ask<wire::JobsReply>(*client, wire::JobsRequest{}).jobs.at(0).id, 5U);
}

}  // namespace
}  // namespace syncd::server
