// A simulated disk and the store that writes to it: encoded records, group commit by a writer that
// takes its time, a power cut that loses what was not synced, a disk that is full, slow, or down
// for a while. The bytes are those of the daemon's own codec. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agenda.h"
#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"
#include "tests/support/random.h"

namespace syncd::simulation {

using Bytes = std::vector<std::uint8_t>;

// What survives the daemon: what it has written, or a cluster's member its copy of the log.
class Disk {
 public:
  struct Job {
    std::map<Sequence, Bytes> records;
    Bytes snapshot;  // empty: none
  };
  // What one commit writes: everything or nothing of it is there after a crash.
  struct Write {
    std::string stamp = {};  // of a copy, how far it has come; empty: as before
    std::vector<std::pair<std::pair<JobId, Sequence>, Bytes>> records;
    std::vector<std::pair<JobId, Bytes>> snapshots;
  };

  // Reaches the operating system; `sync` makes it last, and all before it.
  void write(Write write, bool sync);
  // What was not synced is lost from some write on.
  void cut_power(test::Random& random);

  // What was written after a sequence, decoded. Throws Violation if something is damaged or a job's
  // sequence has a gap.
  std::vector<Record> history(JobId job, Sequence after = 0) const;
  std::vector<JobId> jobs() const;
  bool snapshot(JobId job, JobSnapshot& snapshot) const;
  // Of all jobs what a store hands over when it is opened.
  bool load_each(const store::Store::TakeJob& take, std::string& error) const;
  const Job& job(JobId id) const { return visible_.jobs.at(id); }
  Sequence last(JobId id) const;  // that it has, in a record or a snapshot
  const std::string& stamp() const { return visible_.stamp; }

  Micros latency_us = 500;  // of a commit, about
  std::string error;        // empty, or why nothing can be written now

 private:
  struct State {
    std::map<JobId, Job> jobs;
    std::string stamp;
  };
  static void put(State& state, Write write);

  State synced_;
  std::deque<Write> unsynced_;
  State visible_;  // synced_ with unsynced_ on top
};

Disk::Write to_write(const store::Batch& batch, store::RecordEncoder& encoder);

// One life's store on a disk. Dies with its daemon, in the middle of a commit too.
class SimStore final : public store::Store {
 public:
  // `awake` is called when the daemon's loop is to look at what was reported.
  SimStore(Agenda& agenda, Disk& disk, test::Random& random, store::Mode mode,
           std::function<void()> awake);
  ~SimStore() override;

  bool load_each(const TakeJob& take, std::string& error) override {
    return disk_.load_each(take, error);
  }
  void start(store::CommitCallback callback) override { callback_ = std::move(callback); }
  bool submit(Ticket ticket, store::Batch&& batch) override;
  bool close(std::int64_t timeout_us, std::string& error) override;
  bool read(JobId, Sequence, std::size_t, std::size_t, store::ReadResult&,
            std::string& error) override;
  bool jobs(std::vector<Record>& created, std::string& error) override;
  store::Mode mode() const override { return mode_; }
  std::string describe() const override { return "simulated"; }

 private:
  struct Queued {
    Ticket ticket = 0;
    Disk::Write write;
    std::uint64_t records = 0;
    bool sync = false;  // whatever the mode
  };
  void start_commit();
  void end_commit();
  void write_queued(std::size_t count);

  Agenda& agenda_;
  Disk& disk_;
  test::Random& random_;
  store::Mode mode_;
  std::function<void()> awake_;
  store::CommitCallback callback_;
  store::RecordEncoder encoder_;
  std::deque<Queued> queue_;
  std::size_t committing_ = 0;  // batches at the queue's head that are being written
  bool failing_ = false;
  std::size_t queue_max_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace syncd::simulation
