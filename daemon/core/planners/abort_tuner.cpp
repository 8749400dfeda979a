// See abort_tuner.h.
#include "daemon/core/planners/abort_tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "daemon/core/planners/exact_slope.h"
#include "daemon/core/planners/push_hulls.h"
#include "daemon/core/planners/radix_sort.h"
#include "daemon/core/planners/time_max.h"
#include "daemon/core/planners/wide_integer.h"

namespace syncd::planners {
namespace {

bool check(std::span<const WorkerSpan> workers, std::span<const LoggedPush> pushes,
           const TuningOptions& options, std::string& error) {
  const auto out_of_range = [](Micros time) { return time < -kTimeMax || time > kTimeMax; };
  if (workers.empty() || workers.size() >= kNoWorker || pushes.size() >= UINT32_MAX) {
    error = std::to_string(workers.size()) + " workers and " + std::to_string(pushes.size()) +
            " pushes: allowed are at least one worker and fewer than 2^32 of each";
  }
  for (std::size_t i = 0; i < workers.size() && error.empty(); ++i) {
    const std::string who = "worker " + std::to_string(i);
    if (workers[i].span < 1 || workers[i].span > kTimeMax) {
      error = who + ": span " + std::to_string(workers[i].span) + " us, allowed is 1 to 2^60";
    } else if (out_of_range(workers[i].pull)) {
      error = who + ": pull at " + std::to_string(workers[i].pull) +
              " us is out of range, allowed is -2^60 to 2^60";
    }
  }
  for (std::size_t j = 0; j < pushes.size() && error.empty(); ++j) {
    const std::string which = "push " + std::to_string(j);
    if (pushes[j].worker >= workers.size() && pushes[j].worker != kNoWorker) {
      error = which + " is by worker " + std::to_string(pushes[j].worker) + ", but there are " +
              std::to_string(workers.size()) + " workers, counted from 0";
    } else if (out_of_range(pushes[j].time)) {
      error = which + ": time " + std::to_string(pushes[j].time) +
              " us is out of range, allowed is -2^60 to 2^60";
    }
  }
  if (error.empty() && options.cap_rule == AbortCap::kExplicit && options.cap < 1) {
    error = "cap is " + std::to_string(options.cap) + " us, allowed is 1 or more";
  }
  return error.empty();
}

// The longest abort time for a worker (or a job whose shortest span is) of this span.
Micros cap_for(Micros span, Micros longest_span, std::size_t workers,
               const TuningOptions& options) {
  if (options.cap_rule == AbortCap::kExplicit) return std::min(options.cap, 2 * kTimeMax);
  Micros cap = span - 1;
  if (options.cap_rule == AbortCap::kAuthors) {
    const auto m = static_cast<double>(workers);
    const double share = std::sqrt(2 * (m * m + 1)) / (m + 1) - 1;
    cap = std::min(cap, static_cast<Micros>(share * static_cast<double>(longest_span)));
  }
  return cap;
}

// The log in the order of time, in arrays that are quick to go through.
struct Log {
  std::vector<Micros> times;
  std::vector<std::uint32_t> workers;
  std::vector<std::size_t> own;        // where each worker's own pushes are, worker after worker
  std::vector<std::size_t> own_begin;  // and where each one's begin

  Log(std::size_t worker_count, std::span<const LoggedPush> pushes);

