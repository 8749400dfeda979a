// Where the engine's records live. Two implementations: in memory (tests, `--store memory`) and on
// RocksDB. The daemon's loop thread submits; a store commits on a thread of its own, so that the
// loop never waits for a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/engine/kept_index.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/record.h"
#include "daemon/core/engine/types.h"

namespace rocksdb {
class Env;
}

namespace syncd::store {

enum class Mode : std::uint8_t {
  kDurable,  // a commit is on disk (fsync) before it is reported
  kFast,     // a commit is in the operating system's cache: survives a kill, not a power cut
};

struct Options {
  std::string path;  // a directory; made (mode 0700) if its parent exists
  Mode mode = Mode::kDurable;
  bool read_only = false;  // for tools: no writer thread, no lock, nothing is created
  std::size_t queue_records_max = limits::kStoreQueueRecordsMax;
  std::size_t queue_bytes_max = limits::kStoreQueueBytesMax;
  // It is a member's copy of a cluster's log. A store that has been one opens as nothing else (but
  // to be read), and one that has jobs and was none not as one.
  bool is_copy = false;
  // For salvage.h: entries of the log and files that are damaged are passed over.
  bool skip_damage = false;
  // How long the writer waits before it tries again after an error: at first, and at most.
  std::int64_t retry_after_us = 100'000;
  std::int64_t retry_after_max_us = 2'000'000;
  // The disk, for tests: RocksDB's files go there, and `path` is a directory of it. It must outlive
  // the store. Null: the machine's.
  rocksdb::Env* env = nullptr;
  // What is kept of the history before a job's latest snapshot; 0: everything. See retention.h.
  Micros retention_us = 0;
  std::uint64_t retention_bytes = 0;
  std::function<Micros()> now = {};  // since the Unix epoch; empty: the machine's clock
};

// What retention has removed at one time.
struct Removed {
  JobId job = 0;
  std::uint64_t records = 0;
  Sequence first = 0;     // the first record that is left, or 0: the whole job has gone
  std::string name = {};  // of a job that has gone
  // Its latest complete checkpoint, which is kept (kept_checkpoints.h); 0: it had none.
  std::uint64_t checkpoint = 0;
  std::vector<std::string> forgotten = {};  // jobs whose checkpoints are kept no longer
};

// Everything handed over at once becomes visible at once, or not at all.
struct Batch {
  std::vector<Record> records;         // sequences continue those of each record's job
  // Each takes the place of the job's earlier one. That of a job which the store does not know
  // brings the job in, with a history that begins behind it.
  std::vector<JobSnapshot> snapshots;
  std::string stamp = {};  // becomes Store::stamp(); empty: leaves it
};

// What they take in memory, which limits are about: all that structs, strings and lists hold.
std::size_t weight(const Record& record);
std::size_t weight(const JobSnapshot& snapshot);
std::size_t weight(const Batch& batch);

// What the writer tells. The callback is called on the writer thread, or from within submit() where
// that has committed the batch; it must return quickly and must not call back into the store.
struct CommitReport {
  Ticket committed = 0;       // all batches up to this ticket are committed
  std::string error;          // empty, or why the store cannot be written (it keeps trying)
  std::uint64_t batches = 0;  // submitted batches that went out in this commit
  std::uint64_t records = 0;
  std::int64_t commit_us = 0;  // what the commit took
  std::vector<Removed> removed = {};
  std::vector<JobId> wants_snapshot = {};  // of these jobs, so that it can let go of their records
  std::exception_ptr failure =
      {};  // an exception has ended the writer: there is no commit any more
};
using CommitCallback = std::function<void(const CommitReport&)>;

struct RecoveredJob {
  std::optional<JobSnapshot> snapshot;
  std::vector<Record> records;  // those after the snapshot, in sequence
};

struct RawRecord {
  Sequence sequence = 0;
  std::vector<std::uint8_t> bytes;  // as stored: checksum, length, Record
};

struct ReadResult {
  std::vector<RawRecord> records;
  Sequence next_sequence = 0;   // where to go on; 0: nothing more for now
  Sequence first_sequence = 1;  // of what retention has left; 0: the store knows no such job
};

// The end of the log that a crash has cut off within an entry. It was never acknowledged in durable
// mode.
struct CutTail {
  std::string file;
  std::uint64_t at = 0;     // from this byte on
  std::uint64_t bytes = 0;  // so many were dropped
  std::string what;         // of which records, as far as that can be read; may be empty
};

// Functions that can fail return false and put a sentence into `error` that names the path or the
// job and sequence, the cause, and what can be done.
class Store {
 public:
  virtual ~Store() = default;

