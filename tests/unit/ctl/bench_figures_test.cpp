// What syncbench computes out of what it has seen.
#include "daemon/tools/bench/figures.h"

#include <gmock/gmock.h>

#include "daemon/tools/bench/report.h"

namespace syncd::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Spans, AreEmptyAtFirst) {
  const Spans spans;
  EXPECT_EQ(spans.count(), 0U);
  EXPECT_EQ(spans.percentile(0.5), 0);
  EXPECT_EQ(spans.max(), 0);
}

TEST(Spans, SmallOnesAreExact) {
  Spans spans;
  for (int ns = 1; ns <= 100; ++ns) spans.add(ns);
  EXPECT_EQ(spans.percentile(0.5), 50);
  EXPECT_EQ(spans.percentile(0.9), 90);
  EXPECT_EQ(spans.percentile(0.99), 99);
  EXPECT_EQ(spans.percentile(1), 100);
  EXPECT_EQ(spans.percentile(0), 1);
}

TEST(Spans, LargeOnesAreAtMostOneInSixtyFourTooHigh) {
  for (std::int64_t ns = 1; ns < 4'000'000'000'000'000'000; ns += 1 + ns / 3) {
    Spans spans;
    spans.add(ns);
    spans.add(4'100'000'000'000'000'000);  // so that the maximum does not cap it
    EXPECT_GE(spans.percentile(0.5), ns);
    EXPECT_LE(static_cast<double>(spans.percentile(0.5)), static_cast<double>(ns) * 65 / 64);
  }
}

TEST(Spans, TheMaximumIsExact) {
  Spans spans;
  spans.add(1'234'567);
  EXPECT_EQ(spans.max(), 1'234'567);
  EXPECT_EQ(spans.percentile(0.99), 1'234'567);
}

TEST(BarrierTimes, FromTheLastPushToTheLastGrant) {
  BarrierTimes barriers(3);
  barriers.pushing(0, 10);
  barriers.pushing(0, 30);
  barriers.pushing(0, 40);
  barriers.granted(1, 60);
  barriers.granted(1, 90);
  EXPECT_EQ(barriers.spans().count(), 0U);
  barriers.pushing(1, 95);  // one may push before the last has its grant
  barriers.granted(1, 100);
  EXPECT_EQ(barriers.spans().count(), 1U);
  EXPECT_EQ(barriers.spans().max(), 60);
  barriers.pushing(1, 110);
  barriers.pushing(1, 120);
  for (int i = 0; i < 3; ++i) barriers.granted(2, 125);
  EXPECT_EQ(barriers.spans().count(), 2U);
  EXPECT_EQ(barriers.spans().percentile(0), 5);
}

TEST(BarrierTimes, ABarrierThatNotAllWereAtDoesNotCount) {
  BarrierTimes barriers(2);
  barriers.pushing(0, 10);
  barriers.granted(1, 20);
  barriers.granted(1, 20);
  EXPECT_EQ(barriers.spans().count(), 0U);
}

TEST(Report, SaysWhatIsKnownAndLeavesOutWhatIsNot) {
  Figures f;
  f.job = "j";
  f.policy = "asp";
  f.workers = 2;
  f.connections = 1;
  f.seconds = 2;
  f.iterations = 1000;
  f.requests = 2000;
  f.frames_in = 1000;
  f.push.add(1'500'000);
  EXPECT_THAT(report_text(f),
              AllOf(HasSubstr("(500.0/s)"), HasSubstr("(1000.0/s)"), HasSubstr("fast"),
                    HasSubstr("1500.0"), HasSubstr("is not known"), Not(HasSubstr("barrier"))));
  f.server_cpu_s = 0.01;
  EXPECT_THAT(report_text(f), HasSubstr("10.00 us for each one in"));
}

TEST(Report, LatePushesAreNotCountedByTheDaemon) {
  Figures f;
  f.pushes = 10;
  f.late = 2;
  f.counted_pushes = 8;
  EXPECT_TRUE(counts_agree(f));
  f.counted_pushes = 9;
  EXPECT_FALSE(counts_agree(f));
}

}  // namespace
}  // namespace syncd::bench
