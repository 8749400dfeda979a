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
#include <utility>
#include <vector>

#include "../libclient/fake_server.h"
#include "embedded_server.h"
#include "support/c_api.h"
#include "support/files.h"
#include "support/listening.h"

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

// ---- events

constexpr int kListeners = 8;

// What all listeners of a client share. `events` has no lock: their callbacks come one at a time,
// and none once the client is closed.
struct Listening {
  std::int64_t events = 0;
  std::atomic<int> told{0};  // those who have heard of something in their last life
};

// What one worker hears. Only its callback writes here; its owner reads once the worker is freed.
class Hearing {
 public:
  Hearing(Listening& all, bool last) : all_(all), last_(last) {}
  static void on_event(const syncd_event* event, void* hearing) {
    static_cast<Hearing*>(hearing)->hear(*event);
  }
  int events() const { return events_; }

 private:
  void hear(const syncd_event& event) {
    EXPECT_EQ(event.kind, SYNCD_EVENT_MEMBERS);
    EXPECT_GE(event.version, version_);
    version_ = event.version;
    ++all_.events;
    if (++events_ == 1 && last_) ++all_.told;
  }
  Listening& all_;
  const bool last_;
  int events_ = 0;
  std::uint64_t version_ = 0;
};

// Asks who is there, after which a change is told of again.
syncd_status ask(const Worker& worker, std::uint64_t& version) {
  syncd_members* members = nullptr;
  const syncd_status status = syncd_worker_members(worker.get(), 30'000, &members, nullptr);
  if (status == SYNCD_OK) {
    EXPECT_GE(syncd_members_list(members, nullptr), 1U);
    EXPECT_GE(syncd_members_version(members), version);
    version = syncd_members_version(members);
  }
  syncd_members_free(members);
  return status;
}

syncd_status iterate_and_ask(const Worker& worker, std::uint64_t& version) {
  syncd_step step = SYNCD_STEP_INIT;
  syncd_status status = syncd_begin(worker.get(), 30'000, &step, nullptr);
  if (status != SYNCD_OK) return status;
  status = syncd_push(worker.get(), step.iteration, nullptr, 30'000, nullptr, nullptr);
  return status == SYNCD_OK ? ask(worker, version) : status;
}

// Joins, works and is freed a few times, left or not; works the last time until the client is
// closed. Returns how many events came.
int listen(syncd_client* client, int rank, Listening& all) {
  constexpr int kLives = 6;
  int events = 0;
  std::uint64_t version = 0;
  for (int life = 0; life < kLives; ++life) {
    const bool last = life + 1 == kLives;
    auto hearing = std::make_unique<Hearing>(all, last);
    Worker worker = join(client, {.name = "listener-" + std::to_string(rank),
                                  .rank = rank,
                                  .world_size = 0,  // a visitor may have made the job
                                  .on_event = Hearing::on_event,
                                  .user_data = hearing.get()});
    syncd_status status = SYNCD_OK;
    for (int i = 0; status == SYNCD_OK && (last || i < 5); ++i) {
      status = iterate_and_ask(worker, version);
    }
    if (last) {
      EXPECT_TRUE(status == SYNCD_E_CANCELLED || status == SYNCD_E_CLOSED) << status;
    } else {
      EXPECT_EQ(status, SYNCD_OK);
      if (life % 2 == 0) {
        EXPECT_EQ(syncd_leave(worker.get(), 30'000, nullptr), SYNCD_OK);
      }
    }
    worker.reset();
    events += hearing->events();
  }
  return events;
}

// Others come and go, of which each listener is told while threads make calls of all kinds, while
// its handle is freed, and its callback's memory with it, and while the client is closed.
TEST(CapiThreads, EventsComeWhileWorkersAreFreedAndTheClientIsClosed) {
  const TempDir dir;
  EmbeddedServer server({.tcp = "off", .unix_path = dir.file("s"), .store = "memory"});
  std::atomic<bool> over{false};
  std::vector<std::thread> visitors;
  ApiClient visiting(server.address());
  for (int i = 0; i < 2; ++i) {
    visitors.emplace_back([&, rank = kListeners + i] {
      while (!over) {
        const Worker visitor =
            join(visiting.get(), {.name = "visitor-" + std::to_string(rank), .rank = rank});
        EXPECT_EQ(syncd_leave(visitor.get(), 30'000, nullptr), SYNCD_OK);
      }
    });
  }
  for (int round = 0; round < 5; ++round) {
    ApiClient client(server.address());
    Listening all;
    std::atomic<int> events{0};
    std::vector<std::thread> listeners;
    for (int rank = 0; rank < kListeners; ++rank) {
      listeners.emplace_back([&, rank] { events += listen(client.get(), rank, all); });
    }
    while (all.told < kListeners) std::this_thread::yield();
    client.close();
    const std::int64_t heard = all.events;
    for (std::thread& listener : listeners) listener.join();
    EXPECT_EQ(events, heard);
    EXPECT_EQ(all.events, heard) << "told of after the client was closed";
  }
  over = true;
  for (std::thread& visitor : visitors) visitor.join();
}

}  // namespace
}  // namespace syncd::test
