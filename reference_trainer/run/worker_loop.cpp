// The training loop of one worker: see worker_loop.h. Runs on the worker's only own thread.
#include "reference_trainer/run/worker_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "reference_trainer/model/random.h"
#include "reference_trainer/run/policies.h"

namespace syncd::trainer {
namespace {

// Padding sleeps in slices of this length, between which the re-sync flag and the stop flag are
// read.
constexpr std::int64_t kSliceUs = 2'000;

// A device that computes is asked again and again, at first without a pause: what it is asked for
// mostly takes less than a pause does. After so many times, which take some milliseconds, with one.
constexpr int kEagerPolls = 5'000;
constexpr std::int64_t kPollUs = 100;

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

WorkerLoop::WorkerLoop(int worker, const RunBoard& board, Stepper& stepper,
                       Coordinator& coordinator, Clock& clock)
    : worker_(worker),
      board_(board),
      stepper_(stepper),
      clock_(clock),
      slot_(board.slot(worker)),
      coordinator_(coordinator),
      checkpoints_(worker, board, stepper, coordinator),
      slow_(slow_factors(board.config().slowdown.data(), board.config().workload)) {
  stepper_.interruptible(may_start_over(board.config().policy.data()));
}

void WorkerLoop::run() {
  try {
    train_to_the_end();
  } catch (const CoordinatorError& error) {
    // Of the other kinds the daemon knows, or there is none.
    if (error.kind() == CoordinatorError::Kind::kOther) leave_failed(error.what());
    throw;
  } catch (const std::exception& error) {
    leave_failed(error.what());
    throw;
  }
  if (!checkpoints_.is_going() || board_.is_preempted()) return;
  throw std::runtime_error(checkpoints_.text());
}

void WorkerLoop::leave_failed(const std::string& reason) {
  try {
    if (!coordinator_.leave_as(LeaveKind::kFailed, reason)) {
      coordinator_.leave_as(LeaveKind::kFailed, reason);  // a checkpoint is asked for once
    }
  } catch (const CoordinatorError&) {
    // The failure that is reported is the first one.
  }
}

void WorkerLoop::train_to_the_end() {
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
      return;
    }
    const bool goes = checkpoints_.is_going();
    bool has_left = false;
    const auto call = [&] {
      has_left = coordinator_.leave_as(goes ? LeaveKind::kPreempted : LeaveKind::kLeft,
                                       goes ? "SIGTERM" : "");
    };
    persist(StopLevel::kAbandon, call);
    if (has_left) return;
    const std::int64_t next = next_iteration_ >= 0 ? next_iteration_ : board_.config().resume_at;
    await_updates(next);
    renew();
    save(coordinator_.wanted_checkpoint(), next);
    persist(StopLevel::kAbandon, call);
  } catch (const CoordinatorError& error) {
    // The daemon may have forgotten the worker when its job ended, which is what leaving is for.
    const bool gone = error.kind() == CoordinatorError::Kind::kStopped ||
                      error.kind() == CoordinatorError::Kind::kFenced;
    if (!job_has_ended && !gone) throw;
  }
}

void WorkerLoop::persist(StopLevel give_up, const std::function<void()>& call) {
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
  if (board_.stop() != StopLevel::kNone || checkpoints_.may_go(clock_.now_us()) ||
      !board_.claim_iteration(worker_)) {
    return false;
  }
  Step step;
  bool counted = false;
  bool granted = false;
  try {
    granted = begin(step);
    counted = granted && refresh(step) && take_checkpoint(step) && train(step);
  } catch (...) {
    board_.give_back_iteration(worker_);
    throw;
  }
  if (!counted) board_.give_back_iteration(worker_);
  return granted;
}

// Saves where the step says so, and asks for the next checkpoint when it is time. False: the worker
// is to leave now.
bool WorkerLoop::take_checkpoint(const Step& step) {
  if (step.checkpoint != 0) {
    save(step.checkpoint, step.iteration);
    if (checkpoints_.may_go(clock_.now_us())) return false;
  }
  if (checkpoints_.is_due(step.iteration)) {
    persist(StopLevel::kFinish, [&] {
      coordinator_.request_checkpoint(
          fmt::format("every {} iterations", board_.config().checkpoint_every), false);
    });
  }
  return true;
}

void WorkerLoop::save(std::uint64_t number, std::int64_t iteration) {
  checkpoints_.save(number, iteration);
  persist(StopLevel::kAbandon, [this] { checkpoints_.confirm(); });
}

void WorkerLoop::note(SpanKind kind, std::int64_t start_us, std::uint8_t flags) {
  slot_.spans.add({.start_us = start_us,
                   .end_us = clock_.now_us(),
                   .iteration = iteration_,
                   .kind = kind,
                   .flags = flags});
}

bool WorkerLoop::wait(StopLevel give_up, const std::function<bool()>& answered) {
  const std::int64_t start_us = clock_.now_us();
  const bool is_answered = ask(give_up, answered);
  note(SpanKind::kWaiting, start_us);
  return is_answered;
}

