// The store of a member that leads: what is submitted is appended to the shard's log in etcd, and
// counts as committed when etcd has it. The member's copy follows. A thread of its own appends, one
// entry after the other; what is submitted meanwhile goes into the next one.
//
// The log's beginning is removed once snapshots cover it; see LogLimits.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/core/cluster/shard_log.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/core/engine/effects.h"
#include "daemon/edge/cluster/copy.h"
#include "daemon/edge/cluster/etcd.h"
#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"

namespace syncd::cluster {

// Of the log in etcd: bytes of encoded records, and entries.
struct LogSize {
  std::size_t bytes = 0;
  std::size_t entries = 0;
};

// What the log may come to before something is done.
struct LogLimits {
  LogSize want_snapshots{16 << 20, 4'000};      // jobs are asked for snapshots
  LogSize keep{64 << 20, 16'000};               // entries go that snapshots and all copies have
  LogSize keep_for_copies{256 << 20, 100'000};  // entries go that a member's copy lacks, too
  // The logs of all shards together may come to four times what the log of one may, and to a
  // quarter of what etcd may hold.
  LogLimits for_one_of(Shard shards, std::uint64_t etcd_quota_bytes = UINT64_MAX) const;
};

// How far the log and the leader's copy of it have come. Any thread reads them.
struct LogFigures {
  std::atomic<Index> first{1};
  std::atomic<Index> last{0};
  std::atomic<Index> copied{0};
  std::atomic<bool> copy_fails{false};  // it cannot be written now
  // The last entry that the copies of all other members have; 0: there is no other one.
  std::atomic<Index> others_have{UINT64_MAX};
  std::atomic<Index> present_have{UINT64_MAX};  // the same of those that are there now
  // Of etcd's database; 0: not known yet.
  std::atomic<std::uint64_t> etcd_bytes{0};
  std::atomic<std::uint64_t> etcd_file_bytes{0};
};

// Whether etcd has come so close to its quota that pushes are refused: at the quota it takes
// nothing at all, not even what makes room.
inline bool fills(std::uint64_t bytes, std::uint64_t quota_bytes) {
  return bytes > quota_bytes / 10 * 6;
}

class ShardStore final : public store::Store {
 public:
  struct Options {
    ShardKeys keys;
    Config config;
    Term term;
    Nonce nonces;        // of this process
    Micros timeout = 0;  // of one attempt
    std::string describe;
    std::function<void(const LogLine&)> log;  // any thread
    // Called once, on the appending thread: this member leads no longer, or `is_unfit`: it cannot.
    // Nothing is committed from then on.
    std::function<void(const std::string& reason, bool is_unfit)> on_deposed;
    std::shared_ptr<LogFigures> figures = std::make_shared<LogFigures>();
    LogLimits limits = {};
    std::size_t unread_bytes = 0;  // of the entries that `read` leaves out, about
    std::uint64_t etcd_quota_bytes = UINT64_MAX;
  };

  // `copy` has what `read` says, and nothing else was done with it. `etcd` must outlive the store.
  ShardStore(Options options, const TakeOver& read, Etcd& etcd, std::unique_ptr<Store> copy);
  ~ShardStore() override;

  bool load_each(const TakeJob& take, std::string& error) override;
  Epoch removed_epoch() const override { return std::max(copy_->removed_epoch(), removed_epoch_); }
  std::vector<KeptCheckpoint> take_kept_checkpoints() override {
    return copy_->take_kept_checkpoints();
  }
  void start(store::CommitCallback callback) override;
  bool submit(Ticket ticket, store::Batch&& batch) override;
  bool close(std::int64_t timeout_us, std::string& error) override;
  bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
            store::ReadResult& result, std::string& error) override {
    return copy_->read(job, from, records_max, bytes_max, result, error);
  }
  bool jobs(std::vector<Record>& created, std::string& error) override {
    return copy_->jobs(created, error);
  }
  bool checkpoint(const std::string& to, std::string& error) override {
    return copy_->checkpoint(to, error);
  }
  std::optional<store::CutTail> cut_tail() const override { return copy_->cut_tail(); }
  store::Mode mode() const override { return store::Mode::kDurable; }
  std::string describe() const override { return options_.describe; }
  std::string stamp() const override { return copy_->stamp(); }
  bool is_shared() const override { return true; }

 private:
  struct Submitted {
    Ticket ticket = 0;
    std::size_t bytes = 0;
    store::Batch batch;
  };
  // Handed to the log, under the log's own ticket.
  struct Appended {
    Ticket in_log = 0;
    std::size_t encoded_bytes = 0;
    Submitted submitted;
  };
  struct LogEntry {
    Index index = 0;
    std::size_t bytes = 0;
    std::vector<std::pair<JobId, Sequence>> last;  // of its records
    std::size_t count = 1;                         // so many entries, of which `index` is the last
  };
  struct RemovedJobs {
    std::vector<JobId> jobs;
    Epoch epoch = 0;
  };

  void run() noexcept;
  void append_all();
  bool wait_for_work();
  void take_submitted();
  void add(Submitted&& submitted);
  void add_snapshot(const JobSnapshot& snapshot);
  void add_removed(const RemovedJobs& removed);
  void note_unread(const store::RecoveredJob& job);
  void settle(std::int64_t took_us);
  void tell_of_room();
  std::string room_problem() const;
  void pass_on(store::CommitReport&& report);
  void hand_to_copy();
  void remove_covered();
  bool is_covered(const LogEntry& entry) const;
  bool exceeds(const LogSize& size, std::size_t eighths) const;
  std::vector<JobId> wanted_snapshots(bool of_all = false);
  void tell(const std::string& problem);
  void end(const std::string& reason, bool is_unfit);
  void on_copied(const store::CommitReport& report);

  const Options options_;
  Etcd& etcd_;
  const Epoch removed_epoch_;
  store::CommitCallback callback_;

  // Of the appending thread.
  Nonce nonces_;
  ShardLog log_;
  store::RecordEncoder encoder_;
  std::deque<Appended> appended_;
  std::deque<std::pair<Index, store::Batch>> to_copy_;  // one for each entry
  // There are entries that the copy had, and that were not read again. They are entries_.front().
  const bool has_unread_;
  Index settled_ = 0;
  std::deque<LogEntry> entries_;  // up to settled_; those that are to be removed are not here
  std::size_t entries_bytes_ = 0;
  std::size_t entries_count_ = 0;
  Index look_for_wanted_at_ = 0;
  std::map<JobId, Sequence> snapshots_;  // the latest that the log was given
  std::map<JobId, Sequence> pointers_;   // the latest that can be read from etcd
  std::map<JobId, Sequence> asked_;      // for one that covers this sequence
  std::string problem_;
  Ticket committed_ = 0;
  std::string room_told_;
  std::int64_t ask_again_at_ns_ = 0;  // for snapshots, while etcd fills

  std::mutex reports_;  // held while one is made and passed on
  std::mutex mutex_;    // guards what follows
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Submitted> queue_;
  std::size_t pending_bytes_ = 0;  // of all that is not committed
  std::size_t pending_batches_ = 0;
  RemovedJobs removed_;
  Index copied_ = 0;
  std::string copy_problem_;
  bool copy_moved_ = false;  // since the thread looked
  bool closing_ = false;
  bool give_up_ = false;
  bool ended_ = false;

  std::thread thread_;
  std::unique_ptr<Store> copy_;  // last: its writer ends first
};

}  // namespace syncd::cluster
