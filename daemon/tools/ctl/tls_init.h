// `syncctl tls init`, `issue` and `renew`: a certificate authority of one's own as files in a
// directory. Needs no daemon.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace syncd::ctl {

struct TlsOptions {
  std::string directory;
  std::vector<std::string> hosts;  // of the daemon; empty: this machine's name
  std::string name = "worker";     // of a client's certificate: its identity is cert:NAME
  std::int64_t days = 365;
};

// Makes the directory (0700) and in it ca.crt, ca.key, server.crt, server.key, NAME.crt, NAME.key
// (keys 0600) and syncd.toml, which uses them, and prints what to do next. Writes over nothing.
// Answers an exit code; anything but kExitOk was complained about in `err`.
int run_tls_init(const TlsOptions& options, std::ostream& out, std::ostream& err);
// One more client's certificate from the authority in the directory.
int run_tls_issue(const TlsOptions& options, std::ostream& out, std::ostream& err);
// NAME.crt anew, written over at once, with owner and mode of the old one; NAME.key stays.
int run_tls_renew(const TlsOptions& options, std::ostream& out, std::ostream& err);

}  // namespace syncd::ctl
