// Clients that are silent, greedy or too many: each meets its limit, is told so, and costs the
// others nothing.
#include <gmock/gmock.h>

#include "support/c_api.h"
#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Silence, AConnectionThatNeverSaysHelloIsClosed) {
  TempDir directory;
  Daemon daemon(directory,
                {.store = "memory", .config = "[timeouts]\nhandshake_timeout = \"100ms\"\n"});
  Bystander bystander(daemon.address());
  RawClient client(daemon.address());
  const auto messages = client.drain_until_closed();
  ASSERT_EQ(messages.size(), 1U);
  EXPECT_THAT(RawClient::as<wire::Error>(messages[0].body).message, HasSubstr("no Hello"));
  bystander.expect_progress();
}

TEST(Silence, AConnectionWithoutAnySignOfLifeIsClosedAndItsWorkersAreDisconnected) {
  TempDir directory;
  Daemon daemon(directory,
                {.store = "memory", .config = "[timeouts]\nheartbeat_timeout = \"500ms\"\n"});
  RawClient client(daemon.address());
  EXPECT_EQ(client.hello().heartbeat_timeout_ms, 500U) << "the client is told";
  RawWorker worker(client, join_of("job", 0, 1, "asp"));
  // Reads, and says nothing.
  client.drain_until_closed();
  EXPECT_TRUE(daemon.logged("heartbeat_timeout")) << "the log has the reason";
  wait_until("the worker to be disconnected", [&] { return daemon.logged("worker_disconnected"); });
  const std::string log = daemon.log();
  const std::string line = log.substr(log.find("worker_disconnected"));
  EXPECT_NE(line.substr(0, line.find('\n')).find("heartbeat_timeout"), std::string::npos) << line;
}

// The library's heartbeats keep a connection open while nobody calls.
TEST(Silence, AClientOfTheLibraryThatComputesForLongIsNotClosed) {
  TempDir directory;
  Daemon daemon(directory,
                {.store = "memory", .config = "[timeouts]\nheartbeat_timeout = \"300ms\"\n"});
  ApiClient client(daemon.address());
  ApiWorker worker = client.join({.policy = "asp", .rank = 0});
  syncd_step step = SYNCD_STEP_INIT;
  ASSERT_TRUE(worker.begin(step).ok());
  const Deadline computing(Milliseconds(1'000));
  wait_until("a long iteration's end", [&] { return computing.passed(); });
  EXPECT_TRUE(worker.push(0).ok());
  EXPECT_FALSE(daemon.logged("worker_disconnected"));
}

TEST(Greed, AClientThatAsksAndNeverReadsIsDisconnected) {
  TempDir directory;
  Daemon daemon(directory,
                {.store = "memory", .config = "[limits]\noutbound_bytes_max = 131072\n"});
  Bystander bystander(daemon.address());
  RawClient client(daemon.address());
  client.hello();
  std::vector<std::uint8_t> requests;
  wire::Encoder encoder;
  for (std::uint64_t id = 10; id < 1010; ++id) encoder.append({id, wire::JobsRequest{}}, requests);
  // Until the daemon has had enough of it, and closes.
  EXPECT_THROW(
      {
        for (int round = 0; round < 10'000; ++round) client.send_bytes(requests);
      },
      std::runtime_error);
  wait_until("the log to say why", [&] { return daemon.logged("slow reader"); });
  bystander.expect_progress();
}

TEST(Crowd, OneConnectionTooManyIsRefusedAndTheLimitIsNamed) {
  TempDir directory;
  Daemon daemon(directory, {.store = "memory", .config = "[limits]\nconnections_max = 2\n"});
  Bystander bystander(daemon.address());
  {
    RawClient second(daemon.address());
    second.hello();
    try {
      // It tries again until its time is over: somebody might make room.
      ApiClient third(daemon.address(), {.connect_ms = 300});
      ADD_FAILURE() << "a third connection was let in";
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("SYNCD_E_LIMIT"), HasSubstr("connections_max")));
    }
    second.call_for<wire::JobsReply>(wire::JobsRequest{});
  }
  // There is room again once one has gone.
  wait_until("room for another one", [&] {
    RawClient next(daemon.address());
    const auto first = [&] {
      wire::Hello hello;
      hello.protocol_min = hello.protocol_max = kProtocolMax;
      next.send(hello);
      return next.receive();
    }();
    return std::holds_alternative<wire::Welcome>(first.body);
  });
  bystander.expect_progress();
}

TEST(Crowd, TwoHundredConnectionsAreServed) {
  constexpr int kConnections = 200;
  TempDir directory;
  Daemon daemon(directory, {.store = "memory", .tcp = "127.0.0.1:0"});
  std::vector<RawClient> clients;
  std::vector<RawWorker> workers;
  clients.reserve(kConnections);
  for (int rank = 0; rank < kConnections; ++rank) {
    clients.emplace_back(daemon.tcp_address());
    clients.back().hello();
    workers.emplace_back(clients.back(), join_of("crowd", rank, kConnections, "bsp"));
  }
  std::vector<std::uint64_t> begins;
  for (std::int64_t iteration = 0; iteration < 3; ++iteration) {
    begins.clear();
    for (std::size_t i = 0; i < clients.size(); ++i) {
      begins.push_back(clients[i].send(wire::Begin{workers[i].ref(), iteration}));
    }
    for (std::size_t i = 0; i < clients.size(); ++i) {
      ASSERT_EQ(RawClient::as<wire::Granted>(clients[i].answer(begins[i])).iteration, iteration);
    }
    for (RawWorker& worker : workers) worker.push(iteration);
  }
}

}  // namespace
}  // namespace syncd::test
