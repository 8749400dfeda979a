// What the engine wants done after one event. Filled by step() and tick(); plain data, no thread.
//
// Order. Within a field, entries are in the order in which they must happen. Between fields:
//  1. `records` and `snapshots` go to the store, together, before anything else of this Effects.
//  2. A reply with after_records == true is sent only when those records, and all that were handed
//     over before them, are committed. This makes an acknowledged push, join or leave survive a
//     crash, also where this Effects has no record because an earlier one has it (a push sent
//     twice).
//     A notification with after_records == true likewise: whoever acted on it could not be called
//     back after a crash.
//  3. All other replies and notifications may be sent at once: a grant need not wait for the push
//     that caused it, because an unacknowledged push is sent again after a crash.
//  4. Replies and notifications to one connection keep their order among those that are free to go;
//     one that is held may be overtaken. The owner may send many of them in slices, and handle other
//     events in between: later answers to a connection that has some left then wait behind them.
//  5. `plans` are worked on off the loop thread, in any order; each comes back as PlanReady.
//  6. `log` lines may be written at any time after the records are submitted.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/event.h"
#include "daemon/core/engine/record.h"

namespace syncd {

struct Reply {
  Caller to;
  bool after_records = false;
  wire::Body body;
};

struct Notification {
  ConnectionId connection = 0;
  wire::Body body;
  bool after_records = false;
};

// A computation that would take too long on the loop: pure, self-contained, and safe to run on any
// thread. The same input gives the same result.
class PlanWork {
 public:
  virtual ~PlanWork() = default;
  virtual std::vector<std::int64_t> run() const = 0;
};

struct Plan {
  JobId job = 0;
  std::uint64_t id = 0;
  std::shared_ptr<const PlanWork> work;
};

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarn, kError };
inline constexpr LogLevel kLogLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn,
                                          LogLevel::kError};
constexpr const char* to_string(LogLevel level) {
  constexpr const char* kNames[] = {"debug", "info", "warn", "error"};
  return kNames[static_cast<std::size_t>(level)];
}

// One state change, for the log: never one per push.
struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string event;  // "worker_lost"
  std::vector<std::pair<std::string, std::string>> fields;
};

struct Effects {
  std::vector<Record> records;
  std::vector<JobSnapshot> snapshots;
  std::vector<Reply> replies;
  std::vector<Notification> notifications;
  std::vector<Plan> plans;
  std::vector<LogLine> log;

  // True: clear() leaves the records, so that those of several events gather until the owner takes
  // them.
  bool keeps_records = false;

  // What most events end in: nothing but replies, and perhaps records.
  bool has_replies_alone() const {
    return notifications.empty() && snapshots.empty() && plans.empty() && log.empty();
  }

  // Empties everything and keeps the memory, so that a loop over events does not allocate.
  void clear() {
    // Mostly the owner has done so already.
    const bool is_clear =
        (keeps_records || records.empty()) && replies.empty() && has_replies_alone();
    if (!is_clear) clear_now();
  }

 private:
  [[gnu::noinline]] void clear_now() {
    if (!keeps_records) records.clear();
    replies.clear();
    notifications.clear();
    snapshots.clear();
    plans.clear();
    log.clear();
  }
};

}  // namespace syncd
