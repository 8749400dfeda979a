// The store on RocksDB. submit() queues on the caller's thread; one writer thread of the store
// takes everything that is queued, writes it as one batch (with fsync in durable mode) and reports.
// What arrives meanwhile goes out in the next batch: the slower the disk, the larger the batches.
//
// The same thread removes history that is not to be kept (retention.h), after a commit or when it
// has nothing to write: one range of keys and, where whole files hold nothing else, these files.
//
// When a write fails, the writer keeps the batch and tries again until it succeeds, for which
// RocksDB is closed and opened again. Nothing is acknowledged meanwhile.
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/record_groups.h"
#include "daemon/edge/store/rocks_database.h"
#include "daemon/edge/store/store.h"
#include "proto/base/clock.h"

namespace syncd::store {
namespace {

// One commit writes at most so much, so that acknowledgements do not wait for a huge one.
// Of a batch that the submitting thread writes itself: larger ones are the writer's, beside whom
// the loop goes on.
constexpr std::size_t kAtOnceRecordsMax = 8;
// After a write that took longer than this, so many batches are the writer's, too.
constexpr std::int64_t kSlowWriteUs = 5'000;
constexpr Ticket kBatchesAfterSlowWrite = 10'000;
constexpr std::size_t kCommitBytesMax = 8 * 1024 * 1024;
// About what a push takes in a batch.
constexpr std::size_t kPushBytes = 256;
// close() needs no longer timeout, and a larger one would overflow a point in time.
constexpr std::int64_t kCloseTimeoutMaxUs = std::int64_t{365} * 24 * 3600 * 1'000'000;

// Ages are looked at ten times in the time that history is kept, but at least and at most so often.
constexpr Micros kAgesEveryMin = 100'000;
constexpr Micros kAgesEveryMax = 60'000'000;
// So many jobs are cut between two commits, each with a write of its own.
constexpr std::size_t kCutsAtOnce = 4;

rocksdb::Slice slice(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class RocksStore final : public Store {
 public:
  RocksStore(Options options, std::unique_ptr<Database> database, std::string stamp)
      : options_(std::move(options)),
        called_("store " + options_.path),
        cut_tail_(database->cut_tail),
        stamp_(std::move(stamp)),
        database_(std::move(database)) {}

  ~RocksStore() override {
    std::string ignored;
    close(0, ignored);
    if (in_order_ && database_) close_in_order(std::move(database_), options_);
  }

  bool load_each(const TakeJob& take, std::string& error) override {
    const std::shared_lock lock(database_mutex_);
    std::vector<Record> created;
    if (!read_created(created, error) || !check_owners(created, error)) return false;
    if (!read_extents(*database_, options_.path, extents_, error) ||
        !read_removed_epoch(*database_, options_.path, removed_epoch_, error) ||
        !load_kept(error)) {
      return false;
    }
    for (const Record& creation : created) {
      RecoveredJob job;
      if (!load_job(creation, job, error)) return false;
      extend(creation.job, job);
      if (!take(std::move(job), error)) return false;
    }
    return true;
  }

  Epoch removed_epoch() const override { return removed_epoch_; }

  std::vector<KeptCheckpoint> take_kept_checkpoints() override {
    return std::exchange(loaded_kept_, {});
  }

  void start(CommitCallback callback) override {
    callback_ = std::move(callback);
    if (!options_.read_only) writer_ = std::thread([this] { run_writer(); });
  }

  bool submit(Ticket ticket, Batch&& batch) override {
    const std::size_t records = batch.records.size();
    const std::size_t bytes = weight(batch);
    const std::lock_guard lock(mutex_);
    if (options_.read_only || closing_) return false;
    const bool fits = queued_records_ + records <= options_.queue_records_max &&
                      queued_bytes_ + bytes <= options_.queue_bytes_max;
    if (!fits && queued_batches_ > 0) return false;  // one batch always fits an empty queue
    const bool is_synced = has_synced(batch);
    Queued queued{ticket, records, bytes, std::move(batch), {}, is_synced};
    if (may_write_at_once(queued) && write_at_once(queued)) return true;
    ++queued_batches_;
    queued_records_ += records;
    queued_bytes_ += bytes;
    queue_.push_back(std::move(queued));
    wake_.notify_one();
    return true;
  }

  bool close(std::int64_t timeout_us, std::string& error) override {
    if (!writer_.joinable()) return true;
    std::unique_lock lock(mutex_);
    closing_ = true;
    wake_.notify_one();
    const auto timeout = std::clamp<std::int64_t>(timeout_us, 0, kCloseTimeoutMaxUs);
    idle_.wait_for(lock, std::chrono::microseconds(timeout), [this] { return finished_; });
    give_up_ = true;
    wake_.notify_one();
    lock.unlock();
    writer_.join();
    if (queued_batches_ == 0) {
      in_order_ = !write_failed_;
      return true;
    }
    error = called_ + ": " + std::to_string(queued_records_) +
            " records could not be written before the end" +
            (last_error_.empty() ? ", for which there was too little time" : ": " + last_error_);
    return false;
  }

  bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
            ReadResult& result, std::string& error) override {
    result = {};
    const std::shared_lock lock(database_mutex_);
    if (!usable(error)) return false;
    if (!read_first(*database_, job, result.first_sequence, error)) {
      error = called_ + ": " + error;
      return false;
    }
    RecordIterator it(*database_, job);
    std::size_t bytes = 0;
    // What retention has removed may be there yet, before what it has left.
    for (it.seek(job, std::max(from, result.first_sequence)); it.valid(); it.next()) {
      const auto record = it.bytes();
      const bool full = result.records.size() >= records_max || bytes + record.size() > bytes_max;
      if (full && !result.records.empty()) {
        result.next_sequence = it.sequence();
        break;
      }
      bytes += record.size();
      result.records.push_back({it.sequence(), {record.begin(), record.end()}});
    }
    if (it.status().ok()) {
      std::string creation;
      if (result.records.empty() &&
          database_->db->Get({}, database_->families[kJobs], job_key(job), &creation)
              .IsNotFound()) {
        result.first_sequence = 0;
      }
      return true;
    }
    error = called_ + ": the records of job #" + std::to_string(job) +
            " cannot be read: " + cause(it.status());
    return false;
  }

  bool jobs(std::vector<Record>& created, std::string& error) override {
    const std::shared_lock lock(database_mutex_);
    return read_created(created, error);
  }

  bool checkpoint(const std::string& to, std::string& error) override {
    const std::shared_lock lock(database_mutex_);
    return usable(error) && store::checkpoint(*database_, options_.path, to, error);
  }

  std::optional<CutTail> cut_tail() const override { return cut_tail_; }
  std::string stamp() const override { return stamp_; }

  Mode mode() const override { return options_.mode; }
  std::string describe() const override { return options_.path; }

 private:
  struct Queued {
    Ticket ticket = 0;
    std::size_t records = 0;
    std::size_t bytes = 0;
    Batch batch;
    // What it becomes in the database, if it was tried to write it at once.
    std::optional<rocksdb::WriteBatch> encoded;
    bool is_synced = false;  // in fast mode too
  };
  bool has_synced(const Batch& batch) const {
    return options_.mode == Mode::kFast &&
           std::ranges::any_of(batch.records, is_synced_always, &Record::kind);
  }

  // ---- the short way: in fast mode a small batch is in the system's cache after one write(),
  // which takes less than waking the writer and being woken by it. With mutex_ held.

  bool may_write_at_once(const Queued& queued) const {
    return options_.mode == Mode::kFast && !queued.is_synced &&
           queued.records <= kAtOnceRecordsMax && queued.batch.snapshots.empty() &&
           !writer_works_ && queued_batches_ == 0 && database_ != nullptr && !write_failed_ &&
           callback_ != nullptr && queued.ticket > slow_until_;
  }

  // False: it would have to wait, or failed; the writer tries again, and tells why.
  bool write_at_once(Queued& queued) {
    queued.encoded.emplace();
    GroupWriter groups(*database_, *queued.encoded);
    encode(queued.batch, groups, *queued.encoded);
    groups.finish();
    rocksdb::WriteOptions options;
    options.no_slowdown = true;
    const std::int64_t begun_ns = clock_ns(CLOCK_MONOTONIC);
    if (!database_->db->Write(options, &*queued.encoded).ok()) return false;
    CommitReport report;
    report.committed = committed_ = queued.ticket;
    report.records = queued.records;
    report.batches = 1;
    report.commit_us = (clock_ns(CLOCK_MONOTONIC) - begun_ns) / 1000;
    // A disk that is held up must not hold the loop up again and again.
    if (report.commit_us > kSlowWriteUs) slow_until_ = queued.ticket + kBatchesAfterSlowWrite;
    callback_(report);
    return true;
  }

  static std::string cause(const rocksdb::Status& status) {
    return status.ToString() + (status.IsCorruption() ? after_damage() : "");
  }

  // ---- reading, with database_mutex_ held
  // ---------------------------------------------------------

  bool usable(std::string& error) const {
    if (database_) return true;
    error = called_ + " was closed after a write error and cannot be opened yet: " + problem_;
    return false;
  }

  std::unique_ptr<rocksdb::Iterator> iterate(ColumnFamily family,
                                             const rocksdb::Slice* upper = nullptr) {
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = upper;
    return std::unique_ptr<rocksdb::Iterator>(
        database_->db->NewIterator(options, database_->families[family]));
  }

  bool read_created(std::vector<Record>& created, std::string& error) {
    created.clear();
    if (!usable(error)) return false;
    const auto it = iterate(kJobs);
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      const JobId job = job_of(it->key());
      Record record;
      if (!decode_creation(bytes_of(it->value()), job, record, error)) {
        error = called_ + ": job #" + std::to_string(job) + ", creation record: " + error +
                after_damage();
        return false;
      }
      created.push_back(std::move(record));
    }
    if (it->status().ok()) return true;
    error = called_ + ": its jobs cannot be read: " + cause(it->status());
    return false;
  }

