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

void Disk::put(State& state, Write write) {
  for (auto& [key, bytes] : write.records) {
    const bool is_new = state.jobs[key.first].records.emplace(key.second, std::move(bytes)).second;
    require(is_new, "record " + std::to_string(key.second) + " of job " +
                        std::to_string(key.first) + " was written twice");
  }
  for (auto& [job, bytes] : write.snapshots) state.jobs[job].snapshot = std::move(bytes);
  if (!write.stamp.empty()) state.stamp = std::move(write.stamp);
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
  for (const auto& [id, job] : visible_.jobs) ids.push_back(id);
  return ids;
}

std::vector<Record> Disk::history(JobId job, Sequence after) const {
  std::vector<Record> records;
  const auto found = visible_.jobs.find(job);
  if (found == visible_.jobs.end()) return records;
  const std::map<Sequence, Bytes>& all = found->second.records;
  for (auto at = all.upper_bound(after); at != all.end(); ++at) {
    const auto& [sequence, bytes] = *at;
    const Sequence due = after + records.size() + 1;
    require(sequence == due, "job " + std::to_string(job) + " has no record " +
                                 std::to_string(due) + " but has " + std::to_string(sequence));
    records.push_back(decode(bytes));
    require(records.back().sequence == sequence && records.back().job == job,
            "a record lies under another's key");
  }
  return records;
}

bool Disk::snapshot(JobId job, JobSnapshot& snapshot) const {
  const auto found = visible_.jobs.find(job);
  if (found == visible_.jobs.end() || found->second.snapshot.empty()) return false;
  std::string error;
  require(store::decode_snapshot(found->second.snapshot, snapshot, error),
          "a stored snapshot is damaged: " + error);
  return true;
}

bool Disk::load_each(const store::Store::TakeJob& take, std::string& error) const {
  for (const JobId id : jobs()) {
    store::RecoveredJob job;
    JobSnapshot stored;
    if (snapshot(id, stored)) job.snapshot = std::move(stored);
    job.records = history(id, job.snapshot ? job.snapshot->sequence : 0);
    if (!take(std::move(job), error)) return false;
  }
  return true;
}

Sequence Disk::last(JobId id) const {
  JobSnapshot stored;
  const Sequence covered = snapshot(id, stored) ? stored.sequence : 0;
  const std::map<Sequence, Bytes>& records = job(id).records;
  return records.empty() ? covered : std::max(covered, records.rbegin()->first);
}

Disk::Write to_write(const store::Batch& batch, store::RecordEncoder& encoder) {
  Disk::Write write;
  write.stamp = batch.stamp;
  for (const Record& record : batch.records) {
    write.records.push_back({{record.job, record.sequence}, copy(encoder.encode(record))});
  }
  for (const JobSnapshot& snapshot : batch.snapshots) {
    write.snapshots.push_back({snapshot.created.job, copy(encoder.encode(snapshot))});
  }
  return write;
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

bool SimStore::submit(Ticket ticket, store::Batch&& batch) {
  if (queue_.size() >= queue_max_) return false;
  require(queue_.empty() || ticket > queue_.back().ticket, "tickets do not rise");
  Queued queued;
  queued.ticket = ticket;
  queued.records = batch.records.size();
  queued.write = to_write(batch, encoder_);
  queued.sync = std::ranges::any_of(
      batch.records, [](const Record& record) { return is_synced_always(record.kind); });
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
