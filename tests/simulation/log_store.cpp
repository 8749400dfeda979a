// See log_store.h.
#include "log_store.h"

#include <iterator>
#include <utility>

#include "daemon/edge/cluster/log_records.h"
#include "violation.h"

namespace syncd::simulation {

LogStore::LogStore(Options options, Disk& copy, cluster::ShardLog& log,
                   const cluster::TakeOver& read)
    : options_(std::move(options)), copy_(copy), log_(log), settled_(read.tail.index) {
  for (const auto& [job, pointer] : read.pointers) snapshots_[job] = pointer.sequence;
}

bool LogStore::load_each(const TakeJob& take, std::string& error) {
  return copy_.load_each(
      [&](store::RecoveredJob&& job, std::string& why) {
        if (job.snapshot) add_snapshot(*job.snapshot);
        return take(std::move(job), why);
      },
      error);
}

void LogStore::add_snapshot(const JobSnapshot& snapshot) {
  Sequence& latest = snapshots_[snapshot.created.job];
  if (snapshot.sequence <= latest) return;
  latest = snapshot.sequence;
  log_.add_snapshot(snapshot.created.job, latest, cluster::encode_snapshot(snapshot, encoder_));
}

bool LogStore::submit(Ticket ticket, store::Batch&& batch) {
  if (is_closed_ || appended_.size() >= options_.queue_max) return false;
  Appended& one = appended_.emplace_back();
  one.ticket = ticket;
  one.write = to_write(batch, encoder_);
  one.in_log = log_.add({cluster::encode_records(batch.records, encoder_)});
  for (const JobSnapshot& snapshot : batch.snapshots) add_snapshot(snapshot);
  options_.to_append();
  return true;
}

void LogStore::settle() {
  const cluster::Tail& tail = log_.tail();
  if (tail.index == settled_) return;
  require(tail.index == settled_ + 1, "the leader's copy skips an entry");
  settled_ = tail.index;
  Disk::Write all;
  store::CommitReport report;
  while (!appended_.empty() && appended_.front().in_log <= log_.committed()) {
    Disk::Write& one = appended_.front().write;
    report.committed = appended_.front().ticket;
    ++report.batches;
    report.records += one.records.size();
    std::ranges::move(one.records, std::back_inserter(all.records));
    std::ranges::move(one.snapshots, std::back_inserter(all.snapshots));
    appended_.pop_front();
  }
  all.stamp = cluster::encode(tail);
  copy_.write(std::move(all), false);
  if (report.batches == 0) return;
  callback_(report);
  options_.awake();
}

}  // namespace syncd::simulation
