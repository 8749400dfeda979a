// The store on RocksDB. submit() queues on the caller's thread; one writer thread of the store
// takes everything that is queued, writes it as one batch (with fsync in durable mode) and reports.
// What arrives meanwhile goes out in the next batch: the slower the disk, the larger the batches.
//
// When a write fails, the writer keeps the batch and tries again until it succeeds: RocksDB is told
// to resume, or, where it cannot, is closed and opened again. Nothing is acknowledged meanwhile.
#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "daemon/store/record_codec.h"
#include "daemon/store/rocks_database.h"
#include "daemon/store/store.h"

namespace syncd::store {
namespace {

// One commit writes at most so much, so that acknowledgements do not wait for a huge one.
constexpr std::size_t kCommitBytesMax = 8 * 1024 * 1024;
// How long the writer waits before it tries again after an error: at first, and at most.
constexpr auto kRetryAfter = std::chrono::milliseconds(100);
constexpr auto kRetryAfterMax = std::chrono::milliseconds(2000);
// close() needs no longer timeout, and a larger one would overflow a point in time.
constexpr std::int64_t kCloseTimeoutMaxUs = std::int64_t{365} * 24 * 3600 * 1'000'000;

rocksdb::Slice slice(std::span<const std::uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::uint8_t> bytes_of(const rocksdb::Slice& value) {
  return {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()};
}

// About what a batch takes in memory, for the queue's limit.
std::size_t weight(const Batch& batch) {
  std::size_t bytes = 0;
  for (const Record& r : batch.records) {
    bytes += sizeof r + r.name.size() + r.host.size() + r.config.size() + r.reason.size() +
             r.values.size() * sizeof(std::int64_t);
  }
  for (const JobSnapshot& s : batch.snapshots) {
    bytes += sizeof s + s.policy_state.size() * sizeof(std::int64_t);
    for (const WorkerSnapshot& w : s.workers) bytes += sizeof w + w.name.size() + w.host.size();
  }
  return bytes;
}

class RocksStore final : public Store {
 public:
  RocksStore(Options options, std::unique_ptr<Database> database)
      : options_(std::move(options)),
        called_("store " + options_.path),
        database_(std::move(database)) {}

  ~RocksStore() override {
    std::string ignored;
    close(0, ignored);
  }

  bool load_each(const TakeJob& take, std::string& error) override {
    const std::shared_lock lock(database_mutex_);
    std::vector<Record> created;
    if (!read_created(created, error) || !check_owners(created, error)) return false;
    for (const Record& creation : created) {
      RecoveredJob job;
      if (!load_job(creation, job, error) || !take(std::move(job), error)) return false;
    }
    return true;
  }

  void start(CommitCallback callback) override {
    callback_ = std::move(callback);
    if (!options_.read_only) writer_ = std::thread([this] { write_loop(); });
  }

  bool submit(Ticket ticket, Batch&& batch) override {
    const std::size_t records = batch.records.size();
    const std::size_t bytes = weight(batch);
    const std::lock_guard lock(mutex_);
    if (options_.read_only || closing_) return false;
    const bool fits = queued_records_ + records <= options_.queue_records_max &&
                      queued_bytes_ + bytes <= options_.queue_bytes_max;
    if (!fits && queued_batches_ > 0) return false;  // one batch always fits an empty queue
    ++queued_batches_;
    queued_records_ += records;
    queued_bytes_ += bytes;
    queue_.push_back({ticket, records, bytes, std::move(batch)});
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
    if (queued_batches_ == 0) return true;
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
    const std::string end = records_end(job);
    const rocksdb::Slice upper(end);
    const auto it = iterate(kRecords, &upper);
    std::size_t bytes = 0;
    for (it->Seek(record_key(job, from)); it->Valid(); it->Next()) {
      const auto value = bytes_of(it->value());
      const bool full = result.records.size() >= records_max || bytes + value.size() > bytes_max;
      if (full && !result.records.empty()) {
        result.next_sequence = sequence_of(it->key());
        break;
      }
      bytes += value.size();
      result.records.push_back({sequence_of(it->key()), {value.begin(), value.end()}});
    }
    if (it->status().ok()) return true;
    error = called_ + ": the records of job #" + std::to_string(job) +
            " cannot be read: " + it->status().ToString();
    return false;
  }

  bool jobs(std::vector<Record>& created, std::string& error) override {
    const std::shared_lock lock(database_mutex_);
    return read_created(created, error);
  }

  Mode mode() const override { return options_.mode; }
  std::string describe() const override { return options_.path; }

 private:
  struct Queued {
    Ticket ticket = 0;
    std::size_t records = 0;
    std::size_t bytes = 0;
    Batch batch;
  };

  static std::string damaged() { return "; restore a backup, or name another directory"; }

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
      const std::string what = called_ + ": job #" + std::to_string(job) + ", creation record";
      Record record;
      if (!decode_record(bytes_of(it->value()), record, error)) {
        error = what + ": " + error + damaged();
        return false;
      }
      if (record.kind != RecordKind::kJobCreated || record.job != job) {
        error = what + ": it is a record of kind " + to_string(record.kind) + " of job #" +
                std::to_string(record.job) + damaged();
        return false;
      }
      created.push_back(std::move(record));
    }
    if (it->status().ok()) return true;
    error = called_ + ": its jobs cannot be read: " + it->status().ToString();
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
                ", but the job's creation record is missing" + damaged();
        return false;
      }
      it->Seek(records_end(job));
    }
    if (it->status().ok()) return true;
    error = called_ + ": its records cannot be read: " + it->status().ToString();
    return false;
  }

  bool load_job(const Record& creation, RecoveredJob& out, std::string& error) {
    const std::string job =
        called_ + ": job '" + creation.name + "' (#" + std::to_string(creation.job) + ")";
    if (!load_snapshot(creation.job, job, out, error)) return false;
    Sequence next = out.snapshot ? out.snapshot->sequence + 1 : 1;
    const std::string end = records_end(creation.job);
    const rocksdb::Slice upper(end);
    const auto it = iterate(kRecords, &upper);
    for (it->Seek(record_key(creation.job, next)); it->Valid(); it->Next(), ++next) {
      const Sequence found = sequence_of(it->key());
      if (found != next) {
        error = job + ": record " + std::to_string(next) + " is missing (the next one is " +
                std::to_string(found) + ")" + damaged();
        return false;
      }
      Record& record = out.records.emplace_back();
      if (!decode_record(bytes_of(it->value()), record, error)) {
        error = job + ", record " + std::to_string(found) + ": " + error + damaged();
        return false;
      }
      if (record.job != creation.job || record.sequence != found) {
        error = job + ", record " + std::to_string(found) + " says it is record " +
                std::to_string(record.sequence) + " of job #" + std::to_string(record.job) +
                damaged();
        return false;
      }
    }
    if (!it->status().ok()) {
      error = job + ": its records cannot be read: " + it->status().ToString();
      return false;
    }
    if (out.snapshot || !out.records.empty()) return true;
    error = job + ": record 1 is missing, as are all others" + damaged();
    return false;
  }

  bool load_snapshot(JobId id, const std::string& job, RecoveredJob& out, std::string& error) {
    std::string value;
    const rocksdb::Status status =
        database_->db->Get({}, database_->families[kSnapshots], job_key(id), &value);
    if (status.IsNotFound()) return true;
    if (!status.ok()) {
      error = job + ": its snapshot cannot be read: " + status.ToString();
      return false;
    }
    JobSnapshot& snapshot = out.snapshot.emplace();
    if (!decode_snapshot(bytes_of(value), snapshot, error)) {
      error = job + ", snapshot: " + error + damaged();
      return false;
    }
    if (snapshot.created.job == id) return true;
    error =
        job + ", snapshot: it is one of job #" + std::to_string(snapshot.created.job) + damaged();
    return false;
  }

  // ---- the writer thread ------------------------------------------------------------------------

  void write_loop() {
    RecordEncoder encoder;
    std::deque<Queued> taken;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return !queue_.empty() || closing_; });
      if (queue_.empty() || give_up_) break;
      take(taken);
      lock.unlock();
      const bool written = commit(encoder, taken);
      lock.lock();
      if (!written) break;  // told to give up
      for (const Queued& queued : taken) {
        --queued_batches_;
        queued_records_ -= queued.records;
        queued_bytes_ -= queued.bytes;
      }
      taken.clear();
    }
    finished_ = true;
    idle_.notify_all();
  }

  // With mutex_ held: everything queued, up to one commit's size.
  void take(std::deque<Queued>& taken) {
    std::size_t bytes = 0;
    while (!queue_.empty() && (taken.empty() || bytes + queue_.front().bytes <= kCommitBytesMax)) {
      bytes += queue_.front().bytes;
      taken.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
  }

  // Writes until it succeeds. False: told to give up.
  bool commit(RecordEncoder& encoder, const std::deque<Queued>& taken) {
    rocksdb::WriteBatch batch;
    CommitReport report;
    for (const Queued& queued : taken) {
      encode(encoder, queued.batch, batch);
      report.committed = queued.ticket;
      report.records += queued.records;
      ++report.batches;
    }
    for (auto wait = kRetryAfter;; wait = std::min(2 * wait, kRetryAfterMax)) {
      const auto begun = std::chrono::steady_clock::now();
      const bool written = write(batch);
      report.commit_us = std::chrono::duration_cast<std::chrono::microseconds>(
                             std::chrono::steady_clock::now() - begun)
                             .count();
      if (written) {
        committed_ = report.committed;
        last_error_.clear();
        callback_(report);
        return true;
      }
      complain();
      std::unique_lock lock(mutex_);
      if (wake_.wait_for(lock, wait, [this] { return give_up_; })) return false;
      lock.unlock();
      recover();
    }
  }

  // Writing the same batch again is harmless: keys and values are the same.
  bool write(rocksdb::WriteBatch& batch) {
    if (!database_) return false;
    rocksdb::WriteOptions options;
    options.sync = options_.mode == Mode::kDurable;
    const rocksdb::Status status = database_->db->Write(options, &batch);
    if (!status.ok()) problem_ = status.ToString();
    return status.ok();
  }

  void complain() {
    if (problem_ == last_error_) return;
    last_error_ = problem_;
    CommitReport report;
    report.committed = committed_;
    report.error = called_ + " cannot be written: " + problem_;
    callback_(report);
  }

  // RocksDB refuses writes after an I/O error until it is told to go on, and some errors it never
  // forgets: then only a new opening helps. It is tried once the directory takes files again, so
  // that history stays readable meanwhile.
  void recover() {
    if (database_) {
      if (database_->db->Resume().ok()) return;
      std::string why;
      if (!probe_directory(options_.path, why)) return;
    }
    const std::unique_lock lock(database_mutex_);
    database_.reset();
    database_ = open_database(options_, problem_);
  }

  void encode(RecordEncoder& encoder, const Batch& from, rocksdb::WriteBatch& to) {
    for (const Record& record : from.records) {
      const rocksdb::Slice value = slice(encoder.encode(record));
      to.Put(database_->families[kRecords], record_key(record.job, record.sequence), value);
      if (record.kind == RecordKind::kJobCreated) {
        to.Put(database_->families[kJobs], job_key(record.job), value);
      }
    }
    for (const JobSnapshot& snapshot : from.snapshots) {
      to.Put(database_->families[kSnapshots], job_key(snapshot.created.job),
             slice(encoder.encode(snapshot)));
    }
  }

  const Options options_;
  const std::string called_;  // how errors begin
  CommitCallback callback_;
  std::thread writer_;

  // The writer thread alone changes the database, under the exclusive lock, and so may use it
  // without; everybody else holds the shared one. Null, with the reason in problem_, while it
  // cannot be opened again after an error.
  std::shared_mutex database_mutex_;
  std::unique_ptr<Database> database_;

  // The writer thread's, until it is joined.
  std::string last_error_;  // as reported last; empty: writing works
  Ticket committed_ = 0;

  // Written by the writer thread only; under database_mutex_ whenever the database is null.
  std::string problem_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Queued> queue_;
  std::size_t queued_batches_ = 0;  // also those being written
  std::size_t queued_records_ = 0;
  std::size_t queued_bytes_ = 0;
  bool closing_ = false;
  bool give_up_ = false;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<Store> open_rocks_store(const Options& options, std::string& error) {
  auto database = open_database(options, error);
  if (!database) return nullptr;
  return std::make_unique<RocksStore>(options, std::move(database));
}

}  // namespace syncd::store
