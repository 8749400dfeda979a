// The parameters that all workers of a run share, in a device's memory or, where the device is the
// CPU, the host's (device_store_steps.h says how they are kept whole there). Host code: the seams
// between the training and a device, the record by which processes find the same store, and the
// exchange of a worker that uses it.
//
//  - There are no locks: workers that write the same shard do so at the same time.
//  - What a worker that dies in the middle of its update had added stays, even of a shard. The
//    parent ends what it had begun (close_shards) and counts it; until then, others cannot read the
//    shards that it had open and compute their minibatches again. No journal could put the values
//    back: others have added to them meanwhile.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "libclient/shared_memory.h"
#include "reference_trainer/model/workload.h"
#include "reference_trainer/params/device_store_steps.h"
#include "reference_trainer/run/coordinator.h"

namespace syncd::trainer {

// Names memory of a device to other processes: what CUDA's IPC has for it. Plain data.
using DeviceHandle = std::array<std::byte, 64>;

// The device does not let other processes use its memory (CUDA IPC is refused).
class SharingRefused : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A store cannot be used: a shard of it stays open.
class StoreError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One worker's way to a store, with memory of its own for what it pushed and has seen. All but
// whole() are queued on the stepper's stream. Used by the worker's thread alone; whoever makes it
// lets it go before the stepper. Functions throw std::runtime_error when the device fails.
class DeviceStorePort {
 public:
  virtual ~DeviceStorePort() = default;

  virtual void pull() = 0;
  // As SgdRule says, into the stepper's replica too; nothing if the last pull was not whole.
  virtual void push(const SgdRule& rule) = 0;
  virtual void take_back() = 0;  // of what was pushed last
  // Adds an update times `scale`, but not to the replica. For the CPU's store alone.
  virtual void add(const Update& update, float scale) = 0;

  // Waits until all of it is done. A shard that the last pull could not copy whole, if there is
  // one; the others are there.
  virtual std::optional<std::size_t> wait() = 0;
};

// Any thread, except that whoever reads is alone.
class DeviceStore {
 public:
  virtual ~DeviceStore() = default;

  virtual const DeviceShape& shape() const = 0;

  // What another process opens it with. Throws SharingRefused.
  virtual DeviceHandle handle() const = 0;

  // For a worker whose stepper has shown `view`. Throws std::runtime_error if the two do not fit.
  virtual std::unique_ptr<DeviceStorePort> port(int worker, const DeviceView& view) = 0;

  // Copies everything, each shard whole. False: not all of them could be had, because a worker
  // that died has one open or others write without a pause; then `out` is unspecified.
  virtual bool read_all(std::span<float> out) = 0;

  // Ends what a worker that is gone had begun; the number of shards that it had open.
  virtual std::size_t close_shards(int worker) = 0;
};

class DeviceQueues;  // device_queues.h

// What a stepper shows, without one: for tests and benchmarks. Used by one thread.
class DeviceStandIn {
 public:
  virtual ~DeviceStandIn() = default;
  virtual DeviceView view() = 0;  // with a velocity; all zeros, the rule's rate too
  virtual void write(float* to, std::span<const float> values) = 0;
  virtual void read(std::span<float> values, const float* from) = 0;  // once all is done
};

// A kind of device in this process. Any thread.
class StoreDevice {
 public:
  virtual ~StoreDevice() = default;

  // Both throw std::runtime_error if the device cannot, open() SharingRefused where it is
  // the sharing that fails. `worker` is the one of this process; the store must be let go before
  // the process that made it does.
  virtual std::unique_ptr<DeviceStore> create(const DeviceShape& shape,
                                              std::span<const float> initial) = 0;
  virtual std::unique_ptr<DeviceStore> open(const DeviceShape& shape, const DeviceHandle& handle,
                                            int worker) = 0;

  // The same for update queues, in which `initial` is published. `handles` are the workers'.
  virtual std::unique_ptr<DeviceQueues> create_queues(const DeviceShape& shape,
                                                      std::span<const float> initial) = 0;
  virtual std::unique_ptr<DeviceQueues> open_queues(const DeviceShape& shape,
                                                    const std::vector<DeviceHandle>& handles,
                                                    int worker) = 0;

