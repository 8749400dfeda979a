// Files by descriptor: one owner, and reads and writes that go on after a signal. Where one fails,
// errno says why. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace syncd {

// Owns one file descriptor, or none.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd() { reset(); }
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept;

 private:
  int fd_ = -1;
};

// How much of `text` was written. Less than all of it: it failed.
std::size_t write_all(int fd, std::string_view text);

// Reads until `to` is full or the file ends, and returns how much that was. -1: it failed.
ssize_t read_all(int fd, std::span<char> to);

// The whole of a file, which may be a pipe.
bool read_file(const std::string& path, std::string& text);

// "/a" of "/a/b" and of "/a/b/", "/" of "/a", "." of "a".
std::string parent_of(const std::string& path);

// Waits until a file or a directory is on the disk.
bool sync_to_disk(const std::string& path);

}  // namespace syncd
