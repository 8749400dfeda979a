// When to pull again: against trying every microsecond, and what a price is of.
#include "daemon/core/planners/push_forecast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/random.h"

namespace syncd::planners {
namespace {

// The value of pulling again at `at`, as the header has it.
double value(const PushForecast::View& view, const std::multiset<Micros>& others, double price,
             Micros at) {
  std::int64_t pushes = view.seen;
  for (const Micros due : others) {
    if (due < view.now - view.span / 8) continue;
    const Micros comes = std::max(due, view.now + std::max<Micros>(view.span / 32, 1));
    if (comes <= at) ++pushes;
  }
  return static_cast<double>(std::min(pushes, view.others)) / static_cast<double>(view.others) -
         price * static_cast<double>(at - view.pull) / static_cast<double>(view.span);
}

TEST(PushForecast, FindsTheBestMoment) {
  int restarts = 0;
  for (std::uint64_t run = 0; run < 2000; ++run) {
    test::Random random(run);
    PushForecast forecast;
    std::multiset<Micros> others;
    PushForecast::View view;
    view.pull = random.between(0, 50);
    view.now = view.pull + random.between(0, 80);
    view.span = random.between(100, 500);  // below 512: each microsecond is a key of its own
    view.own_key = forecast.add(view.pull + view.span, view.span);
    const auto workers = random.between(1, 30);
    for (std::int64_t i = 0; i < workers; ++i) {
      const Micros due = random.between(0, 700);
      const Micros key = forecast.add(due, view.span);
      EXPECT_EQ(key, due);
      if (random.one_in(4)) {
        forecast.remove(key);
      } else {
        others.insert(due);
      }
    }
    view.seen = view.now > view.pull ? random.between(0, 10) : 0;
    view.others = workers;  // fast ones push more than once
    const double price = 1 + static_cast<double>(random.below(40)) / 10;
    const auto best = forecast.best(view, price);
    double most = 0;
    for (Micros at = std::max(view.now, view.pull + 1); at < 800; ++at) {
      most = std::max(most, value(view, others, price, at));
    }
    if (!best) {
      EXPECT_LE(most, 1e-12) << run;
      continue;
    }
    ++restarts;
    EXPECT_GE(*best, view.now);
    EXPECT_NEAR(value(view, others, price, *best), most, 1e-12) << run;
  }
  EXPECT_GT(restarts, 500);
}

TEST(PushForecast, LongSpansCountInParts) {
  PushForecast forecast;
  const Micros key = forecast.add(1'000'100, 1'000'000);
  EXPECT_LE(key, 1'000'100);
  EXPECT_GT(key, 1'000'100 - 1'000'000 / 512);
  EXPECT_EQ(forecast.add(key + 1, 1'000'000), key);
  forecast.remove(key);
  // One push is left: worth 1 / 10 at about a hundredth of the span, so up to a price of 10.
  const PushForecast::View view{.now = 990'000, .pull = 990'000, .span = 1'000'000, .others = 10};
  EXPECT_FALSE(forecast.best(view, 11));
  EXPECT_TRUE(forecast.best(view, 3));
  forecast.remove(key);
  EXPECT_FALSE(forecast.best(view, 1));
  forecast.remove(key);  // what is not there
}

// Nine others have pushed; the tenth hangs. Nobody waits for it.
TEST(PushForecast, AWorkerThatHangsHoldsUpNoRestart) {
  PushForecast forecast;
  forecast.add(1'000'000, 1'000'000);
  const PushForecast::View view{
      .now = 1'300'000, .pull = 1'200'000, .span = 1'000'000, .seen = 9, .others = 10};
  EXPECT_EQ(forecast.best(view, 1.2), view.now);
}

TEST(PushForecast, APriceIsTheLowerTheWorseForecastsAre) {
  EXPECT_EQ(forecast_price(1000, 0), 3);
  EXPECT_EQ(forecast_price(1000, 1), 3);
  EXPECT_NEAR(forecast_price(1000, 64), 2, 1e-9);
  EXPECT_EQ(forecast_price(1000, 1000), 1.2);
}

}  // namespace
}  // namespace syncd::planners
