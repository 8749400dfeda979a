// A parameter store in a device's memory: what its kernels do with one shard, for the GPU and, in
// the tests, for the CPU (device_atomics.h).
//
// Rules, per shard:
//  - Every worker has two counters of its own in every shard: `begun`, raised before it changes a
//    value, and `done`, set to the same when it has changed all. So nobody waits for anybody:
//    values are changed by atomic additions, and several workers may write a shard at once.
//  - A reader sums up `done` over the workers, copies the values, then sums up `begun`. Both only
//    grow and done <= begun, so equal sums mean that nobody was writing at any moment of the copy:
//    it holds whole updates alone. Otherwise it makes the copy again.
//  - A shard whose sum of `done` is that of the reader's last copy is left out: nothing has been
//    completed there since.
//  - A worker that dies in the middle of a shard leaves its begun > done there, and readers in
//    vain trying, until CloseShard sets its `done`: only this worker's counters say it, whatever
//    others write at the same time. What it had added stays.
//
// Why the orders suffice: each thread of a writer has the rise of `begun` behind it (the group's
// barrier) when it passes a fence, before it adds; each thread of a reader passes a fence between
// its copy and the group's barrier, behind which `begun` is read. So a reader that sees an added
// value sees the risen `begun`. And `done` is released behind the barrier that ends all additions,
// and acquired in front of the barrier that starts the copy.
#pragma once

#include "reference_trainer/model/device_atomics.h"
#include "reference_trainer/model/device_view.h"

namespace syncd::trainer {

// How parameters are cut into pieces: the shards of a store, or the pieces of each slot of a queue
// (device_queue_steps.h).
struct DeviceShape {
  std::size_t parameters = 0;
  std::size_t piece_floats = 1;  // all but the last piece have this many
  int workers = 1;
  std::int64_t slots = 0;  // of an edge of a queue

  constexpr std::size_t pieces() const { return (parameters + piece_floats - 1) / piece_floats; }
  constexpr std::size_t first_of(std::size_t piece) const { return piece * piece_floats; }
  constexpr std::size_t end_of(std::size_t piece) const {
    const std::size_t end = (piece + 1) * piece_floats;
    return end < parameters ? end : parameters;
  }
  // Of a store.
  constexpr std::size_t counters() const { return pieces() * static_cast<std::size_t>(workers); }
  // Slots of a queue, those of the edges and the published one behind them.
  constexpr std::size_t slot_of(int from, std::int64_t iteration) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(slots) +
           static_cast<std::size_t>(iteration % slots);
  }
  constexpr std::size_t published() const {
    return static_cast<std::size_t>(workers) * static_cast<std::size_t>(slots);
  }
  constexpr std::size_t all_slots() const { return published() + 1; }
};

// In front of a writer's first change of a piece, and behind its last.
template <typename Group>
SYNCD_ON_DEVICE void begin_writing(Group& group, std::uint64_t& begun) {
  if (group.rank() == 0) {
    const std::uint64_t now = DeviceAtomic<std::uint64_t>(begun).load(orders::memory_order_relaxed);
    DeviceAtomic<std::uint64_t>(begun).store(now + 1, orders::memory_order_relaxed);
  }
  group.sync();
  device_fence();
}
template <typename Group>
SYNCD_ON_DEVICE void end_writing(Group& group, std::uint64_t& begun, std::uint64_t& done) {
  group.sync();
  if (group.rank() != 0) return;
  const std::uint64_t now = DeviceAtomic<std::uint64_t>(begun).load(orders::memory_order_relaxed);
  DeviceAtomic<std::uint64_t>(done).store(now, orders::memory_order_release);
}

// Where the parts of a store stand, in device memory.
struct DeviceStorePlaces {
  DeviceShape shape;
  float* values = nullptr;         // [parameters]
  std::uint64_t* begun = nullptr;  // [shard][worker]
  std::uint64_t* done = nullptr;   // [shard][worker]
  bool is_alone = false;           // one thread does everything: nothing need be atomic

  constexpr std::uint64_t* of(std::uint64_t* counters, std::size_t shard) const {
    return counters + shard * static_cast<std::size_t>(shape.workers);
  }
};

