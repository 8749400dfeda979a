// Runs in virtual time: see run.h. One thread.
#include "reference_trainer/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>

#include "daemon/core/engine/limits.h"
#include "daemon/core/policies/graph_file.h"
#include "daemon/tools/sim/model.h"
#include "daemon/tools/sim/simulation.h"
#include "reference_trainer/params/cpu_machine.h"
#include "reference_trainer/params/weighted_mean.h"
#include "reference_trainer/run/clock.h"
#include "reference_trainer/run/policies.h"
#include "reference_trainer/run/process.h"

namespace syncd::trainer {
namespace {

// The loss is looked at so often that it costs about a fifth of what training does, which computes
// some three times as much per sample: after so many iterations per held-out sample and minibatch.
constexpr double kEvaluateEvery = 1.5;
// But in a run of any length that is known at least so many times.
constexpr std::int64_t kCurvePointsMin = 100;
// So many spans of all workers together are kept for the timeline (40 bytes each); of a longer run
// the middle is not shown.
constexpr std::size_t kSpansMax = 2'000'000;

sim::Options simulation_options(const RunSettings& settings, const VirtualSettings& virtually) {
  sim::Options options;
  options.workers = static_cast<std::uint32_t>(settings.workload.workers);
  options.policy = settings.policy;
  options.seed = settings.workload.seed;
  options.delay_us = virtually.delay_us;
  options.transfer_us = virtually.transfer_us;
  options.host_sizes = virtually.host_sizes;
  options.duration_us =
      settings.seconds_max > 0 ? std::llround(settings.seconds_max * 1e6) : limits::kSpanMax;
  const auto peers = peer_policy(settings.policy, settings.hop_order);
  options.serial = peers && peers->compute_first;
  std::string error;
  const auto time = sim::parse_iteration_time(virtually.iteration_time, error);
  if (!time) throw std::invalid_argument("--iteration-time: " + error);
  options.iteration_time = *time;
  options.slowdown = parse_slowdown(settings.slowdown, settings.workload.workers);
  options.graph_file = read_graph_file(settings.policy);
  return options;
}

RunBoard board_of(const RunSettings& settings) {
  BoardConfig config{};
  config.workload = settings.workload;
  config.budget = settings.budget;
  config.iterations = settings.iterations;
  return RunBoard::create(config);
}

// What all kinds of runs have in common: budget, clock, counters, the loss curve.
class VirtualRun : public sim::Model {
 public:
  VirtualRun(const RunSettings& settings, const Workload& workload)
      : settings_(settings),
        workload_(workload),
        board_(board_of(settings)),
        snapshot_(workload.layout().parameters),
        workers_(static_cast<std::size_t>(settings.workload.workers)) {
    const double every =
        kEvaluateEvery * static_cast<double>(workload.held_out_samples()) / settings.workload.batch;
    evaluate_every_ = std::max<std::int64_t>(1, std::llround(every));
    if (settings.iterations > 0) {
      const auto all = settings.iterations * static_cast<std::int64_t>(workers_.size());
      evaluate_every_ = std::clamp<std::int64_t>(all / kCurvePointsMin, 1, evaluate_every_);
    }
    if (settings.seconds_max > 0) {
      evaluate_every_us_ = std::llround(settings.seconds_max * 1e6 / kCurvePointsMin);
    }
    result_.policy = settings.policy;
    result_.workers.resize(workers_.size());
    workload.initialize(snapshot_);
    for (Worker& worker : workers_) {
      const auto rank = static_cast<std::int32_t>(&worker - workers_.data());
      worker.stepper = workload.make_stepper(rank);
      worker.stepper->interruptible(false);  // what is dropped was never computed
      workload.initialize(worker.stepper->replica());
    }
  }

  RunResult execute(sim::Options options, const RunObserver& observer) {
    observer_ = &observer;
    if (const std::string wrong = sim::check_options(options); !wrong.empty()) {
      throw std::invalid_argument(wrong);
    }
    options.model = this;
    evaluate(0);
    const sim::Result simulated = sim::Simulation(std::move(options)).run();
    if (simulated.stalled) {
      result_.failure =
          "nobody can go on: " + (simulated.waits.empty() ? std::string("no reason is known")
                                                          : simulated.waits.front().text);
    } else if (!simulated.refused.empty()) {
      result_.failure = simulated.refused.front();
    }
    finish();
    return std::move(result_);
  }

  // ---- sim::Model

  bool enough(Micros now) override {
    now_ = now;
    if (interrupt_count() > 0) result_.interrupted = true;
    if (result_.interrupted || reached_) return true;
    if (result_.iterations >= next_evaluation_ ||
        (evaluate_every_us_ > 0 && now >= next_evaluation_us_)) {
      evaluate(now);
    }
    tell_progress();
    return reached_ || left_ == workers_.size();
  }

