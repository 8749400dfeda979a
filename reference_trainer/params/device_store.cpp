// The host's side of a store on a device: see device_store.h. No thread of its own.
#include "reference_trainer/params/device_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "reference_trainer/params/device_queues.h"

namespace syncd::trainer {
namespace {

constexpr std::uint64_t kRecordMagic = 0x7379'6e63'6465'7631ULL;
constexpr const char* kRecord = "the record of the parameters";
constexpr std::size_t kShardsWanted = 1'024;
constexpr std::size_t kShardFloatsMin = 512;  // its counters are to be small beside it
constexpr std::size_t kShardFloatsMax = 8'192;

// The store's, or those of all queues.
std::size_t handle_count(const DeviceShape& shape) {
  return shape.slots > 0 ? static_cast<std::size_t>(shape.workers) : 1;
}

}  // namespace

// Followed by the handles.
struct SharedParameters::Record {
  std::uint64_t magic;
  DeviceShape shape;
  std::atomic<std::int64_t> updates;
  std::atomic<std::uint64_t> half_written;

  static std::size_t bytes(const DeviceShape& shape) {
    return sizeof(Record) + handle_count(shape) * sizeof(DeviceHandle);
  }
};

DeviceShape device_store_shape(const ParameterLayout& layout, int workers) {
  const std::size_t floats = std::clamp(std::bit_ceil(layout.parameters / kShardsWanted),
                                        kShardFloatsMin, kShardFloatsMax);
  const std::size_t blocks = std::max<std::size_t>(1, floats / layout.block);
  return {
      .parameters = layout.parameters, .piece_floats = blocks * layout.block, .workers = workers};
}

SharedParameters::SharedParameters(SharedMemory memory, std::unique_ptr<DeviceStore> store,
                                   std::unique_ptr<DeviceQueues> queues)
    : record_memory_(std::move(memory)),
      record_(reinterpret_cast<Record*>(record_memory_.bytes().data())),
      store_(std::move(store)),
      queues_(std::move(queues)) {}

SharedParameters::SharedParameters(SharedParameters&&) noexcept = default;
SharedParameters::~SharedParameters() = default;

// Without handles, nobody can attach.
SharedMemory SharedParameters::make_record(const DeviceShape& shape,
                                           const std::vector<DeviceHandle>& handles) {
  SharedMemory memory = SharedMemory::create(Record::bytes(shape), kRecord);
  auto* record = new (memory.bytes().data()) Record{};
  record->magic = kRecordMagic;
  record->shape = shape;
  if (handles.empty()) return memory;
  std::memcpy(memory.bytes().data() + sizeof(Record), handles.data(),
              handles.size() * sizeof(DeviceHandle));
  return memory;
}

SharedParameters SharedParameters::of_store(StoreDevice& device, const ParameterLayout& layout,
                                            int workers, std::span<const float> initial,
                                            bool shares) {
  const DeviceShape shape = device_store_shape(layout, workers);
  std::unique_ptr<DeviceStore> store = device.create(shape, initial);
  std::vector<DeviceHandle> handles;
  if (shares) handles.push_back(store->handle());
  return {make_record(shape, handles), std::move(store), nullptr};
}

SharedParameters SharedParameters::of_queues(StoreDevice& device, int workers, std::int64_t slots,
                                             std::span<const float> initial, bool shares) {
  const DeviceShape shape = device_queue_shape(workers, slots, initial.size());
  std::unique_ptr<DeviceQueues> queues = device.create_queues(shape, initial);
  std::vector<DeviceHandle> handles;
  if (shares) handles = queues->handles();
  return {make_record(shape, handles), nullptr, std::move(queues)};
}

SharedParameters SharedParameters::attach(StoreDevice& device, int fd, int worker) {
  SharedMemory memory = SharedMemory::attach(fd, kRecord);
  const auto* record = reinterpret_cast<const Record*>(memory.bytes().data());
  if (memory.bytes().size() < sizeof(Record) || record->magic != kRecordMagic ||
      memory.bytes().size() != Record::bytes(record->shape)) {
    throw SharedMemoryError("shared memory for the record of the parameters holds something else");
  }
  const DeviceShape shape = record->shape;
  std::vector<DeviceHandle> handles(handle_count(shape));
  std::memcpy(handles.data(), record + 1, handles.size() * sizeof(DeviceHandle));
  if (shape.slots > 0) {
    return {std::move(memory), nullptr, device.open_queues(shape, handles, worker)};
  }
  return {std::move(memory), device.open(shape, handles.front(), worker), nullptr};
}

std::int64_t SharedParameters::updates() const {
  return record_->updates.load(std::memory_order_relaxed);
}

void SharedParameters::count_updates(std::int64_t more) {
  record_->updates.fetch_add(more, std::memory_order_relaxed);
}

std::size_t SharedParameters::close_shards(int worker) {
  const std::size_t closed = store_->close_shards(worker);
  if (closed > 0) record_->half_written.fetch_add(1, std::memory_order_relaxed);
  return closed;
}

std::uint64_t SharedParameters::half_written() const {
  return record_->half_written.load(std::memory_order_relaxed);
}

bool DeviceParameterExchange::was_whole(int pulls_max) {
  const auto shard = port_->wait();
  failures_ = shard ? failures_ + 1 : 0;
  if (failures_ < pulls_max) return !shard;
  throw StoreError(
      fmt::format("parameter shard {} could not be read whole in {} pulls: a worker that was "
                  "stopped or killed while it wrote there may have it open",
                  *shard, failures_));
}

std::optional<PushReport> DeviceParameterExchange::push() {
  port_->push(stepper_.view().rule);  // which may differ from minibatch to minibatch
  const double loss = stepper_.loss();
  if (!was_whole(kDevicePullsMax)) return std::nullopt;
  store_.count_updates(1);
  return PushReport{.loss = loss,
                    .samples = stepper_.samples(),
                    .bytes = store_.store().shape().parameters * sizeof(float)};
}

void DeviceParameterExchange::take_back() {
  port_->take_back();
  port_->wait();
  store_.count_updates(-1);
}

void HostParameterExchange::pull() {
  do {
    port_->pull();
  } while (!was_whole(kHostPullsMax));
  stepper_.replica_changed();
}

std::optional<PushReport> HostParameterExchange::push() {
  pushed_ = &stepper_.finish();
  port_->add(*pushed_, 1);
  add_update(*pushed_, stepper_.replica());
  stepper_.replica_changed();
  store_.count_updates(1);
  return PushReport{.loss = pushed_->loss, .samples = pushed_->samples, .bytes = pushed_->bytes()};
}

void HostParameterExchange::take_back() {
  port_->add(*pushed_, -1);
  store_.count_updates(-1);
}

}  // namespace syncd::trainer
