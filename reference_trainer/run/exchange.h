// What a worker's loop does with parameters, wherever they are. An exchange belongs to one worker,
// whose stepper it works on, and is used by that worker's thread alone. Its functions throw
// StoreError or what the device throws when they cannot be done.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "reference_trainer/run/coordinator.h"

namespace syncd::trainer {

// Of a worker that shares one store with all others.
class ParameterExchange {
 public:
  virtual ~ParameterExchange() = default;

  // Renews the stepper's parameters from the store. On a device it may only be queued: what the
  // stepper computes from here on is queued behind it.
  virtual void pull() = 0;

  // Adds the update of the minibatch that was computed to the store and to the stepper's
  // parameters. Afterwards every pull of any worker finds it. Nothing, and nothing is changed, if
  // the last pull turns out not to have come through: then pull, compute and push again.
  virtual std::optional<PushReport> push() = 0;

  // Takes what was pushed last out of the store again (up to rounding, because others may have
  // added to the same parameters). The stepper's parameters keep it until the next pull.
  virtual void take_back() = 0;
};

// Of a worker with parameters of its own, which are the stepper's: it sends them to others and
// replaces them by a mean of what others sent.
class PeerExchange {
 public:
  // What became of the updates that were to be reduced; the own one is none of them.
  struct Reduced {
    std::int64_t whole = 0;
    std::int64_t missing = 0;  // never written, overwritten, or of no worker of this run
    std::int64_t torn = 0;     // there in part
  };

  virtual ~PeerExchange() = default;

  virtual int workers() const = 0;

  // Forgets what a worker of this number sent before.
  virtual void start_life() = 0;

  // Keeps the update of the minibatch that was computed, at the parameters of now, for apply().
  virtual PushReport keep_update() = 0;

  // Adds the kept update to the parameters.
  virtual void apply() = 0;

  // Sends the parameters to a worker, as those of this iteration. False: there is no such worker.
  virtual bool send(int to, std::int64_t iteration) = 0;

  // Waits until what was sent can be read by whom it was sent to.
  virtual void finish_sending() {}

  // Replaces the parameters by the weighted mean of these updates and, where they name this worker,
  // its own parameters of now. What cannot be read whole is left out, and the weights of the others
  // are raised to sum up to 1; if nothing is left, the parameters stay as they are.
  virtual Reduced reduce(std::span<const PeerUpdate> updates) = 0;

  // Makes the parameters known to whoever evaluates them.
  virtual void publish() = 0;
};

}  // namespace syncd::trainer
