// A worker of a parameter-server policy: pulls from the store that all workers share, computes, and
// adds its update there. The loop is the same for every such policy. Used by one thread.
#pragma once

#include "reference_trainer/params/device_store.h"
#include "reference_trainer/run/worker_loop.h"

namespace syncd::trainer {

class StoreLoop : public WorkerLoop {
 public:
  // As WorkerLoop, over `exchange`, which works on `stepper` and must outlive the loop.
  StoreLoop(int worker, const RunBoard& board, ParameterExchange& exchange, Stepper& stepper,
            Coordinator& coordinator, Clock& clock)
      : WorkerLoop(worker, board, stepper, coordinator, clock),
        exchange_(exchange),
        order_(worker, board, clock) {}

 private:
  bool refresh(const Step& step) override;
  bool train(const Step& step) override;
  void start_over() override { must_pull_ = true; }
  void renew() override;
  void await_updates(std::int64_t iteration) override { order_.await_updates(iteration); }
  bool report(const Step& step, const PushReport& update);
  void take_back();

  ParameterExchange& exchange_;
  UpdateOrder order_;
  bool must_pull_ = true;
};

}  // namespace syncd::trainer
