// See specsync.h.
#include "daemon/core/policies/specsync.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <deque>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/rank_map.h"
#include "daemon/core/planners/abort_tuner.h"
#include "daemon/core/planners/intervals.h"
#include "daemon/core/planners/progress_tuner.h"
#include "daemon/core/planners/push_forecast.h"
#include "daemon/core/policies/overlay.h"
#include "daemon/core/policies/progress_fit.h"
#include "daemon/core/policies/speculation_trial.h"
#include "daemon/core/policies/state_reader.h"

namespace syncd {
namespace {

constexpr std::uint32_t kTimerAbort = 0;
constexpr std::int64_t kRestartsMax = 1000;
constexpr double kRateMax = 1e6;  // of all workers; more than 1 means several pushes of each
// A worker that stalls makes an epoch last, in which the others may push any number of times. The
// oldest are then forgotten: only that worker's thresholds come out higher than they should.
constexpr std::size_t kLogMax = std::size_t{1} << 18;

constexpr std::string_view kTuned = "specsync tuned";

// scope=forecast: so long restarts are made at least, because clusters form only after a while.
constexpr std::int64_t kForecastEpochs = 128;
constexpr double kDearer = 0.05;  // by so much each epoch, up to forecast_price()

constexpr std::int64_t kBudgetDefault = 4;

enum class Scope : std::uint8_t { kJob, kWorker, kForecast };

struct Settings {
  bool adaptive = true;
  bool progress = false;  // adaptive, too
  Micros abort_time = 0;  // fixed
  double abort_rate = 0;  // fixed
  Scope scope = Scope::kJob;
  std::optional<std::int64_t> budget;  // forecast: percent of the computing
  planners::AbortCap cap = planners::AbortCap::kAuthors;
  std::int64_t max_restarts = 1;
  bool auto_off = true;
};
constexpr Parameter<Settings> kSpecsyncParameters[] = {
    {"max_restarts", &Settings::max_restarts, 1, kRestartsMax}};

// A plain decimal number, which has no '+' that would begin the base policy.
std::string decimal(double value) {
  char text[400];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed);
  return {text, end.ptr};
}

// The result: 1 or 0 (off), the abort time of each worker and, tuned for progress, the span that
// all their ABORT_RATEs come from.
class TuningWork final : public PlanWork {
 public:
  // `lambda`: of progress; else it is not given.
  TuningWork(const Settings& settings, std::vector<planners::WorkerSpan> spans,
             std::vector<planners::LoggedPush> pushes, std::optional<double> lambda)
      : spans_(std::move(spans)), pushes_(std::move(pushes)), lambda_(lambda) {
    options_.scope = settings.scope == Scope::kWorker ? planners::TuningScope::kWorker
                                                      : planners::TuningScope::kJob;
    options_.cap_rule = settings.cap;
  }
  std::vector<std::int64_t> run() const override {
    if (lambda_) {
      const planners::ProgressTuning tuning = planners::tune_progress(spans_, pushes_, *lambda_);
      std::vector<std::int64_t> result(spans_.size() + 2, tuning.abort_time);
      result.front() = tuning.abort_time > 0 ? 1 : 0;
      // More than m ABORT_RATE pushes are then more than pushes - 1/2.
      const auto others = static_cast<double>(spans_.size() - 1);
      const double span = static_cast<double>(tuning.abort_time) * others / (tuning.pushes - 0.5);
      result.back() = result.front() == 1 ? std::max<std::int64_t>(std::llround(span), 1) : 0;
      return result;
    }
    std::string error;
    const auto tuning = planners::tune_abort(spans_, pushes_, options_, error);
    std::vector<std::int64_t> result(spans_.size() + 1);
    result.front() = tuning && !tuning->off ? 1 : 0;
    for (std::size_t i = 0; tuning && i < spans_.size(); ++i) result[i + 1] = tuning->abort_time[i];
    return result;
  }

