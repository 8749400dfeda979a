// What a worker shows to the others, the list of members, and events, through the exported symbols
// against an embedded daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <syncd/client.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "embedded_server.h"
#include "support/c_api.h"
#include "support/listening.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

class Announce : public testing::Test {
 protected:
  Worker listener(const std::string& policy = "asp") {
    return join(client_.get(), {.policy = policy,
                                .name = "a",
                                .rank = 0,
                                .on_event = Inbox::on_event,
                                .user_data = &inbox_});
  }

  const EmbeddedServer server_{
      {.config = "[timeouts]\nworker_grace = \"60s\"\nexit_grace = \"60s\"\n", .store = "memory"}};
  ApiClient client_{server_.address()};
  ApiClient other_{server_.address()};
  Inbox inbox_;
};

TEST_F(Announce, TheListShowsWhatEachWorkerGave) {
  const std::string bytes("\x01\x00\xff", 3);
  const Worker a = join(client_.get(), {.name = "a", .rank = 0, .data = bytes});
  const Worker b = join(other_.get(), {.name = "b", .rank = 1});
  std::uint64_t before = 0;
  EXPECT_EQ(list(b.get(), &before), (std::vector<Member>{{0, SYNCD_MEMBER_ACTIVE, "a", bytes},
                                                         {1, SYNCD_MEMBER_ACTIVE, "b", ""}}));
  ASSERT_EQ(syncd_leave(a.get(), 30'000, nullptr), SYNCD_OK);
  std::uint64_t after = 0;
  EXPECT_EQ(list(b.get(), &after), (std::vector<Member>{{0, SYNCD_MEMBER_LEFT, "a", bytes},
                                                        {1, SYNCD_MEMBER_ACTIVE, "b", ""}}));
  EXPECT_GT(after, before);
  // One that returns under the same name shows what it then says.
  const Worker again = join(client_.get(), {.name = "a", .data = "x"});
  EXPECT_EQ(list(b.get())[0], (Member{0, SYNCD_MEMBER_ACTIVE, "a", "x"}));
}

TEST_F(Announce, AListLongerThanAFrameIsWhole) {
  std::vector<Worker> workers;
  for (int i = 0; i < 120; ++i) {
    workers.push_back(join(client_.get(), {.name = "w" + std::to_string(i),
                                           .rank = i,
                                           .world_size = 120,
                                           .data = std::string(1024, static_cast<char>(i))}));
  }
  const std::vector<Member> all = list(workers[7].get());
  ASSERT_EQ(all.size(), 120U);
  for (int i = 0; i < 120; ++i) {
    EXPECT_EQ(all[static_cast<std::size_t>(i)],
              (Member{i, SYNCD_MEMBER_ACTIVE, "w" + std::to_string(i),
                      std::string(1024, static_cast<char>(i))}));
  }
}

TEST_F(Announce, AChangeOfMembershipIsTold) {
  const Worker a = listener();
  list(a.get());
  Worker b = join(other_.get(), {.name = "b", .rank = 1});
  syncd_event event = inbox_.next();
  EXPECT_EQ(event.kind, SYNCD_EVENT_MEMBERS);
  EXPECT_EQ(event.iteration, -1);
  EXPECT_EQ(event.wait_us, -1);
  std::uint64_t version = 0;
  EXPECT_EQ(list(a.get(), &version).size(), 2U);
  EXPECT_EQ(version, event.version);
  other_.close();
  event = inbox_.next();
  EXPECT_EQ(event.kind, SYNCD_EVENT_MEMBERS);
  EXPECT_EQ(list(a.get())[1].state, SYNCD_MEMBER_DISCONNECTED);
  EXPECT_EQ(inbox_.size(), 0U);
}

TEST_F(Announce, TheEndOfTheJobIsTold) {
  const Worker a = listener();
  RawClient raw(server_.address().substr(4));
  raw.hello();
  raw.call_for<wire::Ok>(wire::StopJobRequest{"job", "enough"});
  EXPECT_EQ(inbox_.next().kind, SYNCD_EVENT_STOP);
}

// Two workers under elastic_bsp: the plan says after which push each meets the other.
TEST_F(Announce, ABarrierPlanIsTold) {
  const Worker a = listener("elastic_bsp:4");
  const Worker b = join(other_.get(), {.policy = "elastic_bsp:4", .name = "b", .rank = 1});
  ASSERT_EQ(inbox_.next().kind, SYNCD_EVENT_MEMBERS);
  std::thread beside([&] {
    syncd_step step = SYNCD_STEP_INIT;
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(syncd_begin(b.get(), 30'000, &step, nullptr), SYNCD_OK);
      EXPECT_EQ(syncd_push(b.get(), step.iteration, nullptr, 30'000, nullptr, nullptr), SYNCD_OK);
    }
  });
  syncd_step step = SYNCD_STEP_INIT;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(syncd_begin(a.get(), 30'000, &step, nullptr), SYNCD_OK);
    EXPECT_EQ(syncd_push(a.get(), step.iteration, nullptr, 30'000, nullptr, nullptr), SYNCD_OK);
  }
  const syncd_event event = inbox_.next();
  EXPECT_EQ(event.kind, SYNCD_EVENT_PLAN);
  EXPECT_GE(event.iteration, 1) << "it has pushed two";
  EXPECT_GE(event.wait_us, -1);
  EXPECT_EQ(event.version, 0U);
  beside.join();
}

// Two workers under SpecSync: the other's push, within 200 ms after this one's grant, makes the
// daemon advise it to start again. A busy machine may let that moment pass, so it gets several.
TEST_F(Announce, TheAdviceToRestartIsTold) {
  const std::string policy = "specsync:fixed,200,0.1+asp";
  const Worker a = listener(policy);
  const Worker b = join(other_.get(), {.policy = policy, .name = "b", .rank = 1});
  ASSERT_EQ(inbox_.next().kind, SYNCD_EVENT_MEMBERS);
  syncd_step step = SYNCD_STEP_INIT;
  EXPECT_EQ(syncd_begin(a.get(), 0, &step, nullptr), SYNCD_E_TIMEOUT) << "b has not begun";
  for (int i = 0; i < 20; ++i) {
    if (i > 0) {
      ASSERT_EQ(syncd_push(a.get(), step.iteration, nullptr, 30'000, nullptr, nullptr), SYNCD_OK);
    }
    syncd_step others = SYNCD_STEP_INIT;
    ASSERT_EQ(syncd_begin(b.get(), 30'000, &others, nullptr), SYNCD_OK);
    ASSERT_EQ(syncd_begin(a.get(), 30'000, &step, nullptr), SYNCD_OK);
    EXPECT_EQ(syncd_should_resync(a.get()), 0);
    ASSERT_EQ(syncd_push(b.get(), others.iteration, nullptr, 30'000, nullptr, nullptr), SYNCD_OK);
    if (inbox_.comes_within(std::chrono::seconds(2))) break;
  }
  const syncd_event event = inbox_.next();
  EXPECT_EQ(event.kind, SYNCD_EVENT_RESYNC);
  EXPECT_EQ(event.iteration, step.iteration);
  EXPECT_EQ(event.wait_us, -1);
  EXPECT_EQ(event.version, 0U);
  EXPECT_EQ(syncd_should_resync(a.get()), 1);
  EXPECT_EQ(*syncd_worker_resync_flag(a.get()), 1U);
  ASSERT_EQ(syncd_worker_restarted(a.get(), step.iteration, 30'000, nullptr), SYNCD_OK);
  EXPECT_EQ(syncd_should_resync(a.get()), 0);
}

// ---- the callback's rules

struct Careless {
  syncd_client* client = nullptr;
  std::atomic<syncd_worker*> worker{nullptr};
  std::atomic<bool> called{false};
  Answer begin, members, begin_after_arrive;
  static void on_event(const syncd_event*, void* given) {
    auto& self = *static_cast<Careless*>(given);
    syncd_worker* worker = self.worker.exchange(nullptr);
    if (worker == nullptr) return;
    const auto answer = [](auto&& call) {
      syncd_error* error = nullptr;
      Answer made;
      made.status = call(&error);
      made.message = syncd_error_message(error);
      syncd_error_free(error);
      return made;
    };
    self.begin = answer([&](auto** error) {
      syncd_step step = SYNCD_STEP_INIT;
      return syncd_begin(worker, 0, &step, error);
    });
    self.members = answer([&](auto** error) {
      syncd_members* members = nullptr;
      return syncd_worker_members(worker, 0, &members, error);
    });
    EXPECT_EQ(syncd_should_resync(worker), 0);
    EXPECT_EQ(syncd_worker_arrive(worker, nullptr), SYNCD_OK);
    self.begin_after_arrive = answer([&](auto** error) {
      syncd_step step = SYNCD_STEP_INIT;
      return syncd_begin(worker, SYNCD_WAIT_FOREVER, &step, error);
    });
    syncd_worker_free(worker);  // its own
    self.called = true;
    self.called.notify_all();
  }
};

TEST_F(Announce, WhatBlocksIsRefusedInACallbackAndTheRestIsNot) {
  Careless careless;
  Worker a = join(client_.get(),
                  {.name = "a", .rank = 0, .on_event = Careless::on_event, .user_data = &careless});
  careless.worker = a.release();
  const Worker b = join(other_.get(), {.name = "b", .rank = 1});
  careless.called.wait(false);
  EXPECT_EQ(careless.begin.status, SYNCD_E_STATE);
  EXPECT_EQ(careless.begin.message, "an event's callback must not call a function that may block");
  EXPECT_EQ(careless.members.status, SYNCD_E_STATE);
  EXPECT_EQ(careless.begin_after_arrive.status, SYNCD_E_STATE);
}

TEST_F(Announce, ACallbackMayCloseItsClient) {
  struct Closer {
    std::atomic<syncd_client*> client{nullptr};
    std::atomic<bool> called{false};
    std::atomic<bool> closed{false};
    std::atomic<int> calls_after{0};
    static void on_event(const syncd_event*, void* given) {
      auto& self = *static_cast<Closer*>(given);
      if (self.closed) ++self.calls_after;
      syncd_client* client = self.client.exchange(nullptr);
      if (client == nullptr) return;
      syncd_client_close(client);
      self.closed = true;
      self.called = true;
      self.called.notify_all();
    }
  };
  Closer closer;
  const std::string address = server_.address();
  syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
  options.addresses = address.c_str();
  syncd_client* client = nullptr;
  ASSERT_EQ(syncd_client_open(&options, &client, nullptr), SYNCD_OK);
  const Worker a =
      join(client, {.name = "a", .rank = 0, .on_event = Closer::on_event, .user_data = &closer});
  const Worker c =
      join(client, {.name = "c", .rank = 2, .on_event = Closer::on_event, .user_data = &closer});
  list(a.get());
  list(c.get());
  closer.client = client;
  const Worker b = join(other_.get(), {.name = "b", .rank = 1});
  closer.called.wait(false);
  // From there on the worker's calls end, whether they come before the client's end or after it.
  syncd_step step = SYNCD_STEP_INIT;
  const syncd_status ended = syncd_begin(a.get(), SYNCD_WAIT_FOREVER, &step, nullptr);
  EXPECT_TRUE(ended == SYNCD_E_CANCELLED || ended == SYNCD_E_CLOSED) << ended;
  EXPECT_EQ(closer.calls_after, 0);  // the other worker's is not delivered any more
}

// A child of fork() has the connection's descriptor, too.
TEST_F(Announce, AClosedClientIsGoneAlsoWhereAChildLives) {
  const Worker b = join(
      other_.get(), {.name = "b", .rank = 1, .on_event = Inbox::on_event, .user_data = &inbox_});
  auto gone = std::make_unique<ApiClient>(server_.address());
  const Worker a = join(gone->get(), {.name = "a", .rank = 0});
  inbox_.next();
  list(b.get());
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  gone->close();
  EXPECT_EQ(inbox_.next().kind, SYNCD_EVENT_MEMBERS);
  EXPECT_EQ(list(b.get())[0].state, SYNCD_MEMBER_DISCONNECTED);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

// The memory that a callback uses may go as soon as the worker is freed: made for the sanitizers.
TEST_F(Announce, NoneIsRunningOnceTheWorkerIsFreed) {
  for (int i = 0; i < 50; ++i) {
    auto inbox = std::make_unique<Inbox>();
    Worker a =
        join(client_.get(),
             {.name = "a", .rank = 0, .on_event = Inbox::on_event, .user_data = inbox.get()});
    const Worker b = join(other_.get(), {.name = "b" + std::to_string(i), .rank = i + 1});
    if (i % 2 == 0) inbox->next();
    a.reset();
    inbox.reset();
    if (i % 5 != 0) continue;
    EXPECT_EQ(syncd_leave(b.get(), 30'000, nullptr), SYNCD_OK);
  }
}

TEST_F(Announce, BadArgumentsAreNamed) {
  const std::string bytes(2000, 'x');
  const auto refused = [&](const void* data, std::size_t size) {
    syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
    options.data = data;
    options.data_size = size;
    syncd_worker* worker = nullptr;
    syncd_error* error = nullptr;
    EXPECT_EQ(syncd_join(client_.get(), &options, &worker, &error), SYNCD_E_INVALID);
    const std::string message = syncd_error_message(error);
    syncd_error_free(error);
    return message;
  };
  EXPECT_EQ(refused(bytes.data(), 1025),
            "syncd_join_options.data_size is 1025; allowed: at most 1024");
  EXPECT_EQ(refused(nullptr, 3), "syncd_join_options.data is NULL, but data_size is 3");
  const Worker a = join(client_.get(), {.name = "a"});
  syncd_members* members = nullptr;
  EXPECT_EQ(syncd_worker_members(nullptr, 0, &members, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_worker_members(a.get(), 0, nullptr, nullptr), SYNCD_E_INVALID);
  EXPECT_EQ(syncd_worker_members(a.get(), -3, &members, nullptr), SYNCD_E_INVALID);
  client_.close();
  EXPECT_EQ(syncd_worker_members(a.get(), 0, &members, nullptr), SYNCD_E_CLOSED);
  EXPECT_EQ(members, nullptr);
  EXPECT_EQ(syncd_members_version(nullptr), 0U);
  EXPECT_EQ(syncd_members_list(nullptr, nullptr), 0U);
  syncd_members_free(nullptr);
}

// A program that was built before there were data and events passes the struct as it was then.
TEST_F(Announce, AnOlderProgramsOptionsGoOnWorking) {
  syncd_join_options options = SYNCD_JOIN_OPTIONS_INIT;
  options.struct_size = offsetof(syncd_join_options, data);
  options.job = "job";
  options.policy = "asp";
  options.world_size = 2;
  options.data = reinterpret_cast<const void*>(1);  // not its own any more
  options.data_size = 77;
  options.on_event = reinterpret_cast<syncd_event_callback>(1);
  syncd_worker* worker = nullptr;
  ASSERT_EQ(syncd_join(client_.get(), &options, &worker, nullptr), SYNCD_OK);
  const Worker b = join(other_.get(), {.name = "b"});
  syncd_worker_free(worker);
}

}  // namespace
}  // namespace syncd::test
