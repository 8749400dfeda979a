// The host's side of a store on a device: see device_store.h. No thread of its own.
#include "reference_trainer/params/device_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <new>

namespace syncd::trainer {
namespace {

constexpr std::uint64_t kDeviceStoreMagic = 0x7379'6e63'6465'7631ULL;
constexpr std::size_t kShardsWanted = 1'024;
constexpr std::size_t kShardFloatsMin = 512;  // its counters are to be small beside it
constexpr std::size_t kShardFloatsMax = 8'192;

}  // namespace

struct SharedDeviceStore::Record {
  std::uint64_t magic;
  DeviceShape shape;
  DeviceHandle handle;
  std::atomic<std::int64_t> updates;
  std::atomic<std::uint64_t> half_written;
};

DeviceShape device_store_shape(const ParameterLayout& layout, int workers) {
  const std::size_t floats = std::clamp(std::bit_ceil(layout.parameters / kShardsWanted),
                                        kShardFloatsMin, kShardFloatsMax);
  const std::size_t blocks = std::max<std::size_t>(1, floats / layout.block);
  return {
      .parameters = layout.parameters, .piece_floats = blocks * layout.block, .workers = workers};
}

SharedDeviceStore::SharedDeviceStore(SharedMemory memory, std::unique_ptr<DeviceStore> store)
    : record_memory_(std::move(memory)),
      record_(reinterpret_cast<Record*>(record_memory_.bytes().data())),
      store_(std::move(store)) {}

SharedDeviceStore SharedDeviceStore::create(StoreDevice& device, const ParameterLayout& layout,
                                            int workers, std::span<const float> initial,
                                            bool shares) {
  const DeviceShape shape = device_store_shape(layout, workers);
  std::unique_ptr<DeviceStore> store = device.create(shape, initial);
  SharedMemory memory = SharedMemory::create(sizeof(Record), "the record of the parameters");
  auto* record = new (memory.bytes().data()) Record{};
  record->shape = shape;
  if (shares) record->handle = store->handle();
  record->magic = kDeviceStoreMagic;
  return {std::move(memory), std::move(store)};
}

SharedDeviceStore SharedDeviceStore::attach(StoreDevice& device, int fd, int worker) {
  SharedMemory memory = SharedMemory::attach(fd, "the record of the parameters");
  const auto* record = reinterpret_cast<const Record*>(memory.bytes().data());
  if (memory.bytes().size() != sizeof(Record) || record->magic != kDeviceStoreMagic) {
    throw SharedMemoryError("shared memory for the record of the parameters holds something else");
  }
  std::unique_ptr<DeviceStore> store = device.open(record->shape, record->handle, worker);
  return {std::move(memory), std::move(store)};
}

std::int64_t SharedDeviceStore::updates() const {
  return record_->updates.load(std::memory_order_relaxed);
}

void SharedDeviceStore::count_updates(std::int64_t more) {
  record_->updates.fetch_add(more, std::memory_order_relaxed);
}

std::size_t SharedDeviceStore::close_shards(int worker) {
  const std::size_t closed = store_->close_shards(worker);
  if (closed > 0) record_->half_written.fetch_add(1, std::memory_order_relaxed);
  return closed;
}

std::uint64_t SharedDeviceStore::half_written() const {
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
