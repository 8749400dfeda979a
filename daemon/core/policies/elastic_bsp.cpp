// See elastic_bsp.h.
#include "daemon/core/policies/elastic_bsp.h"

#include <algorithm>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/rank_map.h"
#include "daemon/core/planners/intervals.h"
#include "daemon/core/planners/zipline.h"
#include "daemon/core/policies/state_reader.h"
#include "daemon/core/policies/waiters.h"
#include "proto/wire/wire.h"

namespace syncd {
namespace {

using planners::IntervalPredictor;
using planners::Progression;

// The quadratic variants are there to be compared, not to keep a core busy for hours.
constexpr std::int64_t kHorizonMax = 10'000;

struct Settings {
  std::int64_t horizon = 0;  // R
  planners::ZiplineAlgorithm algorithm = planners::ZiplineAlgorithm::kAuto;
  planners::Predictor predictor = planners::Predictor::kLast;
  planners::ZiplineObjective objective = planners::ZiplineObjective::kMax;
  std::optional<std::int64_t> beta;
};
constexpr Parameter<Settings> kParameters[] = {{"beta", &Settings::beta}};

// What a plan is made from, per participant.
struct Input {
  Rank rank = 0;
  Clock q = 0;  // its relative clock then
  Progression ends;
};

// The result: when to synchronize, the wait then, and further iterations per input. Empty: no plan.
class ZiplineWork final : public PlanWork {
 public:
  ZiplineWork(const Settings& settings, Micros previous_barrier, const std::vector<Input>& inputs)
      : settings_(settings), previous_barrier_(previous_barrier) {
    for (const Input& input : inputs) {
      ends_.push_back(input.ends);
      done_.push_back(input.q);
    }
  }

  std::vector<std::int64_t> run() const override {
    planners::ZiplineOptions options;
    options.algorithm = settings_.algorithm;
    options.objective = settings_.objective;
    options.previous_barrier = previous_barrier_;
    options.beta = settings_.beta;
    if (settings_.objective == planners::ZiplineObjective::kRate) options.done = done_;
    std::string error;
    const auto plan = planners::plan_zipline(ends_, static_cast<std::uint32_t>(settings_.horizon),
                                             options, error);
    if (!plan) return {};
    std::vector<std::int64_t> result{plan->sync_time, plan->wait};
    result.insert(result.end(), plan->iterations.begin(), plan->iterations.end());
    return result;
  }

 private:
  Settings settings_;
  Micros previous_barrier_;
  std::vector<Progression> ends_;
  std::vector<std::int64_t> done_;
};

class ElasticBsp final : public Policy {
 public:
  explicit ElasticBsp(const Settings& settings)
      : Policy({.gap_bound = std::max(settings.horizon, 2 * settings.horizon - 1),
                .tells_barriers = true,
                .all_meet = true}),
        settings_(settings) {}

  std::string name() const override {
    const auto unless_default = [&](const char* key, auto member) {
      const auto value = settings_.*member;
      return value == Settings().*member ? "" : fmt::format(",{}{}", key, to_string(value));
    };
    return fmt::format("elastic_bsp:{}", settings_.horizon) +
           unless_default("", &Settings::algorithm) +
           unless_default(settings_.predictor == planners::Predictor::kAuto ? "predictor=" : "",
                          &Settings::predictor) +
           unless_default("objective=", &Settings::objective) +
           parameters_text(kParameters, settings_);
  }
  std::uint64_t barriers() const override { return static_cast<std::uint64_t>(superstep_); }

  std::string check_workers(std::uint32_t, std::uint32_t expected) const override {
    const auto most = static_cast<std::int64_t>(planners::kEndsMax / std::max(expected, 1U));
    if (settings_.horizon <= most) return {};
    return fmt::format("policy '{}': R is {}, which may be at most {} with {} workers", name(),
                       settings_.horizon, most, expected);
  }

  // ---- membership