  virtual std::unique_ptr<DeviceStandIn> stand_in(std::size_t parameters, int worker) = 0;
};

// The shape for so many parameters: about a thousand shards, so that a device has enough to do side
// by side, but none so small that its counters cost much.
DeviceShape device_store_shape(const ParameterLayout& layout, int workers);

// What the workers of a run share: a store, or the queues of workers with parameters of their own,
// on a device; together with its record in shared memory, where other processes of the run find it
// and the workers of a store count.
class SharedParameters {
 public:
  // A new store; or new queues, in which every worker has published `initial`. Throw what
  // StoreDevice does, SharedMemoryError, and what device_queue_shape() does. Without `shares`, no
  // other process can attach, and none is asked whether it could.
  static SharedParameters of_store(StoreDevice& device, const ParameterLayout& layout, int workers,
                                   std::span<const float> initial, bool shares);
  static SharedParameters of_queues(StoreDevice& device, int workers, std::int64_t slots,
                                    std::span<const float> initial, bool shares);

  // In a worker's process, behind an inherited descriptor.
  static SharedParameters attach(StoreDevice& device, int fd, int worker);

  SharedParameters(SharedParameters&&) noexcept;
  ~SharedParameters();

  int fd() const { return record_memory_.fd(); }

  // One of the two is there.
  bool has_store() const { return store_ != nullptr; }
  DeviceStore& store() { return *store_; }
  DeviceQueues& queues() { return *queues_; }

  // Updates in the store: those pushed less those taken back.
  std::int64_t updates() const;
  void count_updates(std::int64_t more);

  // Closes what a worker that is gone had open. Returns the number of shards, and counts the update
  // if there are any.
  std::size_t close_shards(int worker);
  std::uint64_t half_written() const;

 private:
  struct Record;

  SharedParameters(SharedMemory memory, std::unique_ptr<DeviceStore> store,
                   std::unique_ptr<DeviceQueues> queues);
  static SharedMemory make_record(const DeviceShape& shape,
                                  const std::vector<DeviceHandle>& handles);

  SharedMemory record_memory_;
  Record* record_ = nullptr;
  std::unique_ptr<DeviceStore> store_;
  std::unique_ptr<DeviceQueues> queues_;
};

// A worker gives up when so many pulls in a row were not whole; of the host's memory, after some 20
// s.
inline constexpr int kDevicePullsMax = 1'000;
inline constexpr int kHostPullsMax = 200;

// What a worker's loop does with parameters that all share, wherever they are. An exchange belongs
// to one worker, whose stepper it works on, and is used by that worker's thread alone. Its
// functions throw StoreError or what the device throws when they cannot be done.
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

// The exchange of a worker: of its stepper on the device of the store; or of any stepper through
// host memory, where the store is.
class DeviceParameterExchange : public ParameterExchange {
 public:
  // All must outlive the exchange.
  DeviceParameterExchange(int worker, SharedParameters& store, Stepper& stepper)
      : DeviceParameterExchange(worker, store, stepper, stepper.view()) {}

  void pull() override { port_->pull(); }
  std::optional<PushReport> push() override;
  void take_back() override;

 protected:
  DeviceParameterExchange(int worker, SharedParameters& store, Stepper& stepper,
                          const DeviceView& view)
      : store_(store), stepper_(stepper), port_(store.store().port(worker, view)) {}

  // Whether the last pull was whole. Throws StoreError where so many in a row were not.
  bool was_whole(int pulls_max);

  SharedParameters& store_;
  Stepper& stepper_;
  std::unique_ptr<DeviceStorePort> port_;

 private:
  int failures_ = 0;  // in a row
};

class HostParameterExchange : public DeviceParameterExchange {
 public:
  // Likewise. A pull waits until it is whole.
  HostParameterExchange(int worker, SharedParameters& store, Stepper& stepper)
      : DeviceParameterExchange(
            worker, store, stepper,
            {.parameters = store.store().shape().parameters, .replica = stepper.replica().data()}) {
  }

  void pull() override;
  std::optional<PushReport> push() override;
  void take_back() override;

 private:
  const Update* pushed_ = nullptr;  // the stepper's, until its next start
};

}  // namespace syncd::trainer
