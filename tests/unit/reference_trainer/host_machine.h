// The CPU in a GPU's place: a Machine of machine_device.h whose groups are one thread, or a
// team of them, and whose streams do everything at once, on the calling thread.
#pragma once

#include <sys/mman.h>

#include <barrier>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reference_trainer/params/cpu_machine.h"
#include "reference_trainer/params/machine_device.h"

namespace syncd::trainer::testing {

// Several threads that work on one piece together.
class TeamGroup {
 public:
  struct Shared {
    explicit Shared(std::size_t size) : barrier(static_cast<std::ptrdiff_t>(size)), values(size) {}
    std::barrier<> barrier;
    std::vector<std::uint64_t> values;
  };
  TeamGroup(Shared& shared, std::size_t rank) : shared_(shared), rank_(rank) {}

  std::size_t rank() const { return rank_; }
  std::size_t size() const { return shared_.values.size(); }
  void sync() { shared_.barrier.arrive_and_wait(); }
  std::uint64_t sum(std::uint64_t value) {
    shared_.values[rank_] = value;
    sync();
    std::uint64_t sum = 0;
    for (const std::uint64_t one : shared_.values) sum += one;
    sync();
    return sum;
  }
  void pause(int) { std::this_thread::yield(); }

 private:
  Shared& shared_;
  std::size_t rank_;
};

struct Died {};

// The first thread of two, the other of which never comes; both die at the end of the first half of
// the work: behind the first barrier, at the second.
class DyingGroup : public LoneGroup {
 public:
  std::size_t size() const { return 2; }
  void sync() {
    if (++syncs_ == 2) throw Died();
  }

 private:
  int syncs_ = 0;
};

class HostMachine {
 public:
  static constexpr bool kIsCpu = false;
  struct Settings {
    std::size_t team = 1;                   // threads of a group
    std::size_t dies_at = ~std::size_t{0};  // the piece in whose middle run() throws Died
    bool shares = true;
    bool reaches = true;
  };
  struct Stream {
    void* get() const { return nullptr; }
  };

  explicit HostMachine(Settings& settings) : settings_(&settings) {}

  // Shared with forks of this process, at the same address.
  void* take(std::size_t bytes) {
    const std::size_t all = bytes + kHeader;
    void* memory = ::mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    std::memcpy(memory, &all, sizeof(all));
    return static_cast<std::byte*>(memory) + kHeader;
  }
  void* take_shared(std::size_t bytes) { return take(bytes); }
  void give(void* memory) {
    void* start = static_cast<std::byte*>(memory) - kHeader;
    std::size_t all = 0;
    std::memcpy(&all, start, sizeof(all));
    ::munmap(start, all);
  }
  DeviceHandle share(void* memory) const {
    if (!settings_->shares) throw SharingRefused("this machine shares nothing");
    DeviceHandle handle{};
    std::memcpy(handle.data(), &memory, sizeof(memory));
    return handle;
  }
  void* open(const DeviceHandle& handle) {
    if (!settings_->shares) throw SharingRefused("this machine shares nothing");
    void* memory = nullptr;
    std::memcpy(&memory, handle.data(), sizeof(memory));
    return memory;
  }
  void close(void*) {}
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
  void wait(void*) {}
  void settle(void*) noexcept {}
  HostMachine of(const void*) { return *this; }
  HostMachine of_worker(int) { return *this; }
  void must_reach(const HostMachine&) {
    if (!settings_->reaches) throw std::runtime_error("this machine reaches no other");
  }
  void reach(const HostMachine&) {}

  template <typename Step>
  void run(void*, std::size_t pieces, const Step& step) {
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      if (piece == settings_->dies_at) {
        DyingGroup group;
        step(group, piece);
      } else if (settings_->team == 1) {
        LoneGroup group;
        step(group, piece);
      } else {
        run_as_team(step, piece);
      }
    }
  }

 private:
  static constexpr std::size_t kHeader = 64;

  template <typename Step>
  void run_as_team(const Step& step, std::size_t piece) {
    TeamGroup::Shared shared(settings_->team);
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < settings_->team; ++rank) {
      threads.emplace_back([&, rank] {
        TeamGroup group(shared, rank);
        step(group, piece);
      });
    }
  }

  Settings* settings_;
};

}  // namespace syncd::trainer::testing
