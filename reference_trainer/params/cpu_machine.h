// The CPU as a Machine (machine_device.h): its memory is shared memory, which other processes
// open by descriptor, its groups are one thread, and its streams do everything at once, on the
// calling thread. Any thread.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "libclient/shared_memory.h"
#include "reference_trainer/params/machine_device.h"

namespace syncd::trainer {

class LoneGroup {
 public:
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void sync() {}
  std::uint64_t sum(std::uint64_t value) { return value; }
  // All tries of kDevicePullTries together wait about a tenth of a second.
  void pause(int attempt) {
    if (attempt < 64) {
      ::sched_yield();
    } else {
      ::usleep(100);
    }
  }
};

class CpuMachine {
 public:
  static constexpr bool kIsCpu = true;

  // `is_alone`: one thread does everything, as in virtual time.
  explicit CpuMachine(bool is_alone = false) : is_alone_(is_alone) {}
  bool is_alone() const { return is_alone_; }

  struct Stream {
    void* get() const { return nullptr; }
  };

  void* take(std::size_t bytes) {
    void* memory = std::calloc(std::max<std::size_t>(bytes, 1), 1);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  void* take_shared(std::size_t bytes) { return keep(SharedMemory::create_large(bytes, kPurpose)); }
  void give(void* memory) {
    const std::lock_guard lock(memories_->mutex);
    if (memories_->by_address.erase(memory) == 0) std::free(memory);
  }
  // Its descriptor, which processes that are started from here on have under the same number.
  DeviceHandle share(void* memory) const {
    const std::lock_guard lock(memories_->mutex);
    const int fd = memories_->by_address.at(memory).fd();
    ::fcntl(fd, F_SETFD, 0);
    DeviceHandle handle{};
    std::memcpy(handle.data(), &fd, sizeof(fd));
    return handle;
  }
  void* open(const DeviceHandle& handle) {
    int fd = -1;
    std::memcpy(&fd, handle.data(), sizeof(fd));
    const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) throw SharingRefused(std::string(kPurpose) + ": " + std::strerror(errno));
    return keep(SharedMemory::attach(own, kPurpose));
  }
  void close(void* memory) { give(memory); }

  Stream new_stream() { return {}; }
  void copy_in(void*, void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  void copy_out(void*, void* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
  }
  void fill(void*, void* memory, unsigned char value, std::size_t bytes) {
    std::memset(memory, value, bytes);
  }
  template <typename Step>
  void run(void*, std::size_t pieces, const Step& step) {
    LoneGroup group;
    for (std::size_t piece = 0; piece < pieces; ++piece) step(group, piece);
  }
  void wait(void*) {}
  void settle(void*) noexcept {}
  CpuMachine of(const void*) { return *this; }
  CpuMachine of_worker(int) { return *this; }
  void must_reach(const CpuMachine&) {}
  void reach(const CpuMachine&) {}

 private:
  static constexpr const char* kPurpose = "the parameters";

  struct Memories {
    std::mutex mutex;
    std::map<const void*, SharedMemory> by_address;
  };

  void* keep(SharedMemory memory) {
    void* const address = memory.bytes().data();
    const std::lock_guard lock(memories_->mutex);
    memories_->by_address.emplace(address, std::move(memory));
    return address;
  }

  bool is_alone_;
  std::shared_ptr<Memories> memories_ = std::make_shared<Memories>();
};

}  // namespace syncd::trainer
