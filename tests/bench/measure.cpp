// Clocks, order statistics and the machine line of the benchmarks. Any thread.
#include "tests/bench/measure.h"

#include <sched.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace syncd::bench {
namespace {

std::int64_t read_clock_ns(clockid_t clock) {
  timespec t{};
  if (clock_gettime(clock, &t) != 0) fail("a clock cannot be read");
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace

std::int64_t now_ns() {
  return read_clock_ns(CLOCK_MONOTONIC);
}

std::int64_t process_cpu_ns(pid_t pid) {
  // The kernel's own account, exact to the nanosecond and including threads that have ended; the
  // fields of /proc/PID/stat count ticks of 10 ms.
  clockid_t clock{};
  if (clock_getcpuclockid(pid, &clock) != 0) {
    fail("process " + std::to_string(pid) + " is gone: its processor time cannot be read");
  }
  return read_clock_ns(clock);
}

double resident_mb(pid_t pid) {
  const std::string name = "/proc/" + std::to_string(pid) + "/status";
  std::ifstream status(name);
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) * 1024 / 1e6;
  }
  fail(name + " has no VmRSS");
}

double percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto last = static_cast<double>(values.size() - 1);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(last * share + 0.5);
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

double median(std::vector<double> values) {
  return percentile(values, 0.5);
}

void run_on(Processors processors) {
  const unsigned count = std::thread::hardware_concurrency();
  if (count < 2) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (processors != Processors::kOfServers) CPU_SET(0, &set);
  for (unsigned i = 1; i < count && processors != Processors::kOfLoad; ++i) CPU_SET(i, &set);
  sched_setaffinity(0, sizeof set, &set);
}

std::string machine_line() {
  utsname kernel{};
  uname(&kernel);
  double load[1] = {0};
  if (getloadavg(load, 1) != 1) load[0] = -1;
  char load_text[32];
  std::snprintf(load_text, sizeof load_text, "%.2f", load[0]);
  return processor_name() + ", " + std::to_string(std::thread::hardware_concurrency()) +
         " cores, " + kernel.sysname + " " + kernel.release + ", load " + load_text;
}

std::string file_system_of(const std::string& path) {
  struct statfs info {};
  if (statfs(path.c_str(), &info) != 0) fail(path + ": its file system cannot be asked for");
  switch (static_cast<unsigned long>(info.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs (not a disk)";
    case 0x794C7630:
      return "overlayfs";
    default:
      return "file system type " + std::to_string(info.f_type);
  }
}

void fail(const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "benchmark: %s\n", what.c_str());
  std::exit(1);
}

}  // namespace syncd::bench
