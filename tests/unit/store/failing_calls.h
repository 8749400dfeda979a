// System calls that tests let fail, or look at: this program's own definitions stand before those
// of the C library, also for the libraries that it uses.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace syncd::store {

struct Calls {
  // fsync() succeeds so often and then fails once with EIO; negative: it never fails.
  std::atomic<int> fsyncs_before_failure{-1};
  // What renameat2() fails with: EINVAL where the file system cannot exchange two names, EBUSY
  // where something is mounted; 0: it does not fail.
  std::atomic<int> exchange_error{0};

  // Directories that were made, each with the mode of the one that it is in.
  struct Made {
    std::string path;
    mode_t parent = 0;
  };
  std::mutex mutex;  // guards what follows
  std::vector<Made> made;
};

Calls& calls();

}  // namespace syncd::store