 private:
  std::vector<planners::WorkerSpan> spans_;
  std::vector<planners::LoggedPush> pushes_;
  std::optional<double> lambda_;
  planners::TuningOptions options_;
};

}  // namespace
template <>
inline constexpr std::string_view planners::kNames<Scope> = "job, worker, forecast";
namespace {

class SpecSync final : public OverlayPolicy {
 public:
  SpecSync(const Settings& settings, std::unique_ptr<Policy> base)
      : OverlayPolicy(traits_over(*base), std::move(base)), settings_(settings) {}

  std::string name() const override {
    std::string text = settings_.progress ? ":progress" : ":adaptive";
    if (!settings_.adaptive) {
      text = fmt::format(":fixed,{},{}", decimal(static_cast<double>(settings_.abort_time) / 1000),
                         decimal(settings_.abort_rate));
    }
    if (settings_.scope != Scope::kJob) {
      text += fmt::format(",scope={}", planners::to_string(settings_.scope));
    }
    if (settings_.budget) text += fmt::format(",budget={}", *settings_.budget);
    if (settings_.cap != planners::AbortCap::kAuthors) text += ",cap=span";
    text += parameters_text(kSpecsyncParameters, settings_);
    if (settings_.auto_off != (settings_.adaptive && !settings_.progress)) {
      text += settings_.auto_off ? ",auto_off=on" : ",auto_off=off";
    }
    return fmt::format("specsync{}+{}", text == ":adaptive" ? "" : text, base().name());
  }

  // ---- membership

  void on_enter(PolicyHost& host, Rank rank) override {
    forget(rank);
    OverlayPolicy::on_enter(host, rank);
  }
  void on_exit(PolicyHost& host, Rank rank) override {
    host.cancel_timer(rank, kTimerAbort);
    forget(rank);
    end_epoch_if_over(host);
    OverlayPolicy::on_exit(host, rank);
  }
  void on_start(PolicyHost& host) override {
    trial_.start(host.now(), host.pushes());
    OverlayPolicy::on_start(host);
  }
  void on_restored(PolicyHost& host) override {
    tuning_ = 0;  // what was being computed is lost; the next epoch is tuned again
    if (forecast_epochs_ > 0) find_price(host);
    OverlayPolicy::on_restored(host);
  }

  // ---- the loop

  void on_push(PolicyHost& host, Rank rank, bool late) override {
    host.cancel_timer(rank, kTimerAbort);
    if (forecasts()) expect_none(rank);
    if (!late) count_push(host, rank);
    OverlayPolicy::on_push(host, rank, late);
  }
  void on_restarted(PolicyHost& host, Rank rank) override {
    arm(host, host.worker(rank));
    OverlayPolicy::on_restarted(host, rank);
  }

  // ---- plans and history

  void on_plan(PolicyHost& host, std::uint64_t plan,
               std::span<const std::int64_t> result) override {
    if (tuning_ == 0 || plan != tuning_) return OverlayPolicy::on_plan(host, plan, result);
    tuning_ = 0;
    if (result.size() != tuned_.size() + (settings_.progress ? 2 : 1)) return;
    Fact fact;
    fact.reason = kTuned;
    fact.values = {result[0], static_cast<std::int64_t>(tuned_.size())};
    for (std::size_t i = 0; result[0] == 1 && i < tuned_.size(); ++i) {
      const auto& [rank, span] = tuned_[i];
      if (at(rank).span == 0) continue;  // it is gone since, or another has its place
      fact.values.insert(fact.values.end(), {static_cast<std::int64_t>(rank), result[i + 1],
                                             settings_.progress ? result.back() : span});
    }
    take_tuning(fact.values);
    host.note(std::move(fact));
  }
  void on_note(PolicyHost& host, const Record& record) override {
    if (record.reason == kTuned) {
      take_tuning(record.values);
    } else if (record.reason == kSpeculationOff || record.reason == kSpeculationBack) {
      off_ = record.reason == kSpeculationOff;
    } else {
      OverlayPolicy::on_note(host, record);
    }
  }

  // ---- snapshot

