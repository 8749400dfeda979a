// Whether speculation pays, by the rule in specsync.h: windows of epochs without and with it, told
// apart by iterations per second and by how fast the loss falls. Counts what it is told and decides
// nothing else. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/core/engine/types.h"
#include "daemon/core/policies/state_reader.h"

namespace syncd {

class SpeculationTrial {
 public:
  static constexpr std::int64_t kCalibrationEpochs = 4;
  static constexpr std::int64_t kTrialEpochs = 8;
  static constexpr std::int64_t kTrialEpochsMax = 64;
  static constexpr double kTolerance = 0.02;
  static constexpr std::int64_t kFailuresMax = 2;
  static constexpr double kComesApart = 0.05;  // the loss has risen by this share of it
  static constexpr double kComesBack = 0.1;    // likewise, after speculation has failed

  // What two failures in a row have shown, in iterations per 1000 s.
  struct Failure {
    std::int64_t with = 0;
    std::int64_t without = 0;
  };

  // The first window begins.
  void start(Micros now, std::uint64_t pushes);
  void add_loss(std::optional<double> loss);
  // An epoch has ended, `pushes` have been counted since the job's start. A value: speculation has
  // failed for good.
  std::optional<Failure> end_epoch(Micros now, std::uint64_t pushes);
  // The same once it has failed. True: the loss has risen above what it was on the average since
  // then, and speculation is to go on, with the longest trial.
  bool end_epoch_without(Micros now, std::uint64_t pushes);
  bool speculates() const { return window_.with; }

  void save(std::vector<std::int64_t>& out) const;
  void load(StateReader& reader);

 private:
  struct Loss {
    double sum = 0;
    std::int64_t count = 0;
  };
  // What a window of epochs has brought.
  struct Result {
    std::int64_t pushes = 0;
    Micros time = 0;
    bool losses = false;  // in its first and in its last epoch
    double fall = 0;      // of the loss, from its first epoch to its last
  };
  struct Window {
    bool with = false;  // speculation
    std::int64_t epochs = 0;
    Micros began_at = 0;
    std::uint64_t pushes_before = 0;
    Loss first;
  };

  // 0: none was reported.
  static double mean(const Loss& loss) {
    return loss.count > 0 ? loss.sum / static_cast<double>(loss.count) : 0;
  }
  Result result(Micros now, std::uint64_t pushes) const;
  std::optional<Failure> judge(const Result& after);

  Window window_;
  Loss epoch_;
  std::int64_t trial_epochs_ = kTrialEpochs;
  std::int64_t failures_ = 0;
  Result before_;  // the calibration before the trial
  Result trial_;   // time 0: none yet
};

}  // namespace syncd
