// <syncd/client.h> in a cluster whose shards have a daemon each: one client, jobs in several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <syncd/client.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <string>
#include <utility>

#include "../libclient/fake_server.h"

namespace syncd {
namespace {

using client::FakeCluster;
using testing::HasSubstr;

std::string text_of(syncd_error* error) {
  std::string text = error != nullptr ? syncd_error_message(error) : "";
  syncd_error_free(error);
  return text;
}

class CapiShards : public testing::Test {
 protected:
  void SetUp() override {
    const std::string addresses = cluster_[0].address();
    syncd_client_options given = SYNCD_CLIENT_OPTIONS_INIT;
    given.addresses = addresses.c_str();
    given.connect_timeout_ms = 60'000;
    syncd_error* error = nullptr;
    ASSERT_EQ(syncd_client_open(&given, &client_, &error), SYNCD_OK) << text_of(error);
  }
  void TearDown() override { syncd_client_close(client_); }

  syncd_worker* join(std::uint32_t shard, syncd_event_callback on_event = nullptr,
                     void* user_data = nullptr) {
    const std::string job = cluster_.job(shard);
    syncd_join_options given = SYNCD_JOIN_OPTIONS_INIT;
    given.job = job.c_str();
    given.name = "w";
    given.host = "node-a";
    given.on_event = on_event;
    given.user_data = user_data;
    syncd_worker* worker = nullptr;
    syncd_error* error = nullptr;
    EXPECT_EQ(syncd_join(client_, &given, &worker, &error), SYNCD_OK) << text_of(error);
    return worker;
  }
  static void iterate(syncd_worker* worker) {
    syncd_step step = SYNCD_STEP_INIT;
    syncd_error* error = nullptr;
    EXPECT_EQ(syncd_begin(worker, 60'000, &step, &error), SYNCD_OK) << text_of(error);
    EXPECT_EQ(syncd_push(worker, step.iteration, nullptr, 60'000, nullptr, nullptr), SYNCD_OK);
  }

  FakeCluster cluster_{3};
  syncd_client* client_ = nullptr;
};

TEST_F(CapiShards, EachJobIsWithTheDaemonOfItsShard) {
  syncd_worker* first = join(0);
  syncd_worker* second = join(1);
  iterate(first);
  iterate(second);
  iterate(second);
  EXPECT_EQ(cluster_[0].received("Join"), 1U);
  EXPECT_EQ(cluster_[0].received("Push"), 1U);
  EXPECT_EQ(cluster_[1].last_join().job, cluster_.job(1));
  EXPECT_EQ(cluster_[1].received("Push"), 2U);
  EXPECT_EQ(cluster_[2].received("Hello"), 0U);
  EXPECT_EQ(syncd_leave(second, 60'000, nullptr), SYNCD_OK);
  EXPECT_EQ(cluster_[1].received("Leave"), 1U);
  syncd_worker_free(first);
  syncd_worker_free(second);
}

TEST_F(CapiShards, ACheckpointIsLookedForThere) {
  for (const std::uint32_t shard : {0U, 1U, 2U}) {
    cluster_[shard].behave([shard](auto& behaviour) { behaviour.checkpoint = 100 + shard; });
  }
  for (const std::uint32_t shard : {2U, 0U, 1U}) {
    syncd_checkpoint* found = nullptr;
    syncd_error* error = nullptr;
    ASSERT_EQ(syncd_latest_checkpoint(client_, cluster_.job(shard).c_str(), 60'000, &found, &error),
              SYNCD_OK)
        << text_of(error);
    EXPECT_EQ(syncd_checkpoint_number(found), 100U + shard);
    syncd_checkpoint_free(found);
  }
}

TEST_F(CapiShards, AShardThatNobodyServesIsAnErrorOfTheCall) {
  cluster_[0].behave([](auto& behaviour) { behaviour.others[2] = ""; });
  const std::string job = cluster_.job(2);
  syncd_join_options given = SYNCD_JOIN_OPTIONS_INIT;
  given.job = job.c_str();
  given.timeout_ms = 100;
  syncd_worker* worker = nullptr;
  syncd_error* error = nullptr;
  EXPECT_EQ(syncd_join(client_, &given, &worker, &error), SYNCD_E_UNREACHABLE);
  EXPECT_EQ(syncd_error_is_retriable(error), 1);
  EXPECT_THAT(text_of(error), HasSubstr("shard 2: no daemon answered within 100 ms"));
  EXPECT_EQ(worker, nullptr);
  cluster_[0].behave([&](auto& behaviour) { behaviour.others[2] = cluster_[2].address(); });
  syncd_worker* joined = join(2);
  iterate(joined);
  syncd_worker_free(joined);
}

TEST_F(CapiShards, ClosingEndsAJoinWhoseDaemonIsStillLookedFor) {
  cluster_[1].behave([](auto& behaviour) { behaviour.mute = true; });
  const std::string job = cluster_.job(1);
  auto blocked = std::async(std::launch::async, [&, client = client_] {
    syncd_join_options given = SYNCD_JOIN_OPTIONS_INIT;
    given.job = job.c_str();
    given.timeout_ms = 60'000;
    syncd_worker* worker = nullptr;
    return syncd_join(client, &given, &worker, nullptr);
  });
  cluster_[1].await("Hello", 1);
  syncd_client_close(std::exchange(client_, nullptr));
  EXPECT_EQ(blocked.get(), SYNCD_E_CANCELLED);
}

TEST_F(CapiShards, ACallbackMayCloseAllOfThem) {
  cluster_[1].behave([](auto& behaviour) {
    behaviour.resync = true;
    behaviour.hold_begins = true;
  });
  cluster_[0].behave([](auto& behaviour) { behaviour.hold_begins = true; });
  syncd_worker* first = join(0);
  const auto close = [](const syncd_event*, void* client) {
    syncd_client_close(static_cast<syncd_client*>(client));
  };
  syncd_worker* second = join(1, close, client_);
  auto blocked = std::async(std::launch::async, [&] {
    syncd_step step = SYNCD_STEP_INIT;
    return syncd_begin(first, SYNCD_WAIT_FOREVER, &step, nullptr);
  });
  cluster_[0].await("Begin", 1);
  client_ = nullptr;
  syncd_step step = SYNCD_STEP_INIT;
  cluster_[1].behave([](auto& behaviour) { behaviour.hold_begins = false; });
  EXPECT_EQ(syncd_begin(second, 60'000, &step, nullptr), SYNCD_OK);  // and then the event
  EXPECT_EQ(blocked.get(), SYNCD_E_CANCELLED);
  syncd_worker_free(first);
  syncd_worker_free(second);
}

TEST_F(CapiShards, AChildOfForkIsToldSo) {
  syncd_worker* second = join(1);
  const std::string third = cluster_.job(2);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    syncd_join_options given = SYNCD_JOIN_OPTIONS_INIT;
    given.job = third.c_str();
    syncd_worker* worker = nullptr;
    syncd_step step = SYNCD_STEP_INIT;
    if (syncd_join(client_, &given, &worker, nullptr) != SYNCD_E_FORKED) _exit(1);
    if (syncd_begin(second, SYNCD_WAIT_FOREVER, &step, nullptr) != SYNCD_E_FORKED) _exit(2);
    syncd_client_close(client_);
    syncd_worker_free(second);
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  iterate(second);
  syncd_worker_free(second);
}

}  // namespace
}  // namespace syncd
