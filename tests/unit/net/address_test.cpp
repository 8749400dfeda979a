#include "daemon/edge/net/address.h"

#include <gtest/gtest.h>

namespace syncd::net {
namespace {

TEST(Address, ParsesHostAndPort) {
  TcpAddress address;
  std::string error;
  ASSERT_TRUE(parse_tcp_address("127.0.0.1:7117", address, error)) << error;
  EXPECT_EQ(address, (TcpAddress{"127.0.0.1", 7117}));
  ASSERT_TRUE(parse_tcp_address("[::1]:0", address, error)) << error;
  EXPECT_EQ(address, (TcpAddress{"::1", 0}));
  EXPECT_EQ(address.text(), "[::1]:0");
  ASSERT_TRUE(parse_tcp_address("node-b.example.org:65535", address, error)) << error;
  EXPECT_EQ(address.text(), "node-b.example.org:65535");
}

TEST(Address, RefusesWhatIsNoAddressAndSaysWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"127.0.0.1", "the port is missing"},
      {":7117", "the host is missing"},
      {"host:", "'' is not a port"},
      {"host:65536", "'65536' is not a port"},
      {"host:7x", "'7x' is not a port"},
      {"::1:7117", "an IPv6 address stands in brackets"},
      {"[::1:7117", "the closing ] is missing"},
      {"[::1]", "the port is missing"},
      {"[nonsense]:1", "'nonsense' is not an IPv6 address"},
      {"a b:1", "'a b' is not a host name"},
      {"", "the port is missing"},
  };
  for (const auto& [text, expected] : cases) {
    TcpAddress address{"untouched", 1};
    std::string error;
    EXPECT_FALSE(parse_tcp_address(text, address, error)) << text;
    EXPECT_NE(error.find(expected), std::string::npos) << error;
    EXPECT_NE(error.find("expected HOST:PORT"), std::string::npos) << error;
    EXPECT_EQ(address.host, "untouched");
  }
}

TEST(Address, KnowsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE((TcpAddress{host, 1}.is_loopback())) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "example.org",
                           "::ffff:10.0.0.1", "localhost.example.org"}) {
    EXPECT_FALSE((TcpAddress{host, 1}.is_loopback())) << host;
  }
}

}  // namespace
}  // namespace syncd::net
