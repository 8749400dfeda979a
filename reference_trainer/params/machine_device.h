// DeviceStore, DeviceQueues and StoreDevice, written once for every machine that knows memory,
// streams and groups: a GPU (cuda/store.cu), and the CPU.
//
// A Machine is one device, as a value:
//   bool kIsCpu                                      // its memory is the host's
//   void* take(bytes);  void give(void*);            // its memory, filled with zeros
//   void* take_shared(bytes);                        // likewise, of which share() knows
//   DeviceHandle share(void*);                       // for other processes; throws SharingRefused
//   void* open(handle);  void close(void*);          // memory of another process, likewise
//   Stream new_stream();                             // an owner; .get() is what the rest takes
//   void copy_in(void* stream, void* to, const void* from, bytes);  // from memory of the host
//   void copy_out(void* stream, void* to, const void* from, bytes); // to it; waits
//   void fill(void* stream, void* memory, unsigned char value, bytes);
//   void run(void* stream, pieces, const Step&);     // for every piece, in any order or at once
//   void wait(void* stream);             // until it is done; throws if that failed
//   void settle(void* stream) noexcept;  // the same before memory goes, failed or not
//   Machine of(const void* memory);                  // the one whose memory it is
//   Machine of_worker(int worker);                   // the one that a worker computes on
//   void must_reach(const Machine&);                 // throws if its memory cannot be added to
//   void reach(const Machine&);                      // its memory is about to be used from here
// Copies, fills and runs on one stream take effect one after the other.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reference_trainer/params/device_queues.h"
#include "reference_trainer/params/device_store.h"
#include "reference_trainer/params/device_store_steps.h"

namespace syncd::trainer {

// In one kernel; beyond them the host decides.
inline constexpr int kDevicePullTries = 1'024;
// Kernels of the monitor's read, before it says that not all shards can be had.
inline constexpr int kDeviceReads = 8;

// Memory of a machine.
template <typename Machine, typename T>
class MachineMemory {
 public:
  MachineMemory(Machine machine, std::size_t count)
      : machine_(machine), data_(static_cast<T*>(machine_.take(count * sizeof(T)))) {}
  ~MachineMemory() { machine_.give(data_); }
  MachineMemory(const MachineMemory&) = delete;
  MachineMemory& operator=(const MachineMemory&) = delete;
  T* data() const { return data_; }

 private:
  Machine machine_;
  T* data_;
};

// Memory that processes share, with a stream for what is done there. What is behind it, if it is
// ours, goes with it.
template <typename Machine>
struct SharedRegion {
  SharedRegion(Machine of_memory, void* at, bool ours)
      : machine(of_memory), memory(at), stream(machine.new_stream()), is_ours(ours) {}
  ~SharedRegion() {
    machine.settle(stream.get());
    if (is_ours) {
      machine.give(memory);
    } else {
      machine.close(memory);
    }
  }
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // The part that begins behind so many bytes, at a whole number of kAlignment.
  static constexpr std::size_t aligned(std::size_t bytes) {
    constexpr std::size_t kAlignment = 256;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  template <typename T>
  T* part(std::size_t bytes) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory) + aligned(bytes));
  }

  Machine machine;
  void* memory;
  typename Machine::Stream stream;
  bool is_ours;
};

// Throws std::invalid_argument for a worker, or a stepper, that what has this shape does not take.
inline void check_port(const DeviceShape& shape, int worker, const DeviceView& view) {
  if (worker >= 0 && worker < shape.workers && view.parameters == shape.parameters) return;
  throw std::invalid_argument("what " + std::to_string(shape.workers) + " workers share of " +
                              std::to_string(shape.parameters) + " parameters is not for worker " +
                              std::to_string(worker) + " with " + std::to_string(view.parameters));
}

// What a reader of the store has, beside the place that it copies to.
template <typename Machine>
class StoreSight {
 public:
  StoreSight(Machine machine, void* stream, const DeviceStorePlaces& store)
      : machine_(machine),
        stream_(stream),
        store_(store),
        seen_(machine, store.shape.pieces()),
        failed_(machine, 1) {
    machine_.fill(stream_, seen_.data(), 0xff, store.shape.pieces() * sizeof(std::uint64_t));
  }

  void pull(float* out) {
    machine_.fill(stream_, failed_.data(), 0, sizeof(std::uint64_t));
    machine_.run(stream_, store_.shape.pieces(),
                 PullShard{.store = store_,
                           .out = out,
                           .seen = seen_.data(),
                           .failed = failed_.data(),
                           .tries = kDevicePullTries});
  }