// One parameter's part in a step; see SgdRule.
struct SgdStep {
  float velocity = 0;
  float delta = 0;
};
SYNCD_ON_DEVICE inline SgdStep sgd_step(const SgdRule& rule, std::size_t i, float gradient,
                                        float velocity, float value) {
  float step = rule.momentum * velocity + rule.scale * gradient;
  if (rule.weight_decay != 0) {
    for (std::size_t r = 0; r < rule.decayed.size(); ++r) {
      // Below the first one, the difference wraps around to something very large.
      if (i - rule.decayed[r].first < rule.decayed[r].count) step += rule.weight_decay * value;
    }
  }
  return {step, static_cast<float>(-rule.rate * step)};
}

// The same for one that is in memory: changes the velocity, returns the delta.
SYNCD_ON_DEVICE inline float sgd_delta(const SgdRule& rule, const float* gradient, float* velocity,
                                       const float* replica, std::size_t i) {
  const SgdStep next =
      sgd_step(rule, i, gradient[i], velocity == nullptr ? 0 : velocity[i], replica[i]);
  if (velocity != nullptr) velocity[i] = next.velocity;
  return next.delta;
}

// A thread asks for so many values at once before it needs the first of them: memory is far away.
inline constexpr std::size_t kAtOnce = 8;
inline constexpr std::size_t kStepsAtOnce = 4;  // of which each asks for three

// Steps along the gradient and adds the step to the store and to the worker's own replica; or takes
// the last step out of the store again.
struct PushShard {
  DeviceStorePlaces store;
  int worker = 0;
  bool taking_back = false;
  float* replica = nullptr;  // the worker's, as the gradient, the velocity (or null) and the step
  const float* gradient = nullptr;
  float* velocity = nullptr;
  float* step = nullptr;            // kept for taking back
  std::uint64_t* failed = nullptr;  // of the last pull: unless it is 0, nothing is done
  SgdRule rule;

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t shard) const {
    if (*failed != 0) return;
    std::uint64_t& begun = store.of(store.begun, shard)[worker];
    begin_writing(group, begun);
    const std::size_t end = store.shape.end_of(shard);
    const std::size_t stride = group.size();
    for (std::size_t i = store.shape.first_of(shard) + group.rank(); i < end;
         i += kStepsAtOnce * stride) {
      if (taking_back) {
        add_the_opposite(i, stride, end);
      } else {
        add_a_step(i, stride, end);
      }
    }
    end_writing(group, begun, store.of(store.done, shard)[worker]);
  }

 private:
  // Both for the values first, first + stride, ..., kStepsAtOnce of them at most.
  SYNCD_ON_DEVICE void add_a_step(std::size_t first, std::size_t stride, std::size_t end) const {
    float gradients[kStepsAtOnce];
    float velocities[kStepsAtOnce];
    float values[kStepsAtOnce];
    for (std::size_t k = 0; k < kStepsAtOnce; ++k) {
      const std::size_t i = first + k * stride;
      if (i >= end) break;
      gradients[k] = gradient[i];
      velocities[k] = velocity == nullptr ? 0 : velocity[i];
      values[k] = replica[i];
    }
    for (std::size_t k = 0; k < kStepsAtOnce; ++k) {
      const std::size_t i = first + k * stride;
      if (i >= end) break;
      const SgdStep next = sgd_step(rule, i, gradients[k], velocities[k], values[k]);
      if (velocity != nullptr) velocity[i] = next.velocity;
      step[i] = next.delta;
      replica[i] = values[k] + next.delta;
      DeviceAtomic<float>(store.values[i]).fetch_add(next.delta, orders::memory_order_relaxed);
    }
  }

  SYNCD_ON_DEVICE void add_the_opposite(std::size_t first, std::size_t stride,
                                        std::size_t end) const {
    for (std::size_t k = 0; k < kStepsAtOnce; ++k) {
      const std::size_t i = first + k * stride;
      if (i >= end) break;
      DeviceAtomic<float>(store.values[i]).fetch_add(-step[i], orders::memory_order_relaxed);
    }
  }
};

