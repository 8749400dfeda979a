// Who asks for much waits for those who ask for little, and loses nothing by it.
#include "daemon/edge/net/turn_budget.h"

#include <algorithm>

#include "tests/unit/net/net_fixture.h"

namespace syncd::net {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

TEST(TurnBudget, APartIsSpentWithinOneTurn) {
  TurnBudget budget;
  TurnBudget::Share connection;
  TurnBudget::Share client;
  for (std::uint64_t spent = 0; spent < TurnBudget::kConnectionNs; spent += kMs / 10) {
    EXPECT_FALSE(budget.is_spent(connection, client));
    budget.spend(connection, client, kMs / 10);
  }
  EXPECT_TRUE(budget.is_spent(connection, client));
  budget.next_turn();
  EXPECT_FALSE(budget.is_spent(connection, client));
  EXPECT_EQ((budget.spend(connection, client, 1), connection.spent_ns), 1U)
      << "the next turn has paid for the one before";
}

TEST(TurnBudget, WhatIsBeyondAPartIsADebtOfTheNextTurns) {
  TurnBudget budget;
  TurnBudget::Share connection;
  TurnBudget::Share client;
  budget.spend(connection, client, 3 * TurnBudget::kClientNs);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_TRUE(budget.is_spent({}, client)) << turn;
    budget.next_turn();
  }
  EXPECT_FALSE(budget.is_spent({}, client));
  EXPECT_TRUE(budget.is_spent(connection, {})) << "5 ms of a turn are less than 20";
  for (int turn = 3; turn < 12; ++turn) budget.next_turn();
  EXPECT_FALSE(budget.is_spent(connection, client));
}

TEST(TurnBudget, TheConnectionsOfAClientShareItsPart) {
  TurnBudget budget;
  TurnBudget::Share client;
  for (std::uint64_t spent = 0; spent < TurnBudget::kClientNs; spent += kMs) {
    TurnBudget::Share one;
    EXPECT_FALSE(budget.is_spent(one, client));
    budget.spend(one, client, kMs);
  }
  EXPECT_TRUE(budget.is_spent({}, client)) << "one more connection brings no more";
  EXPECT_FALSE(budget.is_spent({}, {})) << "others have their own";
}

// Two clocks that only the test moves.
struct TestClocks {
  std::uint64_t monotonic_ns = 5'000 * kMs;
  std::uint64_t thread_ns = 70 * kMs;
  int readings = 0;  // of the thread's

  CostClocks clocks() {
    return {[this] { return monotonic_ns; }, [this] { return ++readings, thread_ns; }};
  }
  void work(std::uint64_t ns) {
    monotonic_ns += ns;
    thread_ns += ns;
  }
  void interrupt(std::uint64_t ns) { monotonic_ns += ns; }
};

class CostMeterTest : public ::testing::Test {
 protected:
  // What a piece is charged that does this.
  std::uint64_t piece(std::uint64_t work_ns, std::uint64_t interrupted_ns = 0) {
    meter_.begin();
    clocks_.work(work_ns);
    clocks_.interrupt(interrupted_ns);
    return meter_.end();
  }
  TestClocks clocks_;
  CostMeter meter_{clocks_.clocks()};
};

TEST_F(CostMeterTest, AShortPieceIsChargedInMonotonicTime) {
  EXPECT_EQ(piece(kMs / 4, kMs / 2), kMs / 4 + kMs / 2);
  EXPECT_EQ(piece(CostMeter::kShortNs), CostMeter::kShortNs);
}

TEST_F(CostMeterTest, ALongPieceIsChargedWhatTheThreadHasUsed) {
  EXPECT_EQ(piece(300 * kMs), 300 * kMs) << "all of it, however much";
  EXPECT_EQ(piece(3 * kMs, 900 * kMs), 3 * kMs) << "not the interruption";
  EXPECT_EQ(piece(10, 900 * kMs), 10U);
}

TEST_F(CostMeterTest, NothingIsChargedTwice) {
  piece(2 * kMs);
  for (int i = 0; i < 5; ++i) piece(kMs);
  EXPECT_EQ(piece(2 * kMs, 50 * kMs), 2 * kMs) << "the short ones before are charged already";
  // What the thread did besides may count as the next long piece's, but never beyond its length.
  clocks_.work(4 * kMs);
  EXPECT_EQ(piece(2 * kMs, 1), 2 * kMs + 1);
  clocks_.work(4 * kMs);
  EXPECT_EQ(piece(2 * kMs, 50 * kMs), 6 * kMs);
}

TEST_F(CostMeterTest, TheThreadsClockIsReadSeldom) {
  for (int i = 0; i < 1'000; ++i) piece(kMs / 1'000);
  EXPECT_EQ(clocks_.readings, 1) << "at the first piece";
  // An hour in which nobody asked for anything does not count as a piece's work.
  clocks_.work(3'600'000 * kMs);
  EXPECT_EQ(piece(2 * kMs, 50 * kMs), 2 * kMs);
  EXPECT_EQ(clocks_.readings, 3);
  for (int i = 0; i < 100; ++i) piece(kMs);
  EXPECT_EQ(clocks_.readings, 3 + 9) << "once in kReadingNs";
}

