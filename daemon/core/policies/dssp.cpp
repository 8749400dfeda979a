// See dssp.h.
#include "daemon/core/policies/dssp.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/core/engine/rank_map.h"
#include "daemon/core/planners/dssp_controller.h"
#include "daemon/core/policies/slowest_first.h"
#include "daemon/core/policies/waiters.h"

namespace syncd {
namespace {

// The controller looks at so many ends on the engine's loop: a tenth of a millisecond.
constexpr std::int64_t kRangeMax = 65'536;

class Dssp final : public Policy {
 public:
  Dssp(std::int64_t lower, std::int64_t upper)
      : Policy({.gap_bound = upper}), lower_(lower), upper_(upper) {}

  std::string name() const override { return fmt::format("dssp:{}-{}", lower_, upper_); }

  bool keeps_clock(const PolicyHost& host, Clock q) const override {
    if (host.clocks().empty()) return true;
    return host.clocks().max() - q <= upper_ && q - host.clocks().min() <= upper_ + 1;
  }
  void on_enter(PolicyHost& host, Rank rank) override {
    note_clock(host, rank);
    at(rank).extra = 0;
    release(host);
  }
  void on_return(PolicyHost& host, Rank rank) override { on_enter(host, rank); }
  void on_exit(PolicyHost& host, Rank rank) override {
    build_order(host);
    order_.remove(rank);
    at(rank).extra = 0;
    waiters_.remove(rank);
    release(host);
  }

  void on_begin(PolicyHost& host, Rank rank) override {
    const Clock q = host.worker(rank).relative();
    const std::int64_t gap = q - host.clocks().min();
    if (at(rank).extra > 0 && gap <= upper_) {
      --at(rank).extra;
      host.grant(rank, {});
    } else if (gap <= lower_) {
      host.grant(rank, {});
    } else if (const std::int64_t more = ask_controller(host, rank, gap); more > 0) {
      at(rank).extra = more - 1;
      host.grant(rank, {});
    } else {
      waiters_.add(rank, q - lower_, host.worker(rank).waiting->since);
    }
  }
  void on_cancel(PolicyHost&, Rank rank) override { waiters_.remove(rank); }
  void on_push(PolicyHost& host, Rank rank, bool) override {
    note_clock(host, rank);
    release(host);
  }
  void on_note(PolicyHost&, const Record&) override { ordered_ = false; }

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Clock q = host.worker(rank).relative();
    const Clock lowest = host.clocks().min();
    std::string text = fmt::format(
        "relative clock {} is {} ahead of the slowest ({}), allowed {}, with extra iterations {}: ",
        q, q - lowest, lowest, lower_, upper_);
    const Place* place = places_.find(rank);
    switch (place != nullptr ? place->refusal : Refusal::kNoGain) {
      case Refusal::kNoRoom:
        text += "none are left";
        break;
      case Refusal::kNotFastest:
        text += fmt::format("only the fastest (then at {}) get any", place->fastest);
        break;
      case Refusal::kUnknown:
        text += "none before this worker and the slowest have pushed twice";
        break;
      case Refusal::kNoGain:
        text += "by the intervals of both, more of them would not end closer to the slowest's";
        break;
    }
    return {std::move(text), host.active_below(q - lower_)};
  }

 private:
  // Why the controller gave nothing.
  enum class Refusal : std::uint8_t { kNoRoom, kNotFastest, kUnknown, kNoGain };
  struct Place {
    std::int64_t extra = 0;  // r_i: iterations granted beyond SL and not begun yet
    Refusal refusal = Refusal::kNoGain;
    Clock fastest = 0;  // the highest relative clock when the controller refused
  };

  // Valid until the next call for another rank.
  Place& at(Rank rank) { return places_.get(rank); }

  // ---- the order

  // After a restart from a snapshot nobody has entered before our eyes.
  void build_order(const PolicyHost& host) {
    if (ordered_) return;
    ordered_ = true;
    order_.clear();
    std::vector<std::pair<Micros, Rank>> oldest_first;
    for (const Rank rank : host.active()) {
      oldest_first.emplace_back(host.worker(rank).last_push_us, rank);
    }
    std::sort(oldest_first.begin(), oldest_first.end());
    for (const auto& [time, rank] : oldest_first)
      order_.put(rank, host.worker(rank).relative(), time);
  }
  void note_clock(const PolicyHost& host, Rank rank) {
    build_order(host);
    const Worker& worker = host.worker(rank);
    order_.put(rank, worker.relative(), worker.last_push_us);
  }

  // ---- decisions

  std::int64_t refuse(Rank rank, Refusal why, Clock fastest) {
    at(rank).refusal = why;
    at(rank).fastest = fastest;
    return 0;
  }

  // As if it had not waited for another in its latest exchange.
  static planners::PushTimes pushes_of(const PolicyHost& host, const Worker& worker) {
    const Micros previous = worker.previous_push_us + host.exchange_wait_us(worker);
    return {worker.last_push_us, std::min(previous, worker.last_push_us)};
  }

  // The number of iterations, this one included, that the worker may begin now.
  std::int64_t ask_controller(const PolicyHost& host, Rank rank, std::int64_t gap) {
    build_order(host);
    const Clock fastest = host.clocks().max();
    // The last of r iterations begins at a gap of at most gap + r - 1.
    const std::int64_t most = std::min(upper_ - lower_, upper_ - gap + 1);
    if (most <= 0) return refuse(rank, Refusal::kNoRoom, fastest);
    const Worker& worker = host.worker(rank);
    if (worker.relative() != fastest) return refuse(rank, Refusal::kNotFastest, fastest);
    const Worker& slowest = host.worker(order_.slowest());
    if (worker.previous_push_us < 0 || slowest.previous_push_us < 0) {
      return refuse(rank, Refusal::kUnknown, fastest);
    }
    std::string error;
    const auto extra = planners::dssp_extra_iterations(
        pushes_of(host, worker), pushes_of(host, slowest), most, host.now(), error);
    return extra && extra->extra > 0 ? extra->extra : refuse(rank, Refusal::kNoGain, fastest);
  }

  void release(PolicyHost& host) {
    if (waiters_.empty() || host.clocks().empty()) return;
    for (const Rank rank : waiters_.take_due(host.clocks().min())) host.grant(rank, {});
  }

  std::int64_t lower_;
  std::int64_t upper_;
  RankMap<Place> places_;
  SlowestFirst order_;    // of the active workers
  bool ordered_ = false;  // order_ is up to date
  Waiters waiters_;       // threshold: the minimum relative clock that is needed
};

}  // namespace

std::unique_ptr<Policy> make_dssp(const PolicyText& text, std::string& error) {
  constexpr const char* kForm =
      "dssp takes its two bounds with SL <= SU: dssp:SL-SU, such as dssp:3-15";
  const std::string range = text.is_one_unnamed() ? text.arguments[0].value : "";
  const std::size_t dash = range.find('-');
  if (dash == std::string::npos) {
    error = policy_error(text, kForm);
    return nullptr;
  }
  const auto lower =
      parse_policy_integer(text, "SL", range.substr(0, dash), 0, kParameterMax, error);
  if (!lower) return nullptr;
  const auto upper =
      parse_policy_integer(text, "SU", range.substr(dash + 1), *lower, *lower + kRangeMax, error);
  return upper ? std::make_unique<Dssp>(*lower, *upper) : nullptr;
}

}  // namespace syncd
