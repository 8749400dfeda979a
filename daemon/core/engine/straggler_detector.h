// Finds workers that have become slower than the others, while one slow iteration is no verdict: a
// two-sided CUSUM over log ratios of iteration times. Deterministic, no clock; one thread at a
// time.
//
// For each push, x is the logarithm of the worker's span over the median of the others' latest
// spans. A worker's offset (the median of its first kFirst x, within +-kOffsetMax, then moved by at
// most kOffsetStep a push) is what is usual for it: a machine that is a little slower for good is
// no straggler. What x exceeds the offset by is summed up, in steps that are cut off at +-kStepMax,
// less kSlack; at kThreshold the worker is flagged, and in the other direction it has recovered.
// Steps and threshold grow with the job's own noise beyond a standard deviation of kNoise: that is
// estimated by two running medians, of what x exceeds the offset by, and of how far that is from
// its own median; each push moves them by a small step towards itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd {

struct StragglerVerdict {
  bool is_straggler = false;  // false: it has recovered
  double factor = 0;          // how many times its usual time it takes: median of its latest four
  std::uint32_t pushes = 0;   // of this worker, since it began to be slower (or to recover)
};

class StragglerDetector {
 public:
  static constexpr std::size_t kOthersMin = 4;  // fewer others: no verdict
  static constexpr std::size_t kFirst = 16;     // pushes of a worker before there is a verdict
  static constexpr float kOffsetMax = 0.25F;
  static constexpr float kOffsetStep = 0.005F;
  static constexpr float kNoise = 0.1F;
  static constexpr float kSlack = 0.18F;
  static constexpr float kStepMax = 0.1F;
  static constexpr float kThreshold = 0.31F;
  // Of the running medians, as a part of the spread: forgets within some 600 pushes, and is
  // more exact than the median of 256.
  static constexpr float kNoiseStep = 0.002F;
  // A reference serves so many pushes: one in this many of the spans that it is the median of.
  static constexpr std::size_t kReferencePart = 64;
  // Shorter iterations say more about queues and schedulers than about who computes slowly.
  static constexpr Micros kSpanMin = 1000;

  // What it knows of one worker, whose owner keeps it.
  struct Track {
    static constexpr std::int32_t kNone = -1;

    std::int32_t latest = kNone;  // its latest span's bucket, which is among the median's
    std::uint32_t seen = 0;       // pushes that had a reference
    std::uint32_t since = 0;      // pushes since `slower` was 0
    float offset = 0;
    float slower = 0;  // the sum towards a flag, or towards recovery
    // Its first x; then, by turns in the first four, the latest x less the offset.
    std::array<float, kFirst> values{};

    // What is usual for it: nothing before it has shown that.
    std::optional<double> usual() const {
      return seen >= kFirst ? std::optional<double>(offset) : std::nullopt;
    }
  };

  // A push whose iteration took `span_us`; one below kSpanMin is left out. `is_straggler`: as the
  // latest verdict said. O(1), but for the buckets between one median and the next.
  std::optional<StragglerVerdict> push(Track& track, bool is_straggler, Micros span_us);
  // The worker has gone, or its iteration says nothing about its speed: its latest span is no
  // reference any more. What is usual for it is kept.
  void leave_out(Track& track) {
    if (track.latest == Track::kNone) return;
    latest_.remove(std::exchange(track.latest, Track::kNone));
  }

  // Of a worker that was known before.
  static void restore(Track& track, double usual);
  void restore_noise(double noise) { unit_ = std::max(1.0F, static_cast<float>(noise)); }
  // The standard deviation of the excesses, as a multiple of kNoise; at least 1.
  double noise() const { return unit_; }

 private:
  // Counts of logarithms of spans by bucket, whose median moves with them.
  class Median {
   public:
    static constexpr std::int32_t kPerOctave = 32;
    static constexpr std::int32_t kBuckets = 48 * kPerOctave;  // up to 8 years

    void add(std::int32_t bucket) {
      if (counts_.empty()) counts_.resize(kBuckets);
      ++counts_[static_cast<std::size_t>(bucket)];
      ++size_;
      if (bucket < middle_) ++below_;
    }
    // Precondition: it was added and not removed since.
    void remove(std::int32_t bucket) {
      --counts_[static_cast<std::size_t>(bucket)];
      --size_;
      if (bucket < middle_) --below_;
    }
    std::size_t size() const { return static_cast<std::size_t>(size_); }
    // The lower one of the two in the middle, as a natural logarithm; precondition: it is not
    // empty.
    float value();

   private:
    void settle();

    std::vector<std::int32_t> counts_;  // made by the first add()
    std::int32_t size_ = 0;
    std::int32_t middle_ = 0;  // after settle(): has the median
    std::int32_t below_ = 0;   // how many are in lower buckets than that
  };
  float reference();  // precondition: there are latest spans
  static void learn(Track& track, float x);
  static StragglerVerdict decide(Track& track, bool is_straggler);
  void note_noise(float excess);

  Median latest_;
  float reference_ = 0;              // its value, as last looked up
  std::size_t until_looked_up_ = 0;  // pushes
  float middle_ = 0;                 // the running median of the excesses
  float unit_ = 1;                   // and of their distances from it; 1 is that of kNoise
};

}  // namespace syncd
