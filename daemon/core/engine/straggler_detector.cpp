// See straggler_detector.h.
#include "daemon/core/engine/straggler_detector.h"

#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

namespace syncd {
namespace {

constexpr float kLn2 = 0.693147180559945F;

// Reorders the values.
float median_of(float* begin, float* end) {
  float* const middle = begin + (end - begin) / 2;
  std::nth_element(begin, middle, end);
  if ((end - begin) % 2 != 0) return *middle;
  return (*middle + *std::max_element(begin, middle)) / 2;
}

// The binary logarithm, within 1e-4, in a few instructions: by the exponent, and a series for the
// mantissa.
float log2_of(Micros span_us) {
  const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(span_us));
  const auto exponent = static_cast<std::int32_t>(bits >> 52) - 1023;
  const auto mantissa = static_cast<float>(
      std::bit_cast<double>((bits & 0xf'ffff'ffff'ffff) | std::uint64_t{1023} << 52));
  const float t = (mantissa - 1) / (mantissa + 1);
  const float square = t * t;
  const float series = t * (1 + square * (1.0F / 3 + square * (1.0F / 5 + square * (1.0F / 7))));
  return static_cast<float>(exponent) + 2 / kLn2 * series;
}

}  // namespace

// ---- the median

void StragglerDetector::Median::settle() {
  const std::int32_t wanted = (size_ - 1) / 2;
  while (below_ > wanted) below_ -= counts_[static_cast<std::size_t>(--middle_)];
  while (below_ + counts_[static_cast<std::size_t>(middle_)] <= wanted) {
    below_ += counts_[static_cast<std::size_t>(middle_++)];
  }
}

float StragglerDetector::Median::value() {
  settle();
  // Those of a bucket lie evenly in it.
  const auto count = static_cast<float>(counts_[static_cast<std::size_t>(middle_)]);
  const float within = (static_cast<float>((size_ - 1) / 2 - below_) + 0.5F) / count;
  return (static_cast<float>(middle_) + within) * (kLn2 / kPerOctave);
}

// ---- the workers

void StragglerDetector::restore(Track& track, double usual) {
  track.seen = kFirst;
  track.offset = std::clamp(static_cast<float>(usual), -kOffsetMax, kOffsetMax);
}

float StragglerDetector::reference() {
  if (until_looked_up_ == 0) {
    reference_ = latest_.value();
    until_looked_up_ = 1 + latest_.size() / kReferencePart;
  }
  --until_looked_up_;
  return reference_;
}

void StragglerDetector::note_noise(float excess) {
  constexpr float kUnit = kNoise / 1.4826F;  // sigma is 1.4826 times that of a normal distribution
  const float step = kNoiseStep * unit_;
  const float above = excess - middle_;
  middle_ += std::copysign(kUnit * step, above);
  unit_ = std::max(1.0F, unit_ + std::copysign(step, std::abs(above) - kUnit * unit_));
}

// One of its first x.
void StragglerDetector::learn(Track& track, float x) {
  track.values[track.seen] = x;
  if (++track.seen < kFirst) return;
  const float own = median_of(track.values.data(), track.values.data() + kFirst);
  track.offset = std::clamp(own, -kOffsetMax, kOffsetMax);
  track.values.fill(0);
}

// Its sum has reached the threshold.
StragglerVerdict StragglerDetector::decide(Track& track, bool is_straggler) {
  track.slower = 0;
  std::array<float, 4> latest{};
  std::copy_n(track.values.begin(), latest.size(), latest.begin());
  const float middle = median_of(latest.data(), latest.data() + latest.size());
  return {!is_straggler, std::exp(static_cast<double>(middle)), std::exchange(track.since, 0)};
}

std::optional<StragglerVerdict> StragglerDetector::push(Track& track, bool is_straggler,
                                                        Micros span_us) {
  leave_out(track);
  if (span_us < kSpanMin) return {};
  const float octaves = log2_of(span_us);
  const bool has_reference = latest_.size() >= kOthersMin;
  const float usual = has_reference ? reference() : 0;
  track.latest =
      std::clamp(static_cast<std::int32_t>(octaves * Median::kPerOctave), 0, Median::kBuckets - 1);
  latest_.add(track.latest);
  if (!has_reference) return {};

  const float x = octaves * kLn2 - usual;
  if (track.seen < kFirst) return learn(track, x), std::nullopt;
  const float excess = x - track.offset;
  note_noise(excess);
  track.values[track.seen++ % 4] = excess;
  if (track.seen == 0) track.seen = kFirst;  // it has wrapped around
  const float step = std::clamp(excess - kSlack * unit_, -kStepMax * unit_, kStepMax * unit_);
  track.slower = std::max(0.0F, track.slower + (is_straggler ? -step : step));
  if (track.slower == 0) {
    track.since = 0;
    if (!is_straggler) {
      track.offset = std::clamp(track.offset + std::clamp(excess, -kOffsetStep, kOffsetStep),
                                -kOffsetMax, kOffsetMax);
    }
    return {};
  }
  ++track.since;
  if (track.slower < kThreshold * unit_) return {};
  return decide(track, is_straggler);
}

}  // namespace syncd
