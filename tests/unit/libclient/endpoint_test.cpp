// Addresses of daemons as people write them.
#include "libclient/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace syncd::client {
namespace {

using testing::HasSubstr;

std::vector<std::string> texts(std::string_view list) {
  std::vector<Endpoint> endpoints;
  std::string error;
  EXPECT_TRUE(parse_endpoints(list, endpoints, error)) << error;
  std::vector<std::string> out;
  for (const Endpoint& endpoint : endpoints) out.push_back(endpoint.text());
  return out;
}

std::string complaint(std::string_view list) {
  std::vector<Endpoint> endpoints(1);
  std::string error;
  EXPECT_FALSE(parse_endpoints(list, endpoints, error)) << list;
  EXPECT_EQ(endpoints, std::vector<Endpoint>(1)) << "touched on failure";
  return error;
}

TEST(Endpoint, EveryFormIsUnderstood) {
  EXPECT_EQ(texts("unix:/run/s.sock"), std::vector<std::string>{"unix:/run/s.sock"});
  EXPECT_EQ(texts("tcp:head:1"), std::vector<std::string>{"tcp:head:1"});
  EXPECT_EQ(texts("head:65535"), std::vector<std::string>{"tcp:head:65535"});
  EXPECT_EQ(texts("head"), std::vector<std::string>{"tcp:head:7117"});
  EXPECT_EQ(texts("[::1]:99"), std::vector<std::string>{"tcp:[::1]:99"});
  EXPECT_EQ(texts("tls:head"), std::vector<std::string>{"tls:head:7117"});
  EXPECT_EQ(texts("tls://head:9"), std::vector<std::string>{"tls:head:9"});
  EXPECT_EQ(texts("tcp://[::1]:8"), std::vector<std::string>{"tcp:[::1]:8"});
  EXPECT_EQ(texts("tcp:[fe80::1]"), std::vector<std::string>{"tcp:[fe80::1]:7117"});
}

TEST(Endpoint, AListKeepsItsOrderAndMayHaveBlanks) {
  EXPECT_EQ(texts(" unix:/a , b:2,c "),
            (std::vector<std::string>{"unix:/a", "tcp:b:2", "tcp:c:7117"}));
}

TEST(Endpoint, AComplaintNamesTheItemAndWhatIsAllowed) {
  const std::string error = complaint("a:1,b:70000");
  EXPECT_THAT(error, HasSubstr("'b:70000'"));
  EXPECT_THAT(error, HasSubstr("'70000' is not a number from 1 to 65535"));
  EXPECT_THAT(error, HasSubstr("allowed: unix:/path/of/socket, tls:host:port, tcp:host:port"));
}

TEST(Endpoint, WhatIsWrongIsSaid) {
  EXPECT_THAT(complaint(""), HasSubstr("address 1 is empty; allowed: unix:"));
  EXPECT_THAT(complaint("a:1,,b:2"), HasSubstr("address 2 is empty; allowed: unix:"));
  EXPECT_THAT(complaint("a:1,"), HasSubstr("address 2 is empty"));
  EXPECT_THAT(complaint("unix:relative"), HasSubstr("must be absolute"));
  EXPECT_THAT(complaint("unix:/" + std::string(200, 'x')), HasSubstr("201 bytes"));
  EXPECT_THAT(complaint("head:"), HasSubstr("a port must follow"));
  EXPECT_THAT(complaint(":7117"), HasSubstr("host is missing"));
  EXPECT_THAT(complaint("head:0"), HasSubstr("'0' is not a number"));
  EXPECT_THAT(complaint("head:7x"), HasSubstr("'7x' is not a number"));
  EXPECT_THAT(complaint("::1"), HasSubstr("must stand in brackets"));
  EXPECT_THAT(complaint("[::1"), HasSubstr("not closed"));
  using namespace std::string_literals;
  for (const std::string& host : {"localhost"s, "[::1"s, "::1 "s, "::1\0"s, "::1%a\0"s, ""s}) {
    EXPECT_NE(complaint("[" + host + "]:7117"), "") << host;
  }
  EXPECT_THAT(complaint("[head]"), HasSubstr("'head' is not an IPv6 address"));
  EXPECT_THAT(complaint("tcp:a[b:1"), HasSubstr("is not the name or address of a host"));
  EXPECT_THAT(complaint("unx:/run/s.sock"), HasSubstr("'unx:' is not a scheme; allowed: unix:"));
  EXPECT_THAT(complaint("a:1,ssl:b:7117"), HasSubstr("'ssl:b:7117': 'ssl:' is not a scheme"));
  EXPECT_THAT(complaint("https://b:7117"), HasSubstr("'https:' is not a scheme"));
  EXPECT_THAT(complaint("fe80::1"), HasSubstr("must stand in brackets"));
  EXPECT_THAT(complaint("/run/s.sock"), HasSubstr("is not the name or address of a host"));
}

TEST(Endpoint, AListHasAtMostSixteen) {
  std::string list = "h1";
  for (std::size_t i = 2; i <= kEndpointsMax; ++i) list += ",h" + std::to_string(i);
  EXPECT_EQ(texts(list).size(), kEndpointsMax);
  EXPECT_EQ(complaint(list + ",h17"), "address 'h17' is one too many; allowed: at most 16");
}

TEST(Endpoint, BesideTlsNothingGoesInTheClear) {
  EXPECT_EQ(texts("tls:a,unix:/s,tls:b").size(), 3U);
  EXPECT_EQ(texts("tcp:a,unix:/s,b").size(), 3U);
  for (const std::string list : {"tls:a,b:2", "tcp:b:2,unix:/s,tls:a"}) {
    EXPECT_EQ(complaint(list),
              "address 'tcp:b:2' has no TLS, but another one of the list has; allowed beside tls: "
              "addresses: tls: and unix: addresses");
  }
}

TEST(Endpoint, TheDefaultIsTheLocalSocketAndThenLocalhost) {
  const std::vector<Endpoint> endpoints = default_endpoints();
  ASSERT_EQ(endpoints.size(), 2U);
  EXPECT_EQ(endpoints[0].kind, Endpoint::Kind::kUnix);
  EXPECT_EQ(endpoints[1].text(), "tcp:127.0.0.1:7117");
}

}  // namespace
}  // namespace syncd::client
