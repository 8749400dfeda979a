// Why a worker waits, and where the flag of a re-sync lies, as callers of the C interface see them.
#include <gtest/gtest.h>
#include <syncd/client.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "../libclient/fake_server.h"
#include "embedded_server.h"
#include "support/c_api.h"
#include "support/files.h"

namespace syncd::test {
namespace {

struct FreeExplanation {
  void operator()(syncd_explanation* explanation) const { syncd_explanation_free(explanation); }
};
using Explained = std::unique_ptr<syncd_explanation, FreeExplanation>;

Explained explain(const syncd_worker* worker) {
  syncd_explanation* explanation = nullptr;
  syncd_error* error = nullptr;
  const syncd_status status = syncd_worker_explain(worker, 30'000, &explanation, &error);
  EXPECT_EQ(status, SYNCD_OK) << syncd_error_message(error);
  syncd_error_free(error);
  return Explained(explanation);
}

std::uint32_t read(const std::uint32_t& flag) {
  return std::atomic_ref(const_cast<std::uint32_t&>(flag)).load(std::memory_order_relaxed);
}

class ExplainTest : public testing::Test {
 protected:
  TempDir directory_;
  EmbeddedServer server_{{.tcp = "off", .unix_path = directory_.file("socket"), .store = "memory"}};
};

TEST_F(ExplainTest, SaysWhoIsWaitedForAsTextAndAsAStructure) {
  ApiClient client(server_.address());
  ApiWorker fast = client.join(
      {.policy = "ssp:1", .name = "fast", .host = "node-a", .rank = 0, .world_size = 2});
  ApiWorker slow = client.join({.name = "slow", .host = "node-b", .rank = 1, .world_size = 2});
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(fast.begin(step, 0).status, SYNCD_E_TIMEOUT);
  const Explained before = explain(fast.get());
  EXPECT_STREQ(syncd_explanation_rule(before.get()), "start");
  EXPECT_STREQ(syncd_explanation_ranks(before.get()), "1");
  ASSERT_TRUE(slow.begin(step).ok());
  ASSERT_TRUE(fast.iterate(2).ok());

  // Blocked in another thread, which is whom one asks about.
  std::thread blocked([&fast] {
    syncd_step granted = SYNCD_STEP_INIT;
    const Answer answer = fast.begin(granted);
    EXPECT_TRUE(answer.ok()) << answer.text();
    EXPECT_EQ(granted.iteration, 2);
  });
  Explained now = explain(fast.get());
  while (syncd_explanation_iteration(now.get()) < 0) now = explain(fast.get());
  EXPECT_EQ(syncd_explanation_iteration(now.get()), 2);
  EXPECT_STREQ(syncd_explanation_rule(now.get()), "ssp:1");
  const std::string text = syncd_explanation_text(now.get());
  EXPECT_NE(
      text.find("ssp:1: relative clock 2 is 2 ahead of the slowest (0), allowed 1; waiting for "
                "worker 1 (node-b"),
      std::string::npos)
      << text;
  EXPECT_GE(syncd_explanation_waiting_us(now.get()), 0);
  EXPECT_EQ(syncd_explanation_waited_for_count(now.get()), 1U);
  const syncd_waited_for* workers = nullptr;
  ASSERT_EQ(syncd_explanation_workers(now.get(), &workers), 1U);
  EXPECT_EQ(workers->rank, 1);
  EXPECT_STREQ(workers->name, "slow");
  EXPECT_STREQ(workers->host, "node-b");
  EXPECT_EQ(std::string(workers->state).substr(0, 19), "in iteration 0 for ");
  EXPECT_EQ(workers->clock, 0);
  EXPECT_EQ(workers->last_push_age_us, -1);
  EXPECT_TRUE(slow.push(0).ok());
  blocked.join();

  const Explained computing = explain(fast.get());
  EXPECT_EQ(syncd_explanation_iteration(computing.get()), -1);
  EXPECT_EQ(syncd_explanation_workers(computing.get(), &workers), 0U);
  EXPECT_EQ(workers, nullptr);
  client.close();
  syncd_explanation* untouched = nullptr;
  EXPECT_EQ(syncd_worker_explain(fast.get(), 0, &untouched, nullptr), SYNCD_E_CLOSED);
  EXPECT_EQ(untouched, nullptr);
}

TEST(Explanation, TakesNull) {
  EXPECT_EQ(syncd_worker_explain(nullptr, 0, nullptr, nullptr), SYNCD_E_INVALID);
  EXPECT_STREQ(syncd_explanation_text(nullptr), "");
  EXPECT_STREQ(syncd_explanation_rule(nullptr), "");
  EXPECT_STREQ(syncd_explanation_ranks(nullptr), "");
  EXPECT_EQ(syncd_explanation_iteration(nullptr), -1);
  EXPECT_EQ(syncd_explanation_waiting_us(nullptr), 0);
  EXPECT_EQ(syncd_explanation_waited_for_count(nullptr), 0U);
  EXPECT_EQ(syncd_explanation_workers(nullptr, nullptr), 0U);
  syncd_explanation_free(nullptr);
}

// A daemon that advises every worker to start each of its iterations again.
class ResyncFlagTest : public testing::Test {
 protected:
  ResyncFlagTest() {
    server_.behave([](auto& behaviour) { behaviour.resync = true; });
  }

  syncd_worker* join(std::uint32_t* flag, syncd_status expected = SYNCD_OK) {
    syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
    options.job = "job";
    options.policy = "asp";
    options.rank = 0;
    options.resync_flag = flag;
    syncd_worker* worker = nullptr;
    syncd_error* error = nullptr;
    EXPECT_EQ(syncd_join(client_.get(), &options, &worker, &error), expected)
        << syncd_error_message(error);
    message_ = syncd_error_message(error);
    syncd_error_free(error);
    return worker;
  }

  client::FakeServer server_;
  ApiClient client_{server_.address()};
  std::string message_;
};

TEST_F(ResyncFlagTest, LiesWhereTheCallerWantsIt) {
  std::uint32_t flag = 7;
  syncd_worker* worker = join(&flag);
  EXPECT_EQ(syncd_worker_resync_flag(worker), &flag);
  EXPECT_EQ(read(flag), 0U) << "whatever was there before";
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_EQ(syncd_begin(worker, 30'000, &step, nullptr), SYNCD_OK);
  while (read(flag) == 0) std::this_thread::yield();
  EXPECT_EQ(read(flag), 1U);
  EXPECT_EQ(syncd_should_resync(worker), 1);
  ASSERT_EQ(syncd_worker_restarted(worker, step.iteration, 30'000, nullptr), SYNCD_OK);
  EXPECT_EQ(read(flag), 0U);
  EXPECT_EQ(syncd_should_resync(worker), 0);
  ASSERT_EQ(syncd_push(worker, step.iteration, nullptr, 30'000, nullptr, nullptr), SYNCD_OK);
  ASSERT_EQ(syncd_begin(worker, 30'000, &step, nullptr), SYNCD_OK);
  syncd_worker_free(worker);
  // The advice for this iteration may arrive only now: the memory is the caller's again.
  std::atomic_ref(flag).store(9, std::memory_order_relaxed);
  client_.close();
  EXPECT_EQ(flag, 9U);
}

TEST_F(ResyncFlagTest, IsTheLibrarysOwnUnlessTold) {
  syncd_worker* worker = join(nullptr);
  const std::uint32_t* flag = syncd_worker_resync_flag(worker);
  ASSERT_NE(flag, nullptr);
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_EQ(syncd_begin(worker, 30'000, &step, nullptr), SYNCD_OK);
  while (read(*flag) == 0) std::this_thread::yield();
  EXPECT_EQ(syncd_should_resync(worker), 1);
  syncd_worker_free(worker);
  EXPECT_EQ(syncd_worker_resync_flag(nullptr), nullptr);
}

TEST_F(ResyncFlagTest, MustBeAligned) {
  alignas(4) std::uint8_t bytes[8] = {};
  auto* crooked = reinterpret_cast<std::uint32_t*>(reinterpret_cast<std::uintptr_t>(bytes) + 1);
  EXPECT_EQ(join(crooked, SYNCD_E_INVALID), nullptr);
  EXPECT_EQ(message_, "syncd_join_options.resync_flag is not at a multiple of 4 bytes");
}

}  // namespace
}  // namespace syncd::test
