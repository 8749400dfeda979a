// SpecSync's tuning against its definition, evaluated candidate by candidate with exact fractions.
#include "daemon/core/planners/abort_tuner.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <set>

#include "daemon/core/planners/push_hulls.h"
#include "daemon/core/planners/wide_integer.h"

namespace syncd::planners {
namespace {

using testing::HasSubstr;

struct Log {
  std::vector<WorkerSpan> workers;
  std::vector<LoggedPush> pushes;
};

// F(D) of some workers times the product of their spans, which makes it a whole number.
Wide scaled_improvement(const Log& log, const std::vector<std::size_t>& of, Micros time) {
  Wide product = 1;
  for (const std::size_t i : of) product *= log.workers[i].span;
  Wide sum = 0;
  const auto others = static_cast<Micros>(log.workers.size() - 1);
  for (const std::size_t i : of) {
    const WorkerSpan& worker = log.workers[i];
    Micros count = 0;
    for (const LoggedPush& push : log.pushes) {
      const bool seen = push.time > worker.pull && push.time <= worker.pull + time;
      count += push.worker != i && seen ? 1 : 0;
    }
    sum += product * count - product / worker.span * others * time;
  }
  return sum;
}

Micros best_by_definition(const Log& log, const std::vector<std::size_t>& of, Micros cap) {
  std::set<Micros> candidates;
  for (const std::size_t i : of) {
    for (const LoggedPush& push : log.pushes) {
      const Micros difference = push.time - log.workers[i].pull;
      if (push.worker != i && difference > 0 && difference <= cap) candidates.insert(difference);
    }
  }
  Micros best = 0;
  Wide best_value = 0;
  for (const Micros candidate : candidates) {
    const Wide value = scaled_improvement(log, of, candidate);
    if (value > best_value) {
      best = candidate;
      best_value = value;
    }
  }
  return best;
}

Tuning tune(const Log& log, const TuningOptions& options) {
  std::string error;
  const std::optional<Tuning> tuning = tune_abort(log.workers, log.pushes, options, error);
  EXPECT_TRUE(tuning) << error;
  return tuning.value_or(Tuning{});
}

Log random_log(std::mt19937_64& random) {
  const auto upto = [&](std::uint64_t n) { return static_cast<Micros>(random() % (n + 1)); };
  Log log;
  const std::uint64_t range = std::uint64_t{1} << upto(9);
  log.workers.resize(static_cast<std::size_t>(1 + upto(6)));
  const bool alike = upto(2) == 0;
  const Micros span = 1 + upto(range);
  for (WorkerSpan& worker : log.workers) {
    worker = {upto(range) - 40, alike ? span : 1 + upto(range)};
  }
  log.pushes.resize(static_cast<std::size_t>(upto(upto(3) == 0 ? 150 : 14)));
  for (LoggedPush& push : log.pushes) {
    const auto worker = static_cast<std::uint32_t>(upto(log.workers.size()));
    push = {worker == log.workers.size() ? kNoWorker : worker, upto(2 * range) - 40};
  }
  return log;
}

TEST(AbortTuner, JobAgreesWithTheDefinitionOnRandomInput) {
  std::mt19937_64 random(1);
  int off = 0;
  for (int i = 0; i < 4000; ++i) {
    const Log log = random_log(random);
    std::vector<std::size_t> all;
    Micros shortest = INT64_MAX;
    for (std::size_t p = 0; p < log.workers.size(); ++p) {
      all.push_back(p);
      shortest = std::min(shortest, log.workers[p].span);
    }
    TuningOptions options;
    Micros cap = shortest - 1;
    if (random() % 3 == 0) {
      options.cap_rule = AbortCap::kExplicit;
      options.cap = cap = static_cast<Micros>(1 + random() % 300);
    }
    const Tuning tuning = tune(log, options);
    const Micros expected = best_by_definition(log, all, cap);
    ASSERT_EQ(tuning.off, expected == 0);
    off += tuning.off ? 1 : 0;
    double product = 1;
    for (const WorkerSpan& worker : log.workers) product *= static_cast<double>(worker.span);
    const double improvement =
        static_cast<double>(scaled_improvement(log, all, expected)) / product;
    ASSERT_NEAR(tuning.improvement, improvement, 1e-9 * (1 + std::abs(improvement)));
    for (std::size_t p = 0; p < log.workers.size(); ++p) {
      ASSERT_EQ(tuning.abort_time[p], expected) << "input " << i;
    }
  }
  EXPECT_GT(off, 100);
  EXPECT_LT(off, 3500);
}

TEST(AbortTuner, WorkerAgreesWithTheDefinitionOnRandomInput) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 4000; ++i) {
    const Log log = random_log(random);
    TuningOptions options{.scope = TuningScope::kWorker};
    const bool capped = random() % 3 == 0;
    if (capped) {
      options.cap_rule = AbortCap::kExplicit;
      options.cap = static_cast<Micros>(1 + random() % 300);
    }
    const Tuning tuning = tune(log, options);
    double improvement = 0;
    for (std::size_t p = 0; p < log.workers.size(); ++p) {
      const Micros cap = capped ? options.cap : log.workers[p].span - 1;
      const Micros expected = best_by_definition(log, {p}, cap);
      ASSERT_EQ(tuning.abort_time[p], expected) << "input " << i << ", worker " << p;
      improvement += static_cast<double>(scaled_improvement(log, {p}, expected)) /
                     static_cast<double>(log.workers[p].span);
    }
    ASSERT_NEAR(tuning.improvement, improvement, 1e-9 * (1 + improvement));
  }
}

