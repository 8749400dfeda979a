// Simulated runs for as long as one likes, or one run again: see soak, the script beside it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "violation.h"
#include "world.h"

namespace syncd::simulation {
namespace {

constexpr const char* kUsage =
    "usage: soak [--minutes N | --runs N] [--policy P] [--seed S]\n"
    "  --minutes N  so long (1)\n"
    "  --runs N     so many runs of every policy instead\n"
    "  --policy P   under this policy alone, one of those that --list prints (switches: many in "
    "turn)\n"
    "  --seed S     from this seed on; with --policy, and without the first two, that run alone\n"
    "  --trace      print what happens, in milliseconds of simulated time\n"
    "  --first      end with the seed that fails first\n"
    "  --list       print the policies\n";

struct Options {
  double minutes = 0;
  std::uint64_t runs = 0;
  std::string policy;
  std::uint64_t seed = 0;
  bool traced = false;
  bool first = false;
};

int fail(const std::string& text) {
  std::fprintf(stderr, "soak: %s\n%s", text.c_str(), kUsage);
  return 2;
}

// False: it did not hold, and has said so.
bool run(const Workload& workload, std::uint64_t seed, bool traced,
         std::map<std::string, std::uint64_t>& counts) {
  try {
    for (const auto& [what, count] : run_world(workload, seed, traced).counts)
      counts[what] += count;
    return true;
  } catch (const Violation& violation) {
    std::printf("FAILED under %s, seed %llu: %s\n  soak --policy '%s' --seed %llu\n",
                workload.name.c_str(), static_cast<unsigned long long>(seed), violation.what(),
                workload.name.c_str(), static_cast<unsigned long long>(seed));
    return false;
  }
}

int soak(const Options& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<Workload> chosen;
  for (const Workload& workload : workloads()) {
    if (options.policy.empty() || options.policy == workload.name) chosen.push_back(workload);
  }
  if (chosen.empty()) return fail("no policy '" + options.policy + "' here; --list prints them");
  const bool once =
      options.minutes == 0 && options.runs == 0 && !options.policy.empty() && options.seed != 0;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double, std::ratio<60>>(
                                          options.minutes == 0 ? 1 : options.minutes));
  std::map<std::string, std::uint64_t> counts;
  std::uint64_t runs = 0;
  std::uint64_t failures = 0;
  for (std::uint64_t seed = options.seed == 0 ? 1 : options.seed, round = 0;; ++seed, ++round) {
    const bool enough = once                ? round == 1
                        : options.runs != 0 ? round == options.runs
                                            : Clock::now() >= end;
    if (enough || (options.first && failures > 0)) break;
    for (const Workload& workload : chosen) {
      ++runs;
      if (!run(workload, seed, options.traced, counts)) ++failures;
    }
  }
  for (const auto& [what, count] : counts) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(count), what.c_str());
  }
  std::printf("%llu runs, %llu failed\n", static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(failures));
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace syncd::simulation

int main(int argc, char** argv) {
  using namespace syncd::simulation;
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") return std::printf("%s", kUsage) > 0 ? 0 : 1;
    if (flag == "--list") {
      for (const Workload& workload : workloads()) std::printf("%s\n", workload.name.c_str());
      return 0;
    }
    if (flag == "--first") {
      options.first = true;
      continue;
    }
    if (flag == "--trace") {
      options.traced = true;
      continue;
    }
    if (i + 1 == argc) return fail("'" + flag + "' is not a flag, or lacks its value");
    const char* value = argv[++i];
    char* rest = nullptr;
    if (flag == "--policy") {
      options.policy = value;
      continue;
    }
    const double number = std::strtod(value, &rest);
    if (*rest != '\0' || number <= 0) return fail(flag + " takes a number above 0, not " + value);
    if (flag == "--minutes") {
      options.minutes = number;
    } else if (flag == "--runs") {
      options.runs = static_cast<std::uint64_t>(number);
    } else if (flag == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else {
      return fail("there is no flag " + flag);
    }
  }
  return soak(options);
}