  std::optional<std::size_t> failed_shard() {
    std::uint64_t failed = 0;
    machine_.copy_out(stream_, &failed, failed_.data(), sizeof(failed));
    if (failed == 0) return std::nullopt;
    return static_cast<std::size_t>(failed - 1);
  }

  std::uint64_t* failed() const { return failed_.data(); }

 private:
  Machine machine_;
  void* stream_;
  DeviceStorePlaces store_;
  MachineMemory<Machine, std::uint64_t> seen_;
  MachineMemory<Machine, std::uint64_t> failed_;
};

template <typename Machine>
class MachinePort : public DeviceStorePort {
 public:
  MachinePort(Machine machine, const DeviceStorePlaces& store, int worker, const DeviceView& view)
      : machine_(machine),
        store_(store),
        worker_(worker),
        view_(view),
        sight_(machine, view.stream, store),
        step_(machine, store.shape.parameters) {}
  ~MachinePort() override { machine_.settle(view_.stream); }

  void pull() override { sight_.pull(view_.replica); }
  void push(const SgdRule& rule) override { run(rule, false); }
  void take_back() override { run(view_.rule, true); }
  void add(const Update& update, float scale) override {
    if constexpr (Machine::kIsCpu) {
      AddUpdate step{
          .store = store_, .worker = worker_, .scale = scale, .deltas = update.deltas.data()};
      if (update.dense()) return machine_.run(view_.stream, store_.shape.pieces(), step);
      bounds_.clear();
      std::size_t end = 0;  // of the shard
      for (std::size_t i = 0; i < update.indices.size(); ++i) {
        if (update.indices[i] < end) continue;
        bounds_.push_back(i);
        end = store_.shape.end_of(update.indices[i] / store_.shape.piece_floats);
      }
      bounds_.push_back(update.indices.size());
      step.indices = update.indices.data();
      step.bounds = bounds_.data();
      machine_.run(view_.stream, bounds_.size() - 1, step);
    } else {
      throw std::logic_error("an update in host memory is for the CPU's store");
    }
  }
  std::optional<std::size_t> wait() override { return sight_.failed_shard(); }

 private:
  void run(const SgdRule& rule, bool taking_back) {
    machine_.run(view_.stream, store_.shape.pieces(),
                 PushShard{.store = store_,
                           .worker = worker_,
                           .taking_back = taking_back,
                           .replica = view_.replica,
                           .gradient = view_.gradient,
                           .velocity = view_.velocity,
                           .step = step_.data(),
                           .failed = sight_.failed(),
                           .rule = rule});
  }

  Machine machine_;
  DeviceStorePlaces store_;
  int worker_;
  DeviceView view_;
  StoreSight<Machine> sight_;
  MachineMemory<Machine, float> step_;
  std::vector<std::size_t> bounds_;
};

template <typename Machine>
class MachineStore : public DeviceStore {
 public:
  // A new one, with memory of its own.
  MachineStore(Machine of_memory, const DeviceShape& shape, std::span<const float> initial)
      : MachineStore(of_memory, shape, of_memory.take_shared(bytes_of(shape)), true) {
    // Now rather than in the middle of training; another process's workers could not even tell.
    for (int worker = 0; worker < shape.workers; ++worker) {
      machine().of_worker(worker).must_reach(machine());
    }
    machine().copy_in(stream(), places_.values, initial.data(), initial.size_bytes());
    machine().wait(stream());
  }

  // One of another process.
  MachineStore(Machine of_memory, const DeviceShape& shape, const DeviceHandle& handle)
      : MachineStore(of_memory, shape, of_memory.open(handle), false) {}

  ~MachineStore() override { machine().settle(stream()); }  // before anything of it goes

  const DeviceShape& shape() const override { return places_.shape; }
  DeviceHandle handle() const override { return region_.machine.share(region_.memory); }

  std::unique_ptr<DeviceStorePort> port(int worker, const DeviceView& view) override {
    check_port(places_.shape, worker, view);
    Machine there = machine().of(view.replica);
    if (region_.is_ours) there.reach(machine());
    return std::make_unique<MachinePort<Machine>>(there, places_, worker, view);
  }

