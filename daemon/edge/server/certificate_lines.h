// What the log says of the daemon's certificates at a start and at a reload. Pure functions; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "proto/transport/tls.h"

namespace syncd::server {

// One line for the certificate, one for what stands behind it in its file, and one for the
// authorities of clients, if there are any: until when they are in force, as a warning in the last
// two weeks (as the alert SyncdCertificateEndsSoon), and as an error if they are not (as a warning,
// where only some clients may care).
std::vector<LogLine> certificate_lines(const tls::ServerSettings& settings,
                                       const tls::ServerFacts& facts, std::int64_t now_s);

// Whether a certificate that is in force would give way to one that is not: a sentence that names
// it, or an empty text. Where those of before are no better, other settings need not wait for new
// ones.
std::string lapsed_certificate(const tls::ServerSettings& settings, const tls::ServerFacts& facts,
                               const tls::ServerFacts& before, std::int64_t now_s);

}  // namespace syncd::server
