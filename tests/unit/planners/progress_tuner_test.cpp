// The search against the definition, and what it does where the answer is known.
#include "daemon/core/planners/progress_tuner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace syncd::planners {
namespace {

struct Epoch {
  std::vector<WorkerSpan> workers;
  std::vector<LoggedPush> pushes;
};

// Each worker has pushed, pulled at once, and pushed again.
Epoch make_epoch(const std::vector<Micros>& pulls, const std::vector<Micros>& spans) {
  Epoch epoch;
  for (std::uint32_t i = 0; i < pulls.size(); ++i) {
    epoch.workers.push_back({pulls[i], spans[i]});
    epoch.pushes.push_back({i, pulls[i]});
    epoch.pushes.push_back({i, pulls[i] + spans[i]});
  }
  return epoch;
}

// By the definition, for workers whose last push but their own counts.
double progress_of(const Epoch& epoch, double lambda, const ProgressTuning& tuning) {
  const auto m = static_cast<double>(epoch.workers.size());
  double computed = 0, wasted = 0, missed = 0;
  for (const WorkerSpan& worker : epoch.workers) computed += static_cast<double>(worker.span);
  const double rate = (m - 1) * m / computed;
  for (const WorkerSpan& worker : epoch.workers) {
    const auto within = [&](Micros span) {
      return static_cast<double>(
          std::count_if(epoch.pushes.begin(), epoch.pushes.end(), [&](const LoggedPush& push) {
            return push.time > worker.pull && push.time <= worker.pull + span;
          }));
    };
    missed += within(worker.span) - 1;
    if (tuning.abort_time == 0 || within(tuning.abort_time) < tuning.pushes) continue;
    wasted += static_cast<double>(tuning.abort_time);
    missed -= within(tuning.abort_time) - rate * static_cast<double>(tuning.abort_time);
  }
  return computed / (computed + wasted) / (1 + lambda * std::max(missed, 0.0) / m);
}

TEST(ProgressTuner, FindsTheBestPairThereIs) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    std::vector<Micros> pulls, spans;
    for (int i = 0; i < 6; ++i) {
      pulls.push_back(static_cast<Micros>(random() % 3'000));
      spans.push_back(static_cast<Micros>(6'400 + random() % 3'000));
    }
    const Epoch epoch = make_epoch(pulls, spans);
    const double lambda = 0.05 * static_cast<double>(round % 5);
    const ProgressTuning found = tune_progress(epoch.workers, epoch.pushes, lambda);
    const double value = progress_of(epoch, lambda, found);
    const Micros shortest = *std::min_element(spans.begin(), spans.end());
    EXPECT_GE(value, progress_of(epoch, lambda, {}) * (1 - 1e-6));
    for (Micros step = 1; step < 64; ++step) {
      for (double count = 1; count <= 6; ++count) {
        EXPECT_GE(value * (1 + 1e-6), progress_of(epoch, lambda, {shortest / 64 * step, count}));
      }
    }
  }
}

TEST(ProgressTuner, RestartsBehindAClusterIfAMissedUpdateCostsMuch) {
  std::vector<Micros> pulls;
  for (Micros i = 0; i < 10; ++i) pulls.push_back(i * 3'000);
  const Epoch epoch = make_epoch(pulls, std::vector<Micros>(10, 1'000'000));
  EXPECT_EQ(tune_progress(epoch.workers, epoch.pushes, 0).abort_time, 0) << "it costs nothing";
  EXPECT_EQ(tune_progress(epoch.workers, epoch.pushes, 0.001).abort_time, 0) << "little";
  const ProgressTuning found = tune_progress(epoch.workers, epoch.pushes, 0.1);
  EXPECT_GT(found.abort_time, 0);
  EXPECT_LE(found.abort_time, 40'000);
  EXPECT_GE(found.pushes, 1);
}

TEST(ProgressTuner, OneWorkerHasNothingToWaitFor) {
  const Epoch epoch = make_epoch({0}, {1'000'000});
  EXPECT_EQ(tune_progress(epoch.workers, epoch.pushes, 1).abort_time, 0);
}

}  // namespace
}  // namespace syncd::planners
