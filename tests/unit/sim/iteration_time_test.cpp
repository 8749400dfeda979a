// Distributions, slowdowns and recorded traces.
#include "daemon/tools/sim/iteration_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "daemon/tools/sim/draws.h"

namespace syncd::sim {
namespace {

using testing::HasSubstr;

Durations durations(const std::string& time, const std::string& slowdown = "none",
                    std::uint64_t seed = 1, std::uint32_t workers = 10) {
  std::string error;
  const auto parsed = parse_iteration_time(time, error);
  EXPECT_TRUE(parsed) << error;
  const auto slow = parse_slowdown(slowdown, error);
  EXPECT_TRUE(slow) << error;
  return Durations(*parsed, *slow, seed, workers);
}

double mean(const Durations& of, Rank workers, Iteration iterations) {
  double sum = 0;
  for (Rank worker = 0; worker < workers; ++worker) {
    for (Iteration k = 0; k < iterations; ++k) sum += static_cast<double>(of(worker, k));
  }
  return sum / (static_cast<double>(workers) * static_cast<double>(iterations));
}

TEST(Draws, DependOnEverythingTheyAreFor) {
  const auto base = draw_bits(1, Stream::kTime, 2, 3);
  EXPECT_EQ(base, draw_bits(1, Stream::kTime, 2, 3));
  EXPECT_NE(base, draw_bits(2, Stream::kTime, 2, 3));
  EXPECT_NE(base, draw_bits(1, Stream::kSlowdown, 2, 3));
  EXPECT_NE(base, draw_bits(1, Stream::kTime, 3, 3));
  EXPECT_NE(base, draw_bits(1, Stream::kTime, 2, 4));
  EXPECT_NE(draw_bits(1, Stream::kTime, 2, 3), draw_bits(1, Stream::kTime, 3, 2));
}

TEST(Draws, AreEvenAndNormal) {
  double sum = 0;
  double squares = 0;
  double normal = 0;
  double normal_squares = 0;
  constexpr int kDraws = 100'000;
  for (int i = 0; i < kDraws; ++i) {
    const double unit = draw_unit(5, Stream::kTime, 0, static_cast<std::uint64_t>(i));
    ASSERT_GE(unit, 0);
    ASSERT_LT(unit, 1);
    sum += unit;
    squares += unit * unit;
    const double z = draw_normal(5, 1, static_cast<std::uint64_t>(i));
    normal += z;
    normal_squares += z * z;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 0.005);
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 0.005);
  EXPECT_NEAR(normal / kDraws, 0, 0.02);
  EXPECT_NEAR(normal_squares / kDraws, 1, 0.02);
}

TEST(IterationTime, ConstantIsExact) {
  const Durations of = durations("constant:1000.5");
  EXPECT_EQ(of(0, 0), 1'000'500);
  EXPECT_EQ(of(9, 1234), 1'000'500);
}

TEST(IterationTime, UniformIsOneSpeedPerWorker) {
  const Durations of = durations("uniform:1000-1500");
  Micros lowest = of(0, 0);
  Micros highest = lowest;
  for (Rank worker = 0; worker < 100; ++worker) {
    for (Iteration k = 1; k < 5; ++k) EXPECT_EQ(of(worker, k), of(worker, 0));
    lowest = std::min(lowest, of(worker, 0));
    highest = std::max(highest, of(worker, 0));
  }
  EXPECT_GE(lowest, 1'000'000);
  EXPECT_LT(lowest, 1'030'000);
  EXPECT_GT(highest, 1'470'000);
  EXPECT_LE(highest, 1'500'000);
}

TEST(IterationTime, UniformEachIsDrawnEveryTime) {
  const Durations of = durations("uniform_each:1000-1500");
  EXPECT_NE(of(0, 0), of(0, 1));
  EXPECT_NE(of(0, 0), of(1, 0));
  EXPECT_NEAR(mean(of, 10, 1000), 1'250'000, 10'000);
}

TEST(IterationTime, NormalHasItsMeanAndDeviation) {
  const Durations of = durations("normal:1000,100");
  EXPECT_NE(of(0, 0), of(0, 1));
  EXPECT_NE(of(0, 0), of(1, 0));
  constexpr Rank kWorkers = 10;
  constexpr Iteration kIterations = 2000;
  const double middle = mean(of, kWorkers, kIterations);
  double squares = 0;
  for (Rank worker = 0; worker < kWorkers; ++worker) {
    for (Iteration k = 0; k < kIterations; ++k) {
      squares += std::pow(static_cast<double>(of(worker, k)) - middle, 2);
    }
  }
  EXPECT_NEAR(middle, 1'000'000, 5'000);
  EXPECT_NEAR(std::sqrt(squares / (kWorkers * static_cast<double>(kIterations))), 100'000, 5'000);
  EXPECT_EQ(durations("normal:1000,0")(3, 7), 1'000'000);
}

TEST(IterationTime, NormalTakesNoLessThanAMicrosecond) {
  // Half of the draws are below 0, and what slows a worker down slows these too.
  const Durations of = durations("normal:0.001,1000");
  const Durations slowed = durations("normal:0.001,1000", "fixed:0=4x");
  int least = 0;
  for (Iteration k = 0; k < 1000; ++k) {
    ASSERT_GE(of(0, k), 1);
    if (of(0, k) != 1) continue;
    ++least;
    EXPECT_EQ(slowed(0, k), 4);
  }
  EXPECT_NEAR(least, 500, 100);
}

TEST(IterationTime, LognormalHasItsMedian) {
  const Durations of = durations("lognormal:1000,0.3");
  std::vector<Micros> all;
  for (Iteration k = 0; k < 10'001; ++k) all.push_back(of(3, k));
  std::sort(all.begin(), all.end());
  EXPECT_NEAR(static_cast<double>(all[5'000]), 1e6, 15'000);
  EXPECT_NEAR(std::log(static_cast<double>(all[8'413]) / 1e6), 0.3, 0.02);  // one sigma up
  EXPECT_EQ(durations("lognormal:1000,0")(0, 0), 1'000'000);
}

TEST(IterationTime, FarDrawsStayWithinWhatTimesMayBe) {
  const Durations of = durations("lognormal:2592000000,10", "fixed:0=1000000x");
  for (Iteration k = 0; k < 100; ++k) EXPECT_GE(of(0, k), 1);
}

TEST(IterationTime, AnotherSeedGivesOtherTimes) {
  EXPECT_NE(durations("uniform_each:1000-1500", "none", 1)(0, 0),
            durations("uniform_each:1000-1500", "none", 2)(0, 0));
}

TEST(Slowdown, RandomHitsAsOftenAsItSays) {
  // Of 10 workers one in n, six times as long: on average 1.5 times.
  EXPECT_NEAR(mean(durations("constant:1000", "random:6x@1/n"), 10, 4000), 1'500'000, 20'000);
  EXPECT_NEAR(mean(durations("constant:1000", "random:6x@0.05"), 10, 4000), 1'250'000, 20'000);
  EXPECT_EQ(mean(durations("constant:1000", "random:6x@0"), 10, 100), 1'000'000);
  EXPECT_EQ(mean(durations("constant:1000", "random:6x@1"), 10, 100), 6'000'000);
}

TEST(Slowdown, FixedSlowsTheNamedWorkers) {
  const Durations of = durations("constant:1000", "fixed:3=4x,5=2x");
  EXPECT_EQ(of(2, 7), 1'000'000);
  EXPECT_EQ(of(3, 7), 4'000'000);
  EXPECT_EQ(of(5, 7), 2'000'000);
}

TEST(IterationTime, BadTextsAreNamed) {
  for (const char* text : {"",
                           "constant",
                           "constant:",
                           "constant:0",
                           "constant:-5",
                           "constant:1e30",
                           "constant:1s",
                           "uniform:1000",
                           "uniform:1500-1000",
                           "uniform_each:a-b",
                           "lognormal:1000",
                           "lognormal:1000,-1",
                           "lognormal:1000,nan",
                           "normal:1000",
                           "normal:0,1",
                           "normal:1000,-1",
                           "normal:1000,nan",
                           "normal:1000,1e30",
                           "normal:1000-100",
                           "gauss:1",
                           "trace:",
                           "trace:/does/not/exist"}) {
    std::string error;
    EXPECT_FALSE(parse_iteration_time(text, error)) << text;
    EXPECT_THAT(error, HasSubstr("'" + std::string(text) + "'")) << error;
  }
}

TEST(IterationTime, ErrorsSayWhatIsAllowed) {
  std::string error;
  EXPECT_FALSE(parse_iteration_time("gauss:1", error));
  EXPECT_THAT(error, HasSubstr("normal:MEAN,DEVIATION (a draw below 0.001 counts as 0.001)"));
  EXPECT_FALSE(parse_iteration_time("normal:1000", error));
  EXPECT_THAT(error, HasSubstr("such as normal:1000,100"));
}

TEST(IterationTime, ATraceThatCannotBeReadSaysWhy) {
  std::string error;
  EXPECT_FALSE(parse_iteration_time("trace:/does/not/exist", error));
  EXPECT_THAT(error, HasSubstr("/does/not/exist: cannot be opened: No such file"));
  EXPECT_FALSE(parse_iteration_time("trace:" + testing::TempDir(), error));
  EXPECT_THAT(error, HasSubstr(testing::TempDir() + ": cannot be read: Is a directory"));
}

std::shared_ptr<const Trace> trace(const std::string& text, std::string& error) {
  std::istringstream in(text);
  return read_trace(in, "run.csv", error);
}

TEST(Trace, ReadsCsvWithQuotedLineBreaksAndWhateverColumns) {
  std::string error;
  const auto read = trace(
      "sequence,kind,rank,span_us,config\r\n"
      "1,job_created,,,\"a=1\nb=\"\"2\"\"\n\"\r\n"
      "2,push,4,1000,\r\n"
      "3,push,0,7,\r\n"
      "4,push,4,,\r\n"
      "5,push,4,3000,\r\n",
      error);
  ASSERT_TRUE(read) << error;
  EXPECT_EQ(read->spans, (std::vector<std::vector<Micros>>{{7}, {1000, 3000}}));
}

TEST(Trace, ReadsJsonLines) {
  std::string error;
  const auto read = trace(
      "{\"kind\":\"job_created\"}\n\n"
      "{\"kind\":\"push\",\"rank\":1,\"span_us\":20}\n"
      "{\"kind\":\"push\",\"rank\":1}\n"
      "{\"kind\":\"push\",\"rank\":0,\"span_us\":0}\n",
      error);
  ASSERT_TRUE(read) << error;
  EXPECT_EQ(read->spans, (std::vector<std::vector<Micros>>{{1}, {20}}));
}

TEST(Trace, ReadsMarksAndPhases) {
  for (const std::string text :
       {"kind,rank,span_us,computed_us,in_phase\r\npush,1,20,5,false\r\npush,2,20,,true\r\n",
        "{\"kind\":\"push\",\"rank\":1,\"span_us\":20,\"computed_us\":5}\n"
        "{\"kind\":\"push\",\"rank\":2,\"span_us\":20,\"in_phase\":true}\n"}) {
    std::istringstream in(text);
    std::string error;
    std::vector<RecordedPush> pushes;
    ASSERT_TRUE(read_pushes(
        in, "run", [&](const RecordedPush& push) { pushes.push_back(push); }, error))
        << error;
    ASSERT_EQ(pushes.size(), 2U);
    EXPECT_EQ(pushes[0].own_span_us(), 5);
    EXPECT_FALSE(pushes[0].in_phase);
    EXPECT_EQ(pushes[1].own_span_us(), 20);
    EXPECT_TRUE(pushes[1].in_phase);
  }
}

TEST(Trace, ErrorsNameFileAndLine) {
  const auto error_of = [](const std::string& text) {
    std::string error;
    EXPECT_FALSE(trace(text, error)) << text;
    return error;
  };
  EXPECT_THAT(error_of(""), HasSubstr("run.csv:1: the file is empty"));
  EXPECT_THAT(error_of("kind,rank\r\n"), HasSubstr("run.csv:1: no column 'span_us'"));
  EXPECT_THAT(error_of("kind,rank,span_us\r\npush,1\r\n"), HasSubstr("run.csv:2: 2 cells"));
  EXPECT_THAT(error_of("kind,rank,span_us\r\n\"a\nb\",1,2\r\npush,x,5\r\n"),
              HasSubstr("run.csv:4: rank is 'x'"));
  EXPECT_THAT(error_of("kind,rank,span_us\r\npush,1,-5\r\n"), HasSubstr("run.csv:2: span_us"));
  EXPECT_THAT(error_of("kind,rank,span_us\r\npush,-1,5\r\n"), HasSubstr("run.csv:2: rank is -1"));
  EXPECT_THAT(error_of("kind,rank,span_us\r\n\"push,1,5\r\n"), HasSubstr("run.csv:2: a quoted"));
  EXPECT_THAT(error_of("kind,rank,span_us\r\njoined,1,5\r\n"), HasSubstr("run.csv: no push"));
  EXPECT_THAT(error_of("{\"kind\":\"push\",\"rank\":1,\"span_us\":20}\n{]\n"),
              HasSubstr("run.csv:2: not a JSON object"));
  EXPECT_THAT(error_of("{\"kind\":\"push\",\"span_us\":20}\n"), HasSubstr("run.csv:1: rank"));
  EXPECT_THAT(error_of("kind,rank,span_us,computed_us\r\npush,1,5,-2\r\n"),
              HasSubstr("run.csv:2: computed_us is -2, allowed are 0 to"));
  EXPECT_THAT(error_of("{\"kind\":\"push\",\"rank\":1,\"span_us\":20,\"computed_us\":\"x\"}\n"),
              HasSubstr("run.csv:1: computed_us is not a whole number"));
  EXPECT_THAT(error_of("{\"kind\":\"push\",\"rank\":1,\"span_us\":\"x\"}\n"),
              HasSubstr("run.csv:1: span_us"));
}

TEST(Trace, IsUsedAgainFromItsStartAndByFurtherWorkers) {
  IterationTime time;
  time.kind = IterationTime::Kind::kTrace;
  time.trace = std::make_shared<Trace>(Trace{{{10, 20, 30}, {5}}});
  const Durations of(time, {}, 1, 4);
  EXPECT_EQ(of(0, 0), 10);
  EXPECT_EQ(of(0, 4), 20);
  EXPECT_EQ(of(1, 9), 5);
  EXPECT_EQ(of(2, 2), 30);
}

}  // namespace
}  // namespace syncd::sim
