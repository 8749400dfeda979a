// Beginning without blocking, as callers of the C interface see it.
#include <gtest/gtest.h>
#include <poll.h>
#include <syncd/client.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

#include "embedded_server.h"
#include "support/c_api.h"
#include "support/files.h"

namespace syncd::test {
namespace {

syncd_status arrive(ApiWorker& worker) {
  return syncd_worker_arrive(worker.get(), nullptr);
}

struct Polled {
  syncd_status status = SYNCD_OK;
  std::int32_t ready = -1;
  syncd_step step = SYNCD_STEP_INIT;
  std::string message;
};
Polled poll(ApiWorker& worker) {
  Polled polled;
  syncd_error* error = nullptr;
  polled.status = syncd_worker_poll(worker.get(), &polled.ready, &polled.step, &error);
  polled.message = syncd_error_message(error);
  syncd_error_free(error);
  return polled;
}

std::int32_t descriptor_of(ApiWorker& worker) {
  std::int32_t descriptor = -1;
  EXPECT_EQ(syncd_worker_descriptor(worker.get(), &descriptor, nullptr), SYNCD_OK);
  return descriptor;
}

bool readable(std::int32_t descriptor, int timeout_ms) {
  pollfd waited{descriptor, POLLIN, 0};
  return ::poll(&waited, 1, timeout_ms) == 1 && (waited.revents & POLLIN) != 0;
}

class ArriveTest : public testing::Test {
 protected:
  ApiWorker join(int rank) {
    return client_.join({.policy = "bsp",
                         .name = "w" + std::to_string(rank),
                         .host = "here",
                         .rank = rank,
                         .world_size = 2});
  }