  // Every record belongs to a job that is there. Looks at one record per job.
  bool check_owners(const std::vector<Record>& created, std::string& error) {
    auto owner = created.begin();
    const auto it = iterate(kRecords);
    it->SeekToFirst();
    while (it->Valid()) {
      const JobId job = job_of(it->key());
      while (owner != created.end() && owner->job < job) ++owner;
      if (owner == created.end() || owner->job != job) {
        error = called_ + ": there are records of job #" + std::to_string(job) +
                ", but the job's creation record is missing" + after_damage();
        return false;
      }
      it->Seek(records_end(job));
    }
    if (it->status().ok()) return true;
    error = called_ + ": its records cannot be read: " + cause(it->status());
    return false;
  }

  bool load_kept(std::string& error) {
    std::vector<std::string> ignored;
    std::string damage;
    const auto take = [&](KeptCheckpoint&& kept, const std::string& why) {
      if (!why.empty()) {
        damage = called_ + ": the checkpoint of removed job '" + kept.job + "': " + why;
        return;
      }
      kept_.add(kept.job, kept.checkpoint, ignored);
      loaded_kept_.push_back(std::move(kept));
    };
    if (!read_kept(*database_, options_.path, take, error)) return false;
    if (damage.empty()) return true;
    error = damage + after_damage();
    return false;
  }

