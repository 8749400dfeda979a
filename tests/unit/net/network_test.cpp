// Sessions over real sockets: handshake, requests, order, misbehaviour.
#include "daemon/edge/net/network.h"

#include <filesystem>

#include "tests/unit/net/net_fixture.h"

namespace syncd::net {
namespace {

class NetworkTest : public NetTest {
 protected:
  // The client is told why, its connection ends, and another one goes on undisturbed.
  void expect_rejected(RawClient& culprit, RawClient& bystander, const std::string& reason) {
    ASSERT_TRUE(receive_until(culprit, [&] { return culprit.ended; }));
    EXPECT_FALSE(culprit.reset) << "the last message could have been lost";
    const auto* error = culprit.last<wire::Error>();
    ASSERT_NE(error, nullptr);
    EXPECT_EQ(error->status, Status::kProtocol);
    EXPECT_NE(error->message.find(reason), std::string::npos) << error->message;
    EXPECT_NE(handler_.logged("connection_rejected", "reason").find(reason), std::string::npos);
    expect_served(bystander);
  }
  void expect_served(RawClient& client) {
    client.messages.clear();
    client.send({9, wire::Heartbeat{}});
    ASSERT_TRUE(receive_until(client, [&] { return !client.messages.empty(); }));
    EXPECT_EQ(client.messages.back(), (wire::Message{9, wire::HeartbeatAck{}}));
  }
};

TEST_F(NetworkTest, WelcomesAndServes) {
  NetworkOptions options;
  options.connection.idle_timeout_ms = 8000;
  start(options);
  RawClient client(socket_path());
  client.hello();
  ASSERT_TRUE(receive_until(client, [&] { return !client.messages.empty(); }));
  ASSERT_NE(client.last<wire::Welcome>(), nullptr);
  const wire::Welcome welcome = *client.last<wire::Welcome>();
  EXPECT_EQ(client.messages.back().id, 1U);
  EXPECT_EQ(welcome.protocol, kProtocolMax);
  EXPECT_EQ(welcome.server_version, "9.9");
  EXPECT_EQ(welcome.heartbeat_timeout_ms, 8000U);
  EXPECT_EQ(welcome.heartbeat_interval_ms, 2000U);
  EXPECT_EQ(network_->stats().sessions, 1U);

  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    network_->send(connection, {message.id, wire::Granted{7, wire::kStepPull, 2}});
  };
  client.send(begin_message(5));
  ASSERT_TRUE(receive_until(client, [&] { return client.messages.size() == 2; }));
  EXPECT_EQ(handler_.received.at(0).message, begin_message(5));
  EXPECT_EQ(handler_.received.at(0).connection, welcome.session);
  EXPECT_EQ(client.messages.back(), (wire::Message{5, wire::Granted{7, wire::kStepPull, 2}}));
}

TEST_F(NetworkTest, AClusterSaysAfterWhichSilenceItsLeaderIsGone) {
  NetworkOptions options;
  options.connection.idle_timeout_ms = 8000;
  options.silence_max_ms = 2000;
  start(options);
  RawClient client(socket_path());
  client.hello();
  ASSERT_TRUE(receive_until(client, [&] { return !client.messages.empty(); }));
  ASSERT_NE(client.last<wire::Welcome>(), nullptr);
  EXPECT_EQ(client.last<wire::Welcome>()->heartbeat_timeout_ms, 2000U);
  EXPECT_EQ(client.last<wire::Welcome>()->heartbeat_interval_ms, 500U);
}

TEST_F(NetworkTest, ServesTcpToo) {
  start();
  std::vector<ListenSocket> sockets;
  std::string error;
  ASSERT_TRUE(open_tcp_sockets({"127.0.0.1", 0}, sockets, error)) << error;
  TcpAddress address;
  ASSERT_TRUE(parse_tcp_address(sockets[0].endpoint.substr(4), address, error));
  ASSERT_TRUE(network_->listen(std::move(sockets[0]), error)) << error;
  RawClient client(address.port);
  client.hello();
  ASSERT_TRUE(receive_until(client, [&] { return client.last<wire::Welcome>() != nullptr; }));
  EXPECT_EQ(network_->endpoints().size(), 2U);
}

TEST_F(NetworkTest, TellsTheHandlerWhenAClientGoes) {
  start();
  auto client = connect();
  auto other = connect();
  client.reset();
  ASSERT_TRUE(run_until([&] { return !handler_.closed.empty(); }));
  EXPECT_EQ(handler_.closed.size(), 1U);
  EXPECT_TRUE(handler_.closed_by_peer);
  EXPECT_EQ(network_->stats().sessions, 1U);
  // Its id is not given to anybody else, and sending to it harms nobody.
  const ConnectionId gone = handler_.closed[0];
  network_->send(gone, {1, wire::Ok{}});
  auto third = connect();
  handler_.answer = [&](ConnectionId connection, const wire::Message&) {
    EXPECT_NE(connection, gone);
    network_->send(gone, {1, wire::Ok{}});
  };
  third->send(begin_message(1));
  ASSERT_TRUE(run_until([&] { return !handler_.received.empty(); }));
  expect_served(*third);
}

TEST_F(NetworkTest, FramesMayArriveByteByByte) {
  start();
  RawClient client(socket_path());
  std::vector<std::uint8_t> bytes =
      RawClient::frame({1, wire::Hello{kProtocolMin, kProtocolMax, "test", "1", ""}});
  const auto begin = RawClient::frame(begin_message(2));
  bytes.insert(bytes.end(), begin.begin(), begin.end());
  for (const std::uint8_t byte : bytes) {
    client.send_bytes({&byte, 1});
    uv_run(&loop_, UV_RUN_NOWAIT);
  }
  ASSERT_TRUE(run_until([&] { return !handler_.received.empty(); }));
  EXPECT_EQ(handler_.received[0].message, begin_message(2));
}

TEST_F(NetworkTest, FramesMayBeSplitAnywhereAndKeepTheirOrder) {
  start();
  auto client = connect();
  std::vector<std::uint8_t> bytes;
  constexpr std::uint64_t kFrames = 40;
  for (std::uint64_t id = 1; id <= kFrames; ++id) {
    const auto frame = RawClient::frame(begin_message(id));
    bytes.insert(bytes.end(), frame.begin(), frame.end());
  }
  // Pieces of a length that shares no factor with a frame's, so that the cuts wander through it.
  constexpr std::size_t kPiece = 37;
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    client->send_bytes(std::span(bytes).subspan(at, std::min(kPiece, bytes.size() - at)));
    uv_run(&loop_, UV_RUN_NOWAIT);
  }
  ASSERT_TRUE(run_until([&] { return handler_.received.size() == kFrames; }));
  for (std::uint64_t id = 1; id <= kFrames; ++id) {
    EXPECT_EQ(handler_.received[id - 1].message, begin_message(id));
  }
}

