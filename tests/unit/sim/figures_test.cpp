// What the papers say of policies, and what arithmetic says, within loose bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/sim/checker.h"

namespace syncd::sim {
namespace {

using test::run_checked;

struct Conditions {
  std::uint32_t workers = 16;
  const char* time = "constant:1000";
  const char* slowdown = "none";
  Micros duration_s = 600;
  std::uint64_t seed = 1;
  bool serial = false;
};

Result run(const std::string& policy, const Conditions& setting) {
  Options options;
  options.policy = policy;
  options.workers = setting.workers;
  options.duration_us = setting.duration_s * 1'000'000;
  options.seed = setting.seed;
  options.serial = setting.serial;
  std::string error;
  options.iteration_time = *parse_iteration_time(setting.time, error);
  options.slowdown = *parse_slowdown(setting.slowdown, error);
  return run_checked(options);
}

// Of the workers that are not slow themselves.
double rate_of_others(const Result& result, Rank slow) {
  double sum = 0;
  for (Rank rank = 0; rank < result.iterations_of.size(); ++rank) {
    if (rank != slow) sum += static_cast<double>(result.iterations_of[rank]);
  }
  return sum / (result.virtual_s * static_cast<double>(result.iterations_of.size() - 1));
}

// 40 workers between 1 and 1.5 s. The slowest sets the pace of BSP: 1 / 1.49 s; without waiting it
// is the mean of 1/T, which is 2 ln 1.5 = 0.811 and varies by 0.015 from one draw to the next.
constexpr Conditions kForty{40, "uniform:1000-1500", "none", 600, 1};

TEST(Figures, BspGoesAtThePaceOfTheSlowest) {
  const double bsp = run("bsp", kForty).iterations_per_s_per_worker;
  EXPECT_GT(bsp, 0.66);
  EXPECT_LT(bsp, 0.69);
}

TEST(Figures, AspGoesAtTheMeanPace) {
  const double asp = run("asp", kForty).iterations_per_s_per_worker;
  EXPECT_GT(asp, 0.77);
  EXPECT_LT(asp, 0.86);
}

TEST(Figures, SspIsBetweenThem) {
  const double bsp = run("bsp", kForty).iterations_per_s_per_worker;
  const double ssp = run("ssp:10", kForty).iterations_per_s_per_worker;
  EXPECT_GT(ssp, bsp);
  EXPECT_LT(ssp, run("asp", kForty).iterations_per_s_per_worker);
}

// Over many draws of the speeds an independent model of this (two monitored iterations, then the
// smallest longest wait within 15) gives 0.745 on average where no waiting at all gives 0.811: how
// long a superstep the first smallest wait makes is a matter of luck. It predicts exactly here.
TEST(Figures, ElasticBspComesBetweenBspAndAsp) {
  double sum = 0;
  constexpr std::uint64_t kSeeds = 8;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Conditions setting = kForty;
    setting.seed = seed;
    const Result elastic = run("elastic_bsp:15", setting);
    const double bsp = run("bsp", setting).iterations_per_s_per_worker;
    const double asp = run("asp", setting).iterations_per_s_per_worker;
    EXPECT_GT(elastic.iterations_per_s_per_worker, bsp * 1.03);
    EXPECT_LT(elastic.iterations_per_s_per_worker, asp);
    EXPECT_NEAR(*elastic.predicted_wait_ms_mean, *elastic.actual_wait_ms_mean, 0.01);
    EXPECT_GT(elastic.barriers, 20U);
    sum += elastic.iterations_per_s_per_worker;
  }
  EXPECT_NEAR(sum / kSeeds, 0.745, 0.02);
}

// What naive_wait holds back at every grant is foreseen as well.
TEST(Figures, ElasticBspUnderNaiveWaitPredictsItsBarriers) {
  const Result held = run("naive_wait:70+elastic_bsp:15", kForty);
  EXPECT_NEAR(*held.predicted_wait_ms_mean, *held.actual_wait_ms_mean, 0.01);
  EXPECT_GT(held.barriers, 20U);
}

// The seed of kForty's first 400 draws in which BSP's and ASP's paces are nearest to these.
std::uint64_t seed_like(double bsp, double asp) {
  std::string error;
  const IterationTime time = *parse_iteration_time(kForty.time, error);
  std::uint64_t nearest = 0;
  double least = 1;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    const Durations durations(time, {}, seed, kForty.workers);
    double slowest = 0;
    double paces = 0;
    for (Rank rank = 0; rank < kForty.workers; ++rank) {
      const double seconds = static_cast<double>(durations(rank, 0)) / 1e6;
      slowest = std::max(slowest, seconds);
      paces += 1 / seconds;
    }
    const double distance = std::abs(1 / slowest - bsp) + std::abs(paces / kForty.workers - asp);
    if (distance < least) {
      least = distance;
      nearest = seed;
    }
  }
  return nearest;
}

// Another model has 0.820 under elastic_bsp:15 for a draw in which bsp comes to 0.672 and asp to
// 0.847, which is rare: two standard deviations above the mean. Draws like it come to 0.77 to 0.81
// here, the nearest one to 0.81.
TEST(Figures, ElasticBspHardlyWaitsInADrawOfFastWorkers) {
  Conditions setting = kForty;
  setting.seed = seed_like(0.672, 0.847);
  EXPECT_NEAR(run("asp", setting).iterations_per_s_per_worker, 0.847, 0.003);
  const double elastic = run("elastic_bsp:15", setting).iterations_per_s_per_worker;
  EXPECT_GT(elastic, 0.80);
  EXPECT_LT(elastic, 0.85);
}

