// Every exact algorithm of ZipLine against the search through all combinations, and bad input.
#include "daemon/core/planners/zipline.h"

#include <gmock/gmock.h>

#include "tests/unit/planners/zipline_support.h"

namespace syncd::planners {
namespace {

using testing::HasSubstr;

// The plainest reading of the problem: of all ways to pick one end per worker, the least distance
// between first and last; of these the earliest last.
struct Naive {
  Micros wait = kTimeMax;
  Micros time = kTimeMax;

  explicit Naive(const Rows& rows) { pick(rows, 0, kTimeMax, -kTimeMax); }

 private:
  void pick(const Rows& rows, std::size_t worker, Micros earliest, Micros latest) {
    if (worker == rows.size()) {
      if (std::pair(latest - earliest, latest) < std::pair(wait, time)) {
        wait = latest - earliest;
        time = latest;
      }
      return;
    }
    for (const Micros end : rows[worker]) {
      pick(rows, worker + 1, std::min(earliest, end), std::max(latest, end));
    }
  }
};

std::vector<std::uint32_t> ends_until(const Rows& rows, Micros time) {
  std::vector<std::uint32_t> counts;
  for (const std::vector<Micros>& row : rows) {
    counts.push_back(static_cast<std::uint32_t>(
        std::count_if(row.begin(), row.end(), [&](Micros end) { return end <= time; })));
  }
  return counts;
}

void expect_exact(const Rows& rows) {
  const Naive naive(rows);
  for (const ZiplineAlgorithm algorithm : kExactAlgorithms) {
    const ZiplinePlan plan = plan_or_die(matrix(rows), {.algorithm = algorithm});
    EXPECT_EQ(plan.wait, naive.wait) << to_string(algorithm) << ": " << text(rows);
    EXPECT_EQ(plan.sync_time, naive.time) << to_string(algorithm) << ": " << text(rows);
    EXPECT_EQ(plan.iterations, ends_until(rows, naive.time)) << to_string(algorithm);
  }
}

// Equally fast workers that end one after another as evenly as can be leave nothing out: auto then
// sorts all ends, to the same answer.
TEST(Zipline, AutoSortsAllEndsWhereNoneCanBeLeftOut) {
  std::vector<Progression> workers;
  for (Micros p = 0; p < 300; ++p) workers.push_back({1000 + p * 7919 % 1000, 1000});
  std::string error;
  const auto automatic = plan_zipline(workers, 20, {}, error);
  ASSERT_TRUE(automatic) << error;
  EXPECT_EQ(automatic->algorithm, ZiplineAlgorithm::kZiplineLinked);
  const auto gaps = plan_zipline(workers, 20, {.algorithm = ZiplineAlgorithm::kZiplineGaps}, error);
  ASSERT_TRUE(gaps) << error;
  EXPECT_EQ(automatic->sync_time, gaps->sync_time);
  EXPECT_EQ(automatic->wait, gaps->wait);
  EXPECT_EQ(automatic->iterations, gaps->iterations);
}

TEST(Zipline, PicksTheClosestEnds) {
  const Rows rows{{10, 20, 30}, {14, 28}, {17, 31}};
  const ZiplinePlan plan = plan_or_die(matrix(rows), {});
  EXPECT_EQ(plan.sync_time, 31);
  EXPECT_EQ(plan.wait, 3);
  EXPECT_EQ(plan.iterations, (std::vector<std::uint32_t>{3, 2, 2}));
  EXPECT_EQ(plan.algorithm, ZiplineAlgorithm::kZiplineGaps);
  expect_exact(rows);
}

TEST(Zipline, TakesTheEarliestOfEqualWaitsAndEqualEndsTogether) {
  expect_exact({{5, 15, 25}, {5, 15, 25}});
  expect_exact({{3, 13}, {5, 15}, {4, 14}});
  expect_exact({{7, 7, 7}, {7, 7}});
  expect_exact({{1, 9, 9}, {9, 9, 12}, {2, 9}});
  expect_exact({{42}});
  expect_exact({{1}, {100}});  // one has ended for good before the other begins
  expect_exact({{1, 2, 3}, {100, 200}, {4}});
}

TEST(Zipline, AgreesWithAllCombinationsOnRandomInput) {
  Random random(1);
  for (int i = 0; i < 6000 && !testing::Test::HasFailure(); ++i) {
    const std::int64_t range = std::int64_t{1} << random.between(1, 14);
    expect_exact(random_rows(random, random.between(1, 5), random.between(1, 6), range));
  }
}

TEST(Zipline, AgreesOnFarApartTimes) {
  Random random(2);
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    expect_exact(random_rows(random, random.between(1, 5), 5, kTimeMax / 2));
  }
  expect_exact({{-kTimeMax, kTimeMax}, {-kTimeMax + 3, kTimeMax - 2}, {0}});
}

// Larger inputs, where the combinations are too many: the algorithms against each other.
void expect_agreement(const EndTimes& ends) {
  const ZiplinePlan expected = plan_or_die(ends, {.algorithm = ZiplineAlgorithm::kFullGridScan});
  for (const ZiplineAlgorithm algorithm : kExactAlgorithms) {
    const ZiplinePlan plan = plan_or_die(ends, {.algorithm = algorithm});
    EXPECT_EQ(plan.sync_time, expected.sync_time) << to_string(algorithm);
    EXPECT_EQ(plan.wait, expected.wait) << to_string(algorithm);
    EXPECT_EQ(plan.iterations, expected.iterations) << to_string(algorithm);
  }
}

TEST(Zipline, AlgorithmsAgreeOnManyWorkers) {
  Random random(3);
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    const std::int64_t range = std::int64_t{1} << random.between(3, 30);
    expect_agreement(matrix(random_rows(random, random.between(10, 90), 40, range)));
  }
}

