#include "daemon/edge/net/session.h"

#include <gtest/gtest.h>

namespace syncd::net {
namespace {

SessionTerms terms(std::uint16_t low, std::uint16_t high) {
  SessionTerms t;
  t.server_version = "9.9";
  t.protocol_min = low;
  t.protocol_max = high;
  t.heartbeat_interval_ms = 250;
  t.heartbeat_timeout_ms = 1000;
  return t;
}

TEST(Session, ChoosesTheNewestVersionThatBothSpeak) {
  const auto answer = negotiate({2, 9, "c", "1", ""}, terms(1, 4), 77);
  const auto* welcome = std::get_if<wire::Welcome>(&answer);
  ASSERT_NE(welcome, nullptr);
  EXPECT_EQ(welcome->protocol, 4);
  EXPECT_EQ(welcome->session, 77U);
  EXPECT_EQ(welcome->server_version, "9.9");
  EXPECT_EQ(welcome->heartbeat_interval_ms, 250U);
  EXPECT_EQ(welcome->heartbeat_timeout_ms, 1000U);
  EXPECT_EQ(welcome->max_frame_bytes, kDefaultMaxFrameBytes);
}

TEST(Session, RefusesAVersionOutOfRangeAndNamesBothRanges) {
  for (const auto& [low, high] : {std::pair{5, 7}, std::pair{1, 1}, std::pair{4, 3}}) {
    const auto answer =
        negotiate({static_cast<std::uint16_t>(low), static_cast<std::uint16_t>(high), "c", "1", ""},
                  terms(2, 4), 1);
    const auto* error = std::get_if<wire::Error>(&answer);
    ASSERT_NE(error, nullptr) << low;
    EXPECT_EQ(error->status, Status::kProtocol);
    EXPECT_NE(error->message.find("versions 2 to 4"), std::string::npos) << error->message;
    EXPECT_NE(error->message.find(std::to_string(low)), std::string::npos) << error->message;
  }
}

}  // namespace
}  // namespace syncd::net
