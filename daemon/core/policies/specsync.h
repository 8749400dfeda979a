// specsync[:adaptive|:progress|:fixed,ABORT_TIME_MS,ABORT_RATE][,scope=job|worker|forecast]
// [,cap=span|authors][,budget=P][,max_restarts=N][,auto_off=on|off]+BASE, speculative
// synchronization (Zhang et al., ICDCS 2018), over asp, ssp or dssp. BASE grants; ABORT_TIME after
// each grant this overlay looks how many others have pushed since the worker pulled. If they are
// more than m ABORT_RATE of m workers, the worker is told to drop its work, pull again and start
// over: at most max_restarts times in one iteration.
//
// adaptive (the default): both numbers are tuned at each epoch boundary, which is when every active
// worker has completed an iteration since the one before, from the log of pushes (section IV-B;
// planners/abort_tuner.h), off the loop. Each tuning is recorded: "specsync tuned", values = 1 or 0
// (speculation pays, or not in this epoch), m, and for each worker its rank, ABORT_TIME and span.
//
// progress (this project's; planners/progress_tuner.h, progress_fit.h): both numbers are those with
// which the job is replayed to make most progress, (1 - wasted) / (1 + lambda * missed).
// - lambda is fitted from windows of kWith epochs with restarts between such of kWithout without,
//   by how fast the loss falls in each, per push, and how many updates are missed. Each of a row of
//   lambdas loses weight by how badly it explains that; noise leaves all alike.
//   If lambda comes out clearly above what it is without evidence, windows with restarts double in
//   length, else those without.
// - A loss that is kComesApart above its lowest, not by chance, means that the training does not
//   tolerate the staleness it has: lambda is the greatest, and restarts go on for kEpochsMax.
//
// scope=forecast (this project's; planners/push_forecast.h) has no numbers for an epoch: from how
// long each worker's iterations are, the pushes of those who compute are foreseen. At each grant,
// and again when the foreseen time has come, a worker is told to start over now, later or not at
// all: when the share of all updates that it then has in addition, less `price` times the share of
// an iteration that it throws away, is greatest. Workers so come to push in clusters, and one that
// pulls behind a cluster misses half as much as one that pulls at any time. The price rises from 1
// in small steps, until clusters have formed, to the lowest at which they hold.
// - budget=P: every kForecastEpochs it is looked at whether restarts have cost more than P percent
// of
//   the computing. If so they pause until, with what is computed meanwhile, they have not.
//
// auto_off (on with adaptive, else off): speculation is measured against calibration without it,
// and stopped for good where it slows the job down and brings nothing.
//   - Windows alternate: kCalibrationEpochs without speculation, then a trial with it, of
//     kTrialEpochs at first. A calibration in which the loss rises by kComesApart ends at once, and
//     the trial after it is as long as may be: that training does not tolerate staleness.
//   - After the calibration that follows a trial: iterations/s in the trial are compared with those
//     of the calibrations before and after it, together. If more than kTolerance is lost, and if
//     the reported loss fell no faster (mean of the window's first epoch less that of its last, per
//     second) or was not reported, the trial has failed. Else the next one is twice as long, up to
//     kTrialEpochsMax.
//   - Two failures in a row stop speculation, until the job's policy is set anew or the loss of an
//     epoch is kComesBack above its mean since then. Recorded: "specsync off: ...", values =
//     iterations per 1000 s with and without; "specsync on again: ...".
// Run on the engine's thread.
#pragma once

#include <string_view>

#include "daemon/core/policies/policy_text.h"

namespace syncd {

// The reason of the record that says that auto_off has stopped speculation.
inline constexpr std::string_view kSpeculationOff =
    "specsync off: fewer iterations/s than without, and no gain in loss";
// The reason of the record that says that auto_off lets speculation go on again.
inline constexpr std::string_view kSpeculationBack = "specsync on again: the loss rises without it";

MakeOverlay make_specsync;

}  // namespace syncd