  bool goes_on(Rank rank) override {
    if (board_.claim_iteration(static_cast<int>(rank))) return true;
    ++left_;
    return false;
  }

  void start(Rank rank) override {
    Worker& worker = workers_[rank];
    workload_.initialize(worker.stepper->replica());
    worker.stepper->replica_changed();
  }

  void granted(Rank rank, const wire::Granted& granted) override {
    if ((granted.flags & wire::kStepStop) != 0) return;
    slot(rank).note_grant(granted.staleness);
    if (start_ < 0) start_ = now_;
    Worker& worker = workers_[rank];
    worker.iteration = granted.iteration;
    worker.grant_flags = 0;
    if ((granted.flags & wire::kStepBarrier) != 0) worker.grant_flags |= kSpanBarrier;
    if ((granted.flags & wire::kStepSkip) != 0) worker.grant_flags |= kSpanSkip;
  }

  // The wait for the job to start is nobody's slowness.
  void waited(Rank rank, Micros since, Micros until) override {
    Worker& worker = workers_[rank];
    const bool started = std::exchange(worker.has_begun, true);
    if (started) count(slot(rank).waiting_us, until - since);
    note(worker, {.start_us = started ? since : until,
                  .end_us = until,
                  .kind = SpanKind::kWaiting,
                  .flags = std::exchange(worker.grant_flags, std::uint8_t{0})});
  }

  void computed(Rank rank, Micros since, Micros until, bool dropped) override {
    count(slot(rank).computing_us, until - since);
    workers_[rank].spent_us = until - since;
    note(workers_[rank], {.start_us = since,
                          .end_us = until,
                          .kind = dropped ? SpanKind::kWasted : SpanKind::kComputing});
    if (!dropped) return;
    count(slot(rank).wasted_us, until - since);
    count(slot(rank).restarts, 1);
  }

  void transferred(Rank rank, Micros since, Micros until) override {
    count(slot(rank).pushing_us, until - since);
    note(workers_[rank], {.start_us = since, .end_us = until, .kind = SpanKind::kPushing});
  }

  void jumped(Rank rank, std::int64_t iterations) override {
    count(slot(rank).skipped, iterations);
  }

  // The gradient of one minibatch on the worker's own parameters.
  void compute(Rank rank, Iteration batch) override {
    compute_parts(*workers_[rank].stepper,
                  {.worker = static_cast<std::int32_t>(rank), .iteration = batch});
  }

 protected:
  struct Worker {
    std::unique_ptr<Stepper> stepper;
    bool has_begun = false;
    Micros spent_us = 0;  // on the latest minibatch
    Iteration iteration = 0;
    std::uint8_t grant_flags = 0;  // of the grant that ends the present wait
    std::vector<Span> spans;
  };

  // The parameters whose loss counts.
  virtual void read_parameters(std::span<float> out) = 0;
  // Where each worker has its own: of worker 0's.
  virtual std::optional<double> loss_of_one() const { return std::nullopt; }

  // One that has overflowed is not known, as in the C interface.
  static std::optional<double> known(double loss) {
    return std::isfinite(loss) ? std::optional(loss) : std::nullopt;
  }

  void count_iteration(Rank rank) {
    count(slot(rank).iterations, 1);
    ++result_.iterations;
    last_ = now_;
  }

  void note(Worker& worker, Span span) {
    if (++spans_ > kSpansMax) return;
    span.iteration = worker.iteration;
    worker.spans.push_back(span);
  }

  void note_late(Worker& worker) {
    note(worker,
         {.start_us = now_, .end_us = now_, .kind = SpanKind::kPushing, .flags = kSpanLate});
  }

  WorkerSlot& slot(Rank rank) const { return board_.slot(static_cast<int>(rank)); }

  const RunSettings& settings_;
  const Workload& workload_;
  RunBoard board_;  // for its budget and its counters
  RunResult result_;
  std::vector<float> snapshot_;
  std::vector<Worker> workers_;
  std::int64_t transfers_ = 0;  // of parameters and updates

 private:
  // The time that people wait for is the machine's own.
  void tell_progress() {
    if (observer_ == nullptr || !observer_->progress) return;
    SystemClock clock;
    if (began_us_ == 0) began_us_ = clock.now_us();
    observer_->progress(
        {.iterations = result_.iterations,
         .iterations_max = settings_.iterations * static_cast<std::int64_t>(workers_.size()),
         .seconds = in_seconds(clock.now_us() - began_us_),
         .seconds_max = 0,
         .loss = result_.curve.back().loss});
  }