TEST(Zipline, ProgressionsAndTheirMatrixGiveTheSame) {
  Random random(4);
  for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) {
    const std::int64_t longest = random.between(0, 1) == 0 ? 20 : 2'000'000'000;
    std::vector<Progression> workers(static_cast<std::size_t>(random.between(1, 40)));
    for (Progression& worker : workers) {
      worker = {random.between(-longest, longest), random.between(longest / 2, longest)};
    }
    const auto r = static_cast<std::uint32_t>(random.between(1, 30));
    std::string error;
    const std::optional<EndTimes> ends = make_ends(workers, r, error);
    ASSERT_TRUE(ends) << error;
    const ZiplinePlan expected = plan_or_die(*ends, {.algorithm = ZiplineAlgorithm::kZipline});
    for (const ZiplineAlgorithm algorithm : kExactAlgorithms) {
      const auto plan = plan_zipline(workers, r, {.algorithm = algorithm}, error);
      ASSERT_TRUE(plan) << error;
      EXPECT_EQ(plan->sync_time, expected.sync_time) << to_string(algorithm);
      EXPECT_EQ(plan->wait, expected.wait) << to_string(algorithm);
      EXPECT_EQ(plan->iterations, expected.iterations) << to_string(algorithm);
    }
  }
}

// No iteration lies within another one: nothing can be left out.
TEST(Zipline, EquallyFastWorkers) {
  std::vector<Progression> workers;
  for (Micros p = 0; p < 300; ++p) workers.push_back({p * p % 1009, 1009});
  std::string error;
  const std::optional<EndTimes> ends = make_ends(workers, 12, error);
  ASSERT_TRUE(ends) << error;
  expect_agreement(*ends);
}

// Hardly an iteration lies within another one, and waits differ by little; also so many ends that
// the table over them is a finer one. Starts at chance, all at once, or in a burst.
TEST(Zipline, NearlyEquallyFastWorkers) {
  Random random(8);
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    const bool large = i % 40 == 0;
    const Micros interval = 100'000;
    const Micros spread = std::vector<Micros>{0, 1, 30, 1000, 5000}[random.upto(4)];
    const Micros window = std::vector<Micros>{0, 2000, interval}[random.upto(2)];
    std::vector<Progression> workers(
        static_cast<std::size_t>(large ? 3000 : random.between(20, 400)));
    for (Progression& worker : workers) {
      worker = {1'000'000 + random.upto(window), interval + random.upto(spread)};
    }
    const auto r = static_cast<std::uint32_t>(large ? 60 : random.between(2, 30));
    std::string error;
    const auto expected =
        plan_zipline(workers, r, {.algorithm = ZiplineAlgorithm::kZiplineLinked}, error);
    ASSERT_TRUE(expected) << error;
    for (const auto algorithm : {ZiplineAlgorithm::kAuto, ZiplineAlgorithm::kZiplineGaps}) {
      const auto plan = plan_zipline(workers, r, {.algorithm = algorithm}, error);
      ASSERT_TRUE(plan) << error;
      EXPECT_EQ(plan->sync_time, expected->sync_time) << i << " " << to_string(algorithm);
      EXPECT_EQ(plan->wait, expected->wait) << i << " " << to_string(algorithm);
    }
  }
}

