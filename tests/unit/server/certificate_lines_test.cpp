// What the log says of the daemon's certificates.
#include "daemon/edge/server/certificate_lines.h"

#include <gtest/gtest.h>

#include <string>

#include "daemon/edge/server/log_text.h"

namespace syncd::server {
namespace {

constexpr std::int64_t kDay = 86'400;

TEST(CertificateLines, SayUntilWhenAndWarnInTheLastTwoWeeks) {
  const tls::ServerSettings settings{"server.crt", "server.key", "", false};
  const tls::ServerFacts facts{{0, 100 * kDay}, {}, {}, {}};
  const auto said = [&](std::int64_t now_s) {
    const auto lines = certificate_lines(settings, facts, now_s);
    EXPECT_EQ(lines.size(), 1U);
    return std::string(to_string(lines[0].level)) + " " + log_text(lines[0]);
  };
  const std::string file = " file=server.crt of=daemon until=1970-04-11T00:00:00Z";
  EXPECT_EQ(said(0), "info certificate" + file);
  EXPECT_EQ(said(86 * kDay), "info certificate" + file);
  EXPECT_EQ(said(86 * kDay + 1), "warn certificate_ends_soon" + file +
                                     " hint=\"put another in its place and send SIGHUP\"");
  EXPECT_EQ(said(100 * kDay + 1),
            "error certificate_not_in_force" + file +
                " reason=\"it has expired: it was valid until 1970-04-11T00:00:00Z\""
                " consequence=\"no client accepts it over TLS\"");
}

TEST(CertificateLines, NameTheAuthoritiesToo) {
  const tls::ServerSettings settings{"server.crt", "server.key", "ca.crt", true};
  const tls::ServerFacts facts{
      {0, 100 * kDay}, {0, kDay / 2}, {{50 * kDay, 100 * kDay}, {60 * kDay, 90 * kDay}}, {}};
  const auto lines = certificate_lines(settings, facts, kDay);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(log_text(lines[0]), "certificate file=server.crt of=daemon until=1970-04-11T00:00:00Z");
  EXPECT_EQ(lines[1].level, LogLevel::kWarn);
  EXPECT_EQ(log_text(lines[1]),
            "certificate_not_in_force file=server.crt of=intermediate_authority "
            "until=1970-01-01T12:00:00Z "
            "reason=\"it has expired: it was valid until 1970-01-01T12:00:00Z\" "
            "consequence=\"clients that know no other way to its authority do not accept the "
            "daemon's\"");
  EXPECT_EQ(lines[2].level, LogLevel::kError);
  EXPECT_EQ(log_text(lines[2]),
            "certificate_not_in_force file=ca.crt of=clients_authority until=1970-04-11T00:00:00Z "
            "reason=\"it is not valid before 1970-02-20T00:00:00Z\" "
            "consequence=\"no client's certificate is accepted over TLS\"");
}

}  // namespace
}  // namespace syncd::server