  bool read_all(std::span<float> out) override {
    if (!monitor_) monitor_ = std::make_unique<Monitor>(machine(), stream(), places_);
    for (int read = 0; read < kDeviceReads; ++read) {
      monitor_->sight.pull(monitor_->copy.data());
      if (monitor_->sight.failed_shard()) continue;
      machine().copy_out(stream(), out.data(), monitor_->copy.data(), out.size_bytes());
      return true;
    }
    return false;
  }

  std::size_t close_shards(int worker) override {
    const MachineMemory<Machine, std::uint64_t> closed(machine(), 1);
    machine().run(stream(), places_.shape.pieces(),
                  CloseShard{.store = places_, .worker = worker, .closed = closed.data()});
    std::uint64_t count = 0;
    machine().copy_out(stream(), &count, closed.data(), sizeof(count));
    return static_cast<std::size_t>(count);
  }

 private:
  using Region = SharedRegion<Machine>;

  struct Monitor {
    Monitor(Machine machine, void* stream, const DeviceStorePlaces& places)
        : sight(machine, stream, places), copy(machine, places.shape.parameters) {}
    StoreSight<Machine> sight;
    MachineMemory<Machine, float> copy;
  };

  static constexpr std::size_t bytes_of(const DeviceShape& shape) {
    return Region::aligned(shape.parameters * sizeof(float)) +
           2 * shape.counters() * sizeof(std::uint64_t);
  }

  MachineStore(Machine of_memory, const DeviceShape& shape, void* memory, bool is_ours)
      : region_(of_memory, memory, is_ours) {
    auto* counters = region_.template part<std::uint64_t>(shape.parameters * sizeof(float));
    places_ = {.shape = shape,
               .values = region_.template part<float>(0),
               .begun = counters,
               .done = counters + shape.counters()};
    if constexpr (Machine::kIsCpu) places_.is_alone = machine().is_alone();
  }

  Machine& machine() { return region_.machine; }
  void* stream() { return region_.stream.get(); }

  Region region_;
  DeviceStorePlaces places_;
  std::unique_ptr<Monitor> monitor_;
};

template <typename Machine>
class MachineStandIn : public DeviceStandIn {
 public:
  MachineStandIn(Machine machine, std::size_t parameters)
      : machine_(machine),
        stream_(machine_.new_stream()),
        parameters_(parameters),
        replica_(machine, parameters),
        gradient_(machine, parameters),
        velocity_(machine, parameters) {}
  ~MachineStandIn() override { machine_.settle(stream_.get()); }

  DeviceView view() override {
    return {.parameters = parameters_,
            .replica = replica_.data(),
            .gradient = gradient_.data(),
            .velocity = velocity_.data(),
            .rule = {},
            .stream = stream_.get()};
  }
  void write(float* to, std::span<const float> values) override {
    machine_.copy_in(stream_.get(), to, values.data(), values.size_bytes());
  }
  void read(std::span<float> values, const float* from) override {
    machine_.copy_out(stream_.get(), values.data(), from, values.size_bytes());
  }

 private:
  Machine machine_;
  typename Machine::Stream stream_;
  std::size_t parameters_;
  MachineMemory<Machine, float> replica_;
  MachineMemory<Machine, float> gradient_;
  MachineMemory<Machine, float> velocity_;
};

// ---- Queues

template <typename Machine>
class MachineQueuePort : public DeviceQueuePort {
 public:
  MachineQueuePort(Machine machine, const std::vector<DeviceQueuePlaces>& queues, int worker,
                   const DeviceView& view)
      : machine_(machine),
        queues_(queues),
        worker_(worker),
        view_(view),
        shape_(queues.front().shape),
        step_(machine, shape_.parameters) {}
  ~MachineQueuePort() override { machine_.settle(view_.stream); }

  void forget() override {
    for (const DeviceQueuePlaces& queue : queues_) {
      for (std::int64_t slot = 0; slot < shape_.slots; ++slot) {
        write(queue, shape_.slot_of(worker_, slot), -1, nullptr);
      }
    }
  }

  void keep_step(const SgdRule& rule) override {
    machine_.run(view_.stream, shape_.pieces(),
                 KeepStep{.shape = shape_,
                          .rule = rule,
                          .gradient = view_.gradient,
                          .replica = view_.replica,
                          .velocity = view_.velocity,
                          .step = step_.data()});
  }

  void apply_step() override {
    machine_.run(view_.stream, shape_.pieces(),
                 ApplyStep{.shape = shape_, .step = step_.data(), .replica = view_.replica});
  }

  void send(int to, std::int64_t iteration) override {
    write(queues_[static_cast<std::size_t>(to)], shape_.slot_of(worker_, iteration), iteration,
          view_.replica);
  }