// Each message costs the loop a millisecond.
class HeldConnections : public NetTest {
 protected:
  void SetUp() override {
    NetTest::SetUp();
    NetworkOptions options;
    options.clocks = clocks_.clocks();
    start(options);
    std::vector<ListenSocket> sockets;
    std::string error;
    ASSERT_TRUE(open_tcp_sockets({"127.0.0.1", 0}, sockets, error)) << error;
    const std::string endpoint = sockets.at(0).endpoint;
    port_ = static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
    ASSERT_TRUE(network_->listen(std::move(sockets[0]), error)) << error;
    handler_.answer = [this](ConnectionId, const wire::Message&) { clocks_.work(cost_ns_); };
  }
  // Of another client than those on the Unix socket.
  std::unique_ptr<RawClient> connect_over_tcp() {
    auto client = std::make_unique<RawClient>(port_);
    client->hello();
    EXPECT_TRUE(receive_until(*client, [&] { return client->last<wire::Welcome>() != nullptr; }));
    return client;
  }
  // Not one of those that are charged for many at once.
  static wire::Message explain_message(std::uint64_t id) { return {id, wire::Explain{}}; }
  template <class MessageOf>
  static void send_many(RawClient& client, std::uint64_t count, MessageOf message_of) {
    std::vector<std::uint8_t> bytes;
    for (std::uint64_t id = 1; id <= count; ++id) wire::Encoder().append(message_of(id), bytes);
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

  TestClocks clocks_;
  std::uint64_t cost_ns_ = kMs;
  std::uint16_t port_ = 0;
};

TEST_F(HeldConnections, OneThatAsksForMuchLetsOthersIn) {
  auto greedy = connect();
  auto other = connect();
  send_many(*greedy, 100, explain_message);
  other->send(explain_message(1'000));
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
  greedy->send(explain_message(2'000));
  expect_received(102);
}

// They are charged for together, and soon enough.
TEST_F(HeldConnections, SoDoesOneThatPushesMuch) {
  auto greedy = connect();
  auto other = connect();
  cost_ns_ = kMs / 20;
  send_many(*greedy, 500, begin_message);
  other->send(begin_message(1'000));
  expect_received(501);
  EXPECT_LE(before(1'000), 128U);
  EXPECT_GT(network_->stats().held, 0U);
}

TEST_F(HeldConnections, ManyConnectionsAreNoMoreThanOneClient) {
  auto other = connect_over_tcp();
  std::vector<std::unique_ptr<RawClient>> greedy;
  for (int i = 0; i < 60; ++i) greedy.push_back(connect());
  for (const auto& one : greedy) send_many(*one, 3, explain_message);
  other->send(explain_message(1'000));
  expect_received(60 * 3 + 1);
  EXPECT_LE(before(1'000), TurnBudget::kClientNs / kMs);
}

// A client has 20 ms of a turn, and what one request took beyond them it has not in the next.
TEST_F(HeldConnections, WhoAsksForLongPiecesWaitsForThemAfterwards) {
  auto greedy = connect();
  auto other = connect_over_tcp();
  cost_ns_ = 5 * TurnBudget::kClientNs;
  send_many(*greedy, 2, explain_message);
  expect_received(1);
  // The debt is five turns of the client, and twenty of the connection.
  std::uint64_t turns = 0;
  handler_.turn_end = [&] { ++turns; };
  cost_ns_ = 0;
  other->send(explain_message(1'000));
  expect_received(3);
  handler_.turn_end = nullptr;
  EXPECT_EQ(before(1'000), 1U) << "the other one does not wait for it";
  EXPECT_GE(turns, 5 * TurnBudget::kClientNs / TurnBudget::kConnectionNs - 1);
}

TEST_F(HeldConnections, WhatTheySayAtTheEndIsHeard) {
  auto ending = connect();
  send_many(*ending, 50, explain_message);
  ending.reset();  // the connection ends while much of it has not been looked at
  expect_received(50);
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));

  auto broken = connect();
  send_many(*broken, 50, explain_message);
  const std::uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff};
  broken->send_bytes(garbage);
  ASSERT_TRUE(receive_until(*broken, [&] { return broken->ended; }));
  EXPECT_EQ(handler_.received.size(), 100U);
  ASSERT_NE(broken->last<wire::Error>(), nullptr);
  EXPECT_EQ(broken->last<wire::Error>()->status, Status::kProtocol);
}

TEST_F(HeldConnections, TheDaemonMayStopMeanwhile) {
  auto greedy = connect();
  send_many(*greedy, 100, explain_message);
  ASSERT_TRUE(run_until([&] { return network_->stats().held > 0; }));
  stop();
  EXPECT_LT(handler_.received.size(), 100U);
}

}  // namespace
}  // namespace syncd::net