  std::size_t after(Micros time) const {
    return static_cast<std::size_t>(std::upper_bound(times.begin(), times.end(), time) -
                                    times.begin());
  }
};

Log::Log(std::size_t worker_count, std::span<const LoggedPush> pushes) {
  std::vector<LoggedPush> sorted(pushes.begin(), pushes.end());
  const auto earlier = [](const LoggedPush& a, const LoggedPush& b) { return a.time < b.time; };
  if (!std::is_sorted(sorted.begin(), sorted.end(), earlier)) {
    std::stable_sort(sorted.begin(), sorted.end(), earlier);
  }
  times.reserve(sorted.size());
  workers.reserve(sorted.size());
  own_begin.resize(worker_count + 1);
  for (const LoggedPush& push : sorted) {
    times.push_back(push.time);
    workers.push_back(push.worker);
    if (push.worker != kNoWorker) ++own_begin[push.worker + 1];
  }
  for (std::size_t i = 1; i <= worker_count; ++i) own_begin[i] += own_begin[i - 1];
  own.resize(own_begin.back());
  std::vector<std::size_t> next(own_begin.begin(), own_begin.end() - 1);
  for (std::size_t j = 0; j < workers.size(); ++j) {
    if (workers[j] != kNoWorker) own[next[workers[j]]++] = j;
  }
}

// ---- scope worker ------------------------------------------------------------------------------

struct Choice {
  Micros time = 0;         // 0: none
  std::int64_t count = 0;  // pushes by others until then
};

// The best D of one worker. Its own pushes cut the log into runs in which the number of pushes by
// others grows by one from each to the next.
Choice best_for_worker(const Log& log, const PushHulls& hulls, std::size_t worker,
                       const WorkerSpan& span, Micros cap, std::uint32_t others) {
  const std::size_t first = log.after(span.pull);
  const std::size_t last = log.after(span.pull + cap);
  Choice best;
  // F * span, of integers: F(D) > F(E) if and only if this is greater.
  const auto value = [&](const Choice& c) {
    return Wide{c.count} * span.span - Wide{c.time} * others;
  };
  std::int64_t own_so_far = 0;
  const auto try_run = [&](std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    const std::size_t k = hulls.best(begin, end, span.span, others);
    const Choice here{log.times[k] - span.pull,
                      static_cast<std::int64_t>(k - first + 1) - own_so_far};
    if (value(here) > value(best)) best = here;
  };
  std::size_t begin = first;
  const auto own_end = log.own.begin() + static_cast<std::ptrdiff_t>(log.own_begin[worker + 1]);
  auto own = std::lower_bound(log.own.begin() + static_cast<std::ptrdiff_t>(log.own_begin[worker]),
                              own_end, first);
  for (; own != own_end && *own < last; ++own) {
    try_run(begin, *own);
    begin = *own + 1;
    ++own_so_far;
  }
  try_run(begin, last);
  return best;
}

// ---- scope job ---------------------------------------------------------------------------------

// The differences between pushes and pulls within (0, cap], counted by size in bins of equal width.
class JobSearch {
 public:
  JobSearch(std::span<const WorkerSpan> workers, const Log& log, Micros cap,
            const ExactSlope& slope);
  Choice best();

 private:
  static constexpr unsigned kBinBits = 15;            // 2^15 counters fit the second-level cache
  static constexpr std::int64_t kAtOnce = 4'000'000;  // differences sorted at a time: 64 MB

  // visit(difference) for all within (low, high].
  template <class Visit>
  void each_difference(Micros low, Micros high, Visit&& visit) const;
  std::size_t bin(Micros difference) const {
    return static_cast<std::size_t>(difference >> shift_);
  }
  double upper_bound(std::size_t b) const;
  void find_hopeful();
  void search(std::size_t first_bin, std::size_t last_bin, std::int64_t expected);

