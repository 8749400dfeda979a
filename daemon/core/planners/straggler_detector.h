// Finds workers that have become slower than the others, while one slow iteration is no verdict: a
// two-sided CUSUM over log ratios of iteration times. Deterministic, no clock; one thread at a
// time.
//
// For each push, x is the logarithm of the worker's span over the median of the others' latest
// spans. A worker's offset (the median of its first kFirst x, within +-kOffsetMax, then moved by at
// most kOffsetStep a push) is what is usual for it: a machine that is a little slower for good is
// no straggler. What x exceeds the offset by is summed up, in steps that are cut off at +-kStepMax,
// less kSlack; at kThreshold the worker is flagged, and in the other direction it has recovered.
// Steps and threshold grow with the job's own noise beyond a standard deviation of kNoise.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd::planners {

struct StragglerVerdict {
  bool is_straggler = false;  // false: it has recovered
  double factor = 0;          // how many times its usual time it takes: median of its latest four
  std::uint64_t pushes = 0;   // of this worker, since it began to be slower (or to recover)
};

class StragglerDetector {
 public:
  static constexpr std::size_t kOthersMin = 4;  // fewer others: no verdict
  static constexpr std::size_t kFirst = 16;     // pushes of a worker before there is a verdict
  static constexpr double kOffsetMax = 0.25;
  static constexpr double kOffsetStep = 0.005;
  static constexpr double kNoise = 0.1;
  static constexpr double kSlack = 0.18;
  static constexpr double kStepMax = 0.1;
  static constexpr double kThreshold = 0.31;
  static constexpr std::size_t kRecent =
      1024;  // excesses of the job that its noise is estimated from

  // A push of `rank` whose iteration took `span_us`; spans of 0 and less are left out. O(log n) for
  // n workers, and O(kRecent) each kRecent / 4 pushes.
  std::optional<StragglerVerdict> push(Rank rank, Micros span_us);
  // It has gone, or began a phase that says nothing about its speed: its latest span is no
  // reference any more. What is usual for it is kept.
  void leave_out(Rank rank);
  // It is another process: nothing of it is known.
  void forget(Rank rank);

  bool is_straggler(Rank rank) const;

 private:
  struct Worker {
    std::optional<double> latest;  // log of its latest span, which is among latest_
    std::uint64_t seen = 0;
    std::array<double, kFirst> first{};
    double offset = 0;
    double slower = 0;  // the sum towards a flag, or towards recovery
    std::uint64_t since = 0;
    std::array<double, 4> excess{};  // the latest x less the offset, by turns
    bool is_straggler = false;
  };
  // A multiset that knows its median. O(log n).
  class Median {
   public:
    void add(double value);
    void remove(double value);  // precondition: there is such a one
    std::size_t size() const { return low_.size() + high_.size(); }
    double value() const;  // precondition: it is not empty

   private:
    void balance();
    std::multiset<double> low_, high_;
  };
  void note_noise(double excess);

  std::map<Rank, Worker> workers_;
  Median latest_;
  std::vector<double> recent_;  // a ring
  std::size_t next_recent_ = 0;
  double unit_ = 1;  // max(1, sigma / kNoise)
};

}  // namespace syncd::planners
