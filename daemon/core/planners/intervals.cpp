// See intervals.h.
#include "daemon/core/planners/intervals.h"

#include <algorithm>
#include <cstdlib>

namespace syncd::planners {
namespace {

constexpr std::int64_t kScale = IntervalPredictor::kErrorScale;  // of all means
constexpr std::int64_t kEwmaWeight = 4;    // the latest interval counts a quarter
constexpr std::int64_t kErrorWeight = 16;  // the latest error counts a sixteenth
constexpr Micros kIntervalMax = Micros{1} << 50;
constexpr Micros kErrorMax = Micros{1} << 34;  // 4.8 h; the sum over 2^20 workers is no overflow

}  // namespace

void IntervalPredictor::observe(Micros interval) {
  const Micros seen = std::clamp(interval, Micros{0}, kIntervalMax);
  if (kind_ == Predictor::kAuto && seen_ > 0) {
    for (std::size_t i = 0; i < kChoices; ++i) {
      const Micros error = std::abs(seen - *predict(static_cast<Predictor>(i)));
      errors_[i] += (std::min(error, kErrorMax) * kScale - errors_[i]) / kErrorWeight;
    }
  }
  const std::int64_t scaled = seen * kScale;
  mean_ = seen_ == 0 ? scaled : mean_ + (scaled - mean_) / kEwmaWeight;
  std::copy_backward(latest_.begin(), latest_.end() - 1, latest_.end());
  latest_[0] = seen;
  seen_ = std::min<std::int64_t>(seen_ + 1, kMedianOf);
}

Predictor IntervalPredictor::chosen(const Errors& errors) const {
  if (kind_ != Predictor::kAuto) return kind_;
  return static_cast<Predictor>(std::min_element(errors.begin(), errors.end()) - errors.begin());
}

std::optional<Micros> IntervalPredictor::predict(Predictor by) const {
  if (seen_ == 0) return std::nullopt;
  if (by == Predictor::kEwma) return (mean_ + kScale / 2) / kScale;
  if (by == Predictor::kLast) return latest_[0];
  auto sorted = latest_;
  const auto end = sorted.begin() + seen_;
  const auto middle = sorted.begin() + (seen_ - 1) / 2;
  std::nth_element(sorted.begin(), middle, end);
  return *middle;
}

std::size_t IntervalPredictor::latest_kept(std::int64_t seen) const {
  if (uses(Predictor::kMedian)) return static_cast<std::size_t>(seen);
  return kind_ == Predictor::kLast && seen > 0 ? 1 : 0;
}

std::vector<std::int64_t> IntervalPredictor::save() const {
  std::vector<std::int64_t> state{seen_};
  state.insert(state.end(), latest_.begin(),
               latest_.begin() + static_cast<std::ptrdiff_t>(latest_kept(seen_)));
  if (uses(Predictor::kEwma) && seen_ > 0) state.push_back(mean_);
  if (kind_ == Predictor::kAuto) state.insert(state.end(), errors_.begin(), errors_.end());
  return state;
}

bool IntervalPredictor::load(std::span<const std::int64_t> state) {
  if (state.empty() || state[0] < 0 || state[0] > std::int64_t{kMedianOf}) return false;
  const std::int64_t seen = state[0];
  const std::size_t latest = latest_kept(seen);
  const std::size_t mean = uses(Predictor::kEwma) && seen > 0 ? 1 : 0;
  const std::size_t errors = kind_ == Predictor::kAuto ? kChoices : 0;
  auto values = state.subspan(1);
  if (values.size() != latest + mean + errors) return false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t highest = i < latest          ? kIntervalMax
                                 : i < latest + mean ? kIntervalMax * kScale
                                                     : kErrorMax * kScale;
    if (values[i] < 0 || values[i] > highest) return false;
  }
  seen_ = seen;
  latest_ = {};
  std::copy(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(latest), latest_.begin());
  mean_ = mean == 1 ? values[latest] : 0;
  errors_ = {};
  std::copy(values.end() - static_cast<std::ptrdiff_t>(errors), values.end(), errors_.begin());
  return true;
}

}  // namespace syncd::planners
