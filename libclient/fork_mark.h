// Tells a process from the children that it forks, at the cost of a load: a page that the kernel
// wipes in a child. Any thread.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace syncd::client {

class ForkMark {
 public:
  ForkMark() noexcept : pid_(getpid()) {
    void* page =
        mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    if (madvise(page, kPageBytes, MADV_WIPEONFORK) != 0) {  // a kernel before 4.14
      munmap(page, kPageBytes);
      return;
    }
    page_ = static_cast<unsigned char*>(page);
    *page_ = 1;
  }
  ~ForkMark() {
    if (page_ != nullptr) munmap(page_, kPageBytes);
  }
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // True in a child of the process that made this mark.
  bool forked() const noexcept {
    if (page_ == nullptr) return getpid() != pid_;
    return std::atomic_ref(*page_).load(std::memory_order_relaxed) == 0;
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;  // any length will do: the kernel rounds it up

  const pid_t pid_;
  unsigned char* page_ = nullptr;
};

}  // namespace syncd::client
