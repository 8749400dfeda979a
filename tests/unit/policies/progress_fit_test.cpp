// What the fit makes of windows of epochs, told to it as a training would.
#include "daemon/core/policies/progress_fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace syncd {
namespace {

// 40 workers. With restarts an update misses 20 others, without 39.
struct Training {
  double lambda = 0;
  double noise = 0;  // of each loss
  double loss = 1;
  std::uint64_t turn = 0;
  void epochs(ProgressFit& fit, int count) {
    for (; count > 0; --count) {
      const std::uint64_t missed = fit.restarts() ? 20 : 39;
      for (int worker = 0; worker < 40; ++worker) {
        // The same on every machine.
        const double by_chance = std::sin(static_cast<double>(++turn) * 12.9898) * noise;
        fit.add(loss + by_chance, missed);
      }
      loss *= 1 - 0.02 / (1 + lambda * static_cast<double>(missed));
      fit.end_epoch();
    }
  }
};

TEST(ProgressFit, FindsWhatAMissedUpdateCosts) {
  for (const double lambda : {0.0, 0.01, 0.1}) {
    ProgressFit fit;
    Training{.lambda = lambda}.epochs(fit, 60);
    if (lambda == 0) {
      EXPECT_LT(fit.lambda(), 0.003);
    } else {
      EXPECT_GT(fit.lambda(), lambda / 4) << lambda;
      EXPECT_LT(fit.lambda(), lambda * 4) << lambda;
    }
  }
}

TEST(ProgressFit, LearnsNothingFromNoise) {
  ProgressFit fit;
  Training{.noise = 1}.epochs(fit, 60);
  EXPECT_NEAR(std::log2(fit.lambda()), std::log2(ProgressFit().lambda()), 1.5);
}

TEST(ProgressFit, LearnsNothingWithoutLosses) {
  ProgressFit fit;
  for (int epoch = 0; epoch < 60; ++epoch) {
    fit.add({}, 39);
    fit.end_epoch();
  }
  EXPECT_EQ(fit.lambda(), ProgressFit().lambda());
}

TEST(ProgressFit, RestartsAtOnceWhereTheTrainingComesApart) {
  ProgressFit fit;
  fit.add(1, 39);
  fit.end_epoch();
  fit.add(1.1, 39);
  fit.end_epoch();
  EXPECT_TRUE(fit.restarts());
  EXPECT_GT(fit.lambda(), 1);
}

TEST(ProgressFit, ComesBackFromASnapshot) {
  ProgressFit fit;
  Training training{.lambda = 0.1};
  training.epochs(fit, 31);
  std::vector<std::int64_t> state;
  fit.save(state);
  StateReader reader(state);
  ProgressFit other;
  other.load(reader);
  EXPECT_TRUE(reader.ok() && reader.at_end());
  EXPECT_EQ(other.lambda(), fit.lambda());
  EXPECT_EQ(other.restarts(), fit.restarts());
}

}  // namespace
}  // namespace syncd
