// See intervals.h.
#include "daemon/core/planners/intervals.h"

#include <algorithm>

namespace syncd::planners {
namespace {

constexpr std::int64_t kEwmaScale = 256;  // parts of a microsecond that the mean is kept in
constexpr std::int64_t kEwmaWeight = 4;   // the latest interval counts a quarter
constexpr Micros kIntervalMax = Micros{1} << 50;

}  // namespace

std::string_view to_string(Predictor predictor) {
  switch (predictor) {
    case Predictor::kLast:
      return "last";
    case Predictor::kEwma:
      return "ewma";
    case Predictor::kMedian:
      return "median";
  }
  return "?";
}

std::optional<Predictor> parse_predictor(std::string_view name) {
  for (const Predictor one : {Predictor::kLast, Predictor::kEwma, Predictor::kMedian}) {
    if (to_string(one) == name) return one;
  }
  return std::nullopt;
}

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

void IntervalPredictor::reset() {
  seen_ = 0;
  values_ = {};
}

std::vector<std::int64_t> IntervalPredictor::save() const {
  std::vector<std::int64_t> state{seen_};
  state.insert(state.end(), values_.begin(), values_.begin() + kept(seen_));
  return state;
}

bool IntervalPredictor::load(std::span<const std::int64_t> state, std::string& error) {
  const std::int64_t highest = kind_ == Predictor::kEwma ? kIntervalMax * kEwmaScale : kIntervalMax;
  const auto most = static_cast<std::int64_t>(kMedianOf);
  const bool count_fits = !state.empty() && state[0] >= 0 && state[0] <= most;
  if (!count_fits || kept(state[0]) + 1 != static_cast<std::int64_t>(state.size())) {
    error = "the state of the predictor '" + std::string(to_string(kind_)) +
            "' is a count from 0 to " + std::to_string(most) +
            " and as many intervals as it keeps, not " + std::to_string(state.size()) + " numbers" +
            (state.empty() ? "" : " that begin with " + std::to_string(state[0]));
    return false;
  }
  for (const std::int64_t value : state.subspan(1)) {
    if (value >= 0 && value <= highest) continue;
    error = "the state of the predictor '" + std::string(to_string(kind_)) + "' holds " +
            std::to_string(value) + ", allowed is 0 to " + std::to_string(highest);
    return false;
  }
  reset();
  seen_ = state[0];
  std::copy(state.begin() + 1, state.end(), values_.begin());
  return true;
}

}  // namespace syncd::planners
