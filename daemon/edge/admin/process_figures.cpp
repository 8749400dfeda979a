// /proc/self; see the header. Any thread.
#include "daemon/edge/admin/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "proto/base/clock.h"
#include "proto/base/file.h"

namespace syncd::admin {
namespace {

std::uint64_t count_fds() {
  std::error_code ignored;
  const std::filesystem::directory_iterator open("/proc/self/fd", ignored);
  const auto count = static_cast<std::uint64_t>(std::distance(open, {}));
  return count > 0 ? count - 1 : 0;  // without the one that lists them
}

// Fields 14 to 24 of proc(5)'s stat, which follow the name in brackets.
void read_stat(ProcessFigures& figures) {
  std::string stat;
  read_file("/proc/self/stat", stat);
  const std::size_t after_name = stat.rfind(')');
  if (after_name == std::string::npos) return;
  unsigned long user = 0, system = 0, threads = 0, pages = 0;
  unsigned long long start = 0, virtual_bytes = 0;
  const int found = std::sscanf(
      stat.c_str() + after_name + 1,
      " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %lu %*s %*s %*s %*s %lu %*s %llu %llu %lu",
      &user, &system, &threads, &start, &virtual_bytes, &pages);
  if (found != 6) return;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  figures.cpu_s = static_cast<double>(user + system) / ticks;
  figures.threads = threads;
  figures.virtual_bytes = virtual_bytes;
  figures.resident_bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  // When the machine was started, since the Unix epoch.
  static const double boot_s =
      static_cast<double>(clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME)) / 1e9;
  figures.start_s = boot_s + static_cast<double>(start) / ticks;
}

}  // namespace

ProcessFigures process_figures() {
  ProcessFigures figures;
  read_stat(figures);
  figures.open_fds = count_fds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) figures.max_fds = limit.rlim_cur;
  return figures;
}

}  // namespace syncd::admin
