// The store of a simulated member that leads: over the real ShardLog it does what ShardStore
// (daemon/edge/cluster) does on a thread of its own, but to ask for snapshots. Whoever sends the
// log's transactions calls settle(). One thread.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "daemon/core/cluster/shard_log.h"
#include "daemon/core/cluster/take_over.h"
#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"
#include "disk.h"

namespace syncd::simulation {

class LogStore final : public store::Store {
 public:
  struct Options {
    std::size_t queue_max = 1'000;    // batches
    std::function<void()> to_append;  // the log was given something
    std::function<void()> awake;      // the daemon's loop is to look at what was reported
  };
  // `copy` has what `read` says.
  LogStore(Options options, Disk& copy, cluster::ShardLog& log, const cluster::TakeOver& read);

  // Tells of what is committed since the last time, and writes the copy.
  void settle();
  cluster::Index first() const { return log_.first(); }
  cluster::Index settled() const { return settled_; }
  // All that was submitted is committed.
  bool is_idle() const { return appended_.empty(); }

  bool load_each(const TakeJob& take, std::string& error) override;
  void start(store::CommitCallback callback) override { callback_ = std::move(callback); }
  bool submit(Ticket ticket, store::Batch&& batch) override;
  // Does not wait: see is_idle().
  bool close(std::int64_t, std::string&) override {
    is_closed_ = true;
    return is_idle();
  }
  bool read(JobId, Sequence, std::size_t, std::size_t, store::ReadResult&,
            std::string& error) override {
    error = "nobody reads histories here";
    return false;
  }
  bool jobs(std::vector<Record>&, std::string&) override { return true; }
  bool is_shared() const override { return true; }
  store::Mode mode() const override { return store::Mode::kDurable; }
  std::string describe() const override { return "simulated log"; }

 private:
  // What the log was given, under its own ticket.
  struct Appended {
    Ticket in_log = 0;
    Ticket ticket = 0;
    Disk::Write write;
  };
  void add_snapshot(const JobSnapshot& snapshot);

  const Options options_;
  Disk& copy_;
  cluster::ShardLog& log_;
  store::CommitCallback callback_;
  store::RecordEncoder encoder_;
  std::deque<Appended> appended_;
  cluster::Index settled_;
  std::map<JobId, Sequence> snapshots_;  // the latest that the log was given
  bool is_closed_ = false;
};

}  // namespace syncd::simulation
