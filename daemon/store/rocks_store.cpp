// The store on RocksDB. submit() queues on the caller's thread; one writer thread of the store
// takes everything that is queued, writes it as one batch (with fsync in durable mode) and reports.
// What arrives meanwhile goes out in the next batch: the slower the disk, the larger the batches.
//
// Column families: jobs (job id -> creation record), records (job id, sequence -> record),
// snapshots (job id -> latest snapshot), meta (format_version, created_by). Keys are big-endian, so
// that they sort by number, and one job's records are one range.
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "daemon/store/record_codec.h"
#include "daemon/store/store.h"

namespace syncd::store {
namespace {

constexpr std::uint32_t kFormatVersion = 1;
constexpr const char* kFormatKey = "format_version";
constexpr const char* kCreatedByKey = "created_by";

enum Family : std::size_t { kDefaultFamily, kJobs, kRecords, kSnapshots, kMeta, kFamilies };
constexpr std::array<const char*, kFamilies> kFamilyNames = {"default", "jobs", "records",
                                                             "snapshots", "meta"};

// One commit writes at most so much, so that acknowledgements do not wait for a huge one.
constexpr std::size_t kCommitBytesMax = 8 * 1024 * 1024;
// How long the writer waits before it tries again after an error.
constexpr auto kRetryAfter = std::chrono::milliseconds(250);

template <class Number>
void append_big_endian(std::string& out, Number number) {
  for (int shift = 8 * (sizeof(Number) - 1); shift >= 0; shift -= 8) {
    out.push_back(static_cast<char>(number >> shift));
  }
}
std::string job_key(JobId job) {
  std::string key;
  append_big_endian(key, job);
  return key;
}
std::string record_key(JobId job, Sequence sequence) {
  std::string key = job_key(job);
  append_big_endian(key, sequence);
  return key;
}
Sequence sequence_of(const rocksdb::Slice& key) {
  Sequence sequence = 0;
  for (std::size_t i = 4; i < key.size(); ++i) {
    sequence = sequence << 8 | static_cast<std::uint8_t>(key[i]);
  }
  return sequence;
}
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
    bytes += sizeof s + s.workers.size() * sizeof(WorkerSnapshot);
  }
  return bytes;
}

rocksdb::Options make_options() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // The daemon keeps nothing to look up often: small buffers hold its memory down.
  options.write_buffer_size = 4 * 1024 * 1024;
  options.max_write_buffer_number = 3;
  options.max_total_wal_size = 32 * 1024 * 1024;
  options.max_open_files = 256;
  options.max_background_jobs = 2;
  options.keep_log_file_num = 2;
  options.max_log_file_size = 1024 * 1024;
  options.info_log_level = rocksdb::WARN_LEVEL;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(2 * 1024 * 1024);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

std::string describe_open_error(const std::string& path, const rocksdb::Status& status) {
  const std::string text = status.ToString();
  if (text.find("LOCK") != std::string::npos || text.find("lock ") != std::string::npos) {
    return "store " + path +
           " is in use by another process: stop that one, or name another "
           "directory (" +
           text + ")";
  }
  if (status.IsCorruption()) {
    return "store " + path + " is damaged: " + text +
           "; restore a backup, or name another directory";
  }
  return "store " + path + " cannot be opened: " + text;
}

class RocksStore final : public Store {
 public:
  RocksStore(Options options, std::unique_ptr<rocksdb::DB> db,
             std::vector<rocksdb::ColumnFamilyHandle*> families)
      : options_(std::move(options)), db_(std::move(db)), families_(std::move(families)) {}

  ~RocksStore() override {
    std::string ignored;
    close(0, ignored);
    for (auto* family : families_) db_->DestroyColumnFamilyHandle(family);
    db_->Close();
  }

