// Generated data: it comes back from its own file, means the same for a seed, and can be learned.
#include <gtest/gtest.h>

#include <set>

#include "reference_trainer/data/generate.h"
#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/workload.h"
#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

class RatingRoundTrip : public ::testing::TestWithParam<RatingFormat> {};

TEST_P(RatingRoundTrip, ReadsBackWhatWasWritten) {
  const RatingShape shape{.users = 50, .items = 40, .factors = 3, .ratings = 900};
  const RatingData data = generate_ratings(shape, GetParam(), 5);
  const RatingData again = parse_ratings("f", format_ratings(data, GetParam()));
  EXPECT_EQ(again.users, 50U);
  EXPECT_EQ(again.items, 40U);
  EXPECT_EQ(again.user, data.user);
  EXPECT_EQ(again.item, data.item);
  EXPECT_EQ(again.rating, data.rating);
}

INSTANTIATE_TEST_SUITE_P(Formats, RatingRoundTrip,
                         ::testing::Values(RatingFormat::kUData, RatingFormat::kRatingsCsv));

TEST(Generate, ExamplesReadBackWhatWasWritten) {
  const ExampleData data = generate_examples({.features = 60, .examples = 500}, 5);
  const ExampleData again = parse_libsvm("f", format_libsvm(data));
  EXPECT_EQ(again.features, data.features);
  EXPECT_EQ(again.row_start, data.row_start);
  EXPECT_EQ(again.column, data.column);
  EXPECT_EQ(again.value, data.value);
  EXPECT_EQ(again.label, data.label);
}

TEST(Generate, ASeedMeansTheSameDataAndAnotherSeedOther) {
  const ExampleShape examples{.examples = 300};
  EXPECT_EQ(format_libsvm(generate_examples(examples, 3)),
            format_libsvm(generate_examples(examples, 3)));
  EXPECT_NE(format_libsvm(generate_examples(examples, 3)),
            format_libsvm(generate_examples(examples, 4)));
  const RatingShape ratings{.users = 20, .items = 20, .ratings = 100};
  const auto text = [&](std::uint64_t seed) {
    return format_ratings(generate_ratings(ratings, RatingFormat::kUData, seed),
                          RatingFormat::kUData);
  };
  EXPECT_EQ(text(3), text(3));
  EXPECT_NE(text(3), text(4));
}

TEST(Generate, EveryUserAndItemIsRatedAndNoPairTwice) {
  const RatingShape shape{.users = 50, .items = 40, .ratings = 900};
  const RatingData data = generate_ratings(shape, RatingFormat::kUData, 9);
  std::set<std::uint32_t> users(data.user.begin(), data.user.end());
  std::set<std::uint32_t> items(data.item.begin(), data.item.end());
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t i = 0; i < data.user.size(); ++i) pairs.emplace(data.user[i], data.item[i]);
  EXPECT_EQ(users.size(), 50U);
  EXPECT_EQ(items.size(), 40U);
  EXPECT_EQ(pairs.size(), 900U);
}

TEST(Prepare, HoldsOutATenthOfAllSamplesAndKeepsEachOnce) {
  const RatingData data =
      generate_ratings({.users = 30, .items = 20, .ratings = 280}, RatingFormat::kUData, 1);
  const SharedArrays arrays = prepare_ratings(data, 4);
  const RatingView view = view_ratings(arrays);
  EXPECT_EQ(view.rating.size(), 280U);
  EXPECT_EQ(view.training, 252U);
  using Row = std::tuple<std::uint32_t, std::uint32_t, float>;
  std::multiset<Row> before;
  std::multiset<Row> after;
  for (std::size_t i = 0; i < 280; ++i) {
    before.emplace(data.user[i], data.item[i], data.rating[i]);
    after.emplace(view.user[i], view.item[i], view.rating[i]);
  }
  EXPECT_EQ(before, after);
  EXPECT_EQ(held_out_count(2), 1U);
  EXPECT_EQ(held_out_count(1'000'000), kHeldOutMax);
}

TEST(Prepare, RefusesDataOfTheOtherKind) {
  const SharedArrays ratings = testing::small_data(WorkloadKind::kMf);
  EXPECT_THROW(make_workload(testing::small_config(WorkloadKind::kSvm), ratings),
               std::invalid_argument);
  WorkloadConfig config = testing::small_config(WorkloadKind::kMf);
  config.workers = 253;
  EXPECT_THROW(make_workload(config, ratings), std::invalid_argument);
}

// Deterministic: one process, fixed seed. The bounds leave room for another math library, not for
// another learner: each is well below what the loss of the untrained model is (1.05 and 0.693).
struct Learnable {
  WorkloadKind kind;
  std::int64_t iterations;
  double untrained_at_least;
  double trained_at_most;
};

class LearnableTest : public ::testing::TestWithParam<Learnable> {};

TEST_P(LearnableTest, TheLossFallsBelowTheBoundWithTheDefaults) {
  const Learnable& expected = GetParam();
  const WorkloadConfig config{.kind = expected.kind,
                              .workers = 4,
                              .batch = default_batch(expected.kind),
                              .learning_rate = default_learning_rate(expected.kind, 4),
                              .seed = 1};
  const SharedArrays data = expected.kind == WorkloadKind::kSvm
                                ? prepare_examples(generate_examples({}, 1), 1)
                                : prepare_ratings(generate_ratings({}, RatingFormat::kUData, 1), 1);
  const auto workload = make_workload(config, data);
  std::vector<float> parameters(workload->layout().parameters);
  workload->initialize(parameters);
  EXPECT_GT(workload->evaluate(parameters), expected.untrained_at_least);
  train_serially(*workload, config.workers, expected.iterations, parameters);
  const double trained = workload->evaluate(parameters);
  EXPECT_LT(trained, expected.trained_at_most);

  std::vector<float> again(parameters.size());
  workload->initialize(again);
  train_serially(*workload, config.workers, expected.iterations, again);
  EXPECT_EQ(again, parameters);
}

INSTANTIATE_TEST_SUITE_P(Workloads, LearnableTest,
                         ::testing::Values(Learnable{WorkloadKind::kMf, 600, 1.0, 0.65},
                                           Learnable{WorkloadKind::kSvm, 600, 0.69, 0.50}),
                         [](const auto& entry) {
                           return std::string(workload_name(entry.param.kind));
                         });

// What a progress line and Ctrl-C are made from.
TEST(TrainSerially, TellsHowFarItIsAndEndsWhenToldTo) {
  const WorkloadConfig config = testing::small_config(WorkloadKind::kMf);
  const SharedArrays data = testing::small_data(WorkloadKind::kMf);
  const auto workload = make_workload(config, data);
  const auto trained = [&](std::int64_t iterations, std::int64_t end, std::vector<int>& heard) {
    std::vector<float> parameters(workload->layout().parameters);
    workload->initialize(parameters);
    const std::int64_t done =
        train_serially(*workload, config.workers, iterations, parameters, [&](std::int64_t n) {
          heard.push_back(static_cast<int>(n));
          return n != end;
        });
    EXPECT_EQ(done, heard.size());
    return parameters;
  };
  std::vector<int> whole;
  std::vector<int> ended;
  EXPECT_EQ(trained(3, 0, whole), trained(7, 3, ended)) << "what was done until then stays";
  EXPECT_EQ(whole, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(ended, whole);
}

}  // namespace
}  // namespace syncd::trainer
