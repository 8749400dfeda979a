// ZipLine: picks one predicted end of an iteration per worker so that the picked ends lie as close
// together as possible, which is when a barrier costs the fastest worker least waiting (Zhao et
// al., "ElasticBSP", sections 4 and 5). Pure functions over plain arrays; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/types.h"
#include "daemon/core/planners/names.h"
#include "daemon/core/planners/time_max.h"

namespace syncd::planners {

// A plan looks at no more than so many end times.
inline constexpr std::uint64_t kEndsMax = std::uint64_t{1} << 28;

// The paper's matrix of predicted end times: a row per worker, ascending. Rows may differ in
// length.
class EndTimes {
 public:
  void add_row(std::span<const Micros> ends);
  void reserve(std::size_t workers, std::size_t ends);
  std::size_t workers() const { return begins_.size() - 1; }
  std::size_t size() const { return times_.size(); }
  std::span<const Micros> row(std::size_t worker) const {
    return {times_.data() + begins_[worker], times_.data() + begins_[worker + 1]};
  }

 private:
  std::vector<Micros> times_;           // all rows, one after the other
  std::vector<std::size_t> begins_{0};  // where each row begins, and the end of the last
};

// A worker whose predicted iterations all take the same time: it ends them at first,
// first + interval, first + 2 interval, ...
struct Progression {
  Micros first = 0;
  Micros interval = 0;
};

enum class ZiplineAlgorithm : std::uint8_t {
  kAuto,           // the fastest exact one on most inputs: kZiplineGaps, or kZiplineLinked where
                   // equally fast workers end one after another as evenly as can be
  kGridScan,       // section 5.1, algorithm 1: a heuristic, may miss the optimum. O(R^2 n)
  kFullGridScan,   // section 5.1: every end in turn is the designated one. O(R n^2)
  kZipline,        // section 5.2, algorithm 2. O(R n^2)
  kZiplineOpt,     // section 5.3.1: the picked ends in time order, pruned by theorem 3. O(R n^2)
  kZiplineOptBs,   // section 5.3.2: finds the end to replace by binary search. O(R n log n) steps
                   // and up to n moved elements each
  kZiplineLinked,  // the picked ends as a linked list in time order. O(R n) after a radix sort
  kZiplineGaps,    // only iterations that lie within no other one can bound the wait: two to four
                   // passes over the ends, and a sort of the few that remain. O(R n) on average
};

template <>
inline constexpr std::string_view kNames<ZiplineAlgorithm> =
    "auto, grid_scan, full_grid_scan, zipline, zipline_opt, zipline_opt_bs, zipline_linked, "
    "zipline_gaps";

enum class ZiplineObjective : std::uint8_t {
  kMax,   // the paper's: the longest wait of this one barrier
  kRate,  // the share of the superstep that all workers together spend waiting
};
template <>
inline constexpr std::string_view kNames<ZiplineObjective> = "max, rate";

struct ZiplineOptions {
  ZiplineAlgorithm algorithm = ZiplineAlgorithm::kAuto;
  ZiplineObjective objective = ZiplineObjective::kMax;

  // For kRate alone.
  Micros previous_barrier = 0;            // ends at or before it never qualify
  std::optional<std::int64_t> beta = {};  // most iterations between any two workers; default: R
  std::span<const std::int64_t> done =
      {};  // iterations since that barrier, per worker; empty: all 0
};

struct ZiplinePlan {
  Micros sync_time = 0;                   // when the last worker arrives
  Micros wait = 0;                        // how long the first one to arrive waits for it
  std::vector<std::uint32_t> iterations;  // per worker: it stops after this many more, from 1
  ZiplineAlgorithm algorithm{};  // the one that ran (never kAuto; with kRate only if it fell back)
  ZiplineObjective objective{};  // kMax where kRate was asked for but no end qualified
};

// The plan for these ends. With latest_p(t) = worker p's last end at or before t, and for the end
// times t at which every worker has one, d(t) = t - min over p of latest_p(t): sync_time is the
// smallest t that minimises d, wait is d(sync_time), and iterations say which end latest_p is.
// Every exact algorithm gives this same answer. kRate minimises instead
//     sum over p of (t - latest_p(t)) / (n (t - previous_barrier)),
// ties to the earliest, among those t at which all workers' done + iterations differ by at most
// beta; if there is none, the answer is kMax's. Times in microseconds.
//
// Nothing, and a sentence in `error`, if there is no worker, a row is empty or not ascending, a
// time is beyond +-kTimeMax, there are more than kEndsMax ends, or an option makes no sense.
std::optional<ZiplinePlan> plan_zipline(const EndTimes& ends, const ZiplineOptions& options,
                                        std::string& error);

// The same for R ends of each progression, which most algorithms lay out first, but kZiplineGaps
// never does. Intervals are not negative.
std::optional<ZiplinePlan> plan_zipline(std::span<const Progression> workers, std::uint32_t r,
                                        const ZiplineOptions& options, std::string& error);

// The first R ends of each progression as a matrix; errors as above. O(R n).
std::optional<EndTimes> make_ends(std::span<const Progression> workers, std::uint32_t r,
                                  std::string& error);

}  // namespace syncd::planners