  void evaluate(Micros now) {
    read_parameters(snapshot_);
    const auto [loss, accuracy] = workload_.assess(snapshot_);
    const double time_s = start_ < 0 ? 0 : in_seconds(now - start_);
    result_.curve.push_back({.time_s = time_s,
                             .iterations = result_.iterations,
                             .loss = loss,
                             .accuracy = accuracy,
                             .loss_of_one = loss_of_one(),
                             .transfers = transfers_});
    next_evaluation_ = result_.iterations + evaluate_every_;
    next_evaluation_us_ = now + evaluate_every_us_;
    reached_ = settings_.stop_at_loss && result_.iterations > 0 &&
               is_at_loss(result_.curve, *settings_.stop_at_loss);
  }

  void finish() {
    const Micros start = std::max<Micros>(start_, 0);
    result_.seconds = in_seconds(std::max<Micros>(last_ - start, 0));
    evaluate(std::max(last_, start));
    result_.accuracy = workload_.accuracy(snapshot_);
    SpanRecord record{.start_us = start, .end_us = last_, .workers = {}};
    for (Worker& worker : workers_) record.workers.push_back(std::move(worker.spans));
    mark_supersteps(record, superstep_of(settings_.policy));
    result_.timeline = choose_window(record, (start + last_) / 2, start);
    result_.updates = result_.iterations;
    collect(board_, result_);
    for (WorkerResult& worker : result_.workers) {
      worker.finished = result_.failure.empty();
      worker.end = worker.finished ? "finished" : result_.failure;
    }
  }

  const RunObserver* observer_ = nullptr;
  std::int64_t began_us_ = 0;
  std::size_t spans_ = 0;
  std::int64_t evaluate_every_ = 1;
  std::int64_t next_evaluation_ = 0;
  Micros evaluate_every_us_ = 0;  // at the latest; 0: no run of a known time
  Micros next_evaluation_us_ = 0;
  std::size_t left_ = 0;
  bool reached_ = false;  // the loss at which the run was to end
  Micros now_ = 0;
  Micros start_ = -1;  // of the first grant
  Micros last_ = 0;    // when an iteration was counted last
};

// All workers share one store.
class StoreRun final : public VirtualRun {
 public:
  StoreRun(const RunSettings& settings, const Workload& workload)
      : VirtualRun(settings, workload),
        store_(SharedParameters::of_store(device_, workload.layout(), settings.workload.workers,
                                          snapshot_, false)),
        exchanges_(workers_.size()),
        pulled_(workers_.size()) {}

  void start(Rank rank) override {
    VirtualRun::start(rank);
    exchanges_[rank].emplace(static_cast<int>(rank), store_, *workers_[rank].stepper);
  }

  void pull(Rank rank) override {
    exchanges_[rank]->pull();
    count(slot(rank).pulls, 1);
    ++transfers_;
    pulled_[rank] = updates_;
  }

  std::optional<double> publish(Rank rank, Iteration /*k*/) override {
    ++transfers_;
    const std::optional<PushReport> update = exchanges_[rank]->push();
    unseen_ += updates_ - pulled_[rank];
    ++updates_;
    ++pulled_[rank];  // what it sent, it has
    return known(update->loss);
  }

  void pushed(Rank rank, Iteration /*k*/, bool late) override {
    if (!late) return count_iteration(rank);
    exchanges_[rank]->take_back();
    note_late(workers_[rank]);
    count(slot(rank).late, 1);
    count(slot(rank).wasted_us, workers_[rank].spent_us);
    board_.give_back_iteration(static_cast<int>(rank));
  }

  std::optional<double> unseen_updates() const {
    if (updates_ == 0) return std::nullopt;
    return static_cast<double>(unseen_) / static_cast<double>(updates_);
  }

  void send(Rank, Rank, Iteration) override {}
  void arrived(Rank, Rank, Iteration) override {}
  void reduce(Rank, Iteration, const std::vector<wire::PeerUpdate>&, bool) override {}

 private:
  void read_parameters(std::span<float> out) override { store_.store().read_all(out); }

  MachineDevice<CpuMachine> device_{CpuMachine(true)};
  SharedParameters store_;
  std::vector<std::optional<HostParameterExchange>> exchanges_;
  std::int64_t updates_ = 0;          // that were added to it
  std::vector<std::int64_t> pulled_;  // as many of them each worker's replica has
  std::int64_t unseen_ = 0;           // summed up over all pushes
};

// Every worker has parameters of its own: see peer_loop.h for the order of things.
class PeerRun final : public VirtualRun {
 public:
  PeerRun(const RunSettings& settings, const PeerPolicy& policy, const Workload& workload)
      : VirtualRun(settings, workload),
        policy_(policy),
        peers_(workers_.size()),
        mean_(workload.layout().parameters) {}

