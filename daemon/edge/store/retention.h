// How much of a job's history is kept. Pure functions over numbers; any thread.
//
// Only what a snapshot stands for may go, so a job's history is cut right after one of its marks: a
// mark is made with every snapshot and says when that was, and how large the history was then. What
// follows the latest snapshot stays, however old or large.
#pragma once

#include <cstdint>
#include <deque>

#include "daemon/core/engine/types.h"

namespace syncd::store {

struct RetentionRules {
  Micros keep_us = 0;            // 0: for ever
  std::uint64_t keep_bytes = 0;  // of each job; 0: any number
  bool any() const { return keep_us > 0 || keep_bytes > 0; }
};

struct Mark {
  Sequence sequence = 0;    // of the record that the snapshot stands at
  Micros time_us = 0;       // no earlier record is younger
  std::uint64_t bytes = 0;  // of all the job's records up to that one, also of removed ones
};

// One job's history.
struct Extent {
  Sequence first = 1;               // the first record that is there
  std::uint64_t removed_bytes = 0;  // of those before
  std::uint64_t bytes = 0;          // of all, also of removed ones
  Micros last_us = 0;               // the time of the latest record
  bool stopped = false;             // no record will follow
  Epoch epoch = 0;                  // the job's latest
  std::deque<Mark> marks;           // sequences rise
};

// The first record to be kept: `extent.first`, or the one after a mark. The oldest go first. By age
// go those up to the latest mark that is older than rules.keep_us; by size as many as it takes for
// the rest to fit rules.keep_bytes, or all that may go. O(marks).
Sequence first_to_keep(const Extent& extent, const RetentionRules& rules, Micros now_us);

// Whether a job that has ended is so old that nothing of it need be kept.
bool is_outdated(const Extent& extent, const RetentionRules& rules, Micros now_us);

}  // namespace syncd::store