TEST(Zipline, TheHeuristicIsNeverBetterAndSometimesWorse) {
  Random random(5);
  int worse = 0;
  for (int i = 0; i < 2000; ++i) {
    const Rows rows = random_rows(random, random.between(1, 6), 6, 200);
    const ZiplinePlan exact = plan_or_die(matrix(rows), {});
    const ZiplinePlan grid = plan_or_die(matrix(rows), {.algorithm = ZiplineAlgorithm::kGridScan});
    ASSERT_GE(grid.wait, exact.wait) << text(rows);
    worse += grid.wait > exact.wait ? 1 : 0;
    // What it says is at least true of the ends that it names.
    Micros earliest = kTimeMax;
    Micros latest = -kTimeMax;
    for (std::size_t p = 0; p < rows.size(); ++p) {
      ASSERT_GE(grid.iterations[p], 1U);
      ASSERT_LE(grid.iterations[p], rows[p].size());
      earliest = std::min(earliest, rows[p][grid.iterations[p] - 1]);
      latest = std::max(latest, rows[p][grid.iterations[p] - 1]);
    }
    ASSERT_EQ(grid.sync_time, latest);
    ASSERT_EQ(grid.wait, latest - earliest);
  }
  EXPECT_GT(worse, 100);
}

TEST(Zipline, NamesGoBothWays) {
  for (const ZiplineAlgorithm algorithm : kExactAlgorithms) {
    EXPECT_EQ(parse_name<ZiplineAlgorithm>(to_string(algorithm)), algorithm);
    EXPECT_THAT(std::string(kNames<ZiplineAlgorithm>), HasSubstr(to_string(algorithm)));
  }
  EXPECT_EQ(parse_name<ZiplineAlgorithm>("grid_scan"), ZiplineAlgorithm::kGridScan);
  EXPECT_EQ(parse_name<ZiplineAlgorithm>("ZipLine"), std::nullopt);
  EXPECT_EQ(parse_name<ZiplineObjective>("rate"), ZiplineObjective::kRate);
  EXPECT_EQ(parse_name<ZiplineObjective>("max"), ZiplineObjective::kMax);
  EXPECT_EQ(parse_name<ZiplineObjective>(""), std::nullopt);
}

// ---- bad input ---------------------------------------------------------------------------------

std::string error_of(const Rows& rows, const ZiplineOptions& options = {}) {
  std::string error;
  EXPECT_EQ(plan_zipline(matrix(rows), options, error), std::nullopt);
  return error;
}

std::string error_of(const std::vector<Progression>& workers, std::uint32_t r) {
  std::string error;
  EXPECT_EQ(plan_zipline(workers, r, {}, error), std::nullopt);
  std::string same;
  EXPECT_EQ(make_ends(workers, r, same), std::nullopt);
  EXPECT_EQ(error, same);
  return error;
}

TEST(ZiplineErrors, SayWhatIsWrong) {
  EXPECT_THAT(error_of(Rows{}), HasSubstr("no workers"));
  EXPECT_THAT(error_of(Rows{{1}, {}}), HasSubstr("worker 1 has no end times"));
  EXPECT_THAT(error_of(Rows{{1, 2}, {3, 5, 4}}), HasSubstr("worker 1: end time 4 us follows 5 us"));
  EXPECT_THAT(error_of(Rows{{kTimeMax + 1}}), HasSubstr("out of range"));
  EXPECT_THAT(error_of(Rows{{INT64_MIN, 0}}), HasSubstr("out of range"));
  EXPECT_THAT(error_of({{0, 1}}, 0), HasSubstr("R is 0"));
  EXPECT_THAT(error_of(std::vector<Progression>{}, 5), HasSubstr("no workers"));
  EXPECT_THAT(error_of({{0, -1}}, 5), HasSubstr("interval -1 us is negative"));
  EXPECT_THAT(error_of({{0, kTimeMax / 4}}, 6), HasSubstr("reach beyond"));
  EXPECT_THAT(error_of({{-kTimeMax, INT64_MAX}}, 3), HasSubstr("reach beyond"));
  EXPECT_THAT(error_of({{kTimeMax + 1, 0}}, 3), HasSubstr("out of range"));
  EXPECT_THAT(error_of({{0, 1}, {0, 1}}, UINT32_MAX), HasSubstr("too many"));
}

TEST(ZiplineErrors, NameTheOptionOfRate) {
  ZiplineOptions options{.objective = ZiplineObjective::kRate};
  options.beta = -1;
  EXPECT_THAT(error_of(Rows{{1}}, options), HasSubstr("beta is -1"));
  options.beta = 1;
  const std::vector<std::int64_t> one{1};
  options.done = one;
  EXPECT_THAT(error_of(Rows{{1}, {2}}, options), HasSubstr("done has 1 entries for 2 workers"));
  const std::vector<std::int64_t> negative{1, -1};
  options.done = negative;
  EXPECT_THAT(error_of(Rows{{1}, {2}}, options), HasSubstr("done is -1"));
  options.done = {};
  options.previous_barrier = INT64_MIN;
  EXPECT_THAT(error_of(Rows{{1}, {2}}, options), HasSubstr("previous_barrier"));
  options.previous_barrier = 0;
  const Rows far(5, {-kTimeMax, kTimeMax});
  EXPECT_THAT(error_of(far, options), HasSubstr("too far apart"));
}

}  // namespace
}  // namespace syncd::planners
