// Bytes that no client should send: the daemon answers with an error, closes that connection, and
// serves all others. unit/net/network_test.cpp tries each kind of them.
#include <gtest/gtest.h>

#include <random>

#include "support/daemon.h"
#include "support/raw_client.h"

namespace syncd::test {
namespace {

class BadFrames : public ::testing::Test {
 protected:
  RawClient connected() {
    RawClient client = greeted(daemon_.address());
    return client;
  }

  void TearDown() override {
    bystander_.expect_progress();
    EXPECT_TRUE(daemon_.running());
  }

  TempDir directory_;
  Daemon daemon_{directory_, {.store = "memory"}};
  Bystander bystander_{daemon_.address()};
};

TEST_F(BadFrames, GarbageInAFrameIsRefused) {
  RawClient client = connected();
  client.send_bytes(std::string("\x64\0\0\0", 4) + std::string(100, '\xA5'));
  const auto messages = client.drain_until_closed();
  ASSERT_EQ(messages.size(), 1U);
  const auto error = RawClient::as<wire::Error>(messages.back().body);
  EXPECT_EQ(error.status, Status::kProtocol);
  EXPECT_FALSE(error.message.empty());
  EXPECT_TRUE(daemon_.logged(error.message)) << "the reason belongs into the log";
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
