// The client's threads, sockets and blocking calls against a small server on real sockets.
#include "libclient/drivers.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "fake_server.h"
#include "print_status.h"

namespace {

// While it is held, the system's look-up of the name "slow.test" hangs; afterwards it means this
// machine.
class SlowName {
 public:
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
  }
  void look_up() {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    --asked_;
    changed_.notify_all();
  }
  void await_asked(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return asked_ == count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  int asked_ = 0;  // look-ups that hang now
};

SlowName& slow_name() {
  static auto* name = new SlowName;  // outlives the threads that are left behind
  return *name;
}

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* hints,
                           addrinfo** result) {
  using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const Real real = reinterpret_cast<Real>(dlsym(RTLD_NEXT, "getaddrinfo"));
  if (std::string_view(host) != "slow.test") return real(host, port, hints, result);
  slow_name().look_up();
  return real("127.0.0.1", port, hints, result);
}

namespace syncd::client {
namespace {

using testing::HasSubstr;

constexpr TimeUs kSecond = 1'000'000;

ClientOptions options_for(const std::string& addresses) {
  ClientOptions options;
  std::string error;
  EXPECT_TRUE(parse_endpoints(addresses, options.endpoints, error)) << error;
  options.session.link.client_name = "client_test";
  options.session.link.client_version = "1";
  return options;
}

// A client that needs one driver.
Completion open(ClientOptions options, std::shared_ptr<Driver>& client) {
  std::shared_ptr<Drivers> drivers;
  Completion completion = Drivers::open(std::move(options), drivers);
  if (drivers != nullptr) client = drivers->first();
  return completion;
}

std::shared_ptr<Driver> open(const std::string& addresses) {
  std::shared_ptr<Driver> client;
  const Completion completion = open(options_for(addresses), client);
  EXPECT_EQ(completion.status, Status::kOk) << completion.message;
  return client;
}

// Any call of the session's that waits.
template <typename What, typename... Given>
Completion call(Driver& client, TimeUs timeout_us, What what, Given... given) {
  return client.perform(
      [&](Session& session, const Ask& ask) { (session.*what)(ask, std::move(given)...); },
      timeout_us);
}
Completion begin(Driver& client, WorkerId worker, TimeUs timeout_us) {
  return call(client, timeout_us, &Session::begin, worker);
}
Completion push(Driver& client, WorkerId worker, std::int64_t iteration, TimeUs timeout_us) {
  return call(client, timeout_us, &Session::push, worker, iteration, PushInfo{});
}
Completion leave(Driver& client, WorkerId worker) {
  return call(client, 30 * kSecond, &Session::leave, worker);
}
Completion try_join(Driver& client, JoinRequest request, TimeUs timeout_us) {
  return call(client, timeout_us, &Session::join, std::move(request));
}

JoinRequest request(const std::string& name) {
  JoinRequest request;
  request.job = "j";
  request.name = name;
  request.host = "h";
  request.signals = std::make_shared<WorkerSignals>();
  return request;
}

WorkerId join(Driver& client, const std::string& name) {
  const Completion completion = try_join(client, request(name), 30 * kSecond);
  EXPECT_EQ(completion.status, Status::kOk) << completion.message;
  const auto* result = std::get_if<JoinResult>(&completion.result);
  return result != nullptr ? result->worker : kNoWorker;
}

// `count` rounds of begin and push; the last iteration, or -1 if something failed.
std::int64_t train(Driver& client, WorkerId worker, int count) {
  std::int64_t iteration = -1;
  for (int i = 0; i < count; ++i) {
    const Completion step = begin(client, worker, 60 * kSecond);
    EXPECT_EQ(step.status, Status::kOk) << step.message;
    if (step.status != Status::kOk) return -1;
    iteration = std::get<Step>(step.result).iteration;
    const Completion pushed = push(client, worker, iteration, 60 * kSecond);
    EXPECT_EQ(pushed.status, Status::kOk) << pushed.message;
    if (pushed.status != Status::kOk) return -1;
  }
  return iteration;
}

class OverTransport : public testing::TestWithParam<FakeServer::Kind> {};
INSTANTIATE_TEST_SUITE_P(Client, OverTransport,
                         testing::Values(FakeServer::Kind::kUnix, FakeServer::Kind::kTcp),
                         [](const auto& param) {
                           return param.param == FakeServer::Kind::kUnix ? "Unix" : "Tcp";
                         });

TEST_P(OverTransport, TheLoopGoesRound) {
  FakeServer server(GetParam());
  const auto client = open(server.address());
  EXPECT_EQ(server.last_hello().client_name, "client_test");
  const WorkerId worker = join(*client, "w");
  EXPECT_EQ(train(*client, worker, 20), 19);
  EXPECT_EQ(leave(*client, worker).status, Status::kOk);
  EXPECT_EQ(server.pushes().size(), 20U);
}

TEST_P(OverTransport, ManyThreadsShareOneClient) {
  FakeServer server(GetParam());
  const auto client = open(server.address());
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      const WorkerId worker = join(*client, "w" + std::to_string(i));
      EXPECT_EQ(train(*client, worker, 50), 49);
      EXPECT_EQ(leave(*client, worker).status, Status::kOk);
      client->release(worker);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server.pushes().size(), 16U * 50U);
  EXPECT_EQ(server.received("Hello"), 1U) << "one connection";
}

// The loop is not woken for what has woken a caller, however much of it comes behind the answer.
TEST_P(OverTransport, WhatComesBehindAnAnswerIsReadWithoutAnotherCall) {
  for (const std::size_t filling : {0U, 1'000U, 64U * 1024U, 150'000U}) {
    FakeServer server(GetParam());
    server.behave([&](auto& behaviour) {
      behaviour.resync = true;
      behaviour.filling = filling;
    });
    const auto client = open(server.address());
    const JoinRequest asked = request("w");
    const Completion joined = try_join(*client, asked, 30 * kSecond);
    ASSERT_EQ(joined.status, Status::kOk) << joined.message;
    const WorkerId worker = std::get<JoinResult>(joined.result).worker;
    const auto advised = [&] {
      return std::atomic_ref(*asked.signals->flag()).load(std::memory_order_relaxed) != 0;
    };
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(begin(*client, worker, 60 * kSecond).status, Status::kOk);
      const TimeUs deadline_us = Driver::now_us() + 60 * kSecond;
      while (!advised() && Driver::now_us() < deadline_us) std::this_thread::yield();
      ASSERT_TRUE(advised()) << "iteration " << i << ", filling " << filling;
      ASSERT_EQ(push(*client, worker, i, 60 * kSecond).status, Status::kOk);
    }
    EXPECT_EQ(leave(*client, worker).status, Status::kOk);
  }
}

