// The straggler detector over random traces; see straggler_detector.h.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "daemon/core/engine/straggler_detector.h"
#include "tests/support/property_runs.h"

namespace syncd {
namespace {

// 64 workers, lognormal noise of sigma 0.1, one iteration in 64 six times as long, permanent speeds
// between 1 and 1 + spread, and 1 to 3 workers slowed for 20 iterations or more. 1,000 such traces.
struct Score {
  int flags = 0, right = 0, slowed = 0, in_time = 0, recoverable = 0, recovered = 0;
};
void run_trace(std::uint64_t seed, double spread, double factor, Score& score) {
  constexpr Rank kWorkers = 64;
  constexpr int kIterations = 120;
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> noise(0, 0.1);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> speed(kWorkers);
  for (double& each : speed) each = 100'000 * (1 + spread * uniform(random));
  struct Episode {
    int from = kIterations, to = kIterations;
    double factor = 1;
    bool flagged = false, recovered = false;
  };
  std::vector<Episode> episodes(kWorkers);
  const int slowed = 1 + static_cast<int>(3 * uniform(random));
  for (int i = 0; i < slowed; ++i) {
    Episode& episode = episodes[random() % kWorkers];
    if (episode.factor > 1) continue;
    episode.from = 20 + static_cast<int>(40 * uniform(random));
    episode.to = episode.from + 20 + static_cast<int>(30 * uniform(random));
    episode.factor = factor > 0 ? factor : 1.5 + 2.5 * uniform(random);
    ++score.slowed;
    ++score.recoverable;
  }
  StragglerDetector detector;
  std::vector<StragglerDetector::Track> tracks(kWorkers);
  std::vector<bool> is_straggler(kWorkers);
  for (int k = 0; k < kIterations; ++k) {
    for (Rank rank = 0; rank < kWorkers; ++rank) {
      Episode& episode = episodes[rank];
      const bool is_slow = k >= episode.from && k < episode.to;
      const double spike = random() % 64 == 0 ? 6 : 1;
      const double span = speed[rank] * noise(random) * spike * (is_slow ? episode.factor : 1);
      const auto verdict =
          detector.push(tracks[rank], is_straggler[rank], static_cast<Micros>(span));
      if (!verdict) continue;
      is_straggler[rank] = verdict->is_straggler;
      if (!verdict->is_straggler) {
        if (episode.flagged && k >= episode.to && !episode.recovered) {
          episode.recovered = true;
          ++score.recovered;
        }
        continue;
      }
      ++score.flags;
      if (!is_slow || episode.flagged) continue;  // false, or again in one episode
      episode.flagged = true;
      ++score.right;
      if (k - episode.from < 5) ++score.in_time;
    }
  }
}

struct Wanted {
  const char* what;
  double spread, factor, precision, recall;
};
class Traces : public testing::TestWithParam<Wanted> {};
TEST_P(Traces, FindTheSlowedOnesInTime) {
  const Wanted& wanted = GetParam();
  Score score;
  const std::uint64_t runs = 1000 * test::property_runs();
  for (std::uint64_t i = 0; i < runs; ++i) {
    run_trace(i + 1, wanted.spread, wanted.factor, score);
  }
  const double precision = 100.0 * score.right / score.flags;
  const double recall = 100.0 * score.in_time / score.slowed;
  const double recovery = 100.0 * score.recovered / score.recoverable;
  std::printf("%s: precision %.2f %%, recall in 5 iterations %.2f %%, recovery %.2f %%\n",
              wanted.what, precision, recall, recovery);
  EXPECT_GE(precision, wanted.precision);
  EXPECT_GE(recall, wanted.recall);
}
INSTANTIATE_TEST_SUITE_P(StragglerDetector, Traces,
                         testing::Values(Wanted{"factors of 1.5 to 4", 0, 0, 99, 99},
                                         Wanted{"a factor of 1.5", 0, 1.5, 99, 97},
                                         Wanted{"speeds of 1 to 1.5", 0.5, 0, 99, 99}),
                         [](const auto& tested) { return std::to_string(tested.index); });

}  // namespace
}  // namespace syncd
