// Bytes that no client should send: each gets a clear error, loses its own connection, and disturbs
// nobody else.
#include <gmock/gmock.h>

#include <random>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BadFrames : public ::testing::Test {
 protected:
  RawClient connected() {
    RawClient client(daemon_.address());
    client.hello();
    return client;
  }

  // The one error that is the daemon's last word on this connection.
  wire::Error last_word(RawClient& client) {
    const auto messages = client.drain_until_closed();
    EXPECT_EQ(messages.size(), 1U);
    if (messages.empty()) throw std::runtime_error("the daemon closed without a word");
    return RawClient::as<wire::Error>(messages.back().body);
  }

  void TearDown() override {
    bystander_.expect_progress();
    EXPECT_TRUE(daemon_.running());
  }

  TempDir directory_;
  Daemon daemon_{directory_, {.store = "memory"}};
  Bystander bystander_{daemon_.address()};
};

std::string frame_of(const std::string& payload) {
  std::string frame(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) frame[i] = static_cast<char>(payload.size() >> (8 * i));
  return frame + payload;
}

TEST_F(BadFrames, GarbageInAFrameIsRefused) {
  RawClient client = connected();
  client.send_bytes(frame_of(std::string(100, '\xA5')));
  const wire::Error error = last_word(client);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_FALSE(error.message.empty());
  EXPECT_TRUE(daemon_.logged(error.message)) << "the reason belongs into the log";
}

TEST_F(BadFrames, AnotherProtocolIsRefused) {
  RawClient client(daemon_.address());
  client.send_bytes("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(last_word(client).status, Status::kProtocol);
}

TEST_F(BadFrames, AnOversizedFrameIsRefusedAndBothSizesAreNamed) {
  RawClient client(daemon_.address());
  const wire::Welcome welcome = client.hello();
  ASSERT_EQ(welcome.max_frame_bytes, kDefaultMaxFrameBytes);
  // Nothing but the length: the daemon must not wait for the rest of it.
  client.send_bytes(std::string("\x01\x00\x01\x00", 4));
  const wire::Error error = last_word(client);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, AllOf(HasSubstr("65537"), HasSubstr("65536")));
}

TEST_F(BadFrames, AnEmptyFrameIsRefused) {
  RawClient client = connected();
  client.send_bytes(std::string(4, '\0'));
  EXPECT_EQ(last_word(client).status, Status::kProtocol);
}

TEST_F(BadFrames, AnUnknownProtocolVersionIsRefusedAndBothRangesAreNamed) {
  RawClient client(daemon_.address());
  wire::Hello hello;
  hello.protocol_min = 7;
  hello.protocol_max = 9;
  client.send(hello);
  const wire::Error error = last_word(client);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, AllOf(HasSubstr("7"), HasSubstr("9"), HasSubstr("version 1")));
}

TEST_F(BadFrames, ARequestBeforeHelloIsRefused) {
  RawClient client(daemon_.address());
  client.send(join_of("job", 0, 1));
  const wire::Error error = last_word(client);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, AllOf(HasSubstr("Join"), HasSubstr("Hello")));
}

TEST_F(BadFrames, ASecondHelloIsRefused) {
  RawClient client = connected();
  wire::Hello hello;
  hello.protocol_min = hello.protocol_max = kProtocolMax;
  client.send(hello);
  const wire::Error error = last_word(client);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, HasSubstr("second Hello"));
}

TEST_F(BadFrames, ARequestWithoutAnIdIsRefused) {
  RawClient client = connected();
  client.send_with_id(0, wire::JobsRequest{});
  const wire::Error error = last_word(client);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, AllOf(HasSubstr("JobsRequest"), HasSubstr("id")));
}

TEST_F(BadFrames, WhatOnlyTheDaemonSaysIsRefused) {
  RawClient client = connected();
  client.send(wire::Granted{});
  const wire::Error error = last_word(client);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_THAT(error.message, HasSubstr("Granted"));
}

TEST_F(BadFrames, AFrameThatStopsInTheMiddleIsForgotten) {
  RawClient client = connected();
  client.send_bytes(frame_of(std::string(100, 'x')).substr(0, 50));
  client.close_sending();
  EXPECT_TRUE(client.drain_until_closed().empty());
}

TEST_F(BadFrames, AFrameThatComesByteByByteIsServed) {
  RawClient client(daemon_.address());
  wire::Hello hello;
  hello.protocol_min = hello.protocol_max = kProtocolMax;
  std::vector<std::uint8_t> frame;
  wire::Encoder encoder;
  encoder.append({1, hello}, frame);
  for (const std::uint8_t& byte : frame) client.send_bytes(std::span(&byte, 1));
  RawClient::as<wire::Welcome>(client.receive().body);
}

// Valid frames with one byte changed: whatever they have become, the daemon stays up. A request
// that still means something may be answered.
TEST_F(BadFrames, MutatedFramesNeverBringItDown) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  wire::Join join = join_of("mutated", 0, 2, "ssp:3");
  wire::Encoder encoder;
  std::vector<std::uint8_t> frame;
  encoder.append({2, join}, frame);
  encoder.append({3, wire::Begin{}}, frame);
  encoder.append({4, wire::Push{}}, frame);
  encoder.append({5, wire::WorkersRequest{"mutated", 0}}, frame);
  for (int round = 0; round < 200; ++round) {
    RawClient client = connected();
    std::vector<std::uint8_t> mutated = frame;
    mutated[random() % mutated.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);
    client.send_bytes(mutated);
    client.close_sending();
    client.drain_until_closed();
    ASSERT_TRUE(daemon_.running()) << "round " << round;
  }
}

}  // namespace
}  // namespace syncd::test