  void publish() override { write(own(), shape_.published(), 0, view_.replica); }

  Reduced reduce(std::span<const PeerUpdate> updates) override {
    Reduced reduced;
    std::vector<QueuedUpdate> wanted;
    double own_weight = 0;
    for (const PeerUpdate& update : updates) {
      if (update.rank == worker_) {
        own_weight += update.weight;
      } else if (update.rank < 0 || update.rank >= shape_.workers || update.iteration < 0) {
        ++reduced.missing;
      } else {
        wanted.push_back({.slot = shape_.slot_of(update.rank, update.iteration),
                          .iteration = update.iteration,
                          .weight = update.weight});
      }
    }
    receive(wanted);
    machine_.run(view_.stream, shape_.pieces(),
                 ReducePiece{.shape = shape_,
                             .updates = wanted.empty() ? nullptr : updates_->data(),
                             .count = wanted.size(),
                             .received = wanted.empty() ? nullptr : received_->data(),
                             .own_weight = own_weight,
                             .replica = view_.replica});
    if (wanted.empty()) {
      machine_.wait(view_.stream);
      return reduced;
    }
    machine_.copy_out(view_.stream, wanted.data(), updates_->data(),
                      wanted.size() * sizeof(QueuedUpdate));
    for (const QueuedUpdate& update : wanted) {
      if (update.whole == shape_.pieces()) {
        ++reduced.whole;
      } else if (update.torn > 0) {
        ++reduced.torn;
      } else {
        ++reduced.missing;
      }
    }
    return reduced;
  }

  void wait() override { machine_.wait(view_.stream); }

 private:
  const DeviceQueuePlaces& own() const { return queues_[static_cast<std::size_t>(worker_)]; }

  void write(const DeviceQueuePlaces& queue, std::size_t slot, std::int64_t iteration,
             const float* values) {
    machine_.run(view_.stream, shape_.pieces(),
                 SendPiece{.queue = queue, .slot = slot, .iteration = iteration, .values = values});
  }

  void receive(const std::vector<QueuedUpdate>& wanted) {
    if (wanted.empty()) return;
    if (wanted.size() > room_) {
      machine_.wait(view_.stream);
      updates_ = std::make_unique<MachineMemory<Machine, QueuedUpdate>>(machine_, wanted.size());
      received_ = std::make_unique<MachineMemory<Machine, float>>(
          machine_, wanted.size() * shape_.parameters);
      room_ = wanted.size();
    }
    machine_.copy_in(view_.stream, updates_->data(), wanted.data(),
                     wanted.size() * sizeof(QueuedUpdate));
    machine_.run(view_.stream, wanted.size() * shape_.pieces(),
                 ReceivePiece{.queue = own(),
                              .updates = updates_->data(),
                              .out = received_->data(),
                              .tries = kDevicePullTries});
  }

  Machine machine_;
  std::vector<DeviceQueuePlaces> queues_;
  int worker_;
  DeviceView view_;
  DeviceShape shape_;
  MachineMemory<Machine, float> step_;
  std::size_t room_ = 0;  // of the two below, in updates
  std::unique_ptr<MachineMemory<Machine, QueuedUpdate>> updates_;
  std::unique_ptr<MachineMemory<Machine, float>> received_;
};

template <typename Machine>
class MachineQueues : public DeviceQueues {
 public:
  // New ones, each in the memory of its worker's machine, in which `initial` is published.
  MachineQueues(Machine machine, const DeviceShape& shape, std::span<const float> initial)
      : shape_(shape), is_ours_(true) {
    for (int worker = 0; worker < shape.workers; ++worker) {
      Machine there = machine.of_worker(worker);
      add(there, there.take_shared(bytes_of(shape)));
    }
    for (std::size_t worker = 0; worker < queues_.size(); ++worker) {
      Region& queue = *queues_[worker];
      const MachineMemory<Machine, float> values(queue.machine, initial.size());
      queue.machine.copy_in(queue.stream.get(), values.data(), initial.data(),
                            initial.size_bytes());
      for (std::size_t slot = 0; slot < shape.all_slots(); ++slot) {
        const bool published = slot == shape.published();
        queue.machine.run(queue.stream.get(), shape.pieces(),
                          SendPiece{.queue = places_[worker],
                                    .slot = slot,
                                    .iteration = published ? 0 : -1,
                                    .values = published ? values.data() : nullptr});
      }
      queue.machine.wait(queue.stream.get());
    }
  }

