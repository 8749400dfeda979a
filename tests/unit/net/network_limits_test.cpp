// What happens when time, memory, connections or descriptors run out.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "tests/unit/net/net_fixture.h"

namespace syncd::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NetworkLimitsTest : public NetTest {};

TEST_F(NetworkLimitsTest, AHandshakeHasATimeout) {
  NetworkOptions options;
  options.connection.handshake_timeout_ms = 30;
  options.connection.idle_timeout_ms = 1'000'000;
  start(options);
  auto patient = connect();
  RawClient client(socket_path());
  ASSERT_TRUE(receive_until(client, [&] { return client.ended; }));
  ASSERT_NE(client.last<wire::Error>(), nullptr);
  EXPECT_NE(client.last<wire::Error>()->message.find("no Hello came within 30 ms"),
            std::string::npos)
      << client.last<wire::Error>()->message;
  patient->receive();
  EXPECT_FALSE(patient->ended);
}

TEST_F(NetworkLimitsTest, ASilentSessionEndsAndASpeakingOneStays) {
  NetworkOptions options;
  options.connection.handshake_timeout_ms = 1'000'000;
  options.connection.idle_timeout_ms = 300;
  start(options);
  auto silent = connect();
  auto speaking = connect();
  auto beat = std::chrono::steady_clock::now();
  ASSERT_TRUE(run_until([&] {
    const auto now = std::chrono::steady_clock::now();
    if (now - beat > std::chrono::milliseconds(20)) {
      speaking->send({0, wire::Heartbeat{}});
      beat = now;
    }
    speaking->receive();
    silent->receive();
    return silent->ended;
  }));
  ASSERT_NE(silent->last<wire::Error>(), nullptr);
  EXPECT_EQ(silent->last<wire::Error>()->status, Status::kTimeout);
  EXPECT_FALSE(speaking->ended);
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));
}

TEST_F(NetworkLimitsTest, AStalledProcessDoesNotCutOffThoseWhoSpoke) {
  NetworkOptions options;
  options.connection.idle_timeout_ms = 200;
  start(options);
  auto client = connect();
  uv_run(&loop_, UV_RUN_NOWAIT);
  // As if the whole process had been stopped: the loop does not turn, but the bytes arrive.
  client->send({3, wire::Heartbeat{}});
  ::poll(nullptr, 0, 400);
  client->messages.clear();
  ASSERT_TRUE(receive_until(*client, [&] { return client->ended || !client->messages.empty(); }));
  EXPECT_FALSE(client->ended);
  EXPECT_EQ(client->messages.back(), (wire::Message{3, wire::HeartbeatAck{}}));
}

TEST_F(NetworkLimitsTest, AReaderThatIsTooSlowIsDisconnected) {
  NetworkOptions options;
  options.outbound_bytes_max = 100'000;
  start(options);
  auto client = connect();
  auto bystander = connect();
  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    for (int i = 0; i < 100; ++i) {
      network_->send(connection,
                     {message.id, wire::Error{Status::kInvalid, std::string(9000, 'x')}});
    }
  };
  // It asks and never reads: the kernel's buffers fill up first, then ours.
  client->send(begin_message(1));
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));
  EXPECT_NE(handler_.logged("connection_closed", "reason").find("slow reader"), std::string::npos);
  EXPECT_EQ(network_->stats().sessions, 1U);
  bystander->send({3, wire::Heartbeat{}});
  ASSERT_TRUE(receive_until(*bystander, [&] { return !bystander->messages.empty(); }));
}

TEST_F(NetworkLimitsTest, AReaderThatTakesNothingIsDisconnectedAfterAWhile) {
  NetworkOptions options;
  options.outbound_bytes_max = 64 * 1024 * 1024;
  options.connection.write_timeout_ms = 50;
  start(options);
  auto client = connect();
  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    for (int i = 0; i < 1000; ++i) {
      network_->send(connection,
                     {message.id, wire::Error{Status::kInvalid, std::string(9000, 'x')}});
    }
  };
  client->send(begin_message(1));
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));
  EXPECT_NE(handler_.logged("connection_closed", "reason").find("it took nothing for 50 ms"),
            std::string::npos);
}

TEST_F(NetworkLimitsTest, AReaderThatKeepsReadingGetsEverything) {
  NetworkOptions options;
  options.outbound_bytes_max = 64 * 1024 * 1024;
  start(options);
  auto client = connect();
  constexpr int kAnswers = 1000;
  handler_.answer = [&](ConnectionId connection, const wire::Message&) {
    for (std::uint64_t i = 1; i <= kAnswers; ++i) {
      network_->send(connection, {i, wire::Error{Status::kInvalid, std::string(9000, 'x')}});
    }
  };
  client->send(begin_message(1));
  ASSERT_TRUE(receive_until(*client, [&] { return client->messages.size() == kAnswers; }));
  for (std::uint64_t i = 1; i <= kAnswers; ++i) ASSERT_EQ(client->messages[i - 1].id, i);
}

