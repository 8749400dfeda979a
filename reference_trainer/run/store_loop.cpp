// The loop over a shared store: see store_loop.h. Runs on the worker's only own thread.
#include "reference_trainer/run/store_loop.h"

namespace syncd::trainer {

bool StoreLoop::refresh(const Step& step) {
  if (step.pull || step.skip || must_pull_ || step.checkpoint != 0) renew();
  order_.has_pulled(step.iteration);
  return true;
}

void StoreLoop::renew() {
  timed(slot_.computing_us, SpanKind::kExchanging, [this] { exchange_.pull(); });
  must_pull_ = false;
  count(slot_.pulls, 1);
}

bool StoreLoop::train(const Step& step) {
  for (;;) {
    if (!compute(step, step.iteration)) return false;
    if (order_.is_fixed()) {
      timed(slot_.waiting_us, SpanKind::kWaiting, [&] { order_.await_turn(step.iteration); });
    }
    std::optional<PushReport> update;
    timed(slot_.computing_us, SpanKind::kExchanging, [&] { update = exchange_.push(); });
    if (update) {
      order_.has_added(step.iteration);
      return report(step, *update);
    }
    // What was pulled was not whole, which a device finds out only now.
    count(slot_.wasted_us, spent_us_);
    renew();
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
