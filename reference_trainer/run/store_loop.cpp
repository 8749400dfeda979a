// The loop over a shared store: see store_loop.h. Runs on the worker's only own thread.
#include "reference_trainer/run/store_loop.h"

namespace syncd::trainer {
namespace {
constexpr std::int64_t kTurnPollUs = 100;
constexpr std::int64_t kTurnPatienceUs = 60'000'000;
}  // namespace

StoreLoop::StoreLoop(int worker, const RunBoard& board, ParameterExchange& exchange,
                     Stepper& stepper, Coordinator& coordinator, Clock& clock)
    : WorkerLoop(worker, board, stepper, coordinator, clock),
      exchange_(exchange),
      has_fixed_order_(has_fixed_order(board.config())) {}

bool StoreLoop::refresh(const Step& step) {
  if (step.pull || step.skip || must_pull_ || step.checkpoint != 0) renew();
  if (has_fixed_order_) slot_.pulled.store(step.iteration + 1, std::memory_order_release);
  return true;
}

bool StoreLoop::train(const Step& step) {
  for (;;) {
    if (compute(step, step.iteration) != Outcome::kDone) return false;
    if (has_fixed_order_) await_turn(step.iteration);
    if (const auto update = add_update()) {
      slot_.added.store(step.iteration + 1, std::memory_order_release);
      return report(step, *update);
    }
    // What was pulled was not whole, which a device finds out only now.
    count(slot_.wasted_us, spent_us_);
    renew();
  }
}

// Pulls.
void StoreLoop::renew() {
  const std::int64_t start_us = clock_.now_us();
  exchange_.pull();
  must_pull_ = false;
  count(slot_.pulls, 1);
  count(slot_.computing_us, clock_.now_us() - start_us);
  note(SpanKind::kExchanging, start_us);
}

// Makes the update visible; nothing if there is none, because what it was computed with was not
// whole.
std::optional<PushReport> StoreLoop::add_update() {
  const std::int64_t start_us = clock_.now_us();
  const std::optional<PushReport> update = exchange_.push();
  count(slot_.computing_us, clock_.now_us() - start_us);
  note(SpanKind::kExchanging, start_us);
  return update;
}

// Until all have pulled for this iteration, and those before this worker have added their updates.
void StoreLoop::await_turn(std::int64_t iteration) {
  const std::int64_t start_us = clock_.now_us();
  await_others(&WorkerSlot::pulled, board_.workers(), iteration);
  await_others(&WorkerSlot::added, worker_, iteration);
  count(slot_.waiting_us, clock_.now_us() - start_us);
  note(SpanKind::kWaiting, start_us);
}

void StoreLoop::await_updates(std::int64_t iteration) {
  if (has_fixed_order_) await_others(&WorkerSlot::added, board_.workers(), iteration - 1);
}

// One that the daemon has given up may be stopped for long: then the order is given up, too.
void StoreLoop::await_others(std::atomic<std::int64_t> WorkerSlot::*moment, int workers,
                             std::int64_t iteration) {
  const std::int64_t end_us = clock_.now_us() + kTurnPatienceUs;
  for (int other = 0; other < workers; ++other) {
    if (other == worker_) continue;
    const WorkerSlot& slot = board_.slot(other);
    while ((slot.*moment).load(std::memory_order_acquire) <= iteration && !slot.has_ended() &&
           board_.stop() != StopLevel::kAbandon && clock_.now_us() < end_us) {
      clock_.sleep_us(kTurnPollUs);
    }
  }
}

// Reports the update, which is in the store already; false if it did not count (LATE).
//
// The update goes into the store before the push, not after: the push is what lets the others go
// on, and from then on the policy promises them that they see the update. It is taken out again if
// the daemon refuses the push (fenced, stopped) or has gone on without it (late). So a pull may
// have seen an update that is gone later, which asynchronous training stands, but a pull after an
// accepted push never misses it; and when nobody writes any more, the store holds exactly the
// accepted updates, up to float rounding: taking back is a subtraction, because others may have
// added to the same parameters meanwhile. A push whose outcome stays unknown keeps its update: it
// may have been recorded, and the others told of it.
bool StoreLoop::report(const Step& step, const PushReport& update) {
  bool late = false;
  try {
    late = push(step, update);
  } catch (const CoordinatorError& error) {
    if (error.kind() != CoordinatorError::Kind::kRetry) take_back();
    throw;
  }
  slot_.last_loss.store(update.loss, std::memory_order_relaxed);
  if (late) {
    take_back();
    count(slot_.late, 1);
    count(slot_.wasted_us, spent_us_);
    return false;
  }
  count(slot_.iterations, 1);
  return true;
}

void StoreLoop::take_back() {
  exchange_.take_back();
  must_pull_ = true;  // the replica has it, too
}

}  // namespace syncd::trainer
