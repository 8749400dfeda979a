// What the benchmarks measure with: clocks, order statistics, the line that says on which machine a
// figure was taken. No state besides the objects passed in; any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace syncd::bench {

// Nanoseconds on a clock that never goes back.
std::int64_t now_ns();

// Processor time of all threads of a process so far, ended ones included, in nanoseconds (user and
// system). Ends the benchmark if there is no such process.
std::int64_t process_cpu_ns(pid_t pid);
double resident_mb(pid_t pid);

// The value below which `share` (0 to 1) of the values lie. Reorders `values`. 0 if there is none.
double percentile(std::vector<double>& values, double share);
double median(std::vector<double> values);

// Runs this thread, and what it starts from now on, on the first processor, on all others, or on
// any, so that load and server need not take turns. Nothing happens on a machine with one.
enum class Processors { kOfLoad, kOfServers, kAny };
void run_on(Processors processors);

// "AMD EPYC, 2 cores, Linux 6.1, load 0.12": processor, kernel and how busy the machine was with
// other things.
std::string machine_line();

// The type of the file system that `path` lies on ("ext4"), or its number if it is not a known one.
std::string file_system_of(const std::string& path);

// Ends the process with status 1 and this sentence.
[[noreturn]] void fail(const std::string& what);

}  // namespace syncd::bench