  std::vector<std::int64_t> save() const override {
    std::vector<std::int64_t> out{0, off_ ? 1 : 0};
    trial_.save(out);
    if (settings_.progress) fit_.save(out);
    const auto kept = [](const Place& place) {
      return place.completed || place.span > 0 || place.abort_time > 0;
    };
    const std::size_t count_at = out.size();
    out.push_back(0);
    places_.for_each([&](Rank rank, const Place& place) {
      if (!kept(place)) return;
      ++out[count_at];
      out.insert(out.end(), {static_cast<std::int64_t>(rank), place.completed ? 1 : 0, place.pull,
                             place.span, place.abort_time, place.tuned_span, place.tuned_workers});
    });
    if (forecasts()) save_forecast(out);
    for (const auto& [rank, time] : log_) {
      out.insert(out.end(), {static_cast<std::int64_t>(rank), time});
    }
    out[0] = static_cast<std::int64_t>(out.size()) - 1;
    const std::vector<std::int64_t> others = base().save();
    out.insert(out.end(), others.begin(), others.end());
    return out;
  }
  bool load(std::span<const std::int64_t> state) override {
    StateReader all(state);
    StateReader reader(all.take(all.next(0)));
    off_ = reader.next(0, 1) == 1;
    trial_.load(reader);
    if (settings_.progress) fit_.load(reader);
    constexpr std::int64_t kRankMax = limits::kWorkersPerJobMax - 1;
    for (std::int64_t i = reader.next(0, kRankMax + 1); i > 0 && reader.ok(); --i) {
      Place& place = at(static_cast<Rank>(reader.next(0, kRankMax)));
      place.completed = reader.next(0, 1) == 1;
      completed_ += place.completed ? 1 : 0;
      place.pull = reader.next();
      place.span = reader.next(0);
      place.abort_time = reader.next(0);
      place.tuned_span = reader.next(0);
      place.tuned_workers = reader.next(0);
    }
    if (forecasts()) load_forecast(reader);
    while (!reader.at_end() && reader.ok()) {
      const Rank rank = static_cast<Rank>(reader.next(0, kRankMax));
      log_.push_back({rank, reader.next()});
    }
    return reader.ok() && all.ok() && base().load(all.take(all.left()));
  }

 private:
  struct Push {
    Rank rank;
    Micros time;
  };
  struct Place {
    bool completed = false;  // an iteration in this epoch
    Micros pull = 0;         // of its last completed iteration
    Micros span = 0;         // from there to its push; 0: not known
    Micros abort_time = 0;   // 0: no speculation on it
    Micros tuned_span = 0;   // span and number of workers that its ABORT_RATE comes from
    std::int64_t tuned_workers = 0;
  };
  static constexpr Micros kNoPush = kNever;
  struct Forecast {
    planners::IntervalPredictor spans{planners::Predictor::kAuto};
    Micros pulled_at = 0;       // of the iteration that it computes
    Micros expected = kNoPush;  // its push, as a key of expected_
  };

  static PolicyTraits traits_over(const Policy& base) {
    PolicyTraits traits = base.traits();
    traits.may_resync = true;
    return traits;
  }

  // The host that the base policy sees: each of its grants arms the worker's timer.
  class Host final : public ForwardingHost {
   public:
    explicit Host(SpecSync& owner) : owner_(owner) {}
    void grant(Rank rank, const Grant& grant) override {
      const Worker& granted = worker(rank);
      if (!granted.waits_in(Call::kBegin)) return;
      inner().grant(rank, grant);
      owner_.arm(inner(), granted);
    }

   private:
    SpecSync& owner_;
  };
  ForwardingHost& base_host() override { return base_host_; }

  Place& at(Rank rank) { return places_.get(rank); }
  void forget(Rank rank) {
    if (at(rank).completed) --completed_;
    at(rank) = {};
    if (!forecasts()) return;
    expect_none(rank);
    forecasts_.get(rank) = {};
  }

  // ---- speculation