  bool load_job(const Record& creation, RecoveredJob& out, std::string& error) {
    const std::string job =
        called_ + ": job '" + creation.name + "' (#" + std::to_string(creation.job) + ")";
    if (!load_snapshot(creation.job, job, out, error)) return false;
    Sequence next = out.snapshot ? out.snapshot->sequence + 1 : 1;
    loaded_bytes_ = 0;
    RecordIterator it(*database_, creation.job);
    for (it.seek(creation.job, next); it.valid(); it.next(), ++next) {
      const Sequence found = it.sequence();
      if (found != next) {
        error = job + ": record " + std::to_string(next) + " is missing (the next one is " +
                std::to_string(found) + ")" + after_damage();
        return false;
      }
      loaded_bytes_ += it.bytes().size();
      Record& record = out.records.emplace_back();
      if (!decode_record(it.bytes(), creation.job, found, record, error)) {
        error = job + ", record " + std::to_string(found) + ": " + error + after_damage();
        return false;
      }
    }
    if (!it.status().ok()) {
      error = job + ": its records cannot be read: " + cause(it.status());
      return false;
    }
    if (out.snapshot || !out.records.empty()) return true;
    error = job + ": record 1 is missing, as are all others" + after_damage();
    return false;
  }

  bool load_snapshot(JobId id, const std::string& job, RecoveredJob& out, std::string& error) {
    std::string value;
    const rocksdb::Status status =
        database_->db->Get({}, database_->families[kSnapshots], job_key(id), &value);
    if (status.IsNotFound()) return true;
    if (!status.ok()) {
      error = job + ": its snapshot cannot be read: " + cause(status);
      return false;
    }
    if (decode_snapshot(bytes_of(value), id, out.snapshot.emplace(), error)) return true;
    error = job + ", snapshot: " + error + after_damage();
    return false;
  }