  void start(Rank rank) override {
    VirtualRun::start(rank);
    peers_[rank] = {};
  }

  void compute(Rank rank, Iteration batch) override {
    VirtualRun::compute(rank, batch);
    peers_[rank].update = &workers_[rank].stepper->finish();
    if (policy_.compute_first) apply(rank);
  }

  std::optional<double> publish(Rank rank, Iteration /*k*/) override {
    const Update* update = peers_[rank].update;
    return update != nullptr ? known(update->loss) : std::nullopt;
  }

  // To however many others it sends, these are the same parameters. As many as an update queue has
  // places are kept.
  void send(Rank from, Rank /*to*/, Iteration k) override {
    ++transfers_;
    std::deque<Sent>& sent = peers_[from].sent;
    if (!sent.empty() && sent.back().iteration == k) return;
    const std::span<const float> own = workers_[from].stepper->replica();
    sent.push_back({k, std::vector<float>(own.begin(), own.end())});
    const auto kept = static_cast<std::size_t>(policy_.unsafe ? kPostedKept : policy_.slots);
    if (sent.size() > kept) sent.pop_front();
  }

  void arrived(Rank from, Rank to, Iteration k) override {
    peers_[to].arrived[from] = k;  // messages of one worker arrive in order
  }

  void reduce(Rank rank, Iteration /*k*/, const std::vector<wire::PeerUpdate>& updates,
              bool renews) override {
    const std::span<float> own = workers_[rank].stepper->replica();
    mean_.clear();
    for (const wire::PeerUpdate& update : updates) {
      if (update.iteration == kTorn) {
        count(slot(rank).torn_updates, 1);
        continue;
      }
      const std::span<const float> values = update.rank == rank ? own : find(rank, update);
      if (values.empty()) {
        count(slot(rank).missing_updates, 1);
        continue;
      }
      if (update.rank != rank) count(slot(rank).reduced, 1);
      mean_.add(values, update.weight);
    }
    if (mean_.write(own)) workers_[rank].stepper->replica_changed();
    if (renews) return;
    if (!policy_.compute_first) apply(rank);
    count_iteration(rank);
  }

  void pull(Rank) override {}
  void pushed(Rank, Iteration, bool) override {}

  std::optional<double> loss_of_one() const override {
    return workload_.evaluate(workers_.front().stepper->replica());
  }

 private:
  // Under an unsafe baseline: the one that is being sent, the one before, and some more for
  // messages that take longer than an iteration; older ones count as missing.
  static constexpr std::int64_t kPostedKept = 4;

  struct Sent {
    Iteration iteration = 0;
    std::vector<float> values;
  };
  struct Peer {
    const Update* update = nullptr;  // of the latest minibatch
    std::deque<Sent> sent;
    std::map<Rank, Iteration> arrived;  // the latest, by sender
  };

  void apply(Rank rank) {
    Stepper& stepper = *workers_[rank].stepper;
    add_update(*peers_[rank].update, stepper.replica());
    stepper.replica_changed();
  }

  // What `at` has received of it; empty: nothing.
  std::span<const float> find(Rank at, const wire::PeerUpdate& update) const {
    const auto arrived = peers_[at].arrived.find(update.rank);
    if (arrived == peers_[at].arrived.end() || arrived->second < update.iteration) return {};
    for (const Sent& sent : peers_[update.rank].sent) {
      if (sent.iteration == update.iteration) return sent.values;
    }
    return {};
  }

  void read_parameters(std::span<float> out) override {
    WeightedMean mean(out.size());
    for (const Worker& worker : workers_) mean.add(worker.stepper->replica(), 1);
    mean.write(out);
  }

  const PeerPolicy policy_;
  std::vector<Peer> peers_;
  WeightedMean mean_;
};

}  // namespace

RunResult run_virtually(const RunSettings& settings, const VirtualSettings& virtually,
                        const Workload& workload, const SharedArrays& data,
                        const RunObserver& observer) {
  sim::Options options = simulation_options(settings, virtually);
  if (settings.verbose && observer.notify) observer.notify("training in virtual time");
  const auto peers = peer_policy(settings.policy, settings.hop_order);
  if (!peers) {
    StoreRun run(settings, workload);
    RunResult result = run.execute(std::move(options), observer);
    result.unseen_updates = run.unseen_updates();
    return result;
  }
  const auto own = make_peer_workload(settings.workload, workload, data);
  PeerRun run(settings, *peers, *own);
  RunResult result = run.execute(std::move(options), observer);
  result.one_worker_loss = run.loss_of_one();
  return result;
}

}  // namespace syncd::trainer
