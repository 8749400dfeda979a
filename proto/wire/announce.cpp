// See announce.h.
#include "proto/wire/announce.h"

#include <cstdio>

#include "proto/base/names.h"

namespace syncd {

std::string check_phase(std::string_view name, std::int64_t lease_us) {
  if (!is_name(name, kPhaseNameBytesMax)) {
    // A name that is much too long is not repeated in full.
    return "phase name '" + std::string(name.substr(0, kPhaseNameBytesMax)) +
           (name.size() > kPhaseNameBytesMax ? "...' of " + std::to_string(name.size()) + " bytes"
                                             : "'") +
           ": allowed are 1 to " + std::to_string(kPhaseNameBytesMax) + " of A-Z a-z 0-9 . _ -";
  }
  if (lease_us > 0 && lease_us <= kPhaseLeaseUsMax) return {};
  char lease[40];
  std::snprintf(lease, sizeof lease, "%.3f s", static_cast<double>(lease_us) / 1e6);
  return std::string("a lease of ") + lease + " for phase '" + std::string(name) +
         "': allowed are more than 0 and at most " + std::to_string(kPhaseLeaseUsMax / 1'000'000) +
         " s (24 h)";
}

}  // namespace syncd
