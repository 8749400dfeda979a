// The training loop of one worker: see worker_loop.h. Runs on the worker's only own thread.
#include "reference_trainer/worker_loop.h"

#include <algorithm>

namespace syncd::trainer {
namespace {

// Padding sleeps in slices of this length, between which the re-sync flag and the stop flag are
// read.
constexpr std::int64_t kSliceUs = 2'000;

void add(std::atomic<std::int64_t>& counter, std::int64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

void set_state(WorkerSlot& slot, WorkerState state) {
  slot.state.store(static_cast<std::int32_t>(state), std::memory_order_relaxed);
}

}  // namespace

WorkerLoop::WorkerLoop(int worker, const RunBoard& board, ParameterStore& store, Stepper& stepper,
                       Coordinator& coordinator, Clock& clock)
    : worker_(worker),
      board_(board),
      store_(store),
      stepper_(stepper),
      coordinator_(coordinator),
      clock_(clock),
      slot_(board.slot(worker)),
      slowdown_(Slowdown::parse(board.config().slowdown.data(), board.workers())),
      reader_(store) {}

void WorkerLoop::run() {
  bool left_by_job = false;
  for (;;) {
    try {
      if (!iterate()) break;
    } catch (const CoordinatorError& error) {
      if (error.kind() == CoordinatorError::Kind::kStopped) {
        left_by_job = true;
        break;
      }
      if (error.kind() != CoordinatorError::Kind::kFenced || rejoins_ >= kRejoinsMax) throw;
      rejoin();
    }
  }
  try {
    coordinator_.leave();
  } catch (const CoordinatorError& error) {
    // The daemon may have forgotten the worker when its job ended, which is what leaving is for.
    const bool gone = error.kind() == CoordinatorError::Kind::kStopped ||
                      error.kind() == CoordinatorError::Kind::kFenced;
    if (!left_by_job && !gone) throw;
  }
}

// One turn of the loop; false if there is nothing more to do.
bool WorkerLoop::iterate() {
  if (board_.stop() != StopLevel::kNone || !board_.claim_iteration(worker_)) return false;
  Step step;
  bool counted = false;
  try {
    if (begin(step)) {
      if (step.pull || step.skip || must_pull_) pull();
      counted = compute(step) == Outcome::kDone && push(step);
    } else {
      board_.give_back_iteration(worker_);
      return false;
    }
  } catch (...) {
    if (!counted) board_.give_back_iteration(worker_);
    throw;
  }
  if (!counted) board_.give_back_iteration(worker_);
  return true;
}

// Waits for a grant; false if the worker is to leave instead.
bool WorkerLoop::begin(Step& step) {
  set_state(slot_, WorkerState::kWaiting);
  const std::int64_t start_us = clock_.now_us();
  std::optional<Step> granted;
  while (!(granted = coordinator_.begin(kBeginSliceMs))) {
    slot_.waiting_for.set(coordinator_.waiting_for());
    if (board_.stop() != StopLevel::kNone) break;
  }
  slot_.waiting_for.set("");
  const std::int64_t end_us = clock_.now_us();
  // The wait for the job to start is nobody's slowness.
  if (slot_.first_grant_us.load(std::memory_order_relaxed) != 0) {
    add(slot_.waiting_us, end_us - start_us);
  }
  if (!granted || granted->stop) return false;
  step = *granted;
  if (slot_.first_grant_us.load(std::memory_order_relaxed) == 0) {
    slot_.first_grant_us.store(end_us, std::memory_order_relaxed);
  }
  add(slot_.grants, 1);
  add(slot_.staleness_sum, step.staleness);
  slot_.staleness_max.store(
      std::max(slot_.staleness_max.load(std::memory_order_relaxed), step.staleness),
      std::memory_order_relaxed);
  if (step.skip && next_iteration_ >= 0) {
    add(slot_.skipped, std::max<std::int64_t>(0, step.iteration - next_iteration_));
  }
  next_iteration_ = step.iteration + 1;
  return true;
}

void WorkerLoop::pull() {
  const std::int64_t start_us = clock_.now_us();
  reader_.pull(stepper_.replica());
  stepper_.replica_changed();
  must_pull_ = false;
  add(slot_.pulls, 1);
  add(slot_.computing_us, clock_.now_us() - start_us);
}

// Computes the iteration, starting over once if the daemon advises it.
WorkerLoop::Outcome WorkerLoop::compute(const Step& step) {
  set_state(slot_, WorkerState::kComputing);
  bool restart = false;
  Outcome outcome = compute_once(step, true, restart);
  if (restart) {
    add(slot_.aborts, 1);
    pull();
    outcome = compute_once(step, false, restart);
  }
  return outcome;
}

WorkerLoop::Outcome WorkerLoop::compute_once(const Step& step, bool may_restart, bool& restart) {
  const double factor = slowdown_.factor(board_.config().workload.seed, worker_, step.iteration);
  const std::int64_t start_us = clock_.now_us();
  const int parts = stepper_.micro_batches();
  const std::int64_t base_us = board_.config().iteration_us / parts;
  std::int64_t due_us = start_us;
  restart = false;
  stepper_.start({.worker = worker_, .iteration = step.iteration});
  for (int part = 0; part < parts && !restart; ++part) {
    const std::int64_t part_start_us = clock_.now_us();
    stepper_.compute(part);
    const std::int64_t real_us = clock_.now_us() - part_start_us;
    due_us += static_cast<std::int64_t>(factor * static_cast<double>(std::max(base_us, real_us)));
    restart = pad_until(due_us, may_restart);
    if (board_.stop() == StopLevel::kAbandon) return Outcome::kStop;
  }
  const std::int64_t spent_us = clock_.now_us() - start_us;
  add(slot_.computing_us, spent_us);
  if (restart) add(slot_.wasted_us, spent_us);
  return Outcome::kDone;
}

// Sleeps until due_us. True if the daemon meanwhile advises to start over.
bool WorkerLoop::pad_until(std::int64_t due_us, bool may_restart) {
  for (;;) {
    if (may_restart && coordinator_.should_resync()) return true;
    const std::int64_t rest_us = due_us - clock_.now_us();
    if (rest_us <= 0 || board_.stop() == StopLevel::kAbandon) return false;
    clock_.sleep_us(std::min(rest_us, kSliceUs));
  }
}

// Makes the update visible and reports it; false if it did not count (LATE).
bool WorkerLoop::push(const Step& step) {
  set_state(slot_, WorkerState::kPushing);
  const std::int64_t start_us = clock_.now_us();
  const Update& update = stepper_.finish();
  store_.apply(update);
  add_update(update, stepper_.replica());
  stepper_.replica_changed();
  const std::int64_t applied_us = clock_.now_us();
  add(slot_.computing_us, applied_us - start_us);
  const PushReport report{.loss = update.loss, .samples = update.samples, .bytes = update.bytes()};
  bool late = false;
  for (int attempt = 1;; ++attempt) {
    try {
      late = coordinator_.push(step.iteration, report);
      break;
    } catch (const CoordinatorError& error) {
      if (error.kind() != CoordinatorError::Kind::kRetry || attempt >= kPushAttempts) throw;
    }
  }
  const std::int64_t end_us = clock_.now_us();
  add(slot_.pushing_us, end_us - applied_us);
  slot_.last_push_us.store(end_us, std::memory_order_relaxed);
  slot_.last_loss.store(update.loss, std::memory_order_relaxed);
  if (late) {
    store_.take_back(update);
    must_pull_ = true;
    add(slot_.late, 1);
    return false;
  }
  add(slot_.iterations, 1);
  return true;
}

void WorkerLoop::rejoin() {
  ++rejoins_;
  add(slot_.rejoins, 1);
  coordinator_.rejoin();
  must_pull_ = true;
  next_iteration_ = -1;
}

}  // namespace syncd::trainer
