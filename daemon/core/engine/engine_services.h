// What the engine does for its jobs. The engine owns one EngineState; each job has EngineServices,
// which is all that it sees of the engine: it cannot reach another job, nor another job's timers.
// One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/effects.h"
#include "daemon/core/engine/engine_options.h"
#include "daemon/core/engine/event.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/store_stalls.h"
#include "daemon/core/engine/timer_queue.h"
#include "daemon/core/engine/types.h"

namespace syncd {

// What all jobs have in common. Only the engine touches it as it is.
struct EngineState {
  EngineOptions options;
  Micros now = 0;              // of the event that is handled; never goes back
  Effects* effects = nullptr;  // of that event; null during recovery, which sends nothing
  StoreState store;
  StoreStalls store_stalls;
  TimerQueue timers;
  // Which workers speak over which connection, so that a cut finds them in O(log n) each.
  // A worker that has gone on elsewhere may still be named here.
  std::map<ConnectionId, std::set<std::pair<JobId, Rank>>> connections;
  std::uint64_t tails = 0;     // records after the latest snapshots of all jobs
  std::uint64_t pushes = 0;    // accepted
  std::uint64_t grants = 0;    // given
  std::uint64_t workers = 0;   // of all jobs, with those that are gone
  std::int64_t shards = 0;     // of checkpoints of all jobs
  std::vector<JobId> touched;  // jobs whose snapshot may be due after this event
  // True: one more worker is allowed. May forget jobs that have ended, to make room.
  std::function<bool()> has_room_for_worker;
};

class EngineServices {
 public:
  EngineServices(EngineState& engine, JobId job) : engine_(engine), job_(job) {}

  JobId job() const { return job_; }
  const EngineOptions& options() const { return engine_.options; }

  // ---- time
  Micros now() const { return engine_.now; }
  // During replay, the time is that of the latest record.
  void replay_time(Micros recorded) { engine_.now = std::max(engine_.now, recorded); }
  // How long the store was stalled since then.
  Micros stalled_since(Micros since) const { return engine_.store_stalls.within(since, now()); }
  void set_timer(std::int64_t rank, std::uint32_t kind, Micros at) {
    engine_.timers.set({job_, rank, kind}, at);
  }
  void cancel_timer(std::int64_t rank, std::uint32_t kind) {
    engine_.timers.cancel({job_, rank, kind});
  }
  // Those of this kind and above.
  void cancel_timers(std::uint32_t first_kind = 0) { engine_.timers.cancel_job(job_, first_kind); }

  // Null: during recovery, which sends nothing.
  Effects* effects() const { return engine_.effects; }

  // ---- the store
  // Null, or why it takes no records now.
  const std::string* store_refusal() const {
    return engine_.store.writable ? nullptr : &engine_.store.reason;
  }
  void count_record() { ++engine_.tails; }
  // After this event.
  [[gnu::cold]] void request_snapshot() { engine_.touched.push_back(job_); }

  // ---- workers
  // May forget jobs that have ended, to make room.
  bool has_room_for_worker() { return engine_.has_room_for_worker(); }
  std::string no_room_for_worker() const {
    return "this daemon knows " + std::to_string(engine_.workers) +
           " workers of all jobs already, the most allowed: a job must end first";
  }
  void count_worker() { ++engine_.workers; }
  // Shards of checkpoints that the job keeps, more or fewer.
  void count_shards(std::int64_t more) { engine_.shards += more; }
  bool has_room_for_shards(std::size_t more) const {
    return engine_.shards + static_cast<std::int64_t>(more) <=
           static_cast<std::int64_t>(limits::kCheckpointShardsMax);
  }
  // The engine tells the job once the connection is cut.
  void attach(ConnectionId connection, Rank rank) {
    engine_.connections[connection].emplace(job_, rank);
  }
  // What becomes of the connection does not concern the worker any more.
  void detach(ConnectionId connection, Rank rank) {
    const auto it = engine_.connections.find(connection);
    if (it == engine_.connections.end()) return;
    it->second.erase({job_, rank});
    if (it->second.empty()) engine_.connections.erase(it);
  }
  void count_push() { ++engine_.pushes; }
  void count_grant() { ++engine_.grants; }

 private:
  EngineState& engine_;
  JobId job_;
};

}  // namespace syncd