TEST_F(NetworkLimitsTest, TheBuffersOfAllConnectionsTogetherHaveABound) {
  NetworkOptions options;
  options.buffered_bytes_max = 400'000;
  start(options);
  auto bystander = connect();
  auto greedy = connect();
  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    for (std::uint64_t i = 0; i < message.id; ++i) {
      network_->send(connection, {i, wire::Error{Status::kInvalid, std::string(9000, 'x')}});
    }
  };
  greedy->send(begin_message(100));
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));
  EXPECT_THAT(handler_.logged("connection_closed", "reason"),
              AllOf(HasSubstr("its buffers hold"), HasSubstr("400000 are allowed")));
  EXPECT_EQ(network_->stats().refused[static_cast<std::size_t>(Refusal::kBuffers)], 1U);
  // Its memory is there for others again, and what is within the floor is served in any case.
  EXPECT_LT(network_->stats().buffered, 100'000U);
  bystander->send(begin_message(5));
  ASSERT_TRUE(receive_until(*bystander, [&] { return bystander->messages.size() == 5; }));
}

TEST_F(NetworkLimitsTest, FramesThatAreNeverFinishedCountToo) {
  NetworkOptions options;
  options.buffered_bytes_max = 180'000;
  options.connection.frame_bytes_max = 1'000'000;
  start(options);
  std::vector<std::uint8_t> begun(100'000);
  begun[2] = 8;  // of 512 KiB
  auto first = connect();
  first->send_bytes(begun);
  ASSERT_TRUE(run_until([&] { return network_->stats().buffered >= begun.size(); }));
  auto second = connect();
  second->send_bytes(begun);
  ASSERT_TRUE(run_until([&] { return handler_.closed.size() == 1; }));
  EXPECT_THAT(handler_.logged("connection_closed", "reason"), HasSubstr("180000 are allowed"));
  EXPECT_EQ(network_->stats().sessions, 1U) << "the other one holds what it held";
}

TEST_F(NetworkLimitsTest, AnAnswerLargerThanAFrameBecomesAnError) {
  start();
  auto client = connect();
  handler_.answer = [&](ConnectionId connection, const wire::Message& message) {
    wire::HistoryReply reply;
    for (int i = 0; i < 4; ++i) reply.records.push_back({1, std::vector<std::uint8_t>(30'000)});
    network_->send(connection, {message.id, reply});
  };
  client->send(begin_message(6));
  ASSERT_TRUE(receive_until(*client, [&] { return !client->messages.empty(); }));
  ASSERT_NE(client->last<wire::Error>(), nullptr);
  EXPECT_EQ(client->messages.back().id, 6U);
  EXPECT_EQ(client->last<wire::Error>()->status, Status::kLimit);
}

TEST_F(NetworkLimitsTest, ConnectionsAboveTheLimitAreRefusedAndRoomIsUsedAgain) {
  NetworkOptions options;
  options.connections_max = 2;
  start(options);
  auto first = connect();
  auto second = connect();
  {
    RawClient third(socket_path());
    ASSERT_TRUE(receive_until(third, [&] { return third.ended; }));
    ASSERT_NE(third.last<wire::Error>(), nullptr);
    EXPECT_EQ(third.last<wire::Error>()->status, Status::kLimit);
    EXPECT_NE(handler_.logged("connections_refused", "reason").find("connections_max"),
              std::string::npos);
  }
  first.reset();
  ASSERT_TRUE(run_until([&] { return network_->stats().sessions == 1; }));
  auto fourth = connect();
  EXPECT_EQ(network_->stats().sessions, 2U);
}

// Whoever reaches the socket can be turned away as often as they like: the log stays readable, and
// says how often it was.
TEST_F(NetworkLimitsTest, ManyRefusalsAreFewLinesAndTheirNumber) {
  NetworkOptions options;
  options.connection.linger_ms = 1;
  start(options);
  constexpr std::uint64_t kClients = 300;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::uint64_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(socket_path()));
    clients.back()->send(begin_message(1));          // and no Hello
    if (i % 32 == 0) uv_run(&loop_, UV_RUN_NOWAIT);  // the backlog is short
  }
  const auto rejected = static_cast<std::size_t>(Refusal::kProtocol);
  ASSERT_TRUE(run_until([&] { return network_->stats().refused[rejected] == kClients; }));
  const auto told = [&] {
    std::uint64_t lines = 0;
    std::uint64_t more = 0;
    for (const LogLine& line : handler_.lines) {
      if (line.level != LogLevel::kWarn) continue;
      if (line.event == "connection_rejected") ++lines;
      if (line.event != "log_lines_left_out") continue;
      for (const auto& [key, value] : line.fields) {
        if (key == "lines") more += std::stoull(value);
      }
    }
    return std::pair(lines, more);
  };
  // The last of them are told of when their second is over, although nobody else comes.
  ASSERT_TRUE(run_until([&] { return told().first + told().second == kClients; }))
      << told().first << " lines and " << told().second << " more";
  EXPECT_LT(told().first, kClients / 2);
}

TEST_F(NetworkLimitsTest, RunningOutOfDescriptorsPausesAcceptingAndItComesBack) {
  start();
  auto before = connect();
  RawClient late(socket_path());  // waits in the backlog: the loop has not turned yet
  late.hello();
  std::vector<int> hoard;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit small{static_cast<rlim_t>(::dup(0)) + 3, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) hoard.push_back(fd);
  ASSERT_TRUE(run_until([&] { return !handler_.logged("accepting_paused", "reason").empty(); }));
  // Those who are connected are served meanwhile.
  before->send({2, wire::Heartbeat{}});
  EXPECT_TRUE(receive_until(*before, [&] { return !before->messages.empty(); }));
  for (const int fd : hoard) ::close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_TRUE(receive_until(late, [&] { return late.last<wire::Welcome>() != nullptr; }));
}

}  // namespace
}  // namespace syncd::net
