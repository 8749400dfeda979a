// See admission.h.
#include "daemon/edge/net/admission.h"

#include <fnmatch.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "proto/base/names.h"
#include "proto/transport/secret_file.h"

namespace syncd::net {
namespace {

// A name of a certificate has up to 255.
constexpr std::size_t kIdentityTextBytes = 512;

bool matches(const std::string& pattern, const std::string& text) {
  return fnmatch(pattern.c_str(), text.c_str(), FNM_NOESCAPE) == 0;
}

bool has_any(const auto& listed, const auto& one) {
  return std::ranges::find(listed, one) != listed.end();
}

bool matches_any(const std::string& pattern, const Identity& identity) {
  return std::ranges::any_of(identity.names,
                             [&](const std::string& name) { return matches(pattern, name); });
}

// Cuts "[NAME] " off. False: it begins like one and is none.
bool take_name(std::string_view& line, std::string_view& name) {
  if (!line.starts_with('[')) return true;
  const std::size_t end = line.find("] ");
  if (end == std::string_view::npos || !is_name(line.substr(1, end - 1))) return false;
  name = line.substr(1, end - 1);
  line.remove_prefix(end + 2);
  return true;
}

}  // namespace

std::string Identity::text() const {
  if (names.empty()) return "nobody known";
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0 && text.size() + names[i].size() > kIdentityTextBytes) {
      return text + " and " + std::to_string(names.size() - i) + " more";
    }
    text += (i > 0 ? ", " : "") + names[i];
  }
  return text;
}

std::vector<std::string> Identity::counted() const {
  std::vector<std::string> counted;
  for (const std::string& name : names) {
    if (!name.starts_with("gid:") && (name != "token" || names.size() == 1)) {
      counted.push_back(name);
    }
  }
  return counted;
}

std::unique_ptr<Admission> Admission::make(AdmissionRules rules, std::string& error) {
  std::unique_ptr<Admission> admission(new Admission(std::move(rules)));
  return admission->reload(error) ? std::move(admission) : nullptr;
}

bool Admission::reload(std::string& error) {
  std::vector<Token> tokens;
  if (!rules_.token_file.empty() && !read_tokens(tokens, error)) return false;
  tokens_ = std::move(tokens);
  return true;
}

std::uint64_t Admission::fingerprint() const {
  std::vector<std::string> parts;
  for (const Token& token : tokens_) {
    parts.push_back(token.identity + '\n' + std::string(token.digest.begin(), token.digest.end()));
  }
  for (const auto& [who, job] : rules_.allow) parts.push_back("allow\n" + who + '\n' + job);
  for (const std::string& who : rules_.admin) parts.push_back("admin\n" + who);
  for (const std::string& who : rules_.metrics) parts.push_back("metrics\n" + who);
  std::ranges::sort(parts);
  parts.erase(std::ranges::unique(parts).begin(), parts.end());
  std::string text;
  for (const std::string& part : parts) {
    const Digest digest = digest_of(part);
    text.append(digest.begin(), digest.end());
  }
  const Digest digest = digest_of(text);
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof(number));
  return std::max<std::uint64_t>(number, 1);
}

// ---- Tokens ------------------------------------------------------------------------------------

Admission::Digest Admission::digest_of(std::string_view token) {
  Digest digest{};
  unsigned size = 0;
  if (EVP_Digest(token.data(), token.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return digest;
}

bool Admission::read_tokens(std::vector<Token>& tokens, std::string& error) const {
  std::string text;
  if (!read_secret_file(rules_.token_file, kTokenFileBytesMax, text, error)) return false;
  const auto complain = [&](std::size_t line, const std::string& what) {
    error = rules_.token_file + ":" + std::to_string(line) + ": " + what;
    wipe(text);
    return false;
  };
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    ++number;
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    std::string_view name;
    if (!take_name(line, name)) {
      return complain(number,
                      "what stands before a token in brackets is no name; allowed: 1 to 64 of "
                      "A-Z a-z 0-9 . _ -, as in [team-a] TOKEN");
    }
    if (line.front() == ' ' || line.back() == ' ' || line.back() == '\t') {
      return complain(number, "a blank stands before or after the token; allowed are none there");
    }
    if (line.size() < kTokenBytesMin || line.size() > kTokenBytesMax) {
      return complain(number, "the token has " + std::to_string(line.size()) +
                                  " bytes; allowed: " + std::to_string(kTokenBytesMin) + " to " +
                                  std::to_string(kTokenBytesMax) +
                                  ", such as openssl rand -hex 32 makes");
    }
    // Or a file of another kind is taken for tokens, and locks everybody out.
    if (std::any_of(line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; })) {
      return complain(number,
                      "the token has bytes that are no printable ASCII characters; allowed are "
                      "those, such as openssl rand -hex 32 makes");
    }
    if (tokens.size() == kTokensMax) {
      return complain(number, "more than " + std::to_string(kTokensMax) + " tokens");
    }
    const Digest digest = digest_of(line);
    const auto same = std::ranges::find(tokens, digest, &Token::digest);
    if (same != tokens.end()) {
      return complain(number, "the token stands in the file already, as " + same->identity +
                                  "; allowed is each once");
    }
    tokens.push_back({name.empty() ? "token" : "token:" + std::string(name), digest});
  }
  if (tokens.empty()) return complain(number, "there is no token in it");
  wipe(text);
  return true;
}

// Compares with each of them to the end: the time that it takes tells nothing of how near a guess
// was.
const Admission::Token* Admission::find_token(std::string_view token) const {
  const Digest digest = digest_of(token);
  const Token* found = nullptr;
  for (const Token& known : tokens_) {
    if (CRYPTO_memcmp(known.digest.data(), digest.data(), digest.size()) == 0) found = &known;
  }
  return found;
}

