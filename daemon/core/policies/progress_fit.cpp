// See progress_fit.h.
#include "daemon/core/policies/progress_fit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace syncd {
namespace {

// So much of what was known counts after each trial, as the training goes on.
constexpr double kRemembered = 0.8;
// Against one choice in one trial.
constexpr double kEvidenceMax = 1e3;

}  // namespace

// 0, then 2^-11 to 2.
double ProgressFit::choice(std::size_t i) {
  return i == 0 ? 0 : std::ldexp(1.0, static_cast<int>(i) - 12);
}

void ProgressFit::add(std::optional<double> loss, std::uint64_t missed) {
  epoch_.missed += static_cast<double>(missed);
  ++epoch_.pushes;
  if (!loss) return;
  epoch_.losses += *loss;
  epoch_.squares += *loss * *loss;
  ++epoch_.count;
}

ProgressFit::Slope ProgressFit::slope(const Window& window) {
  Slope slope;
  const auto n = static_cast<double>(window.epochs);
  const double spread = window.xx - window.x * window.x / n;
  if (window.lossless > 0 || window.epochs < 2 || spread <= 0) return slope;
  slope.known = true;
  slope.fall = (window.x * window.y / n - window.xy) / spread;
  slope.variance = window.noise / n / spread;
  slope.missed = window.missed / n;
  return slope;
}

// The trial lies between two windows without restarts. A choice loses weight by how unlikely it
// makes what was seen.
void ProgressFit::judge(const Slope& after) {
  if (!before_.known || !trial_.known || !after.known) return;
  // Between them: of a fall that grows or shrinks by shares, the geometric mean.
  const double without = before_.fall > 0 && after.fall > 0 ? std::sqrt(before_.fall * after.fall)
                                                            : (before_.fall + after.fall) / 2;
  const double variance = (before_.variance + after.variance) / 4;
  const double missed = (before_.missed + after.missed) / 2;
  for (std::size_t i = 0; i < kChoices; ++i) {
    const double with_factor = 1 + choice(i) * trial_.missed;
    const double without_factor = 1 + choice(i) * missed;
    const double off = trial_.fall * with_factor - without * without_factor;
    // What the curve's bend and chance make of it.
    const double bend =
        0.05 * (std::abs(trial_.fall) * with_factor + std::abs(without) * without_factor);
    const double noise = trial_.variance * with_factor * with_factor +
                         variance * without_factor * without_factor + bend * bend;
    const double against = noise > 0 ? off * off / noise / 2 : 0;
    weights_[i] =
        kRemembered * weights_[i] - (std::isfinite(against) ? std::min(against, kEvidenceMax) : 0);
  }
  // Whether restarts pay is looked at the less often the longer they do, or do not.
  const bool pays = lambda() > 2 * ProgressFit().lambda();
  with_epochs_ = pays ? std::min(2 * with_epochs_, kEpochsMax) : kWith;
  without_epochs_ = pays ? kWithout : std::min(2 * without_epochs_, kEpochsMax);
}

void ProgressFit::end_epoch() {
  const Epoch epoch = std::exchange(epoch_, {});
  const auto count = static_cast<double>(epoch.count);
  if (epoch.count > 0) {
    const double mean = epoch.losses / count;
    const double variance = std::max(0.0, epoch.squares / count - mean * mean) / count;
    // Losses are of the parameters that were pulled, which lack what was missed since.
    const auto pushes = static_cast<double>(epoch.pushes);
    const double x = static_cast<double>(window_.epochs) - epoch.missed / pushes / pushes;
    window_.x += x;
    window_.xx += x * x;
    window_.y += mean;
    window_.xy += x * mean;
    window_.noise += variance;
    if (!lowest_ || mean < *lowest_) {
      lowest_ = mean;
      lowest_variance_ = variance;
    }
    const double chance = 4 * std::sqrt(variance + lowest_variance_);
    if (mean - *lowest_ > std::max(chance, kComesApart * std::abs(*lowest_))) {
      // No lambda is large enough.
      weights_.fill(-kEvidenceMax);
      weights_.back() = 0;
      lowest_.reset();
      before_ = trial_ = {};
      window_ = {};
      with_ = true;
      with_epochs_ = kEpochsMax;
      without_epochs_ = kWithout;
      return;
    }
  } else {
    ++window_.lossless;
  }
  if (epoch.pushes > 0) window_.missed += epoch.missed / static_cast<double>(epoch.pushes);
  ++window_.epochs;
  if (window_.epochs < (with_ ? with_epochs_ : without_epochs_)) return;
  const Slope ended = slope(window_);
  if (with_) {
    trial_ = ended;
  } else {
    judge(ended);
    before_ = ended;
  }
  window_ = {};
  with_ = !with_;
}

// The geometric mean of the choices, by their weights.
double ProgressFit::lambda() const {
  const double most = *std::max_element(weights_.begin(), weights_.end());
  double sum = 0, weight = 0;
  for (std::size_t i = 0; i < kChoices; ++i) {
    const double w = std::exp(weights_[i] - most);
    weight += w;
    sum += w * std::log2(choice(i) + 0x1p-12);
  }
  return std::exp2(sum / weight) - 0x1p-12;
}

void ProgressFit::save(std::vector<std::int64_t>& out) const {
  const auto bits = [](double value) { return std::bit_cast<std::int64_t>(value); };
  out.insert(out.end(), {with_ ? 1 : 0, with_epochs_, without_epochs_});
  for (const double weight : weights_) out.push_back(bits(weight));
}

void ProgressFit::load(StateReader& reader) {
  with_ = reader.next(0, 1) == 1;
  with_epochs_ = reader.next(1, kEpochsMax);
  without_epochs_ = reader.next(1, kEpochsMax);
  for (double& weight : weights_) {
    weight = std::bit_cast<double>(reader.next());
    if (!std::isfinite(weight)) reader.fail();
  }
}

}  // namespace syncd
