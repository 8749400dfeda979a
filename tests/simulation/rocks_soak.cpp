// RocksDB on a disk that loses its power, for as long as one likes, or one seed again.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "rocks_world.h"
#include "violation.h"

namespace {

constexpr const char* kUsage =
    "usage: rocks_soak [--minutes N | --runs N] [--seed S] [--first]\n"
    "  --minutes N  so long (1)\n"
    "  --runs N     so many runs instead\n"
    "  --seed S     from this seed on (1)\n"
    "  --first      end with the seed that fails first\n";

}  // namespace

int main(int argc, char** argv) {
  using namespace syncd::simulation;
  using Clock = std::chrono::steady_clock;
  double minutes = 1;
  unsigned long long runs = 0;
  unsigned long long first_seed = 1;
  bool first = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--help") return std::printf("%s", kUsage) > 0 ? 0 : 1;
    if (flag == "--first") {
      first = true;
      continue;
    }
    char* rest = nullptr;
    const double number = i + 1 < argc ? std::strtod(argv[++i], &rest) : 0;
    if (rest == nullptr || *rest != '\0' || number <= 0) {
      std::fprintf(stderr, "rocks_soak: %s takes a number above 0\n%s", flag.c_str(), kUsage);
      return 2;
    }
    if (flag == "--minutes") {
      minutes = number;
    } else if (flag == "--runs") {
      runs = static_cast<unsigned long long>(number);
    } else if (flag == "--seed") {
      first_seed = std::strtoull(argv[i], nullptr, 10);
    } else {
      std::fprintf(stderr, "rocks_soak: there is no flag %s\n%s", flag.c_str(), kUsage);
      return 2;
    }
  }
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double, std::ratio<60>>(minutes));
  RocksCounts counts;
  unsigned long long failures = 0;
  unsigned long long done = 0;
  while ((runs != 0 ? done < runs : Clock::now() < end) && !(first && failures > 0)) {
    const unsigned long long seed = first_seed + done++;
    try {
      for (const auto& [what, count] : run_rocks_world(seed)) counts[what] += count;
    } catch (const Violation& violation) {
      ++failures;
      std::printf("FAILED under seed %llu: %s\n  simulation_rocks_soak --seed %llu --runs 1\n",
                  seed, violation.what(), seed);
      std::fflush(stdout);
    }
  }
  for (const auto& [what, count] : counts) {
    std::printf("%12llu %s\n", static_cast<unsigned long long>(count), what.c_str());
  }
  std::printf("%llu runs, %llu failed\n", done, failures);
  return failures == 0 ? 0 : 1;
}
