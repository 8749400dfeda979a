// A file with given contents that is in memory alone, for parsers that take a path. Any thread.
#pragma once

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "tests/fuzz/check.h"

namespace syncd::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view contents) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    require(fd_ >= 0 && fchmod(fd_, 0600) == 0, "no memory file can be made");
    set(contents);
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  void set(std::string_view contents) {
    require(ftruncate(fd_, 0) == 0 && pwrite(fd_, contents.data(), contents.size(), 0) ==
                                          static_cast<ssize_t>(contents.size()),
            "a memory file cannot be written");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

}  // namespace syncd::fuzz
