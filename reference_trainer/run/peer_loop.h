// A worker of a decentralized policy: it has parameters of its own, sends them to its neighbours
// and reduces what they sent. Used by one thread.
//
// Hop's iteration k, in the paper's parallel order (section 3.2): send the parameters x_k, compute
// the gradient at x_k while they travel, x_{k+1} = the weighted mean of what the neighbours and
// this worker sent, with the gradient applied to it. In its serial order, and NOTIFY-ACK's: apply
// the own gradient, send, the mean of it all is x_{k+1}.
#pragma once

#include "reference_trainer/params/device_queues.h"
#include "reference_trainer/run/policies.h"
#include "reference_trainer/run/worker_loop.h"

namespace syncd::trainer {

class PeerLoop : public WorkerLoop {
 public:
  // As WorkerLoop, over `exchange`, which works on `stepper` and must outlive the loop. The replica
  // holds the parameters to begin with. Whatever a worker of this number has sent before is
  // forgotten.
  PeerLoop(int worker, const RunBoard& board, const PeerPolicy& policy, PeerExchange& exchange,
           Stepper& stepper, PeerCoordinator& coordinator, Clock& clock);

 private:
  bool refresh(const Step& step) override;
  bool train(const Step& step) override;
  void start_over() override;
  void renew() override {}  // nothing fresher is to be had in the middle of an iteration

  bool compute_gradient(const Step& step, std::int64_t batch);
  bool send(const Step& step);
  bool collect(std::int64_t iteration);

  PeerPolicy policy_;
  PeerExchange& exchange_;
  PeerCoordinator& coordinator_;
  PushReport report_;
  std::int64_t last_sent_ = -1;
};

}  // namespace syncd::trainer
