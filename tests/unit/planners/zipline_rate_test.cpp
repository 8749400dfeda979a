// The objective `rate` against a search through every end time with exact fractions.
#include "daemon/core/planners/wide_integer.h"
#include "tests/unit/planners/zipline_support.h"

namespace syncd::planners {
namespace {

struct Question {
  Rows rows;
  Micros previous = 0;
  std::int64_t beta = 0;
  std::vector<std::int64_t> done;
};

// The definition, end by end; nothing if none qualifies.
std::optional<Micros> best_by_definition(const Question& question) {
  std::vector<Micros> times;
  for (const auto& row : question.rows) times.insert(times.end(), row.begin(), row.end());
  std::sort(times.begin(), times.end());
  std::optional<Micros> best;
  Micros best_waits = 0;
  for (const Micros t : times) {
    Micros waits = 0;
    std::int64_t lowest = INT64_MAX;
    std::int64_t highest = INT64_MIN;
    bool complete = true;
    for (std::size_t p = 0; p < question.rows.size(); ++p) {
      const auto& row = question.rows[p];
      const auto after = std::upper_bound(row.begin(), row.end(), t);
      complete = complete && after != row.begin();
      if (!complete) break;
      waits += t - *std::prev(after);
      const std::int64_t clock = question.done[p] + (after - row.begin());
      lowest = std::min(lowest, clock);
      highest = std::max(highest, clock);
    }
    if (!complete || t <= question.previous || highest - lowest > question.beta) continue;
    if (best &&
        Wide{waits} * (*best - question.previous) >= Wide{best_waits} * (t - question.previous)) {
      continue;
    }
    best = t;
    best_waits = waits;
  }
  return best;
}

ZiplineOptions options_of(const Question& question) {
  ZiplineOptions options;
  options.objective = ZiplineObjective::kRate;
  options.previous_barrier = question.previous;
  options.beta = question.beta;
  options.done = question.done;
  return options;
}

TEST(ZiplineRate, AgreesWithTheDefinitionOnRandomInput) {
  Random random(6);
  int fell_back = 0;
  int differs_from_max = 0;
  for (int i = 0; i < 5000 && !testing::Test::HasFailure(); ++i) {
    Question question;
    const std::int64_t range = std::int64_t{1} << random.between(2, 12);
    question.rows = random_rows(random, random.between(1, 6), random.between(1, 9), range);
    question.previous = random.between(-2 * range, range);
    question.beta = random.upto(6);
    for (std::size_t p = 0; p < question.rows.size(); ++p) {
      question.done.push_back(random.upto(random.upto(1) == 0 ? 2 : 12));
    }
    const EndTimes ends = matrix(question.rows);
    const ZiplinePlan plan = plan_or_die(ends, options_of(question));
    const ZiplinePlan max = plan_or_die(ends, {});
    const std::optional<Micros> expected = best_by_definition(question);
    EXPECT_EQ(plan.sync_time, expected.value_or(max.sync_time)) << text(question.rows);
    EXPECT_EQ(plan.objective, expected ? ZiplineObjective::kRate : ZiplineObjective::kMax);
    fell_back += expected ? 0 : 1;
    differs_from_max += expected && *expected != max.sync_time ? 1 : 0;
    Micros earliest = plan.sync_time;
    for (std::size_t p = 0; p < question.rows.size(); ++p) {
      earliest = std::min(earliest, question.rows[p][plan.iterations[p] - 1]);
    }
    EXPECT_EQ(plan.wait, plan.sync_time - earliest);
  }
  EXPECT_GT(fell_back, 100);
  EXPECT_GT(differs_from_max, 100);
}

TEST(ZiplineRate, AWaitIsWorthLessOftenIfTheNextBarrierIsFar) {
  const Rows rows{{10, 20, 30, 40}, {12, 23, 34, 45}};
  ZiplineOptions options{.objective = ZiplineObjective::kRate};
  options.previous_barrier = 0;
  // 2/12, 3/23, 4/34 and 5/45 of the superstep, times 1/2: the longer, the smaller the share.
  EXPECT_EQ(plan_or_die(matrix(rows), options).sync_time, 45);
  EXPECT_EQ(plan_or_die(matrix(rows), {}).sync_time, 12);
}

TEST(ZiplineRate, BetaIsRIfNotGiven) {
  // At 50 the workers are 4 apart, more than the longest row (3) after what they did before.
  const Rows rows{{10, 20, 49}, {50}};
  const std::vector<std::int64_t> done{2, 0};
  ZiplineOptions options{.objective = ZiplineObjective::kRate};
  options.done = done;
  EXPECT_EQ(plan_or_die(matrix(rows), options).objective, ZiplineObjective::kMax);
  options.beta = 4;
  EXPECT_EQ(plan_or_die(matrix(rows), options).objective, ZiplineObjective::kRate);
}

TEST(ZiplineRate, ProgressionsAndTheirMatrixGiveTheSame) {
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<Progression> workers(static_cast<std::size_t>(random.between(1, 20)));
    for (Progression& worker : workers) worker = {random.upto(1500), random.between(1000, 1500)};
    const auto r = static_cast<std::uint32_t>(random.between(1, 20));
    ZiplineOptions options{.objective = ZiplineObjective::kRate};
    options.previous_barrier = -random.upto(3000);
    options.beta = random.upto(8);
    std::string error;
    const auto direct = plan_zipline(workers, r, options, error);
    ASSERT_TRUE(direct) << error;
    const ZiplinePlan laid_out = plan_or_die(*make_ends(workers, r, error), options);
    EXPECT_EQ(direct->sync_time, laid_out.sync_time);
    EXPECT_EQ(direct->objective, laid_out.objective);
    EXPECT_EQ(direct->iterations, laid_out.iterations);
  }
}

}  // namespace
}  // namespace syncd::planners