  bool speculates() const {
    if (settings_.progress) return fit_.restarts();
    return !off_ && (!settings_.auto_off || trial_.speculates());
  }

  void arm(PolicyHost& host, const Worker& worker) {
    const Rank rank = worker.rank;
    if (forecasts()) expect_push(host, rank);
    if (!speculates() || worker.restarts >= settings_.max_restarts) return;
    if (forecasts()) return look(host, rank);
    const Micros time = settings_.adaptive ? at(rank).abort_time : settings_.abort_time;
    if (time > 0) host.set_timer(rank, kTimerAbort, host.now() + time);
  }

  void on_own_timer(PolicyHost& host, std::int64_t number, std::uint32_t) override {
    const Rank rank = static_cast<Rank>(number);
    const Worker& worker = host.worker(rank);
    if (!speculates() || !worker.active() || !worker.computing() || worker.resync) return;
    if (forecasts()) return look(host, rank);
    double rate = settings_.abort_rate;
    if (settings_.adaptive) {
      const Place& place = at(rank);
      if (place.abort_time == 0) return;  // tuned away since the timer was set
      const auto m = static_cast<double>(place.tuned_workers);
      rate = static_cast<double>(place.abort_time) * (m - 1) /
             (static_cast<double>(place.tuned_span) * m);
    }
    const auto pushed = static_cast<double>(host.pushes_by_others_since_pull(rank));
    if (pushed > static_cast<double>(host.active().size()) * rate) host.resync(rank);
  }

  // ---- forecast: instead of tuned numbers, each worker restarts when that is expected to pay most

  bool forecasts() const { return settings_.scope == Scope::kForecast; }

  // It has pulled and computes.
  void expect_push(PolicyHost& host, Rank rank) {
    expect_none(rank);
    Forecast& of = forecasts_.get(rank);
    of.pulled_at = host.now();
    const auto span = of.spans.predict();
    if (span) of.expected = expected_.add(host.now() + *span, *span);
  }
  void expect_none(Rank rank) {
    Forecast& of = forecasts_.get(rank);
    if (of.expected != kNoPush) expected_.remove(std::exchange(of.expected, kNoPush));
  }

  // Advises a restart if this is the best time for one, or looks again when it seems to come.
  void look(PolicyHost& host, Rank rank) {
    const Forecast& of = forecasts_.get(rank);
    const auto others = static_cast<std::int64_t>(host.active().size()) - 1;
    const auto span = of.spans.predict();
    if (paused_ || price_ <= 0 || others < 1 || !span) return;
    const auto best =
        expected_.best({.now = host.now(),
                        .pull = of.pulled_at,
                        .span = std::max<Micros>(*span, 1),
                        .seen = static_cast<std::int64_t>(host.pushes_by_others_since_pull(rank)),
                        .others = others,
                        .own_key = of.expected},
                       price_);
    if (!best) return;
    if (*best > host.now()) {
      host.set_timer(rank, kTimerAbort, *best);
    } else {
      host.resync(rank);
    }
  }

  void save_forecast(std::vector<std::int64_t>& out) const {
    out.insert(out.end(), {forecast_epochs_, std::bit_cast<std::int64_t>(computed_s_),
                           std::bit_cast<std::int64_t>(wasted_s_), paused_ ? 1 : 0});
    const std::size_t count_at = out.size();
    out.push_back(0);
    forecasts_.for_each([&](Rank rank, const Forecast& of) {
      if (!of.spans.predict()) return;
      ++out[count_at];
      const std::vector<std::int64_t> spans = of.spans.save();
      out.insert(out.end(),
                 {static_cast<std::int64_t>(rank), static_cast<std::int64_t>(spans.size())});
      out.insert(out.end(), spans.begin(), spans.end());
    });
  }
  void load_forecast(StateReader& reader) {
    forecast_epochs_ = reader.next(0, limits::kIterationMax);
    computed_s_ = std::bit_cast<double>(reader.next());
    wasted_s_ = std::bit_cast<double>(reader.next());
    if (!std::isfinite(computed_s_) || !std::isfinite(wasted_s_)) reader.fail();
    paused_ = reader.next(0, 1) == 1;
    for (std::int64_t i = reader.next(0, limits::kWorkersPerJobMax); i > 0 && reader.ok(); --i) {
      Forecast& of =
          forecasts_.get(static_cast<Rank>(reader.next(0, limits::kWorkersPerJobMax - 1)));
      if (!of.spans.load(reader.take(reader.next()))) reader.fail();
    }
  }

