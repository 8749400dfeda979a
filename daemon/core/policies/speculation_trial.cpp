// See speculation_trial.h.
#include "daemon/core/policies/speculation_trial.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace syncd {
namespace {

std::int64_t per_1000_s(double pushes, double micros) {
  return static_cast<std::int64_t>(pushes * 1e9 / micros);
}

}  // namespace

void SpeculationTrial::start(Micros now, std::uint64_t pushes) {
  *this = {};
  window_.began_at = now;
  window_.pushes_before = pushes;
}

void SpeculationTrial::add_loss(std::optional<double> loss) {
  if (!loss) return;
  epoch_.sum += *loss;
  ++epoch_.count;
}

SpeculationTrial::Result SpeculationTrial::result(Micros now, std::uint64_t pushes) const {
  Result result;
  result.pushes = static_cast<std::int64_t>(pushes - window_.pushes_before);
  result.time = std::max<Micros>(now - window_.began_at, 1);
  result.losses = window_.first.count > 0 && epoch_.count > 0;
  if (result.losses) result.fall = mean(window_.first) - mean(epoch_);
  return result;
}

std::optional<SpeculationTrial::Failure> SpeculationTrial::judge(const Result& after) {
  const auto trial_time = static_cast<double>(trial_.time);
  const auto other_time = static_cast<double>(before_.time + after.time);
  const auto trial_pushes = static_cast<double>(trial_.pushes);
  const auto other_pushes = static_cast<double>(before_.pushes + after.pushes);
  const double rate = trial_pushes / trial_time;
  const double usual = other_pushes / other_time;
  const bool helps = trial_.losses && before_.losses && after.losses &&
                     trial_.fall / trial_time > (before_.fall + after.fall) / other_time;
  if (rate >= usual * (1 - kTolerance) || helps) {
    failures_ = 0;
    trial_epochs_ = std::min(trial_epochs_ * 2, kTrialEpochsMax);
    return std::nullopt;
  }
  trial_epochs_ = kTrialEpochs;
  if (++failures_ < kFailuresMax) return std::nullopt;
  return Failure{per_1000_s(trial_pushes, trial_time), per_1000_s(other_pushes, other_time)};
}

std::optional<SpeculationTrial::Failure> SpeculationTrial::end_epoch(Micros now,
                                                                     std::uint64_t pushes) {
  if (window_.epochs++ == 0) window_.first = epoch_;
  std::optional<Failure> failure;
  // Without speculation the training comes apart: it is back at once, and for as long as may be.
  const bool rises =
      !window_.with && window_.first.count > 0 && epoch_.count > 0 &&
      mean(epoch_) - mean(window_.first) > kComesApart * std::abs(mean(window_.first));
  if (rises || window_.epochs >= (window_.with ? trial_epochs_ : kCalibrationEpochs)) {
    const Result ended = result(now, pushes);
    if (window_.with) {
      trial_ = ended;
    } else {
      if (trial_.time > 0 && !rises) failure = judge(ended);
      before_ = ended;
    }
    if (rises) trial_epochs_ = kTrialEpochsMax;
    window_ = {!window_.with, 0, now, pushes, {}};
  }
  epoch_ = {};
  return failure;
}

bool SpeculationTrial::end_epoch_without(Micros now, std::uint64_t pushes) {
  // In a window without, `first` sums the losses of all epochs since restarts failed.
  Loss& since = window_.first;
  const bool rises = !window_.with && since.count > 0 && epoch_.count > 0 &&
                     mean(epoch_) - mean(since) > kComesBack * std::abs(mean(since));
  if (rises) {
    trial_epochs_ = kTrialEpochsMax;
    failures_ = 0;
    trial_ = {};
    window_ = {true, 0, now, pushes, {}};
  } else {
    if (window_.with) window_ = {false, 0, now, pushes, {}};
    since.sum += epoch_.sum;
    since.count += epoch_.count;
  }
  epoch_ = {};
  return rises;
}

void SpeculationTrial::save(std::vector<std::int64_t>& out) const {
  const auto bits = [](double value) { return std::bit_cast<std::int64_t>(value); };
  out.insert(out.end(),
             {window_.with ? 1 : 0, window_.epochs, window_.began_at,
              static_cast<std::int64_t>(window_.pushes_before), bits(window_.first.sum),
              window_.first.count, bits(epoch_.sum), epoch_.count, trial_epochs_, failures_});
  for (const Result* result : {&before_, &trial_}) {
    out.insert(out.end(),
               {result->pushes, result->time, result->losses ? 1 : 0, bits(result->fall)});
  }
}

void SpeculationTrial::load(StateReader& reader) {
  const auto real = [&reader] { return std::bit_cast<double>(reader.next()); };
  window_.with = reader.next(0, 1) == 1;
  window_.epochs = reader.next(0, kTrialEpochsMax);
  window_.began_at = reader.next();
  window_.pushes_before = static_cast<std::uint64_t>(reader.next(0));
  window_.first.sum = real();
  window_.first.count = reader.next(0);
  epoch_.sum = real();
  epoch_.count = reader.next(0);
  trial_epochs_ = reader.next(1, kTrialEpochsMax);
  failures_ = reader.next(0, kFailuresMax);
  for (Result* result : {&before_, &trial_}) {
    result->pushes = reader.next(0);
    result->time = reader.next(0);
    result->losses = reader.next(0, 1) == 1;
    result->fall = real();
  }
}

}  // namespace syncd
