// What this project's policies promise beyond the papers, on seeds that were not used to make them.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tools/sim/simulation.h"

namespace syncd::sim {
namespace {

struct Machines {
  std::uint32_t workers;
  const char* time;
  const char* slowdown = "none";
};

// Under the draws of this seed.
Result run_of(const std::string& policy, const Machines& machines, std::uint64_t seed,
              Micros seconds = 600) {
  Options options;
  options.policy = policy;
  options.workers = machines.workers;
  options.seed = seed;
  options.duration_us = seconds * 1'000'000;
  std::string error;
  options.iteration_time = *parse_iteration_time(machines.time, error);
  options.slowdown = *parse_slowdown(machines.slowdown, error);
  auto result = simulate(options, error);
  if (!result) throw std::runtime_error(error);
  return std::move(*result);
}

// Iterations per second and worker.
double rate(const std::string& policy, const Machines& machines, std::uint64_t seed) {
  return run_of(policy, machines, seed).iterations_per_s_per_worker;
}

std::vector<std::uint64_t> fresh_seeds() {
  std::vector<std::uint64_t> seeds;
  for (std::uint64_t i = 0; i < 40; ++i) seeds.push_back(1001 + i);
  return seeds;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// elastic_bsp's predictor=auto: on the average as good as the best of the three that it chooses
// from, within 1 %, and never slower than bsp.
TEST(BeyondThePapers, ThePredictorThatElasticBspChoosesIsTheBest) {
  const Machines settings[] = {
      {4, "uniform:500-1500"},
      {4, "uniform_each:500-1500"},
      {16, "uniform_each:500-1500"},
      {4, "constant:1000", "random:6x@1/n"},
      {16, "uniform:500-1500", "random:6x@0.05"},
      {8, "lognormal:1000,0.2"},
      {8, "normal:1000,50", "fixed:3=3x"},
      {8, "uniform:800-1200", "random:4x@1/n,for=20"},
  };
  for (const Machines& machines : settings) {
    SCOPED_TRACE(std::string(machines.time) + ", " + machines.slowdown);
    std::vector<double> over_bsp;
    double best = 0;
    for (const char* predictor : {"last", "ewma", "median", "auto"}) {
      std::vector<double> rates;
      for (const std::uint64_t seed : fresh_seeds()) {
        rates.push_back(rate(std::string("elastic_bsp:15,predictor=") + predictor, machines, seed));
        if (std::string_view(predictor) == "auto") {
          over_bsp.push_back(rates.back() / rate("bsp", machines, seed));
        }
      }
      if (std::string_view(predictor) != "auto") {
        best = std::max(best, mean(rates));
      } else {
        EXPECT_GE(mean(rates), 0.99 * best);
      }
    }
    EXPECT_GE(*std::min_element(over_bsp.begin(), over_bsp.end()), 1);
  }
}

// specsync's scope=forecast: at least 15 % fewer updates missed than under asp for at most 4 %
// fewer iterations, where iterations vary by 5 to 10 % (with a normal distribution: its deviation
// by 5 %), and at least twice as much for each percent as the paper's tuning brings.
TEST(BeyondThePapers, RestartsByForecastCostLittle) {
  const Machines settings[] = {
      {40, "normal:1000,20"},
      {40, "normal:1000,50"},
      {40, "uniform_each:900-1100"},
      {40, "uniform:900-1100"},
  };
  for (const Machines& machines : settings) {
    SCOPED_TRACE(machines.time);
    std::vector<double> fresher, cost, fresher_tuned, cost_tuned;
    for (const std::uint64_t seed : {2001, 2002, 2003, 2004, 2005}) {
      const Result asp = run_of("asp", machines, seed, 4000);
      const auto against = [&](const char* policy, auto& freshness, auto& costs) {
        const Result result = run_of(policy, machines, seed, 4000);
        freshness.push_back(1 - result.missed_updates_mean / asp.missed_updates_mean);
        costs.push_back(1 - result.iterations_per_s_per_worker / asp.iterations_per_s_per_worker);
      };
      against("specsync:adaptive,scope=forecast,auto_off=off+asp", fresher, cost);
      against("specsync:auto_off=off+asp", fresher_tuned, cost_tuned);
    }
    EXPECT_GE(mean(fresher), 0.15);
    EXPECT_LE(mean(cost), 0.04);
    EXPECT_GE(mean(fresher) / mean(cost), 2 * mean(fresher_tuned) / mean(cost_tuned));
  }
}

}  // namespace
}  // namespace syncd::sim
