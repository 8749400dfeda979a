// What clients can make the daemon hold, and how long they can make its loop serve nobody else,
// when they reach every limit at once. Each row multiplies one limit by what one of the things
// costs; a limit that is raised beyond what the sum allows does not compile. tests/unit/limits
// measures the costs and prints both tables. Constants only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/straggler_detector.h"
#include "daemon/core/topology/graph_spec.h"
#include "daemon/edge/net/connection.h"
#include "daemon/edge/server/commit_gate.h"
#include "daemon/edge/server/core.h"
#include "daemon/edge/server/history_reads.h"
#include "daemon/edge/store/store.h"

namespace syncd::server {

// ---- memory

enum class Per : std::uint8_t { kConnection, kClient, kJob, kDaemon };
constexpr const char* to_string(Per per) {
  constexpr const char* kNames[] = {"connection", "client", "job", "daemon"};
  return kNames[static_cast<std::size_t>(per)];
}

struct MemoryRow {
  const char* what;
  const char* limit;   // a setting, or the constant that bounds it
  Per per;             // whom the limit is for
  std::uint64_t most;  // in the whole daemon, with the settings that it has by default
  std::uint64_t bytes_each;

  constexpr std::uint64_t bytes() const { return most * bytes_each; }
};

// What one of them takes at most: measured, and rounded up. Lists grow by doubling, so that one of
// them may hold twice what is in it.
inline constexpr std::uint64_t kConnectionBytes = 4 * 1024;
inline constexpr std::uint64_t kTlsBytes = 32 * 1024;
inline constexpr std::uint64_t kJobBytes = 9 * 1024;
inline constexpr std::uint64_t kWorkerBytes = 5 * 1024;  // with the longest names, data and reason
// Of a job with as many workers as can be compared (StragglerDetector).
inline constexpr std::uint64_t kSpeedsBytes = 8 * 1024;
inline constexpr std::uint64_t kEdgeBytes = 128;
// In the latest two views, and what it shows to the next.
inline constexpr std::uint64_t kViewBytes =
    3 * limits::kMemberDataBytesMax +
    2 * (256 + limits::kWorkerNameBytesMax + limits::kHostNameBytesMax);
// One of a checkpoint, and the place of the worker that saves it.
inline constexpr std::uint64_t kShardBytes = 256 + limits::kCheckpointLocationBytesMax;
inline constexpr std::uint64_t kHeldAnswerBytes = 2 * 64 + 352 + limits::kPolicyBytesMax;
inline constexpr std::uint64_t kHistoryReadBytes = 4 * limits::kHistoryReplyBytesMax;
inline constexpr std::uint64_t kChangeBytes = 4 * 1024;

// Jobs with the densest graphs: a complete one has about the root of its edges in workers.
inline constexpr std::uint64_t kEdgesPerWorkerMax = 256;
static_assert(kEdgesPerWorkerMax * (kEdgesPerWorkerMax - 1) <= limits::kGraphEdgesDefault &&
              (kEdgesPerWorkerMax + 1) * kEdgesPerWorkerMax > limits::kGraphEdgesDefault);

inline constexpr std::array kMemoryTable = {
    MemoryRow{"connections", "limits.connections_max", Per::kDaemon, limits::kConnectionsMax,
              kConnectionBytes},
    MemoryRow{"TLS of them", "limits.connections_max", Per::kDaemon, limits::kConnectionsMax,
              kTlsBytes},
    MemoryRow{"buffers of a frame", "kBufferedFloorBytes", Per::kConnection,
              limits::kConnectionsMax, limits::kBufferedFloorBytes},
    MemoryRow{"larger buffers", "kBufferedBytesMax", Per::kDaemon, 1, limits::kBufferedBytesMax},
    MemoryRow{"jobs", "kJobsMax", Per::kDaemon, limits::kJobsMax, kJobBytes},
    MemoryRow{"workers", "kWorkersMax", Per::kDaemon, limits::kWorkersMax, kWorkerBytes},
    MemoryRow{"workers in views", "kWorkersMax", Per::kDaemon, limits::kWorkersMax, kViewBytes},
    MemoryRow{"shards of checkpoints", "kCheckpointShardsMax", Per::kDaemon,
              limits::kCheckpointShardsMax, kShardBytes},
    MemoryRow{"checkpoints of forgotten jobs", "kKeptCheckpointsBytesMax", Per::kDaemon, 1,
              limits::kKeptCheckpointsBytesMax},
    MemoryRow{"speeds of a job's workers", "kJobsMax", Per::kDaemon,
              std::min<std::uint64_t>(limits::kJobsMax,
                                      limits::kWorkersMax / (StragglerDetector::kOthersMin + 1)),
              kSpeedsBytes},
    MemoryRow{"edges of graphs", "limits.graph_edges_max", Per::kJob,
              limits::kWorkersMax* kEdgesPerWorkerMax, kEdgeBytes},
    MemoryRow{"answers that wait for the disk", "kHeldAnswersMax", Per::kDaemon,
              limits::kHeldAnswersMax, kHeldAnswerBytes},
    MemoryRow{"records that wait for the disk", "kStoreQueueBytesMax", Per::kDaemon, 2,
              limits::kStoreQueueBytesMax},
    MemoryRow{"changes that wait for the disk", "kChangesMax", Per::kDaemon, limits::kChangesMax,
              kChangeBytes},
    MemoryRow{"a history in memory", "kMemoryStoreBytesMax", Per::kDaemon, 1,
              2 * store::kMemoryStoreBytesMax},
    MemoryRow{"reads of history", "HistoryReads::kMax", Per::kDaemon, HistoryReads::kMax,
              kHistoryReadBytes},
};

constexpr std::uint64_t memory_in_sum() {
  std::uint64_t sum = 0;
  for (const MemoryRow& row : kMemoryTable) sum += row.bytes();
  return sum;
}

// What a machine that runs the daemon for clients whom it does not trust must have.
inline constexpr std::uint64_t kMemoryBudget = std::uint64_t{9} << 30;
static_assert(memory_in_sum() <= kMemoryBudget,
              "raise the budget, and say so in SECURITY.md, or lower a limit");

// ---- the longest piece

struct PieceRow {
  const char* what;
  const char* limit;
  std::uint64_t most;
  std::uint64_t ns_each;  // measured on one core of a machine of 2024, and rounded up

