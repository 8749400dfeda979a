// Short cuts for the messages of which there are many: a worker's calls in each iteration, and
// their answers. The generic encoder gives all messages of one of these types the same bytes but
// for the values of their fields, as long as the same fields are set (FlatBuffers leaves out a
// field that has its default). So each such set has a layout, made once by the generic encoder: a
// message is written by putting its values into a copy, and a frame is read where it lies if all
// else in it is what the layout has. A frame of another layout, which another implementation of
// FlatBuffers may make, takes the generic way. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::wire {

enum class Hot : std::uint8_t { kNone, kPush, kBegin, kTargets, kCollect, kConsumed };

struct HotCall {
  Hot kind = Hot::kNone;
  std::uint64_t id = 0;
  Push push;  // of all but a Push, its worker and iteration are those of the call
};

// Reads a frame's payload (without the length prefix) if it is one of these calls, of a layout that
// is known; else `call` is of kind kNone. What is read is what decode() would give.
void read_hot(std::span<const std::uint8_t> payload, HotCall& call);

// take(call) with what read_hot() has read.
template <class Take>
void visit_hot(const HotCall& hot, const Take& take) {
  const Push& push = hot.push;
  switch (hot.kind) {
    case Hot::kNone:
      return;
    case Hot::kPush:
      return take(push);
    case Hot::kBegin:
      return take(Begin{push.worker, push.iteration});
    case Hot::kTargets:
      return take(Targets{push.worker, push.iteration});
    case Hot::kCollect:
      return take(Collect{push.worker, push.iteration});
    case Hot::kConsumed:
      return take(Consumed{push.worker, push.iteration});
  }
}

// The same for all types that have a short cut, into a message.
bool decode_hot(std::span<const std::uint8_t> payload, Message& message);

}  // namespace syncd::wire
