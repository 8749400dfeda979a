#include "daemon/core/engine/straggler_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <vector>

namespace syncd {
namespace {

// A detector with its owner's part: the workers, and what the latest verdicts said of them.
class Watched {
 public:
  std::optional<StragglerVerdict> push(Rank rank, Micros span_us) {
    Worker& worker = workers_[rank];
    const auto verdict = detector_.push(worker.track, worker.is_straggler, span_us);
    if (verdict) worker.is_straggler = verdict->is_straggler;
    return verdict;
  }
  StragglerDetector& detector() { return detector_; }
  StragglerDetector::Track& track(Rank rank) { return workers_[rank].track; }

 private:
  struct Worker {
    StragglerDetector::Track track;
    bool is_straggler = false;
  };
  StragglerDetector detector_;
  std::map<Rank, Worker> workers_;
};

// All but rank 0 take 100 ms; rank 0 what is said. Returns the iterations in which a verdict fell.
struct Fall {
  int iteration;
  bool is_straggler;
};
std::vector<Fall> verdicts(const std::vector<Micros>& spans, Rank workers = 8) {
  Watched detector;
  std::vector<Fall> found;
  for (std::size_t k = 0; k < spans.size(); ++k) {
    for (Rank rank = 1; rank < workers; ++rank) EXPECT_FALSE(detector.push(rank, 100'000));
    if (const auto verdict = detector.push(0, spans[k])) {
      found.push_back({static_cast<int>(k), verdict->is_straggler});
    }
  }
  return found;
}
std::vector<Micros> times(std::size_t count, Micros span) {
  return std::vector(count, span);
}
std::vector<Micros> operator+(std::vector<Micros> a, const std::vector<Micros>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(StragglerDetector, FlagsInFourPushesAndRecoversInFour) {
  const auto found = verdicts(times(20, 100'000) + times(10, 200'000) + times(10, 100'000));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].iteration, 23);
  EXPECT_TRUE(found[0].is_straggler);
  EXPECT_EQ(found[1].iteration, 33);
  EXPECT_FALSE(found[1].is_straggler);
}

TEST(StragglerDetector, OneSpikeIsNoVerdict) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(verdicts(times(20, 100'000) + times(static_cast<std::size_t>(i), 600'000) +
                         times(20, 100'000))
                    .empty());
  }
}

TEST(StragglerDetector, ALittleSlowerForGoodIsUsualAndMuchSlowerIsNot) {
  EXPECT_TRUE(verdicts(times(100, 125'000)).empty());
  const auto found = verdicts(times(100, 200'000));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].iteration, 16 + 3);
}

TEST(StragglerDetector, SaysNothingWithFewerThanFourOthers) {
  EXPECT_TRUE(verdicts(times(20, 100'000) + times(50, 400'000), 4).empty());
  EXPECT_FALSE(verdicts(times(20, 100'000) + times(50, 400'000), 5).empty());
}

TEST(StragglerDetector, SaysTheFactor) {
  Watched detector;
  for (int k = 0; k < 40; ++k) {
    for (Rank rank = 1; rank < 8; ++rank) detector.push(rank, 100'000);
    if (const auto verdict = detector.push(0, k < 20 ? 100'000 : 250'000)) {
      EXPECT_NEAR(verdict->factor, 2.5, 1e-3);
      EXPECT_EQ(verdict->pushes, 4U);
    }
  }
}

TEST(StragglerDetector, WhoIsLeftOutIsNoReference) {
  Watched detector;
  for (Rank rank = 0; rank < 8; ++rank) detector.push(rank, 100'000);
  // Without these, three others are left: too few.
  for (Rank rank = 4; rank < 8; ++rank) detector.detector().leave_out(detector.track(rank));
  for (int k = 0; k < 40; ++k) {
    for (Rank rank = 0; rank < 4; ++rank) {
      EXPECT_FALSE(detector.push(rank, rank == 0 && k > 20 ? 400'000 : 100'000));
    }
  }
  EXPECT_EQ(detector.track(0).seen, 0U);
}

// From a snapshot: what is usual for each, and who is slow.
TEST(StragglerDetector, ARestoredOneNeedsNoFirstPushesAndRecovers) {
  Watched detector;
  StragglerDetector::Track slow;
  StragglerDetector::restore(slow, 0.1);
  EXPECT_FLOAT_EQ(static_cast<float>(slow.usual().value()), 0.1F);
  int at = -1;
  for (int k = 0; k < 10 && at < 0; ++k) {
    for (Rank rank = 1; rank < 8; ++rank) detector.push(rank, 100'000);
    const auto verdict = detector.detector().push(slow, true, 110'000);
    if (verdict && !verdict->is_straggler) at = k;
  }
  EXPECT_EQ(at, 3);
}

// Iterations that are shorter say nothing, and are no reference either.
TEST(StragglerDetector, AShortIterationIsLeftOut) {
  Watched detector;
  for (Rank rank = 1; rank < 6; ++rank) detector.push(rank, StragglerDetector::kSpanMin);
  StragglerDetector::Track judged;
  detector.detector().push(judged, false, StragglerDetector::kSpanMin - 1);
  EXPECT_EQ(judged.seen, 0U);
  detector.detector().push(judged, false, StragglerDetector::kSpanMin);
  EXPECT_EQ(judged.seen, 1U);
  for (Rank rank = 1; rank < 6; ++rank) detector.push(rank, StragglerDetector::kSpanMin - 1);
  detector.detector().push(judged, false, StragglerDetector::kSpanMin);
  EXPECT_EQ(judged.seen, 1U);
}

// Spans of all sizes, against a sorted list.
TEST(StragglerDetector, ItsNoiseIsThatOfTheJobAndIsForgotten) {
  Watched detector;
  std::mt19937_64 random(1);
  const auto run = [&](double sigma) {
    std::lognormal_distribution<double> noise(0, sigma);
    for (int k = 0; k < 400; ++k) {
      for (Rank rank = 0; rank < 16; ++rank) {
        detector.push(rank, static_cast<Micros>(100'000 * noise(random)));
      }
    }
    return detector.detector().noise();
  };
  EXPECT_NEAR(run(0.05), 1, 0.01);  // kNoise at least
  EXPECT_NEAR(run(0.3), 3, 0.3);
  EXPECT_NEAR(run(0.2), 2, 0.2);
  EXPECT_NEAR(run(0.05), 1, 0.01);
}

TEST(StragglerDetector, ItsMedianIsWithinABucketOfTheRealOne) {
  for (const Rank others : {4U, 5U, 7U, 64U}) {
    std::mt19937_64 random(others);
    std::uniform_real_distribution<double> exponent(10, 30);
    Watched detector;
    std::vector<double> logs(others);
    for (int k = 0; k < 200; ++k) {
      for (Rank rank = 0; rank < others; ++rank) {
        const auto span = static_cast<Micros>(std::exp2(exponent(random)));
        logs[rank] = std::log(static_cast<double>(span));
        detector.push(rank + 1, span);
      }
      // A worker of 1 s, judged by them.
      StragglerDetector::Track judged;
      detector.detector().push(judged, false, 1'000'000);
      ASSERT_EQ(judged.seen, 1U);
      std::vector<double> sorted = logs;
      std::ranges::sort(sorted);
      const double median = sorted[(others - 1) / 2];
      ASSERT_NEAR(judged.values[0], std::log(1e6) - median, 0.023);
      detector.detector().leave_out(judged);
    }
  }
}

}  // namespace
}  // namespace syncd
