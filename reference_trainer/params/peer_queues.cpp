// See peer_queues.h. The queues stand one after the other, each at a whole number of cache lines.
#include "reference_trainer/params/peer_queues.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <stdexcept>

namespace syncd::trainer {
namespace {

using client::UpdateQueue;
using client::UpdateQueueShape;

constexpr int kTries = 256;  // to catch the newest of what a worker publishes

UpdateQueueShape shape_of(int workers, std::int64_t slots, std::size_t parameters) {
  return {.edges = static_cast<std::uint32_t>(workers),
          .slots = static_cast<std::uint32_t>(slots),
          .payload_bytes = parameters * sizeof(float)};
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + UpdateQueue::kAlignment - 1) / UpdateQueue::kAlignment * UpdateQueue::kAlignment;
}

}  // namespace

std::size_t PeerQueues::bytes_needed(int workers, std::int64_t slots, std::size_t parameters) {
  const auto count = static_cast<std::size_t>(workers);
  const bool fits =
      workers >= 1 && slots >= 1 && slots <= std::numeric_limits<std::uint32_t>::max();
  const auto one =
      fits ? UpdateQueue::bytes_needed(shape_of(workers, slots, parameters)) : std::nullopt;
  if (!one || *one > kPeerBytesMax / count) {
    const double needed = static_cast<double>(workers) * static_cast<double>(workers) *
                          static_cast<double>(slots) * static_cast<double>(parameters) *
                          sizeof(float);
    throw std::invalid_argument(fmt::format(
        "{} workers that may each send {} parameters to each other, {} updates of which stay "
        "readable, need {:.1f} GiB of shared memory; allowed: {} GiB (fewer workers, or a smaller "
        "max_ig or staleness)",
        workers, parameters, slots, needed / (1U << 30), kPeerBytesMax >> 30));
  }
  return aligned(*one) * count;
}

PeerQueues PeerQueues::create(int workers, std::int64_t slots, std::span<const float> initial) {
  const std::size_t bytes = bytes_needed(workers, slots, initial.size());
  SharedMemory memory = SharedMemory::create_large(bytes, "the update queues");
  const std::size_t each = bytes / static_cast<std::size_t>(workers);
  std::vector<UpdateQueue> queues;
  for (int worker = 0; worker < workers; ++worker) {
    std::string error;
    const auto queue =
        UpdateQueue::create(memory.bytes().data() + static_cast<std::size_t>(worker) * each, each,
                            shape_of(workers, slots, initial.size()), error);
    if (!queue) throw SharedMemoryError("the update queues: " + error);
    queues.push_back(*queue);
  }
  PeerQueues made(std::move(memory), std::move(queues));
  for (int worker = 0; worker < workers; ++worker) made.publish(worker, 0, initial);
  return made;
}

PeerQueues PeerQueues::attach(int fd, int workers) {
  SharedMemory memory = SharedMemory::attach(fd, "the update queues");
  const std::size_t each = memory.bytes().size() / static_cast<std::size_t>(workers);
  std::vector<UpdateQueue> queues;
  for (int worker = 0; worker < workers; ++worker) {
    std::string error;
    const auto queue = UpdateQueue::attach(
        memory.bytes().data() + static_cast<std::size_t>(worker) * each, each, error);
    if (!queue || queue->shape().edges != static_cast<std::uint32_t>(workers) ||
        (worker > 0 && queue->shape() != queues.front().shape())) {
      throw SharedMemoryError("shared memory for the update queues holds something else: " + error);
    }
    queues.push_back(*queue);
  }
  return {std::move(memory), std::move(queues)};
}

std::size_t PeerQueues::parameters() const {
  return queues_.front().shape().payload_bytes / sizeof(float);
}

std::int64_t PeerQueues::slots() const {
  return queues_.front().shape().slots;
}

void PeerQueues::start_life(int worker) {
  for (UpdateQueue& queue : queues_) queue.clear(static_cast<std::uint32_t>(worker));
}

bool PeerQueues::send(int from, int to, std::int64_t iteration, std::span<const float> parameters) {
  if (to < 0 || to >= workers()) return false;
  const auto written = queues_[static_cast<std::size_t>(to)].write(static_cast<std::uint32_t>(from),
                                                                   iteration, parameters);
  return written != UpdateQueue::Written::kInvalid;
}

PeerQueues::Received PeerQueues::receive(int at, int from, std::int64_t iteration,
                                         std::span<float> out) const {
  if (from < 0 || from >= workers()) return Received::kMissing;
  const UpdateQueue& queue = queues_[static_cast<std::size_t>(at)];
  const auto edge = static_cast<std::uint32_t>(from);
  switch (queue.read_whole(edge, iteration, out)) {
    case UpdateQueue::Read::kOk:
      return Received::kWhole;
    case UpdateQueue::Read::kTorn:
      return Received::kTorn;
    case UpdateQueue::Read::kAbsent:
    case UpdateQueue::Read::kOverwritten:
    case UpdateQueue::Read::kInvalid:
      break;
  }
  return Received::kMissing;
}

void PeerQueues::publish(int worker, std::int64_t version, std::span<const float> parameters) {
  send(worker, worker, version, parameters);
}

bool PeerQueues::read_published(int worker, std::span<float> out) const {
  const UpdateQueue& queue = queues_[static_cast<std::size_t>(worker)];
  const auto edge = static_cast<std::uint32_t>(worker);
  // The newest may be overwritten while it is read: then there is a newer one.
  for (int i = 0; i < kTries; ++i) {
    const std::int64_t version = queue.newest(edge);
    if (version < 0) return false;
    if (queue.read_whole(edge, version, out) == UpdateQueue::Read::kOk) {
      return true;
    }
  }
  return false;
}

bool average_published(const PeerQueues& queues, const std::vector<bool>& counts,
                       std::span<float> out) {
  return average_read(counts, out, [&](int worker, std::span<float> one) {
    return queues.read_published(worker, one);
  });
}

}  // namespace syncd::trainer
