// The shared parameter store: see parameter_store.h. No thread of its own.
//
// Memory: header, shard controls, values, journal. The journal has as many entries as there are
// parameters; those at the places of a shard's parameters are the shard's, and it never needs more.
//
// Why the orders suffice, without fences (which ThreadSanitizer does not know):
//  - Every store to a value is a release and comes after the store that made the sequence odd;
//  every
//    load of a value by a reader is an acquire. A reader that sees a new value therefore sees the
//    odd sequence (or a later one) in its second check and discards the copy.
//  - Journal entries and their count are written before the first value, again by release order. A
//    writer that dies leaves either no journal (nothing changed) or a whole one.
//  - Setting the journal's count to 0 is the commit: from then on a death changes nothing.
#include "reference_trainer/params/parameter_store.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <limits>
#include <new>

namespace syncd::trainer {
namespace {

constexpr std::uint64_t kStoreMagic = 0x7379'6e63'7061'7231ULL;
constexpr int kOptimisticReads = 64;  // tries before a reader takes the lock

using AtomicFloat = std::atomic<float>;
static_assert(AtomicFloat::is_always_lock_free && sizeof(AtomicFloat) == sizeof(float),
              "processes share these, so they must be plain memory");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace

struct ParameterStore::Header {
  std::uint64_t magic;
  std::uint64_t parameters;
  std::uint64_t shard_floats;
  std::uint64_t shards;
  std::atomic<std::uint64_t> rolled_back;
  std::atomic<std::int64_t> updates;
};

struct alignas(64) ParameterStore::Shard {
  std::atomic<std::uint64_t> sequence;  // odd while a writer changes values
  std::atomic<std::uint32_t> journal;   // entries that count; 0: nothing to put back
  std::atomic<std::int32_t> owner;      // process that holds the lock, for messages
  pthread_mutex_t mutex;
};

struct ParameterStore::JournalEntry {
  std::atomic<std::uint32_t> index;
  AtomicFloat old_value;
};

// Where the parts stand in the memory, in bytes.
struct ParameterStore::Places {
  static constexpr std::size_t kShards = (sizeof(Header) + 63) / 64 * 64;
  std::size_t values;
  std::size_t journal;
  std::size_t end;

