// The weighted mean of several workers' parameters, as a reduce makes it, in real and virtual time.
// Used by one thread.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

namespace syncd::trainer {

class WeightedMean {
 public:
  explicit WeightedMean(std::size_t parameters) : sum_(parameters) {}

  void clear() {
    std::fill(sum_.begin(), sum_.end(), 0.0);
    weights_ = 0;
  }
  void add(std::span<const float> values, double weight) {
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * double{values[i]};
    weights_ += weight;
  }
  // Of what was added since clear(), whatever its weights sum up to. False: that is nothing, and
  // `out` stays as it is.
  bool write(std::span<float> out) const {
    if (weights_ <= 0) return false;
    for (std::size_t i = 0; i < sum_.size(); ++i) out[i] = static_cast<float>(sum_[i] / weights_);
    return true;
  }

 private:
  std::vector<double> sum_;
  double weights_ = 0;
};

}  // namespace syncd::trainer
