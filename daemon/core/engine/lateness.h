// When a worker is late: measured against itself. A worker's recent spans (the longest stretch
// without a sign of progress in each of its iterations) give the thresholds that are left to the
// daemon ("auto"). Pure values, no thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/types.h"

namespace syncd {

// The latest spans of one worker, and what is usual for it. O(1): the window is small, and looked
// through once in kSpansPerLook iterations.
class RecentSpans {
 public:
  void add(Micros span_us);
  void clear() {
    const std::uint32_t looks = looks_;
    *this = {};
    looks_ = looks + 1;
  }
  // Changes with all that follows.
  std::uint32_t looks() const { return looks_; }

  bool known() const { return looked_at_ > 0; }
  Micros median_us() const { return median_us_; }  // at the latest look; precondition: known()
  Micros spread_us() const { return spread_us_; }  // the median of the distances from the median
  std::uint32_t looked_at() const { return looked_at_; }  // so many spans it was

 private:
  std::array<Micros, limits::kSpansKept> spans_{};   // as they came, in a ring
  std::array<Micros, limits::kSpansKept> sorted_{};  // the same
  std::uint32_t count_ = 0;                          // in the window
  std::uint32_t next_ = 0;                           // where the next one goes
  std::uint32_t since_look_ = 0;
  std::uint32_t looked_at_ = 0;
  std::uint32_t looks_ = 0;
  Micros median_us_ = 0;
  Micros spread_us_ = 0;
};

struct Lateness {
  Micros warn_after_us = 0;   // 0: never
  Micros evict_after_us = 0;  // 0: never
};

// The thresholds in force for a worker. What the job says in numbers is taken as it is. What it
// leaves to the daemon is usual = 4 medians + 8 spreads for the warning and five times that for
// the eviction, within limits.h's floors and ceilings, though never below twice the median; while
// fewer than kSpansFewest spans are known, kWarnAfterUnknown and kEvictAfterCeiling. A warning is
// never later than the eviction. O(1).
Lateness lateness(const JobSpec& spec, const RecentSpans& spans);

// How the thresholds were chosen, for people: "auto: 4 x median 1.2 s + 8 x spread 50 ms of its
// last 16 iterations, evict at 5 times that". Empty if both are given in numbers.
std::string lateness_rule(const JobSpec& spec, const RecentSpans& spans);

}  // namespace syncd
