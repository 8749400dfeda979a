// Where the workers of a decentralized run exchange parameters: queues as in device_queue_steps.h,
// in the memory of their devices, or of the host, where the device is the CPU. Host code: the seam
// to a device, the record by which processes find the queues, and a worker's exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "libclient/shared_memory.h"
#include "reference_trainer/params/device_queue_steps.h"
#include "reference_trainer/params/device_store.h"
#include "reference_trainer/run/exchange.h"

namespace syncd::trainer {

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
  virtual PeerExchange::Reduced reduce(std::span<const PeerUpdate> updates) = 0;
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

// Queues on devices together with their record in shared memory, where other processes find them.
class SharedDeviceQueues {
 public:
  // New queues; every worker has published `initial`. As SharedDeviceStore::create.
  static SharedDeviceQueues create(StoreDevice& device, int workers, std::int64_t slots,
                                   std::span<const float> initial, bool shares);
  static SharedDeviceQueues attach(StoreDevice& device, int fd, int worker);

  int fd() const { return record_.fd(); }
  DeviceQueues& queues() { return *queues_; }

 private:
  SharedDeviceQueues(SharedMemory record, std::unique_ptr<DeviceQueues> queues)
      : record_(std::move(record)), queues_(std::move(queues)) {}

  SharedMemory record_;
  std::unique_ptr<DeviceQueues> queues_;
};

// The mean of the present parameters of the workers that `counts` names. False: none of them has
// any. `out` is as long as a worker has parameters.
bool average_published(DeviceQueues& queues, const std::vector<bool>& counts, std::span<float> out);

// The exchange of a worker: of its stepper on the device of the queues; or of any stepper through
// host memory, where the queues are.
class DevicePeerExchange : public PeerExchange {
 public:
  // Both must outlive the exchange.
  DevicePeerExchange(int worker, DeviceQueues& queues, Stepper& stepper)
      : queues_(queues), stepper_(stepper), port_(queues.port(worker, stepper.view())) {}

  int workers() const override { return queues_.shape().workers; }
  void start_life() override { port_->forget(); }
  PushReport keep_update() override;
  void apply() override { port_->apply_step(); }
  bool send(int to, std::int64_t iteration) override;
  void finish_sending() override { port_->wait(); }
  Reduced reduce(std::span<const PeerUpdate> updates) override { return port_->reduce(updates); }
  void publish() override { port_->publish(); }

 protected:
  DevicePeerExchange(int worker, DeviceQueues& queues, Stepper& stepper, const DeviceView& view)
      : queues_(queues), stepper_(stepper), port_(queues.port(worker, view)) {}

  DeviceQueues& queues_;
  Stepper& stepper_;
  std::unique_ptr<DeviceQueuePort> port_;
};

class HostPeerExchange : public DevicePeerExchange {
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
      : DevicePeerExchange(worker, queues, stepper,
                           {.parameters = step->size(),
                            .replica = stepper.replica().data(),
                            .gradient = step->data()}),
        step_(std::move(step)) {}

  std::unique_ptr<std::vector<float>> step_;
};

}  // namespace syncd::trainer
