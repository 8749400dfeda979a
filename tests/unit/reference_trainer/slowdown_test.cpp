// Slowdowns: what is taken, what is refused and how, and that draws depend on the key alone.
#include "reference_trainer/slowdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(std::string_view text, int workers = 4) {
  return testing::error_of<SlowdownError>([&] { Slowdown::parse(text, workers); });
}

double slow_share(const Slowdown& slowdown, int worker, double factor) {
  int slow = 0;
  for (int i = 0; i < 10'000; ++i) slow += slowdown.factor(1, worker, i) == factor;
  return slow / 10'000.0;
}

TEST(Slowdown, NoneLeavesEverythingAsItIs) {
  const Slowdown slowdown = Slowdown::parse("none", 4);
  EXPECT_EQ(slowdown.factor(1, 0, 0), 1);
  EXPECT_EQ(slowdown.largest_factor(), 1);
}

TEST(Slowdown, FixedConcernsTheNamedWorkersAlone) {
  const Slowdown slowdown = Slowdown::parse("fixed:3=4x,1=1.5x", 4);
  EXPECT_EQ(slowdown.factor(1, 0, 9), 1);
  EXPECT_EQ(slowdown.factor(1, 1, 9), 1.5);
  EXPECT_EQ(slowdown.factor(2, 3, 0), 4);
  EXPECT_EQ(slowdown.largest_factor(), 4);
}

TEST(Slowdown, RandomComesAsOftenAsAsked) {
  EXPECT_NEAR(slow_share(Slowdown::parse("random:6x@0.05", 4), 2, 6), 0.05, 0.01);
  EXPECT_NEAR(slow_share(Slowdown::parse("random:6x@1/n", 4), 2, 6), 0.25, 0.02);
  EXPECT_NEAR(slow_share(Slowdown::parse("random:6x@1/n", 16), 2, 6), 1.0 / 16, 0.01);
  EXPECT_NEAR(slow_share(Slowdown::parse("random:2x@3/8", 4), 0, 2), 0.375, 0.02);
  EXPECT_EQ(slow_share(Slowdown::parse("random:2x@0", 4), 0, 2), 0);
  EXPECT_EQ(slow_share(Slowdown::parse("random:2x@1", 4), 0, 2), 1);
}

TEST(Slowdown, DrawsDependOnSeedWorkerAndIterationOnly) {
  const Slowdown one = Slowdown::parse("random:6x@1/2", 4);
  const Slowdown two = Slowdown::parse("random:6x@1/2", 4);
  int differ_by_worker = 0;
  int differ_by_seed = 0;
  for (int i = 99; i >= 0; --i) {
    EXPECT_EQ(one.factor(1, 2, i), two.factor(1, 2, i));
    differ_by_worker += one.factor(1, 2, i) != one.factor(1, 3, i);
    differ_by_seed += one.factor(1, 2, i) != one.factor(2, 2, i);
  }
  EXPECT_GT(differ_by_worker, 20);
  EXPECT_GT(differ_by_seed, 20);
}

TEST(Slowdown, ErrorsNameTheMistakeAndWhatIsAllowed) {
  EXPECT_THAT(refusal("sometimes"), AllOf(HasSubstr("'sometimes' is not a kind of slowdown"),
                                          HasSubstr("random:6x@1/n"), HasSubstr("fixed:3=4x")));
  EXPECT_THAT(refusal("random:6x"), HasSubstr("the probability is missing"));
  EXPECT_THAT(refusal("random:6@0.1"), HasSubstr("the factor '6' does not end in x"));
  EXPECT_THAT(refusal("random:0.5x@0.1"), HasSubstr("'0.5x' is not a factor from 1x to 1000x"));
  EXPECT_THAT(refusal("random:6x@1.5"), HasSubstr("'1.5' is not a probability"));
  EXPECT_THAT(refusal("random:6x@1/0"), HasSubstr("'1/0' is not a probability"));
  EXPECT_THAT(refusal("random:6x@-1"), HasSubstr("'-1' is not a probability"));
  EXPECT_THAT(refusal("fixed:4=4x"), HasSubstr("there is no worker 4; the workers are 0 to 3"));
  EXPECT_THAT(refusal("fixed:3"), HasSubstr("'3' is not WORKER=FACTORx"));
  EXPECT_THAT(refusal("fixed:"), HasSubstr("'' is not WORKER=FACTORx"));
  EXPECT_THAT(refusal("fixed:3=4x,"), HasSubstr("'' is not WORKER=FACTORx"));
  EXPECT_THAT(refusal("fixed:3=2000x"), HasSubstr("'2000x' is not a factor"));
}

}  // namespace
}  // namespace syncd::trainer
