// A certificate with names that no careful authority would sign.
#pragma once

#include <string>
#include <vector>

namespace syncd::test {

// Made out for these DNS names, whatever bytes they hold, and signed by itself: it is its own
// authority. Written to two PEM files. Throws std::runtime_error where the library fails.
void write_odd_certificate(const std::string& certificate_path, const std::string& key_path,
                           const std::vector<std::string>& dns_names);

}  // namespace syncd::test
