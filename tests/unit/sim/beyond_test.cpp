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

// Iterations per second and worker, under the draws of this seed.
double rate(const std::string& policy, const Machines& machines, std::uint64_t seed) {
  Options options;
  options.policy = policy;
  options.workers = machines.workers;
  options.seed = seed;
  options.duration_us = 600'000'000;
  std::string error;
  options.iteration_time = *parse_iteration_time(machines.time, error);
  options.slowdown = *parse_slowdown(machines.slowdown, error);
  const auto result = simulate(options, error);
  if (!result) throw std::runtime_error(error);
  return result->iterations_per_s_per_worker;
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

}  // namespace
}  // namespace syncd::sim