  // The price of a restart. O(workers).
  void find_price(const PolicyHost& host) {
    std::vector<double> spans;
    double span = 0, error = 0;
    for (const Rank rank : host.active()) {
      const planners::IntervalPredictor& of = forecasts_.get(rank).spans;
      spans.push_back(static_cast<double>(of.predict().value_or(0)));
      span += spans.back();
      const auto by = static_cast<std::size_t>(of.chosen(of.errors()));
      error += static_cast<double>(of.errors()[by]) / planners::IntervalPredictor::kErrorScale;
    }
    // A worker that is slower than the others falls behind a cluster like one that is late once.
    double unlike = 0;
    const auto workers = static_cast<double>(spans.size());
    for (const double own : spans) unlike += std::abs(own - span / workers);
    // Where nothing is in clusters yet, only cheap restarts bring them about.
    price_ = std::min(planners::forecast_price(span, std::hypot(error, unlike)),
                      1 + static_cast<double>(forecast_epochs_ - 1) * kDearer);
  }

  // Every kForecastEpochs the account is closed: restarts go on if it was within the budget, else
  // they pause until it is.
  void end_forecast_epoch(const PolicyHost& host) {
    ++forecast_epochs_;
    find_price(host);
    // 105 instead of 100: what a fast worker throws away would have been more iterations.
    const bool within =
        wasted_s_ * 105 <=
        static_cast<double>(settings_.budget.value_or(kBudgetDefault)) * computed_s_;
    if (paused_) {
      if (!within) return;
      paused_ = false;
      forecast_epochs_ = 0;  // what were clusters are none any more
      price_ = 1;
    } else if (forecast_epochs_ % kForecastEpochs != 0) {
      return;
    } else if (!within) {
      paused_ = true;
      return;
    }
    computed_s_ = wasted_s_ = 0;
  }

  // ---- epochs

  void count_push(PolicyHost& host, Rank rank) {
    const Worker& worker = host.worker(rank);
    if (settings_.adaptive && !forecasts()) {
      log_.push_back({rank, worker.last_push_us});
      if (log_.size() > kLogMax) log_.pop_front();
    }
    if (forecasts() && worker.span_us >= 0) {
      forecasts_.get(rank).spans.observe(worker.span_us);
      computed_s_ += static_cast<double>(worker.span_us) / 1e6;
      wasted_s_ += static_cast<double>(worker.dropped_us) / 1e6;
    }
    trial_.add_loss(worker.loss);
    if (settings_.progress) fit_.add(worker.loss, host.pushes_by_others_since_pull(rank));
    Place& place = at(rank);
    if (worker.span_us >= 0) {
      place.span = std::max<Micros>(worker.span_us, 1);
      place.pull = worker.last_push_us - place.span;
      // Its first pull: of restarts that bring many updates nothing would be seen later.
      if (settings_.progress) place.pull -= worker.dropped_us;
    }
    if (!place.completed) ++completed_;
    place.completed = true;
    end_epoch_if_over(host);
  }

  void end_epoch_if_over(PolicyHost& host) {
    if (completed_ > 0 && completed_ >= host.active().size()) end_epoch(host);
  }
  void end_epoch(PolicyHost& host) {
    completed_ = 0;
    places_.for_each([](Rank, Place& place) { place.completed = false; });
    if (settings_.progress) fit_.end_epoch();
    if (forecasts()) {
      end_forecast_epoch(host);
    } else if (settings_.adaptive) {
      request_tuning(host);
      forget_log(host);
    }
    if (!settings_.auto_off) return;
    Fact fact;
    if (off_) {
      if (!trial_.end_epoch_without(host.now(), host.pushes())) return;
      fact.reason = kSpeculationBack;
    } else {
      const auto failure = trial_.end_epoch(host.now(), host.pushes());
      if (!failure) return;
      fact.reason = kSpeculationOff;
      fact.values = {failure->with, failure->without};
    }
    if (host.replaying()) return;  // its record follows
    off_ = !off_;
    host.note(std::move(fact));
  }