bool WorkerLoop::ask(StopLevel give_up, const std::function<bool()>& answered) {
  const std::int64_t start_us = clock_.now_us();
  bool is_answered = false;
  const auto ask = [&] { is_answered = answered(); };
  try {
    for (persist(give_up, ask); !is_answered; persist(give_up, ask)) {
      slot_.waiting_for.set(coordinator_.waiting_for());
      if (board_.stop() >= give_up) break;
    }
  } catch (const CoordinatorError& error) {
    if (error.kind() != CoordinatorError::Kind::kRetry) throw;  // else the run is stopped
  }
  slot_.waiting_for.set("");
  // The wait for the job to start is nobody's slowness.
  if (slot_.first_grant_us.load(std::memory_order_relaxed) != 0) {
    count(slot_.waiting_us, clock_.now_us() - start_us);
  }
  return is_answered;
}

// Waits for a grant; false if the worker is to leave instead.
bool WorkerLoop::begin(Step& step) {
  std::optional<Step> granted;
  const std::int64_t start_us = clock_.now_us();
  const bool answered = ask(StopLevel::kFinish, [&] {
    if (checkpoints_.may_go(clock_.now_us())) return true;
    granted = coordinator_.begin(kWaitSliceMs);
    return granted.has_value();
  });
  if (!answered || !granted || granted->stop) return false;
  step = *granted;
  iteration_ = step.iteration;
  if (slot_.first_grant_us.load(std::memory_order_relaxed) == 0) {
    slot_.first_grant_us.store(clock_.now_us(), std::memory_order_relaxed);
  } else {
    note(
        SpanKind::kWaiting, start_us,
        static_cast<std::uint8_t>((step.barrier ? kSpanBarrier : 0) | (step.skip ? kSpanSkip : 0)));
  }
  slot_.note_grant(step.staleness);
  if (step.skip && next_iteration_ >= 0) {
    count(slot_.skipped, std::max<std::int64_t>(0, step.iteration - next_iteration_));
  }
  next_iteration_ = step.iteration + 1;
  return true;
}

bool WorkerLoop::compute(const Step& step, std::int64_t batch) {
  for (;;) {
    bool restart = false;
    const std::int64_t start_us = clock_.now_us();
    if (!compute_once(step, batch, restart)) return false;
    note(restart ? SpanKind::kWasted : SpanKind::kComputing, start_us);
    count(slot_.computing_us, spent_us_);
    if (!restart) return true;
    count(slot_.wasted_us, spent_us_);
    count(slot_.restarts, 1);
    // Before the pull: what the others push from here on counts as not seen.
    persist(StopLevel::kAbandon, [&] { coordinator_.restarted(step.iteration); });
    renew();
  }
}

// False: the run is to be abandoned.
bool WorkerLoop::compute_once(const Step& step, std::int64_t batch, bool& restart) {
  const double factor = slow_(static_cast<Rank>(worker_), step.iteration);
  const std::int64_t start_us = clock_.now_us();
  const int parts = stepper_.micro_batches();
  const std::int64_t base_us = board_.config().iteration_us / parts;
  std::int64_t due_us = start_us;
  // How long a part is to be drawn out follows from how long it took. Where none is, a device may
  // know the next one while it computes.
  const bool one_by_one = base_us > 0 || factor > 1;
  stepper_.start({.worker = worker_, .iteration = batch});
  for (int part = 0; part < parts && !restart; ++part) {
    const std::int64_t part_start_us = clock_.now_us();
    stepper_.compute(part);
    restart = await_device(one_by_one || part + 1 == parts);
    const std::int64_t real_us = clock_.now_us() - part_start_us;
    due_us += static_cast<std::int64_t>(factor * static_cast<double>(std::max(base_us, real_us)));
    restart = restart || pad_until(due_us);
    if (board_.stop() == StopLevel::kAbandon) return false;
  }
  // It may have seen an advice that was withdrawn before this worker saw it.
  restart = restart || stepper_.interrupted();
  if (restart) stepper_.drop();
  spent_us_ = clock_.now_us() - start_us;
  return true;
}

// Waits until the stepper takes another part, or has done all it was told. True if the daemon
// meanwhile advises to start over.
bool WorkerLoop::await_device(bool all) {
  for (int polls = 0; !(all ? stepper_.finished() : stepper_.ready()); ++polls) {
    if (coordinator_.should_resync()) return true;
    if (board_.stop() == StopLevel::kAbandon) return false;
    if (polls < kEagerPolls) {
      std::this_thread::yield();
    } else {
      clock_.sleep_us(kPollUs);
    }
  }
  return false;
}

// Sleeps until due_us. True if the daemon meanwhile advises to start over.
bool WorkerLoop::pad_until(std::int64_t due_us) {
  for (;;) {
    if (coordinator_.should_resync()) return true;
    const std::int64_t rest_us = due_us - clock_.now_us();
    if (rest_us <= 0 || board_.stop() == StopLevel::kAbandon) return false;
    clock_.sleep_us(std::min(rest_us, kSliceUs));
  }
}

bool WorkerLoop::push(const Step& step, const PushReport& report) {
  const std::int64_t start_us = clock_.now_us();
  bool late = false;
  persist(StopLevel::kAbandon, [&] { late = coordinator_.push(step.iteration, report); });
  const std::int64_t end_us = clock_.now_us();
  count(slot_.pushing_us, end_us - start_us);
  slot_.last_push_us.store(end_us, std::memory_order_relaxed);
  note(SpanKind::kPushing, start_us, late ? kSpanLate : 0);
  return late;
}

void WorkerLoop::rejoin() {
  ++rejoins_;
  count(slot_.rejoins, 1);
  persist(StopLevel::kFinish, [this] { coordinator_.join(); });
  next_iteration_ = -1;
  start_over();
}

}  // namespace syncd::trainer
