// Parameters in host memory: see host_exchange.h. No thread of its own.
#include "reference_trainer/run/host_exchange.h"

#include <algorithm>

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
  const std::span<float> own = stepper_.replica();
  std::fill(sum_.begin(), sum_.end(), 0.0);
  double weights = 0;
  const auto add = [&](std::span<const float> values, double weight) {
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * double{values[i]};
    weights += weight;
  };
  for (const PeerUpdate& update : updates) {
    if (update.rank == worker_) {
      add(own, update.weight);
      continue;
    }
    switch (queues_.receive(worker_, update.rank, update.iteration, received_)) {
      case PeerQueues::Received::kWhole:
        add(received_, update.weight);
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
  if (weights <= 0) return reduced;
  for (std::size_t i = 0; i < sum_.size(); ++i) own[i] = static_cast<float>(sum_[i] / weights);
  stepper_.replica_changed();
  return reduced;
}

void HostPeerExchange::publish() {
  queues_.publish(worker_, ++version_, stepper_.replica());
}

}  // namespace syncd::trainer