  std::span<const WorkerSpan> workers_;
  const Log& log_;
  Micros cap_;
  const ExactSlope& slope_;
  unsigned shift_ = 0;
  std::vector<std::int64_t> before_;  // differences in all bins before this one
  std::vector<bool> hopeful_;
  Choice best_;
};

JobSearch::JobSearch(std::span<const WorkerSpan> workers, const Log& log, Micros cap,
                     const ExactSlope& slope)
    : workers_(workers), log_(log), cap_(cap), slope_(slope) {
  while ((cap_ >> shift_) >> kBinBits != 0) ++shift_;
  before_.resize(bin(cap_) + 2);
}

template <class Visit>
void JobSearch::each_difference(Micros low, Micros high, Visit&& visit) const {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const Micros pull = workers_[i].pull;
    for (std::size_t j = log_.after(pull + low); j < log_.times.size(); ++j) {
      const Micros difference = log_.times[j] - pull;
      if (difference > high) break;
      if (log_.workers[j] != i) visit(difference);
    }
  }
}

// No difference in the bin can give more than its last count at its first time.
double JobSearch::upper_bound(std::size_t b) const {
  const auto start = static_cast<double>(std::max<Micros>(1, static_cast<Micros>(b) << shift_));
  return static_cast<double>(before_[b + 1]) - slope_.value() * start;
}

// Marks the bins that may hold the best difference. A bin's last count at its end is certainly
// reached by one of its differences, so no bin that cannot do better than the greatest of these
// can.
void JobSearch::find_hopeful() {
  const std::size_t bins = before_.size() - 1;
  hopeful_.assign(bins, false);
  double certain = 0;  // no F > 0 is no choice at all
  for (std::size_t b = 0; b < bins; ++b) {
    if (before_[b + 1] == before_[b]) continue;
    const Micros end = std::min(cap_, (static_cast<Micros>(b + 1) << shift_) - 1);
    certain = std::max(
        certain, static_cast<double>(before_[b + 1]) - slope_.value() * static_cast<double>(end));
  }
  // Rounding errors of both sides, generously.
  const double doubt =
      4 * slope_.relative_error() *
      (static_cast<double>(before_.back()) + slope_.value() * static_cast<double>(cap_));
  for (std::size_t b = 0; b < bins; ++b) {
    hopeful_[b] = before_[b + 1] > before_[b] && upper_bound(b) >= certain - doubt;
  }
}

// Sorts the differences in the hopeful bins of a range and goes through them.
void JobSearch::search(std::size_t first_bin, std::size_t last_bin, std::int64_t expected) {
  std::vector<std::uint64_t> differences;
  differences.reserve(static_cast<std::size_t>(expected));
  const Micros low = (static_cast<Micros>(first_bin) << shift_) - 1;
  const Micros high = std::min(cap_, (static_cast<Micros>(last_bin + 1) << shift_) - 1);
  each_difference(std::max<Micros>(low, 0), high, [&](Micros difference) {
    if (hopeful_[bin(difference)]) differences.push_back(static_cast<std::uint64_t>(difference));
  });
  radix_sort(differences, 0,
             static_cast<unsigned>(std::bit_width(static_cast<std::uint64_t>(high))));
  std::size_t bin_begin = 0;
  for (std::size_t j = 0; j < differences.size(); ++j) {
    const auto time = static_cast<Micros>(differences[j]);
    const std::size_t here = bin(time);
    if (j > 0 && bin(static_cast<Micros>(differences[j - 1])) != here) bin_begin = j;
    if (j + 1 < differences.size() && differences[j + 1] == differences[j]) continue;
    const Choice choice{time, before_[here] + static_cast<std::int64_t>(j - bin_begin + 1)};
    if (slope_.compare(choice.count - best_.count, choice.time - best_.time) > 0) best_ = choice;
  }
}

Choice JobSearch::best() {
  each_difference(0, cap_, [&](Micros difference) { ++before_[bin(difference) + 1]; });
  for (std::size_t b = 1; b < before_.size(); ++b) before_[b] += before_[b - 1];
  find_hopeful();
  std::int64_t expected = 0;
  std::size_t first_bin = 0;
  for (std::size_t b = 0; b < hopeful_.size(); ++b) {
    if (!hopeful_[b]) continue;
    if (expected == 0) first_bin = b;
    expected += before_[b + 1] - before_[b];
    const bool more = std::find(hopeful_.begin() + static_cast<std::ptrdiff_t>(b) + 1,
                                hopeful_.end(), true) != hopeful_.end();
    if (more && expected < kAtOnce) continue;
    search(first_bin, b, expected);
    expected = 0;
  }
  return best_;
}

// ------------------------------------------------------------------------------------------------

double rate_of(Micros time, const WorkerSpan& worker, std::size_t workers) {
  const auto m = static_cast<double>(workers);
  return static_cast<double>(time) * (m - 1) / (static_cast<double>(worker.span) * m);
}

}  // namespace

std::optional<Tuning> tune_abort(std::span<const WorkerSpan> workers,
                                 std::span<const LoggedPush> pushes, const TuningOptions& options,
                                 std::string& error) {
  error.clear();
  if (!check(workers, pushes, options, error)) return std::nullopt;
  const auto others = static_cast<std::uint32_t>(workers.size() - 1);
  const Log log(workers.size(), pushes);
  std::vector<Micros> spans;
  spans.reserve(workers.size());
  for (const WorkerSpan& worker : workers) spans.push_back(worker.span);
  const auto [shortest, longest] = std::minmax_element(spans.begin(), spans.end());

  Tuning tuning;
  tuning.abort_time.resize(workers.size());
  tuning.abort_rate.resize(workers.size());
  if (options.scope == TuningScope::kJob) {
    const ExactSlope slope(others, spans);
    const Micros cap = cap_for(*shortest, *longest, workers.size(), options);
    const Choice choice = JobSearch(workers, log, cap, slope).best();
    std::fill(tuning.abort_time.begin(), tuning.abort_time.end(), choice.time);
    tuning.improvement =
        static_cast<double>(choice.count) - slope.value() * static_cast<double>(choice.time);
  } else {
    const PushHulls hulls(log.times);
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const Micros cap = cap_for(workers[i].span, *longest, workers.size(), options);
      const Choice choice = best_for_worker(log, hulls, i, workers[i], cap, others);
      tuning.abort_time[i] = choice.time;
      tuning.improvement +=
          static_cast<double>(choice.count) -
          static_cast<double>(choice.time) * others / static_cast<double>(workers[i].span);
    }
  }
  for (std::size_t i = 0; i < workers.size(); ++i) {
    tuning.abort_rate[i] = rate_of(tuning.abort_time[i], workers[i], workers.size());
    tuning.off = tuning.off && tuning.abort_time[i] == 0;
  }
  return tuning;
}

}  // namespace syncd::planners
