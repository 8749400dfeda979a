#include "proto/base/suggest.h"

#include <gtest/gtest.h>

namespace syncd {
namespace {

TEST(Suggest, FindsTheNearestName) {
  const std::vector<std::string> known = {"tcp", "unix", "heartbeat_timeout", "handshake_timeout"};
  EXPECT_EQ(nearest("tpc", known), "tcp");
  EXPECT_EQ(nearest("unx", known), "unix");
  EXPECT_EQ(nearest("heartbeattimeout", known), "heartbeat_timeout");
  EXPECT_EQ(nearest("handshke_timeot", known), "handshake_timeout");
}

TEST(Suggest, IsSilentWhenNothingIsNear) {
  const std::vector<std::string> known = {"tcp", "unix"};
  EXPECT_EQ(nearest("port", known), "");
  EXPECT_EQ(nearest("x", known), "");
  EXPECT_EQ(nearest(std::string(1000, 't'), known), "");
  EXPECT_EQ(nearest("tcp", {}), "");
}

}  // namespace
}  // namespace syncd