  // Those of another process, as `worker` reaches them.
  MachineQueues(Machine machine, const DeviceShape& shape, const std::vector<DeviceHandle>& handles,
                int worker)
      : shape_(shape), is_ours_(false) {
    for (const DeviceHandle& handle : handles) {
      Machine here = machine.of_worker(worker);
      add(here, here.open(handle));
    }
  }

  const DeviceShape& shape() const override { return shape_; }

  std::vector<DeviceHandle> handles() const override {
    std::vector<DeviceHandle> handles;
    for (const auto& queue : queues_) handles.push_back(queue->machine.share(queue->memory));
    return handles;
  }

  std::unique_ptr<DeviceQueuePort> port(int worker, const DeviceView& view) override {
    check_port(shape_, worker, view);
    Machine there = queues_[static_cast<std::size_t>(worker)]->machine.of(view.replica);
    if (is_ours_) {
      for (const auto& queue : queues_) there.reach(queue->machine);
    }
    return std::make_unique<MachineQueuePort<Machine>>(there, places_, worker, view);
  }

  bool read_published(int worker, std::span<float> out) override {
    Region& queue = *queues_[static_cast<std::size_t>(worker)];
    void* stream = queue.stream.get();
    const MachineMemory<Machine, float> copy(queue.machine, shape_.parameters);
    const MachineMemory<Machine, QueuedUpdate> update(queue.machine, 1);
    QueuedUpdate wanted{.slot = shape_.published()};
    queue.machine.copy_in(stream, update.data(), &wanted, sizeof(wanted));
    queue.machine.run(stream, shape_.pieces(),
                      ReceivePiece{.queue = places_[static_cast<std::size_t>(worker)],
                                   .updates = update.data(),
                                   .out = copy.data(),
                                   .tries = kDevicePullTries});
    queue.machine.copy_out(stream, &wanted, update.data(), sizeof(wanted));
    if (wanted.whole != shape_.pieces()) return false;
    queue.machine.copy_out(stream, out.data(), copy.data(), out.size_bytes());
    return true;
  }

 private:
  using Region = SharedRegion<Machine>;

  static constexpr std::size_t value_bytes(const DeviceShape& shape) {
    return shape.all_slots() * shape.parameters * sizeof(float);
  }
  static constexpr std::size_t bytes_of(const DeviceShape& shape) {
    return Region::aligned(value_bytes(shape)) +
           shape.all_slots() * shape.pieces() * sizeof(QueuePiece);
  }

  void add(Machine machine, void* memory) {
    queues_.push_back(std::make_unique<Region>(machine, memory, is_ours_));
    places_.push_back({.shape = shape_,
                       .values = queues_.back()->template part<float>(0),
                       .pieces = queues_.back()->template part<QueuePiece>(value_bytes(shape_))});
  }

  DeviceShape shape_;
  bool is_ours_;
  std::vector<std::unique_ptr<Region>> queues_;  // by the worker that reads
  std::vector<DeviceQueuePlaces> places_;
};

template <typename Machine>
class MachineDevice : public StoreDevice {
 public:
  explicit MachineDevice(Machine machine) : machine_(std::move(machine)) {}

  std::unique_ptr<DeviceStore> create(const DeviceShape& shape,
                                      std::span<const float> initial) override {
    return std::make_unique<MachineStore<Machine>>(machine_.of_worker(0), shape, initial);
  }
  std::unique_ptr<DeviceStore> open(const DeviceShape& shape, const DeviceHandle& handle,
                                    int worker) override {
    return std::make_unique<MachineStore<Machine>>(machine_.of_worker(worker), shape, handle);
  }
  std::unique_ptr<DeviceQueues> create_queues(const DeviceShape& shape,
                                              std::span<const float> initial) override {
    return std::make_unique<MachineQueues<Machine>>(machine_, shape, initial);
  }
  std::unique_ptr<DeviceQueues> open_queues(const DeviceShape& shape,
                                            const std::vector<DeviceHandle>& handles,
                                            int worker) override {
    return std::make_unique<MachineQueues<Machine>>(machine_, shape, handles, worker);
  }
  std::unique_ptr<DeviceStandIn> stand_in(std::size_t parameters, int worker) override {
    return std::make_unique<MachineStandIn<Machine>>(machine_.of_worker(worker), parameters);
  }

 private:
  Machine machine_;
};

}  // namespace syncd::trainer
