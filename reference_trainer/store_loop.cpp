// The loop over a shared store: see store_loop.h. Runs on the worker's only own thread.
#include "reference_trainer/store_loop.h"

namespace syncd::trainer {

StoreLoop::StoreLoop(int worker, const RunBoard& board, ParameterStore& store, Stepper& stepper,
                     Coordinator& coordinator, Clock& clock)
    : WorkerLoop(worker, board, stepper, coordinator, clock), store_(store), reader_(store) {}

bool StoreLoop::train(const Step& step) {
  if (step.pull || step.skip || must_pull_) renew();
  return compute(step, step.iteration) == Outcome::kDone && report(step);
}

// Pulls.
void StoreLoop::renew() {
  const std::int64_t start_us = clock_.now_us();
  reader_.pull(stepper_.replica());
  stepper_.replica_changed();
  must_pull_ = false;
  count(slot_.pulls, 1);
  count(slot_.computing_us, clock_.now_us() - start_us);
  note(SpanKind::kExchanging, start_us);
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
bool StoreLoop::report(const Step& step) {
  const std::int64_t start_us = clock_.now_us();
  const Update& update = stepper_.finish();
  store_.apply(update);
  add_update(update, stepper_.replica());
  stepper_.replica_changed();
  count(slot_.computing_us, clock_.now_us() - start_us);
  note(SpanKind::kExchanging, start_us);
  bool late = false;
  try {
    late = push(step, {.loss = update.loss, .samples = update.samples, .bytes = update.bytes()});
  } catch (const CoordinatorError& error) {
    if (error.kind() != CoordinatorError::Kind::kRetry) take_back(update);
    throw;
  }
  slot_.last_loss.store(update.loss, std::memory_order_relaxed);
  if (late) {
    take_back(update);
    count(slot_.late, 1);
    count(slot_.wasted_us, spent_us_);
    return false;
  }
  count(slot_.iterations, 1);
  return true;
}

void StoreLoop::take_back(const Update& update) {
  store_.take_back(update);
  must_pull_ = true;  // the replica has it, too
}

}  // namespace syncd::trainer
