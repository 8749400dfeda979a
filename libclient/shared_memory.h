// One mapping of memory that several processes share. It has no name while it is in use: others get
// its file descriptor, so nothing is left behind however the processes end. Owned by one
// object, unmapped and closed with it; the bytes may be used from any thread, under the user's own
// rules.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "proto/base/file.h"

namespace syncd {

// Shared memory could not be made or attached; what() says for what, how much, and why.
class SharedMemoryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class SharedMemory {
 public:
  // POSIX shared memory (shm_open), filled with zeros. Its name is removed before this returns. All
  // pages are reserved now, so a /dev/shm that is too small is an error here and not a SIGBUS
  // later.
  static SharedMemory create(std::size_t bytes, std::string_view purpose);

  // The same outside /dev/shm, whose size is often limited in containers (to 64 MiB, by default):
  // for large data. Linux memfd, whose size nobody can change any more. Pages are taken as they are
  // first written to; more than the machine has is refused here.
  static SharedMemory create_large(std::size_t bytes, std::string_view purpose);

  // Maps the memory behind a descriptor, which it then owns (and closes on failure).
  static SharedMemory attach(int fd, std::string_view purpose);

  SharedMemory(SharedMemory&& other) noexcept
      : fd_(std::move(other.fd_)), bytes_(std::exchange(other.bytes_, {})) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  std::span<std::byte> bytes() const { return bytes_; }

  // Closed on exec unless the spawner lets it through.
  int fd() const { return fd_.get(); }

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  static SharedMemory map(UniqueFd fd, std::size_t bytes, std::string_view purpose);

  UniqueFd fd_;
  std::span<std::byte> bytes_;
};

}  // namespace syncd
