// The board of one run, in shared memory: what the parent tells its workers (configuration, stop
// flag, the budget of iterations) and what each worker tells the parent (counters, state, the text
// of an error). Configuration is written before any worker starts and never again; everything else
// is atomic. Any thread of any process that has the board mapped.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "libclient/shared_memory.h"
#include "reference_trainer/model/workload.h"
#include "reference_trainer/run/policies.h"
#include "reference_trainer/run/span_ring.h"

namespace syncd::trainer {

inline constexpr int kWorkersMax = 1024;

// How the iterations of a run are counted against --max-iterations.
enum class Budget : std::int32_t {
  kShared,  // workers * K in all, whoever makes them
  kEach,    // K for every worker
};

// What a worker is.
enum class WorkersAs : std::int32_t {
  kProcesses,
  kThreads,  // of the trainer's process
};

// Where the parameters are that workers share or send to each other.
enum class StoreIn : std::int32_t { kHost, kDevice };

enum class StopLevel : std::int32_t {
  kNone = 0,
  kFinish = 1,   // finish the iteration under way, push it, leave
  kAbandon = 2,  // drop the iteration under way and leave
};

enum class WorkerState : std::int32_t {
  kRunning = 0,
  kFinished,  // left the job as it should
  kFailed,    // its message says why
};

// A text of limited length that one process writes and others may read at any time. Text that is
// being rewritten may be read mixed; it is for people only.
class BoardText {
 public:
  static constexpr std::size_t kBytesMax = 768;  // the rest is cut off
  void set(std::string_view text);
  std::string get() const;

 private:
  std::atomic<std::uint32_t> length_;
  std::array<std::atomic<char>, kBytesMax> bytes_;
};

// What a worker counts, with a clock and in virtual time. Times in microseconds.
template <typename Number>
struct WorkerCounts {
  Number iterations{};    // pushed and counted
  Number waiting_us{};    // in begin, targets and collect, without the wait for the job to start
  Number computing_us{};  // pull, compute, padding, apply
  Number pushing_us{};    // in push
  Number wasted_us{};     // computing that was thrown away: restarts, late updates
  Number staleness_sum{};
  Number staleness_max{};
  Number grants{};  // begins answered with an iteration
  Number pulls{};
  Number restarts{};         // iterations started over on the daemon's advice
  Number late{};             // updates that came too late and were taken back
  Number skipped{};          // iterations jumped over
  Number reduced{};          // updates of others that were read for a reduce
  Number missing_updates{};  // that were to be read and were not there
  Number torn_updates{};     // that were there in part
  Number rejoins{};
  Number retries{};  // calls made again because their failure might pass

  // All of them.
  auto all() {
    return std::array{
        &iterations,    &waiting_us,      &computing_us, &pushing_us, &wasted_us, &staleness_sum,
        &staleness_max, &grants,          &pulls,        &restarts,   &late,      &skipped,
        &reduced,       &missing_updates, &torn_updates, &rejoins,    &retries};
  }
};

// What one worker reports. Moments on the machine's monotonic clock.
struct alignas(64) WorkerSlot : WorkerCounts<std::atomic<std::int64_t>> {
  std::atomic<WorkerState> state;
  std::atomic<std::int64_t> first_grant_us;  // moment; 0: not granted yet
  std::atomic<std::int64_t> last_push_us;    // moment of the end of the latest push
  // Where the order of updates is fixed: one more than the iteration that it pulled for last, and
  // than the one whose update it added last.
  std::atomic<std::int64_t> pulled;
  std::atomic<std::int64_t> added;
  BoardText message;             // why it failed
  BoardText waiting_for;         // what a long begin said last, or why a call is tried again
  BoardText trouble;             // the latest failure that was met with another try
  StalenessHistogram staleness;  // at the grants
  SpanRing spans;                // since the first grant

  void note_grant(std::int64_t of_staleness) {
    grants.fetch_add(1, std::memory_order_relaxed);
    staleness_sum.fetch_add(of_staleness, std::memory_order_relaxed);
    staleness.add(of_staleness);
    if (of_staleness > staleness_max.load(std::memory_order_relaxed)) {
      staleness_max.store(of_staleness, std::memory_order_relaxed);
    }
  }
  bool has_ended() const { return state.load(std::memory_order_acquire) != WorkerState::kRunning; }
};

// Adds to a counter that one worker alone writes.
inline void count(std::atomic<std::int64_t>& counter, std::int64_t amount) {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

// Everything a worker process needs to know. Plain data of fixed size.
struct BoardConfig {
  WorkloadConfig workload;
  Budget budget;
  std::int64_t iterations;    // per worker; 0: no limit
  std::int64_t iteration_us;  // the emulated base cost; 0: none
  HopOrder hop_order;
  std::int32_t parameters_fd;  // the record of the store, or of the update queues
  bool are_on_host;            // they are in host memory, whatever computes
  std::int32_t data_fd;
  std::array<char, 256> slowdown;  // as in parse_slowdown()
  std::array<char, 1024> addresses;
  std::array<char, 128> job;
  std::array<char, 256> policy;
  // Agreed checkpoints.
  std::array<char, 1024> checkpoints;  // the directory; empty: none
  std::int64_t checkpoint_every;       // iterations; 0: only when somebody asks
  std::uint64_t start;                 // of the trainer in this directory
  std::uint64_t launch;                // as in JoinRequest
  std::uint64_t resume_start;          // the checkpoint to go on from; 0: none
  std::uint64_t resume_number;
  std::int64_t resume_at;  // the iteration to begin with
};

// Copies a text into a field of BoardConfig; throws std::invalid_argument, naming `what`, if it
// does not fit.
void set_field(std::span<char> field, std::string_view text, std::string_view what);

class RunBoard {
 public:
  static RunBoard create(const BoardConfig& config);
  static RunBoard attach(int fd);

  const BoardConfig& config() const;
  int workers() const { return config().workload.workers; }
  WorkerSlot& slot(int worker) const;
  int fd() const { return memory_.fd(); }

  void request_stop(StopLevel level) const;  // never lowers the level
  StopLevel stop() const;

  // The workers are to save an agreed checkpoint and to leave.
  void request_preemption() const;
  bool is_preempted() const;

  // Counts iterations that a worker made in an earlier start. Before the workers start.
  void add_earlier(int worker, std::int64_t iterations) const;

  // Takes one iteration of worker's budget; false if nothing is left of it. give_back() returns one
  // that was not used.
  bool claim_iteration(int worker) const;
  void give_back_iteration(int worker) const;

 private:
  struct Header;
  explicit RunBoard(SharedMemory memory);
  std::atomic<std::int64_t>& claimed(int worker) const;

  SharedMemory memory_;
  Header* header_ = nullptr;
  WorkerSlot* slots_ = nullptr;
};

}  // namespace syncd::trainer
