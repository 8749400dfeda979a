// The objective `rate`: the least share of the superstep spent waiting, all workers together. One
// sweep over the ends in the order of time with a running sum of everybody's latest end.
#include <map>
#include <utility>

#include "daemon/core/planners/wide_integer.h"
#include "daemon/core/planners/zipline_parts.h"

namespace syncd::planners {
namespace {

// How far apart the workers' counts of iterations are, while each event raises one count by 1.
class Spread {
 public:
  explicit Spread(std::vector<std::int64_t> counts) : counts_(std::move(counts)) {
    for (const std::int64_t count : counts_) ++workers_[count];
  }
  void raise(std::uint32_t worker) {
    const auto it = workers_.find(counts_[worker]++);
    ++workers_.try_emplace(std::next(it), it->first + 1, 0)->second;
    if (--it->second == 0) workers_.erase(it);
  }
  std::int64_t width() const { return workers_.rbegin()->first - workers_.begin()->first; }

 private:
  std::vector<std::int64_t> counts_;
  std::map<std::int64_t, std::size_t> workers_;  // with each count, without zeros
};

// The sweep's state between two moments.
class RateSweep {
 public:
  RateSweep(std::size_t workers, const ZiplineOptions& options, std::int64_t beta)
      : options_(options),
        beta_(beta),
        latest_(workers),
        missing_(workers),
        spread_(options.done.empty()
                    ? std::vector<std::int64_t>(workers)
                    : std::vector<std::int64_t>(options.done.begin(), options.done.end())) {}

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
  RateSweep sweep(rows.workers(), options, beta);
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
