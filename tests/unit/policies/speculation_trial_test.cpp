// Whether speculation is stopped where it costs iterations and brings nothing, and nowhere else.
#include "daemon/core/policies/speculation_trial.h"

#include <gtest/gtest.h>

namespace syncd {
namespace {

// Epochs of ten pushes each; how long one takes, and what loss it has, with and without.
struct Job {
  Micros with_us = 1'000'000;
  Micros without_us = 1'000'000;
  double fall_with = 0, fall_without = 0;  // of the loss, per epoch
  bool losses = false;

  Micros now = 0;
  std::uint64_t pushes = 0;
  double loss = 100;
  int trials = 0;

  // After how many epochs of a trial that begins here speculation is given up; 0: not within them.
  int run(int epochs) {
    SpeculationTrial trial;
    trial.start(0, 0);
    return run(trial, epochs);
  }
  int run(SpeculationTrial& trial, int epochs) {
    for (int epoch = 1; epoch <= epochs; ++epoch) {
      const bool with = trial.speculates();
      now += with ? with_us : without_us;
      pushes += 10;
      loss -= with ? fall_with : fall_without;
      if (losses) trial.add_loss(loss);
      const auto failure = trial.end_epoch(now, pushes);
      if (!with && trial.speculates()) ++trials;
      if (failure) {
        EXPECT_LT(failure->with, failure->without);
        return epoch;
      }
    }
    return 0;
  }
};

TEST(SpeculationTrial, FailsTwiceWhereIterationsAreLost) {
  Job job;
  job.with_us = 1'100'000;
  // Calibration 4, trial 8, calibration 4: the first failure; trial 8, calibration 4: the second.
  EXPECT_EQ(job.run(1000), 4 + 8 + 4 + 8 + 4);
}

TEST(SpeculationTrial, TellsHowManyIterationsWereLost) {
  SpeculationTrial trial;
  trial.start(0, 0);
  std::optional<SpeculationTrial::Failure> failure;
  Micros now = 0;
  for (std::uint64_t epoch = 1; !failure && epoch < 100; ++epoch) {
    now += trial.speculates() ? 2'000'000 : 1'000'000;
    failure = trial.end_epoch(now, epoch * 10);
  }
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->with, 5000);
  EXPECT_EQ(failure->without, 10'000);
}

TEST(SpeculationTrial, GoesOnWithinTheToleranceAndTriesLonger) {
  Job job;
  job.with_us = 1'019'000;
  EXPECT_EQ(job.run(4 + 8 + 4 + 16 + 4 + 32 + 4 + 64 + 4 + 64 + 4), 0);
  EXPECT_EQ(job.trials, 6);  // each twice as long as the one before, up to 64; and the next
}

TEST(SpeculationTrial, GoesOnWhereTheLossFallsFaster) {
  Job job;
  job.losses = true;
  job.with_us = 1'500'000;
  job.fall_with = 0.02;
  job.fall_without = 0.01;
  EXPECT_EQ(job.run(300), 0);
}

// The loss grows by a twentieth in two epochs without speculation: it is back before the four are
// over.
TEST(SpeculationTrial, IsBackAtOnceWhereTheLossRisesWithoutIt) {
  SpeculationTrial trial;
  trial.start(0, 0);
  Micros now = 0;
  const auto epoch = [&](double loss) {
    trial.add_loss(loss);
    now += 1'000'000;
    return trial.end_epoch(now, static_cast<std::uint64_t>(now / 100'000));
  };
  EXPECT_FALSE(epoch(1));
  EXPECT_FALSE(epoch(1.04));
  EXPECT_FALSE(trial.speculates());
  EXPECT_FALSE(epoch(1.06));
  for (int i = 0; i < SpeculationTrial::kTrialEpochsMax; ++i) {
    EXPECT_TRUE(trial.speculates()) << i;
    EXPECT_FALSE(epoch(1.06 - 0.01 * i));
  }
  EXPECT_FALSE(trial.speculates());
}

// A loss below zero that falls, and one that is reported in every other epoch only.
TEST(SpeculationTrial, ALossThatFallsOrIsNotKnownDoesNotRise) {
  for (const bool sometimes : {false, true}) {
    SpeculationTrial trial;
    trial.start(0, 0);
    for (int i = 0; i < SpeculationTrial::kCalibrationEpochs; ++i) {
      EXPECT_FALSE(trial.speculates()) << i;
      if (!sometimes || i % 2 == 1) trial.add_loss(sometimes ? 5 - i : -5 - i);
      EXPECT_FALSE(trial.end_epoch((i + 1) * 1'000'000, static_cast<std::uint64_t>(i + 1)));
    }
    EXPECT_TRUE(trial.speculates());
  }
}

TEST(SpeculationTrial, FailsWhereTheLossFallsNoFaster) {
  Job job;
  job.losses = true;
  job.with_us = 1'500'000;
  job.fall_with = job.fall_without = 0.01;
  EXPECT_EQ(job.run(300), 28);
}

TEST(SpeculationTrial, IsTheSameAfterASnapshotAtAnyEpoch) {
  for (int at = 0; at < 28; ++at) {
    SpeculationTrial before;
    before.start(0, 0);
    Job job;
    job.losses = true;
    job.with_us = 1'100'000;
    ASSERT_EQ(job.run(before, at), 0);
    std::vector<std::int64_t> state;
    before.save(state);
    SpeculationTrial after;
    StateReader reader(state);
    after.load(reader);
    ASSERT_TRUE(reader.ok() && reader.at_end());
    std::vector<std::int64_t> again;
    after.save(again);
    EXPECT_EQ(again, state);
    EXPECT_EQ(job.run(after, 1000), 28 - at);
  }
}

// After it has failed, a loss a tenth above its mean since then brings it back, and nothing less.
TEST(SpeculationTrial, ComesBackWhereTheLossRisesLater) {
  SpeculationTrial trial;
  trial.start(0, 0);
  Job job;
  job.losses = true;
  job.with_us = 1'100'000;
  ASSERT_EQ(job.run(trial, 1000), 28);
  Micros now = 100'000'000;
  const auto epoch = [&](std::optional<double> loss) {
    trial.add_loss(loss);
    now += 1'000'000;
    return trial.end_epoch_without(now, static_cast<std::uint64_t>(now / 100'000));
  };
  EXPECT_FALSE(epoch(1));
  EXPECT_FALSE(epoch({}));
  for (int i = 0; i < 50; ++i) EXPECT_FALSE(epoch(i % 2 == 0 ? 0.95 : 1.05));
  EXPECT_FALSE(trial.speculates());
  EXPECT_TRUE(epoch(1.2));
  EXPECT_TRUE(trial.speculates());
}

TEST(SpeculationTrial, DoesNotReadWhatNeverWasAState) {
  SpeculationTrial trial;
  const std::vector<std::int64_t> state{7, 7, 7};
  StateReader reader(state);
  trial.load(reader);
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace syncd
