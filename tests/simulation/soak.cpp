// Simulated runs for as long as one likes, or one run again: see soak, the script beside it.
#include <vector>

#include "soak_loop.h"
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
    "  --cluster    with the members of a cluster, not with one daemon\n"
    "  --trace      print what happens, in milliseconds of simulated time\n"
    "  --first      end with the seed that fails first\n"
    "  --list       print the policies\n";

int fail(const std::string& text) {
  std::fprintf(stderr, "soak: %s\n%s", text.c_str(), kUsage);
  return 2;
}

// False: it did not hold, and has said so.
bool run(const Workload& workload, std::uint64_t seed, bool in_cluster, bool traced,
         SoakCounts& counts) {
  try {
    const Outcome outcome =
        in_cluster ? run_cluster_world(workload, seed, traced) : run_world(workload, seed, traced);
    for (const auto& [what, count] : outcome.counts) counts[what] += count;
    return true;
  } catch (const Violation& violation) {
    std::printf("FAILED under %s, seed %llu: %s\n  soak%s --policy '%s' --seed %llu\n",
                workload.name.c_str(), static_cast<unsigned long long>(seed), violation.what(),
                in_cluster ? " --cluster" : "", workload.name.c_str(),
                static_cast<unsigned long long>(seed));
    return false;
  }
}

int soak_main(int argc, char** argv) {
  SoakOptions options{.minutes = 0, .seed = 0};
  std::string policy;
  bool in_cluster = false;
  bool traced = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") return std::printf("%s", kUsage) > 0 ? 0 : 1;
    if (flag == "--list") {
      for (const Workload& workload : workloads()) std::printf("%s\n", workload.name.c_str());
      return 0;
    }
    const int taken = take_soak_flag(options, argc, argv, i);
    if (taken < 0) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    if (taken > 0) continue;
    if (flag == "--cluster") {
      in_cluster = true;
    } else if (flag == "--trace") {
      traced = true;
    } else if (flag == "--policy" && i + 1 < argc) {
      policy = argv[++i];
    } else {
      return fail("'" + flag + "' is not a flag, or lacks its value");
    }
  }
  std::vector<Workload> chosen;
  for (const Workload& workload : workloads()) {
    if (policy.empty() || policy == workload.name) chosen.push_back(workload);
  }
  if (chosen.empty()) return fail("no policy '" + policy + "' here; --list prints them");
  if (options.minutes == 0 && options.runs == 0) {
    options.minutes = 1;
    if (!policy.empty() && options.seed != 0) options.runs = 1;
  }
  if (options.seed == 0) options.seed = 1;
  std::uint64_t failures = 0;
  return soak(options, failures, [&](std::uint64_t seed, SoakCounts& counts) {
    for (const Workload& workload : chosen) {
      if (!run(workload, seed, in_cluster, traced, counts)) ++failures;
    }
    return chosen.size();
  });
}

}  // namespace
}  // namespace syncd::simulation

int main(int argc, char** argv) {
  return syncd::simulation::soak_main(argc, argv);
}
