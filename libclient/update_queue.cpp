// See update_queue.h.
//
// In memory: Header; then per edge an EdgeHead and its slots; each Slot is followed by its payload
// as 64-bit words. Everything starts on a cache line of its own.
//
// The memory model: payload words are stored with release and loaded with acquire order rather than
// between fences (which thread sanitizers do not know). A reader that sees any word of a later
// write therefore also sees that write's odd sequence number when it looks again, and rejects what
// it copied (Boehm, "Can seqlocks get along with programming language memory models?", 2012).
#include "libclient/update_queue.h"

#include <sched.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace syncd::client {
namespace {

constexpr std::uint64_t kMagic = 0x5155'4450'5543'4e53;  // "SNCUPDUQ" in memory, little-endian
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);
constexpr int kTriesMax = 256;  // before an update that stays torn is called that

using AtomicWord = std::atomic<std::uint64_t>;
using AtomicIteration = std::atomic<std::int64_t>;
// Processes can share only what needs no lock, and words must follow each other without gaps.
static_assert(AtomicWord::is_always_lock_free && sizeof(AtomicWord) == kWordBytes);
static_assert(AtomicIteration::is_always_lock_free && sizeof(AtomicIteration) == kWordBytes);

// a * b + c, rounded up to whole cache lines; empty if that overflows.
std::optional<std::size_t> size_of(std::size_t a, std::size_t b, std::size_t c) {
  std::size_t product = 0;
  std::size_t sum = 0;
  if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(product, c, &sum) ||
      __builtin_add_overflow(sum, UpdateQueue::kAlignment - 1, &sum)) {
    return std::nullopt;
  }
  return sum / UpdateQueue::kAlignment * UpdateQueue::kAlignment;
}

std::size_t words_of(std::size_t bytes) {
  return bytes / kWordBytes + (bytes % kWordBytes != 0 ? 1 : 0);
}

// Two running sums, so that both the values and their places count (Fletcher), mixed at the end.
// Meets memory bandwidth; meant for accidents, not for enemies.
class Checksum {
 public:
  void add(std::uint64_t word) {
    sum_ += word;
    sums_ += sum_;
  }
  std::uint64_t value(std::int64_t iteration) const {
    return mixed(sum_ ^ mixed(sums_ ^ mixed(static_cast<std::uint64_t>(iteration))));
  }

 private:
  static std::uint64_t mixed(std::uint64_t x) {  // the finalizer of splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  std::uint64_t sum_ = 0;
  std::uint64_t sums_ = 0;
};

}  // namespace

struct alignas(UpdateQueue::kAlignment) UpdateQueue::Header {
  AtomicWord magic;  // stored last by create, read first by attach
  std::uint32_t version;
  std::uint32_t edges;
  std::uint32_t slots;
  std::uint32_t reserved;
  std::uint64_t payload_bytes;
  std::uint64_t total_bytes;
};

struct alignas(UpdateQueue::kAlignment) UpdateQueue::EdgeHead {
  AtomicIteration newest;
};

struct UpdateQueue::Slot {
  AtomicWord sequence;  // odd: being written
  AtomicIteration iteration;
  AtomicWord checksum;
  AtomicWord* words() { return reinterpret_cast<AtomicWord*>(this + 1); }
};

struct UpdateQueue::Layout {
  std::size_t slot_bytes = 0;
  std::size_t edge_bytes = 0;
  std::size_t total_bytes = 0;
};

std::optional<UpdateQueue::Layout> UpdateQueue::layout(const UpdateQueueShape& shape) {
  if (shape.slots == 0 || shape.payload_bytes == 0 || shape.payload_bytes % sizeof(float) != 0) {
    return std::nullopt;
  }
  const auto slot = size_of(words_of(shape.payload_bytes), kWordBytes, sizeof(Slot));
  const auto edge = slot ? size_of(*slot, shape.slots, sizeof(EdgeHead)) : std::nullopt;
  const auto total = edge ? size_of(*edge, shape.edges, sizeof(Header)) : std::nullopt;
  if (!total) return std::nullopt;
  return Layout{*slot, *edge, *total};
}

std::optional<std::size_t> UpdateQueue::bytes_needed(const UpdateQueueShape& shape) {
  const auto sizes = layout(shape);
  if (!sizes) return std::nullopt;
  return sizes->total_bytes;
}

