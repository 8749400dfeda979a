// A small certificate authority of one's own, for a first secure set-up: EC P-256 keys,
// certificates signed with SHA-256. Pure functions but for the random numbers and the clock; any
// thread. They throw std::runtime_error, with what the library says, where memory or randomness
// runs out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syncd::ctl {

// Both in PEM. The key of an authority can sign any certificate: keep it secret.
struct CertificateAndKey {
  std::string certificate;
  std::string key;
};

struct CertificateOptions {
  std::string common_name = {};         // for people; the names that count are these
  std::vector<std::string> names = {};  // DNS names, numeric addresses, or URIs ("spiffe://...")
  bool for_server = false;
  bool for_client = false;
  // Seconds from now; a negative number lies in the past.
  std::int64_t valid_from_s = -300;  // clocks of a cluster differ a little
  std::int64_t valid_until_s = 0;
};

// One that may sign others and nothing else.
CertificateAndKey make_authority(const std::string& common_name, std::int64_t valid_s);
// Signed by `authority`. Throws std::invalid_argument that names an alternative name which is not
// valid.
CertificateAndKey make_certificate(const CertificateAndKey& authority,
                                   const CertificateOptions& options);

// The same certificate, of the same key, for `valid_s` from now on; in PEM. Throws
// std::runtime_error where it is none, or `authority` has not signed it.
std::string renew_certificate(const CertificateAndKey& authority, const std::string& certificate,
                              std::int64_t valid_s);

}  // namespace syncd::ctl
