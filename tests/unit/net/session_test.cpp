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

TEST(Session, RoutesByWhoMaySendWhat) {
  std::string error;
  EXPECT_EQ(route({5, wire::Begin{}}, error), Route::kHandler);
  EXPECT_EQ(route({5, wire::HistoryRequest{}}, error), Route::kHandler);
  EXPECT_EQ(route({0, wire::Heartbeat{}}, error), Route::kHeartbeat);
  EXPECT_EQ(route({3, wire::HeartbeatAck{}}, error), Route::kIgnore);
  EXPECT_EQ(route({0, wire::Unknown{99}}, error), Route::kIgnore);
  EXPECT_EQ(route({4, wire::Unknown{99}}, error), Route::kUnsupported);
  EXPECT_EQ(error, "");
  EXPECT_EQ(route({0, wire::Begin{}}, error), Route::kBroken);
  EXPECT_NE(error.find("id 0"), std::string::npos);
  EXPECT_EQ(route({4, wire::Hello{}}, error), Route::kBroken);
  EXPECT_NE(error.find("second Hello"), std::string::npos);
  EXPECT_EQ(route({4, wire::Granted{}}, error), Route::kBroken);
  EXPECT_NE(error.find("only the daemon"), std::string::npos);
}

}  // namespace
}  // namespace syncd::net