namespace {

std::string text_of(const UpdateQueueShape& shape) {
  return std::to_string(shape.edges) + " edges of " + std::to_string(shape.slots) + " slots of " +
         std::to_string(shape.payload_bytes) + " bytes";
}

bool is_aligned(const void* memory) {
  return std::bit_cast<std::uintptr_t>(memory) % UpdateQueue::kAlignment == 0;
}

// Whether memory of this size and place can hold the queue; else a sentence.
std::string check_memory(const void* memory, std::size_t bytes, const UpdateQueueShape& shape) {
  std::string error;
  const auto needed = UpdateQueue::bytes_needed(shape, error);
  if (!needed) return error;
  if (!is_aligned(memory)) {
    return "the memory of an update queue must begin at a multiple of " +
           std::to_string(UpdateQueue::kAlignment) + " bytes";
  }
  if (bytes < *needed) {
    return "an update queue with " + text_of(shape) + " needs " + std::to_string(*needed) +
           " bytes of memory, not " + std::to_string(bytes);
  }
  return {};
}

}  // namespace

std::optional<std::size_t> UpdateQueue::bytes_needed(const UpdateQueueShape& shape,
                                                     std::string& error) {
  const auto needed = bytes_needed(shape);
  if (!needed) {
    error = "an update queue cannot have " + text_of(shape) +
            ": at least 1 slot and a multiple of 4 bytes, at least 4, that fit in memory";
  }
  return needed;
}

UpdateQueue::UpdateQueue(void* memory, const UpdateQueueShape& shape)
    : edges_(static_cast<std::byte*>(memory) + sizeof(Header)), shape_(shape) {
  const Layout sizes = *layout(shape);
  edge_bytes_ = sizes.edge_bytes;
  slot_bytes_ = sizes.slot_bytes;
}

std::optional<UpdateQueue> UpdateQueue::create(void* memory, std::size_t bytes,
                                               const UpdateQueueShape& shape, std::string& error) {
  error = check_memory(memory, bytes, shape);
  if (!error.empty()) return std::nullopt;
  auto* header = static_cast<Header*>(memory);
  header->magic.store(0, std::memory_order_relaxed);
  UpdateQueue queue(memory, shape);
  for (std::uint32_t edge = 0; edge < shape.edges; ++edge) {
    new (&queue.edge_head(edge)) EdgeHead{-1};
    for (std::uint32_t index = 0; index < shape.slots; ++index) {
      // The payload needs no beginning: nobody reads a slot whose iteration is -1.
      new (&queue.slot(edge, index)) Slot{0, -1, 0};
    }
  }
  header->version = kVersion;
  header->edges = shape.edges;
  header->slots = shape.slots;
  header->reserved = 0;
  header->payload_bytes = shape.payload_bytes;
  header->total_bytes = *bytes_needed(shape);
  header->magic.store(kMagic, std::memory_order_release);
  return queue;
}

std::optional<UpdateQueue> UpdateQueue::attach(void* memory, std::size_t bytes, std::string& error,
                                               Unusable* why) {
  const auto unusable = [&](Unusable reason, std::string text) {
    error = std::move(text);
    if (why != nullptr) *why = reason;
    return std::nullopt;
  };
  if (!is_aligned(memory) || bytes < sizeof(Header)) {
    return unusable(Unusable::kMemory, check_memory(memory, bytes, {0, 1, sizeof(float)}));
  }
  const auto* header = static_cast<const Header*>(memory);
  if (header->magic.load(std::memory_order_acquire) != kMagic) {
    return unusable(Unusable::kNotReady,
                    "the memory holds no update queue, or one that is not ready yet");
  }
  if (header->version != kVersion) {
    return unusable(Unusable::kVersion, "the memory holds an update queue of version " +
                                            std::to_string(header->version) +
                                            "; this program knows version " +
                                            std::to_string(kVersion));
  }
  const UpdateQueueShape shape{header->edges, header->slots, header->payload_bytes};
  std::string wrong = check_memory(memory, bytes, shape);
  if (!wrong.empty()) return unusable(Unusable::kMemory, std::move(wrong));
  if (header->total_bytes != *bytes_needed(shape)) {
    return unusable(Unusable::kMemory, "the memory holds an update queue of " +
                                           std::to_string(header->total_bytes) +
                                           " bytes, but one with " + text_of(shape) + " has " +
                                           std::to_string(*bytes_needed(shape)));
  }
  return UpdateQueue(memory, shape);
}

UpdateQueue::EdgeHead& UpdateQueue::edge_head(std::uint32_t edge) const {
  return *reinterpret_cast<EdgeHead*>(edges_ + edge * edge_bytes_);
}

UpdateQueue::Slot& UpdateQueue::slot(std::uint32_t edge, std::int64_t iteration) const {
  const auto index = static_cast<std::uint64_t>(iteration) % shape_.slots;
  return *reinterpret_cast<Slot*>(edges_ + edge * edge_bytes_ + sizeof(EdgeHead) +
                                  index * slot_bytes_);
}

