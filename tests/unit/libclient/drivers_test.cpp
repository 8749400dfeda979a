// A client of a cluster whose shards have a daemon each: which driver it makes, when, and what it
// says where that cannot be.
#include "libclient/drivers.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "fake_server.h"
#include "print_status.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;

constexpr TimeUs kLong = 60'000'000;

ClientOptions options_of(FakeServer& server) {
  ClientOptions options;
  std::string error;
  EXPECT_TRUE(parse_endpoints(server.address(), options.endpoints, error)) << error;
  options.connect_timeout_us = kLong;
  return options;
}

std::shared_ptr<Drivers> open_all(FakeServer& server) {
  std::shared_ptr<Drivers> drivers;
  const Completion completion = Drivers::open(options_of(server), drivers);
  EXPECT_EQ(completion.status, Status::kOk) << completion.message;
  return drivers;
}

std::shared_ptr<Driver> driver_for(Drivers& drivers, const std::string& job) {
  std::shared_ptr<Driver> driver;
  const Completion completion = drivers.driver_for(job, kLong, driver);
  EXPECT_EQ(completion.status, Status::kOk) << completion.message;
  return driver;
}

Completion join(Driver& driver, JoinRequest request) {
  return driver.perform(
      [&](Session& session, const Ask& ask) { session.join(ask, std::move(request)); }, kLong);
}

JoinRequest request_for(const std::string& job) {
  JoinRequest request;
  request.job = job;
  request.name = "w";
  request.host = "node-a";
  return request;
}

TEST(Drivers, OneDaemonHasOneDriver) {
  FakeServer server;
  const auto drivers = open_all(server);
  EXPECT_EQ(drivers->shards(), 1U);
  for (const char* const job : {"a", "b", "c", "#17", "#18"}) {
    EXPECT_EQ(driver_for(*drivers, job), drivers->first());
  }
  EXPECT_EQ(server.received("Hello"), 1U);
}

TEST(Drivers, EachShardHasItsOwnWhenItIsNeeded) {
  FakeCluster cluster(3);
  const auto drivers = open_all(cluster[1]);
  EXPECT_EQ(drivers->shards(), 3U);
  EXPECT_EQ(drivers->first_shard(), 1U);
  EXPECT_EQ(driver_for(*drivers, cluster.job(1)), drivers->first());
  EXPECT_EQ(cluster[0].received("Hello") + cluster[2].received("Hello"), 0U);

  const auto second = driver_for(*drivers, cluster.job(2));
  EXPECT_NE(second, drivers->first());
  EXPECT_EQ(driver_for(*drivers, "#2"), second);
  EXPECT_EQ(driver_for(*drivers, "#5"), second);
  EXPECT_EQ(cluster[2].received("Hello"), 1U);
  EXPECT_EQ(cluster[2].last_hello().shard, 2);
  EXPECT_EQ(join(*second, request_for(cluster.job(2))).status, Status::kOk);
  EXPECT_EQ(cluster[2].last_join().job, cluster.job(2));
  EXPECT_EQ(cluster[0].received("Hello"), 0U);
}

TEST(Drivers, ThreadsThatNeedTheSameOneMakeOne) {
  FakeCluster cluster(2);
  const auto drivers = open_all(cluster[0]);
  cluster[0].behave([](auto& behaviour) { behaviour.others[1] = ""; });
  std::vector<std::future<std::shared_ptr<Driver>>> found;
  for (int i = 0; i < 8; ++i) {
    found.push_back(
        std::async(std::launch::async, [&] { return driver_for(*drivers, cluster.job(1)); }));
  }
  cluster[0].await("Hello", 4);
  cluster[0].behave([&](auto& behaviour) { behaviour.others[1] = cluster[1].address(); });
  const std::shared_ptr<Driver> first = found.front().get();
  ASSERT_NE(first, nullptr);
  for (std::size_t i = 1; i < found.size(); ++i) EXPECT_EQ(found[i].get(), first);
  EXPECT_LT(cluster[1].received("Hello"), found.size());
}

