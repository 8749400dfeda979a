// Predictors of a worker's next interval from those it had: small, deterministic, whole
// microseconds. One per worker; any thread, one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "daemon/core/engine/types.h"
#include "daemon/core/planners/names.h"

namespace syncd::planners {

enum class Predictor : std::uint8_t {
  kLast,    // the latest interval (ElasticBSP paper, section 4)
  kEwma,    // exponentially weighted mean, a quarter of the weight on the latest
  kMedian,  // of the latest five (of an even number the lower of the two in the middle)
};

template <>
inline constexpr std::string_view kNames<Predictor> = "last, ewma, median";

class IntervalPredictor {
 public:
  static constexpr std::size_t kMedianOf = 5;

  explicit IntervalPredictor(Predictor kind = Predictor::kLast) : kind_(kind) {}

  // An interval of `interval` microseconds was seen. Negative ones (a clock that was set back)
  // count as 0, longer ones than 2^50 (35 years) as that.
  void observe(Micros interval);

  // The next interval in microseconds; nothing before the first one was seen. O(1).
  std::optional<Micros> predict() const;

  // The state as whole numbers, for a snapshot; load() takes back what save() of the same kind
  // gave. False, with nothing changed, for anything else.
  std::vector<std::int64_t> save() const;
  bool load(std::span<const std::int64_t> state);

 private:
  std::int64_t kept(std::int64_t seen) const;  // values in use after so many intervals

  Predictor kind_;
  std::int64_t seen_ = 0;                         // intervals, up to kMedianOf
  std::array<std::int64_t, kMedianOf> values_{};  // newest first; ewma: values_[0] in 1/256 us
};

}  // namespace syncd::planners
