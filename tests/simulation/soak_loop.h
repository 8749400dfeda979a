// What the two soaks share: for how long, from which seed on, and what is printed at the end. One
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

namespace syncd::simulation {

using SoakCounts = std::map<std::string, std::uint64_t>;

struct SoakOptions {
  double minutes = 1;
  std::uint64_t runs = 0;  // instead, if not 0
  std::uint64_t seed = 1;
  bool first = false;  // end with the seed that fails first
};

// Takes the flag at argv[i], with its value, if it is one of these: 1. 0: another one. -1: it is,
// and is wrong, and it has been said so.
inline int take_soak_flag(SoakOptions& options, int argc, char** argv, int& i) {
  const std::string flag = argv[i];
  if (flag == "--first") return options.first = true;
  if (flag != "--minutes" && flag != "--runs" && flag != "--seed") return 0;
  char* rest = nullptr;
  const char* value = i + 1 < argc ? argv[++i] : "";
  const double number = std::strtod(value, &rest);
  if (rest == value || *rest != '\0' || number <= 0) {
    std::fprintf(stderr, "soak: %s takes a number above 0, not '%s'\n", flag.c_str(), value);
    return -1;
  }
  if (flag == "--minutes") options.minutes = number;
  if (flag == "--runs") options.runs = static_cast<std::uint64_t>(number);
  if (flag == "--seed") options.seed = std::strtoull(value, nullptr, 10);
  return 1;
}

// `run(seed, counts)` makes all runs of a seed and returns how many; `failures` grows by those that
// did not hold, which it has told. Returns the exit code.
template <typename Run>
int soak(const SoakOptions& options, std::uint64_t& failures, Run&& run) {
  using Clock = std::chrono::steady_clock;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double, std::ratio<60>>(options.minutes));
  SoakCounts counts;
  std::uint64_t runs = 0;
  for (std::uint64_t round = 0; options.runs != 0 ? round < options.runs : Clock::now() < end;
       ++round) {
    if (options.first && failures > 0) break;
    runs += run(options.seed + round, counts);
    std::fflush(stdout);
  }
  for (const auto& [what, count] : counts) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(count), what.c_str());
  }
  std::printf("%llu runs, %llu failed\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(failures));
  return failures == 0 ? 0 : 1;
}

}  // namespace syncd::simulation