  void request_tuning(PolicyHost& host) {
    if (tuning_ != 0 || host.replaying() || off_) return;
    std::vector<planners::WorkerSpan> spans;
    RankMap<std::uint32_t> indices;  // into `spans`
    Micros earliest = kNever;
    tuned_.clear();
    for (const Rank rank : host.active()) {
      const Place& place = at(rank);
      if (place.span == 0) continue;
      indices.get(rank) = static_cast<std::uint32_t>(spans.size());
      spans.push_back({place.pull, place.span});
      tuned_.emplace_back(rank, place.span);
      earliest = std::min(earliest, place.pull);
    }
    if (spans.empty()) return;
    std::vector<planners::LoggedPush> pushes;
    for (const Push& push : log_) {
      if (push.time <= earliest) continue;
      const std::uint32_t* index = indices.find(push.rank);
      pushes.push_back({index != nullptr ? *index : planners::kNoWorker, push.time});
    }
    tuning_ = host.request_plan(std::make_shared<TuningWork>(
        settings_, std::move(spans), std::move(pushes),
        settings_.progress ? std::optional(fit_.lambda()) : std::nullopt));
  }

  // Nobody's next completed iteration has begun before its latest push.
  void forget_log(const PolicyHost& host) {
    Micros oldest = host.now();
    for (const Rank rank : host.active()) {
      oldest = std::min(oldest, host.worker(rank).last_push_us);
    }
    while (!log_.empty() && log_.front().time < oldest) log_.pop_front();
  }

  // `values` as they are recorded.
  void take_tuning(std::span<const std::int64_t> values) {
    places_.for_each(
        [](Rank, Place& place) { place.abort_time = place.tuned_span = place.tuned_workers = 0; });
    for (std::size_t i = 2; i + 2 < values.size(); i += 3) {
      if (values[i] < 0 || values[i] >= limits::kWorkersPerJobMax) continue;
      Place& place = at(static_cast<Rank>(values[i]));
      place.abort_time = values[i + 1];
      place.tuned_span = std::max<Micros>(values[i + 2], 1);
      place.tuned_workers = values[1];
    }
  }

  Settings settings_;
  Host base_host_{*this};
  bool off_ = false;  // for good
  SpeculationTrial trial_;
  ProgressFit fit_;            // of progress
  RankMap<Place> places_;      // of those who are not active all is empty
  std::size_t completed_ = 0;  // active workers that have completed an iteration in this epoch
  std::deque<Push> log_;       // in order of time
  std::uint64_t tuning_ = 0;   // the plan that is being computed; 0: none
  std::vector<std::pair<Rank, Micros>> tuned_;  // the workers and spans that it is made from