  void on_start(PolicyHost& host) override {
    started_ = true;
    begin_superstep(host, 0);
  }
  void on_enter(PolicyHost& host, Rank rank) override {
    at(rank) = Place(settings_.predictor);
    go_on(host);
  }
  void on_exit(PolicyHost& host, Rank rank) override {
    bounded_.remove(rank);
    held_.remove(rank);
    if (counted_ && at(rank).takes_part) uncount(at(rank));
    at(rank) = Place(settings_.predictor);
    // Where a new process takes its place, on_enter() follows. A superstep that began before that
    // would be without it, while the view at its beginning waits for it.
    if (!is_member(host.worker(rank).state)) go_on(host);
  }
  void on_return(PolicyHost& host, Rank rank) override {
    move_clock(host, rank);
    go_on(host);
  }
  void on_restored(PolicyHost& host) override {
    if (phase_ == Phase::kPlan) request_plan(host);
    go_on(host);
  }

  // ---- the loop

  void on_begin(PolicyHost& host, Rank rank) override {
    count_all(host);
    const Place& place = at(rank);
    const Micros since = host.worker(rank).waiting->since;
    if (!place.takes_part) {
      held_.add(rank, 0, since);
    } else if (phase_ == Phase::kRun) {
      if (may_run(rank)) {
        grant(host, rank);
      } else {
        held_.add(rank, 0, since);
        go_on(host);
      }
    } else if (place.q - clocks_.min() <= settings_.horizon) {
      grant(host, rank);
    } else {
      bounded_.add(rank, place.q - settings_.horizon, since);
    }
  }
  void on_cancel(PolicyHost&, Rank rank) override {
    bounded_.remove(rank);
    held_.remove(rank);
    at(rank).granted_at = -1;
  }
  // Those who only wait for the barrier, with a clock that stands, are not the slowest.
  std::optional<std::int64_t> lead(const PolicyHost&, Rank rank) const override {
    if (!counted_ || clocks_.empty()) return {};
    return known(rank).q - clocks_.min();
  }
  void on_push(PolicyHost& host, Rank rank, bool late) override {
    count_all(host);
    Place& place = at(rank);
    if (place.takes_part && !late) {
      const Worker& worker = host.worker(rank);
      if (place.pushes > 0) {
        // Exchange in which it waited for another is no forecast: make_inputs() adds the shortest.
        const Micros exchange = std::max<Micros>(worker.exchange_us, 0);
        place.predictor.observe(std::max<Micros>(
            worker.last_push_us - place.last_push_at - worker.held_us - exchange, 0));
      }
      place.last_push_at = worker.last_push_us;
      place.granted_at = -1;
      place.told = true;
      if (++place.pushes == 2) ++known_;
    }
    move_clock(host, rank);
    go_on(host);
  }

  // ---- plans and history

  void on_plan(PolicyHost& host, std::uint64_t plan,
               std::span<const std::int64_t> result) override {
    if (phase_ != Phase::kPlan || plan != plan_) return;
    count_all(host);
    const bool planned = result.size() == inputs_.size() + 2;
    Fact fact;
    fact.kind = RecordKind::kPlan;
    fact.superstep = superstep_;
    if (planned) {
      fact.predicted_us = result[0];
      fact.predicted_wait_us = result[1];
    }
    Clock lowest = limits::kIterationMax;  // where nobody is left
    for (const Input& input : inputs_) {
      if (at(input.rank).takes_part) lowest = std::min(lowest, input.q);
    }
    // No participant is more than R ahead where the slowest one's second push has brought the plan
    // about. One may be where the daemon's end has lost a push that the plan did not need.
    const Clock most = lowest + most_apart() + 1;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Input& input = inputs_[i];
      if (!at(input.rank).takes_part) continue;  // it is gone since
      fact.values.push_back(static_cast<std::int64_t>(input.rank));
      // Times beyond all reason give no plan: a barrier after one more iteration each does no harm.
      const Clock target = std::min(input.q + (planned ? result[i + 2] : 1), most);
      fact.values.push_back(std::max(target, earliest_target(host, input.rank)));
    }
    const std::vector<std::int64_t> targets = fact.values;
    const Micros predicted = fact.predicted_us;
    const Micros predicted_wait = fact.predicted_wait_us;
    host.note(std::move(fact));
    run(host, targets, predicted, predicted_wait);
  }
  void on_note(PolicyHost& host, const Record& record) override {
    counted_ = false;  // a barrier has moved the clocks
    if (record.kind == RecordKind::kBarrier) {
      begin_superstep(host, record.superstep + 1);
    } else if (record.kind == RecordKind::kPlan) {
      run(host, record.values, record.predicted_us, record.predicted_wait_us);
    }
  }

