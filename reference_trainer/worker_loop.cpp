// The training loop of one worker: see worker_loop.h. Runs on the worker's only own thread.
#include "reference_trainer/worker_loop.h"

#include <algorithm>

#include "reference_trainer/random.h"

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

std::int64_t retry_pause_us(std::uint64_t seed, int worker, int failures) {
  std::int64_t bound_us = kRetryPauseFirstUs;
  for (int i = 1; i < failures && bound_us < kRetryPauseMaxUs; ++i) bound_us *= 2;
  const std::int64_t half_us = std::min(bound_us, kRetryPauseMaxUs) / 2;
  const std::uint64_t bits = draw_bits(seed, Stream::kRetry, static_cast<std::uint64_t>(worker),
                                       static_cast<std::uint64_t>(failures));
  return half_us +
         static_cast<std::int64_t>(to_index(bits, static_cast<std::uint64_t>(half_us) + 1));
}

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
  persist(StopLevel::kFinish, [this] { coordinator_.join(); });
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
  leave(left_by_job);
}

void WorkerLoop::leave(bool job_has_ended) {
  try {
    if (job_has_ended) {
      coordinator_.leave();
    } else {
      persist(StopLevel::kAbandon, [this] { coordinator_.leave(); });
    }
  } catch (const CoordinatorError& error) {
    // The daemon may have forgotten the worker when its job ended, which is what leaving is for.
    const bool gone = error.kind() == CoordinatorError::Kind::kStopped ||
                      error.kind() == CoordinatorError::Kind::kFenced;
    if (!job_has_ended && !gone) throw;
  }
}

// Makes a call, again and again while its failure is one that may pass. Throws what it cannot help,
// and a failure that may pass only when the run's stop has reached `give_up`.
template <typename Call>
void WorkerLoop::persist(StopLevel give_up, const Call& call) {
  for (int failures = 1;; ++failures) {
    try {
      call();
      if (failures > 1) slot_.waiting_for.set("");
      return;
    } catch (const CoordinatorError& error) {
      if (error.kind() != CoordinatorError::Kind::kRetry) throw;
      pause(error, failures, give_up);
      if (board_.stop() >= give_up) throw;
    }
  }
}

// Tells the parent what is tried again, and waits; not when the run is stopped.
void WorkerLoop::pause(const CoordinatorError& error, int failures, StopLevel give_up) {
  slot_.waiting_for.set(error.what());
  if (failures == 1) slot_.trouble.set(error.what());
  slot_.retries.fetch_add(1, std::memory_order_release);  // after the text that it announces
  const std::int64_t due_us =
      clock_.now_us() + retry_pause_us(board_.config().workload.seed, worker_, failures);
  while (board_.stop() < give_up) {
    const std::int64_t rest_us = due_us - clock_.now_us();
    if (rest_us <= 0) return;
    clock_.sleep_us(std::min(rest_us, kSliceUs));
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
  const auto ask = [&] { granted = coordinator_.begin(kBeginSliceMs); };
  try {
    for (persist(StopLevel::kFinish, ask); !granted; persist(StopLevel::kFinish, ask)) {
      slot_.waiting_for.set(coordinator_.waiting_for());
      if (board_.stop() != StopLevel::kNone) break;
    }
  } catch (const CoordinatorError& error) {
    if (error.kind() != CoordinatorError::Kind::kRetry) throw;  // else the run is stopped
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
//
// The update goes into the store before the push, not after: the push is what lets the others go
// on, and from then on the policy promises them that they see the update. It is taken out again if
// the daemon refuses the push (fenced, stopped) or has gone on without it (late). So a pull may
// have seen an update that is gone later, which asynchronous training stands, but a pull after an
// accepted push never misses it; and when nobody writes any more, the store holds exactly the
// accepted updates, up to float rounding: taking back is a subtraction, because others may have
// added to the same parameters meanwhile. A push whose outcome stays unknown keeps its update: it
// may have been recorded, and the others told of it.
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
  try {
    persist(StopLevel::kAbandon, [&] { late = coordinator_.push(step.iteration, report); });
  } catch (const CoordinatorError& error) {
    if (error.kind() != CoordinatorError::Kind::kRetry) take_back(update);
    throw;
  }
  const std::int64_t end_us = clock_.now_us();
  add(slot_.pushing_us, end_us - applied_us);
  slot_.last_push_us.store(end_us, std::memory_order_relaxed);
  slot_.last_loss.store(update.loss, std::memory_order_relaxed);
  if (late) {
    take_back(update);
    add(slot_.late, 1);
    return false;
  }
  add(slot_.iterations, 1);
  return true;
}

void WorkerLoop::take_back(const Update& update) {
  store_.take_back(update);
  must_pull_ = true;  // the replica has it, too
}

void WorkerLoop::rejoin() {
  ++rejoins_;
  add(slot_.rejoins, 1);
  persist(StopLevel::kFinish, [this] { coordinator_.join(); });
  must_pull_ = true;
  next_iteration_ = -1;
}

}  // namespace syncd::trainer
