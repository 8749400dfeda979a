// Many threads in one client, as a trainer with many workers in a process has them: what the header
// allows at once is done at once here. Made for ThreadSanitizer; without it, it sees that nothing
// hangs and every answer is right.
#include <gtest/gtest.h>
#include <syncd/client.h>
#include <syncd/server.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../libclient/fake_server.h"
#include "embedded_server.h"
#include "support/c_api.h"
#include "support/files.h"

namespace syncd::test {
namespace {

constexpr int kThreads = 32;

ApiJoin join_of(int rank, const char* policy) {
  return {.policy = policy,
          .name = "worker-" + std::to_string(rank),
          .host = "here",
          .rank = rank,
          .world_size = kThreads};
}

// Handles that other threads may look at: set once, and freed when nobody looks any more.
using Handles = std::array<std::atomic<const syncd_worker*>, kThreads>;

// Everything that any thread may ask of any worker at any time.
void look_at_all(const Handles& handles, const std::atomic<bool>& over) {
  while (!over) {
    for (int rank = 0; rank < kThreads; ++rank) {
      const syncd_worker* worker = handles[static_cast<std::size_t>(rank)];
      if (worker == nullptr) continue;
      const std::int32_t advice = syncd_should_resync(worker);
      EXPECT_TRUE(advice == 0 || advice == 1) << advice;
      EXPECT_EQ(syncd_worker_rank(worker), rank);
      EXPECT_EQ(syncd_worker_world_size(worker), static_cast<std::uint32_t>(kThreads));
      EXPECT_STREQ(syncd_worker_job(worker), "job");
      EXPECT_STREQ(syncd_worker_policy(worker), "asp");
    }
    std::this_thread::yield();
  }
}

// A server that advises every worker to start each of its iterations again.
TEST(CapiThreads, ThirtyTwoWorkersOfOneClientAndThoseWhoWatchThem) {
  constexpr std::int64_t kIterations = 20;
  client::FakeServer server;
  server.behave([](auto& behaviour) { behaviour.resync = true; });
  ApiClient client(server.address());
  Handles handles{};
  std::atomic<bool> over{false};
  std::vector<ApiWorker> workers(kThreads);
  std::vector<std::thread> watchers;
  for (int i = 0; i < 3; ++i) watchers.emplace_back([&] { look_at_all(handles, over); });
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      ApiWorker& worker = workers[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(client.try_join(join_of(rank, "asp"), worker).ok());
      handles[static_cast<std::size_t>(rank)] = worker.get();
      for (std::int64_t k = 0; k < kIterations; ++k) {
        syncd_step step = SYNCD_STEP_INIT;
        ASSERT_TRUE(worker.begin(step).ok());
        ASSERT_EQ(step.iteration, k);
        while (syncd_should_resync(worker.get()) == 0) std::this_thread::yield();
        ASSERT_TRUE(worker.restarted(k, k % 2 == 0 ? 0 : 30'000).ok());
        EXPECT_EQ(syncd_should_resync(worker.get()), 0);
        ASSERT_TRUE(worker.push(k).ok());
      }
      EXPECT_TRUE(worker.leave().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  for (std::thread& thread : watchers) thread.join();
  EXPECT_EQ(server.pushes().size(), kThreads * static_cast<std::size_t>(kIterations));
  EXPECT_EQ(server.duplicates(), 0U);
}

// What the threads of one round have seen.
struct Round {
  std::atomic<std::size_t> pushed{0};
  std::atomic<int> ended{0};
};

// Pushes until the client is closed under it, with patience of all kinds.
void push_until_closed(ApiWorker worker, Round& round) {
  for (std::int64_t k = 0;;) {
    syncd_step step = SYNCD_STEP_INIT;
    Answer answer = worker.begin(step, k % 3 == 0 ? 0 : 30'000);
    if (answer.ok()) {
      ASSERT_EQ(step.iteration, k);
      syncd_should_resync(worker.get());
      do {
        answer = worker.push(k, k % 5 == 0 ? 1 : 30'000);
      } while (answer.status == SYNCD_E_TIMEOUT);
      if (answer.ok()) {
        ++k;
        ++round.pushed;
        continue;
      }
    }
    if (answer.status == SYNCD_E_TIMEOUT) continue;
    EXPECT_TRUE(answer.status == SYNCD_E_CANCELLED || answer.status == SYNCD_E_CLOSED)
        << answer.text();
    EXPECT_EQ(worker.leave().status, SYNCD_E_CLOSED);
    ++round.ended;
    return;
  }
}

// Against the real daemon, in the same process: the client is closed while its workers' calls are
// under way, waiting for each other or for the disk, and each thread frees its own handle.
TEST(CapiThreads, ClosingAClientThatThirtyTwoThreadsUse) {
  const TempDir dir;
  EmbeddedServer server({.tcp = "off", .unix_path = dir.file("s"), .store = dir.file("store")});
  for (int number = 0; number < 4; ++number) {
    ApiClient client(server.address());
    Round round;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kThreads; ++rank) {
      ApiJoin join = join_of(rank, number % 2 == 0 ? "ssp:2" : "specsync+asp");
      join.job = "round-" + std::to_string(number);
      threads.emplace_back([worker = client.join(join), &round]() mutable {
        push_until_closed(std::move(worker), round);
      });
    }
    while (round.pushed < kThreads * 5) std::this_thread::yield();
    client.close();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(round.ended, kThreads);
  }
}

// Clients that come and go beside each other, and the daemon that stops under them.
TEST(CapiThreads, ThirtyTwoClientsAndAServerThatStops) {
  const TempDir dir;
  EmbeddedServer server({.tcp = "off", .unix_path = dir.file("s"), .store = "memory"});
  const std::string address = server.address();
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  { const ApiClient first(address); }  // forgets the environment, which threads must not
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      for (int life = 0; life < 3; ++life) {
        ApiClient client(address, {.reconnect_ms = 1});
        ApiWorker worker = client.join(join_of(rank, "asp"));
        ASSERT_TRUE(worker.iterate(3).ok());
        if (life < 2) {
          ASSERT_TRUE(worker.leave().ok());
          continue;
        }
        ++served;
        Answer answer;
        while (answer.ok()) answer = worker.iterate(1);
        EXPECT_EQ(answer.status, SYNCD_E_UNREACHABLE) << answer.text();
      }
    });
  }
  while (served < kThreads) std::this_thread::yield();
  server.stop();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace syncd::test