  // ---- explanation and snapshot

  Reason explain(const PolicyHost& host, Rank rank) const override {
    const Place& place = known(rank);
    Reason reason;
    reason.text = fmt::format("superstep {}", superstep_);
    if (place.takes_part && phase_ != Phase::kRun) {
      const Clock bound = place.q - settings_.horizon;
      reason.text += fmt::format(
          ": relative clock {} is {} ahead of the slowest participant ({}), allowed {} until the "
          "barrier is planned",
          place.q, place.q - clocks_.min(), clocks_.min(), settings_.horizon);
      reason.waiting_for =
          participants(host, bound, [&](const Place& other) { return other.q < bound; });
    } else {
      reason.text += place.takes_part
                         ? fmt::format(": relative clock {} has reached its planned target {}",
                                       place.q, place.target)
                         : " began before this worker came, which takes part from the next one on";
      reason.text +=
          fmt::format("; the barrier comes when all {} participants have arrived, {} so far",
                      clocks_.size(), phase_ == Phase::kRun ? arrived_ : 0);
      if (predicted_us_ >= 0) {
        const Micros left = (predicted_us_ - host.now()) / 1000;
        reason.text += left >= 0 ? fmt::format(", foreseen in {} ms", left)
                                 : fmt::format(", foreseen {} ms ago", -left);
      }
      reason.waiting_for = participants(host, kNever, [&](const Place& other) {
        return phase_ != Phase::kRun || other.q < other.target;
      });
    }
    if (phase_ == Phase::kMonitor) {
      reason.text += fmt::format("; a plan needs two pushes of all {}, {} have made them",
                                 clocks_.size(), known_);
    } else if (phase_ == Phase::kPlan) {
      reason.text += "; the plan is being computed";
    }
    return reason;
  }

  std::vector<std::int64_t> save() const override {
    std::vector<std::int64_t> out{started_ ? 1 : 0,
                                  superstep_,
                                  began_at_,
                                  static_cast<std::int64_t>(phase_),
                                  predicted_us_,
                                  predicted_wait_us_,
                                  static_cast<std::int64_t>(inputs_.size())};
    for (const Input& input : inputs_) {
      out.insert(out.end(), {static_cast<std::int64_t>(input.rank), input.q, input.ends.first,
                             input.ends.interval});
    }
    places_.for_each([&](Rank rank, const Place& place) {
      if (!place.takes_part) return;
      const std::vector<std::int64_t> predictor = place.predictor.save();
      out.insert(out.end(), {static_cast<std::int64_t>(rank), place.pushes, place.last_push_at,
                             place.target, static_cast<std::int64_t>(predictor.size())});
      out.insert(out.end(), predictor.begin(), predictor.end());
    });
    return out;
  }
  bool load(std::span<const std::int64_t> state) override {
    StateReader reader(state);
    started_ = reader.next(0, 1) == 1;
    superstep_ = reader.next(0, limits::kIterationMax);
    began_at_ = reader.next();
    phase_ = static_cast<Phase>(reader.next(0, 2));
    predicted_us_ = reader.next();
    predicted_wait_us_ = reader.next();
    const std::int64_t inputs = reader.next(0, limits::kWorkersPerJobMax);
    for (std::int64_t i = 0; i < inputs && reader.ok(); ++i) {
      Input input;
      input.rank = static_cast<Rank>(reader.next(0, limits::kWorkersPerJobMax - 1));
      input.q = reader.next();
      input.ends.first = reader.next();
      input.ends.interval = reader.next();
      inputs_.push_back(input);
    }
    while (!reader.at_end() && reader.ok()) {
      Place& place = at(static_cast<Rank>(reader.next(0, limits::kWorkersPerJobMax - 1)));
      place.takes_part = true;
      place.pushes = reader.next(0, limits::kIterationMax);
      place.last_push_at = reader.next();
      place.target = reader.next();
      place.told = superstep_ == 0 || place.pushes > 0;
      if (!place.predictor.load(reader.take(reader.next()))) return false;
    }
    return reader.at_end() && reader.ok();
  }