  Places(std::size_t shards, std::size_t parameters)
      : values(kShards + shards * sizeof(Shard)),
        journal((values + parameters * sizeof(AtomicFloat) + 63) / 64 * 64),
        end(journal + parameters * sizeof(JournalEntry)) {}
};

namespace {

void initialize_mutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

}  // namespace

ParameterStore::ParameterStore(SharedMemory memory) : memory_(std::move(memory)) {
  std::byte* base = memory_.bytes().data();
  header_ = reinterpret_cast<Header*>(base);
  const Places places(header_->shards, header_->parameters);
  shards_ = reinterpret_cast<Shard*>(base + Places::kShards);
  values_ = reinterpret_cast<AtomicFloat*>(base + places.values);
  journal_ = reinterpret_cast<JournalEntry*>(base + places.journal);
}

ParameterStore ParameterStore::create(const ParameterLayout& layout,
                                      std::span<const float> initial) {
  if (layout.parameters == 0 || layout.block == 0 || layout.parameters % layout.block != 0 ||
      layout.parameters != initial.size() ||
      layout.parameters > std::numeric_limits<std::uint32_t>::max()) {
    throw std::invalid_argument(fmt::format(
        "a parameter store takes 1 to {} parameters in whole blocks; asked for {} in blocks of {} "
        "with {} initial values",
        std::numeric_limits<std::uint32_t>::max(), layout.parameters, layout.block,
        initial.size()));
  }
  const std::size_t blocks_per_shard = std::max<std::size_t>(1, kShardFloats / layout.block);
  const std::size_t shard_floats = blocks_per_shard * layout.block;
  const std::size_t shard_count = (layout.parameters + shard_floats - 1) / shard_floats;
  const Places places(shard_count, layout.parameters);
  SharedMemory memory = SharedMemory::create(places.end, "the parameters");
  std::byte* base = memory.bytes().data();
  new (base) Header{kStoreMagic, layout.parameters, shard_floats, shard_count, {}, {}};
  for (std::size_t s = 0; s < shard_count; ++s) {
    auto* shard = new (base + Places::kShards + s * sizeof(Shard)) Shard{};
    initialize_mutex(&shard->mutex);
  }
  for (std::size_t i = 0; i < initial.size(); ++i) {
    new (base + places.values + i * sizeof(AtomicFloat)) AtomicFloat(initial[i]);
    new (base + places.journal + i * sizeof(JournalEntry)) JournalEntry{};
  }
  return ParameterStore(std::move(memory));
}

ParameterStore ParameterStore::attach(int fd) {
  SharedMemory memory = SharedMemory::attach(fd, "the parameters");
  const std::size_t bytes = memory.bytes().size();
  const auto* header = reinterpret_cast<const Header*>(memory.bytes().data());
  const bool valid = bytes >= sizeof(Header) && header->magic == kStoreMagic &&
                     header->parameters <= bytes / sizeof(AtomicFloat) &&
                     header->shards <= bytes / sizeof(Shard) &&
                     Places(header->shards, header->parameters).end == bytes;
  if (!valid) throw SharedMemoryError("shared memory for the parameters holds something else");
  return ParameterStore(std::move(memory));
}

std::size_t ParameterStore::parameters() const {
  return header_->parameters;
}
std::size_t ParameterStore::shards() const {
  return header_->shards;
}
std::size_t ParameterStore::shard_floats() const {
  return header_->shard_floats;
}
std::size_t ParameterStore::first_of_shard(std::size_t shard) const {
  return shard * header_->shard_floats;
}
std::size_t ParameterStore::size_of_shard(std::size_t shard) const {
  return std::min<std::size_t>(header_->shard_floats, header_->parameters - first_of_shard(shard));
}

std::uint64_t ParameterStore::version(std::size_t shard) const {
  return shards_[shard].sequence.load(std::memory_order_acquire);
}

std::int64_t ParameterStore::updates() const {
  return header_->updates.load(std::memory_order_relaxed);
}

std::uint64_t ParameterStore::rolled_back_updates() const {
  return header_->rolled_back.load(std::memory_order_relaxed);
}

void ParameterStore::check(const Update& update) const {
  if (update.dense()) {
    if (update.deltas.size() != parameters()) {
      throw StoreError(fmt::format("a dense update has {} values; the store has {} parameters",
                                   update.deltas.size(), parameters()));
    }
    return;
  }
  if (update.indices.size() != update.deltas.size()) {
    throw StoreError(fmt::format("an update has {} indices but {} values", update.indices.size(),
                                 update.deltas.size()));
  }
  std::int64_t previous = -1;
  for (const std::uint32_t index : update.indices) {
    if (std::int64_t{index} <= previous || index >= parameters()) {
      throw StoreError(
          fmt::format("an update has index {} after {}; indices must ascend and be below {}", index,
                      previous, parameters()));
    }
    previous = index;
  }
}

void ParameterStore::apply(const Update& update) {
  apply_scaled(update, 1.0F);
  header_->updates.fetch_add(1, std::memory_order_relaxed);
}
void ParameterStore::take_back(const Update& update) {
  apply_scaled(update, -1.0F);
  header_->updates.fetch_sub(1, std::memory_order_relaxed);
}

void ParameterStore::apply_scaled(const Update& update, float scale) {
  check(update);
  if (update.dense()) {
    for (std::size_t shard = 0; shard < shards(); ++shard) {
      ShardWriter writer(*this, shard);
      writer.begin_all();
      const float* deltas = update.deltas.data() + first_of_shard(shard);
      for (std::size_t i = 0; i < size_of_shard(shard); ++i) writer.add(i, scale * deltas[i]);
      writer.commit();
    }
    return;
  }
  const std::span<const std::uint32_t> indices(update.indices);
  for (std::size_t first = 0; first < indices.size();) {
    const std::size_t shard = indices[first] / shard_floats();
    const std::size_t end_index = first_of_shard(shard) + size_of_shard(shard);
    std::size_t last = first;
    while (last < indices.size() && indices[last] < end_index) ++last;
    ShardWriter writer(*this, shard);
    writer.begin(indices.subspan(first, last - first));
    for (std::size_t i = first; i < last; ++i) writer.add(i - first, scale * update.deltas[i]);
    writer.commit();
    first = last;
  }
}

std::uint64_t ParameterStore::read_shard(std::size_t shard, std::span<float> out) const {
  const Shard& control = shards_[shard];
  const AtomicFloat* values = values_ + first_of_shard(shard);
  const std::size_t size = size_of_shard(shard);
  for (int attempt = 0; attempt < kOptimisticReads; ++attempt) {
    const std::uint64_t before = control.sequence.load(std::memory_order_acquire);
    if (before % 2 == 0) {
      for (std::size_t i = 0; i < size; ++i) {
        out[i] = values[i].load(std::memory_order_acquire);
      }
      if (control.sequence.load(std::memory_order_relaxed) == before) return before;
    }
    ::sched_yield();
  }
  // A writer that died keeps the sequence odd for ever; taking its lock repairs that.
  const ShardWriter lock(*this, shard);
  for (std::size_t i = 0; i < size; ++i) out[i] = values[i].load(std::memory_order_relaxed);
  return control.sequence.load(std::memory_order_relaxed);
}

void ParameterStore::read_all(std::span<float> out) const {
  for (std::size_t shard = 0; shard < shards(); ++shard) {
    read_shard(shard, out.subspan(first_of_shard(shard), size_of_shard(shard)));
  }
}

// Puts back what the journal holds, last entry first. May itself be cut short and done again.
void ParameterStore::roll_back(std::size_t shard) const {
  Shard& control = shards_[shard];
  const JournalEntry* entries = journal_ + first_of_shard(shard);
  const std::uint64_t sequence = control.sequence.load(std::memory_order_relaxed);
  if (sequence % 2 == 0) control.sequence.store(sequence + 1, std::memory_order_relaxed);
  for (std::uint32_t j = control.journal.load(std::memory_order_acquire); j > 0; --j) {
    const std::uint32_t index = entries[j - 1].index.load(std::memory_order_relaxed);
    const float old_value = entries[j - 1].old_value.load(std::memory_order_relaxed);
    values_[index].store(old_value, std::memory_order_release);
  }
  control.journal.store(0, std::memory_order_release);
  control.sequence.store((sequence | 1) + 1, std::memory_order_release);
}

namespace {

timespec deadline_in(std::int64_t timeout_ms) {
  timespec moment{};
  ::clock_gettime(CLOCK_REALTIME, &moment);
  const std::int64_t ns = moment.tv_nsec + timeout_ms % 1'000 * 1'000'000;
  moment.tv_sec += timeout_ms / 1'000 + ns / 1'000'000'000;
  moment.tv_nsec = ns % 1'000'000'000;
  return moment;
}

}  // namespace

ShardWriter::ShardWriter(const ParameterStore& store, std::size_t shard)
    : store_(store), shard_(shard) {
  ParameterStore::Shard& control = store.shards_[shard];
  // Mostly free. (Also, ThreadSanitizer knows of dead owners in this call and not in the next.)
  int result = ::pthread_mutex_trylock(&control.mutex);
  if (result == EBUSY) {
    const timespec deadline = deadline_in(store.lock_timeout_ms_);
    result = ::pthread_mutex_timedlock(&control.mutex, &deadline);
  }
  if (result == EOWNERDEAD) {
    if (control.journal.load(std::memory_order_acquire) != 0) {
      store.header_->rolled_back.fetch_add(1, std::memory_order_relaxed);
    }
    store.roll_back(shard);
    ::pthread_mutex_consistent(&control.mutex);
  } else if (result != 0) {
    throw StoreError(
        fmt::format("the lock of parameter shard {} was not free within {} ms ({}); process {} "
                    "held it last and may be stopped",
                    shard, store.lock_timeout_ms_, std::strerror(result),
                    control.owner.load(std::memory_order_relaxed)));
  }
  control.owner.store(::getpid(), std::memory_order_relaxed);
}

ShardWriter::~ShardWriter() {
  if (open_) store_.roll_back(shard_);
  ::pthread_mutex_unlock(&store_.shards_[shard_].mutex);
}

void ShardWriter::begin(std::span<const std::uint32_t> indices) {
  ParameterStore::Shard& control = store_.shards_[shard_];
  ParameterStore::JournalEntry* entries = store_.journal_ + store_.first_of_shard(shard_);
  for (std::size_t j = 0; j < indices.size(); ++j) {
    const float old_value = store_.values_[indices[j]].load(std::memory_order_relaxed);
    entries[j].index.store(indices[j], std::memory_order_relaxed);
    entries[j].old_value.store(old_value, std::memory_order_relaxed);
  }
  control.journal.store(static_cast<std::uint32_t>(indices.size()), std::memory_order_release);
  const std::uint64_t sequence = control.sequence.load(std::memory_order_relaxed);
  control.sequence.store(sequence + 1, std::memory_order_release);
  open_ = true;
}

void ShardWriter::begin_all() {
  std::vector<std::uint32_t> indices(store_.size_of_shard(shard_));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    indices[i] = static_cast<std::uint32_t>(store_.first_of_shard(shard_) + i);
  }
  begin(indices);
}

void ShardWriter::add(std::size_t place, float delta) {
  const ParameterStore::JournalEntry* entries = store_.journal_ + store_.first_of_shard(shard_);
  const std::uint32_t index = entries[place].index.load(std::memory_order_relaxed);
  AtomicFloat& value = store_.values_[index];
  value.store(value.load(std::memory_order_relaxed) + delta, std::memory_order_release);
}

void ShardWriter::commit() {
  ParameterStore::Shard& control = store_.shards_[shard_];
  control.journal.store(0, std::memory_order_release);
  const std::uint64_t sequence = control.sequence.load(std::memory_order_relaxed);
  control.sequence.store(sequence + 1, std::memory_order_release);
  open_ = false;
}

std::size_t StoreReader::pull(std::span<float> replica) {
  std::size_t copied = 0;
  for (std::size_t shard = 0; shard < store_.shards(); ++shard) {
    if (store_.version(shard) == seen_[shard]) continue;
    seen_[shard] = store_.read_shard(
        shard, replica.subspan(store_.first_of_shard(shard), store_.size_of_shard(shard)));
    ++copied;
  }
  return copied;
}

}  // namespace syncd::trainer