  // What is known of a job's history once it is loaded.
  void extend(JobId id, const RecoveredJob& job) {
    Extent& extent = extents_[id];
    if (job.snapshot) {
      extent.stopped = job.snapshot->state == JobState::kStopped;
      extent.epoch = job.snapshot->epoch;
      extent.last_us = job.snapshot->time_us;
      if (extent.marks.empty()) {
        // Written before there were marks: about so large, as the files say.
        const std::string begin = record_key(id, 0);
        const std::string end = record_key(id, job.snapshot->sequence + 1);
        const rocksdb::Range range(begin, end);
        std::uint64_t bytes = 0;
        rocksdb::SizeApproximationOptions sizes;
        sizes.include_memtables = true;
        database_->db->GetApproximateSizes(sizes, database_->families[kRecords], &range, 1, &bytes)
            .PermitUncheckedError();
        extent.marks.push_back(
            {job.snapshot->sequence, job.snapshot->time_us, extent.removed_bytes + bytes});
      }
    }
    if (!extent.marks.empty()) extent.bytes = extent.marks.back().bytes;
    extent.bytes += loaded_bytes_;
    if (job.records.empty()) return;
    extent.last_us = job.records.back().time_us;
    for (const Record& record : job.records) extent.epoch = std::max(extent.epoch, record.epoch);
    extent.stopped |= job.records.back().kind == RecordKind::kJobStopped;
  }

  // ---- the writer thread ------------------------------------------------------------------------

  // What is wrong with this code, or with the machine's memory, is the loop's to end with.
  void run_writer() noexcept {
    try {
      write_loop();
    } catch (...) {
      CommitReport report;
      report.failure = std::current_exception();
      callback_(report);
    }
    const std::lock_guard lock(mutex_);
    finished_ = true;
    idle_.notify_all();
  }

  void write_loop() {
    std::deque<Queued> taken;
    std::unique_lock lock(mutex_);
    while (true) {
      writer_works_ = false;
      const bool has_work = wait_for_work(lock);
      writer_works_ = true;
      if (!has_work) {
        lock.unlock();
        remove_some();
        lock.lock();
        continue;
      }
      if (queue_.empty() || give_up_) break;
      take(taken);
      lock.unlock();
      const bool written = commit(taken);
      if (written) remove_some();
      lock.lock();
      if (!written) break;  // told to give up
      for (const Queued& queued : taken) {
        --queued_batches_;
        queued_records_ -= queued.records;
        queued_bytes_ -= queued.bytes;
      }
      taken.clear();
    }
  }

  // False: there is nothing to write, and the time has come to look at what is to be removed.
  bool wait_for_work(std::unique_lock<std::mutex>& lock) {
    const auto ready = [this] { return !queue_.empty() || closing_; };
    if (!rules_.any()) {
      wake_.wait(lock, ready);
      return true;
    }
    if (ready()) return true;
    if (!to_cut_.empty()) return false;
    return wake_.wait_for(lock, std::chrono::microseconds(ages_every_), ready);
  }

  // With mutex_ held: everything queued, up to one commit's size.
  void take(std::deque<Queued>& taken) {
    std::size_t bytes = 0;
    while (!queue_.empty() && (taken.empty() || bytes + queue_.front().bytes <= kCommitBytesMax)) {
      bytes += queue_.front().bytes;
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
      if (taken.back().encoded) break;  // goes alone, as it is
    }
  }