 private:
  enum class Phase : std::uint8_t { kMonitor = 0, kPlan = 1, kRun = 2 };

  struct Place {
    explicit Place(planners::Predictor kind = {}) : predictor(kind) {}
    bool takes_part = false;
    bool told = true;          // it knows of the barrier before this superstep
    std::int64_t pushes = 0;   // in this superstep
    Micros last_push_at = -1;  // in this superstep
    Micros granted_at = -1;    // the latest grant, which an overlay may still hold back
    Clock target = 0;          // in the run phase: it goes on until it has reached this
    Clock q = 0;               // as it is counted in clocks_
    IntervalPredictor predictor;
  };

  Place& at(Rank rank) {
    Place* place = places_.find(rank);
    return place != nullptr ? *place : places_.get(rank, settings_.predictor);
  }
  const Place& known(Rank rank) const {
    static const Place kNone;
    const Place* place = places_.find(rank);
    return place != nullptr ? *place : kNone;
  }

  // ---- counting: nothing below loops over the participants, but once a phase

  void count(const PolicyHost& host, Rank rank) {
    Place& place = at(rank);
    place.q = host.worker(rank).relative();
    clocks_.add(place.q);
    if (place.pushes >= 2) ++known_;
    if (phase_ == Phase::kRun && place.q >= place.target) ++arrived_;
  }
  void uncount(const Place& place) {
    clocks_.remove(place.q);
    if (place.pushes >= 2) --known_;
    if (phase_ == Phase::kRun && place.q >= place.target) --arrived_;
  }
  // After a snapshot, and where clocks were moved by something else than a push.
  void count_all(const PolicyHost& host) {
    if (counted_) return;
    counted_ = true;
    clocks_.clear();
    known_ = arrived_ = 0;
    for (const Rank rank : host.active()) {
      if (at(rank).takes_part) count(host, rank);
    }
  }
  void move_clock(const PolicyHost& host, Rank rank) {
    count_all(host);
    Place& place = at(rank);
    const Clock q = host.worker(rank).relative();
    if (!place.takes_part || q == place.q) return;
    clocks_.move(place.q, q);
    if (phase_ == Phase::kRun && place.q < place.target && q >= place.target) ++arrived_;
    place.q = q;
  }

  // `bound`: kNever for those who keep the barrier waiting.
  template <class Wanted>
  RankList participants(const PolicyHost& host, Clock bound, Wanted wanted) const {
    return lists_.get(bound, clocks_.changes() + lowered_, [&](RankList& list) {
      for (const Rank rank : host.active()) {
        const Place& place = known(rank);
        if (place.takes_part && wanted(place)) list.push_back(rank);
      }
    });
  }

  // ---- the four phases

  void grant(PolicyHost& host, Rank rank) {
    Place& place = at(rank);
    Grant grant;
    grant.staleness = lead(host, rank);
    if (!place.told) grant.flags = wire::kStepBarrier | wire::kStepPull;
    place.told = true;
    place.granted_at = host.now();
    host.grant(rank, grant);
  }

  // While a plan was being computed, the worker may have come past the planned target and into its
  // next iteration. The barrier waits for the end of that: a worker is told of a barrier by the
  // grant after it, so that it must not be computing then. One that is cut off may be.
  Clock earliest_target(const PolicyHost& host, Rank rank) {
    const Worker& worker = host.worker(rank);
    // Granted, and held back by an overlay, is as good as computing.
    const bool granted =
        worker.waits_in(Call::kBegin) && at(rank).granted_at >= worker.waiting->since;
    const bool may_compute = worker.computing() || granted || worker.connection == 0;
    return at(rank).q + (may_compute ? 1 : 0);
  }

  // Of a worker at a grant and the slowest participant.
  Clock most_apart() const { return std::max(settings_.horizon, 2 * settings_.horizon - 1); }

  // In the run phase, of one that begins. A worker that was cut off when the plan was made, or
  // whose daemon has lost what others had pushed, may be so far ahead that its target is beyond
  // what a grant allows: it is not computing, so that the barrier need not wait for another
  // iteration.
  bool may_run(Rank rank) {
    Place& place = at(rank);
    if (place.q >= place.target) return false;
    if (place.q - clocks_.min() <= most_apart()) return true;
    place.target = place.q;
    ++lowered_;
    ++arrived_;
    return false;
  }

