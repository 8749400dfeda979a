// Who made the others wait, and for how long, out of a job's history. Pure; one thread.
//
// A push record says when its iteration was granted (its time less its span) and how long the
// worker had been held in begin before (waited_us). A worker that was granted at a moment T was
// granted in the same step of the daemon in which what it waited for happened: a wait that ended at
// T is charged, whole, to the worker whose push, leave or loss has the time T (of several, the
// last). So under bsp the last worker of a barrier is charged with all that the others waited
// there. Where nothing of a worker's happened at T the wait was ended by something else (the start
// of the job, a change of policy, a planner's time) and is charged to nobody. Waits of 0 count
// nowhere, nor do those of iterations that were not pushed (yet).
//
// Workers that mark when they have computed (computed_us) and exchange with each other before they
// push wait in that exchange. The worker with the shortest exchange of an iteration came last: it
// is charged with what the exchange of each other one exceeds its own by.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/engine/record.h"
#include "daemon/core/engine/straggler_detector.h"
#include "proto/base/fields.h"

namespace syncd::ctl {

// What one worker, or all of one host, cost the others. Microseconds.
struct StragglerShare {
  std::int64_t rank = kNoRank;  // kNoRank: a host
  std::string name;             // the latest; empty: not known (its joining is not in the history)
  std::string host;
  Micros lost_us = 0;       // charged waits, added up over those who waited
  Micros alone_us = 0;      // of it, what came after the last push of anybody else
  Micros longest_us = 0;    // the longest single wait
  std::uint64_t waits = 0;  // how many waits were charged
  std::uint64_t moments =
      0;  // how many times it let others go (under bsp: barriers it was last at)
};

SYNCD_FIELDS(StragglerShare, rank, name, host, lost_us, alone_us, longest_us, waits, moments)

class Stragglers {
 public:
  // Counts only waits that ended at `since_us` or later.
  explicit Stragglers(Micros since_us = 0) : since_us_(since_us) {}

  // Records of one job, in the order of their sequence numbers and without gaps from the first one
  // on. O(log n) each, n the pushes since the slowest worker's last one, which is also what is
  // kept; of marked pushes, kRoundsMax iterations at most.
  void add(const Record& record);

  // Those who were charged, the most lost first; equal ones by rank, or by name.
  std::vector<StragglerShare> by_worker() const;
  std::vector<StragglerShare> by_host() const;

  Micros lost_us() const;                            // charged to workers
  Micros elsewhere_us() const { return other_us_; }  // ended by something else
  // For comparison: spans of the pushes, of marked ones up to the mark.
  Micros computed_us() const { return computed_us_; }
  // What marked ones exchanged, without what they waited for others in it.
  Micros exchange_us() const;

 private:
  struct Event {
    Micros time_us = 0;
    std::int64_t rank = kNoRank;
  };
  void note(const Record& record);
  void charge(Micros begun_us, Micros ended_us);
  void forget_old();

  // The marked pushes of an iteration, as long as some are to come.
  static constexpr std::size_t kRoundsMax = 64;
  struct Exchange {
    Micros us = 0;
    std::int64_t rank = kNoRank;
  };
  using Rounds = std::map<Iteration, std::vector<Exchange>>;
  void add_exchange(const Record& record);
  void charge_round(const std::vector<Exchange>& round);
  Stragglers with_open_rounds() const;

  Micros since_us_;
  std::deque<Event> events_;  // pushes that counted, leaves and losses; times never decrease
  std::size_t forget_at_ = 4096;
  std::map<std::int64_t, Micros> last_us_;  // of each present worker's latest record
  struct Share {
    StragglerShare sum;
    Micros last_moment_us = -1;
  };
  std::map<std::int64_t, Share> shares_;
  Micros lost_us_ = 0;
  Micros other_us_ = 0;
  Micros computed_us_ = 0;
  Micros exchange_us_ = 0;
  Rounds rounds_;
};

// A stretch of iterations in which a worker was slower than is usual for it.
struct SlowEpisode {
  std::int64_t rank = 0;
  Iteration from = 0;
  std::optional<Iteration> to;  // the last one; empty: it has not recovered
  double factor = 0;            // how many times longer its iterations took, when that was noticed
};

// Finds them in the pushes of a job, in the order of its history (StragglerDetector).
class SlowEpisodes {
 public:
  void add(std::int64_t rank, Iteration iteration, Micros span_us);
  // In the order in which they were noticed.
  const std::vector<SlowEpisode>& found() const { return found_; }

 private:
  StragglerDetector detector_;
  std::map<std::int64_t, StragglerDetector::Track> tracks_;
  std::vector<SlowEpisode> found_;
  std::map<std::int64_t, std::size_t> open_;  // of found_, by rank
};

}  // namespace syncd::ctl