  bool check_format(std::string& error) {
    std::string value;
    rocksdb::Status status = db_->Get({}, families_[kMeta], kFormatKey, &value);
    if (status.IsNotFound() && !options_.read_only) {
      rocksdb::WriteBatch batch;
      batch.Put(families_[kMeta], kFormatKey, std::to_string(kFormatVersion));
      batch.Put(families_[kMeta], kCreatedByKey, "syncd " SYNCD_VERSION);
      rocksdb::WriteOptions write;
      write.sync = true;
      status = db_->Write(write, &batch);
      if (status.ok()) return true;
    }
    if (!status.ok()) {
      error =
          "store " + options_.path + ": its format version cannot be read: " + status.ToString();
      return false;
    }
    if (value == std::to_string(kFormatVersion)) return true;
    error = "store " + options_.path + " has format " + value +
            ", written by a newer version; this one reads format " +
            std::to_string(kFormatVersion) + ": use the version that wrote it, or a newer one";
    return false;
  }

  bool load(std::vector<RecoveredJob>& jobs, std::string& error) override {
    jobs.clear();
    std::vector<Record> created;
    if (!this->jobs(created, error)) return false;
    for (const Record& creation : created) {
      if (!load_job(creation, jobs.emplace_back(), error)) return false;
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
    if (!fits && !queue_.empty()) return false;  // one batch always fits an empty queue
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
    idle_.wait_for(lock, std::chrono::microseconds(timeout_us), [this] { return finished_; });
    give_up_ = true;
    wake_.notify_one();
    lock.unlock();
    writer_.join();
    if (queued_records_ == 0 && last_error_.empty()) return true;
    error = "store " + options_.path + ": " + std::to_string(queued_records_) +
            " records could not be written before the end" +
            (last_error_.empty() ? std::string{} : ": " + last_error_);
    return false;
  }

  bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
            ReadResult& result, std::string& error) override {
    result = {};
    const std::string end = job_key(job + 1);
    const rocksdb::Slice upper(end);
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = &upper;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options, families_[kRecords]));
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
    error = "store " + options_.path + ": the records of job #" + std::to_string(job) +
            " cannot be read: " + it->status().ToString();
    return false;
  }

  bool jobs(std::vector<Record>& created, std::string& error) override {
    created.clear();
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator({}, families_[kJobs]));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      Record record;
      if (!decode_record(bytes_of(it->value()), record, error)) {
        error = "store " + options_.path + ": a job's creation record: " + error + damaged();
        return false;
      }
      created.push_back(std::move(record));
    }
    if (it->status().ok()) return true;
    error = "store " + options_.path + ": its jobs cannot be read: " + it->status().ToString();
    return false;
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

  bool load_job(const Record& creation, RecoveredJob& out, std::string& error) {
    const std::string called = "store " + options_.path + ": job '" + creation.name + "' (#" +
                               std::to_string(creation.job) + ")";
    Sequence next = 1;
    std::string value;
    const rocksdb::Status status =
        db_->Get({}, families_[kSnapshots], job_key(creation.job), &value);
    if (status.ok()) {
      out.snapshot.emplace();
      if (!decode_snapshot(bytes_of(value), *out.snapshot, error)) {
        error = called + ", snapshot: " + error + damaged();
        return false;
      }
      next = out.snapshot->sequence + 1;
    } else if (!status.IsNotFound()) {
      error = called + ", snapshot: " + status.ToString();
      return false;
    }
    const std::string end = job_key(creation.job + 1);
    const rocksdb::Slice upper(end);
    rocksdb::ReadOptions options;
    options.iterate_upper_bound = &upper;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options, families_[kRecords]));
    for (it->Seek(record_key(creation.job, next)); it->Valid(); it->Next(), ++next) {
      const Sequence found = sequence_of(it->key());
      if (found != next) {
        error = called + ": record " + std::to_string(next) + " is missing (the next one is " +
                std::to_string(found) + ")" + damaged();
        return false;
      }
      Record& record = out.records.emplace_back();
      if (!decode_record(bytes_of(it->value()), record, error)) {
        error = called + ", record " + std::to_string(found) + ": " + error + damaged();
        return false;
      }
      if (record.job != creation.job || record.sequence != found) {
        error = called + ", record " + std::to_string(found) + " says it is record " +
                std::to_string(record.sequence) + " of job #" + std::to_string(record.job) +
                damaged();
        return false;
      }
    }
    if (it->status().ok()) return true;
    error = called + ": its records cannot be read: " + it->status().ToString();
    return false;
  }

  // ---- the writer thread ------------------------------------------------------------------------

  void write_loop() {
    RecordEncoder encoder;
    std::deque<Queued> taken;
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return !queue_.empty() || closing_; });
      if (queue_.empty()) break;
      take(taken);
      lock.unlock();
      const bool written = commit(encoder, taken);
      lock.lock();
      if (!written) break;  // told to give up
      for (const Queued& queued : taken) {
        queued_records_ -= queued.records;
        queued_bytes_ -= queued.bytes;
      }
      taken.clear();
    }
    finished_ = true;
    idle_.notify_all();
  }

  // With the lock held: everything queued, up to one commit's size.
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
    rocksdb::WriteOptions write;
    write.sync = options_.mode == Mode::kDurable;
    while (true) {
      const auto begun = std::chrono::steady_clock::now();
      const rocksdb::Status status = db_->Write(write, &batch);
      report.commit_us = std::chrono::duration_cast<std::chrono::microseconds>(
                             std::chrono::steady_clock::now() - begun)
                             .count();
      if (status.ok()) {
        last_error_.clear();
        callback_(report);
        return true;
      }
      complain(status);
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kRetryAfter, [this] { return give_up_; });
      if (give_up_) return false;
      lock.unlock();
      db_->Resume();  // RocksDB refuses writes after an I/O error until it is told to try again
    }
  }

  void complain(const rocksdb::Status& status) {
    const std::string text = status.ToString();
    if (text == last_error_) return;
    last_error_ = text;
    CommitReport report;
    report.error = "store " + options_.path + " cannot be written: " + text;
    callback_(report);
  }

  void encode(RecordEncoder& encoder, const Batch& from, rocksdb::WriteBatch& to) {
    for (const Record& record : from.records) {
      const rocksdb::Slice value = slice(encoder.encode(record));
      to.Put(families_[kRecords], record_key(record.job, record.sequence), value);
      if (record.kind == RecordKind::kJobCreated) {
        to.Put(families_[kJobs], job_key(record.job), value);
      }
    }
    for (const JobSnapshot& snapshot : from.snapshots) {
      to.Put(families_[kSnapshots], job_key(snapshot.created.job), slice(encoder.encode(snapshot)));
    }
  }

  const Options options_;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;
  CommitCallback callback_;
  std::thread writer_;
  std::string last_error_;  // the writer thread's, until it is joined

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::deque<Queued> queue_;
  std::size_t queued_records_ = 0;  // also those being written
  std::size_t queued_bytes_ = 0;
  bool closing_ = false;
  bool give_up_ = false;
  bool finished_ = false;
};

