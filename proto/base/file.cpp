// See file.h.
#include "proto/base/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace syncd {

void UniqueFd::reset(int fd) noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

std::size_t write_all(int fd, std::string_view text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

ssize_t read_all(int fd, std::span<char> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count = ::read(fd, to.data() + done, to.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<ssize_t>(done);
}

bool read_file(const std::string& path, std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  text.clear();
  char piece[16 * 1024];
  while (fd) {
    const ssize_t count = read_all(fd.get(), piece);
    if (count <= 0) return count == 0;
    text.append(piece, static_cast<std::size_t>(count));
  }
  return false;
}

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/', path.find_last_not_of('/'));
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool sync_to_disk(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd && ::fsync(fd.get()) == 0;
}

}  // namespace syncd
