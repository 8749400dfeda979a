// Slowdowns: what is taken, what is refused and how, and that draws depend on the key alone.
#include "daemon/tools/sim/slowdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace syncd::sim {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

SlowFactors factors(std::string_view text, std::uint32_t workers = 4, std::uint64_t seed = 1) {
  std::string error;
  const auto slowdown = parse_slowdown(text, error);
  EXPECT_TRUE(slowdown) << error;
  EXPECT_EQ(slowdown_problem(*slowdown, workers, workers), "");
  return {*slowdown, seed, workers};
}

std::string refusal(std::string_view text) {
  std::string error;
  EXPECT_FALSE(parse_slowdown(text, error)) << text;
  return error;
}

double slow_share(const SlowFactors& slow, double factor) {
  int hits = 0;
  for (Iteration i = 0; i < 10'000; ++i) hits += slow(2, i) == factor;
  return hits / 10'000.0;
}

TEST(Slowdown, NoneLeavesEverythingAsItIs) {
  EXPECT_EQ(factors("none")(0, 0), 1);
  EXPECT_EQ(factors("none").largest(), 1);
}

TEST(Slowdown, FixedConcernsTheNamedWorkersAlone) {
  const SlowFactors slow = factors("fixed:3=4x,1=1.5x");
  EXPECT_EQ(slow(0, 9), 1);
  EXPECT_EQ(slow(1, 9), 1.5);
  EXPECT_EQ(slow(3, 0), 4);
  EXPECT_EQ(slow(99, 0), 1) << "a worker that came later";
  EXPECT_EQ(slow.largest(), 4);
  EXPECT_EQ(factors("fixed:1=0.5x").largest(), 1) << "the others take as long as ever";
}

TEST(Slowdown, RandomComesAsOftenAsAsked) {
  EXPECT_NEAR(slow_share(factors("random:6x@0.05"), 6), 0.05, 0.01);
  EXPECT_NEAR(slow_share(factors("random:6x@1/8"), 6), 0.125, 0.01);
  EXPECT_NEAR(slow_share(factors("random:2x@3/8"), 2), 0.375, 0.02);
  EXPECT_NEAR(slow_share(factors("random:6x@1/n"), 6), 0.25, 0.02);
  EXPECT_NEAR(slow_share(factors("random:6x@1/n", 16), 6), 1.0 / 16, 0.01);
  EXPECT_NEAR(slow_share(factors("random:6x@2/n", 16), 6), 2.0 / 16, 0.01);
  EXPECT_EQ(slow_share(factors("random:2x@0"), 2), 0);
  EXPECT_EQ(slow_share(factors("random:2x@1"), 2), 1);
  EXPECT_EQ(factors("random:6x@1/n").largest(), 6);
  EXPECT_EQ(factors("random:6x@0").largest(), 1);
}

TEST(Slowdown, RandomMayConcernOneWorkerAlone) {
  const SlowFactors slow = factors("random:2=6x@1/8");
  EXPECT_NEAR(slow_share(slow, 6), 0.125, 0.01);
  for (Iteration i = 0; i < 1000; ++i) {
    EXPECT_EQ(slow(2, i), factors("random:6x@1/8")(2, i));
    EXPECT_EQ(slow(1, i), 1);
  }
  EXPECT_EQ(slow.largest(), 6);
  EXPECT_NEAR(slow_share(factors("random:2=6x@1/n,for=20"), 6), 0.25, 0.06);
  EXPECT_THAT(refusal("random:x=6x@1/8"), HasSubstr("'x' is no worker's rank"));
  std::string error;
  EXPECT_THAT(slowdown_problem(*parse_slowdown("random:4=6x@1/8", error), 4, 4),
              HasSubstr("there is no worker 4; allowed: 0 to 3"));
}

TEST(Slowdown, RunsAreAsOftenAndLastAsLongAsAsked) {
  const SlowFactors slow = factors("random:6x@1/n,for=20", 8);
  EXPECT_NEAR(slow_share(slow, 6), 0.125, 0.04);
  // Every change comes at the worker's own multiple of 20.
  std::set<Iteration> phases;
  for (Iteration i = 1; i < 1000; ++i) {
    if (slow(2, i) != slow(2, i - 1)) phases.insert(i % 20);
  }
  EXPECT_EQ(phases.size(), 1U);
  for (Iteration i = 1; i < 1000; ++i) {
    if (slow(3, i) != slow(3, i - 1)) phases.insert(i % 20);
  }
  EXPECT_EQ(phases.size(), 2U);
  EXPECT_EQ(factors("random:6x@0.05,for=1")(1, 7), factors("random:6x@0.05")(1, 7));
}

TEST(Slowdown, DrawsDependOnSeedWorkerAndIterationOnly) {
  const SlowFactors one = factors("random:6x@1/2");
  const SlowFactors two = factors("random:6x@1/2");
  const SlowFactors other = factors("random:6x@1/2", 4, 2);
  int differ_by_worker = 0;
  int differ_by_seed = 0;
  for (Iteration i = 99; i >= 0; --i) {
    EXPECT_EQ(one(2, i), two(2, i));
    differ_by_worker += one(2, i) != one(3, i);
    differ_by_seed += one(2, i) != other(2, i);
  }
  EXPECT_GT(differ_by_worker, 20);
  EXPECT_GT(differ_by_seed, 20);
}

TEST(Slowdown, ErrorsNameTheMistakeAndWhatIsAllowed) {
  EXPECT_THAT(refusal("sometimes"),
              AllOf(HasSubstr("--slowdown 'sometimes': 'sometimes' is not a kind of slowdown"),
                    HasSubstr("random:6x@1/n"), HasSubstr("random:6x@1/8"), HasSubstr("fixed:3=4x"),
                    HasSubstr("factors are 0.001x to 1000000x")));
  EXPECT_THAT(refusal(""), HasSubstr("'' is not a kind of slowdown"));
  EXPECT_THAT(refusal("none:"), HasSubstr("'none' is not a kind of slowdown"));
  EXPECT_THAT(refusal("random"), HasSubstr("the probability is missing"));
  EXPECT_THAT(refusal("random:6x"), HasSubstr("the probability is missing"));
  EXPECT_THAT(refusal("random:6@0.1"), HasSubstr("the factor '6' does not end in x"));
  EXPECT_THAT(refusal("random:0x@0.5"), HasSubstr("'0x' is not a factor from 0.001x to 1000000x"));
  EXPECT_THAT(refusal("random:6x@1.5"), HasSubstr("'1.5' is not a probability from 0 to 1"));
  EXPECT_THAT(refusal("random:6x@9/8"), HasSubstr("'9/8' is not a probability"));
  EXPECT_THAT(refusal("random:6x@1/0"), HasSubstr("'1/0' is not a probability"));
  EXPECT_THAT(refusal("random:6x@1/"), HasSubstr("'1/' is not a probability"));
  EXPECT_THAT(refusal("random:6x@1/m"), HasSubstr("'1/m' is not a probability"));
  EXPECT_THAT(refusal("random:6x@-1"), HasSubstr("'-1' is not a probability"));
  for (const char* run : {"for=0", "for=", "for=-1", "for=1000001", "4", ""}) {
    EXPECT_THAT(refusal("random:6x@0.1," + std::string(run)),
                HasSubstr("'" + std::string(run) + "' is not for=ITERATIONS, 1 to 1000000"));
  }
  EXPECT_THAT(refusal("random:6x@n"), HasSubstr("'n' is not a probability"));
  EXPECT_THAT(refusal("fixed"), HasSubstr("'' is not WORKER=FACTORx"));
  EXPECT_THAT(refusal("fixed:3"), HasSubstr("'3' is not WORKER=FACTORx"));
  EXPECT_THAT(refusal("fixed:3=4x,"), HasSubstr("'' is not WORKER=FACTORx"));
  EXPECT_THAT(refusal("fixed:x=4x"), HasSubstr("'x' is no worker's rank"));
  EXPECT_THAT(refusal("fixed:-1=4x"), HasSubstr("'-1' is no worker's rank"));
  EXPECT_THAT(refusal("fixed:3=4"), HasSubstr("the factor '4' does not end in x"));
  EXPECT_THAT(refusal("fixed:3=2000000x"), HasSubstr("'2000000x' is not a factor"));
  EXPECT_THAT(refusal("fixed:1000000=2x"), HasSubstr("there is no worker 1000000"));
}

TEST(Slowdown, AJobMustHaveTheWorkersThatItNames) {
  std::string error;
  const auto fixed = parse_slowdown("fixed:4=4x", error);
  EXPECT_EQ(slowdown_problem(*fixed, 4, 4), "--slowdown: there is no worker 4; allowed: 0 to 3");
  EXPECT_EQ(slowdown_problem(*fixed, 4, 5), "") << "one that joins later";
  const auto twice = parse_slowdown("random:6x@2/n", error);
  EXPECT_EQ(slowdown_problem(*twice, 2, 2), "");
  EXPECT_EQ(slowdown_problem(*twice, 1, 1),
            "--slowdown: with 1 workers the probability is above 1; allowed: 0 to 1");
}

}  // namespace
}  // namespace syncd::sim
