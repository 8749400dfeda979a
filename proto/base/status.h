// Status codes that the engine answers, the wire carries and the C interface returns: one numbering
// for all three, so that nothing is translated on the way. Numbers are set by hand and never
// reused. Plain data, no thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace syncd {

enum class Status : std::int32_t {
  kOk = 0,
  kInvalid = -1,
  kNoMemory = -2,
  kTimeout = -3,
  kUnreachable = -4,
  kProtocol = -5,
  kAuth = -6,
  kUnknownJob = -7,
  kPolicyMismatch = -8,
  kWrongIteration = -9,
  kFenced = -10,
  kRankTaken = -11,
  kLimit = -12,
  kStore = -13,
  kCancelled = -14,
  kClosed = -15,
  kForked = -16,
  kUnsupported = -17,
  kStopped = -18,
  kState = -19,
  kInternal = -20,
  kShutdown = -21,
  kUnknownWorker = -22,
  kJobExists = -23,
  kBuffer = -24,
  kListen = -25,
  kNoUpdate = -26,
  kOverwritten = -27,
  kTorn = -28,
  kBroken = -29,
  kCheckpoint = -30,
};

// "SYNCD_E_TIMEOUT" and the like; "SYNCD_E_?" for a number that this build does not know.
std::string_view status_name(Status status);

// True if the same call may succeed when it is simply made again.
bool status_is_retriable(Status status);

// True if the worker that got it can never succeed any more.
bool status_is_fatal(Status status);

}  // namespace syncd
