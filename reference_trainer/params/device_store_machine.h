// DeviceStore written once for every machine that knows memory, streams and groups: a GPU
// (cuda/store.cu), and the CPU in the tests.
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

#include <limits>
#include <string>
#include <utility>

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
    if (initial.size() != shape.parameters) {
      throw std::invalid_argument("a parameter store of " + std::to_string(shape.parameters) +
                                  " parameters does not take " + std::to_string(initial.size()) +
                                  " initial values");
    }
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

}  // namespace syncd::trainer
