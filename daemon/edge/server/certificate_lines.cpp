// See the header.
#include "daemon/edge/server/certificate_lines.h"

#include <algorithm>
#include <string>
#include <utility>

#include "proto/base/clock.h"

namespace syncd::server {
namespace {

constexpr std::int64_t kSoonS = std::int64_t{14} * 86'400;

LogLine certificate_line(const std::string& file, const char* what, const tls::Validity& validity,
                         const char* consequence, std::int64_t now_s) {
  LogLine line{LogLevel::kInfo,
               "certificate",
               {{"file", file}, {"of", what}, {"until", utc_text(validity.until_s * 1'000'000)}}};
  if (std::string why = tls::why_not_in_force(validity, now_s); !why.empty()) {
    line.level = LogLevel::kError;
    line.event = "certificate_not_in_force";
    line.fields.emplace_back("reason", "it " + std::move(why));
    line.fields.emplace_back("consequence", consequence);
  } else if (validity.until_s - now_s < kSoonS) {
    line.level = LogLevel::kWarn;
    line.event = "certificate_ends_soon";
    line.fields.emplace_back("hint", "put another in its place and send SIGHUP");
  }
  return line;
}

}  // namespace

std::vector<LogLine> certificate_lines(const tls::ServerSettings& settings,
                                       const tls::ServerFacts& facts, std::int64_t now_s) {
  std::vector<LogLine> lines;
  lines.push_back(certificate_line(settings.certificate_file, "daemon", facts.certificate,
                                   "no client accepts it over TLS", now_s));
  if (facts.chain.until_s != 0) {
    lines.push_back(certificate_line(
        settings.certificate_file, "intermediate_authority", facts.chain,
        "clients that know no other way to its authority do not accept the daemon's", now_s));
    lines.back().level = std::min(lines.back().level, LogLevel::kWarn);
  }
  if (!settings.client_ca_file.empty()) {
    lines.push_back(certificate_line(settings.client_ca_file, "clients_authority",
                                     tls::best_of(facts.authorities, now_s),
                                     "no client's certificate is accepted over TLS", now_s));
  }
  return lines;
}

std::string lapsed_certificate(const tls::ServerSettings& settings, const tls::ServerFacts& facts,
                               const tls::ServerFacts& before, std::int64_t now_s) {
  const auto why_not = [&](const tls::Validity& validity) {
    return validity.until_s == 0 ? std::string{} : tls::why_not_in_force(validity, now_s);
  };
  const auto lapsed = [&](const tls::Validity& was, const tls::Validity& is) {
    return why_not(was).empty() ? why_not(is) : std::string{};
  };
  if (const std::string why = lapsed(before.certificate, facts.certificate); !why.empty()) {
    return "certificate " + settings.certificate_file + " " + why;
  }
  const std::string why =
      lapsed(tls::best_of(before.authorities, now_s), tls::best_of(facts.authorities, now_s));
  return why.empty() ? why : "certificate authority " + settings.client_ca_file + " " + why;
}

}  // namespace syncd::server