  // Hands over everything committed, one job at a time in order of their ids, so that never more
  // than one job's records are held. Ends, and is false, when `take` is. Call once, before the
  // first submit; `take` must not call back into the store.
  using TakeJob = std::function<bool(RecoveredJob&& job, std::string& error)>;
  virtual bool load_each(const TakeJob& take, std::string& error) = 0;
  // The same all at once.
  bool load(std::vector<RecoveredJob>& jobs, std::string& error) {
    jobs.clear();
    const auto keep = [&](RecoveredJob&& job, std::string&) {
      jobs.push_back(std::move(job));
      return true;
    };
    return load_each(keep, error);
  }

  // The highest epoch of a job that is not there any more; 0: none. After load().
  virtual Epoch removed_epoch() const { return 0; }

  // The latest complete checkpoints of jobs that are not there any more. After load(), once.
  virtual std::vector<KeptCheckpoint> take_kept_checkpoints() { return {}; }

  // Starts the writer; `callback` is called after every commit, after every attempt to write that
  // has failed, and when something was removed (then `batches` is 0). Call once, after load().
  virtual void start(CommitCallback callback) = 0;

  // Queues a batch. Does not wait for the disk; in fast mode a small batch may be written at once,
  // into the system's cache. Tickets must rise. False: the queue is full; `batch` is then
  // untouched, so that the caller can keep it and try again after a commit. True: what is left of
  // its lists has no meaning but their memory, which the caller may use again.
  virtual bool submit(Ticket ticket, Batch&& batch) = 0;

  // Blocks until everything submitted is committed, or has failed, or `timeout_us` has passed;
  // stops the writer. Returns true if everything was committed.
  virtual bool close(std::int64_t timeout_us, std::string& error) = 0;

  // Committed records of one job from a sequence on, as many as fit both limits (at least one if
  // there is one). Any thread. An unknown job gives an empty result.
  virtual bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
                    ReadResult& result, std::string& error) = 0;

  // The creation record of every job, in order of the jobs' ids. Any thread.
  virtual bool jobs(std::vector<Record>& created, std::string& error) = 0;

  // Copies everything committed, and perhaps more, to the directory `to`, absolute and not there
  // yet. Any thread; blocks as long as the disk takes, and no commit meanwhile.
  virtual bool checkpoint(const std::string& to, std::string& error) {
    error = "store " + describe() + " keeps no files: " + to + " was not made";
    return false;
  }

  // What opening has cut off the log.
  virtual std::optional<CutTail> cut_tail() const { return {}; }

  // What a cluster's member says of its copy (Batch::stamp), as it was when the store was opened;
  // empty: the store is of one daemon.
  virtual std::string stamp() const { return {}; }

  // Another daemon may go on in this one's place, from what is committed. So a client must not hear
  // of anything that may yet be undone: see CommitGate::pass().
  virtual bool is_shared() const { return false; }

  virtual Mode mode() const = 0;
  virtual std::string describe() const = 0;  // the path, or "memory"
};

// Of all jobs together; 900,000 pushes.
inline constexpr std::size_t kMemoryStoreBytesMax = std::size_t{128} << 20;
std::unique_ptr<Store> make_memory_store(std::size_t bytes_max = kMemoryStoreBytesMax);

// Opens (or creates) a store directory. Null on failure: not writable, in use by another process,
// written by a newer version, damaged.
std::unique_ptr<Store> open_rocks_store(const Options& options, std::string& error);

}  // namespace syncd::store