bool UpdateQueue::fits(std::uint32_t edge, std::int64_t iteration, std::size_t bytes) const {
  return edge < shape_.edges && iteration >= 0 && bytes == shape_.payload_bytes;
}

UpdateQueue::Written UpdateQueue::write(std::uint32_t edge, std::int64_t iteration,
                                        std::span<const std::byte> payload) {
  if (!fits(edge, iteration, payload.size())) return Written::kInvalid;
  Slot& target = slot(edge, iteration);
  if (target.iteration.load(std::memory_order_relaxed) > iteration) return Written::kOld;

  // Odd already if a writer died here: then it stays odd, and no reader has accepted anything
  // since.
  const std::uint64_t writing = target.sequence.load(std::memory_order_relaxed) | 1;
  target.sequence.store(writing, std::memory_order_relaxed);
  target.iteration.store(iteration, std::memory_order_release);
  Checksum checksum;
  AtomicWord* words = target.words();
  const std::size_t whole = payload.size() / kWordBytes;
  for (std::size_t i = 0; i < whole; ++i) {
    std::uint64_t word;
    std::memcpy(&word, payload.data() + i * kWordBytes, kWordBytes);
    checksum.add(word);
    words[i].store(word, std::memory_order_release);
  }
  if (const std::size_t rest = payload.size() % kWordBytes; rest > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, payload.data() + whole * kWordBytes, rest);
    checksum.add(word);
    words[whole].store(word, std::memory_order_release);
  }
  target.checksum.store(checksum.value(iteration), std::memory_order_release);
  target.sequence.store(writing + 1, std::memory_order_release);

  AtomicIteration& newest = edge_head(edge).newest;
  if (newest.load(std::memory_order_relaxed) < iteration) {
    newest.store(iteration, std::memory_order_release);
  }
  return Written::kOk;
}

void UpdateQueue::clear(std::uint32_t edge) {
  if (edge >= shape_.edges) return;
  edge_head(edge).newest.store(-1, std::memory_order_release);
  for (std::uint32_t index = 0; index < shape_.slots; ++index) {
    Slot& target = slot(edge, index);
    const std::uint64_t writing = target.sequence.load(std::memory_order_relaxed) | 1;
    target.sequence.store(writing, std::memory_order_relaxed);
    target.iteration.store(-1, std::memory_order_release);
    target.sequence.store(writing + 1, std::memory_order_release);
  }
}

UpdateQueue::Read UpdateQueue::read(std::uint32_t edge, std::int64_t iteration,
                                    std::span<std::byte> out) const {
  if (!fits(edge, iteration, out.size())) return Read::kInvalid;
  Slot& source = slot(edge, iteration);
  const std::uint64_t sequence = source.sequence.load(std::memory_order_acquire);
  const auto unchanged = [&] {
    return source.sequence.load(std::memory_order_relaxed) == sequence;
  };
  if (sequence % 2 != 0) return Read::kTorn;
  const std::int64_t held = source.iteration.load(std::memory_order_acquire);
  if (held != iteration) {
    if (!unchanged()) return Read::kTorn;
    return held < iteration ? Read::kAbsent : Read::kOverwritten;
  }
  Checksum checksum;
  const AtomicWord* words = source.words();
  const std::size_t whole = out.size() / kWordBytes;
  for (std::size_t i = 0; i < whole; ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_acquire);
    checksum.add(word);
    std::memcpy(out.data() + i * kWordBytes, &word, kWordBytes);
  }
  if (const std::size_t rest = out.size() % kWordBytes; rest > 0) {
    const std::uint64_t word = words[whole].load(std::memory_order_acquire);
    checksum.add(word);
    std::memcpy(out.data() + whole * kWordBytes, &word, rest);
  }
  const std::uint64_t expected = source.checksum.load(std::memory_order_acquire);
  if (!unchanged() || checksum.value(iteration) != expected) return Read::kTorn;
  return Read::kOk;
}

UpdateQueue::Read UpdateQueue::read_whole(std::uint32_t edge, std::int64_t iteration,
                                          std::span<std::byte> out) const {
  Read result = read(edge, iteration, out);
  for (int i = 1; i < kTriesMax && result == Read::kTorn; ++i) {
    ::sched_yield();
    result = read(edge, iteration, out);
  }
  return result;
}

std::int64_t UpdateQueue::newest(std::uint32_t edge) const {
  if (edge >= shape_.edges) return -1;
  return edge_head(edge).newest.load(std::memory_order_acquire);
}

}  // namespace syncd::client