// Further ahead there are better barriers, and they are rarer: 24 draws give 0.794 under
// elastic_bsp:150 on average, where no waiting gives 0.805.
TEST(Figures, ElasticBspThatLooksFarAheadHardlyWaits) {
  double share = 0;
  constexpr std::uint64_t kSeeds = 6;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Conditions setting = kForty;
    setting.seed = seed;
    share += run("elastic_bsp:150", setting).iterations_per_s_per_worker /
             run("asp", setting).iterations_per_s_per_worker;
  }
  EXPECT_GT(share / kSeeds, 0.96);
  EXPECT_LT(share / kSeeds, 1);
}

TEST(Figures, TheRateObjectivePaysForFewerBarriers) {
  const double shortest = run("elastic_bsp:60", kForty).iterations_per_s_per_worker;
  const double rate = run("elastic_bsp:60,objective=rate", kForty).iterations_per_s_per_worker;
  EXPECT_GT(rate, shortest);
  EXPECT_GT(rate, 0.98 * run("asp", kForty).iterations_per_s_per_worker);
}

TEST(Figures, ElasticBspWaitsForNobodyBesideOneSlowWorker) {
  const Conditions slow{16, "constant:1000", "fixed:3=4x", 600, 1};
  EXPECT_GT(run("elastic_bsp:15", slow).iterations_per_s_per_worker,
            0.99 * run("asp", slow).iterations_per_s_per_worker);
}

// Hop, section 7.3.5: with skipping, one slow worker hardly slows down the others; where it may
// skip little it does.
TEST(Figures, HopsSkippingFreesTheOthersFromOneSlowWorker) {
  const Conditions slow{16, "constant:1000", "fixed:3=4x", 600, 1};
  const double none = 1.0 / rate_of_others(run("hop:ring_based,max_ig=4,backup=1", slow), 3);
  const double two = 1.0 / rate_of_others(run("hop:ring_based,max_ig=4,backup=1,skip=2", slow), 3);
  const double ten = 1.0 / rate_of_others(run("hop:ring_based,max_ig=4,backup=1,skip=10", slow), 3);
  EXPECT_GT(none, 3.5);
  EXPECT_GT(two, 1.5);
  EXPECT_LT(two, 2.5);
  EXPECT_LT(ten, 1.15);
}

// How many times as fast as standard Hop, on average over draws of who is slow when.
double gain(const std::string& policy, bool serial = false) {
  double ratios = 0;
  constexpr std::uint64_t kSeeds = 4;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Conditions random{16, "constant:1000", "random:6x@1/n", 1000, seed, serial};
    ratios += run(policy, random).iterations_per_s_per_worker /
              run("hop:ring_based", random).iterations_per_s_per_worker;
  }
  return ratios / kSeeds;
}

// Hop, section 7.3.2 and figure 15: one iteration in n six times slower. The more room the token
// queues give, the more a backup worker is worth; the paper's best is 1.81.
TEST(Figures, HopsBackupWorkersOutlastRandomSlowness) {
  const double five = gain("hop:ring_based,max_ig=5,backup=1");
  EXPECT_GT(five, 1.34);
  EXPECT_LT(five, 1.5);
  const double sixteen = gain("hop:ring_based,max_ig=16,backup=1");
  EXPECT_GT(sixteen, five);
  EXPECT_LT(sixteen, 1.5);
  const double serial = gain("hop:ring_based,max_ig=16,backup=1", true);
  EXPECT_GT(serial, 1.7);
  EXPECT_LT(serial, 1.9);
  EXPECT_GT(gain("hop:ring_based,staleness=5"), 1.25);
}

TEST(Figures, SendingBeforeComputingIsFaster) {
  Options options;
  options.policy = "hop:ring_based";
  options.delay_us = 100'000;
  const double parallel = run_checked(options).iterations_per_s_per_worker;
  options.serial = true;
  const double serial = run_checked(options).iterations_per_s_per_worker;
  EXPECT_GT(serial, 0.4);
  EXPECT_GE(parallel, serial);
}

// The paper's figure of consistency is 100 %: every reduce sees one whole update from each
// in-neighbour (ASAP, section 3.3).
TEST(Figures, NotifyAckNeverMixesUpdates) {
  for (const char* graph : {"ring", "complete", "root_expander", "ring_directed"}) {
    Options options;
    options.policy = std::string("notify_ack:") + graph;
    options.delay_us = 20'000;
    std::string error;
    options.iteration_time = *parse_iteration_time("lognormal:200,0.5", error);
    options.slowdown = *parse_slowdown("random:6x@1/n", error);
    const Result result = run_checked(options);
    EXPECT_GT(result.reduces, 500U) << graph;
    EXPECT_EQ(result.missing_updates, 0U) << graph;
    EXPECT_EQ(result.overwritten_updates, 0U) << graph;
  }
}

}  // namespace
}  // namespace syncd::sim