  constexpr std::uint64_t ns() const { return most * ns_each; }
};

inline constexpr std::array kPieceTable = {
    PieceRow{"a job's start", "limits.workers_per_job_max", limits::kWorkersPerJobDefault, 1'500},
    PieceRow{"a barrier", "limits.workers_per_job_max", limits::kWorkersPerJobDefault, 800},
    PieceRow{"a slice of a release", "Core::kAnswersAtOnce", Core::kAnswersAtOnce, 1'000},
    PieceRow{"a job's end, with its snapshot", "limits.workers_per_job_max",
             limits::kWorkersPerJobDefault, 1'500},
    PieceRow{"a policy's change", "limits.workers_per_job_max", limits::kWorkersPerJobDefault,
             1'000},
    PieceRow{"a page of workers", "limits.workers_per_job_max", limits::kWorkersPerJobDefault,
             1'000},
    PieceRow{"a connection's end", "kWorkersAtOnce", limits::kWorkersAtOnce, 5'000},
    PieceRow{"losses at one time", "limits.workers_per_job_max", limits::kWorkersPerJobDefault,
             1'500},
    PieceRow{"a commit's answers", "CommitGate::kReleasedAtOnce", CommitGate::kReleasedAtOnce,
             1'000},
    PieceRow{"a verdict on a straggler, beside its host", "limits.workers_per_job_max",
             limits::kWorkersPerJobDefault, 200},
    PieceRow{"a list of jobs", "kJobsMax", limits::kJobsMax, 1'000},
    PieceRow{"a graph made anew", "limits.graph_edges_max", limits::kGraphEdgesDefault, 250},
    PieceRow{"a graph's file", "limits.graph_edges_max",
             topology::graph_file_bytes_max(limits::kGraphEdgesDefault), 18},
};

constexpr bool pieces_are_short() {
  for (const PieceRow& row : kPieceTable) {
    if (row.ns() > limits::kPieceNsMax) return false;
  }
  return true;
}
static_assert(pieces_are_short(), "cut the piece, or lower the limit that it grows with");

// ---- how limits hang together

// The default fits what the configuration allows.
static_assert(limits::kWorkersPerJobDefault <= limits::kWorkersPerJobMax);
static_assert(limits::kWorkersPerJobDefault <= limits::kWorkersMax);
// Every record that waits may have an answer that waits.
static_assert(limits::kHeldAnswersMax >= limits::kStoreQueueRecordsMax);
// One connection alone is cut off for its own buffers before the others are for its sake.
static_assert(limits::kOutboundBytesMax <= limits::kBufferedBytesMax / 16);
static_assert(limits::kBufferedFloorBytes >= kDefaultMaxFrameBytes);
// A page of a list fits a frame with the longest entry that may follow when it seems full.
inline constexpr std::size_t kEntryBytesMax =
    1024 + limits::kWorkerNameBytesMax + limits::kHostNameBytesMax + limits::kMemberDataBytesMax +
    limits::kPolicyBytesMax + 2 * limits::kReasonBytesMax;
static_assert(limits::kHistoryReplyBytesMax + kEntryBytesMax <= kDefaultMaxFrameBytes);
// A first message with the longest texts that a request may have at all.
static_assert(net::ConnectionLimits{}.hello_bytes_max <= kDefaultMaxFrameBytes);
static_assert(limits::kChangesPerConnectionMax <= limits::kChangesMax);
static_assert(HistoryReads::kPerClientMax <= HistoryReads::kMax);
static_assert(limits::kGraphEdgesDefault <= topology::kEdgesMax);
static_assert(limits::kWorkersPerJobMax <= topology::kNodesMax);

}  // namespace syncd::server
