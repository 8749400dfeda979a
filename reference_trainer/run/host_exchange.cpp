// Parameters in host memory: see host_exchange.h. No thread of its own.
#include "reference_trainer/run/host_exchange.h"

namespace syncd::trainer {

void HostParameterExchange::pull() {
  reader_.pull(stepper_.replica());
  stepper_.replica_changed();
}

std::optional<PushReport> HostParameterExchange::push() {
  const Update& update = stepper_.finish();
  store_.apply(update);
  add_update(update, stepper_.replica());
  stepper_.replica_changed();
  pushed_ = &update;
  return PushReport{.loss = update.loss, .samples = update.samples, .bytes = update.bytes()};
}

void HostParameterExchange::take_back() {
  store_.take_back(*pushed_);
}

PushReport HostPeerExchange::keep_update() {
  update_ = &stepper_.finish();
  return {.loss = update_->loss,
          .samples = update_->samples,
          .bytes = stepper_.replica().size() * sizeof(float)};
}

void HostPeerExchange::apply() {
  add_update(*update_, stepper_.replica());
  stepper_.replica_changed();
}

bool HostPeerExchange::send(int to, std::int64_t iteration) {
  return queues_.send(worker_, to, iteration, stepper_.replica());
}

PeerExchange::Reduced HostPeerExchange::reduce(std::span<const PeerUpdate> updates) {
  Reduced reduced;
  mean_.clear();
  for (const PeerUpdate& update : updates) {
    if (update.rank == worker_) {
      mean_.add(stepper_.replica(), update.weight);
      continue;
    }
    switch (queues_.receive(worker_, update.rank, update.iteration, received_)) {
      case PeerQueues::Received::kWhole:
        mean_.add(received_, update.weight);
        ++reduced.whole;
        break;
      case PeerQueues::Received::kMissing:
        ++reduced.missing;
        break;
      case PeerQueues::Received::kTorn:
        ++reduced.torn;
        break;
    }
  }
  if (mean_.write(stepper_.replica())) stepper_.replica_changed();
  return reduced;
}

void HostPeerExchange::publish() {
  queues_.publish(worker_, ++version_, stepper_.replica());
}

}  // namespace syncd::trainer