TEST_P(OverTransport, ACutConnectionIsInvisible) {
  FakeServer server(GetParam());
  const auto client = open(server.address());
  server.behave([](auto& behaviour) { behaviour.cut_every = 10; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const WorkerId worker = join(*client, "w" + std::to_string(i));
      EXPECT_EQ(train(*client, worker, 40), 39);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(server.pushes().size(), 4U * 40U);
  EXPECT_GE(server.received("Hello"), 4U * 40U / 10U);
}

TEST(Client, ABeginStaysBlockedWhileTheServerIsAwayAndResumes) {
  FakeServer server(FakeServer::Kind::kTcp);
  server.behave([](auto& behaviour) { behaviour.hold_begins = true; });
  const auto client = open(server.address());
  const WorkerId worker = join(*client, "w");
  std::thread blocked([&] { EXPECT_EQ(train(*client, worker, 1), 0); });
  server.await("Begin", 1);
  server.cut(false);
  server.accept_again();
  server.await("Begin", 2);  // sent again after the resume
  EXPECT_EQ(server.last_join().incarnation, 100U);
  server.release_begins();
  blocked.join();
}

TEST(Client, ABeginStaysBlockedWhileTheDaemonMovesToAnotherEndpoint) {
  FakeServer first(FakeServer::Kind::kTcp);
  first.behave([](auto& behaviour) { behaviour.hold_begins = true; });
  FakeServer second(FakeServer::Kind::kTcp);
  second.cut(false);  // stands by
  const auto client = open(second.address() + "," + first.address());
  const WorkerId worker = join(*client, "w");
  std::thread blocked([&] { EXPECT_EQ(train(*client, worker, 1), 0); });
  first.await("Begin", 1);
  first.cut(false);
  second.accept_again();
  blocked.join();
  EXPECT_EQ(second.last_join().incarnation, 100U);
  EXPECT_EQ(second.pushes().size(), 1U);
}

TEST(Client, ExplainAndCancelWork) {
  FakeServer server;
  server.behave([](auto& behaviour) { behaviour.hold_begins = true; });
  const auto client = open(server.address());
  const WorkerId worker = join(*client, "w");
  std::thread blocked(
      [&] { EXPECT_EQ(begin(*client, worker, 60 * kSecond).status, Status::kCancelled); });
  server.await("Begin", 1);
  const Completion explained = call(*client, 30 * kSecond, &Session::explain, worker);
  EXPECT_EQ(std::get<Explanation>(explained.result).rule, "bsp");
  EXPECT_EQ(call(*client, 30 * kSecond, &Session::cancel_begin, worker).status, Status::kOk);
  blocked.join();
}

// Nobody waits for it.
class Asked final : public Call {
 public:
  std::future<Completion> answer() { return answer_.get_future(); }

 private:
  void finish(Completion&& completion) noexcept override {
    answer_.set_value(std::move(completion));
  }
  std::promise<Completion> answer_;
};

// The kernel has told the reader, and not the loop, that the other worker's grant is there. The
// pauses make that likely; whether the test passes does not depend on them.
TEST(Client, ACallThatEndsAsItsThreadWakesLeavesNothingUnread) {
  FakeServer server;
  server.behave([](auto& behaviour) { behaviour.hold_begins = behaviour.hold_collects = true; });
  Asked asked;
  std::future<Completion> granted = asked.answer();
  const auto client = open(server.address());
  const WorkerId worker = join(*client, "w");
  const WorkerId other = join(*client, "other");
  client->submit(asked, [&](Session& session, const Ask& ask) { session.begin(ask, other); });
  server.await("Begin", 1);
  std::thread reader([&] {
    const Completion collected = call(*client, 60 * kSecond, &Session::collect, worker, 0);
    EXPECT_EQ(collected.status, Status::kCancelled) << collected.message;
  });
  server.await("Collect", 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it sleeps, most likely
  server.behave([](auto& behaviour) { behaviour.silent = true; });
  const auto cancel = [&](Session& session, const Ask& ask) {  // the reader cannot go on meanwhile
    server.release_begins();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it is awake, most likely
    session.cancel_begin(ask, worker);
  };
  EXPECT_EQ(client->perform(cancel, 0).status, Status::kTimeout);
  reader.join();
  ASSERT_EQ(granted.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(granted.get().status, Status::kOk);
}

TEST(Client, ClosingRacesWithCallsSafely) {
  for (int round = 0; round < 20; ++round) {
    FakeServer server;
    const auto client = open(server.address());
    std::atomic<int> running{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        Completion completion = try_join(*client, request("w" + std::to_string(i)), kNever);
        ++running;
        const auto* joined = std::get_if<JoinResult>(&completion.result);
        if (joined == nullptr) return;
        const WorkerId worker = joined->worker;
        while (completion.status == Status::kOk) {
          completion = begin(*client, worker, kNever);
          if (completion.status != Status::kOk) break;
          completion = push(*client, worker, std::get<Step>(completion.result).iteration, kNever);
        }
        EXPECT_THAT(completion.status, testing::AnyOf(Status::kCancelled, Status::kClosed));
        client->release(worker);
      });
    }
    while (running < 4) std::this_thread::yield();
    client->stop();
    for (std::thread& thread : threads) thread.join();
  }
}

// ---- The first connection -----------------------------------------------------------------------

Completion fail_to_open(ClientOptions options) {
  std::shared_ptr<Driver> client;
  Completion completion = open(std::move(options), client);
  EXPECT_EQ(client, nullptr);
  return completion;
}

TEST(ClientOpen, NobodyThereIsSaidForEachEndpoint) {
  FakeServer server(FakeServer::Kind::kTcp);
  server.cut(false);
  ClientOptions options = options_for("unix:/tmp/no-such-socket-here," + server.address());
  options.connect_timeout_us = 200'000;
  const Completion completion = fail_to_open(options);
  EXPECT_EQ(completion.status, Status::kUnreachable);
  EXPECT_THAT(completion.message, HasSubstr("no daemon answered within 200 ms"));
  EXPECT_THAT(completion.message, HasSubstr("no-such-socket-here: no such file or directory"));
  EXPECT_THAT(completion.message, HasSubstr("127.0.0.1"));
}

TEST(ClientOpen, TheNextEndpointIsTakenAtOnce) {
  FakeServer server;
  const auto client = open("unix:/tmp/no-such-socket-here," + server.address());
  EXPECT_NE(join(*client, "w"), kNoWorker);
}

TEST(ClientOpen, AnEndpointThatSwallowsPacketsDoesNotHoldUpTheNext) {
  FakeServer silent(FakeServer::Kind::kTcp);
  silent.behave([](auto& behaviour) { behaviour.mute = true; });
  FakeServer server(FakeServer::Kind::kTcp);
  ClientOptions options = options_for(silent.address() + "," + server.address());
  options.connect_timeout_us = kHandshakeTimeoutUs - 1;  // less than a single endpoint would get
  std::shared_ptr<Driver> client;
  const Completion completion = open(options, client);
  EXPECT_EQ(completion.status, Status::kOk) << completion.message;
  EXPECT_EQ(silent.received("Hello"), 1U);
}

TEST(ClientOpen, AHostNameIsLookedUp) {
  FakeServer server(FakeServer::Kind::kTcp);
  const std::string address = server.address();
  // The name may mean ::1 first, where nobody listens: the other address is tried then.
  const auto client = open("localhost" + address.substr(address.rfind(':')));
  EXPECT_NE(join(*client, "w"), kNoWorker);
}

TEST(ClientOpen, AHostNameThatMeansNothingIsSaid) {
  ClientOptions options = options_for("no-such-host.invalid:1");
  options.connect_timeout_us = 300'000;
  std::shared_ptr<Driver> client;
  const Completion completion = open(options, client);
  EXPECT_EQ(completion.status, Status::kUnreachable);
  EXPECT_THAT(completion.message, HasSubstr("tcp:no-such-host.invalid:1: "));
}

TEST(ClientOpen, ALookUpThatHangsHoldsUpNeitherOpenNorClose) {
  FakeServer server(FakeServer::Kind::kTcp);
  const std::string address = server.address();
  slow_name().hold();
  ClientOptions options = options_for("slow.test" + address.substr(address.rfind(':')));
  options.connect_timeout_us = 50'000;
  // Returning at all is the proof: nobody lets the look-up go on before that.
  const Completion completion = fail_to_open(options);
  EXPECT_EQ(completion.status, Status::kUnreachable);
  EXPECT_THAT(completion.message, HasSubstr("tcp:slow.test:"));
  EXPECT_THAT(completion.message, HasSubstr("no answer yet"));
  slow_name().await_asked(1);
  slow_name().release();
  slow_name().await_asked(0);
}

TEST(ClientOpen, ALookUpMayTakeItsTime) {
  FakeServer server(FakeServer::Kind::kTcp);
  const std::string address = server.address();
  slow_name().hold();
  std::thread releases([] {
    slow_name().await_asked(1);
    slow_name().release();
  });
  const auto client = open("slow.test" + address.substr(address.rfind(':')));
  releases.join();
  EXPECT_NE(join(*client, "w"), kNoWorker);
}

TEST(ClientOpen, ARefusalIsGivenAtOnce) {
  FakeServer server;
  server.behave([](auto& behaviour) { behaviour.refuse_hello = Status::kAuth; });
  ClientOptions options = options_for(server.address());
  options.connect_timeout_us = kNever;
  const Completion completion = fail_to_open(options);
  EXPECT_EQ(completion.status, Status::kAuth);
  EXPECT_THAT(completion.message, HasSubstr("not you"));
}

TEST(ClientOpen, AServerThatSaysNothingIsGivenUp) {
  FakeServer server;
  server.behave([](auto& behaviour) { behaviour.mute = true; });
  ClientOptions options = options_for(server.address());
  options.connect_timeout_us = 100'000;
  EXPECT_EQ(fail_to_open(options).status, Status::kUnreachable);
}

// ---- Heartbeats, in real time: nothing here depends on how fast it is ---------------------------

TEST(ClientHeartbeat, AServerThatFallsSilentIsLeftAndFoundAgain) {
  FakeServer server;
  server.behave([](auto& behaviour) {
    behaviour.heartbeat_interval_ms = 20;
    behaviour.heartbeat_timeout_ms = 200;
  });
  const auto client = open(server.address());
  const WorkerId worker = join(*client, "w");
  server.await("Heartbeat", 2);
  server.behave([](auto& behaviour) { behaviour.silent = true; });
  std::thread blocked([&] { EXPECT_EQ(train(*client, worker, 1), 0); });
  server.await("Hello", 3);
  server.behave([](auto& behaviour) { behaviour.silent = false; });
  server.cut();  // what it has swallowed it will never answer
  blocked.join();
}

// ---- Processes ----------------------------------------------------------------------------------

TEST(ClientFork, AChildIsToldSoAndMayOpenItsOwn) {
  FakeServer server;
  server.behave([](auto& behaviour) { behaviour.hold_begins = true; });
  auto client = open(server.address());
  const WorkerId worker = join(*client, "w");
  // A thread of the parent is inside the client all the while.
  std::thread blocked([&] { EXPECT_EQ(begin(*client, worker, kNever).status, Status::kOk); });
  server.await("Begin", 1);
  const pid_t child = fork();
  if (child == 0) {
    // No gtest in here: the child only says what it saw.
    alarm(60);
    if (begin(*client, worker, kNever).status != Status::kForked) _exit(1);
    if (try_join(*client, request("x"), kNever).status != Status::kForked) _exit(2);
    client->release(worker);
    client->stop();
    client.reset();
    if (!kChildMayStartThreads) _exit(0);
    std::shared_ptr<Driver> own;
    ClientOptions options;
    std::string error;
    parse_endpoints(server.address(), options.endpoints, error);
    if (open(options, own).status != Status::kOk) _exit(3);
    const Completion joined = try_join(*own, request("child"), kNever);
    if (joined.status != Status::kOk) _exit(4);
    own->stop();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  server.release_begins();
  blocked.join();
  EXPECT_EQ(push(*client, worker, 0, 30 * kSecond).status, Status::kOk) << "the parent's works";
}

TEST(ClientSignals, AClosedSocketDoesNotRaiseSigpipe) {
  // The default action of SIGPIPE would end this process.
  ASSERT_NE(signal(SIGPIPE, SIG_DFL), SIG_ERR);
  FakeServer server;
  const auto client = open(server.address());
  const WorkerId worker = join(*client, "w");
  for (int i = 0; i < 50; ++i) {
    server.cut();
    EXPECT_EQ(train(*client, worker, 1), i);
  }
}

}  // namespace
}  // namespace syncd::client
