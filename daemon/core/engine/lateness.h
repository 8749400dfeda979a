// When a worker is late: measured against itself. A worker's recent spans (the longest stretch
// without a sign of progress in each of its iterations) give the thresholds that are left to the
// daemon ("auto"). Pure values, no thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/types.h"

namespace syncd {

// What is usual for a worker, as of the latest look at its spans.
struct UsualSpan {
  std::uint32_t spans = 0;  // so many were looked at; 0: nothing is known yet
  Micros median_us = 0;
  Micros spread_us = 0;  // MAD: the median of the distances from the median
};

// The latest spans of one worker. They count from one look to the next, every kSpansPerLook
// iterations, so that the thresholds do not move all the time. add() is a few instructions; usual()
// sorts a small window, and only what is in doubt asks for it.
class RecentSpans {
 public:
  void add(Micros span_us) {
    spans_[next_] = span_us;
    if (++next_ == spans_.size()) next_ = 0;
    if (count_ < limits::kSpansKept) ++count_;
    if (count_ < limits::kSpansFewest) return;
    if (looked_at_ > 0 && ++since_look_ < limits::kSpansPerLook) return;
    since_look_ = 0;
    looked_at_ = count_;
  }
  UsualSpan usual() const;
  bool are_known() const { return looked_at_ > 0; }  // usual().spans is not 0

  // What came after the worker's own computing in its latest iteration; -1: it does not say. The
  // longest lately counts, which fades.
  void note_exchange(Micros exchange_us) {
    if (exchange_us < 0) {
      exchange_us_ = 0;
    } else {
      exchange_us_ = std::max(exchange_us, exchange_us_ - exchange_us_ / 8);
    }
  }
  Micros exchange_us() const { return exchange_us_; }

 private:
  // A ring: the window of the latest look, and the spans since then.
  std::array<Micros, limits::kSpansKept + limits::kSpansPerLook> spans_{};
  std::uint32_t next_ = 0;
  std::uint32_t count_ = 0;  // in the window that the next look would have
  std::uint32_t since_look_ = 0;
  std::uint32_t looked_at_ = 0;
  Micros exchange_us_ = 0;
};

struct Lateness {
  Micros warn_after_us = 0;   // 0: never
  Micros evict_after_us = 0;  // 0: never
};

// The thresholds in force for a worker. What the job says in numbers is taken as it is. What it
// leaves to the daemon is usual = 4 medians + 8 spreads for the warning and five times that for
// the eviction, within limits.h's floors and ceilings, though never below twice the median; while
// fewer than kSpansFewest spans are known, kWarnAfterUnknown and kEvictAfterCeiling. A warning is
// never later than the eviction. Of a worker that marks when it has computed, spans end there, and
// what its exchange usually takes is added: a worker that waits for another's computing in it is
// not late. O(1).
Lateness lateness(const JobSpec& spec, const RecentSpans& spans);

// The least that passes, whatever its spans, from a worker's last sign of progress until a warning
// or an eviction can be due; kNever: neither ever is.
Micros least_patience(const JobSpec& spec, bool are_spans_known);

// How the thresholds were chosen, for people: "auto: 4 x median 1.2 s + 8 x spread 50 ms of its
// last 16 iterations, evict at 5 times that". Empty if both are given in numbers.
std::string lateness_rule(const JobSpec& spec, const RecentSpans& spans);

}  // namespace syncd
