// RocksDB on a disk that loses its power, for as long as one likes, or one seed again.
#include "rocks_world.h"
#include "soak_loop.h"
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
  SoakOptions options;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help") return std::printf("%s", kUsage) > 0 ? 0 : 1;
    if (take_soak_flag(options, argc, argv, i) <= 0) {
      std::fprintf(stderr, "rocks_soak: '%s' is no flag, or has a wrong value\n%s", argv[i],
                   kUsage);
      return 2;
    }
  }
  std::uint64_t failures = 0;
  return soak(options, failures, [&](std::uint64_t seed, SoakCounts& counts) {
    try {
      for (const auto& [what, count] : run_rocks_world(seed)) counts[what] += count;
    } catch (const Violation& violation) {
      ++failures;
      const auto shown = static_cast<unsigned long long>(seed);
      std::printf("FAILED under seed %llu: %s\n  simulation_rocks_soak --seed %llu --runs 1\n",
                  shown, violation.what(), shown);
    }
    return 1;
  });
}
