// See intervals.h.
#include "daemon/core/planners/intervals.h"

#include <algorithm>

namespace syncd::planners {
namespace {

constexpr std::int64_t kEwmaScale = 256;  // parts of a microsecond that the mean is kept in
constexpr std::int64_t kEwmaWeight = 4;   // the latest interval counts a quarter
constexpr Micros kIntervalMax = Micros{1} << 50;

}  // namespace

void IntervalPredictor::observe(Micros interval) {
  const Micros seen = std::clamp(interval, Micros{0}, kIntervalMax);
  switch (kind_) {
    case Predictor::kLast:
      values_[0] = seen;
      break;
    case Predictor::kEwma: {
      const std::int64_t scaled = seen * kEwmaScale;
      values_[0] = seen_ == 0 ? scaled : values_[0] + (scaled - values_[0]) / kEwmaWeight;
      break;
    }
    case Predictor::kMedian:
      std::copy_backward(values_.begin(), values_.end() - 1, values_.end());
      values_[0] = seen;
      break;
  }
  seen_ = std::min<std::int64_t>(seen_ + 1, kMedianOf);
}

std::optional<Micros> IntervalPredictor::predict() const {
  if (seen_ == 0) return std::nullopt;
  switch (kind_) {
    case Predictor::kLast:
      break;
    case Predictor::kEwma:
      return (values_[0] + kEwmaScale / 2) / kEwmaScale;
    case Predictor::kMedian: {
      std::vector<std::int64_t> sorted(values_.begin(), values_.begin() + seen_);
      std::sort(sorted.begin(), sorted.end());
      return sorted[static_cast<std::size_t>((seen_ - 1) / 2)];
    }
  }
  return values_[0];
}

std::int64_t IntervalPredictor::kept(std::int64_t seen) const {
  return kind_ == Predictor::kMedian ? seen : std::min<std::int64_t>(seen, 1);
}

std::vector<std::int64_t> IntervalPredictor::save() const {
  std::vector<std::int64_t> state{seen_};
  state.insert(state.end(), values_.begin(), values_.begin() + kept(seen_));
  return state;
}

bool IntervalPredictor::load(std::span<const std::int64_t> state) {
  const std::int64_t highest = kind_ == Predictor::kEwma ? kIntervalMax * kEwmaScale : kIntervalMax;
  if (state.empty() || state[0] < 0 || state[0] > std::int64_t{kMedianOf}) return false;
  const auto values = state.subspan(1);
  if (kept(state[0]) != std::ssize(values)) return false;
  const auto fits = [&](std::int64_t value) { return value >= 0 && value <= highest; };
  if (!std::all_of(values.begin(), values.end(), fits)) return false;
  seen_ = state[0];
  values_ = {};
  std::copy(values.begin(), values.end(), values_.begin());
  return true;
}

}  // namespace syncd::planners
