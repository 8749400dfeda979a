// See straggler_detector.h.
#include "daemon/core/planners/straggler_detector.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace syncd::planners {
namespace {

// Reorders the values.
template <class Values>
double median_of(Values& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 != 0) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

void StragglerDetector::Median::balance() {
  if (low_.size() > high_.size() + 1) high_.insert(low_.extract(std::prev(low_.end())));
  if (high_.size() > low_.size()) low_.insert(high_.extract(high_.begin()));
}

void StragglerDetector::Median::add(double value) {
  (low_.empty() || value <= *low_.rbegin() ? low_ : high_).insert(value);
  balance();
}

void StragglerDetector::Median::remove(double value) {
  const auto in_low = low_.find(value);
  if (in_low != low_.end()) {
    low_.erase(in_low);
  } else {
    high_.erase(high_.find(value));
  }
  balance();
}

double StragglerDetector::Median::value() const {
  return low_.size() > high_.size() ? *low_.rbegin() : (*low_.rbegin() + *high_.begin()) / 2;
}

void StragglerDetector::leave_out(Rank rank) {
  const auto it = workers_.find(rank);
  if (it == workers_.end() || !it->second.latest) return;
  latest_.remove(*std::exchange(it->second.latest, std::nullopt));
}

void StragglerDetector::forget(Rank rank) {
  leave_out(rank);
  workers_.erase(rank);
}

bool StragglerDetector::is_straggler(Rank rank) const {
  const auto it = workers_.find(rank);
  return it != workers_.end() && it->second.is_straggler;
}

void StragglerDetector::note_noise(double excess) {
  if (recent_.size() < kRecent) {
    recent_.push_back(excess);
  } else {
    recent_[next_recent_] = excess;
  }
  next_recent_ = (next_recent_ + 1) % kRecent;
  if (next_recent_ % (kRecent / 4) != 0) return;
  std::vector<double> values = recent_;
  const double middle = median_of(values);
  for (double& value : values) value = std::abs(value - middle);
  unit_ = std::max(1.0, 1.4826 * median_of(values) / kNoise);  // of a normal distribution: sigma
}

std::optional<StragglerVerdict> StragglerDetector::push(Rank rank, Micros span_us) {
  if (span_us <= 0) return {};
  leave_out(rank);
  const double span = std::log(static_cast<double>(span_us));
  std::optional<double> reference;
  if (latest_.size() >= kOthersMin) reference = latest_.value();
  Worker& worker = workers_[rank];
  worker.latest = span;
  latest_.add(span);
  if (!reference) return {};

  const double x = span - *reference;
  if (worker.seen < kFirst) {
    worker.first[worker.seen] = x;
    if (++worker.seen == kFirst) {
      worker.offset = std::clamp(median_of(worker.first), -kOffsetMax, kOffsetMax);
    }
    return {};
  }
  const double excess = x - worker.offset;
  note_noise(excess);
  worker.excess[worker.seen++ % worker.excess.size()] = excess;
  const double step = std::clamp(excess - kSlack * unit_, -kStepMax * unit_, kStepMax * unit_);
  worker.slower = std::max(0.0, worker.slower + (worker.is_straggler ? -step : step));
  if (worker.slower == 0) {
    worker.since = 0;
    if (!worker.is_straggler) {
      worker.offset = std::clamp(worker.offset + std::clamp(excess, -kOffsetStep, kOffsetStep),
                                 -kOffsetMax, kOffsetMax);
    }
    return {};
  }
  ++worker.since;
  if (worker.slower < kThreshold * unit_) return {};
  worker.is_straggler = !worker.is_straggler;
  worker.slower = 0;
  auto latest = worker.excess;
  return StragglerVerdict{worker.is_straggler, std::exp(median_of(latest)),
                          std::exchange(worker.since, 0)};
}

}  // namespace syncd::planners
