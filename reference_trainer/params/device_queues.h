// Where the workers of a decentralized run exchange parameters: queues as in device_queue_steps.h,
// in the memory of their devices, or of the host, where the device is the CPU. Host code: the seam
// to a device, and a worker's exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libclient/shared_memory.h"
#include "reference_trainer/params/device_queue_steps.h"
#include "reference_trainer/params/device_store.h"
#include "reference_trainer/run/coordinator.h"

namespace syncd::trainer {

// What became of the updates that were to be reduced; the own one is none of them.
struct Reduced {
  std::int64_t whole = 0;
  std::int64_t missing = 0;  // never written, overwritten, or of no worker of this run
  std::int64_t torn = 0;     // there in part
};

// One worker's way to all queues, with memory of its own for what it receives. Everything is queued
// on the stepper's stream; what returns something waits. As DeviceStorePort otherwise.
class DeviceQueuePort {
 public:
  virtual ~DeviceQueuePort() = default;

  virtual void forget() = 0;                              // what was sent by this worker before
  virtual void keep_step(const SgdRule& rule) = 0;        // for apply_step()
  virtual void apply_step() = 0;                          // to the replica
  virtual void send(int to, std::int64_t iteration) = 0;  // the replica; `to` is a worker
  virtual void publish() = 0;                             // the replica
  virtual Reduced reduce(std::span<const PeerUpdate> updates) = 0;
  virtual void wait() = 0;
};

// Any thread, except that whoever reads is alone.
class DeviceQueues {
 public:
  virtual ~DeviceQueues() = default;
  virtual const DeviceShape& shape() const = 0;

  // What another process opens each worker's queue with. Throws SharingRefused.
  virtual std::vector<DeviceHandle> handles() const = 0;

  virtual std::unique_ptr<DeviceQueuePort> port(int worker, const DeviceView& view) = 0;

  // Copies what a worker published last; every piece whole, but not all of the same moment. False:
  // not just now, or never, because it died while it published.
  virtual bool read_published(int worker, std::span<float> out) = 0;
};

// More than this is not allocated: workers * workers * slots * parameters grows quickly.
inline constexpr std::size_t kPeerBytesMax = std::size_t{2} << 30;

// The shape for so many parameters. Throws std::invalid_argument, with what needs so much and what
// helps, if the queues would be larger than kPeerBytesMax.
DeviceShape device_queue_shape(int workers, std::int64_t slots, std::size_t parameters);

// The mean of the present parameters of the workers that `counts` names. False: none of them has
// any. `out` is as long as a worker has parameters.
bool average_published(DeviceQueues& queues, const std::vector<bool>& counts, std::span<float> out);

// What a worker's loop does with parameters of its own, which are its stepper's: it sends them to
// others and replaces them by a mean of what others sent. Used by that worker's thread alone.
// Functions throw what the device throws. This is the exchange of a stepper on the device of the
// queues.
class PeerExchange {
 public:
  // Both must outlive the exchange.
  PeerExchange(int worker, DeviceQueues& queues, Stepper& stepper)
      : PeerExchange(worker, queues, stepper, stepper.view()) {}
  virtual ~PeerExchange() = default;

  int workers() const { return queues_.shape().workers; }

  // Forgets what a worker of this number sent before.
  void start_life() { port_->forget(); }

  // Keeps the update of the minibatch that was computed, at the parameters of now, for apply().
  virtual PushReport keep_update();

  // Adds the kept update to the parameters.
  virtual void apply() { port_->apply_step(); }

  // Sends the parameters to a worker, as those of this iteration. False: there is no such worker.
  bool send(int to, std::int64_t iteration);

  // Waits until what was sent can be read by whom it was sent to.
  void finish_sending() { port_->wait(); }

  // Replaces the parameters by the weighted mean of these updates and, where they name this worker,
  // its own parameters of now. What cannot be read whole is left out, and the weights of the others
  // are raised to sum up to 1; if nothing is left, the parameters stay as they are.
  virtual Reduced reduce(std::span<const PeerUpdate> updates) { return port_->reduce(updates); }

  // Shares the parameters with the process that evaluates them.
  void publish() { port_->publish(); }

 protected:
  PeerExchange(int worker, DeviceQueues& queues, Stepper& stepper, const DeviceView& view)
      : queues_(queues), stepper_(stepper), port_(queues.port(worker, view)) {}

  DeviceQueues& queues_;
  Stepper& stepper_;
  std::unique_ptr<DeviceQueuePort> port_;
};

// The exchange of any stepper, through host memory, where the queues are.
class HostPeerExchange : public PeerExchange {
 public:
  // Likewise. What the stepper makes of a minibatch is the step.
  HostPeerExchange(int worker, DeviceQueues& queues, Stepper& stepper)
      : HostPeerExchange(worker, queues, stepper,
                         std::make_unique<std::vector<float>>(queues.shape().parameters)) {}

  PushReport keep_update() override;
  void apply() override;
  Reduced reduce(std::span<const PeerUpdate> updates) override;

 private:
  HostPeerExchange(int worker, DeviceQueues& queues, Stepper& stepper,
                   std::unique_ptr<std::vector<float>> step)
      : PeerExchange(worker, queues, stepper,
                     {.parameters = step->size(),
                      .replica = stepper.replica().data(),
                      .gradient = step->data()}),
        step_(std::move(step)) {}

  std::unique_ptr<std::vector<float>> step_;
};

}  // namespace syncd::trainer
