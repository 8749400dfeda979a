// What the engine counts of a job while it runs, for whoever draws curves of it. Kept where the
// events happen, in O(1) each; never persisted, so that a restart begins anew, as counters may.
// Nothing decides anything by them. Plain data, no thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "daemon/core/engine/types.h"

namespace syncd {

// Numbers by size: how many were at most each bound, beside their count and sum.
template <std::size_t Bounds>
struct Histogram {
  std::array<std::uint64_t, Bounds + 1> counts{};  // the last: above every bound
  std::int64_t sum = 0;

  // `bounds` rise; O(log Bounds).
  void add(std::int64_t value, const std::array<std::int64_t, Bounds>& bounds) {
    sum += value;
    if (value <= bounds[0]) {
      ++counts[0];
      return;
    }
    const auto at = std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
    ++counts[static_cast<std::size_t>(at)];
  }
  std::uint64_t count() const {
    std::uint64_t all = 0;
    for (const std::uint64_t one : counts) all += one;
    return all;
  }
};

// Spans of time, in microseconds: from a grant at once to a barrier that nobody waits for any more.
inline constexpr std::array<Micros, 13> kSpanBounds = {
    100,       1'000,     5'000,      10'000,     50'000,      100'000,    500'000,
    1'000'000, 5'000'000, 10'000'000, 30'000'000, 120'000'000, 600'000'000};
struct SpanHistogram : Histogram<kSpanBounds.size()> {
  void add(Micros span) { Histogram::add(std::max<Micros>(0, span), kSpanBounds); }
};

struct JobCounters {
  std::uint64_t grants = 0;
  std::uint64_t resyncs = 0;     // advice to drop work and pull again
  std::uint64_t restarts = 0;    // of which so many were followed
  Micros wasted_us = 0;          // computed and dropped by them
  std::uint64_t duplicates = 0;  // pushes that had been counted before
  std::uint64_t late = 0;        // pushes that came too late to count
  std::uint64_t joins = 0;       // also of workers that come back in a new life
  std::uint64_t reconnects = 0;  // workers that came back over a new connection
  std::uint64_t left = 0;
  std::uint64_t lost = 0;
  std::uint64_t hangs = 0;  // workers waited for longer than hang_after, once a hang
  std::uint64_t checkpoints_asked = 0;
  std::uint64_t checkpoints_complete = 0;
  std::uint64_t checkpoints_incomplete = 0;                 // that were given up
  std::uint64_t views = 0;                                  // that were granted; rounds, too
  std::array<std::uint64_t, kRoundBreaks> rounds_broken{};  // by RoundBreak, once a round
  std::uint64_t stragglers = 0;  // verdicts that a worker has become slower than the others
  // Of pushes: until the worker's mark, or the push if it does not mark that; and after its mark.
  Micros computed_us = 0;
  Micros exchange_us = 0;
  SpanHistogram begin_wait;    // from the begin to its grant
  SpanHistogram barrier_wait;  // of those, the ones that ended with a barrier
  SpanHistogram plan_error;    // between a planned barrier and the real one, either way
};

// A job as its curves show it.
struct JobFigures {
  JobId id = 0;
  std::string name;
  std::string policy;
  JobState state = JobState::kWaiting;
  Epoch epoch = 0;
  std::uint32_t expected = 0;
  // By WorkerState, members alone.
  std::array<std::uint32_t, 4> members{};
  std::uint32_t waiting = 0;     // in any call
  std::uint32_t stragglers = 0;  // now
  bool has_clocks = false;       // some worker is active: what follows means something
  Clock clock_min = 0;
  Clock clock_max = 0;
  Clock lag = 0;            // of the relative clocks, which is what policies bound
  bool has_rounds = false;  // its workers form rounds
  RoundFigures rounds;
  std::uint64_t pushes = 0;
  std::uint64_t barriers = 0;
  Micros checkpoint_open_us = -1;      // since when one is open; -1: none is
  Micros checkpoint_complete_us = -1;  // when the latest was complete; -1: none was
  JobCounters counters;
};

}  // namespace syncd