// ---- Admission ---------------------------------------------------------------------------------

bool Admission::is_listed(const Applicant& applicant) const {
  return has_any(rules_.unix_users, applicant.uid) || has_any(rules_.unix_groups, applicant.gid) ||
         std::ranges::any_of(applicant.groups,
                             [&](gid_t group) { return has_any(rules_.unix_groups, group); });
}

// Leaves out groups that no rule names, so that a log line's identity stays short.
void Admission::add_groups(const Applicant& applicant, Identity& identity) const {
  const auto is_named = [&](const std::string& name) {
    const auto names_it = [&](const std::string& pattern) { return matches(pattern, name); };
    return std::ranges::any_of(rules_.admin, names_it) ||
           std::ranges::any_of(rules_.metrics, names_it) ||
           std::ranges::any_of(rules_.allow, names_it, &AdmissionRules::Allow::who);
  };
  for (const gid_t group : applicant.groups) {
    const std::string name = "gid:" + std::to_string(group);
    if (group != applicant.gid && (has_any(rules_.unix_groups, group) || is_named(name))) {
      identity.names.push_back(name);
    }
  }
}

bool Admission::admit(const Applicant& applicant, Identity& identity, std::string& why) const {
  for (const std::string& name : applicant.certificate_names) {
    identity.names.push_back("cert:" + name);
  }
  if (!applicant.certificate_digest.empty()) {
    identity.names.push_back("cert-sha256:" + applicant.certificate_digest);
  }
  bool known = false;
  if (!applicant.is_tcp && applicant.uid != static_cast<uid_t>(-1)) {
    identity.names.push_back("uid:" + std::to_string(applicant.uid));
    identity.names.push_back("gid:" + std::to_string(applicant.gid));
    add_groups(applicant, identity);
    // Either could read the tokens and take the daemon's memory apart anyway.
    identity.is_owner = applicant.uid == 0 || applicant.uid == geteuid();
    known = identity.is_owner || is_listed(applicant);
  }
  const Token* token = applicant.token.empty() ? nullptr : find_token(applicant.token);
  if (token != nullptr) identity.names.push_back(token->identity);
  if (known || token != nullptr) return true;
  if (!rules_.token_file.empty()) {
    why = applicant.token.empty()
              ? "this daemon wants a token, and none was given (token_file, SYNCD_TOKEN_FILE)"
              : "the token that was given is not one of this daemon's";
    return false;
  }
  if (!applicant.is_tcp && !(rules_.unix_users.empty() && rules_.unix_groups.empty())) {
    why = "user " + std::to_string(applicant.uid) + " of group " + std::to_string(applicant.gid) +
          " may not use this socket (auth.unix_users, auth.unix_groups)";
    return false;
  }
  return true;
}

bool Admission::may_use(const Identity& identity, const std::string& job, std::string& why) const {
  if (rules_.allow.empty() || identity.is_owner) return true;
  for (const AdmissionRules::Allow& rule : rules_.allow) {
    if (matches_any(rule.who, identity) && matches(rule.job, job)) return true;
  }
  why = may_not_use(identity, job);
  return false;
}

std::vector<std::string> Admission::jobs_of(const Identity& identity) const {
  if (rules_.allow.empty() || identity.is_owner) return {"*"};
  std::vector<std::string> patterns;
  for (const AdmissionRules::Allow& rule : rules_.allow) {
    if (matches_any(rule.who, identity)) patterns.push_back(rule.job);
  }
  std::sort(patterns.begin(), patterns.end());
  patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
  return patterns;
}

bool Admission::is_one_of(const std::vector<std::string>& patterns, const std::string& job) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return matches(pattern, job); });
}

std::string Admission::may_not_use(const Identity& identity, const std::string& job) {
  return "'" + identity.text() + "' may not use job '" + job + "' (auth.allow)";
}

bool Admission::is_named_admin(const Identity& identity) const {
  const auto names = [&](const std::string& who) { return matches_any(who, identity); };
  return identity.is_owner || std::ranges::any_of(rules_.admin, names);
}

bool Admission::may_change(const Identity& identity, const std::string& job,
                           std::string& why) const {
  if (is_admin(identity)) return true;
  why = "'" + identity.text() + "' may not create, stop or change job '" + job + "' (auth.admin)";
  return false;
}

bool Admission::may_name_paths(const Identity& identity, bool is_here) const {
  return is_named_admin(identity) || (rules_.empty() && is_here);
}

bool Admission::may_copy_store(const Identity& identity, bool is_here, std::string& why) const {
  if (may_name_paths(identity, is_here)) return true;
  why = "'" + identity.text() +
        "' may not copy the store: the daemon's own user may, and whoever auth.admin names";
  return false;
}

bool Admission::may_name_files(const Identity& identity, bool is_here, std::string& why) const {
  if (may_name_paths(identity, is_here)) return true;
  why = "'" + identity.text() +
        "' may not have the daemon read a file, as a policy with file:PATH does: the configuration "
        "may ([[job]]), and whoever auth.admin names";
  return false;
}

bool Admission::may_watch(const Identity& identity, std::string& why) const {
  if (rules_.metrics.empty() && is_admin(identity)) return true;
  const auto names = [&](const std::string& who) { return matches_any(who, identity); };
  if (std::ranges::any_of(rules_.metrics, names) || std::ranges::any_of(rules_.admin, names)) {
    return true;
  }
  why = "'" + identity.text() + "' may not read the metrics (auth.metrics, auth.admin)";
  return false;
}

}  // namespace syncd::net
