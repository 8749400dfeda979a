// See named_files.h.
#include "daemon/edge/config/named_files.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <utility>

namespace syncd::config {

FileHashes hash_named_files(const Config& config) {
  FileHashes hashes;
  const std::pair<const char*, const std::string&> named[] = {
      {"auth.token_file", config.auth.token_file},
      {"tls.certificate", config.tls.certificate_file},
      {"tls.client_ca", config.tls.client_ca_file},
      {"tls.key", config.tls.key_file},
  };
  for (const auto& [key, path] : named) {
    if (path.empty()) continue;
    std::ifstream in(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    if (in.is_open()) hashes[key] = std::hash<std::string>()(bytes);
  }
  return hashes;
}

std::string differing_files(const FileHashes& before, const FileHashes& now) {
  std::map<std::string, std::size_t> differing;
  std::ranges::set_symmetric_difference(before, now, std::inserter(differing, differing.end()));
  std::string text;
  for (const auto& [key, hash] : differing) text += (text.empty() ? "" : ", ") + key;
  return text;
}

}  // namespace syncd::config