// Adds an update that is in the CPU's memory to one of the shards that it is in; or takes it back.
struct AddUpdate {
  DeviceStorePlaces store;
  int worker = 0;
  float scale = 1;                         // -1: takes it back
  const std::uint32_t* indices = nullptr;  // ascending; null: all parameters
  const float* deltas = nullptr;
  const std::size_t* bounds = nullptr;  // with indices: where each shard's begin among them

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t place) const {
    const bool all = indices == nullptr;
    const std::size_t shard = all ? place : indices[bounds[place]] / store.shape.piece_floats;
    const std::size_t end = all ? store.shape.end_of(shard) : bounds[place + 1];
    std::uint64_t& begun = store.of(store.begun, shard)[worker];
    begin_writing(group, begun);
    for (std::size_t i = (all ? store.shape.first_of(shard) : bounds[place]) + group.rank();
         i < end; i += group.size()) {
      const DeviceAtomic<float> value(store.values[all ? i : indices[i]]);
      if (store.is_alone) {
        value.store(value.load(orders::memory_order_relaxed) + scale * deltas[i],
                    orders::memory_order_relaxed);
      } else {
        value.fetch_add(scale * deltas[i], orders::memory_order_relaxed);
      }
    }
    end_writing(group, begun, store.of(store.done, shard)[worker]);
  }
};

// Copies a shard, unless it has not changed since the reader's last copy.
struct PullShard {
  DeviceStorePlaces store;
  float* out = nullptr;             // [parameters]
  std::uint64_t* seen = nullptr;    // [shard]: the sum of `done` at the last copy
  std::uint64_t* failed = nullptr;  // becomes 1 + the shard if no copy was whole
  int tries = 1;

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t shard) const {
    const std::size_t end = store.shape.end_of(shard);
    for (int attempt = 0; attempt < tries; ++attempt) {
      const std::uint64_t done =
          group.sum(sum_of_mine(group, store.done, shard, orders::memory_order_acquire));
      if (done == seen[shard]) return;
      const std::size_t first = store.shape.first_of(shard);
      if (store.is_alone) {
        for (std::size_t i = first; i < end; ++i) out[i] = store.values[i];
      } else {
        for (std::size_t i = first + group.rank(); i < end; i += kAtOnce * group.size()) {
          copy(i, group.size(), end);
        }
      }
      device_fence();
      group.sync();
      const std::uint64_t begun =
          group.sum(sum_of_mine(group, store.begun, shard, orders::memory_order_relaxed));
      if (begun == done) {
        if (group.rank() == 0) seen[shard] = done;
        return;
      }
      group.pause(attempt);
    }
    if (group.rank() == 0) {
      DeviceAtomic<std::uint64_t>(*failed).store(shard + 1, orders::memory_order_relaxed);
    }
  }

 private:
  // The values first, first + stride, ..., kAtOnce of them at most.
  SYNCD_ON_DEVICE void copy(std::size_t first, std::size_t stride, std::size_t end) const {
    if (stride == 1) {
      for (std::size_t i = first; i < end && i < first + kAtOnce; ++i) {
        out[i] = DeviceAtomic<float>(store.values[i]).load(orders::memory_order_relaxed);
      }
      return;
    }
    float values[kAtOnce];
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      const std::size_t i = first + k * stride;
      if (i >= end) break;
      values[k] = DeviceAtomic<float>(store.values[i]).load(orders::memory_order_relaxed);
    }
    for (std::size_t k = 0; k < kAtOnce; ++k) {
      const std::size_t i = first + k * stride;
      if (i >= end) break;
      out[i] = values[k];
    }
  }

  template <typename Group, typename Order>
  SYNCD_ON_DEVICE std::uint64_t sum_of_mine(Group& group, std::uint64_t* counters,
                                            std::size_t shard, Order order) const {
    std::uint64_t* mine = store.of(counters, shard);
    std::uint64_t sum = 0;
    for (auto w = group.rank(); w < static_cast<std::size_t>(store.shape.workers);
         w += group.size()) {
      sum += DeviceAtomic<std::uint64_t>(mine[w]).load(order);
    }
    return sum;
  }
};

// Ends what a worker that is gone has begun.
struct CloseShard {
  DeviceStorePlaces store;
  int worker = 0;
  std::uint64_t* closed = nullptr;  // counts the shards that were open

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t shard) const {
    if (group.rank() != 0) return;
    DeviceAtomic<std::uint64_t> done(store.of(store.done, shard)[worker]);
    const std::uint64_t begun = DeviceAtomic<std::uint64_t>(store.of(store.begun, shard)[worker])
                                    .load(orders::memory_order_acquire);
    if (done.load(orders::memory_order_relaxed) == begun) return;
    done.store(begun, orders::memory_order_release);
    DeviceAtomic<std::uint64_t>(*closed).fetch_add(1, orders::memory_order_relaxed);
  }
};

}  // namespace syncd::trainer
