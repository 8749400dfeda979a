// Update queues in a device's memory, for workers with parameters of their own: what kernels do
// with one piece of an update, for the GPU and, in the tests, for the CPU (device_atomics.h).
//
// Every worker has a queue, in the memory of its device: an edge for every worker that may send to
// it, so many slots an edge, the update of iteration k in slot k mod slots (as in
// libclient/update_queue.h), and one slot more in which it publishes its own parameters. A slot is
// cut into pieces, each with two counters and the iteration that it is of. The writer of an edge
// raises `begun`, writes, and sets `done` to the same; a reader looks at `done` and the iteration,
// copies, looks at `begun`, and has a whole piece if the counters are equal and the iteration is
// the wanted one: the same order of things as in device_store_steps.h, which says why it suffices.
// Counters only grow, so that a piece that was written again meanwhile shows. An update counts only
// if all its pieces are whole. A writer that dies in the middle leaves begun > done; whoever writes
// the piece next mends it.
#pragma once

#include "reference_trainer/params/device_store_steps.h"

namespace syncd::trainer {

struct QueuePiece {
  std::uint64_t begun;
  std::uint64_t done;
  std::int64_t iteration;  // -1: nothing was written, or it is forgotten
};

// Where the parts of one worker's queue stand, in device memory.
struct DeviceQueuePlaces {
  DeviceShape shape;
  float* values = nullptr;       // [slot][parameters]
  QueuePiece* pieces = nullptr;  // [slot][piece]

  constexpr float* values_of(std::size_t slot) const { return values + slot * shape.parameters; }
  constexpr QueuePiece& piece(std::size_t slot, std::size_t number) const {
    return pieces[slot * shape.pieces() + number];
  }
};

// Writes one piece of a slot; with `values` null, forgets it.
struct SendPiece {
  DeviceQueuePlaces queue;
  std::size_t slot = 0;
  std::int64_t iteration = -1;
  const float* values = nullptr;  // [parameters]

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t number) const {
    QueuePiece& piece = queue.piece(slot, number);
    begin_writing(group, piece.begun);
    if (group.rank() == 0) {
      DeviceAtomic<std::int64_t>(piece.iteration).store(iteration, orders::memory_order_relaxed);
    }
    const std::size_t end = values == nullptr ? 0 : queue.shape.end_of(number);
    float* to = queue.values_of(slot);
    for (std::size_t i = queue.shape.first_of(number) + group.rank(); i < end; i += group.size()) {
      DeviceAtomic<float>(to[i]).store(values[i], orders::memory_order_relaxed);
    }
    end_writing(group, piece.begun, piece.done);
  }
};

// An update that is to be received, and what came of it.
struct QueuedUpdate {
  std::size_t slot = 0;
  std::int64_t iteration = -1;  // -1: whatever is there
  double weight = 0;
  std::uint64_t whole = 0;  // pieces, once it is received
  std::uint64_t torn = 0;
};

// Copies one piece of one update; pieces of the second update follow those of the first.
struct ReceivePiece {
  DeviceQueuePlaces queue;
  QueuedUpdate* updates = nullptr;
  float* out = nullptr;  // [update][parameters]
  int tries = 1;         // while somebody is writing there

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t place) const {
    QueuedUpdate& update = updates[place / queue.shape.pieces()];
    float* to = out + place / queue.shape.pieces() * queue.shape.parameters;
    const std::size_t number = place % queue.shape.pieces();
    QueuePiece& piece = queue.piece(update.slot, number);
    const float* from = queue.values_of(update.slot);
    const std::size_t end = queue.shape.end_of(number);
    for (int attempt = 0; attempt < tries; ++attempt) {
      // Of the first thread alone, and handed to the others as a sum.
      const bool first = group.rank() == 0;
      const std::uint64_t done = group.sum(
          first ? DeviceAtomic<std::uint64_t>(piece.done).load(orders::memory_order_acquire) : 0);
      const bool wanted =
          group.sum(first && is_wanted(update, DeviceAtomic<std::int64_t>(piece.iteration)
                                                   .load(orders::memory_order_relaxed))
                        ? 1
                        : 0) != 0;
      for (std::size_t i = queue.shape.first_of(number) + group.rank(); i < end;
           i += group.size()) {
        to[i] = DeviceAtomic<float>(const_cast<float&>(from[i])).load(orders::memory_order_relaxed);
      }
      device_fence();
      group.sync();
      const std::uint64_t begun = group.sum(
          first ? DeviceAtomic<std::uint64_t>(piece.begun).load(orders::memory_order_relaxed) : 0);
      if (begun == done) {
        if (first && wanted) add_one(update.whole);
        return;
      }
      group.pause(attempt);
    }
    if (group.rank() == 0) add_one(update.torn);
  }

 private:
  SYNCD_ON_DEVICE static bool is_wanted(const QueuedUpdate& update, std::int64_t iteration) {
    return iteration >= 0 && (update.iteration < 0 || update.iteration == iteration);
  }
  SYNCD_ON_DEVICE static void add_one(std::uint64_t& count) {
    DeviceAtomic<std::uint64_t>(count).fetch_add(1, orders::memory_order_relaxed);
  }
};

// The weighted mean of what was received whole and the own parameters, in their place.
struct ReducePiece {
  DeviceShape shape;
  const QueuedUpdate* updates = nullptr;
  std::size_t count = 0;
  const float* received = nullptr;  // [update][parameters]
  double own_weight = 0;
  float* replica = nullptr;

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t number) const {
    double weights = own_weight;
    for (std::size_t u = 0; u < count; ++u) {
      if (is_whole(u)) weights += updates[u].weight;
    }
    if (weights <= 0) return;
    const std::size_t end = shape.end_of(number);
    for (std::size_t i = shape.first_of(number) + group.rank(); i < end; i += group.size()) {
      double sum = own_weight * static_cast<double>(replica[i]);
      for (std::size_t u = 0; u < count; ++u) {
        if (!is_whole(u)) continue;
        sum += updates[u].weight * static_cast<double>(received[u * shape.parameters + i]);
      }
      replica[i] = static_cast<float>(sum / weights);
    }
  }

 private:
  SYNCD_ON_DEVICE bool is_whole(std::size_t u) const { return updates[u].whole == shape.pieces(); }
};

// Makes the worker's step, without applying it.
struct KeepStep {
  DeviceShape shape;
  SgdRule rule;
  const float* gradient = nullptr;
  const float* replica = nullptr;
  float* velocity = nullptr;  // or null
  float* step = nullptr;

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t number) const {
    const std::size_t end = shape.end_of(number);
    for (std::size_t i = shape.first_of(number) + group.rank(); i < end; i += group.size()) {
      step[i] = sgd_delta(rule, gradient, velocity, replica, i);
    }
  }
};

struct ApplyStep {
  DeviceShape shape;
  const float* step = nullptr;
  float* replica = nullptr;

  template <typename Group>
  SYNCD_ON_DEVICE void operator()(Group& group, std::size_t number) const {
    const std::size_t end = shape.end_of(number);
    for (std::size_t i = shape.first_of(number) + group.rank(); i < end; i += group.size()) {
      replica[i] += step[i];
    }
  }
};

}  // namespace syncd::trainer