TEST_F(NetworkTest, PipelinedRequestsAreAnsweredInOneWrite) {
  start();
  auto client = connect();
  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    network_->send(connection, {message.id, wire::Ok{}});
  };
  std::vector<std::uint8_t> bytes;
  for (std::uint64_t id = 1; id <= 50; ++id) {
    const auto frame = RawClient::frame(begin_message(id));
    bytes.insert(bytes.end(), frame.begin(), frame.end());
  }
  const auto writes = network_->stats().writes;
  client->send_bytes(bytes);
  ASSERT_TRUE(receive_until(*client, [&] { return client->messages.size() == 50; }));
  EXPECT_EQ(network_->stats().writes, writes + 1);
  for (std::uint64_t id = 1; id <= 50; ++id) EXPECT_EQ(client->messages[id - 1].id, id);
}

TEST_F(NetworkTest, TheTurnEndsBeforeAnythingLeaves) {
  start();
  auto client = connect();
  bool answered = false;
  int turns = 0;
  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    network_->send(connection, {message.id, wire::Ok{}});
    answered = true;
  };
  handler_.turn_end = [&] {
    if (!answered || turns++ > 0) return;
    client->receive();
    EXPECT_TRUE(client->messages.empty()) << "the answer left before the turn had ended";
  };
  client->send(begin_message(1));
  ASSERT_TRUE(receive_until(*client, [&] { return !client->messages.empty(); }));
  EXPECT_GT(turns, 0);
  handler_.turn_end = nullptr;
}

// Also where a broken frame ends the connection in the same turn and its answers go out at once.
TEST_F(NetworkTest, TheTurnEndsBeforeALastMessageLeaves) {
  start();
  auto client = connect();
  bool answered = false;
  bool ended_in_time = false;
  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    network_->send(connection, {message.id, wire::Ok{}});
    answered = true;
  };
  handler_.turn_end = [&] {
    if (!answered || ended_in_time) return;
    client->receive();
    ended_in_time = client->messages.empty();
  };
  std::vector<std::uint8_t> bytes = RawClient::frame(begin_message(1));
  bytes.insert(bytes.end(), {0, 0, 0, 0});
  client->send_bytes(bytes);
  ASSERT_TRUE(receive_until(*client, [&] { return client->ended; }));
  EXPECT_TRUE(ended_in_time);
  EXPECT_EQ(client->messages.size(), 2U);
  handler_.turn_end = nullptr;
}

