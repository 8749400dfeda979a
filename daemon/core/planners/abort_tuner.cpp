// See abort_tuner.h.
#include "daemon/core/planners/abort_tuner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

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
  std::span<const std::size_t> own_of(std::size_t worker) const {
    return std::span(own).subspan(own_begin[worker], own_begin[worker + 1] - own_begin[worker]);
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
  for (const std::size_t own : log.own_of(worker)) {
    if (own < first) continue;
    if (own >= last) break;
    try_run(begin, own);
    begin = own + 1;
    ++own_so_far;
  }
  try_run(begin, last);
  return best;
}

// ---- scope job ---------------------------------------------------------------------------------

// Times within the same 2^shift microseconds.
struct Group {
  std::int64_t place = 0;
  double count = 0;
};

std::vector<Group> grouped(std::span<const Micros> ascending, unsigned shift) {
  std::vector<Group> groups;
  for (const Micros time : ascending) {
    const std::int64_t place = time >> shift;
    if (groups.empty() || groups.back().place != place) groups.push_back({place, 0});
    ++groups.back().count;
  }
  return groups;
}

// The differences between pushes and pulls within (0, cap], counted by size in bins of equal width.
// Bins lie in blocks. Groups of pushes and pulls tell roughly how many differences each block has,
// so that only those in blocks where the best can be are counted one by one.
class JobSearch {
 public:
  JobSearch(std::span<const WorkerSpan> workers, const Log& log, Micros cap,
            const ExactSlope& slope);
  Choice best();

 private:
  static constexpr unsigned kBinBits = 15;            // 2^15 counters fit the second-level cache
  static constexpr unsigned kBlockBits = 5;           // 2^5 bins are a block
  static constexpr std::int64_t kAtOnce = 4'000'000;  // differences sorted at a time: 64 MB

