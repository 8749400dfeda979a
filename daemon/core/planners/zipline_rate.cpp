// The objective `rate`: the least share of the superstep spent waiting, all workers together. One
// sweep over the ends in the order of time with a running sum of everybody's latest end.
#include <utility>

#include "daemon/core/planners/wide_integer.h"
#include "daemon/core/planners/zipline_parts.h"

namespace syncd::planners {
namespace {

// How far apart the workers' counts of iterations are, while each event raises one count by 1. The
// lowest count never rises beyond where the worker that began lowest can get, so that a table of so
// many counts is enough; those above it need not be told apart.
class Spread {
 public:
  Spread(std::vector<std::int64_t> counts, std::size_t steps_max) : counts_(std::move(counts)) {
    lowest_ = *std::min_element(counts_.begin(), counts_.end());
    highest_ = *std::max_element(counts_.begin(), counts_.end());
    base_ = lowest_;
    at_.resize(steps_max + 2);
    for (const std::int64_t count : counts_) add(count, 1);
  }
  void raise(std::uint32_t worker) {
    add(counts_[worker], -1);
    add(++counts_[worker], 1);
    highest_ = std::max(highest_, counts_[worker]);
    while (at_[static_cast<std::size_t>(lowest_ - base_)] == 0) ++lowest_;
  }
  std::int64_t width() const { return highest_ - lowest_; }

 private:
  void add(std::int64_t count, int change) {
    const auto slot = static_cast<std::uint64_t>(count - base_);
    if (slot < at_.size()) at_[slot] += change;
  }

  std::vector<std::int64_t> counts_;
  std::vector<std::int64_t> at_;  // workers with the count base_ + i
  std::int64_t base_ = 0;
  std::int64_t lowest_ = 0;
  std::int64_t highest_ = 0;
};

// The sweep's state between two moments.
class RateSweep {
 public:
  RateSweep(std::size_t workers, const ZiplineOptions& options, std::int64_t beta,
            std::size_t longest)
      : options_(options),
        beta_(beta),
        latest_(workers),
        missing_(workers),
        spread_(options.done.empty()
                    ? std::vector<std::int64_t>(workers)
                    : std::vector<std::int64_t>(options.done.begin(), options.done.end()),
                longest) {}

  void go_through(const TimeOrder& order) {
    order.each([this](Micros time, std::uint32_t worker) { take(time, worker); });
    judge();
  }
  std::optional<Micros> best() const { return best_; }

 private:
  // Everything at the present moment is in: is it the best so far?
  void judge() {
    if (missing_ > 0 || now_ <= options_.previous_barrier || spread_.width() > beta_) return;
    const Micros length = now_ - options_.previous_barrier;
    // Shares are compared by cross-multiplying: both factors have less than 63 bits.
    if (best_ && Wide{waits_} * best_length_ >= Wide{best_waits_} * length) return;
    best_ = now_;
    best_waits_ = waits_;
    best_length_ = length;
  }

  void take(Micros time, std::uint32_t worker) {
    if (time != now_ || !any_) {
      if (any_) judge();
      // Those that have ended once wait for the time that has passed.
      const auto ended = static_cast<Micros>(latest_.size() - missing_);
      if (any_) waits_ += (time - now_) * ended;
      now_ = time;
      any_ = true;
    }
    std::optional<Micros>& latest = latest_[worker];
    if (latest) {
      waits_ -= time - *latest;
    } else {
      --missing_;
    }
    latest = time;
    spread_.raise(worker);
  }

  const ZiplineOptions& options_;
  std::int64_t beta_;
  std::vector<std::optional<Micros>> latest_;
  std::size_t missing_;
  Spread spread_;
  Micros now_ = 0;
  bool any_ = false;
  Micros waits_ = 0;  // sum over workers of now - latest
  std::optional<Micros> best_;
  Micros best_waits_ = 0;
  Micros best_length_ = 1;
};

}  // namespace

template <class Rows>
std::optional<Barrier> best_rate(const Rows& rows, const ZiplineOptions& options) {
  std::size_t longest = 0;
  for (std::size_t p = 0; p < rows.workers(); ++p) longest = std::max(longest, rows.length(p));
  const std::int64_t beta = options.beta.value_or(static_cast<std::int64_t>(longest));
  RateSweep sweep(rows.workers(), options, beta, longest);
  sweep.go_through(TimeOrder(rows));
  if (!sweep.best()) return std::nullopt;
  Micros earliest = *sweep.best();
  for (std::size_t p = 0; p < rows.workers(); ++p) {
    earliest = std::min(earliest, rows.end(p, rows.count_until(p, *sweep.best()) - 1));
  }
  return Barrier{*sweep.best(), *sweep.best() - earliest};
}

template std::optional<Barrier> best_rate(const MatrixRows&, const ZiplineOptions&);
template std::optional<Barrier> best_rate(const ProgressionRows&, const ZiplineOptions&);

}  // namespace syncd::planners
