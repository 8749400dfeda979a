// DeviceQueues written once for every Machine (device_store_machine.h).
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "reference_trainer/params/device_queues.h"
#include "reference_trainer/params/device_store_machine.h"

namespace syncd::trainer {

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

  PeerExchange::Reduced reduce(std::span<const PeerUpdate> updates) override {
    PeerExchange::Reduced reduced;
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

}  // namespace syncd::trainer
