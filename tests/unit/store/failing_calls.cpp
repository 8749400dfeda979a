// See failing_calls.h.
#include "tests/unit/store/failing_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace syncd::store {

Calls& calls() {
  static Calls the;
  return the;
}

}  // namespace syncd::store

using syncd::store::calls;

extern "C" int fsync(int fd) {
  if (calls().fsyncs_before_failure >= 0 && calls().fsyncs_before_failure-- == 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, fd));
}

extern "C" int renameat2(int from_in, const char* from, int to_in, const char* to,
                         unsigned flags) noexcept {
  if (calls().exchange_error != 0) {
    errno = calls().exchange_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_renameat2, from_in, from, to_in, to, flags));
}

extern "C" int mkdir(const char* path, mode_t mode) noexcept {
  struct stat info {};
  const std::string parent = std::filesystem::path(path).parent_path();
  if (stat(parent.c_str(), &info) == 0) {
    const std::lock_guard lock(calls().mutex);
    calls().made.push_back({path, info.st_mode});
  }
  return static_cast<int>(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