  void begin_superstep(PolicyHost& host, std::int64_t superstep) {
    superstep_ = superstep;
    began_at_ = host.now();
    phase_ = Phase::kMonitor;
    predicted_us_ = predicted_wait_us_ = -1;
    inputs_.clear();
    places_.for_each([](Rank, Place& place) { place.takes_part = false; });
    for (const Rank rank : host.active()) {
      Place& place = at(rank);
      place.takes_part = true;
      place.told = superstep == 0;
      place.pushes = 0;
      place.last_push_at = -1;
    }
    counted_ = false;
    count_all(host);
  }

  // Does what has become due. After everything that may have made it so.
  void go_on(PolicyHost& host) {
    if (!started_) return;
    count_all(host);
    if (clocks_.empty()) {
      if (!host.active().empty()) end_superstep(host);
      return;
    }
    if (phase_ == Phase::kRun) {
      if (arrived_ == clocks_.size()) end_superstep(host);
      return;
    }
    for (const Rank rank : bounded_.take_due(clocks_.min())) grant(host, rank);
    if (phase_ == Phase::kMonitor && known_ == clocks_.size()) {
      phase_ = Phase::kPlan;
      make_inputs(host);
      request_plan(host);
    }
  }

  void make_inputs(const PolicyHost& host) {
    inputs_.clear();
    IntervalPredictor::Errors errors{};
    for (const Rank rank : host.active()) {
      const IntervalPredictor::Errors& own = at(rank).predictor.errors();
      for (std::size_t i = 0; i < errors.size(); ++i) errors[i] += own[i];
    }
    const planners::Predictor by = IntervalPredictor(settings_.predictor).chosen(errors);
    for (const Rank rank : host.active()) {
      const Place& place = at(rank);
      if (!place.takes_part) continue;
      const Worker& worker = host.worker(rank);
      // What an overlay holds back every time is part of each iteration to come; what this policy
      // held back is not.
      const Micros delay = host.grant_delay();
      const Micros exchange = worker.exchange_us >= 0 ? host.exchanges().min() : 0;
      const Micros interval = place.predictor.predict(by).value_or(0) + exchange + delay;
      Micros from = place.last_push_at;
      if (worker.waits_in(Call::kBegin)) {
        const Micros since = worker.waiting->since;
        from = place.granted_at < since ? host.now() : from + (place.granted_at - since);
      } else if (worker.computing() && worker.granted_at > from) {
        // Held since that push, and released before now.
        from += std::max<Micros>(worker.waited_us - delay, 0);
      }
      inputs_.push_back({rank, place.q, {std::max(from + interval, host.now()), interval}});
    }
  }
  void request_plan(PolicyHost& host) {
    plan_ = host.request_plan(std::make_shared<ZiplineWork>(settings_, began_at_, inputs_));
  }

  // `targets`: a rank and its target, and so on.
  void run(PolicyHost& host, std::span<const std::int64_t> targets, Micros predicted,
           Micros predicted_wait) {
    places_.for_each([](Rank, Place& place) { place.target = 0; });
    for (std::size_t i = 0; i + 1 < targets.size(); i += 2) {
      if (targets[i] < 0 || targets[i] >= limits::kWorkersPerJobMax) continue;
      at(static_cast<Rank>(targets[i])).target = targets[i + 1];
    }
    phase_ = Phase::kRun;
    predicted_us_ = predicted;
    predicted_wait_us_ = predicted_wait;
    inputs_.clear();
    counted_ = false;
    count_all(host);
    for (const Rank rank : bounded_.take_due(INT64_MAX)) {
      if (may_run(rank)) {
        grant(host, rank);
      } else {
        held_.add(rank, 0, host.worker(rank).waiting->since);
      }
    }
    go_on(host);
  }

