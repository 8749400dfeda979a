// Which moments of a run a report shows in detail: one superstep, or about five iterations, as near
// to the middle of the run as what was kept of it allows. Used on the parent's main thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "reference_trainer/run/span_ring.h"

namespace syncd::trainer {

class RunBoard;

// About so many iterations of an average worker are shown.
inline constexpr int kTimelineIterations = 5;

// A window of a run. Moments in microseconds since the run's first grant.
struct Timeline {
  std::int64_t start_us = 0;
  std::int64_t end_us = 0;
  bool is_superstep = false;               // starts and ends at global synchronizations
  std::vector<std::vector<Span>> workers;  // what overlaps with the window, oldest first
  std::vector<std::int64_t> barriers_us;   // global synchronizations in it

  bool empty() const { return end_us <= start_us; }
};

// What is known of all workers from one moment to another; spans on the same clock.
struct SpanRecord {
  std::int64_t start_us = 0;
  std::int64_t end_us = 0;
  std::vector<std::vector<Span>> workers;
};

// The moments of global synchronizations, ascending: the first grant of each. Workers are released
// together, so a worker's second such grant belongs to the next one. O(n log n) in the spans.
std::vector<std::int64_t> barrier_moments(const std::vector<std::vector<Span>>& workers);

// How many iterations lie between the barriers of a policy whose grants do not say that a barrier
// was there; 0 for other policies.
std::int64_t superstep_of(std::string_view policy);

// Marks the grants after the barriers of such a policy; nothing for a superstep of 0.
void mark_supersteps(SpanRecord& record, std::int64_t superstep);

// The window of `record` nearest to `middle_us`. Where there are two global synchronizations or
// more, it starts at one and ends at another: a superstep, or as many of them as make about
// kTimelineIterations. Elsewhere it is moved to where an iteration was started over, came too late
// or was jumped over, if there is such a thing. Computing whose push came too late is marked as
// wasted. Moments are made
// relative to origin_us. Empty if nothing is known.
Timeline choose_window(const SpanRecord& record, std::int64_t middle_us, std::int64_t origin_us);

// Looks at the workers' rings now and then while a run lasts, because nobody knows yet when its
// middle is: at moments that are a quarter later each time, of which the last few are kept as
// windows. Whenever the run ends, one of them is near the middle.
class TimelineRecorder {
 public:
  // `policy` says whether the grants of iterations tell of global synchronizations.
  explicit TimelineRecorder(std::string_view policy) : superstep_(superstep_of(policy)) {}

  // Cheap unless a look is due. started_us: the first grant; 0: not yet.
  void look(const RunBoard& board, std::int64_t started_us, std::int64_t now_us);

  // After the last worker has ended.
  Timeline finish(const RunBoard& board, std::int64_t started_us, std::int64_t ended_us);

 private:
  SpanRecord record_of(const RunBoard& board, std::int64_t started_us, std::int64_t now_us) const;

  std::int64_t superstep_;
  std::int64_t next_look_us_ = 0;  // since the start
  std::vector<Timeline> windows_;
};

}  // namespace syncd::trainer