  // Writes until it succeeds. False: told to give up.
  bool commit(const std::deque<Queued>& taken) {
    CommitReport report;
    for (const Queued& queued : taken) report.records += queued.records;
    rocksdb::WriteBatch batch(report.records * kPushBytes);
    GroupWriter groups(*database_, batch);
    bool is_synced = false;
    for (const Queued& queued : taken) {
      is_synced |= queued.is_synced;
      if (queued.encoded) {
        batch = *queued.encoded;
      } else {
        encode(queued.batch, groups, batch);
      }
      report.committed = queued.ticket;
      ++report.batches;
    }
    groups.finish();
    std::chrono::microseconds wait(options_.retry_after_us);
    for (const std::chrono::microseconds most(options_.retry_after_max_us);;
         wait = std::min(2 * wait, most)) {
      const std::int64_t begun_ns = clock_ns(CLOCK_MONOTONIC);
      const bool written = write(batch, is_synced);
      report.commit_us = (clock_ns(CLOCK_MONOTONIC) - begun_ns) / 1000;
      if (written) {
        committed_ = report.committed;
        last_error_.clear();
        callback_(report);
        return true;
      }
      complain(report.commit_us);
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, wait, [this] { return give_up_; })) return false;
      lock.unlock();
      recover();
    }
  }

  // Writing the same batch again is harmless: keys and values are the same.
  // `always`: synced in fast mode too.
  bool write(rocksdb::WriteBatch& batch, bool always = false) {
    if (!database_) return false;
    rocksdb::WriteOptions options;
    options.sync = options_.mode == Mode::kDurable || always;
    const rocksdb::Status status = database_->db->Write(options, &batch);
    if (!status.ok()) problem_ = status.ToString();
    write_failed_ = !status.ok();
    return status.ok();
  }

  void complain(std::int64_t took_us) {
    last_error_ = problem_;
    CommitReport report;
    report.committed = committed_;
    report.commit_us = took_us;
    report.error = called_ + " cannot be written: " + problem_;
    callback_(report);
  }

  // After an I/O error the database is opened anew, once the directory takes files again, so that
  // history stays readable meanwhile. DB::Resume() is no way around that: as long as nothing was
  // written since the opening it goes on with the very log whose writing failed, which ends the
  // process where RocksDB was built with assertions, and never succeeds where it was not.
  void recover() {
    if (database_) {
      std::string why;
      if (!probe_directory(options_, why)) return;
    }
    const std::unique_lock lock(database_mutex_);
    database_.reset();
    database_ = open_database(options_, problem_);
  }

  void encode(const Batch& from, GroupWriter& groups, rocksdb::WriteBatch& to) {
    sizes_.clear();
    Extent* extent = nullptr;
    JobId extent_of = 0;
    for (const Record& record : from.records) {
      const auto value = encoder_.encode(record);
      groups.add(record.job, record.sequence, value);
      if (extent == nullptr || extent_of != record.job) {
        extent = &extents_[record.job];
        extent_of = record.job;
      }
      sizes_.push_back(value.size());
      extent->bytes += sizes_.back();
      extent->last_us = record.time_us;
      extent->epoch = std::max(extent->epoch, record.epoch);
      extent->stopped |= record.kind == RecordKind::kJobStopped;
      if (record.kind == RecordKind::kJobCreated) {
        to.Put(database_->families[kJobs], job_key(record.job), slice(value));
      }
    }
    if (!from.stamp.empty()) to.Put(database_->families[kMeta], kStampKey, from.stamp);
    for (const JobSnapshot& snapshot : from.snapshots) {
      const JobId job = snapshot.created.job;
      if (!extents_.contains(job)) bring_in(snapshot, to);
      to.Put(database_->families[kSnapshots], job_key(job), slice(encoder_.encode(snapshot)));
      // The history up to the snapshot: without what follows it in the same batch.
      Mark mark{snapshot.sequence, snapshot.time_us, extents_[job].bytes};
      for (std::size_t i = from.records.size(); i-- > 0;) {
        const Record& record = from.records[i];
        if (record.job == job && record.sequence > snapshot.sequence) mark.bytes -= sizes_[i];
      }
      to.Put(database_->families[kMeta], mark_key(job, mark.sequence), mark_value(mark));
      std::deque<Mark>& marks = extents_[job].marks;
      if (!marks.empty() && marks.back().sequence == mark.sequence) marks.pop_back();
      marks.push_back(mark);
      to_cut_.insert(job);
    }
  }

  // A job whose records up to the snapshot are elsewhere.
  void bring_in(const JobSnapshot& snapshot, rocksdb::WriteBatch& to) {
    const JobId job = snapshot.created.job;
    Extent& extent = extents_[job];
    extent.first = snapshot.sequence + 1;
    extent.last_us = snapshot.time_us;
    extent.epoch = snapshot.epoch;
    extent.stopped = snapshot.state == JobState::kStopped;
    to.Put(database_->families[kJobs], job_key(job), slice(encoder_.encode(snapshot.created)));
    to.Put(database_->families[kMeta], first_key(job), first_value(extent));
  }

  // ---- removing, on the writer thread -----------------------------------------------------------

  // Cuts a few of the jobs that may have too much; the next call goes on. Nothing is removed while
  // the store cannot be written: the next look comes soon enough.
  void remove_some() {
    if (!rules_.any() || !database_) {
      to_cut_.clear();
      return;
    }
    const Micros now = options_.now ? options_.now() : wall_clock_us();
    if (rules_.keep_us > 0 && (now >= next_ages_us_ || now < next_ages_us_ - ages_every_)) {
      next_ages_us_ = now + ages_every_;
      for (const auto& [job, extent] : extents_) to_cut_.insert(job);
    }
    CommitReport report;
    std::size_t cuts = 0;
    while (!to_cut_.empty() && cuts < kCutsAtOnce) {
      const JobId job = *to_cut_.begin();
      to_cut_.erase(to_cut_.begin());
      const auto it = extents_.find(job);
      if (it == extents_.end()) continue;
      // The latest job stays, so that its id is not given to another one after a restart.
      const bool whole = job != extents_.rbegin()->first && is_outdated(it->second, rules_, now);
      const Sequence first = first_to_keep(it->second, rules_, now);
      if (!whole && first == it->second.first) continue;
      ++cuts;
      Removed removed;
      if (whole ? remove_job(job, it->second, removed)
                : remove_before(first, job, it->second, removed)) {
        report.removed.push_back(std::move(removed));
        if (whole) extents_.erase(it);
      }
    }
    if (report.removed.empty()) return;
    report.committed = committed_;
    callback_(report);
  }

  bool remove_before(Sequence first, JobId job, Extent& extent, Removed& removed) {
    Extent after = extent;
    after.first = first;
    rocksdb::WriteBatch batch;
    while (!after.marks.empty() && after.marks.front().sequence < first) {
      after.removed_bytes = after.marks.front().bytes;
      // That of the latest snapshot stays, for what follows is counted from it.
      if (after.marks.size() == 1) break;
      batch.Delete(database_->families[kMeta], mark_key(job, after.marks.front().sequence));
      after.marks.pop_front();
    }
    batch.Put(database_->families[kMeta], first_key(job), first_value(after));
    const std::string begin = record_key(job, 0);
    const std::string end = record_key(job, first);
    if (!remove_range(batch, begin, end)) return false;
    removed = {job, first - extent.first, first, {}};
    extent = std::move(after);
    return true;
  }

  bool remove_job(JobId job, const Extent& extent, Removed& removed) {
    std::string value;
    Record creation;
    std::string ignored;
    removed = {job, 0, 0, {}};
    if (database_->db->Get({}, database_->families[kJobs], job_key(job), &value).ok() &&
        decode_record(bytes_of(value), creation, ignored)) {
      removed.name = creation.name;
    }
    rocksdb::WriteBatch batch;
    KeptIndex kept = kept_;
    if (!keep_checkpoint(job, removed, kept, batch)) return false;
    const std::string begin = record_key(job, 0);
    const std::string end = records_end(job);
    {
      const rocksdb::Slice upper(end);
      const auto it = iterate(kRecords, &upper);
      it->SeekToLast();
      if (it->Valid()) removed.records = sequence_of(it->key()) + 1 - extent.first;
    }
    batch.Delete(database_->families[kJobs], job_key(job));
    batch.Delete(database_->families[kSnapshots], job_key(job));
    batch.Delete(database_->families[kMeta], first_key(job));
    for (const Mark& mark : extent.marks) {
      batch.Delete(database_->families[kMeta], mark_key(job, mark.sequence));
    }
    // Whoever still is in an epoch of it must not be taken for a worker of a later job by its name.
    const Epoch epoch = std::max(removed_epoch_, extent.epoch);
    batch.Put(database_->families[kMeta], kRemovedEpochKey, std::to_string(epoch));
    if (!remove_range(batch, begin, end)) return false;
    removed_epoch_ = epoch;
    kept_ = std::move(kept);
    return true;
  }

  // Keeps the job's latest complete checkpoint, from which a later launch of that name goes on. The
  // snapshot that a job leaves when it ends has it. False: that is damaged, and nothing may be
  // removed.
  bool keep_checkpoint(JobId job, Removed& removed, KeptIndex& kept, rocksdb::WriteBatch& batch) {
    RecoveredJob stored;
    std::string ignored;
    if (!load_snapshot(job, {}, stored, ignored)) return false;
    if (!stored.snapshot) return true;
    const auto latest = std::ranges::find(stored.snapshot->checkpoints, CheckpointState::kComplete,
                                          &CheckpointSnapshot::state);
    if (latest == stored.snapshot->checkpoints.end() || latest->saved.empty()) return true;
    const std::string& name = stored.snapshot->created.name;
    if (!kept.add(name, *latest, removed.forgotten)) return true;
    removed.checkpoint = latest->number;
    batch.Put(database_->families[kMeta], kept_key(name),
              slice(encoder_.encode(KeptCheckpoint{name, std::move(*latest)})));
    for (const std::string& gone : removed.forgotten) {
      batch.Delete(database_->families[kMeta], kept_key(gone));
    }
    return true;
  }

  // Records in [begin, end) and what `batch` says, at once. Synced in every mode: what takes their
  // place must be on the disk before the files go.
  bool remove_range(rocksdb::WriteBatch& batch, const std::string& begin, const std::string& end) {
    rocksdb::ColumnFamilyHandle* records = database_->families[kRecords];
    batch.DeleteRange(records, begin, end);
    if (!write(batch, true)) return false;  // the next commit meets the same error and tells it
    const rocksdb::Slice from(begin);
    const rocksdb::Slice to(end);
    // Gives back most of the space at once; compaction does the rest.
    rocksdb::DeleteFilesInRange(database_->db.get(), records, &from, &to, false)
        .PermitUncheckedError();
    return true;
  }

  const Options options_;
  const std::string called_;  // how errors begin
  const std::optional<CutTail> cut_tail_;
  const std::string stamp_;
  CommitCallback callback_;
  std::thread writer_;

  // The writer thread alone changes which database it is, under the exclusive lock, and so may use
  // it without; everybody else holds the shared one. Null, with the reason in problem_, while it
  // cannot be opened again after an error.
  std::shared_mutex database_mutex_;
  std::unique_ptr<Database> database_;

  const RetentionRules rules_{options_.retention_us, options_.retention_bytes};
  const Micros ages_every_ = rules_.keep_us > 0
                                 ? std::clamp(rules_.keep_us / 10, kAgesEveryMin, kAgesEveryMax)
                                 : kAgesEveryMax;

  std::uint64_t loaded_bytes_ = 0;  // of the records that load_job() read last

  // From start() on the writer thread's while writer_works_ is set, until it is joined; else of
  // whoever holds mutex_.
  std::map<JobId, Extent> extents_;
  std::vector<std::size_t> sizes_;  // of the batch's records
  RecordEncoder encoder_;
  std::set<JobId> to_cut_;  // jobs whose history may be too long
  Micros next_ages_us_ = 0;
  std::string last_error_;  // as reported last; empty: writing works
  Ticket committed_ = 0;
  Epoch removed_epoch_ = 0;
  KeptIndex kept_;
  std::vector<KeptCheckpoint> loaded_kept_;  // until it is taken
  bool write_failed_ = false;                // the last one: the log may end within it
  Ticket slow_until_ = 0;                    // the writer takes all batches up to this one
  bool in_order_ = false;                    // closed, with all of it committed

  // Written by the writer thread only; under database_mutex_ whenever the database is null.
  std::string problem_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Queued> queue_;
  std::size_t queued_batches_ = 0;  // also those being written
  std::size_t queued_records_ = 0;
  std::size_t queued_bytes_ = 0;
  bool writer_works_ = false;  // has work, and is not waiting for some
  bool closing_ = false;
  bool give_up_ = false;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<Store> open_rocks_store(const Options& options, std::string& error) {
  auto database = open_database(options, error);
  if (!database) return nullptr;
  std::string stamp;
  if (!read_stamp(*database, options.path, stamp, error)) return nullptr;
  if (!stamp.empty() && !options.is_copy && !options.read_only) {
    error = "store " + options.path +
            " is a copy of a cluster's history, which goes on without this daemon: configure "
            "[cluster], or name another directory";
    return nullptr;
  }
  if (!options.read_only && !upgrade_format(*database, options.path, error)) return nullptr;
  auto store = std::make_unique<RocksStore>(options, std::move(database), std::move(stamp));
  std::vector<Record> jobs;
  if (!options.is_copy || !store->stamp().empty()) return store;
  if (!store->jobs(jobs, error)) return nullptr;
  if (jobs.empty()) return store;
  error = "store " + options.path +
          " has the history of a single daemon, which no cluster knows: name an empty directory "
          "for this member, or begin a cluster with it (syncctl cluster init --from)";
  return nullptr;
}

}  // namespace syncd::store
