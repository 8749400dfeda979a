// Shared memory: see shared_memory.h. No thread of its own.
#include "reference_trainer/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace syncd::trainer {
namespace {

[[noreturn]] void fail(std::string_view purpose, std::size_t bytes, std::string_view step,
                       int reason) {
  throw SharedMemoryError(fmt::format("shared memory for {} ({} bytes): {}: {}", purpose, bytes,
                                      step, std::strerror(reason)));
}

// Reserves every page. Closes fd and throws if there is not that much.
void reserve(int fd, std::size_t bytes, std::string_view purpose) {
  int reason = 0;
  do {
    reason = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (reason == EINTR);
  if (reason != 0) {
    ::close(fd);
    fail(purpose, bytes, "not enough of it (is /dev/shm large enough?)", reason);
  }
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes, std::string_view purpose) {
  std::random_device random;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const std::string name =
        fmt::format("/syncd-trainer-{}-{:08x}", ::getpid(), static_cast<unsigned>(random()));
    const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 && errno == EEXIST) continue;
    if (fd < 0) fail(purpose, bytes, "shm_open", errno);
    ::shm_unlink(name.c_str());
    reserve(fd, bytes, purpose);
    return map(fd, bytes, purpose);
  }
  fail(purpose, bytes, "no free name", EEXIST);
}

SharedMemory SharedMemory::create_large(std::size_t bytes, std::string_view purpose) {
  const int fd = ::memfd_create("syncd-trainer", MFD_CLOEXEC);
  if (fd < 0) fail(purpose, bytes, "memfd_create", errno);
  reserve(fd, bytes, purpose);
  return map(fd, bytes, purpose);
}

SharedMemory SharedMemory::attach(int fd, std::string_view purpose) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) fail(purpose, 0, "fstat", errno);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return map(fd, static_cast<std::size_t>(info.st_size), purpose);
}

SharedMemory SharedMemory::map(int fd, std::size_t bytes, std::string_view purpose) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    const int reason = errno;
    ::close(fd);
    fail(purpose, bytes, "mmap", reason);
  }
  return {fd, {static_cast<std::byte*>(address), bytes}};
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace syncd::trainer
