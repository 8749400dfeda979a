// Who asks for much waits for those who ask for little, and loses nothing by it.
#include "daemon/net/turn_budget.h"

#include <algorithm>

#include "tests/unit/net/net_fixture.h"

namespace syncd::net {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST(TurnBudget, APartIsSpentWithinOneTurn) {
  TurnBudget budget;
  TurnBudget::Share connection;
  TurnBudget::Share client;
  const auto spend = [&](std::uint64_t ns) {
    budget.spend(connection, ns);
    budget.spend(client, ns);
  };
  for (std::uint64_t spent = 0; spent < TurnBudget::kConnectionNs; spent += kMs / 10) {
    EXPECT_FALSE(budget.is_spent(connection, client));
    spend(kMs / 10);
  }
  EXPECT_TRUE(budget.is_spent(connection, client));
  budget.next_turn();
  EXPECT_FALSE(budget.is_spent(connection, client));
  spend(1);
  EXPECT_FALSE(budget.is_spent(connection, client)) << "what was spent before is forgotten";
}

TEST(TurnBudget, OneInterruptionIsNoMoreThanOneRequest) {
  TurnBudget budget;
  TurnBudget::Share connection;
  budget.spend(connection, 1000 * kMs);
  EXPECT_FALSE(budget.is_spent(connection, {}));
  EXPECT_EQ(connection.spent_ns, TurnBudget::kRequestNsMax);
}

TEST(TurnBudget, TheConnectionsOfAClientShareItsPart) {
  TurnBudget budget;
  TurnBudget::Share client;
  for (std::uint64_t spent = 0; spent < TurnBudget::kClientNs; spent += kMs) {
    TurnBudget::Share one;
    EXPECT_FALSE(budget.is_spent(one, client));
    budget.spend(one, kMs);
    budget.spend(client, kMs);
  }
  EXPECT_TRUE(budget.is_spent({}, client)) << "one more connection brings no more";
  EXPECT_FALSE(budget.is_spent({}, {})) << "others have their own";
}

// Each message costs the loop a millisecond at least.
class HeldConnections : public NetTest {
 protected:
  void SetUp() override {
    NetTest::SetUp();
    start();
    std::vector<ListenSocket> sockets;
    std::string error;
    ASSERT_TRUE(open_tcp_sockets({"127.0.0.1", 0}, sockets, error)) << error;
    const std::string endpoint = sockets.at(0).endpoint;
    port_ = static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
    ASSERT_TRUE(network_->listen(std::move(sockets[0]), error)) << error;
    handler_.answer = [](ConnectionId, const wire::Message&) {
      const std::uint64_t begun = uv_hrtime();
      while (uv_hrtime() < begun + kMs) {
      }
    };
  }
  // Of another client than those on the Unix socket.
  std::unique_ptr<RawClient> connect_over_tcp() {
    auto client = std::make_unique<RawClient>(port_);
    client->hello();
    EXPECT_TRUE(receive_until(*client, [&] { return client->last<wire::Welcome>() != nullptr; }));
    return client;
  }
  static void send_many(RawClient& client, std::uint64_t count) {
    std::vector<std::uint8_t> bytes;
    for (std::uint64_t id = 1; id <= count; ++id) wire::Encoder().append(begin_message(id), bytes);
    client.send_bytes(bytes);
  }
  // How many messages were handled before the one of this id.
  std::size_t before(std::uint64_t id) const {
    const auto found = std::find_if(handler_.received.begin(), handler_.received.end(),
                                    [id](const auto& one) { return one.message.id == id; });
    return static_cast<std::size_t>(found - handler_.received.begin());
  }
  void expect_received(std::size_t count) {
    ASSERT_TRUE(run_until([&] { return handler_.received.size() >= count; }));
    EXPECT_EQ(handler_.received.size(), count);
  }

  std::uint16_t port_ = 0;
};

TEST_F(HeldConnections, OneThatAsksForMuchLetsOthersIn) {
  auto greedy = connect();
  auto other = connect();
  send_many(*greedy, 100);
  other->send(begin_message(1'000));
  expect_received(101);
  EXPECT_LE(before(1'000), TurnBudget::kConnectionNs / kMs);
  EXPECT_GT(network_->stats().held, 0U);
  // All of it, and in order.
  std::uint64_t next = 1;
  for (const auto& one : handler_.received) {
    if (one.message.id == 1'000) continue;
    EXPECT_EQ(one.message.id, next++);
  }
  EXPECT_EQ(next, 101U);
  // And it is listened to again.
  greedy->send(begin_message(2'000));
  expect_received(102);
}

TEST_F(HeldConnections, ManyConnectionsAreNoMoreThanOneClient) {
  auto other = connect_over_tcp();
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 60; ++i) greedy.push_back(connect());
  for (const auto& one : greedy) send_many(*one, 3);
  other->send(begin_message(1'000));
  expect_received(60 * 3 + 1);
  EXPECT_LE(before(1'000), TurnBudget::kClientNs / kMs);
}

TEST_F(HeldConnections, WhatTheySayAtTheEndIsHeard) {
  auto ending = connect();
  send_many(*ending, 50);
  ending.reset();  // the connection ends while much of it has not been looked at
  expect_received(50);
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));

  auto broken = connect();
  send_many(*broken, 50);
  const std::uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff};
  broken->send_bytes(garbage);
  ASSERT_TRUE(receive_until(*broken, [&] { return broken->ended; }));
  EXPECT_EQ(handler_.received.size(), 100U);
  ASSERT_NE(broken->last<wire::Error>(), nullptr);
  EXPECT_EQ(broken->last<wire::Error>()->status, Status::kProtocol);
}

TEST_F(HeldConnections, TheDaemonMayStopMeanwhile) {
  auto greedy = connect();
  send_many(*greedy, 100);
  ASSERT_TRUE(run_until([&] { return network_->stats().held > 0; }));
  stop();
  EXPECT_LT(handler_.received.size(), 100U);
}

}  // namespace
}  // namespace syncd::net