  // visit(difference) for all within (low, high].
  template <class Visit>
  void each_difference(Micros low, Micros high, Visit&& visit) const;
  std::int64_t count_within(std::size_t i, Micros low, Micros high) const;
  std::size_t bin(Micros difference) const {
    return static_cast<std::size_t>(difference >> shift_);
  }
  Micros first_of(std::size_t b) const { return static_cast<Micros>(b) << shift_; }
  double loss(Micros time) const { return slope_.value() * static_cast<double>(time); }
  // Rounding errors of both sides of a comparison, generously.
  double doubt(double count) const { return 4 * slope_.relative_error() * (count + loss(cap_)); }
  std::vector<bool> hopeful_blocks() const;
  void count(const std::vector<bool>& blocks);
  void find_hopeful(const std::vector<bool>& blocks);
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

// Of pushes by others than worker i.
std::int64_t JobSearch::count_within(std::size_t i, Micros low, Micros high) const {
  const std::size_t begin = log_.after(workers_[i].pull + low);
  const std::size_t end = log_.after(workers_[i].pull + high);
  const auto own = log_.own_of(i);
  const auto own_until = [&](std::size_t j) { return std::lower_bound(own.begin(), own.end(), j); };
  return static_cast<std::int64_t>(end - begin) - (own_until(end) - own_until(begin));
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

// A push's group and a pull's that are k apart have differences from k - 1 to k + 1 blocks.
std::vector<bool> JobSearch::hopeful_blocks() const {
  const unsigned shift = shift_ + kBlockBits;
  std::vector<Micros> pulls;
  for (const WorkerSpan& worker : workers_) pulls.push_back(worker.pull);
  std::sort(pulls.begin(), pulls.end());
  const std::vector<Group> pushed = grouped(log_.times, shift);
  std::vector<double> apart(static_cast<std::size_t>(cap_ >> shift) + 2);
  std::size_t first = 0;
  for (const Group& pulled : grouped(pulls, shift)) {
    while (first < pushed.size() && pushed[first].place < pulled.place) ++first;
    for (std::size_t j = first; j < pushed.size(); ++j) {
      const auto distance = static_cast<std::size_t>(pushed[j].place - pulled.place);
      if (distance >= apart.size()) break;
      apart[distance] += pulled.count * pushed[j].count;
    }
  }
  const double all = std::accumulate(apart.begin(), apart.end(), 0.0);
  // Certainly reached at the end of a block. Within one group a push may come before the pull.
  double certain = 0;  // no F > 0 is no choice at all
  double reached = 0;
  for (std::size_t j = 0; j < log_.workers.size(); ++j) {
    if (log_.workers[j] == kNoWorker) continue;
    const Micros own = log_.times[j] - workers_[log_.workers[j]].pull;
    if (own > 0 && own <= cap_) --reached;
  }
  for (std::size_t block = 1; block + 2 < apart.size(); ++block) {
    reached += apart[block];
    certain = std::max(certain, reached - loss(static_cast<Micros>(block + 1) << shift));
  }
  std::vector<bool> hopeful(apart.size() - 1);
  double most = apart[0];
  for (std::size_t block = 0; block < hopeful.size(); ++block) {
    most += apart[block + 1];
    hopeful[block] = most - loss(static_cast<Micros>(block) << shift) >= certain - doubt(all);
  }
  return hopeful;
}

// Those before each bin of a hopeful block, and in it. The ones between such blocks are counted
// where the next one begins.
void JobSearch::count(const std::vector<bool>& blocks) {
  const auto bins_until = [&](std::size_t block) {
    return std::min(block << kBlockBits, before_.size() - 1);
  };
  Micros done = 0;  // all up to this difference are counted
  for (std::size_t block = 0; block < blocks.size(); ++block) {
    if (!blocks[block]) continue;
    const std::size_t first = bins_until(block);
    while (block < blocks.size() && blocks[block]) ++block;
    const Micros low = std::max<Micros>(first_of(first) - 1, 0);
    const Micros high = std::min(cap_, first_of(bins_until(block)) - 1);
    each_difference(low, high, [&](Micros difference) { ++before_[bin(difference) + 1]; });
    for (std::size_t i = 0; i < workers_.size(); ++i) before_[first] += count_within(i, done, low);
    done = high;
  }
  for (std::size_t b = 1; b < before_.size(); ++b) before_[b] += before_[b - 1];
}

// Marks the bins that may hold the best difference. A bin's last count at its end is certainly
// reached by one of its differences, so no bin that cannot do better than the greatest of these
// can. None of its differences can give more than its last count at its first time.
void JobSearch::find_hopeful(const std::vector<bool>& blocks) {
  const std::size_t bins = before_.size() - 1;
  hopeful_.assign(bins, false);
  double certain = 0;  // no F > 0 is no choice at all
  for (std::size_t b = 0; b < bins; ++b) {
    if (before_[b + 1] == before_[b] || !blocks[b >> kBlockBits]) continue;
    const Micros end = std::min(cap_, first_of(b + 1) - 1);
    certain = std::max(certain, static_cast<double>(before_[b + 1]) - loss(end));
  }
  const double least = certain - doubt(static_cast<double>(before_.back()));
  for (std::size_t b = 0; b < bins; ++b) {
    const double most =
        static_cast<double>(before_[b + 1]) - loss(std::max<Micros>(1, first_of(b)));
    hopeful_[b] = blocks[b >> kBlockBits] && before_[b + 1] > before_[b] && most >= least;
  }
}

// Sorts the differences in the hopeful bins of a range and goes through them.
void JobSearch::search(std::size_t first_bin, std::size_t last_bin, std::int64_t expected) {
  std::vector<std::uint64_t> differences;
  differences.reserve(static_cast<std::size_t>(expected));
  const Micros low = first_of(first_bin) - 1;
  const Micros high = std::min(cap_, first_of(last_bin + 1) - 1);
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
  const std::vector<bool> blocks = hopeful_blocks();
  count(blocks);
  find_hopeful(blocks);
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
