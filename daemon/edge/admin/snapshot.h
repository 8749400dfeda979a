// What the admin pages show, copied on the loop thread at one moment: no other thread reads the
// daemon's own state. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/engine/counters.h"
#include "daemon/edge/cluster/member_view.h"
#include "daemon/edge/server/server_view.h"

namespace syncd::admin {

struct ReloadFigures {
  bool last_good = true;
  Micros last_good_us = 0;  // of the wall clock; the start counts as one
  std::uint64_t good = 0;
  std::uint64_t failed = 0;
};

struct Snapshot {
  server::ServerView server;
  // How long the loop was busy between two waits for events: an event has lain no longer.
  SpanHistogram loop_turns;
  ReloadFigures reload;
  std::optional<cluster::MemberView> member;  // nothing: it is no member of a cluster
};

// What the admin server counts of itself, on its own thread.
struct AdminFigures {
  std::uint64_t answered = 0;  // with any status below 400
  std::uint64_t refused = 0;   // with any other, or cut off
};

}  // namespace syncd::admin
