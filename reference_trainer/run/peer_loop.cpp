// The loop with parameters of its own: see peer_loop.h. Runs on the worker's only own thread.
#include "reference_trainer/run/peer_loop.h"

#include <fmt/format.h>

#include <limits>

namespace syncd::trainer {

PeerLoop::PeerLoop(int worker, const RunBoard& board, const PeerPolicy& policy,
                   PeerExchange& exchange, Stepper& stepper, PeerCoordinator& coordinator,
                   Clock& clock)
    : WorkerLoop(worker, board, stepper, coordinator, clock),
      policy_(policy),
      exchange_(exchange),
      coordinator_(coordinator) {
  report_.loss = std::numeric_limits<double>::quiet_NaN();
  PeerLoop::start_over();
}

// What was sent in the life before must not be taken for new.
void PeerLoop::start_over() {
  exchange_.start_life();
  last_sent_ = -1;
  exchange_.publish();
}

bool PeerLoop::refresh(const Step& step) {
  // A worker that was lost and taken back unnoticed may repeat iterations.
  if (step.iteration <= last_sent_) start_over();
  // Jumped ahead: the parameters are renewed from what the others sent in the iteration before.
  return !step.skip || collect(step.iteration - 1);
}

bool PeerLoop::train(const Step& step) {
  for (std::int64_t i = 0; policy_.compute_first && i < policy_.every; ++i) {
    if (!compute_gradient(step, step.iteration * policy_.every + i)) return false;
    exchange_.apply();
  }
  if (!send(step)) return false;
  push(step, report_);  // in the parallel order with the loss of the iteration before
  if (!policy_.compute_first && !compute_gradient(step, step.iteration)) return false;
  if (!collect(step.iteration)) return false;
  if (!policy_.compute_first) exchange_.apply();
  if (policy_.acknowledges) {
    // After the reduce has read everything: from here on the others may overwrite it.
    persist(StopLevel::kAbandon, [&] { coordinator_.consumed(step.iteration); });
  }
  exchange_.publish();
  count(slot_.iterations, 1);
  return true;
}

bool PeerLoop::compute_gradient(const Step& step, std::int64_t batch) {
  if (!compute(step, batch)) return false;
  report_ = exchange_.keep_update();
  return true;
}

// Sends the parameters to whom the daemon says. False: the run is to be abandoned.
bool PeerLoop::send(const Step& step) {
  std::optional<std::vector<int>> targets;
  const auto ask = [&] {
    targets = coordinator_.targets(step.iteration, kWaitSliceMs);
    return targets.has_value();
  };
  if (!wait(StopLevel::kAbandon, ask)) return false;
  timed(slot_.pushing_us, SpanKind::kExchanging, [&] {
    for (const int target : *targets) {
      if (exchange_.send(target, step.iteration)) continue;
      throw SharedMemoryError(
          fmt::format("worker {} is to send to rank {}, which is not of this run: its ranks are 0 "
                      "to {}",
                      worker_, target, exchange_.workers() - 1));
    }
    exchange_.finish_sending();
  });
  last_sent_ = step.iteration;
  return true;
}

// Replaces the parameters by the weighted mean of what the daemon names. False: the run is to be
// abandoned.
bool PeerLoop::collect(std::int64_t iteration) {
  std::optional<std::vector<PeerUpdate>> updates;
  const auto ask = [&] {
    updates = coordinator_.collect(iteration, kWaitSliceMs);
    return updates.has_value();
  };
  if (!wait(StopLevel::kAbandon, ask)) return false;
  timed(slot_.computing_us, SpanKind::kExchanging, [&] {
    const Reduced reduced = exchange_.reduce(*updates);
    count(slot_.reduced, reduced.whole);
    count(slot_.missing_updates, reduced.missing);
    count(slot_.torn_updates, reduced.torn);
  });
  return true;
}

}  // namespace syncd::trainer
