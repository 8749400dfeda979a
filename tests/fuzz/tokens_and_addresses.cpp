// What an operator writes about who may connect, and where: [what, text].
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/edge/net/address.h"
#include "daemon/edge/net/admission.h"
#include "libclient/endpoint.h"
#include "proto/transport/secret_file.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/memory_file.h"

namespace {

using namespace syncd;

// A daemon's tokens: whoever brings one of the lines gets in, and nobody else.
void try_tokens(std::string_view text) {
  static fuzz::MemoryFile file("");
  file.set(text);
  std::string error;
  net::AdmissionRules rules;
  rules.token_file = file.path();
  const auto admission = net::Admission::make(rules, error);
  if (!admission) {
    fuzz::require(error.starts_with(file.path()), "an error that does not name the file", error);
    return;
  }
  fuzz::require(admission->tokens() > 0 && admission->tokens() <= net::kTokensMax,
                "a number of tokens that is not allowed");
  net::Applicant applicant;
  net::Identity identity;
  std::string why;
  applicant.token = "a token that is not in the file, of which a fuzzer cannot know";
  fuzz::require(!admission->admit(applicant, identity, why) && !why.empty(), "a stranger got in");
  std::size_t admitted = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    if (line.starts_with('[')) line.remove_prefix(line.find("] ") + 2);
    applicant.token = line;
    net::Identity known;
    fuzz::require(admission->admit(applicant, known, why), "a token of the file is refused", line);
    fuzz::require(known.text().find(line) == std::string::npos || line.size() < 64,
                  "a token in an identity", known.text());
    ++admitted;
  }
  fuzz::require(admitted == admission->tokens(), "another number of tokens");
}

// A client's token.
void try_token(std::string_view text) {
  static fuzz::MemoryFile file("");
  file.set(text);
  std::string token;
  std::string error;
  if (!read_token_file(file.path(), token, error)) {
    fuzz::require(!error.empty() && token.empty(), "refused without a word");
    return;
  }
  fuzz::require(!token.empty() && text.starts_with(token) && token.size() <= kTokenBytesMax,
                "another token than the file's");
}

void try_address(std::string_view text) {
  net::TcpAddress address{"untouched", 7};
  std::string error;
  if (!net::parse_tcp_address(text, address, error)) {
    fuzz::require(!error.empty() && address == net::TcpAddress{"untouched", 7},
                  "refused without a word, or not without a trace", text);
    return;
  }
  net::TcpAddress again;
  fuzz::require(net::parse_tcp_address(address.text(), again, error) && again == address,
                "an address changes", address.text());
  (void)address.is_loopback();
}

void try_endpoints(std::string_view text) {
  std::vector<client::Endpoint> endpoints;
  std::string error;
  if (!client::parse_endpoints(text, endpoints, error)) {
    fuzz::require(!error.empty() && endpoints.empty(), "refused without a word", text);
    return;
  }
  fuzz::require(!endpoints.empty(), "accepted without an endpoint");
  for (const client::Endpoint& endpoint : endpoints) {
    std::vector<client::Endpoint> again;
    fuzz::require(client::parse_endpoints(endpoint.text(), again, error) && again.size() == 1 &&
                      again.front() == endpoint,
                  "an endpoint changes", endpoint.text());
  }
}

// "WHO\nJOB\nNAME\nUSED": a rule's two patterns, and somebody's name and the job they want.
void try_rules(std::string_view text) {
  std::vector<std::string> fields(1);
  for (const char c : text) {
    if (c == '\n') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  fields.resize(4);
  net::AdmissionRules rules;
  rules.allow = {{fields[0], fields[1]}};
  rules.admin = {fields[0]};
  std::string why;
  const auto admission = net::Admission::make(rules, why);
  fuzz::require(admission != nullptr, "rules are refused", why);
  net::Identity somebody;
  somebody.names = {fields[2]};
  const bool may_use = admission->may_use(somebody, fields[3], why);
  fuzz::require(may_use || !why.empty(), "refused without a word");
  const bool may_change = admission->may_change(somebody, fields[3], why);
  // Both ask the same pattern for who somebody is.
  fuzz::require(!may_use || may_change, "may use what they are nobody for", fields[0]);
  fuzz::require(!admission->may_use({}, fields[3], why), "somebody without a name got in");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view text = fuzz::text_of({data + 1, size - 1});
  switch (data[0] % 5) {
    case 0:
      try_tokens(text);
      break;
    case 1:
      try_token(text);
      break;
    case 2:
      try_address(text);
      break;
    case 3:
      try_endpoints(text);
      break;
    case 4:
      try_rules(text);
      break;
  }
  return 0;
}
