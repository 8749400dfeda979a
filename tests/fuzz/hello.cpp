// What a client says from its first byte on, to the daemon's rules of admission, handshake and
// routing, which need no socket: [who connects, stream of frames].
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "daemon/edge/net/admission.h"
#include "daemon/edge/net/session.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/memory_file.h"
#include "tests/support/choices.h"

namespace {

using namespace syncd;

constexpr const char* kTokens =
    "# those of this target\n"
    "0123456789abcdef\n"
    "[team-a] a-token-of-team-a\n";

// Two daemons: one that wants tokens and has rules for jobs, and one that asks for nothing.
struct Daemons {
  Daemons() {
    std::string error;
    net::AdmissionRules rules;
    rules.token_file = tokens.path();
    rules.unix_users = {1000};
    rules.allow = {{"token:team-*", "cifar*"}, {"cert:*.example", "*"}};
    rules.admin = {"token"};
    strict = net::Admission::make(rules, error);
    fuzz::require(strict != nullptr, "the rules are refused", error);
    open = net::Admission::make({}, error);
    fuzz::require(open != nullptr, "no rules are refused", error);
  }
  fuzz::MemoryFile tokens{kTokens};
  std::unique_ptr<net::Admission> strict;
  std::unique_ptr<net::Admission> open;
};

bool is_known_token(std::string_view token) {
  return token == "0123456789abcdef" || token == "a-token-of-team-a";
}

void use_jobs(const net::Admission& admission, const net::Identity& identity,
              const std::string& job) {
  std::string why;
  const bool may_use = admission.may_use(identity, job, why);
  fuzz::require(may_use || !why.empty(), "a job is refused without a word");
  why.clear();
  fuzz::require(admission.may_change(identity, job, why) || !why.empty(),
                "a change is refused without a word");
  fuzz::require(why.find("0123456789abcdef") == std::string::npos &&
                    why.find("a-token-of-team-a") == std::string::npos,
                "a token in a text", why);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Daemons daemons;
  if (size < 1) return 0;
  const unsigned who = data[0];
  const bool strict = (who & 1) != 0;
  const net::Admission& admission = strict ? *daemons.strict : *daemons.open;
  net::Applicant applicant;
  applicant.is_tcp = (who & 2) != 0;
  applicant.uid = (who & 4) != 0 ? 1000 : 54321;
  applicant.gid = 54321;
  if (applicant.is_tcp && (who & 8) != 0) applicant.certificate_names = {"a.example"};

  net::SessionTerms terms{"0.1.0", 1, static_cast<std::uint16_t>(1 + (who >> 4) % 3), 65536, 1, 2};
  wire::FrameSplitter splitter;
  splitter.append({data + 1, size - 1});
  std::span<const std::uint8_t> payload;
  std::string error;
  net::Identity identity;
  bool open = false;
  wire::Message message;
  while (splitter.next(payload, error) == wire::FrameSplitter::Result::kFrame) {
    error.clear();
    if (!wire::decode(payload, message, error)) {
      fuzz::require(!error.empty(), "an error without a text");
      return 0;
    }
    if (open) {
      const net::Route route = net::route(message, error);
      fuzz::require((route == net::Route::kBroken) == !error.empty(),
                    "a fault without a text, or "
                    "a text without a fault",
                    error);
      fuzz::require(route != net::Route::kHandler || message.id != 0, "a request without an id");
      if (const auto* join = std::get_if<wire::Join>(&message.body)) {
        use_jobs(admission, identity, join->job);
      }
      continue;
    }
    const auto* hello = std::get_if<wire::Hello>(&message.body);
    if (hello == nullptr) return 0;
    applicant.token = hello->token;
    if (!admission.admit(applicant, identity, error)) {
      fuzz::require(!error.empty(), "somebody is refused without a word");
      return 0;
    }
    // A certificate is no stand-in for a token: it is asked for beside it.
    const bool is_listed = !applicant.is_tcp && applicant.uid == 1000;
    fuzz::require(!strict || is_listed || is_known_token(hello->token),
                  "somebody got in without a token", identity.text());
    fuzz::require(!identity.is_owner, "somebody counts as the owner");
    const auto answer = net::negotiate(*hello, terms, 7);
    if (const auto* refusal = std::get_if<wire::Error>(&answer)) {
      fuzz::require(refusal->status == Status::kProtocol && !refusal->message.empty(),
                    "a handshake is refused without a word");
      fuzz::require_sound({1, *refusal});
      return 0;
    }
    const auto& welcome = std::get<wire::Welcome>(answer);
    fuzz::require(
        welcome.protocol >= hello->protocol_min && welcome.protocol <= hello->protocol_max &&
            welcome.protocol >= terms.protocol_min && welcome.protocol <= terms.protocol_max,
        "a protocol that one of both does not speak");
    fuzz::require_sound({1, welcome});
    open = true;
  }
  return 0;
}
