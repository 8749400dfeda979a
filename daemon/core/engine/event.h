// What can happen to the engine. The edge turns bytes, timers and finished work into these; the
// simulator and the tests make them directly. Plain data, no thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "daemon/core/engine/types.h"
#include "proto/wire/wire.h"

namespace syncd::topology {
struct GraphFile;
}

namespace syncd {

// Who asked: the engine hands it back with the answer and never looks inside.
struct Caller {
  ConnectionId connection = 0;
  RequestId request = 0;
  bool operator==(const Caller&) const = default;
};

// A client's request, decoded and verified. The engine answers those whose row in request_traits.h
// says so, and any other UNSUPPORTED.
struct Request {
  Caller caller;
  wire::Body body;
  // What the file says that the policy of the job names which this request makes
  // (Engine::policy_to_make); null: none.
  std::shared_ptr<const topology::GraphFile> graph_file = nullptr;
};

// A connection is gone: its standing requests are withdrawn and its workers' places are kept for
// their job's worker_grace, or exit_grace if the other side has closed it.
struct Disconnected {
  ConnectionId connection = 0;
  std::string reason = {};  // for the log; may be empty
  bool by_peer = false;     // closed or reset by the other side; false: it was silent, or cut here
};

// Work that a policy asked for in Effects::plans is done.
struct PlanReady {
  JobId job = 0;
  std::uint64_t plan = 0;            // Plan::id
  std::vector<std::int64_t> result;  // in the layout of the policy that asked
};

// The store can, or cannot, take records. While it cannot, requests that need a record are refused
// with Status::kStore and `reason`; everything else goes on.
struct StoreState {
  bool writable = true;
  std::string reason;
};

// The daemon is going away: standing requests are answered Status::kShutdown.
struct Shutdown {
  std::string reason;
};

using Event = std::variant<Request, Disconnected, PlanReady, StoreState, Shutdown>;

}  // namespace syncd
