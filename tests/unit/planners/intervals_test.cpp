#include "daemon/core/planners/intervals.h"

#include <gmock/gmock.h>

#include <functional>

namespace syncd::planners {
namespace {

IntervalPredictor after(Predictor kind, std::initializer_list<Micros> intervals) {
  IntervalPredictor predictor(kind);
  for (const Micros interval : intervals) predictor.observe(interval);
  return predictor;
}

constexpr Predictor kAll[] = {Predictor::kLast, Predictor::kEwma, Predictor::kMedian,
                              Predictor::kAuto};

TEST(Intervals, NothingBeforeTheFirst) {
  for (const Predictor kind : kAll) {
    IntervalPredictor predictor(kind);
    EXPECT_EQ(predictor.predict(), std::nullopt);
    predictor.observe(7);
    EXPECT_EQ(predictor.predict(), 7);
  }
}

TEST(Intervals, LastIsTheLatest) {
  EXPECT_EQ(after(Predictor::kLast, {1000, 3000, 2000}).predict(), 2000);
}

TEST(Intervals, EwmaMovesAQuarterOfTheWay) {
  EXPECT_EQ(after(Predictor::kEwma, {1000, 2000}).predict(), 1250);
  EXPECT_EQ(after(Predictor::kEwma, {1000, 2000, 1250}).predict(), 1250);
  // What is less than a microsecond is not lost.
  IntervalPredictor predictor = after(Predictor::kEwma, {0});
  for (int i = 0; i < 40; ++i) predictor.observe(1);
  EXPECT_EQ(predictor.predict(), 1);
}

TEST(Intervals, MedianIsThatOfTheLatestFive) {
  EXPECT_EQ(after(Predictor::kMedian, {10, 30}).predict(), 10);
  EXPECT_EQ(after(Predictor::kMedian, {10, 30, 20}).predict(), 20);
  EXPECT_EQ(after(Predictor::kMedian, {10, 10, 10, 900, 900}).predict(), 10);
  EXPECT_EQ(after(Predictor::kMedian, {10, 10, 10, 900, 900, 900}).predict(), 900);
}

TEST(Intervals, AutoFollowsWhatHasBeenOffByLeast) {
  const auto chosen = [](const std::function<Micros(int)>& interval) {
    IntervalPredictor predictor(Predictor::kAuto);
    for (int i = 0; i < 100; ++i) predictor.observe(interval(i));
    EXPECT_EQ(predictor.predict(), predictor.predict(predictor.chosen(predictor.errors())));
    return predictor.chosen(predictor.errors());
  };
  EXPECT_EQ(chosen([](int) { return 1000; }), Predictor::kLast) << "of equals the first";
  EXPECT_EQ(chosen([](int i) { return i < 50 ? 1000 : 5000; }), Predictor::kLast);
  EXPECT_EQ(chosen([](int i) { return i % 10 == 0 ? 6000 : 1000; }), Predictor::kMedian);
  EXPECT_EQ(chosen([](int i) { return 1000 + i * 7919 % 500; }), Predictor::kEwma);
}

TEST(Intervals, TheChoiceForSeveralWorkersIsThatOfTheirErrorsSum) {
  IntervalPredictor steady(Predictor::kAuto);
  IntervalPredictor uneven(Predictor::kAuto);
  for (int i = 0; i < 100; ++i) {
    steady.observe(1000 + i / 50);
    uneven.observe(i % 10 == 0 ? 6000 : 1000);
  }
  EXPECT_EQ(steady.chosen(steady.errors()), Predictor::kLast);
  IntervalPredictor::Errors sum = steady.errors();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += uneven.errors()[i];
  EXPECT_EQ(steady.chosen(sum), Predictor::kMedian);
  EXPECT_EQ(IntervalPredictor(Predictor::kEwma).chosen(sum), Predictor::kEwma);
}

TEST(Intervals, StrayValuesAreBounded) {
  for (const Predictor kind : kAll) {
    EXPECT_EQ(after(kind, {-5}).predict(), 0);
    EXPECT_EQ(after(kind, {INT64_MAX}).predict(), Micros{1} << 50);
    EXPECT_EQ(after(kind, {INT64_MAX, INT64_MAX, INT64_MAX}).predict(), Micros{1} << 50);
  }
}

TEST(Intervals, SaveAndLoadGoOnAsBefore) {
  for (const Predictor kind : kAll) {
    IntervalPredictor original(kind);
    for (int seen = 0; seen < 9; ++seen) {
      IntervalPredictor copy(kind);
      copy.observe(123456);
      ASSERT_TRUE(copy.load(original.save()));
      EXPECT_EQ(copy.save(), original.save());
      EXPECT_EQ(copy.predict(), original.predict()) << to_string(kind) << " after " << seen;
      copy.observe(777);
      IntervalPredictor next = original;
      next.observe(777);
      EXPECT_EQ(copy.predict(), next.predict());
      original.observe(1000 + seen * 37 % 11);
    }
  }
}

TEST(Intervals, AStateThatIsNoneIsRefused) {
  IntervalPredictor predictor = after(Predictor::kMedian, {5, 6});
  for (const std::vector<std::int64_t>& bad : {std::vector<std::int64_t>{},
                                               {-1},
                                               {6, 1, 1, 1, 1, 1, 1},
                                               {2, 1},
                                               {1, 1, 1},
                                               {0, 1},
                                               {1, -3}}) {
    EXPECT_FALSE(predictor.load(bad)) << testing::PrintToString(bad);
  }
  EXPECT_EQ(predictor.predict(), 5);
}

TEST(Intervals, NamesGoBothWays) {
  for (const Predictor kind : kAll) EXPECT_EQ(parse_name<Predictor>(to_string(kind)), kind);
  EXPECT_EQ(parse_name<Predictor>("mean"), std::nullopt);
}

}  // namespace
}  // namespace syncd::planners
