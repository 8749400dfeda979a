// The host's side of queues on devices: see device_queues.h. No thread of its own.
#include "reference_trainer/params/device_queues.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "reference_trainer/params/weighted_mean.h"

namespace syncd::trainer {
DeviceShape device_queue_shape(int workers, std::int64_t slots, std::size_t parameters) {
  const double bytes = static_cast<double>(workers) * static_cast<double>(workers) *
                       static_cast<double>(slots) * static_cast<double>(parameters) * sizeof(float);
  if (bytes > static_cast<double>(kPeerBytesMax)) {
    throw std::invalid_argument(fmt::format(
        "{} workers that may each send {} parameters to each other, {} updates of which stay "
        "readable, need {:.1f} GiB of shared memory; allowed: {} GiB (fewer workers, or a smaller "
        "max_ig or staleness)",
        workers, parameters, slots, bytes / (1U << 30), kPeerBytesMax >> 30));
  }
  return {.parameters = parameters,
          .piece_floats = device_store_shape({.parameters = parameters}, workers).piece_floats,
          .workers = workers,
          .slots = slots};
}

bool average_published(DeviceQueues& queues, const std::vector<bool>& counts,
                       std::span<float> out) {
  std::vector<float> one(out.size());
  WeightedMean mean(out.size());
  for (std::size_t worker = 0; worker < counts.size(); ++worker) {
    if (counts[worker] && queues.read_published(static_cast<int>(worker), one)) mean.add(one, 1);
  }
  return mean.write(out);
}

PushReport PeerExchange::keep_update() {
  port_->keep_step(stepper_.view().rule);
  return {.loss = stepper_.loss(),
          .samples = stepper_.samples(),
          .bytes = queues_.shape().parameters * sizeof(float)};
}

bool PeerExchange::send(int to, std::int64_t iteration) {
  if (to < 0 || to >= workers()) return false;
  port_->send(to, iteration);
  return true;
}

PushReport HostPeerExchange::keep_update() {
  const Update& update = stepper_.finish();
  std::fill(step_->begin(), step_->end(), 0.0F);
  add_update(update, *step_);
  port_->keep_step({.rate = -1});  // as it is
  return {.loss = update.loss,
          .samples = update.samples,
          .bytes = queues_.shape().parameters * sizeof(float)};
}

void HostPeerExchange::apply() {
  port_->apply_step();
  stepper_.replica_changed();
}

Reduced HostPeerExchange::reduce(std::span<const PeerUpdate> updates) {
  const Reduced reduced = port_->reduce(updates);
  stepper_.replica_changed();
  return reduced;
}

}  // namespace syncd::trainer
