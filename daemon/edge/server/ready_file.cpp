// See the header.
#include "daemon/edge/server/ready_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace syncd::server {

bool ReadyFile::write(const std::vector<std::string>& endpoints, std::string& error) const {
  if (path_.empty()) return true;
  const std::string temporary = path_ + ".new";
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  bool good = file != nullptr;
  if (good) {
    for (const std::string& endpoint : endpoints) {
      good = std::fprintf(file, "%s\n", endpoint.c_str()) > 0 && good;
    }
    good = std::fclose(file) == 0 && good;
  }
  if (good && std::rename(temporary.c_str(), path_.c_str()) == 0) return true;
  error = "cannot write the ready file " + path_ + ": " + std::strerror(errno);
  return false;
}

void ReadyFile::remove() const {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace syncd::server