// So many differences that most bins are never sorted; the plain way is to sort all.
TEST(AbortTuner, JobAgreesWithAllDifferencesSorted) {
  std::mt19937_64 random(3);
  for (const Micros span : {Micros{1'250'000}, Micros{40'000}, Micros{1} << 40}) {
    Log log;
    constexpr std::uint32_t kWorkers = 120;
    for (std::uint32_t i = 0; i < kWorkers; ++i) {
      log.workers.push_back(
          {static_cast<Micros>(random() % static_cast<std::uint64_t>(span)), span});
      for (int k = 0; k < 2; ++k) {
        log.pushes.push_back(
            {i, static_cast<Micros>(random() % static_cast<std::uint64_t>(2 * span))});
      }
    }
    std::vector<Micros> differences;
    for (std::uint32_t i = 0; i < kWorkers; ++i) {
      for (const LoggedPush& push : log.pushes) {
        const Micros difference = push.time - log.workers[i].pull;
        if (push.worker != i && difference > 0 && difference < span)
          differences.push_back(difference);
      }
    }
    std::sort(differences.begin(), differences.end());
    Micros best = 0;
    Wide best_value = 0;
    for (std::size_t k = 0; k < differences.size(); ++k) {
      // F times the span, which all share.
      const Wide value = Wide{static_cast<Micros>(k + 1)} * span -
                         Wide{differences[k]} * kWorkers * (kWorkers - 1);
      const bool last = k + 1 == differences.size() || differences[k + 1] != differences[k];
      if (!last || value <= best_value) continue;
      best = differences[k];
      best_value = value;
    }
    EXPECT_EQ(tune(log, {}).abort_time[0], best) << "span " << span;
  }
}

TEST(AbortTuner, EqualImprovementsGiveTheSmallerTime) {
  // F(10) = 1 - 10/40 * 1 and then one more push 40 later, which gains just what it costs.
  const Log log{{{0, 40}, {0, 40}}, {{1, 10}, {1, 50}, {0, 1000}}};
  TuningOptions options{.cap_rule = AbortCap::kExplicit, .cap = 60};
  EXPECT_EQ(tune(log, options).abort_time[0], 10);
  options.scope = TuningScope::kWorker;
  EXPECT_EQ(tune(log, options).abort_time, (std::vector<Micros>{10, 0}));
}

TEST(AbortTuner, RateIsTheLossPerWorker) {
  const Log log{{{0, 100}, {5, 200}}, {{1, 10}, {0, 12}}};
  const Tuning tuning = tune(log, {});
  ASSERT_FALSE(tuning.off);
  EXPECT_EQ(tuning.abort_time, (std::vector<Micros>{10, 10}));
  EXPECT_DOUBLE_EQ(tuning.abort_rate[0], 10.0 * 1 / (100 * 2));
  EXPECT_DOUBLE_EQ(tuning.abort_rate[1], 10.0 * 1 / (200 * 2));
  EXPECT_DOUBLE_EQ(tuning.improvement, 2 - 10.0 / 100 - 10.0 / 200);
}

TEST(AbortTuner, TheCapOfTheAuthors) {
  // m = 3: sqrt(20)/4 - 1 = 0.118 of the longest span, 1000.
  Log log{{{0, 1000}, {0, 900}, {0, 900}}, {}};
  for (const Micros time : {100, 118, 119, 600}) {
    for (const std::uint32_t worker : {0U, 1U, 2U}) {
      for (int copies = 0; copies < 4; ++copies) log.pushes.push_back({worker, time});
    }
  }
  TuningOptions options;
  EXPECT_EQ(tune(log, options).abort_time[0], 600);
  options.cap_rule = AbortCap::kAuthors;
  EXPECT_EQ(tune(log, options).abort_time[0], 118);
  options.scope = TuningScope::kWorker;
  EXPECT_EQ(tune(log, options).abort_time[1], 118);
}

TEST(AbortTuner, OffWhereNothingIsGained) {
  const Log nobody{{{0, 100}, {0, 100}}, {}};
  EXPECT_TRUE(tune(nobody, {}).off);
  EXPECT_EQ(tune(nobody, {}).improvement, 0);
  const Log alone{{{0, 100}}, {{0, 10}, {0, 20}}};
  EXPECT_TRUE(tune(alone, {}).off);
  const Log own_only{{{0, 100}, {90, 100}}, {{0, 10}, {0, 20}}};
  EXPECT_TRUE(tune(own_only, {.scope = TuningScope::kWorker}).off);
  const Log late{{{0, 100}, {0, 100}},
                 {{1, 100}, {0, 100}}};  // a timer below the span cannot see it
  EXPECT_TRUE(tune(late, {}).off);
}

TEST(AbortTuner, BadInputIsNamed) {
  const auto error_of = [](const Log& log, const TuningOptions& options = {}) {
    std::string error;
    EXPECT_FALSE(tune_abort(log.workers, log.pushes, options, error));
    return error;
  };
  EXPECT_THAT(error_of({}), HasSubstr("at least one worker"));
  EXPECT_THAT(error_of({{{0, 0}}, {}}), HasSubstr("worker 0: span 0 us, allowed is 1 to"));
  EXPECT_THAT(error_of({{{0, 1}, {INT64_MIN, 1}}, {}}), HasSubstr("worker 1: pull at"));
  EXPECT_THAT(error_of({{{0, 1}}, {{1, 5}}}), HasSubstr("push 0 is by worker 1"));
  EXPECT_THAT(error_of({{{0, 1}}, {{0, INT64_MAX}}}), HasSubstr("push 0: time"));
  EXPECT_THAT(error_of({{{0, 1}}, {}}, {.cap_rule = AbortCap::kExplicit}),
              HasSubstr("cap is 0 us"));
}

TEST(PushHulls, FindTheBestOfAnyRange) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 60; ++i) {
    const std::size_t pushes = 1 + random() % 400;
    const std::uint64_t range = std::uint64_t{1} << (random() % 14);
    std::vector<Micros> times(pushes);
    for (Micros& time : times) time = static_cast<Micros>(random() % range);
    std::sort(times.begin(), times.end());
    const PushHulls hulls(times);
    for (int query = 0; query < 300; ++query) {
      const std::size_t first = random() % pushes;
      const std::size_t last = first + 1 + random() % (pushes - first);
      const auto gain = static_cast<Micros>(random() % 60);
      const auto loss = static_cast<std::uint32_t>(random() % 40);
      std::size_t best = first;
      const auto value = [&](std::size_t k) {
        return static_cast<Micros>(k) * gain - times[k] * static_cast<Micros>(loss);
      };
      for (std::size_t k = first; k < last; ++k) {
        if (value(k) > value(best)) best = k;
      }
      const std::size_t found = hulls.best(first, last, gain, loss);
      ASSERT_EQ(value(found), value(best));
      ASSERT_EQ(times[found], times[best]);
    }
  }
}

}  // namespace
}  // namespace syncd::planners
