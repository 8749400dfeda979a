// What the system says of this process. Reads /proc; any thread.
#pragma once

#include <cstdint>

namespace syncd::admin {

struct ProcessFigures {
  double cpu_s = 0;  // user and system
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  std::uint64_t open_fds = 0;
  std::uint64_t max_fds = 0;
  std::uint64_t threads = 0;
  double start_s = 0;  // since the Unix epoch
};
ProcessFigures process_figures();

}  // namespace syncd::admin