  TempDir directory_;
  EmbeddedServer server_{{.tcp = "off", .unix_path = directory_.file("socket"), .store = "memory"}};
  ApiClient client_{server_.address()};
  ApiWorker first_ = join(0);
  ApiWorker second_ = join(1);
};

TEST_F(ArriveTest, TheDescriptorIsReadableWhileThereIsAnAnswer) {
  const std::int32_t descriptor = descriptor_of(first_);
  EXPECT_EQ(descriptor_of(first_), descriptor);
  for (std::int64_t k = 0; k < 20; ++k) {
    ASSERT_EQ(arrive(first_), SYNCD_OK);
    ASSERT_EQ(arrive(first_), SYNCD_OK) << "which it does nothing about";
    Polled polled;
    if (k == 0) {  // later, both have pushed what the first one waits for
      polled = poll(first_);
      ASSERT_EQ(polled.status, SYNCD_OK) << polled.message;
      EXPECT_EQ(polled.ready, 0) << "the other one has not arrived";
      EXPECT_FALSE(readable(descriptor, 0));
    }
    ASSERT_EQ(arrive(second_), SYNCD_OK);
    ASSERT_TRUE(readable(descriptor, 30'000));
    EXPECT_TRUE(readable(descriptor, 0)) << "until it is taken";
    polled = poll(first_);
    ASSERT_EQ(polled.status, SYNCD_OK) << polled.message;
    ASSERT_EQ(polled.ready, 1);
    EXPECT_EQ(polled.step.iteration, k);
    EXPECT_FALSE(readable(descriptor, 0));
    syncd_step step = SYNCD_STEP_INIT;
    ASSERT_TRUE(second_.begin(step).ok()) << "which waits for what was asked for";
    EXPECT_EQ(step.iteration, k);
    ASSERT_TRUE(first_.push(k).ok());
    ASSERT_TRUE(second_.push(k).ok());
  }
}

TEST_F(ArriveTest, ADescriptorThatIsAskedForLateKnowsOfTheAnswer) {
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_TRUE(second_.begin(step).ok());
  while (true) {
    const Polled polled = poll(first_);
    ASSERT_EQ(polled.status, SYNCD_OK);
    if (polled.ready == 1) break;
    std::this_thread::yield();
  }
  ASSERT_TRUE(first_.push(0).ok());
  ASSERT_TRUE(second_.push(0).ok());
  ASSERT_EQ(arrive(second_), SYNCD_OK);
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  EXPECT_TRUE(readable(descriptor_of(first_), 30'000));
  EXPECT_TRUE(readable(descriptor_of(second_), 30'000));
}

TEST_F(ArriveTest, BeginWaitsForItAndSaysWhyInVain) {
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  syncd_step step = SYNCD_STEP_INIT;
  const Answer late = first_.begin(step, 20);
  EXPECT_EQ(late.status, SYNCD_E_TIMEOUT);
  EXPECT_NE(
      late.message.find("begin(0) of worker 0 not granted after 20 ms: start: 1 of 2 expected "
                        "workers are ready; waiting for worker 1 (here"),
      std::string::npos)
      << late.message;
  EXPECT_TRUE(late.retriable);
  std::thread other([this] {
    syncd_step granted = SYNCD_STEP_INIT;
    EXPECT_TRUE(second_.begin(granted).ok());
  });
  EXPECT_TRUE(first_.begin(step).ok()) << "it still stands";
  EXPECT_EQ(step.iteration, 0);
  other.join();
}

TEST_F(ArriveTest, WhatIsOutOfOrderIsSaid) {
  Polled polled = poll(first_);
  EXPECT_EQ(polled.status, SYNCD_E_STATE);
  EXPECT_EQ(polled.message, "syncd_worker_poll: nothing was asked for; call syncd_worker_arrive()");
  EXPECT_EQ(polled.ready, -1) << "untouched";
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  ASSERT_EQ(arrive(second_), SYNCD_OK);
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_TRUE(first_.begin(step).ok());
  ASSERT_TRUE(second_.begin(step).ok());
  // Iteration 0 is not pushed.
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  ASSERT_TRUE(readable(descriptor_of(first_), 30'000));
  polled = poll(first_);
  EXPECT_EQ(polled.status, SYNCD_E_STATE);
  EXPECT_NE(polled.message.find("is not pushed yet"), std::string::npos) << polled.message;
  // That was an answer: the next one may be asked for.
  EXPECT_EQ(poll(first_).status, SYNCD_E_STATE);
  ASSERT_TRUE(first_.push(0).ok());
  EXPECT_EQ(arrive(first_), SYNCD_OK);

  EXPECT_EQ(syncd_worker_arrive(nullptr, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_worker_poll(first_.get(), nullptr, &step, nullptr), SYNCD_E_INVALID);
  std::int32_t ready = 0;
  EXPECT_EQ(syncd_worker_poll(first_.get(), &ready, nullptr, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_worker_descriptor(first_.get(), nullptr, nullptr), SYNCD_E_INVALID);
}

TEST_F(ArriveTest, EndsWithTheWorkerTheClientAndTheJob) {
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  first_ = ApiWorker();  // freed with a request standing
  first_ = join(0);      // its place is its own again
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  const std::int32_t descriptor = descriptor_of(first_);
  client_.close();
  EXPECT_TRUE(readable(descriptor, 30'000));
  Polled polled = poll(first_);
  EXPECT_EQ(polled.status, SYNCD_E_CANCELLED) << polled.message;
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  polled = poll(first_);
  EXPECT_EQ(polled.status, SYNCD_E_CLOSED) << polled.message;
}

TEST_F(ArriveTest, AChildIsToldSo) {
  ASSERT_EQ(arrive(first_), SYNCD_OK);
  const pid_t child = fork();
  if (child == 0) {
    std::int32_t value = 0;
    syncd_step step = SYNCD_STEP_INIT;
    const bool told = syncd_worker_arrive(first_.get(), nullptr) == SYNCD_E_FORKED &&
                      syncd_worker_poll(first_.get(), &value, &step, nullptr) == SYNCD_E_FORKED &&
                      syncd_worker_descriptor(first_.get(), &value, nullptr) == SYNCD_E_FORKED &&
                      syncd_begin(first_.get(), 0, &step, nullptr) == SYNCD_E_FORKED;
    _exit(told ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace syncd::test
