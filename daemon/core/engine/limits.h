// Every limit of the daemon, each with its reason and what happens at it. The engine, the edge and
// the configuration take them from here; [limits] in the configuration may lower some of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/core/engine/types.h"
#include "proto/wire/announce.h"

namespace syncd::limits {

// A name is shown in tables, logs and metrics labels. Longer: the request is refused.
inline constexpr std::size_t kJobNameBytesMax = 64;
inline constexpr std::size_t kLaunchNameBytesMax = 64;
inline constexpr std::size_t kWorkerNameBytesMax = 128;
inline constexpr std::size_t kHostNameBytesMax = 255;  // DNS's own limit
inline constexpr std::size_t kPolicyBytesMax = 512;
inline constexpr std::size_t kReasonBytesMax = 512;
inline constexpr std::size_t kLeaveReasonBytesMax = 1024;  // a worker's own: an error's first line

// Hosts that are kept out of one job's rounds: a job that trusts fewer of its hosts than that needs
// others. Beyond it: the request is refused.
inline constexpr std::size_t kExcludedHostsMax = 1'024;

// Jobs keep their workers and counters in memory. At the limit the stopped job with the lowest id
// is forgotten (its history stays in the store); if none is stopped, a new job is refused.
inline constexpr std::uint32_t kJobsMax = 10'000;

// Requests that change jobs and whose answers wait for the disk: each keeps what the log will say
// of it. Beyond either number: the request is refused.
inline constexpr std::size_t kChangesPerConnectionMax = 1'024;
inline constexpr std::size_t kChangesMax = 16'384;

// Times (36,000 years) and clocks of a stored history, so that sums of some of them do not
// overflow. A history with a larger one is refused.
inline constexpr std::int64_t kStoredMax = std::int64_t{1} << 60;

// Ten times the largest cluster that we test. A job may have so many ranks and one worker: memory
// and the work of a listing follow the workers that there are (rank_map.h, missing_ranks.h).
inline constexpr std::uint32_t kWorkersPerJobMax = 1'000'000;

// The default of limits.workers_per_job_max. A start, a barrier, a job's end and a snapshot each
// take about a microsecond per worker, in one piece. With many more workers such a piece takes
// longer than limits::kPieceNsMax.
inline constexpr std::uint32_t kWorkersPerJobDefault = 10'000;

// Workers of all jobs together, with those that are gone, whose places are remembered; or as many
// as one job may have, if that is more. At the limit the oldest job that has ended is forgotten; if
// there is none, a new worker is refused.
inline constexpr std::uint32_t kWorkersMax = 100'000;

// The default of limits.graph_edges_max: edges of a decentralized job's graph where every worker
// talks to many (complete, clustered, file). It is made anew whenever the workers change, in about
// 80 nanoseconds an edge and in one piece: with many more it takes longer than kPieceNsMax. A
// complete graph of 256 workers. A job with a larger one is refused, and so is the worker with whom
// it would become one; a job of the store goes on as it is.
inline constexpr std::uint32_t kGraphEdgesDefault = 1U << 16;

// What a client asks for keeps the loop from serving others no longer than that in one piece.
inline constexpr std::uint64_t kPieceNsMax = 20'000'000;

// Workers of a connection that has ended which one step of the loop deals with: two milliseconds'
// work, and as many lines of the log. The rest follows in later turns.
inline constexpr std::size_t kWorkersAtOnce = 1'024;

// So long one turn fires timers that are due at once. The rest follows in later turns.
inline constexpr Micros kTimersPieceUs = 2'000;

// A worker has one request standing per kind, and one connection sends for many workers.
inline constexpr std::size_t kConnectionsMax = 16'384;  // under the usual 20,000 descriptors

// A reader this slow gets disconnected rather than buffered without bound: a thousand answers.
inline constexpr std::size_t kOutboundBytesMax = 4 * 1024 * 1024;

// Buffers of all connections together, in both directions. Above the sum, a connection whose own
// are above the floor (a frame of the largest size) and grow is cut off.
inline constexpr std::size_t kBufferedBytesMax = 512 * 1024 * 1024;
inline constexpr std::size_t kBufferedFloorBytes = 64 * 1024;

// Records waiting for the disk. At the limit pushes and joins are refused with SYNCD_E_STORE
// (retriable) until the disk has caught up.
inline constexpr std::size_t kStoreQueueRecordsMax = 1'000'000;
inline constexpr std::size_t kStoreQueueBytesMax = 256 * 1024 * 1024;

// Answers that wait for the disk: one for each record that waits, and for requests that are made
// again meanwhile. At the limit a request is answered with SYNCD_E_STORE.
inline constexpr std::size_t kHeldAnswersMax = 1'000'000;

// Records between two snapshots of a job: bounds the work of a restart.
inline constexpr std::uint64_t kSnapshotEveryRecords = 100'000;
// All jobs together leave so many times that. Above it those with the longest tails get snapshots,
// so many after one event, and only until these hold kWorkersPerJobDefault workers.
inline constexpr std::uint64_t kReplayFactor = 3;
inline constexpr int kSnapshotsAtOnce = 64;

// One answer about history stays well under a frame.
inline constexpr std::size_t kHistoryReplyBytesMax = 48 * 1024;

// No iteration count or relative clock of a real job comes near this; larger numbers from outside
// are refused, so that sums cannot overflow.
inline constexpr Iteration kIterationMax = Iteration{1} << 48;

// Likewise for what a client reports as its incarnation: the next one must still be a larger
// number.
inline constexpr Incarnation kIncarnationMax = Incarnation{1} << 48;

// Times a worker may set: 30 days, longer than any run that waits for anything.
inline constexpr Micros kSpanMax = Micros{30} * 24 * 3600 * 1'000'000;

// A long phase that a worker announces is named in tables and logs, as a job is. Its lease covers
// an evaluation or a checkpoint of any size, and yet a worker that hangs in one is noticed within a
// day. Beyond either: the request is refused. The client library keeps to the same numbers.
inline constexpr std::size_t kPhaseNameBytesMax = syncd::kPhaseNameBytesMax;
inline constexpr Micros kPhaseLeaseMax = syncd::kPhaseLeaseUsMax;

// Lateness that is left to the daemon (lateness.h). A worker is measured against its own latest
// iterations: enough of them that one odd span (a checkpoint, a cold cache) moves neither the
// median nor the spread, few enough that a worker that goes over to longer work is not called late
// for long. Below the fewest nothing is known of it.
inline constexpr std::uint32_t kSpansKept = 16;
inline constexpr std::uint32_t kSpansFewest = 8;
inline constexpr std::uint32_t kSpansPerLook = 4;
// Slowdowns of 2 to 3 times are everyday ones in a shared cluster, and one of 6 times is what the
// papers inject: more than that is worth a line. A spread of normal draws is 0.67 standard
// deviations, so that 8 of them are beyond 5.
inline constexpr Micros kLateMedians = 4;
inline constexpr Micros kLateSpreads = 8;
inline constexpr Micros kEvictPerWarn = 5;
// Below these a pause of the machine (a garbage collection, a page-in, a network that comes back)
// would count; above, a hang would go unnoticed for longer than people wait before they look.
inline constexpr Micros kWarnAfterFloor = Micros{5} * 1'000'000;
inline constexpr Micros kWarnAfterCeiling = Micros{10} * 60 * 1'000'000;
inline constexpr Micros kEvictAfterFloor = Micros{60} * 1'000'000;
inline constexpr Micros kEvictAfterCeiling = Micros{60} * 60 * 1'000'000;
// Of a worker of which nothing is known yet: a first iteration may load data and compile kernels.
inline constexpr Micros kWarnAfterUnknown = Micros{60} * 1'000'000;

// hang_after that is left to the daemon (watch.h): of the worker whose threshold is the highest, so
// many times what would warn of it as late. A spike of ten times is no hang; a wait of half a
// minute is not worth an alarm. While a worker's iterations are unknown, it may load data and
// compile.
inline constexpr Micros kHangPerWarn = 3;
inline constexpr Micros kHangAfterFloor = Micros{30} * 1'000'000;
inline constexpr Micros kHangAfterCeiling = Micros{30} * 60 * 1'000'000;
inline constexpr Micros kHangAfterUnknown = Micros{10} * 60 * 1'000'000;
// A hang's text names so many workers, its record so many ranks.
inline constexpr std::size_t kHangNamedMax = 8;
inline constexpr std::size_t kHangRanksMax = 64;
// During a hang the job is looked at so often: others may be at fault meanwhile, or it is over.
inline constexpr Micros kHangLookUs = 1'000'000;
// A worker that exchanges says so every quarter of hang_after, in these bounds. One that has not
// said so for three of these times is silent.
inline constexpr Micros kExchangeSaidMinUs = 50'000;
inline constexpr Micros kExchangeSaidMaxUs = 1'000'000;

// What a worker's process says of its stacks. A longer text is cut.
inline constexpr std::size_t kStacksBytesMax = 16 * 1024;
// How long an inspected process has to answer, and how many may be asked of one job at once: each
// keeps its answer until then. Beyond: the request is refused.
inline constexpr Micros kInspectTimeoutUs = 2'000'000;
inline constexpr std::size_t kInspectionsPerJobMax = 64;

// What a worker shows to the others of itself: an address, or a few. It lies in the record of its
// join, in snapshots and in lists of a thousand members. Longer: the join is refused.
inline constexpr std::size_t kMemberDataBytesMax = syncd::kMemberDataBytesMax;

// Where a shard of a checkpoint lies: a path or an address. Longer: the answer is refused.
inline constexpr std::size_t kCheckpointLocationBytesMax = 1'024;
// Shards that all jobs keep together, of the latest complete checkpoint of each and of the open
// one: two for each worker. At the limit an answer about one more is refused.
inline constexpr std::size_t kCheckpointShardsMax = 2 * kWorkersMax;
// The latest complete checkpoints of jobs that are forgotten (kept_checkpoints.h): one a name, as
// many as there may be jobs, and so large together that the largest one fits. Beyond either number
// the one goes first that has been complete for longest, which the log says.
inline constexpr std::size_t kKeptCheckpointsMax = kJobsMax;
inline constexpr std::size_t kKeptCheckpointsBytesMax = 256 * 1024 * 1024;
// What one of them counts for, and each of its shards beside its location.
inline constexpr std::size_t kKeptCheckpointBytes = 1'024;
inline constexpr std::size_t kKeptShardBytes = 96;
static_assert(kKeptCheckpointBytes +
                  kCheckpointShardsMax * (kKeptShardBytes + kCheckpointLocationBytesMax) <=
              kKeptCheckpointsBytesMax);

}  // namespace syncd::limits
