// Which window of a run is shown: of made-up spans, and of a board that is filled by hand.
#include "reference_trainer/run/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reference_trainer/run/run_board.h"

namespace syncd::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kMs = 1'000;

// Workers that compute for 90 ms and push for 10, one after the other, from 0 on; with a barrier
// after every `superstep` iterations, for which they wait no time.
std::vector<std::vector<Span>> steady(std::size_t workers, std::int64_t iterations,
                                      std::int64_t superstep = 0) {
  std::vector<std::vector<Span>> result(workers);
  for (auto& spans : result) {
    for (std::int64_t i = 0; i < iterations; ++i) {
      const std::int64_t at = i * 100 * kMs;
      if (superstep > 0 && i % superstep == 0) {
        spans.push_back({at, at, i, SpanKind::kWaiting, kSpanBarrier});
      }
      spans.push_back({at, at + 90 * kMs, i, SpanKind::kComputing, 0});
      spans.push_back({at + 90 * kMs, at + 100 * kMs, i, SpanKind::kPushing, 0});
    }
  }
  return result;
}

TEST(Timeline, ShowsFiveIterationsInTheMiddle) {
  const SpanRecord record{.start_us = 0, .end_us = 10'000 * kMs, .workers = steady(2, 100)};
  const Timeline timeline = choose_window(record, 5'000 * kMs, 0);
  EXPECT_EQ(timeline.start_us, 4'750 * kMs);
  EXPECT_EQ(timeline.end_us, 5'250 * kMs);
  EXPECT_FALSE(timeline.is_superstep);
  ASSERT_EQ(timeline.workers.size(), 2U);
  EXPECT_EQ(timeline.workers[0].front().iteration, 47);
  EXPECT_EQ(timeline.workers[0].back().iteration, 52);
}

TEST(Timeline, StaysWithinWhatIsKnownAndCountsFromTheOrigin) {
  const SpanRecord record{.start_us = 0, .end_us = 2'000 * kMs, .workers = steady(1, 20)};
  const Timeline late = choose_window(record, 9'000 * kMs, 100 * kMs);
  EXPECT_EQ(late.start_us, 1'400 * kMs);
  EXPECT_EQ(late.end_us, 1'900 * kMs);
  EXPECT_EQ(late.workers[0].back().end_us, 1'900 * kMs);
  const Timeline early = choose_window(record, -5, 0);
  EXPECT_EQ(early.start_us, 0);
  const SpanRecord one{.start_us = 0, .end_us = 100 * kMs, .workers = steady(1, 1)};
  EXPECT_EQ(choose_window(one, 50 * kMs, 0).end_us, 100 * kMs) << "no more than there is";
}

TEST(Timeline, ShowsAWholeSuperstep) {
  const SpanRecord record{.start_us = 0, .end_us = 10'000 * kMs, .workers = steady(3, 100, 12)};
  const Timeline timeline = choose_window(record, 5'000 * kMs, 0);
  EXPECT_TRUE(timeline.is_superstep);
  EXPECT_EQ(timeline.start_us, 4'800 * kMs);
  EXPECT_EQ(timeline.end_us, 6'000 * kMs);
  EXPECT_THAT(timeline.barriers_us, ElementsAre(4'800 * kMs, 6'000 * kMs));
}

TEST(Timeline, ShowsSeveralShortSupersteps) {
  const SpanRecord record{.start_us = 0, .end_us = 10'000 * kMs, .workers = steady(3, 100, 2)};
  const Timeline timeline = choose_window(record, 5'050 * kMs, 0);
  EXPECT_TRUE(timeline.is_superstep);
  EXPECT_EQ(timeline.end_us - timeline.start_us, 400 * kMs) << "two fit into five iterations";
  EXPECT_EQ(timeline.barriers_us.size(), 3U);
}

TEST(Timeline, TakesTheGrantsOfOneBarrierTogether) {
  std::vector<std::vector<Span>> workers(2);
  for (const std::int64_t at : {100, 200, 300}) {
    workers[0].push_back({at - 5, at, 0, SpanKind::kWaiting, kSpanBarrier});
    workers[1].push_back({at - 9, at + 7, 0, SpanKind::kWaiting, kSpanBarrier});
  }
  EXPECT_THAT(barrier_moments(workers), ElementsAre(100, 200, 300));
  EXPECT_THAT(barrier_moments({}), IsEmpty());
}

TEST(Timeline, ComputingForALateUpdateIsWasted) {
  SpanRecord record{.start_us = 0, .end_us = 500 * kMs, .workers = steady(1, 5)};
  record.workers[0][5].flags = kSpanLate;  // the push of iteration 2
  const Timeline timeline = choose_window(record, 250 * kMs, 0);
  std::vector<std::int64_t> wasted;
  for (const Span& span : timeline.workers[0]) {
    if (span.kind == SpanKind::kWasted) wasted.push_back(span.iteration);
  }
  EXPECT_THAT(wasted, ElementsAre(2));
}

TEST(Timeline, PrefersToShowWhatIsSpecialAboutAPolicy) {
  SpanRecord record{.start_us = 0, .end_us = 10'000 * kMs, .workers = steady(2, 100)};
  record.workers[1][20].kind = SpanKind::kWasted;   // iteration 10
  record.workers[1][120].kind = SpanKind::kWasted;  // iteration 60, which is nearer
  const Timeline timeline = choose_window(record, 5'000 * kMs, 0);
  EXPECT_EQ(timeline.start_us, 6'090 * kMs - 250 * kMs);
}

TEST(Timeline, CountsIterationsWhateverTheyAreMadeOf) {
  SpanRecord record{.start_us = 0, .end_us = 10'000 * kMs, .workers = steady(2, 100)};
  for (auto& spans : record.workers) {
    for (Span& span : spans) {
      // Two minibatches, of which the second ends with the iteration, and no push.
      if (span.kind == SpanKind::kPushing) span.kind = SpanKind::kComputing;
    }
  }
  const Timeline timeline = choose_window(record, 5'000 * kMs, 0);
  EXPECT_EQ(timeline.end_us - timeline.start_us, 500 * kMs);
}

TEST(Timeline, KnowsTheSuperstepsOfBsp) {
  EXPECT_EQ(superstep_of("bsp"), 1);
  EXPECT_EQ(superstep_of("bsp:4"), 4);
  EXPECT_EQ(superstep_of("bsp:4,backup=1"), 4);
  EXPECT_EQ(superstep_of("bsp,backup=1"), 1);
  EXPECT_EQ(superstep_of("naive_wait:50+bsp:4"), 4);
  EXPECT_EQ(superstep_of("ssp:3"), 0);
  EXPECT_EQ(superstep_of("specsync+bsp"), 0);
  const RunBoard board = RunBoard::create([] {
    BoardConfig config{};
    config.workload.workers = 1;
    return config;
  }());
  for (std::int64_t i = 0; i < 12; ++i) {
    const std::int64_t at = 1 + i * 100 * kMs;
    board.slot(0).spans.add({at, at + 5 * kMs, i, SpanKind::kWaiting, 0});
    board.slot(0).spans.add({at + 5 * kMs, at + 90 * kMs, i, SpanKind::kComputing, 0});
    board.slot(0).spans.add({at + 90 * kMs, at + 100 * kMs, i, SpanKind::kPushing, 0});
  }
  const Timeline timeline = TimelineRecorder("bsp:4").finish(board, 1, 1 + 1'200 * kMs);
  EXPECT_TRUE(timeline.is_superstep);
  EXPECT_EQ(timeline.start_us, 405 * kMs);
  EXPECT_EQ(timeline.end_us, 805 * kMs);
  EXPECT_FALSE(TimelineRecorder("asp").finish(board, 1, 1 + 1'200 * kMs).is_superstep);
}

TEST(Timeline, NothingKnownMakesAnEmptyOne) {
  EXPECT_TRUE(choose_window({}, 0, 0).empty());
  EXPECT_TRUE(choose_window({.start_us = 0, .end_us = 10, .workers = {{}, {}}}, 5, 0).empty());
}

// A worker of a board that makes 10 iterations a second until now_us.
class Recorded : public ::testing::Test {
 protected:
  Recorded() : board_(RunBoard::create(config())) { board_.slot(0).state = WorkerState::kRunning; }

  static BoardConfig config() {
    BoardConfig config{};
    config.workload.workers = 1;
    return config;
  }

  void run_until(std::int64_t iterations) {
    for (; iterations_ < iterations; ++iterations_) {
      const std::int64_t at = kStart + iterations_ * 100 * kMs;
      board_.slot(0).spans.add({at, at + 90 * kMs, iterations_, SpanKind::kComputing, 0});
      board_.slot(0).spans.add({at + 90 * kMs, at + 100 * kMs, iterations_, SpanKind::kPushing, 0});
      recorder_.look(board_, kStart, at + 100 * kMs);
    }
  }

  Timeline finish() {
    board_.slot(0).state = WorkerState::kFinished;
    return recorder_.finish(board_, kStart, kStart + iterations_ * 100 * kMs);
  }

  static constexpr std::int64_t kStart = 7'000 * kMs;
  RunBoard board_;
  TimelineRecorder recorder_{"asp"};
  std::int64_t iterations_ = 0;
};

TEST_F(Recorded, AShortRunShowsItsMiddle) {
  run_until(100);
  const Timeline timeline = finish();
  EXPECT_EQ(timeline.start_us, 4'750 * kMs);
  EXPECT_EQ(timeline.end_us, 5'250 * kMs);
}

TEST_F(Recorded, ALongRunShowsSomethingNearItsMiddle) {
  // Far more than the ring holds; however long it is, a window lies within an eighth of the run of
  // its middle.
  for (const std::int64_t iterations : {3'000, 3'300, 3'700, 4'100, 10'000}) {
    run_until(iterations);
    TimelineRecorder recorder = recorder_;
    const std::int64_t length = iterations * 100 * kMs;
    const Timeline timeline = recorder.finish(board_, kStart, kStart + length);
    // The spans of an iteration at the edge of what the ring holds count for a part of it.
    EXPECT_NEAR(static_cast<double>(timeline.end_us - timeline.start_us), 500 * kMs, 10 * kMs);
    EXPECT_GE(timeline.start_us, length * 3 / 8) << iterations;
    EXPECT_LE(timeline.end_us, length * 5 / 8) << iterations;
  }
}

TEST_F(Recorded, ARunThatNeverStartedHasNone) {
  recorder_.look(board_, 0, kStart);
  EXPECT_TRUE(recorder_.finish(board_, 0, 0).empty());
}

}  // namespace
}  // namespace syncd::trainer
