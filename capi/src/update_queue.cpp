// The functions of <syncd/update_queue.h> over libclient/update_queue.h. Any thread; nothing thrown
// leaves this file.
#include "libclient/update_queue.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "error.h"
#include "libclient/shared_memory.h"
#include "options.h"
#include "syncd/update_queue.h"

using syncd::SharedMemory;
using syncd::SharedMemoryError;
using syncd::Status;
using syncd::capi::guarded;
using syncd::capi::need;
using syncd::capi::Outcome;
using syncd::capi::refuse;
using syncd::client::UpdateQueue;
using syncd::client::UpdateQueueShape;

static_assert(SYNCD_UPDATE_QUEUE_ALIGNMENT == UpdateQueue::kAlignment);

struct syncd_update_queue {
  std::optional<SharedMemory> memory;  // unless it is the caller's
  UpdateQueue queue;
};

namespace {

// What the struct was in 0.1.0.
constexpr std::size_t kOptionsFirstSize =
    SYNCD_SIZE_UP_TO(syncd_update_queue_options, memory_bytes);
static_assert(sizeof(void*) != 8 || kOptionsFirstSize == 40, "released layout");

constexpr const char* kPurpose = "an update queue";

std::string text(std::int64_t number) {
  return std::to_string(number);
}

syncd_update_queue_options read_options(const char* call, const syncd_update_queue_options* given) {
  need(given, call, "options");
  syncd_update_queue_options known = SYNCD_UPDATE_QUEUE_OPTIONS_INIT;
  syncd::capi::read_struct(given, kOptionsFirstSize, "syncd_update_queue_options", known);
  return known;
}

UpdateQueueShape shape_of(const syncd_update_queue_options& options) {
  return {options.edges, options.slots, options.payload_bytes};
}

std::size_t bytes_needed(const char* call, const UpdateQueueShape& shape) {
  std::string error;
  const auto needed = UpdateQueue::bytes_needed(shape, error);
  if (!needed) refuse(call, error);
  return *needed;
}

Status status_of(UpdateQueue::Unusable why) {
  switch (why) {
    case UpdateQueue::Unusable::kNotReady:
      return Status::kNoUpdate;
    case UpdateQueue::Unusable::kVersion:
      return Status::kUnsupported;
    case UpdateQueue::Unusable::kMemory:
      break;
  }
  return Status::kInvalid;
}

Outcome attach(const char* call, void* memory, std::size_t bytes, std::optional<SharedMemory> own,
               syncd_update_queue** queue) {
  std::string error;
  UpdateQueue::Unusable why{};
  const auto attached = UpdateQueue::attach(memory, bytes, error, &why);
  if (!attached) return {status_of(why), std::string(call) + ": " + error};
  *queue = new syncd_update_queue{std::move(own), *attached};
  return {};
}

void check_edge(const char* call, const syncd_update_queue* queue, std::uint32_t edge) {
  const std::uint32_t edges = queue->queue.shape().edges;
  if (edge >= edges) refuse(call, "edge " + text(edge) + "; the queue has " + text(edges));
}

// What write and read share; the rest is theirs.
void check_access(const char* call, const syncd_update_queue* queue, std::uint32_t edge,
                  std::int64_t iteration, const void* payload, std::size_t bytes) {
  need(queue, call, "queue");
  need(payload, call, "payload");
  check_edge(call, queue, edge);
  if (iteration < 0) refuse(call, "iteration " + text(iteration) + "; allowed: 0 or more");
  const std::uint64_t allowed = queue->queue.shape().payload_bytes;
  if (bytes != allowed) {
    refuse(call,
           std::to_string(bytes) + " bytes; the queue's updates have " + std::to_string(allowed));
  }
}

std::string place(const char* call, std::uint32_t edge, std::int64_t iteration) {
  return std::string(call) + ": iteration " + text(iteration) + " on edge " + text(edge) + ": ";
}

}  // namespace

extern "C" {

syncd_status syncd_update_queue_slots_needed(int64_t max_ig, int64_t staleness, int32_t skip,
                                             uint32_t* slots, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(slots, call, "slots");
    // Room for the sum, whatever its parts.
    constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max() - 2;
    if (max_ig < 1 || max_ig > kMost) {
      refuse(call, "max_ig is " + text(max_ig) + "; allowed: 1 to " + text(kMost));
    }
    if (staleness < 0 || staleness > kMost - max_ig) {
      refuse(call, "staleness is " + text(staleness) + "; allowed: 0 to " + text(kMost - max_ig));
    }
    *slots = syncd::client::update_queue_slots(max_ig, staleness, skip != 0);
  });
}

syncd_status syncd_update_queue_bytes_needed(const syncd_update_queue_options* options,
                                             size_t* bytes, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(bytes, call, "bytes");
    *bytes = bytes_needed(call, shape_of(read_options(call, options)));
  });
}

