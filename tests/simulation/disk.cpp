// See disk.h.
#include "disk.h"

#include <algorithm>
#include <optional>

#include "violation.h"

namespace syncd::simulation {
namespace {

Bytes copy(std::span<const std::uint8_t> bytes) {
  return {bytes.begin(), bytes.end()};
}

Record decode(const Bytes& bytes) {
  Record record;
  std::string error;
  require(store::decode_record(bytes, record, error), "a stored record is damaged: " + error);
  return record;
}

constexpr Micros kCommitRetryUs = 100'000;  // of a commit that failed

}  // namespace

// ---- Disk

void Disk::put(std::map<JobId, Job>& jobs, Write write) {
  for (auto& [key, bytes] : write.records) {
    const bool is_new = jobs[key.first].records.emplace(key.second, std::move(bytes)).second;
    require(is_new, "record " + std::to_string(key.second) + " of job " +
                        std::to_string(key.first) + " was written twice");
  }
  for (auto& [job, bytes] : write.snapshots) jobs[job].snapshot = std::move(bytes);
}

void Disk::write(Write write, bool sync) {
  unsynced_.push_back(write);
  put(visible_, std::move(write));
  if (!sync) return;
  for (Write& earlier : unsynced_) put(synced_, std::move(earlier));
  unsynced_.clear();
}

void Disk::cut_power(test::Random& random) {
  const std::size_t kept = random.below(unsynced_.size() + 1);
  for (std::size_t i = 0; i < kept; ++i) put(synced_, std::move(unsynced_[i]));
  unsynced_.clear();
  visible_ = synced_;
}

std::vector<JobId> Disk::jobs() const {
  std::vector<JobId> ids;
  for (const auto& [id, job] : visible_) ids.push_back(id);
  return ids;
}

std::vector<Record> Disk::history(JobId job) const {
  std::vector<Record> records;
  const auto found = visible_.find(job);
  if (found == visible_.end()) return records;
  for (const auto& [sequence, bytes] : found->second.records) {
    require(sequence == records.size() + 1, "job " + std::to_string(job) + " has no record " +
                                                std::to_string(records.size() + 1) + " but has " +
                                                std::to_string(sequence));
    records.push_back(decode(bytes));
    require(records.back().sequence == sequence && records.back().job == job,
            "a record lies under another's key");
  }
  return records;
}

bool Disk::snapshot(JobId job, JobSnapshot& snapshot) const {
  const auto found = visible_.find(job);
  if (found == visible_.end() || found->second.snapshot.empty()) return false;
  std::string error;
  require(store::decode_snapshot(found->second.snapshot, snapshot, error),
          "a stored snapshot is damaged: " + error);
  return true;
}

// ---- SimStore

SimStore::SimStore(Agenda& agenda, Disk& disk, test::Random& random, store::Mode mode,
                   std::function<void()> awake)
    : agenda_(agenda),
      disk_(disk),
      random_(random),
      mode_(mode),
      awake_(std::move(awake)),
      queue_max_(random.one_in(4) ? 4 : 1000) {}

// A commit that was under way has reached the disk, or has not.
SimStore::~SimStore() {
  *alive_ = false;
  if (committing_ > 0 && random_.one_in(2)) write_queued(committing_);
}

bool SimStore::load_each(const TakeJob& take, std::string& error) {
  for (const JobId id : disk_.jobs()) {
    store::RecoveredJob job;
    job.records = disk_.history(id);
    JobSnapshot snapshot;
    if (disk_.snapshot(id, snapshot)) {
      require(snapshot.sequence <= job.records.size(), "a snapshot is ahead of its job's records");
      job.records.erase(job.records.begin(),
                        job.records.begin() + static_cast<std::ptrdiff_t>(snapshot.sequence));
      job.snapshot = std::move(snapshot);
    }
    if (!take(std::move(job), error)) return false;
  }
  return true;
}

bool SimStore::submit(Ticket ticket, store::Batch&& batch) {
  if (queue_.size() >= queue_max_) return false;
  require(queue_.empty() || ticket > queue_.back().ticket, "tickets do not rise");
  Queued queued;
  queued.ticket = ticket;
  queued.records = batch.records.size();
  for (const Record& record : batch.records) {
    queued.write.records.push_back({{record.job, record.sequence}, copy(encoder_.encode(record))});
    queued.sync = queued.sync || is_synced_always(record.kind);
  }
  for (const JobSnapshot& snapshot : batch.snapshots) {
    queued.write.snapshots.push_back({snapshot.created.job, copy(encoder_.encode(snapshot))});
  }
  queue_.push_back(std::move(queued));
  if (committing_ == 0) start_commit();
  return true;
}

// Takes all that is there: what comes meanwhile waits for the next one.
void SimStore::start_commit() {
  committing_ = queue_.size();
  const Micros span =
      1 + static_cast<Micros>(random_.below(static_cast<std::uint64_t>(2 * disk_.latency_us)));
  agenda_.in(span, [this, alive = alive_] {
    if (*alive) end_commit();
  });
}

void SimStore::end_commit() {
  if (!disk_.error.empty()) {
    if (!failing_) {
      failing_ = true;
      callback_({0, disk_.error, 0, 0, 0});
      awake_();
    }
    agenda_.in(kCommitRetryUs, [this, alive = alive_] {
      if (*alive) end_commit();
    });
    return;
  }
  failing_ = false;
  const Ticket ticket = queue_[committing_ - 1].ticket;
  write_queued(committing_);
  committing_ = 0;
  callback_({ticket, {}, 1, 1, disk_.latency_us});
  awake_();
  if (!queue_.empty()) start_commit();
}

void SimStore::write_queued(std::size_t count) {
  Disk::Write all;
  bool sync = mode_ == store::Mode::kDurable;
  for (std::size_t i = 0; i < count; ++i) {
    Disk::Write& one = queue_.front().write;
    sync = sync || queue_.front().sync;
    std::move(one.records.begin(), one.records.end(), std::back_inserter(all.records));
    std::move(one.snapshots.begin(), one.snapshots.end(), std::back_inserter(all.snapshots));
    queue_.pop_front();
  }
  disk_.write(std::move(all), sync);
}

bool SimStore::close(std::int64_t, std::string& error) {
  if (disk_.error.empty()) {
    write_queued(queue_.size());
    committing_ = 0;
    return true;
  }
  error = disk_.error;
  return queue_.empty();
}

bool SimStore::read(JobId, Sequence, std::size_t, std::size_t, store::ReadResult&,
                    std::string& error) {
  error = "nobody reads histories here";
  return false;
}

bool SimStore::jobs(std::vector<Record>& created, std::string&) {
  for (const JobId id : disk_.jobs()) created.push_back(disk_.history(id).front());
  return true;
}

}  // namespace syncd::simulation
