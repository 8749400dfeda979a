// The reason of an exit that the worker itself chose: how it has left, and why. The history stores
// it, and a restart recognises it by this very text. Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "proto/wire/wire.h"

namespace syncd {

constexpr std::string_view kExitFailed = "failed";

// "left", "finished", "failed" or "preempted".
constexpr std::string_view to_string(wire::LeaveKind kind) {
  constexpr std::string_view kNames[] = {"left", "finished", kExitFailed, "preempted"};
  return kind <= wire::LeaveKind::kPreempted ? kNames[static_cast<std::size_t>(kind)] : "?";
}

// "failed: ValueError: no such file". Empty: it has left, and says no more.
inline std::string exit_reason(wire::LeaveKind kind, const std::string& why) {
  if (why.empty()) return kind == wire::LeaveKind::kLeft ? "" : std::string(to_string(kind));
  return std::string(to_string(kind)) + ": " + why;
}

// Whether the reason says that the worker has left so.
constexpr bool says(std::string_view reason, std::string_view how) {
  return reason.starts_with(how) &&
         (reason.size() == how.size() || reason.substr(how.size()).starts_with(": "));
}

// Its work is not done: the job waits for it, should no other be left.
constexpr bool is_unfinished(wire::LeaveKind kind) {
  return kind == wire::LeaveKind::kFailed || kind == wire::LeaveKind::kPreempted;
}

}  // namespace syncd
