// See shard_store.h.
#include "daemon/edge/cluster/shard_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <set>
#include <unordered_set>
#include <utility>

#include "daemon/edge/cluster/log_records.h"
#include "proto/base/clock.h"

namespace syncd::cluster {
namespace {

constexpr std::chrono::milliseconds kRetryAfter(50);
// Entries that the copy has yet to take.
constexpr std::size_t kToCopyMax = 64;
constexpr std::chrono::seconds kTellOfRoomEvery(1);
// While etcd fills, so many entries at most stay for a member that is there and behind.
constexpr Index kStayForPresent = 4'000;
// Jobs that are asked for a snapshot at one time.
constexpr std::size_t kWantedAtOnce = 64;

}  // namespace

LogLimits LogLimits::for_one_of(Shard shards, std::uint64_t etcd_quota_bytes) const {
  LogLimits each = *this;
  const std::size_t share =
      std::min<std::uint64_t>(4 * keep_for_copies.bytes, etcd_quota_bytes / 4) / shards;
  each.keep_for_copies.bytes = std::min(keep_for_copies.bytes, share);
  each.keep.bytes = std::min(keep.bytes, share / 2);
  each.want_snapshots.bytes = std::min(want_snapshots.bytes, share / 8);
  return each;
}

ShardStore::ShardStore(Options options, const TakeOver& read, Etcd& etcd,
                       std::unique_ptr<Store> copy)
    : options_(std::move(options)),
      etcd_(etcd),
      removed_epoch_(read.meta.removed_epoch),
      nonces_(options_.nonces),
      log_(options_.keys, options_.term, nonces_, read.tail, read.there),
      has_unread_(read.there.index < read.first.index),
      settled_(read.tail.index),
      copied_(read.tail.index),
      copy_(std::move(copy)) {
  options_.figures->first = log_.first();
  options_.figures->last = options_.figures->copied = settled_;
  std::set<JobId> jobs;
  std::vector<Record> created;
  std::string ignored;  // load_each() reports the same error
  const bool is_known = copy_->jobs(created, ignored);
  for (const Record& record : created) jobs.insert(record.job);
  for (const auto& [job, pointer] : read.pointers) {
    snapshots_[job] = pointers_[job] = pointer.sequence;
    // Retention removed it from this copy while another member led.
    if (is_known && !jobs.contains(job)) removed_.jobs.push_back(job);
  }
  if (has_unread_) {
    // load_each() says what is in them.
    const std::size_t count = read.first.index - read.there.index;
    entries_.push_back({read.first.index - 1, options_.unread_bytes, {}, count});
    entries_bytes_ += options_.unread_bytes;
    entries_count_ += count;
  }
  for (const Entry& entry : read.log) {
    std::vector<Record> records;
    decode_records(entry.records, records, ignored);  // which the copy has done, too
    std::map<JobId, Sequence> last;
    for (const Record& record : records) {
      if (jobs.contains(record.job)) last[record.job] = record.sequence;  // else it was removed
    }
    const Index index = read.first.index + static_cast<Index>(&entry - read.log.data());
    entries_.push_back({index, entry.records.size(), {last.begin(), last.end()}});
    entries_bytes_ += entry.records.size();
    ++entries_count_;
  }
}

ShardStore::~ShardStore() {
  std::string ignored;
  close(0, ignored);
}

// A leader may have ended after its copy had a snapshot and before etcd had. It is put now: an idle
// job makes no other one, and its log entries would stay for ever.
bool ShardStore::load_each(const TakeJob& take, std::string& error) {
  const auto pass_on = [&](store::RecoveredJob&& job, std::string& why) {
    if (job.snapshot) add_snapshot(*job.snapshot);
    if (has_unread_) note_unread(job);
    return take(std::move(job), why);
  };
  if (!copy_->load_each(pass_on, error)) return false;
  removed_.epoch = copy_->removed_epoch();
  return true;
}

// The entries that were not read have of a job what the copy has, or less.
void ShardStore::note_unread(const store::RecoveredJob& job) {
  const JobId id = job.snapshot ? job.snapshot->created.job : job.records.front().job;
  const Sequence last = job.records.empty() ? job.snapshot->sequence : job.records.back().sequence;
  entries_.front().last.emplace_back(id, last);
}

void ShardStore::start(store::CommitCallback callback) {
  callback_ = std::move(callback);
  copy_->start([this](const store::CommitReport& report) { on_copied(report); });
  thread_ = std::thread([this] { run(); });
}

bool ShardStore::submit(Ticket ticket, store::Batch&& batch) {
  const std::size_t bytes = store::weight(batch);
  const std::lock_guard lock(mutex_);
  if (closing_) return false;
  const bool fits = pending_bytes_ + bytes <= limits::kStoreQueueBytesMax;
  if (!fits && pending_batches_ > 0) return false;
  ++pending_batches_;
  pending_bytes_ += bytes;
  queue_.push_back({ticket, bytes, std::move(batch)});
  wake_.notify_one();
  return true;
}

bool ShardStore::close(std::int64_t timeout_us, std::string& error) {
  if (!thread_.joinable()) return true;
  const std::int64_t until_us = clock_ns(CLOCK_MONOTONIC) / 1000 + std::max<Micros>(timeout_us, 0);
  const auto left = [until_us] {
    return std::max<Micros>(until_us - clock_ns(CLOCK_MONOTONIC) / 1000, 0);
  };
  {
    std::unique_lock lock(mutex_);
    closing_ = true;
    idle_.wait_for(lock, std::chrono::microseconds(left()),
                   [this] { return pending_batches_ == 0 || ended_; });
    give_up_ = true;
    wake_.notify_one();
  }
  thread_.join();
  std::string ignored;  // the log has what the copy lacks
  copy_->close(left(), ignored);
  if (pending_batches_ == 0) return true;
  error = fmt::format("{}: {} batches could not be appended before the end{}", describe(),
                      pending_batches_, problem_.empty() ? "" : ": " + problem_);
  return false;
}

// ---- the appending thread

void ShardStore::run() noexcept {
  try {
    append_all();
  } catch (...) {
    store::CommitReport report;
    report.failure = std::current_exception();
    callback_(report);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  idle_.notify_all();
}

void ShardStore::append_all() {
  while (true) {
    tell_of_room();
    take_submitted();
    hand_to_copy();
    remove_covered();
    std::optional<Attempt> attempt;
    if (to_copy_.size() < kToCopyMax) attempt = log_.next();
    if (!attempt) {
      if (!wait_for_work()) return;
      continue;
    }
    const std::int64_t begun_ns = clock_ns(CLOCK_MONOTONIC);
    const Answer answer = etcd_.transact(attempt->transaction, 0, options_.timeout);
    log_.on_answer(attempt->number, answer);
    settle((clock_ns(CLOCK_MONOTONIC) - begun_ns) / 1000);
    if (log_.deposed()) return end("another member leads", false);
    if (log_.unfit()) return end("etcd refuses an entry for good: " + answer.error, true);
    tell(answer.error);
    std::unique_lock lock(mutex_);
    if (give_up_) return;
    if (answer.kind == Answer::Kind::kUnknown) wake_.wait_for(lock, kRetryAfter);
  }
}

// False: the thread is to end.
bool ShardStore::wait_for_work() {
  std::unique_lock lock(mutex_);
  const std::string problem = to_copy_.size() < kToCopyMax ? "" : copy_problem_;
  lock.unlock();
  tell(problem);
  lock.lock();
  wake_.wait_for(lock, kTellOfRoomEvery, [this] {
    return !queue_.empty() || !removed_.jobs.empty() || copy_moved_ || give_up_;
  });
  copy_moved_ = false;
  return !give_up_;
}

// Gives the log all that has come.
void ShardStore::take_submitted() {
  std::deque<Submitted> taken;
  RemovedJobs removed;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(queue_);
    std::swap(removed, removed_);
  }
  for (Submitted& one : taken) add(std::move(one));
  add_removed(removed);
}

void ShardStore::add(Submitted&& submitted) {
  ShardLog::Change change{encode_records(submitted.batch.records, encoder_)};
  const std::size_t encoded_bytes = change.records.size();
  const Ticket in_log = log_.add(std::move(change));
  for (const JobSnapshot& snapshot : submitted.batch.snapshots) add_snapshot(snapshot);
  appended_.push_back({in_log, encoded_bytes, std::move(submitted)});
}

void ShardStore::add_snapshot(const JobSnapshot& snapshot) {
  Sequence& latest = snapshots_[snapshot.created.job];
  if (snapshot.sequence <= latest) return;
  latest = snapshot.sequence;
  log_.add_snapshot(snapshot.created.job, latest, encode_snapshot(snapshot, encoder_));
}

// Jobs that retention has removed from the copy go from etcd, too.
void ShardStore::add_removed(const RemovedJobs& removed) {
  for (std::size_t i = 0; i < removed.jobs.size(); i += kRemovedMax) {
    const auto begin = removed.jobs.begin() + static_cast<std::ptrdiff_t>(i);
    const auto count = std::min(kRemovedMax, removed.jobs.size() - i);
    ShardLog::Change change;
    change.removed.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    change.meta = Meta{1, std::max(removed_epoch_, removed.epoch)};
    log_.add(std::move(change));
  }
  const std::unordered_set<JobId> gone(removed.jobs.begin(), removed.jobs.end());
  for (const JobId job : gone) {
    snapshots_.erase(job);
    pointers_.erase(job);
    asked_.erase(job);
  }
  if (gone.empty()) return;
  for (LogEntry& entry : entries_) {
    std::erase_if(entry.last, [&gone](const auto& item) { return gone.contains(item.first); });
  }
}

// Tells of what is committed since the last time, and makes an entry's batch for the copy of it.
void ShardStore::settle(std::int64_t took_us) {
  for (const auto& [job, sequence] : log_.take_pointers()) pointers_[job] = sequence;
  options_.figures->first = log_.first();
  const Index index = log_.tail().index;
  if (index == settled_) return;
  options_.figures->last = settled_ = index;
  LogEntry entry{index, 0, {}};
  store::Batch batch;
  store::CommitReport report;
  std::size_t bytes = 0;
  std::map<JobId, Sequence> last;
  while (!appended_.empty() && appended_.front().in_log <= log_.committed()) {
    Submitted& submitted = appended_.front().submitted;
    report.committed = committed_ = submitted.ticket;
    report.records += submitted.batch.records.size();
    ++report.batches;
    bytes += submitted.bytes;
    entry.bytes += appended_.front().encoded_bytes;
    for (Record& record : submitted.batch.records) {
      last[record.job] = record.sequence;
      batch.records.push_back(std::move(record));
    }
    std::ranges::move(submitted.batch.snapshots, std::back_inserter(batch.snapshots));
    appended_.pop_front();
  }
  batch.stamp = to_text(
      {options_.config.cluster, options_.config.generation, log_.tail(), options_.config.shards});
  entry.last.assign(last.begin(), last.end());
  entries_bytes_ += entry.bytes;
  ++entries_count_;
  entries_.push_back(std::move(entry));
  to_copy_.emplace_back(index, std::move(batch));
  if (report.batches == 0) return;
  {
    const std::lock_guard lock(mutex_);
    pending_bytes_ -= bytes;
    pending_batches_ -= report.batches;
    if (pending_batches_ == 0) idle_.notify_all();
  }
  report.commit_us = took_us;
  report.wants_snapshot = wanted_snapshots();
  pass_on(std::move(report));
}

// What is not refused is still appended, jobs make snapshots, and what these cover is removed, also
// what the copy of a member that is away lacks.
std::string ShardStore::room_problem() const {
  if (!fills(options_.figures->etcd_bytes, options_.etcd_quota_bytes)) return {};
  return fmt::format(
      "etcd has come to 60 % of its quota of {} MiB (cluster.etcd_quota_bytes): what must be "
      "stored is refused until its compaction has made room. If that does not help, etcd is full "
      "of the states of jobs that have ended, which a shorter store.retention removes, or of what "
      "is not syncd's",
      options_.etcd_quota_bytes >> 20);
}

void ShardStore::tell_of_room() {
  std::string problem = room_problem();
  if (problem == room_told_) {
    const std::int64_t now_ns = clock_ns(CLOCK_MONOTONIC);
    if (problem.empty() || now_ns < ask_again_at_ns_) return;
    ask_again_at_ns_ = now_ns + std::chrono::nanoseconds(kTellOfRoomEvery).count();
    store::CommitReport wants;
    wants.committed = committed_;
    wants.wants_snapshot = wanted_snapshots(true);
    if (!wants.wants_snapshot.empty()) pass_on(std::move(wants));
    return;
  }
  if (problem.empty()) {
    options_.log({LogLevel::kInfo, "etcd_has_room", {{"log", describe()}}});
  } else {
    options_.log({LogLevel::kWarn, "etcd_fills", {{"log", describe()}, {"reason", problem}}});
  }
  room_told_ = std::move(problem);
  store::CommitReport changed;
  changed.committed = committed_;
  pass_on(std::move(changed));
}

void ShardStore::pass_on(store::CommitReport&& report) {
  const std::lock_guard lock(reports_);
  report.error = room_problem();
  callback_(report);
}

void ShardStore::hand_to_copy() {
  while (!to_copy_.empty() &&
         copy_->submit(to_copy_.front().first, std::move(to_copy_.front().second))) {
    to_copy_.pop_front();
  }
}

bool ShardStore::exceeds(const LogSize& size, std::size_t eighths) const {
  return entries_bytes_ > size.bytes * eighths / 8 || entries_count_ > size.entries * eighths / 8;
}

// Removes entries that snapshots cover, and that the copies have on their disks. A member that was
// away, or is slow, finds the log's entries until they come to too much.
void ShardStore::remove_covered() {
  const bool fills = !room_told_.empty();
  const bool is_full = fills || exceeds(options_.limits.keep_for_copies, 8);
  const LogSize keep = fills     ? LogSize{}
                       : is_full ? options_.limits.keep_for_copies
                                 : options_.limits.keep;
  if (!exceeds(keep, 8)) return;
  const Index recent = settled_ - std::min(settled_, kStayForPresent);
  const Index others_have = fills     ? std::max(options_.figures->present_have.load(), recent)
                            : is_full ? UINT64_MAX
                                      : options_.figures->others_have.load();
  Index copied = 0;
  {
    const std::lock_guard lock(mutex_);
    copied = copied_;
  }
  // An eighth at a time: a removal is a transaction of its own.
  Index last = 0;
  while (!entries_.empty()) {
    const LogEntry& entry = entries_.front();
    const bool is_copied = entry.index <= std::min(copied, others_have);
    if (!exceeds(keep, 7) || !is_copied || !is_covered(entry)) break;
    last = entry.index;
    entries_bytes_ -= entry.bytes;
    entries_count_ -= entry.count;
    entries_.pop_front();
  }
  if (last != 0) log_.remove_before(last + 1);
}

bool ShardStore::is_covered(const LogEntry& entry) const {
  return std::ranges::all_of(entry.last, [this](const auto& item) {
    const auto pointer = pointers_.find(item.first);
    return pointer != pointers_.end() && pointer->second >= item.second;
  });
}

// Jobs that keep the log's oldest entries there, if it is long; some at a time. To look for them
// takes long: once all are asked, it is done again when the log has grown by a sixteenth.
std::vector<JobId> ShardStore::wanted_snapshots(bool of_all) {
  std::vector<JobId> wanted;
  const bool is_long =
      exceeds(options_.limits.want_snapshots, 8) && settled_ >= look_for_wanted_at_;
  if (!of_all && !is_long) return wanted;
  const std::size_t half = of_all ? entries_.size() : entries_.size() / 2;
  for (std::size_t i = 0; i < half && wanted.size() < kWantedAtOnce; ++i) {
    for (const auto& [job, sequence] : entries_[i].last) {
      if (pointers_[job] >= sequence || asked_[job] >= sequence) continue;
      asked_[job] = std::max(snapshots_[job], sequence);
      wanted.push_back(job);
      if (wanted.size() == kWantedAtOnce) break;
    }
  }
  const bool is_all = wanted.size() < kWantedAtOnce;
  look_for_wanted_at_ = settled_ + (is_all ? entries_.size() / 16 : kWantedAtOnce);
  return wanted;
}

void ShardStore::tell(const std::string& problem) {
  if (problem == problem_) return;
  if (!problem.empty()) {
    options_.log({LogLevel::kWarn, "append_failed", {{"log", describe()}, {"reason", problem}}});
  } else {
    options_.log({LogLevel::kInfo, "append_resumed", {{"log", describe()}}});
  }
  problem_ = problem;
}

void ShardStore::end(const std::string& reason, bool is_unfit) {
  problem_ = reason;
  options_.on_deposed(reason, is_unfit);
}

// On the copy's writer thread.
void ShardStore::on_copied(const store::CommitReport& report) {
  store::CommitReport passed_on;
  {
    const std::lock_guard lock(mutex_);
    copied_ = std::max<Index>(copied_, report.committed);
    options_.figures->copied = copied_;
    copy_problem_ = report.error;
    options_.figures->copy_fails = !report.error.empty();
    copy_moved_ = true;
    for (const store::Removed& removed : report.removed) {
      if (removed.first != 0) continue;
      removed_.jobs.push_back(removed.job);
      removed_.epoch = copy_->removed_epoch();
    }
    wake_.notify_one();
  }
  if (report.removed.empty() && report.failure == nullptr) return;
  passed_on.removed = report.removed;
  passed_on.failure = report.failure;
  pass_on(std::move(passed_on));
}

}  // namespace syncd::cluster
