// A model that the workers of a simulation train: the trainer runs real training in virtual time.
// One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/core/engine/types.h"
#include "proto/wire/wire.h"

namespace syncd::sim {

// Each function is called when what it says happens, in the order of virtual time, and takes none
// of it: how long computing takes is IterationTime's affair. A minibatch is `batch`; an iteration
// has one, or more where the policy says so (NOTIFY-ACK with every=N: batches k * N to k * N + N -
// 1).
class Model {
 public:
  virtual ~Model() = default;

  // Asked after every event: has it seen enough? The simulation then ends.
  virtual bool enough(Micros now) = 0;

  // Asked before each begin: false, and the worker leaves the job.
  virtual bool goes_on(Rank rank) = 0;

  // A process of this rank begins, with the initial parameters and nothing received.
  virtual void start(Rank rank) = 0;
  // The daemon granted the worker's next iteration; the answer may still be on its way.
  virtual void granted(Rank rank, const wire::Granted& granted) = 0;
  // It blocked in begin, targets or collect, or computed (what it then threw away: `dropped`).
  virtual void waited(Rank rank, Micros since, Micros until) = 0;
  virtual void computed(Rank rank, Micros since, Micros until, bool dropped) = 0;
  // A transfer of its parameters or its update over a link ended, or was broken off.
  virtual void transferred(Rank rank, Micros since, Micros until) = 0;
  // It jumped over so many iterations.
  virtual void jumped(Rank rank, std::int64_t iterations) = 0;

  // With a parameter server: the worker renews its parameters; it has the gradient of a minibatch
  // on them; it makes the update of iteration k visible to all and says so (the training loss is
  // returned, for the policy); the daemon has answered that.
  virtual void pull(Rank rank) = 0;
  virtual void compute(Rank rank, Iteration batch) = 0;
  virtual std::optional<double> publish(Rank rank, Iteration k) = 0;
  virtual void pushed(Rank rank, Iteration k, bool late) = 0;

  // What a reduce names instead of an update that is half-written (PeerLoop::unsafe).
  static constexpr Iteration kTorn = kNoIteration - 1;

  // Without one, beside compute() and publish(), which makes nothing visible: the worker sends its
  // parameters to another, where they arrive later; it replaces its own by the weighted sum of
  // `updates`, which name its own too; under an unsafe baseline one that cannot be read whole is
  // there as iteration kNoIteration or kTorn. `renews`: it jumped, and only renews its parameters.
  virtual void send(Rank from, Rank to, Iteration k) = 0;
  virtual void arrived(Rank from, Rank to, Iteration k) = 0;
  virtual void reduce(Rank rank, Iteration k, const std::vector<wire::PeerUpdate>& updates,
                      bool renews) = 0;
};

}  // namespace syncd::sim
