// One run from start to end: see run.h. Everything here runs on the parent's main thread.
#include "reference_trainer/run/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <stdexcept>

#include "reference_trainer/params/device_store.h"
#include "reference_trainer/params/store_devices.h"
#include "reference_trainer/run/clock.h"
#include "reference_trainer/run/policies.h"
#include "reference_trainer/run/process.h"
#include "reference_trainer/run/worker.h"
#include "reference_trainer/run/worker_checkpoints.h"

namespace syncd::trainer {
namespace {

constexpr std::int64_t kTickUs = 10'000;
constexpr std::int64_t kEvaluateEveryUs = 50'000;
constexpr std::int64_t kEvaluateShareMax = 10;  // at most a tenth of the time goes into evaluating
constexpr std::int64_t kStallNoticeUs = 30'000'000;
constexpr std::int64_t kGraceUs = 5'000'000;  // beyond what an iteration may take
constexpr std::int64_t kNoDaemonGraceUs = 500'000;

std::int64_t load(const std::atomic<std::int64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

// What all workers begin with.
std::vector<float> initial_parameters(const RunSettings& settings, const Workload& workload) {
  if (settings.plan != nullptr && settings.plan->resume) return settings.plan->resume->parameters;
  std::vector<float> parameters(workload.layout().parameters);
  workload.initialize(parameters);
  return parameters;
}

// Where a run's parameters are: in a store that all workers share, or with each worker.
std::shared_ptr<SharedParameters> make_shares(const RunSettings& settings, const Workload& workload,
                                              std::span<const float> initial) {
  const int workers = settings.workload.workers;
  const Backend backend =
      settings.store_in == StoreIn::kHost ? Backend::kCpu : settings.workload.backend;
  StoreDevice& device = settings.device != nullptr ? *settings.device : store_device(backend);
  const bool shares = settings.workers_as == WorkersAs::kProcesses;
  if (const auto peers = peer_policy(settings.policy)) {
    return std::make_shared<SharedParameters>(
        SharedParameters::of_queues(device, workers, peers->slots, initial, shares));
  }
  return std::make_shared<SharedParameters>(
      SharedParameters::of_store(device, workload.layout(), workers, initial, shares));
}

BoardConfig board_config(const RunSettings& settings, int parameters_fd, int data_fd) {
  BoardConfig config{};
  config.workload = settings.workload;
  config.budget = settings.budget;
  config.iterations = settings.iterations;
  config.iteration_us = settings.iteration_us;
  config.hop_order = settings.hop_order;
  config.parameters_fd = parameters_fd;
  config.are_on_host = settings.store_in == StoreIn::kHost;
  config.data_fd = data_fd;
  set_field(config.slowdown, settings.slowdown, "slowdown");
  set_field(config.addresses, settings.addresses, "daemon's address");
  set_field(config.job, settings.job, "job's name");
  set_field(config.policy, settings.policy, "policy");
  if (settings.plan == nullptr) return config;
  const CheckpointPlan& plan = *settings.plan;
  set_field(config.checkpoints, plan.directory.native(), "directory of checkpoints");
  config.checkpoint_every = plan.every;
  config.start = plan.start;
  config.launch = plan.launch;
  if (plan.resume) {
    config.resume_start = plan.resume->id.start;
    config.resume_number = plan.resume->id.number;
    config.resume_at = plan.resume->iteration;
  }
  return config;
}

// The monitor of one run.
class Run {
 public:
  Run(const RunSettings& settings, const Workload& workload, const SharedArrays& data,
      DaemonProcess* daemon, const RunObserver& observer)
      : settings_(settings),
        workload_(workload),
        daemon_(daemon),
        observer_(observer),
        initial_(initial_parameters(settings, workload)),
        shares_(make_shares(settings, workload, initial_)),
        board_(RunBoard::create(board_config(settings, shares_->fd(), data.fd()))),
        snapshot_(initial_.size()),
        timeline_(settings.policy) {
    result_.policy = settings.policy;
    result_.job = settings.job;
    result_.workers.resize(static_cast<std::size_t>(settings.workload.workers));
    if (settings.plan == nullptr || !settings.plan->resume) return;
    const Checkpoint& resume = *settings.plan->resume;
    result_.earlier = resume.all_iterations();
    for (int worker = 0; worker < board_.workers(); ++worker) {
      board_.add_earlier(worker, resume.iterations[static_cast<std::size_t>(worker)]);
    }
  }

  RunResult execute() {
    evaluate();  // the point at time 0
    for (int worker = 0; worker < board_.workers() && !device_failed_; ++worker) {
      workers_.push_back(settings_.workers_as == WorkersAs::kThreads
                             ? start_worker_thread(worker, board_, shares_)
                             : start_worker_process(worker, board_));
    }
    last_progress_us_ = clock_.now_us();
    while (running() > 0) {
      clock_.sleep_us(kTickUs);
      reap();
      watch_daemon();
      announce_start();
      announce_trouble();
      watch_interrupts_and_limits();
      watch_progress();
      enforce_stop();
      timeline_.look(board_, start_us(), clock_.now_us());
      if (started() && clock_.now_us() >= next_evaluation_us_) evaluate();
      tell_progress();
    }
    finish();
    return std::move(result_);
  }

 private:
  bool started() const { return start_us() != 0; }

  // The moment of the first grant, or 0.
  std::int64_t start_us() const {
    std::int64_t first = 0;
    for (int worker = 0; worker < board_.workers(); ++worker) {
      const std::int64_t moment = load(board_.slot(worker).first_grant_us);
      if (moment != 0 && (first == 0 || moment < first)) first = moment;
    }
    return first;
  }

  std::int64_t iterations() const {
    std::int64_t sum = 0;
    for (int worker = 0; worker < board_.workers(); ++worker) {
      sum += load(board_.slot(worker).iterations);
    }
    return sum;
  }

  int running() {
    return static_cast<int>(std::count_if(workers_.begin(), workers_.end(),
                                          [](const auto& worker) { return !worker->poll(); }));
  }

  void reap() {
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      WorkerResult& worker = result_.workers[i];
      if (!worker.end.empty()) continue;
      const auto end = workers_[i]->poll();
      if (!end) continue;
      worker.finished = end->finished;
      worker.end = end->text;
      // Its own word is missing if it was killed.
      if (!end->finished) {
        board_.slot(static_cast<int>(i)).state.store(WorkerState::kFailed);
      }
      if (!end->finished && !end->runs_on) close_shards(static_cast<int>(i));
      if (worker.finished || ending_) continue;
      observer_.notify(fmt::format("worker {} ended: {}", i, worker.end));
      // Before the start, the others wait for it in vain: the daemon does not know that it is gone
      // for good, or that it will never come.
      if (!started()) fail(fmt::format("worker {}: {}", i, worker.end), StopLevel::kAbandon);
    }
  }

  // Others wait for what a worker that is gone was just writing.
  void close_shards(int worker) {
    if (!shares_->has_store()) return;
    std::size_t shards = 0;
    ask_device([&] { shards = shares_->close_shards(worker); });
    if (shards == 0) return;
    observer_.notify(
        fmt::format("worker {} ended in the middle of an update: what it had written in {} shards "
                    "of parameters stays there",
                    worker, shards));
  }

  // A device that fails ends this run, and what was trained before is still reported.
  void ask_device(const std::function<void()>& call) {
    if (device_failed_) return;
    try {
      call();
    } catch (const std::runtime_error& error) {
      device_failed_ = true;
      fail(fmt::format("the parameters cannot be reached: {}", error.what()), StopLevel::kAbandon);
    }
  }

  // Into snapshot_; `counts` says which workers' parameters count. False: not just now, because a
  // worker may have died in the middle of an update, or not any more.
  bool read(const std::vector<bool>& counts) {
    bool is_read = false;
    ask_device([&] {
      if (shares_->has_store()) {
        is_read = shares_->store().read_all(snapshot_);
        return;
      }
      if (!average_published(shares_->queues(), counts, snapshot_)) snapshot_ = initial_;
      is_read = true;
    });
    return is_read;
  }

  void announce_start() {
    if (announced_ || !settings_.verbose || !started()) return;
    announced_ = true;
    observer_.notify("the workers have joined and the first iteration was granted");
  }

  // Once in a run, so that nobody wonders why nothing happens.
  void announce_trouble() {
    for (int worker = 0; worker < board_.workers() && !trouble_announced_; ++worker) {
      const WorkerSlot& slot = board_.slot(worker);
      if (slot.retries.load(std::memory_order_acquire) == 0) continue;
      trouble_announced_ = true;
      observer_.notify(fmt::format("worker {}: {}; workers try such calls again until they succeed",
                                   worker, slot.trouble.get()));
    }
  }

  void watch_daemon() {
    if (daemon_ == nullptr || ending_) return;
    if (const auto text = daemon_->failure()) {
      fail(*text, StopLevel::kAbandon);
      // Without a daemon nobody can leave in good order: this is for what computes just now.
      kill_deadline_us_ = clock_.now_us() + kNoDaemonGraceUs;
    }
  }

  void watch_interrupts_and_limits() {
    if (interrupt_count() > 0 && !result_.interrupted) {
      result_.interrupted = true;
      if (settings_.plan != nullptr) {
        board_.request_preemption();
        ending_ = true;
        kill_deadline_us_ = clock_.now_us() + kPreemptionWaitUs + kGraceUs;
      } else {
        request_stop(StopLevel::kAbandon);
      }
    }
    if (interrupt_count() > 1) {
      board_.request_stop(StopLevel::kAbandon);
      kill_deadline_us_ = 0;
    }
    if (settings_.seconds_max > 0 && started() && !ending_ &&
        static_cast<double>(clock_.now_us() - start_us()) >= settings_.seconds_max * 1e6) {
      request_stop(StopLevel::kFinish);
    }
  }

  // A run in which nothing happens says why, and does not last for ever.
  void watch_progress() {
    const std::int64_t count = iterations();
    const std::int64_t now_us = clock_.now_us();
    if (count != last_iterations_) {
      last_iterations_ = count;
      last_progress_us_ = now_us;
      notices_ = 0;
    }
    if (ending_) return;
    const std::int64_t idle_us = now_us - last_progress_us_;
    if (idle_us > kStallNoticeUs * (notices_ + 1)) {
      ++notices_;
      observer_.notify(fmt::format("no worker has finished an iteration for {:.0f} s{}",
                                   in_seconds(idle_us), waiting_text()));
    }
    if (settings_.stall_seconds > 0 &&
        static_cast<double>(idle_us) > settings_.stall_seconds * 1e6 + longest_iteration_us() * 3) {
      fail(fmt::format("no worker finished an iteration for {:.0f} s{}", in_seconds(idle_us),
                       waiting_text()),
           StopLevel::kAbandon);
    }
  }

  std::string waiting_text() const {
    for (int worker = 0; worker < board_.workers(); ++worker) {
      const std::string text = board_.slot(worker).waiting_for.get();
      if (!text.empty()) return fmt::format("; worker {}: {}", worker, text);
    }
    return "";
  }

  double longest_iteration_us() const {
    return static_cast<double>(settings_.iteration_us) *
           slow_factors(settings_.slowdown, settings_.workload).largest();
  }

  void fail(const std::string& reason, StopLevel level) {
    if (result_.failure.empty()) result_.failure = reason;
    request_stop(level);
  }

  void request_stop(StopLevel level) {
    board_.request_stop(level);
    const auto iteration_us = static_cast<std::int64_t>(2 * longest_iteration_us());
    const std::int64_t patience_us = kGraceUs + (level == StopLevel::kFinish ? iteration_us : 0);
    const std::int64_t deadline_us = clock_.now_us() + patience_us;
    kill_deadline_us_ = ending_ ? std::min(kill_deadline_us_, deadline_us) : deadline_us;
    ending_ = true;
  }

  // Workers that do not end within the time for it are first told to drop what they do, then
  // killed.
  void enforce_stop() {
    if (!ending_ || clock_.now_us() < kill_deadline_us_) return;
    if (board_.stop() != StopLevel::kAbandon) {
      board_.request_stop(StopLevel::kAbandon);
      kill_deadline_us_ = clock_.now_us() + kGraceUs;
      return;
    }
    for (const auto& worker : workers_) worker->end();
  }

  void tell_progress() {
    if (!observer_.progress) return;
    const std::int64_t first_us = start_us();
    // Under either budget: every worker's share together.
    observer_.progress({.iterations = last_iterations_,
                        .iterations_max = settings_.iterations * board_.workers(),
                        .seconds = first_us == 0 ? 0 : in_seconds(clock_.now_us() - first_us),
                        .seconds_max = settings_.seconds_max,
                        .loss = result_.final_loss()});
  }

  void evaluate() {
    const std::int64_t before_us = clock_.now_us();
    const std::int64_t count = iterations();
    if (!read(not_lost())) return;  // soon again
    const auto [loss, accuracy] = workload_.assess(snapshot_);
    const std::int64_t cost_us = clock_.now_us() - before_us;
    next_evaluation_us_ = before_us + std::max(kEvaluateEveryUs, cost_us * kEvaluateShareMax);
    const double time_s = started() ? in_seconds(before_us - start_us()) : 0;
    result_.curve.push_back({std::max(0.0, time_s), count, loss, accuracy});
    if (settings_.stop_at_loss && started() && !ending_ &&
        is_at_loss(result_.curve, *settings_.stop_at_loss)) {
      request_stop(StopLevel::kFinish);
    }
  }

  std::vector<bool> not_lost() const {
    std::vector<bool> counts;
    for (const WorkerResult& worker : result_.workers) {
      counts.push_back(worker.finished || worker.end.empty());
    }
    return counts;
  }

  std::optional<double> one_worker_loss() {
    std::vector<bool> counts = not_lost();
    const auto first = std::find(counts.begin(), counts.end(), true);
    if (first == counts.end()) return std::nullopt;
    std::fill(first + 1, counts.end(), false);
    if (!read(counts)) return std::nullopt;
    return workload_.evaluate(snapshot_);
  }

  // After the last worker has ended.
  void finish() {
    reap();
    const std::int64_t first_us = start_us();
    std::int64_t last_us = first_us;
    collect(board_, result_);
    for (int worker = 0; worker < board_.workers(); ++worker) {
      last_us = std::max(last_us, load(board_.slot(worker).last_push_us));
    }
    result_.seconds = in_seconds(last_us - first_us);
    result_.iterations = iterations();
    result_.timeline = timeline_.finish(board_, first_us, last_us);
    if (read(not_lost())) {
      const auto [loss, accuracy] = workload_.assess(snapshot_);
      const double time_s = result_.curve.empty() ? 0 : result_.curve.back().time_s;
      result_.curve.push_back(
          {std::max(result_.seconds, time_s), result_.iterations, loss, accuracy});
      result_.accuracy = workload_.accuracy(snapshot_);
    }
    if (shares_->has_store()) {
      result_.updates = shares_->updates() + result_.earlier;
      result_.half_written = shares_->half_written();
    } else {
      result_.updates = result_.iterations;
      result_.one_worker_loss = one_worker_loss();
    }
    const bool any_finished = result_.lost_workers() < board_.workers();
    if (result_.failure.empty() && !result_.interrupted && !any_finished) {
      result_.failure = "no worker finished; worker 0: " + result_.workers.front().end;
    }
  }

  const RunSettings& settings_;
  const Workload& workload_;
  DaemonProcess* daemon_;
  const RunObserver& observer_;
  SystemClock clock_;
  std::vector<float> initial_;
  std::shared_ptr<SharedParameters> shares_;
  RunBoard board_;
  std::vector<float> snapshot_;
  std::vector<std::unique_ptr<RunningWorker>> workers_;
  RunResult result_;
  TimelineRecorder timeline_;
  bool announced_ = false;
  bool trouble_announced_ = false;
  bool device_failed_ = false;
  bool ending_ = false;
  std::int64_t kill_deadline_us_ = std::numeric_limits<std::int64_t>::max();
  std::int64_t next_evaluation_us_ = 0;
  std::int64_t last_progress_us_ = 0;
  std::int64_t last_iterations_ = 0;
  std::int64_t notices_ = 0;
};

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

double share_of(const std::vector<WorkerResult>& workers, std::int64_t WorkerResult::*time_us) {
  std::int64_t part = 0;
  std::int64_t active = 0;
  for (const WorkerResult& worker : workers) {
    part += worker.*time_us;
    active += worker.active_us();
  }
  return ratio(static_cast<double>(part), static_cast<double>(active));
}

}  // namespace

void collect(const RunBoard& board, RunResult& result) {
  std::vector<const StalenessHistogram*> staleness;
  for (int worker = 0; worker < board.workers(); ++worker) {
    WorkerSlot& slot = board.slot(worker);
    const auto from = slot.all();
    const auto to = result.workers[static_cast<std::size_t>(worker)].all();
    for (std::size_t i = 0; i < from.size(); ++i) *to[i] = load(*from[i]);
    staleness.push_back(&slot.staleness);
  }
  result.staleness = sum_of(staleness);
}

double RunResult::final_loss() const {
  return curve.empty() ? 0 : curve.back().loss;
}

double RunResult::iterations_per_s() const {
  return ratio(static_cast<double>(iterations - earlier), seconds);
}

double RunResult::waiting_share() const {
  return share_of(workers, &WorkerResult::waiting_us);
}

double RunResult::wasted_share() const {
  return share_of(workers, &WorkerResult::wasted_us);
}

double RunResult::staleness_mean() const {
  return ratio(static_cast<double>(sum_of(&WorkerResult::staleness_sum)),
               static_cast<double>(sum_of(&WorkerResult::grants)));
}

std::int64_t RunResult::sum_of(std::int64_t WorkerResult::*count) const {
  std::int64_t sum = 0;
  for (const WorkerResult& worker : workers) sum += worker.*count;
  return sum;
}

std::int64_t RunResult::staleness_max() const {
  std::int64_t largest = 0;
  for (const WorkerResult& worker : workers) largest = std::max(largest, worker.staleness_max);
  return largest;
}

int RunResult::lost_workers() const {
  return static_cast<int>(std::count_if(workers.begin(), workers.end(),
                                        [](const WorkerResult& w) { return !w.finished; }));
}

bool is_at_loss(const std::vector<CurvePoint>& curve, double target) {
  return curve.size() >= kPointsInARow &&
         std::all_of(curve.end() - kPointsInARow, curve.end(),
                     [&](const CurvePoint& point) { return point.loss <= target; });
}

const CurvePoint* reached_loss(const RunResult& result, double target) {
  std::size_t in_a_row = 0;
  for (const CurvePoint& point : result.curve) {
    in_a_row = point.loss <= target ? in_a_row + 1 : 0;
    if (in_a_row == kPointsInARow) return &point - (kPointsInARow - 1);
  }
  return nullptr;
}

RunResult run_training(const RunSettings& settings, const Workload& workload,
                       const SharedArrays& data, DaemonProcess* daemon,
                       const RunObserver& observer) {
  if (settings.store_in == StoreIn::kHost) {
    return Run(settings, workload, data, daemon, observer).execute();
  }
  std::unique_ptr<Run> run;
  try {
    run = std::make_unique<Run>(settings, workload, data, daemon, observer);
  } catch (const std::runtime_error& error) {
    // A device without room for this run's parameters may have had it for another's.
    RunResult result;
    result.policy = settings.policy;
    result.job = settings.job;
    result.failure = fmt::format("no place for the parameters: {}", error.what());
    result.workers.resize(static_cast<std::size_t>(settings.workload.workers));
    return result;
  }
  return run->execute();
}

}  // namespace syncd::trainer
