// SpecSync's adaptive tuning: how long a worker should wait, after a pull, to see whether enough
// others have pushed that dropping its work and pulling again is worth it (SpecSync paper, section
// IV-B and algorithm 1). Pure functions over plain arrays; any thread.
//
// Readings. Algorithm 1 has one rate for all, from the mean span, and differences between pushes;
// here each worker's term has its own span, and differences are from a pull to a push, which is
// what a timer that starts at the pull measures. Algorithm 2, line 9, compares with >= in one text
// of the paper and with > in the other, whose prose says "exceeds": it is > here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/types.h"
#include "daemon/core/planners/names.h"

namespace syncd::planners {

// A worker's last completed iteration: the pull it began with, and the time from there to its push.
struct WorkerSpan {
  Micros pull = 0;
  Micros span = 0;
};

// A push in the log. `worker` is an index into the workers, or kNoWorker for one that is there no
// more: everybody's "others" then include it.
inline constexpr std::uint32_t kNoWorker = UINT32_MAX;
struct LoggedPush {
  std::uint32_t worker = 0;
  Micros time = 0;
};

enum class TuningScope : std::uint8_t {
  kJob,     // the paper's: one abort time for all
  kWorker,  // one for each: the improvement is a sum of terms that do not depend on each other
};
template <>
inline constexpr std::string_view kNames<TuningScope> = "job, worker";

enum class AbortCap : std::uint8_t {
  kSpan,     // below the shortest span of all (kJob) or the worker's own (kWorker): a timer that is
             // longer cannot fire
  kAuthors,  // also at most (sqrt(2 (m^2 + 1)) / (m + 1) - 1) of an epoch, as in the authors'
             // program; the epoch is the longest span, within which everybody completes one
  kExplicit,  // TuningOptions::cap and nothing else
};
template <>
inline constexpr std::string_view kNames<AbortCap> = "span, authors";  // kExplicit is a number

struct TuningOptions {
  TuningScope scope = TuningScope::kJob;
  AbortCap cap_rule = AbortCap::kSpan;
  Micros cap = 0;  // with kExplicit: an abort time is at most this
};

struct Tuning {
  bool off = true;                 // no abort time improves anything: do not speculate
  std::vector<Micros> abort_time;  // per worker, 0: none. With kJob all alike
  std::vector<double> abort_rate;  // per worker: abort if more than m * rate others have pushed
  double improvement = 0;  // the paper's F at its greatest, summed over the workers; 0 if off
};

// With m workers and u_i(D) = pushes by others in (pull_i, pull_i + D], chooses the D of the
// greatest
//     F(D) = sum over i of (u_i(D) - (m - 1) / span_i * D),
// ties to the smaller D, among the positive differences between a push and the pull of another
// worker that are at most the cap; with kWorker the same for each worker's own term. If F is
// positive for none, speculation is off. abort_rate_i = D (m - 1) / (span_i m). F is compared
// exactly, not in floating point. Pushes may come in any order.
//
// kWorker: O((m + P) log^2 P) for P pushes. kJob: the differences within the cap, at most m P, are
// counted by size in one pass; those whose size could be the best are then sorted.
//
// Nothing, and a sentence in `error`, if there are no workers, a span is not within 1 and 2^60, a
// time is not within +-2^60, a push names a worker that is not there, or an explicit cap is not
// positive.
std::optional<Tuning> tune_abort(std::span<const WorkerSpan> workers,
                                 std::span<const LoggedPush> pushes, const TuningOptions& options,
                                 std::string& error);

}  // namespace syncd::planners
