// Clients that are silent or many. The limits are in unit/net/network_limits_test.cpp.
#include <gtest/gtest.h>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

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
