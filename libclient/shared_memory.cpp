// Shared memory: see shared_memory.h. No thread of its own.
#include "libclient/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

namespace syncd {
namespace {

[[noreturn]] void fail(std::string_view purpose, std::size_t bytes, const std::string& step,
                       int reason) {
  throw SharedMemoryError("shared memory for " + std::string(purpose) + " (" +
                          std::to_string(bytes) + " bytes): " + step + ": " +
                          std::generic_category().message(reason));
}

std::size_t machine_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Reserves every page. Throws if there are not that many.
void reserve(const UniqueFd& fd, std::size_t bytes, std::string_view purpose) {
  int reason = 0;
  do {
    reason = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
  } while (reason == EINTR);
  if (reason == 0) return;
  fail(purpose, bytes, "not enough of it (is /dev/shm large enough?)", reason);
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes, std::string_view purpose) {
  std::random_device random;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const std::string name =
        "/syncd-" + std::to_string(::getpid()) + "-" + std::to_string(random());
    UniqueFd fd(::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    if (!fd && errno == EEXIST) continue;
    if (!fd) fail(purpose, bytes, "shm_open", errno);
    ::shm_unlink(name.c_str());
    reserve(fd, bytes, purpose);
    return map(std::move(fd), bytes, purpose);
  }
  fail(purpose, bytes, "no free name", EEXIST);
}

SharedMemory SharedMemory::create_large(std::size_t bytes, std::string_view purpose) {
  // Nothing else holds a memfd back: the kernel would take pages until it kills somebody.
  if (bytes > machine_bytes()) {
    fail(purpose, bytes, "the machine has " + std::to_string(machine_bytes()) + " bytes", ENOMEM);
  }
  UniqueFd fd(::memfd_create("syncd", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail(purpose, bytes, "memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    fail(purpose, bytes, "ftruncate", errno);
  }
  // Whoever maps it can rely on its size.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    fail(purpose, bytes, "F_ADD_SEALS", errno);
  }
  return map(std::move(fd), bytes, purpose);
}

SharedMemory SharedMemory::attach(int given, std::string_view purpose) {
  UniqueFd fd(given);
  struct stat info {};
  if (::fstat(given, &info) != 0) fail(purpose, 0, "fstat", errno);
  ::fcntl(given, F_SETFD, FD_CLOEXEC);
  return map(std::move(fd), static_cast<std::size_t>(info.st_size), purpose);
}

SharedMemory SharedMemory::map(UniqueFd fd, std::size_t bytes, std::string_view purpose) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) fail(purpose, bytes, "mmap", errno);
  return {std::move(fd), {static_cast<std::byte*>(address), bytes}};
}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace syncd