bool make_directory(const std::string& path, std::string& error) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) {
    struct stat info {};
    if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return true;
    error = "store " + path + " is not a directory: name a directory, or one to be made";
    return false;
  }
  error = "store " + path + " cannot be made: " + std::strerror(errno) +
          ": its parent must be an existing, writable directory";
  return false;
}

}  // namespace

std::unique_ptr<Store> open_rocks_store(const Options& options, std::string& error) {
  struct stat info {};
  if (options.read_only && stat((options.path + "/CURRENT").c_str(), &info) != 0) {
    error = "there is no store in " + options.path + ": " + std::strerror(errno);
    return nullptr;
  }
  if (!options.read_only && !make_directory(options.path, error)) return nullptr;
  const rocksdb::Options rocks = make_options();
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const char* name : kFamilyNames) {
    descriptors.emplace_back(name, rocksdb::ColumnFamilyOptions(rocks));
  }
  std::vector<rocksdb::ColumnFamilyHandle*> families;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status =
      options.read_only
          ? rocksdb::DB::OpenForReadOnly(rocks, options.path, descriptors, &families, &db)
          : rocksdb::DB::Open(rocks, options.path, descriptors, &families, &db);
  if (!status.ok()) {
    error = describe_open_error(options.path, status);
    return nullptr;
  }
  auto store =
      std::make_unique<RocksStore>(options, std::unique_ptr<rocksdb::DB>(db), std::move(families));
  if (!store->check_format(error)) return nullptr;
  return store;
}

}  // namespace syncd::store
