// The workers' side of a simulation: their processes, which follow the trainer's loop with computed
// times. One thread at a time.
#pragma once

#include <cstdint>
#include <queue>
#include <tuple>

#include "daemon/core/engine/policy.h"
#include "daemon/tools/sim/world.h"

namespace syncd::sim {

class WorkerSide {
 public:
  // The end of a worker's computing. `token` tells it from one that was given up since.
  struct ComputeEnd {
    Micros at = 0;
    std::uint64_t order = 0;
    Rank worker = 0;
    std::uint32_t token = 0;
    bool operator>(const ComputeEnd& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };

  explicit WorkerSide(World& world);

  void finish();  // counts everybody's time up to now
  // The next end; null: nobody computes.
  const ComputeEnd* next_end() const { return computing_.empty() ? nullptr : &computing_.top(); }
  void compute_ended();  // precondition: somebody computes
  void deliver(const Message& message);
  void happens(std::size_t index);  // the event of this index in the options
  void start_process(Rank rank);

 private:
  using Stage = SimWorker::Stage;

  void end_process(Rank rank, Stage stage);
  void end_wait(SimWorker& worker);
  Model* model() const { return world_.options.model; }
  void note_computed(Rank rank, bool dropped);
  void call(Rank rank, MessageKind kind, Stage stage, Iteration iteration);
  void begin(Rank rank);
  void on_granted(Rank rank, Iteration k, std::uint32_t flags);
  void enter_iteration(Rank rank);
  void compute(Rank rank);
  Micros compute_time(Rank rank, Iteration k) const;
  void start_computing(Rank rank);
  void push(Rank rank);
  void on_pushed(Rank rank, bool late);
  void on_targets(Rank rank);
  void on_data(Rank rank, Rank from, Iteration k);
  void on_collected(Rank rank, Iteration k);
  void on_resync(Rank rank, Iteration k);

  World& world_;
  Durations durations_;
  bool decentralized_ = false;
  PeerLoop loop_;
  bool compute_first_ = false;
  std::priority_queue<ComputeEnd, std::vector<ComputeEnd>, std::greater<>> computing_;
};

}  // namespace syncd::sim