TEST(Drivers, AShardThatNobodyServesIsNamedAndWaitedForAgain) {
  FakeCluster cluster(2);
  const auto drivers = open_all(cluster[0]);
  cluster[0].behave([](auto& behaviour) { behaviour.others[1] = ""; });
  std::shared_ptr<Driver> driver;
  const Completion completion = drivers->driver_for(cluster.job(1), 200'000, driver);
  EXPECT_EQ(completion.status, Status::kUnreachable);
  EXPECT_THAT(
      completion.message,
      HasSubstr("shard 1: no daemon answered within 200 ms: " + cluster[0].address() + ": "));
  EXPECT_EQ(driver, nullptr);
  cluster[0].behave([&](auto& behaviour) { behaviour.others[1] = cluster[1].address(); });
  EXPECT_EQ(join(*driver_for(*drivers, cluster.job(1)), request_for(cluster.job(1))).status,
            Status::kOk);
  EXPECT_EQ(cluster[1].received("Join"), 1U);
}

TEST(Drivers, ADaemonThatRefusesIsNamed) {
  FakeCluster cluster(2);
  const auto drivers = open_all(cluster[0]);
  cluster[1].behave([](auto& behaviour) { behaviour.refuse_hello = Status::kAuth; });
  std::shared_ptr<Driver> driver;
  const Completion completion = drivers->driver_for(cluster.job(1), kLong, driver);
  EXPECT_EQ(completion.status, Status::kAuth);
  EXPECT_THAT(completion.message, HasSubstr("shard 1: "));
  EXPECT_THAT(completion.message, HasSubstr(cluster[1].address() + ": the daemon refused"));
}

TEST(Drivers, StoppingEndsWhatIsBeingOpenedAndAllElse) {
  FakeCluster cluster(3);
  const auto drivers = open_all(cluster[0]);
  cluster[1].behave([](auto& behaviour) { behaviour.hold_begins = true; });
  cluster[2].behave([](auto& behaviour) { behaviour.mute = true; });
  const auto held = driver_for(*drivers, cluster.job(1));
  const Completion joined = join(*held, request_for(cluster.job(1)));
  ASSERT_EQ(joined.status, Status::kOk) << joined.message;
  const WorkerId worker = std::get<JoinResult>(joined.result).worker;
  auto begin = std::async(std::launch::async, [&] {
    return held->perform([&](Session& session, const Ask& ask) { session.begin(ask, worker); },
                         kNever);
  });
  auto opened = std::async(std::launch::async, [&] {
    std::shared_ptr<Driver> driver;
    return drivers->driver_for(cluster.job(2), kNever, driver);
  });
  cluster[1].await("Begin", 1);
  cluster[2].await("Hello", 1);
  drivers->stop();
  EXPECT_EQ(begin.get().status, Status::kCancelled);
  EXPECT_EQ(opened.get().status, Status::kCancelled);
  std::shared_ptr<Driver> driver;
  EXPECT_EQ(drivers->driver_for(cluster.job(2), kLong, driver).status, Status::kClosed);
  EXPECT_EQ(driver, nullptr);
}

TEST(Drivers, NoneIsMadeAfterTheEnd) {
  FakeCluster cluster(2);
  const auto drivers = open_all(cluster[0]);
  drivers->stop();
  std::shared_ptr<Driver> driver;
  EXPECT_EQ(drivers->driver_for(cluster.job(1), kLong, driver).status, Status::kClosed);
  EXPECT_EQ(cluster[1].received("Hello"), 0U);
}

TEST(Drivers, ACallbackOfOneMayWaitForNoneOfThem) {
  FakeCluster cluster(2);
  const auto drivers = open_all(cluster[0]);
  cluster[0].behave([](auto& behaviour) { behaviour.resync = true; });
  const auto other = driver_for(*drivers, cluster.job(1));
  std::promise<Status> told;
  std::promise<bool> on_thread;
  JoinRequest request = request_for(cluster.job(0));
  request.signals = std::make_shared<WorkerSignals>(nullptr, [&](const Event&) {
    const Completion completion =
        other->perform([](Session& session, const Ask& ask) { session.connect(ask); }, kLong);
    told.set_value(completion.status);
    on_thread.set_value(drivers->on_loop_thread());
  });
  const Completion joined = join(*drivers->first(), std::move(request));
  const WorkerId worker = std::get<JoinResult>(joined.result).worker;
  drivers->first()->perform([&](Session& session, const Ask& ask) { session.begin(ask, worker); },
                            kLong);
  EXPECT_EQ(told.get_future().get(), Status::kState);
  EXPECT_TRUE(on_thread.get_future().get());
  EXPECT_FALSE(drivers->on_loop_thread());
  drivers->stop();
}

TEST(Drivers, AChildOfForkIsToldSo) {
  FakeCluster cluster(3);
  auto drivers = open_all(cluster[0]);
  const auto second = driver_for(*drivers, cluster.job(1));
  cluster[2].behave([](auto& behaviour) { behaviour.mute = true; });
  auto opened = std::async(std::launch::async, [&] {
    std::shared_ptr<Driver> driver;
    return drivers->driver_for(cluster.job(2), kNever, driver);
  });
  cluster[2].await("Hello", 1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    std::shared_ptr<Driver> driver;
    for (const std::uint32_t shard : {1U, 2U}) {
      if (drivers->driver_for(cluster.job(shard), kNever, driver).status != Status::kForked) {
        _exit(1);
      }
    }
    if (join(*drivers->first(), request_for(cluster.job(0))).status != Status::kForked) _exit(2);
    drivers->silence();
    drivers->stop();
    drivers.reset();
    _exit(0);
  }
  ASSERT_GT(child, 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  drivers->stop();
  EXPECT_EQ(opened.get().status, Status::kCancelled);
}

// Where its daemon went, the others know.
TEST(Drivers, AWorkerFollowsItsShardToAnotherDaemon) {
  FakeCluster cluster(2);
  FakeServer heir(FakeServer::Kind::kTcp);
  heir.behave([](auto& behaviour) {
    behaviour.shard = 1;
    behaviour.shards = 2;
  });
  const auto drivers = open_all(cluster[0]);
  const auto driver = driver_for(*drivers, cluster.job(1));
  const Completion joined = join(*driver, request_for(cluster.job(1)));
  const WorkerId worker = std::get<JoinResult>(joined.result).worker;
  cluster[0].behave([&](auto& behaviour) { behaviour.others[1] = heir.address(); });
  cluster[1].cut(false);
  const Completion begun =
      driver->perform([&](Session& session, const Ask& ask) { session.begin(ask, worker); }, kLong);
  EXPECT_EQ(begun.status, Status::kOk) << begun.message;
  EXPECT_EQ(heir.received("Begin"), 1U);
  EXPECT_EQ(heir.last_hello().shard, 1);
}

}  // namespace
}  // namespace syncd::client
