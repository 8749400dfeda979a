// Who may use the daemon, and for what: shared tokens, certificates, and the users of a Unix
// socket. It keeps digests of the tokens, never a token itself, and no text of its names one. One
// thread at a time.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace syncd::net {

struct AdmissionRules {
  // A file with one token a line, each at least kTokenBytesMin bytes long and perhaps with a name
  // before it: "[NAME] TOKEN"; empty lines and those that begin with # say nothing. Empty: no token
  // is asked for.
  std::string token_file;
  // Who may use the Unix socket without a token, beside root and the daemon's own user. Unless both
  // are empty, or there are tokens, no other user may.
  std::vector<uid_t> unix_users;
  std::vector<gid_t> unix_groups;
  // Patterns (of *, ? and [...], as in a shell) of an identity and of the jobs that it may use.
  // None: all admitted clients may use every job.
  struct Allow {
    std::string who;
    std::string job;
  };
  std::vector<Allow> allow;
  // Patterns of the identities that may create, stop and change jobs. None: all admitted, if
  // `allow` is empty too.
  std::vector<std::string> admin;
  // Patterns of those that may read the metrics and the status of all jobs, beside `admin`. None:
  // all admitted, if `admin` and `allow` are empty too.
  std::vector<std::string> metrics;

  bool empty() const {
    return token_file.empty() && unix_users.empty() && unix_groups.empty() && allow.empty() &&
           admin.empty() && metrics.empty();
  }
};

inline constexpr std::size_t kTokenFileBytesMax = 1024 * 1024;
inline constexpr std::size_t kTokenBytesMin = 16;
inline constexpr std::size_t kTokensMax = 1024;

// What the system and TLS say of a connection, and what its Hello says.
struct Applicant {
  bool is_tcp = true;
  uid_t uid = static_cast<uid_t>(-1);  // of a Unix socket
  gid_t gid = static_cast<gid_t>(-1);
  std::vector<gid_t> groups;  // its user's others
  std::vector<std::string> certificate_names;
  std::string certificate_digest;  // of a certificate that has no name
  std::string_view token;
};

// Who a client is: "cert:NAME" for each name in a certificate, "cert-sha256:DIGEST" for one that
// has none, "token:NAME" or "token", "uid:1000", and "gid:1000" for the user's own group and for
// each other of the user's that a rule may name.
struct Identity {
  std::vector<std::string> names;
  bool is_owner = false;  // root or the daemon's own user, on this machine: may do everything

  // "cert:a.example, token:team-a"; "nobody known" if there are none. Of very many, the first and
  // how many more there are: the log and answers hold it.
  std::string text() const;
  // Those for which a client's share is counted, each by itself, so that no combination of them is
  // somebody new: all but groups, and the token without a name that many may have, unless there is
  // nothing else.
  std::vector<std::string> counted() const;
};

class Admission {
 public:
  // Null, with a sentence in `error` that names the file, if the tokens cannot be read.
  static std::unique_ptr<Admission> make(AdmissionRules rules, std::string& error);

  // Reads the tokens again. False, with a sentence in `error`: the ones before stay in force.
  bool reload(std::string& error);
  // A number for what it admits over the network: who has another one may treat a client otherwise.
  // The order of rules and tokens does not matter, nor do users and groups of this machine. Never
  // 0.
  std::uint64_t fingerprint() const;
  std::size_t tokens() const { return tokens_.size(); }

  // False: `why` says what is missing or wrong.
  bool admit(const Applicant& applicant, Identity& identity, std::string& why) const;
  // Whether an admitted client may join a job and read of it.
  bool may_use(const Identity& identity, const std::string& job, std::string& why) const;
  // Patterns of the jobs that may_use() admits, for who asks about thousands of jobs: the rules are
  // looked through once.
  std::vector<std::string> jobs_of(const Identity& identity) const;
  static bool is_one_of(const std::vector<std::string>& patterns, const std::string& job);
  static std::string may_not_use(const Identity& identity, const std::string& job);
  // Whether they may create, stop or change it.
  bool may_change(const Identity& identity, const std::string& job, std::string& why) const;
  // Whether there are jobs that somebody who was admitted may not use.
  bool hides_jobs() const { return !rules_.allow.empty(); }
  // Whether they are an administrator: may change every job.
  bool is_admin(const Identity& identity) const {
    return (rules_.admin.empty() && rules_.allow.empty()) || is_named_admin(identity);
  }
  // Whether they may read the metrics and the status of all jobs.
  bool may_watch(const Identity& identity, std::string& why) const;
  // Whether they may have the daemon open a file of their choice: an administrator that auth.admin
  // names or, where there are no rules at all, every client that `is_here`, on the daemon's
  // machine.
  bool may_name_files(const Identity& identity, bool is_here, std::string& why) const;
  // Whether they may have the daemon write a copy of its store: the same ones.
  bool may_copy_store(const Identity& identity, bool is_here, std::string& why) const;
  // Whether unknown clients need a token.
  bool wants_token() const { return !rules_.token_file.empty(); }

 private:
  using Digest = std::array<std::uint8_t, 32>;
  struct Token {
    std::string identity;
    Digest digest;
  };

  bool is_named_admin(const Identity& identity) const;
  bool may_name_paths(const Identity& identity, bool is_here) const;
  explicit Admission(AdmissionRules rules) : rules_(std::move(rules)) {}
  const Token* find_token(std::string_view token) const;
  bool is_listed(const Applicant& applicant) const;
  void add_groups(const Applicant& applicant, Identity& identity) const;
  static Digest digest_of(std::string_view token);
  bool read_tokens(std::vector<Token>& tokens, std::string& error) const;

  AdmissionRules rules_;
  std::vector<Token> tokens_;
};

}  // namespace syncd::net
