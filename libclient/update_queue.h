// The update queue of a worker of a decentralized job: where its in-neighbours put their updates
// and it reads them, in memory that their processes share (Hop, section 6.1: rotating queues). The
// caller provides the memory; what stands in it is plain data without pointers, so each process may
// map it anywhere.
//
// Every in-neighbour has an edge of its own, and every edge as many slots as there can be updates
// in use at a time; the update of iteration k is in slot k mod slots. A slot carries its iteration,
// a sequence number that is odd while it is written (a sequence lock) and a checksum. So a reader
// gets a whole update of the very iteration that it asked for, or the answer that there is none:
// whatever writers do, no mixture of two updates is ever handed out as one.
//
// Threads: one writer at a time per edge, any number of readers, none ever waits for another. A
// writer that comes back after a crash goes on where the old one stopped, even in the middle of a
// slot. Should the old one turn out to be alive (it was merely paused), the checksum catches what
// two of them wrote into one slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "proto/base/check.h"

namespace syncd::client {

// The slots that an edge needs under hop:GRAPH,max_ig=...: max_ig + 1 (Hop, section 6.1: updates of
// so many iterations can be current or newer), `staleness` more, because older ones count too, and
// one more if workers may skip: a set that was collected stays readable until its reader's next
// begin. NOTIFY-ACK needs 1: an update is written only after the last one was consumed.
// Preconditions: max_ig >= 1, staleness >= 0, and the result fits 32 bits.
constexpr std::uint32_t update_queue_slots(std::int64_t max_ig, std::int64_t staleness, bool skip) {
  constexpr std::int64_t kMost = UINT32_MAX - std::int64_t{2};
  SYNCD_CHECK(max_ig >= 1 && staleness >= 0 && max_ig <= kMost && staleness <= kMost - max_ig);
  return static_cast<std::uint32_t>(max_ig + 1 + staleness + (skip ? 1 : 0));
}

struct UpdateQueueShape {
  std::uint32_t edges = 0;  // in-neighbours; 0 is allowed: a worker that is alone
  std::uint32_t slots = 0;  // per edge, at least 1
  std::uint64_t payload_bytes =
      0;  // of one update: a whole number of floats or doubles, at least 4
  friend bool operator==(const UpdateQueueShape&, const UpdateQueueShape&) = default;
};

class UpdateQueue {
 public:
  static constexpr std::size_t kAlignment = 64;  // of the memory; what mmap gives is

  enum class Written : std::uint8_t {
    kOk,
    kOld,      // the slot holds an update of a later iteration: nobody needs this one any more
    kInvalid,  // no such edge, a negative iteration, or another size than the queue was made for
  };
  enum class Read : std::uint8_t {
    kOk,
    kAbsent,       // not written (yet)
    kOverwritten,  // the slot holds a later iteration already
    kTorn,     // it is being written or was while it was read: try again. It stays so only where
               // a writer died in the middle or two wrote at once; the next write mends it
    kInvalid,  // as above
  };

  // Why attach gave no queue.
  enum class Unusable : std::uint8_t {
    kNotReady,  // there is none, or it is still being made
    kVersion,   // made by another version
    kMemory,    // too small for what stands in it, or misaligned
  };

  // The size of the memory that `shape` needs; empty: the shape is not allowed or overflows.
  static std::optional<std::size_t> bytes_needed(const UpdateQueueShape& shape);
  // The same; empty: `error` says what is allowed.
  static std::optional<std::size_t> bytes_needed(const UpdateQueueShape& shape, std::string& error);

  // Makes an empty queue in `memory`, whatever was there. Nobody may use the memory at the same
  // time, but others may be trying to attach. Empty: `error` says what is wrong (the shape, too few
  // bytes, the alignment). The object is a view: copying it is cheap, and the memory stays the
  // caller's.
  static std::optional<UpdateQueue> create(void* memory, std::size_t bytes,
                                           const UpdateQueueShape& shape, std::string& error);

  // Uses a queue that another process made. Empty: `error` says why the memory holds no (whole)
  // queue that this version understands, and `why` in short; compare shape() with what you expect.
  static std::optional<UpdateQueue> attach(void* memory, std::size_t bytes, std::string& error,
                                           Unusable* why = nullptr);

  const UpdateQueueShape& shape() const { return shape_; }

  // Puts an update in its slot; visible whole or not at all. Writing an iteration again replaces
  // it. `payload` is payload_bytes long. O(payload_bytes).
  Written write(std::uint32_t edge, std::int64_t iteration, std::span<const std::byte> payload);

  // Forgets all that was written on the edge. For its writer alone, when it starts a new life: what
  // it wrote in the last one must not be taken for new.
  void clear(std::uint32_t edge);

  // Copies an update out. `out` is payload_bytes long; what is in it is unspecified unless the
  // answer is kOk. O(payload_bytes).
  Read read(std::uint32_t edge, std::int64_t iteration, std::span<std::byte> out) const;

  // The same, again while a writer is at it: kTorn means that the slot stayed so over many tries.
  // Gives up the processor between two of them, and never waits.
  Read read_whole(std::uint32_t edge, std::int64_t iteration, std::span<std::byte> out) const;

  // The highest iteration written on the edge since it was cleared, -1 if none was (or there is no
  // such edge). It may be overwritten by the time that you read it, unless a policy keeps its
  // writer back.
  std::int64_t newest(std::uint32_t edge) const;

  // The same for numbers.
  template <class T, std::size_t N>
  requires(std::is_same_v<std::remove_const_t<T>, float> ||
           std::is_same_v<std::remove_const_t<T>, double>) Written
      write(std::uint32_t edge, std::int64_t iteration, std::span<T, N> payload) {
    return write(edge, iteration, std::as_bytes(payload));
  }
  template <class T, std::size_t N>
  requires(std::is_same_v<T, float> || std::is_same_v<T, double>) Read
      read(std::uint32_t edge, std::int64_t iteration, std::span<T, N> out)
  const { return read(edge, iteration, std::as_writable_bytes(out)); }
  template <class T, std::size_t N>
  requires(std::is_same_v<T, float> || std::is_same_v<T, double>) Read
      read_whole(std::uint32_t edge, std::int64_t iteration, std::span<T, N> out)
  const { return read_whole(edge, iteration, std::as_writable_bytes(out)); }

 private:
  struct Header;
  struct EdgeHead;
  struct Slot;
  struct Layout;

  UpdateQueue(void* memory, const UpdateQueueShape& shape);
  EdgeHead& edge_head(std::uint32_t edge) const;
  Slot& slot(std::uint32_t edge, std::int64_t iteration) const;
  bool fits(std::uint32_t edge, std::int64_t iteration, std::size_t bytes) const;
  static std::optional<Layout> layout(const UpdateQueueShape& shape);

  std::byte* edges_;  // after the header
  std::size_t edge_bytes_;
  std::size_t slot_bytes_;
  UpdateQueueShape shape_;
};

}  // namespace syncd::client
