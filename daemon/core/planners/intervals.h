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
  kAuto,    // whichever of the three has been off by least of late, on the average over a job's
            // workers; ties: the first
};

template <>
inline constexpr std::string_view kNames<Predictor> = "last, ewma, median, auto";

class IntervalPredictor {
 public:
  static constexpr std::size_t kMedianOf = 5;
  static constexpr std::size_t kChoices = 3;        // of kAuto
  static constexpr std::int64_t kErrorScale = 256;  // errors() are in 1/256 us

  explicit IntervalPredictor(Predictor kind = Predictor::kLast) : kind_(kind) {}

  // An interval of `interval` microseconds was seen. Negative ones (a clock that was set back)
  // count as 0, longer ones than 2^50 (35 years) as that.
  void observe(Micros interval);

  // The next interval in microseconds; nothing before the first one was seen. O(1). kAuto: by what
  // this worker alone would choose, or as told.
  std::optional<Micros> predict() const { return predict(chosen(errors_)); }
  std::optional<Micros> predict(Predictor by) const;

  // By how much each of the three has been off, a moving mean in 1/256 us; zeros but of kAuto. Sums
  // of several workers' tell what to choose for all of them.
  using Errors = std::array<std::int64_t, kChoices>;
  const Errors& errors() const { return errors_; }
  Predictor chosen(const Errors& errors) const;

  // The state as whole numbers, for a snapshot; load() takes back what save() of the same kind
  // gave. False, with nothing changed, for anything else.
  std::vector<std::int64_t> save() const;
  bool load(std::span<const std::int64_t> state);

 private:
  // How many latest intervals a snapshot has, after `seen`; what else it has is fixed.
  std::size_t latest_kept(std::int64_t seen) const;
  bool uses(Predictor kind) const { return kind_ == kind || kind_ == Predictor::kAuto; }

  Predictor kind_;
  std::int64_t seen_ = 0;                         // intervals, up to kMedianOf
  std::array<std::int64_t, kMedianOf> latest_{};  // newest first
  std::int64_t mean_ = 0;                         // ewma, in 1/256 us
  Errors errors_{};                               // auto: moving means, in 1/256 us
};

}  // namespace syncd::planners
