// For what a call waits: told every 10 s to a worker that wants to know. A begin that has waited for
// its job's start for too long ends. Same thread as the session.
#include <algorithm>
#include <utility>

#include "libclient/session.h"

namespace syncd::client {
namespace {

constexpr const char* kStartRule = "start";

std::string text_of(const Explanation& given, std::uint32_t world_size) {
  if (given.rule != kStartRule) return to_text(given);
  return "waiting for " + std::to_string(given.waited_for_count) + " of " +
         std::to_string(std::max(world_size, given.waited_for_count)) +
         " workers: " + given.ranks + " (" + given.text + ")";
}

}  // namespace

void Session::plan_telling(Worker& worker) {
  const TimeUs next = worker.params.hears_waits() ? add(now_, kTellWaitUs) : kNever;
  const TimeUs limit = add(worker.wait_since_us, worker.params.join_timeout_us);
  worker.tell_wait_us = limit > now_ ? std::min(next, limit) : next;
  scan_at_us_ = std::min(scan_at_us_, worker.tell_wait_us);
}

// The daemon knows, if it can be asked.
void Session::ask_wait(Worker& worker) {
  plan_telling(worker);
  if (!worker[kWait].active || worker[kWait].op.id == 0) return;
  const bool asked = std::any_of(worker.sides.begin(), worker.sides.end(),
                                 [](const Side& side) { return side.kind == kTellWait; });
  const bool pending_there =
      link_.usable() && worker.membership == Membership::kJoined && worker[kWait].request != 0;
  if (asked || !pending_there) return tell_wait(worker, obstacle_text(worker));
  send_aside(worker, kTellWait, {}, 0);
}

void Session::on_wait_explained(Worker& worker, const Explanation& given) {
  Pending& wait = worker[kWait];
  // Of iteration -1: the grant is under way.
  if (!wait.active || wait.op.id == 0 || given.iteration < 0) return;
  const std::string text = text_of(given, worker.world_size);
  const TimeUs waited = now_ - worker.wait_since_us;
  if (given.rule == kStartRule && waited >= worker.params.join_timeout_us) {
    // The next begin waits as long again.
    worker.wait_since_us = now_;
    plan_telling(worker);
    return complete(wait.op, Status::kTimeout,
                    call_text(wait, worker) + " not granted after " + format_duration(waited) +
                        " (join_timeout): " + text);
  }
  tell_wait(worker, text);
}

void Session::tell_wait(const Worker& worker, std::string text) {
  if (!worker.params.hears_waits()) return;
  Event event;
  event.kind = Event::Kind::kWait;
  event.wait_us = now_ - worker.wait_since_us;
  event.text = std::move(text);
  events_.push_back({worker.params.signals, std::move(event)});
}

}  // namespace syncd::client
