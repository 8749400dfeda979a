// See the header.
#include "daemon/server/certificate_lines.h"

#include <string>
#include <utility>

namespace syncd::server {
namespace {

constexpr std::int64_t kSoonS = std::int64_t{14} * 86'400;

LogLine certificate_line(const std::string& file, const tls::Validity& validity,
                         const char* consequence, std::int64_t now_s) {
  LogLine line{LogLevel::kInfo,
               "certificate",
               {{"file", file}, {"until", tls::date_text(validity.until_s)}}};
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
  lines.push_back(certificate_line(settings.certificate_file, facts.certificate,
                                   "no client accepts it over TLS", now_s));
  if (!settings.client_ca_file.empty()) {
    lines.push_back(certificate_line(settings.client_ca_file, facts.authorities,
                                     "no client's certificate is accepted over TLS", now_s));
  }
  return lines;
}

}  // namespace syncd::server