TEST_F(NetworkTest, AWrongVersionIsRefusedWithBothRanges) {
  start();
  auto bystander = connect();
  RawClient client(socket_path());
  client.send({1, wire::Hello{200, 201, "test", "1", ""}});
  expect_rejected(client, *bystander, "versions 200 to 201");
}

TEST_F(NetworkTest, GarbageEndsOnlyItsConnection) {
  start();
  auto bystander = connect();
  auto client = connect();
  // A plausible length and then nonsense.
  std::vector<std::uint8_t> bytes = {40, 0, 0, 0};
  bytes.resize(44, 0xAB);
  client->send_bytes(bytes);
  ASSERT_TRUE(receive_until(*client, [&] { return client->ended; }));
  const auto* error = client->last<wire::Error>();
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->status, Status::kProtocol);
  EXPECT_NE(handler_.logged("connection_rejected", "peer"), "");
  expect_served(*bystander);
}

TEST_F(NetworkTest, AnHttpRequestIsAnOversizedFrame) {
  start();
  auto bystander = connect();
  RawClient client(socket_path());
  const std::string text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  client.send_bytes({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  expect_rejected(client, *bystander, "allowed are 1 to 8192");
}

TEST_F(NetworkTest, AnEmptyFrameIsRefused) {
  start();
  auto bystander = connect();
  auto client = connect();
  client->send_bytes(std::vector<std::uint8_t>{0, 0, 0, 0});
  expect_rejected(*client, *bystander, "0 bytes long");
}

TEST_F(NetworkTest, NothingAfterABrokenFrameIsServed) {
  start();
  auto client = connect();
  std::vector<std::uint8_t> bytes = RawClient::frame(begin_message(1));
  bytes.insert(bytes.end(), {0, 0, 0, 0});
  const auto late = RawClient::frame(begin_message(2));
  bytes.insert(bytes.end(), late.begin(), late.end());
  client->send_bytes(bytes);
  ASSERT_TRUE(receive_until(*client, [&] { return client->ended; }));
  ASSERT_EQ(handler_.received.size(), 1U);
  EXPECT_EQ(handler_.received[0].message.id, 1U);
}

TEST_F(NetworkTest, HandlerMayCloseTheConnectionItIsServing) {
  start();
  auto client = connect();
  handler_.answer = [&](ConnectionId connection, const wire::Message&) {
    network_->close(connection, "because");
    network_->send(connection, {1, wire::Ok{}});
  };
  const auto frame = RawClient::frame(begin_message(1));
  std::vector<std::uint8_t> two = frame;
  two.insert(two.end(), frame.begin(), frame.end());
  client->send_bytes(two);
  ASSERT_TRUE(receive_until(*client, [&] { return client->ended; }));
  EXPECT_EQ(handler_.received.size(), 1U);
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));
  EXPECT_EQ(handler_.logged("connection_closed", "reason"), "because");
  EXPECT_EQ(handler_.closed_why, "because");
  EXPECT_FALSE(handler_.closed_by_peer);
}

TEST_F(NetworkTest, ShutdownTellsEverybodyAndFlushes) {
  start();
  auto client = connect();
  RawClient stranger(socket_path());  // still in its handshake
  uv_run(&loop_, UV_RUN_NOWAIT);
  const auto* handler = &handler_;
  bool done = false;
  network_->shutdown("going away", 1000, [&] { done = true; });
  ASSERT_TRUE(receive_until(*client, [&] { return client->ended; }));
  ASSERT_FALSE(client->messages.empty());
  ASSERT_NE(client->last<wire::ShutdownNotice>(), nullptr);
  EXPECT_EQ(client->last<wire::ShutdownNotice>()->message, "going away");
  EXPECT_FALSE(std::filesystem::exists(socket_path()));
  client.reset();
  ASSERT_TRUE(run_until([&] { return done; }));
  EXPECT_EQ(handler->closed.size(), 1U);
  network_.reset();
  EXPECT_EQ(uv_loop_alive(&loop_), 0);
}

}  // namespace
}  // namespace syncd::net
