// The host's side of queues on devices: see device_queues.h. No thread of its own.
#include "reference_trainer/params/device_queues.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "reference_trainer/params/peer_queues.h"

namespace syncd::trainer {
namespace {

constexpr std::uint64_t kQueuesMagic = 0x7379'6e63'6465'7132ULL;

// Followed by a handle per worker.
struct Record {
  std::uint64_t magic;
  DeviceQueueShape shape;
};

std::size_t record_bytes(int workers) {
  return sizeof(Record) + static_cast<std::size_t>(workers) * sizeof(DeviceHandle);
}

}  // namespace

DeviceQueueShape device_queue_shape(int workers, std::int64_t slots, std::size_t parameters) {
  PeerQueues::bytes_needed(workers, slots, parameters);  // throws what is too much
  return {.parameters = parameters,
          .piece_floats = device_store_shape({.parameters = parameters}, workers).shard_floats,
          .workers = workers,
          .slots = slots};
}

SharedDeviceQueues SharedDeviceQueues::create(StoreDevice& device, int workers, std::int64_t slots,
                                              std::span<const float> initial, bool shares) {
  const DeviceQueueShape shape = device_queue_shape(workers, slots, initial.size());
  std::unique_ptr<DeviceQueues> queues = device.create_queues(shape, initial);
  SharedMemory memory = SharedMemory::create(record_bytes(workers), "the record of the queues");
  new (memory.bytes().data()) Record{kQueuesMagic, shape};
  if (shares) {
    const std::vector<DeviceHandle> handles = queues->handles();
    std::memcpy(memory.bytes().data() + sizeof(Record), handles.data(),
                handles.size() * sizeof(DeviceHandle));
  }
  return {std::move(memory), std::move(queues)};
}

SharedDeviceQueues SharedDeviceQueues::attach(StoreDevice& device, int fd, int worker) {
  SharedMemory memory = SharedMemory::attach(fd, "the record of the queues");
  const auto* record = reinterpret_cast<const Record*>(memory.bytes().data());
  if (memory.bytes().size() < sizeof(Record) || record->magic != kQueuesMagic ||
      memory.bytes().size() != record_bytes(record->shape.workers)) {
    throw SharedMemoryError("shared memory for the record of the queues holds something else");
  }
  std::vector<DeviceHandle> handles(static_cast<std::size_t>(record->shape.workers));
  std::memcpy(handles.data(), record + 1, handles.size() * sizeof(DeviceHandle));
  std::unique_ptr<DeviceQueues> queues = device.open_queues(record->shape, handles, worker);
  return {std::move(memory), std::move(queues)};
}

bool average_published(DeviceQueues& queues, const std::vector<bool>& counts,
                       std::span<float> out) {
  return average_read(counts, out, [&](int worker, std::span<float> one) {
    return queues.read_published(worker, one);
  });
}

PushReport DevicePeerExchange::keep_update() {
  port_->keep_step(stepper_.view().rule);
  return {.loss = stepper_.loss(),
          .samples = stepper_.samples(),
          .bytes = queues_.shape().parameters * sizeof(float)};
}

bool DevicePeerExchange::send(int to, std::int64_t iteration) {
  if (to < 0 || to >= workers()) return false;
  port_->send(to, iteration);
  return true;
}

}  // namespace syncd::trainer
