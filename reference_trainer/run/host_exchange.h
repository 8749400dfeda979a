// The exchanges of workers whose parameters are in host memory: ParameterStore and PeerQueues, with
// any stepper.
#pragma once

#include <vector>

#include "reference_trainer/params/parameter_store.h"
#include "reference_trainer/params/peer_queues.h"
#include "reference_trainer/params/weighted_mean.h"
#include "reference_trainer/run/exchange.h"

namespace syncd::trainer {

class HostParameterExchange : public ParameterExchange {
 public:
  // Both must outlive the exchange.
  HostParameterExchange(ParameterStore& store, Stepper& stepper)
      : store_(store), reader_(store), stepper_(stepper) {}

  void pull() override;
  std::optional<PushReport> push() override;
  void take_back() override;

 private:
  ParameterStore& store_;
  StoreReader reader_;
  Stepper& stepper_;
  const Update* pushed_ = nullptr;  // the stepper's, until its next start
};

class HostPeerExchange : public PeerExchange {
 public:
  // Both must outlive the exchange.
  HostPeerExchange(int worker, PeerQueues& queues, Stepper& stepper)
      : worker_(worker),
        queues_(queues),
        stepper_(stepper),
        received_(queues.parameters()),
        mean_(queues.parameters()) {}

  int workers() const override { return queues_.workers(); }
  void start_life() override { queues_.start_life(worker_); }
  PushReport keep_update() override;
  void apply() override;
  bool send(int to, std::int64_t iteration) override;
  Reduced reduce(std::span<const PeerUpdate> updates) override;
  void publish() override;

 private:
  int worker_;
  PeerQueues& queues_;
  Stepper& stepper_;
  const Update* update_ = nullptr;  // the stepper's, until its next start
  std::vector<float> received_;
  WeightedMean mean_;
  std::int64_t version_ = 0;  // of the published parameters
};

}  // namespace syncd::trainer