  void end_superstep(PolicyHost& host) {
    if (host.replaying()) return;  // its record follows, if it ever happened
    Fact fact;
    fact.kind = RecordKind::kBarrier;
    fact.superstep = superstep_;
    fact.predicted_us = predicted_us_;
    fact.predicted_wait_us = predicted_wait_us_;
    if (!clocks_.empty()) {
      Micros first = host.now();
      for (const Rank rank : host.active()) {
        if (at(rank).takes_part) first = std::min(first, at(rank).last_push_at);
      }
      fact.wait_us = host.now() - first;
    }
    host.note(std::move(fact));
    host.barrier(0);  // all relative clocks are 0 now
    begin_superstep(host, superstep_ + 1);
    for (const Rank rank : bounded_.take_due(INT64_MAX)) {
      held_.add(rank, 0, host.worker(rank).waiting->since);
    }
    for (const Rank rank : held_.take_due(0)) grant(host, rank);
  }

  Settings settings_;
  bool started_ = false;
  std::int64_t superstep_ = 0;
  Micros began_at_ = 0;
  Phase phase_ = Phase::kMonitor;
  Micros predicted_us_ = -1;
  Micros predicted_wait_us_ = -1;
  std::vector<Input> inputs_;  // of the plan that is being computed
  std::uint64_t plan_ = 0;     // its id
  RankMap<Place> places_;

  // Of the participants, while counted_.
  bool counted_ = false;
  RelativeClocks clocks_;
  std::uint32_t known_ = 0;    // with two pushes in this superstep
  std::uint32_t arrived_ = 0;  // at their targets
  std::uint64_t lowered_ = 0;  // targets, by may_run()
  mutable KnownLists lists_;

  Waiters bounded_;  // participants, by the monitor rule. Threshold: the slowest one's clock
  Waiters held_;     // for the barrier. Threshold: 0
};

// An unnamed parameter that may be given once. False: it is not one of these names.
template <class Enum>
bool parse_unnamed(const PolicyText& text, const PolicyArgument& argument, std::string_view what,
                   std::optional<Enum>& given, std::string& error) {
  const std::optional<Enum> named = planners::parse_name<Enum>(argument.value);
  if (named && given) error = given_twice(text, what);
  if (named) given = named;
  return named.has_value();
}

}  // namespace

std::unique_ptr<Policy> make_elastic_bsp(const PolicyText& text, std::string& error) {
  if (!text.begins_unnamed()) {
    error = policy_error(text,
                         "elastic_bsp needs first how many iterations of each worker a plan looks "
                         "ahead: elastic_bsp:R, such as elastic_bsp:15");
    return nullptr;
  }
  const auto horizon =
      parse_policy_integer(text, "R", text.arguments[0].value, 1, kHorizonMax, error);
  if (!horizon) return nullptr;
  Settings settings;
  settings.horizon = *horizon;
  std::optional<planners::ZiplineAlgorithm> algorithm;
  std::optional<planners::Predictor> predictor;
  error.clear();
  for (std::size_t i = 1; i < text.arguments.size() && error.empty(); ++i) {
    const PolicyArgument& argument = text.arguments[i];
    if (argument.key == "objective") {
      parse_choice(text, argument, settings.objective, error);
    } else if (argument.key == "predictor") {
      if (predictor) {
        error = given_twice(text, "PREDICTOR");
      } else if (parse_choice(text, argument, settings.predictor, error)) {
        predictor = settings.predictor;
      }
    } else if (!argument.key.empty()) {
      parse_parameter(text, argument, kParameters,
                      "elastic_bsp takes elastic_bsp:R[,ALGORITHM][,predictor=P]"
                      "[,objective=max|rate][,beta=B]",
                      settings, error);
    } else if (!parse_unnamed(text, argument, "ALGORITHM", algorithm, error) &&
               !parse_unnamed(text, argument, "PREDICTOR", predictor, error)) {
      error = policy_error(
          text, fmt::format("'{}' is neither an algorithm ({}) nor a predictor (last, "
                            "ewma, median, or predictor=auto)",
                            argument.value, planners::kNames<planners::ZiplineAlgorithm>));
    }
  }
  if (!error.empty()) return nullptr;
  settings.algorithm = algorithm.value_or(settings.algorithm);
  settings.predictor = predictor.value_or(settings.predictor);
  if (settings.beta && settings.objective != planners::ZiplineObjective::kRate) {
    error = policy_error(text, "beta bounds the plans of objective=rate, which is not given");
    return nullptr;
  }
  return std::make_unique<ElasticBsp>(settings);
}

}  // namespace syncd