  // scope=forecast
  RankMap<Forecast> forecasts_;
  planners::PushForecast expected_;
  double price_ = 0;                  // of a restart, from the last epoch; 0: not known yet
  std::int64_t forecast_epochs_ = 0;  // since the job's start, or the end of a pause
  // The account.
  double computed_s_ = 0;  // in iterations that were pushed
  double wasted_s_ = 0;    // thrown away before them
  bool paused_ = false;    // more was than the budget has
};

// ---- the policy's text

bool parse_real(const PolicyText& text, const char* what, const std::string& value, double lowest,
                double highest, double& number, std::string& error) {
  const char* last = value.data() + value.size();
  const auto [end, code] = std::from_chars(value.data(), last, number);
  if (code == std::errc{} && end == last && number >= lowest && number <= highest) return true;
  error = policy_error(text, fmt::format("{} is '{}', allowed are numbers from {} to {}", what,
                                         value, decimal(lowest), decimal(highest)));
  return false;
}

bool parse_option(const PolicyText& text, const PolicyArgument& argument, Settings& settings,
                  std::string& error) {
  if (argument.key == "auto_off" && !settings.progress) {
    settings.auto_off = argument.value == "on";
    if (settings.auto_off || argument.value == "off") return true;
    error =
        policy_error(text, fmt::format("auto_off is '{}', allowed are on, off", argument.value));
    return false;
  }
  const bool adaptive = settings.adaptive && !settings.progress;
  if (adaptive && argument.key == "scope") {
    return parse_choice(text, argument, settings.scope, error);
  }
  if (adaptive && argument.key == "budget") {
    const auto percent = parse_policy_integer(text, "budget", argument.value, 1, 100, error);
    settings.budget = percent;
    return percent.has_value();
  }
  if (adaptive && argument.key == "cap") {
    return parse_choice(text, argument, settings.cap, error);
  }
  return parse_parameter(
      text, argument, kSpecsyncParameters,
      "specsync takes specsync:adaptive[,scope=job|worker|forecast][,cap=span|authors][,budget=P]"
      "[,max_restarts=N][,auto_off=on|off]+BASE, specsync:progress[,max_restarts=N]+BASE or "
      "specsync:fixed,ABORT_TIME_MS,ABORT_RATE[,max_restarts=N][,auto_off=on|off]+BASE",
      settings, error);
}

}  // namespace

std::unique_ptr<Policy> make_specsync(const PolicyText& text, std::unique_ptr<Policy> base,
                                      std::string& error) {
  const std::string under = split_policy_text(base->name()).name;
  if (under != "asp" && under != "ssp" && under != "dssp") {
    error =
        policy_error(text, fmt::format("specsync is laid over asp, ssp:S or dssp:SL-SU, not over "
                                       "'{}', such as specsync+asp",
                                       base->name()));
    return nullptr;
  }
  Settings settings;
  std::size_t next = 0;
  const auto positional = [&](std::size_t i) {
    return i < text.arguments.size() && text.arguments[i].key.empty();
  };
  if (positional(0) && text.arguments[0].value == "fixed") {
    if (!positional(1) || !positional(2)) {
      error = policy_error(text,
                           "fixed needs ABORT_TIME in ms and ABORT_RATE as a share of the workers: "
                           "specsync:fixed,ABORT_TIME_MS,ABORT_RATE+BASE, such as "
                           "specsync:fixed,200,0.25+asp");
      return nullptr;
    }
    settings.adaptive = settings.auto_off = false;
    double time_ms = 0;
    if (!parse_real(text, "ABORT_TIME_MS", text.arguments[1].value, 0.001,
                    static_cast<double>(limits::kSpanMax / 1000), time_ms, error) ||
        !parse_real(text, "ABORT_RATE", text.arguments[2].value, 0, kRateMax, settings.abort_rate,
                    error)) {
      return nullptr;
    }
    settings.abort_time = std::llround(time_ms * 1000);
    next = 3;
  } else if (positional(0) && text.arguments[0].value == "adaptive") {
    next = 1;
  } else if (positional(0) && text.arguments[0].value == "progress") {
    settings.progress = true;
    settings.auto_off = false;
    next = 1;
  }
  for (; next < text.arguments.size(); ++next) {
    if (!parse_option(text, text.arguments[next], settings, error)) return nullptr;
  }
  const bool forecasts = settings.scope == Scope::kForecast;
  if (settings.budget && !forecasts) {
    error = policy_error(text, "budget bounds the restarts of scope=forecast, which is not given");
    return nullptr;
  }
  if (settings.cap != planners::AbortCap::kAuthors && forecasts) {
    error = policy_error(text, "scope=forecast tunes no ABORT_TIME that cap could bound");
    return nullptr;
  }
  return std::make_unique<SpecSync>(settings, std::move(base));
}

}  // namespace syncd