syncd_status syncd_update_queue_create(const syncd_update_queue_options* options,
                                       syncd_update_queue** queue, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(queue, call, "queue");
    syncd_update_queue_options known = read_options(call, options);
    const UpdateQueueShape shape = shape_of(known);
    std::optional<SharedMemory> own;
    if (known.memory == nullptr) {
      if (known.memory_bytes != 0) {
        refuse(call, "memory is NULL, but memory_bytes is " + std::to_string(known.memory_bytes));
      }
      known.memory_bytes = bytes_needed(call, shape);
      try {
        own.emplace(SharedMemory::create_large(known.memory_bytes, kPurpose));
      } catch (const SharedMemoryError& failure) {
        throw Outcome{Status::kNoMemory, std::string(call) + ": " + failure.what()};
      }
      known.memory = own->bytes().data();
    }
    std::string wrong;
    const auto made = UpdateQueue::create(known.memory, known.memory_bytes, shape, wrong);
    if (!made) refuse(call, wrong);
    *queue = new syncd_update_queue{std::move(own), *made};
  });
}

syncd_status syncd_update_queue_attach(void* memory, size_t memory_bytes,
                                       syncd_update_queue** queue, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(queue, call, "queue");
    need(memory, call, "memory");
    return attach(call, memory, memory_bytes, std::nullopt, queue);
  });
}

syncd_status syncd_update_queue_open(int32_t descriptor, syncd_update_queue** queue,
                                     syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(queue, call, "queue");
    const std::string whose = "descriptor " + text(descriptor) + ": ";
    const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) refuse(call, whose + std::generic_category().message(errno));
    std::optional<SharedMemory> memory;
    try {
      memory.emplace(SharedMemory::attach(own, kPurpose));
    } catch (const SharedMemoryError& failure) {
      refuse(call, whose + failure.what());
    }
    const auto bytes = memory->bytes();
    return attach(call, bytes.data(), bytes.size(), std::move(memory), queue);
  });
}

void syncd_update_queue_free(syncd_update_queue* queue) {
  delete queue;
}

int32_t syncd_update_queue_descriptor(const syncd_update_queue* queue) {
  return queue != nullptr && queue->memory ? queue->memory->fd() : -1;
}

uint32_t syncd_update_queue_edges(const syncd_update_queue* queue) {
  return queue != nullptr ? queue->queue.shape().edges : 0;
}

uint32_t syncd_update_queue_slots(const syncd_update_queue* queue) {
  return queue != nullptr ? queue->queue.shape().slots : 0;
}

uint64_t syncd_update_queue_payload_bytes(const syncd_update_queue* queue) {
  return queue != nullptr ? queue->queue.shape().payload_bytes : 0;
}

syncd_status syncd_update_queue_write(syncd_update_queue* queue, uint32_t edge, int64_t iteration,
                                      const void* payload, size_t bytes, syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) -> Outcome {
    check_access(call, queue, edge, iteration, payload, bytes);
    const auto* data = static_cast<const std::byte*>(payload);
    switch (queue->queue.write(edge, iteration, std::span(data, bytes))) {
      case UpdateQueue::Written::kOk:
        return {};
      case UpdateQueue::Written::kOld:
        return {Status::kOverwritten,
                place(call, edge, iteration) + "its slot holds a later iteration, up to " +
                    text(queue->queue.newest(edge)) +
                    " were written; a writer that begins a new life clears its edge first"};
      case UpdateQueue::Written::kInvalid:
        break;
    }
    return {Status::kInternal, place(call, edge, iteration) + "refused"};
  });
}

syncd_status syncd_update_queue_read(const syncd_update_queue* queue, uint32_t edge,
                                     int64_t iteration, void* payload, size_t bytes,
                                     syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) -> Outcome {
    check_access(call, queue, edge, iteration, payload, bytes);
    auto* data = static_cast<std::byte*>(payload);
    switch (queue->queue.read_whole(edge, iteration, std::span(data, bytes))) {
      case UpdateQueue::Read::kOk:
        return {};
      case UpdateQueue::Read::kAbsent:
        return {Status::kNoUpdate, place(call, edge, iteration) +
                                       "not written (yet); the newest is " +
                                       text(queue->queue.newest(edge))};
      case UpdateQueue::Read::kOverwritten:
        return {Status::kOverwritten, place(call, edge, iteration) +
                                          "its slot holds a later iteration; the newest is " +
                                          text(queue->queue.newest(edge)) + ", and " +
                                          text(queue->queue.shape().slots) + " are kept"};
      case UpdateQueue::Read::kTorn:
        return {Status::kTorn, place(call, edge, iteration) +
                                   "half-written: its writer died or stands still in the middle, "
                                   "or two wrote at once"};
      case UpdateQueue::Read::kInvalid:
        break;
    }
    return {Status::kInternal, place(call, edge, iteration) + "refused"};
  });
}

int64_t syncd_update_queue_newest(const syncd_update_queue* queue, uint32_t edge) {
  // Whoever shares the memory may have spoilt the number.
  return queue != nullptr ? std::max(queue->queue.newest(edge), std::int64_t{-1}) : -1;
}

syncd_status syncd_update_queue_clear(syncd_update_queue* queue, uint32_t edge,
                                      syncd_error** error) {
  return guarded(__func__, error, [&](const char* call) {
    need(queue, call, "queue");
    check_edge(call, queue, edge);
    queue->queue.clear(edge);
  });
}

}  // extern "C"
