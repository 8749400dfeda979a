// Why a request is not granted yet: the rule, its numbers, and the workers waited for (invariant
// I7). The engine fills it, the wire carries it, the client and syncctl show it. Plain data, no
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace syncd {

// One worker that others wait for. Ages are measured at the moment the explanation was made.
struct WaitedFor {
  std::uint32_t rank = 0;
  std::string name;
  std::string host;
  std::int64_t clock = 0;  // iterations completed (decentralized: the iteration it is in)
  std::int64_t last_push_age_us = -1;  // -1: it has not pushed yet
  std::string state;                   // "in iteration 8 for 41.2 s", "disconnected 3.2 s ago", ...

  bool operator==(const WaitedFor&) const = default;
};

struct Explanation {
  std::string rule;                    // the policy string, or "start" while the job has not begun
  std::string text;                    // the rule's own numbers, as a sentence without a final stop
  std::int64_t iteration = -1;         // the iteration asked for; -1: the worker is not waiting
  std::int64_t waiting_us = 0;         // how long the request has been standing
  std::uint32_t waited_for_count = 0;  // all workers waited for, also those not listed below
  std::string ranks;                   // all of them, range-compressed: "4, 23, 40-47"
  std::vector<WaitedFor> workers;  // the first of them in rank order, at most kExplainedWorkersMax

  bool operator==(const Explanation&) const = default;
};

// How many workers an explanation describes one by one; all of them appear in `ranks`.
inline constexpr std::size_t kExplainedWorkersMax = 8;

// Ranks from first to last.
struct RankRange {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  bool operator==(const RankRange&) const = default;
};

// How many ranges of ranks a text names.
inline constexpr std::size_t kRangesShownMax = 32;

// "4, 23, 40-47" for sorted, distinct ranks; at most `ranges_max` ranges, then ", and N more".
std::string compress_ranks(const std::vector<std::uint32_t>& ranks,
                           std::size_t ranges_max = kRangesShownMax);
// The same of ranges that do not touch, the first of `count` ranks in all.
std::string compress_ranges(const std::vector<RankRange>& shown, std::size_t count);

// "41.2 s", "350 ms", "2 h 5 min": a duration for people.
std::string format_duration(std::int64_t us);

// The whole as one sentence for people, such as "ssp:3: relative clock 12 is 4 ahead of the slowest
// (8), allowed 3; waiting for worker 7 (node-b, clock 8, last push 41.2 s ago)".
std::string to_text(const Explanation& explanation);

}  // namespace syncd
