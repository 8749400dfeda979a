// RocksDB's own synced writes, and reading of a write-ahead log. See the header for threads.
#include "tests/bench/rocks_floor.h"

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/transaction_log.h>
#include <rocksdb/write_batch.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr std::size_t kKeyBytes = 12;  // a job's number and a record's sequence

void check(const rocksdb::Status& status, const char* what) {
  if (!status.ok()) fail(std::string(what) + ": " + status.ToString());
}

// Rising keys of the same shape as the store's.
std::string make_key(std::uint64_t sequence) {
  std::string key("\0\0\0\1", 4);
  for (int shift = 56; shift >= 0; shift -= 8) key.push_back(static_cast<char>(sequence >> shift));
  return key;
}

std::string make_value(std::size_t record_bytes) {
  std::string value;
  // Not compressible to nothing, as no real record is.
  for (std::size_t i = 0; i < record_bytes; ++i) value.push_back(static_cast<char>(i * 131 + 7));
  return value;
}

rocksdb::WriteOptions synced() {
  rocksdb::WriteOptions options;
  options.sync = true;
  return options;
}

// Time and processor time from its making on.
class Stopwatch {
 public:
  WriteRate rate(std::uint64_t records) const {
    const auto elapsed_ns = static_cast<double>(now_ns() - start_ns_);
    const auto cpu_ns = static_cast<double>(process_cpu_ns(getpid()) - cpu_start_ns_);
    const auto count = static_cast<double>(records);
    return {count / (elapsed_ns / 1e9), cpu_ns / 1e3 / count, {}};
  }

 private:
  std::int64_t start_ns_ = now_ns();
  std::int64_t cpu_start_ns_ = process_cpu_ns(getpid());
};

}  // namespace

struct RocksFloor::Impl {
  std::unique_ptr<rocksdb::DB> db;
  std::atomic<std::uint64_t> sequence{0};
};

RocksFloor::RocksFloor(const std::string& path) : impl_(std::make_unique<Impl>()) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 4 * 1024 * 1024;
  options.max_write_buffer_number = 3;
  options.max_total_wal_size = 32 * 1024 * 1024;
  options.max_background_jobs = 2;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  rocksdb::DB* db = nullptr;
  check(rocksdb::DB::Open(options, path, &db), path.c_str());
  impl_->db.reset(db);
}

RocksFloor::~RocksFloor() = default;

WriteRate RocksFloor::batches(double seconds, double batch, std::size_t record_bytes) {
  const std::string value = make_value(record_bytes);
  const Stopwatch watch;
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::vector<double> took_us;
  double owed = 0;
  std::uint64_t records = 0;
  while (now_ns() < end) {
    rocksdb::WriteBatch writes;
    for (owed += batch; owed >= 1; owed -= 1) {
      writes.Put(make_key(++impl_->sequence), value);
      ++records;
    }
    const std::int64_t begun = now_ns();
    check(impl_->db->Write(synced(), &writes), "a synced batch");
    took_us.push_back(static_cast<double>(now_ns() - begun) / 1e3);
  }
  WriteRate rate = watch.rate(records);
  rate.took_us = std::move(took_us);
  return rate;
}

WriteRate RocksFloor::threads(double seconds, std::size_t threads, std::size_t record_bytes) {
  const std::string value = make_value(record_bytes);
  std::atomic<std::uint64_t> records{0};
  const Stopwatch watch;
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::vector<std::thread> writers;
  for (std::size_t i = 0; i < threads; ++i) {
    writers.emplace_back([&] {
      while (now_ns() < end) {
        check(impl_->db->Put(synced(), make_key(++impl_->sequence), value), "a synced put");
        ++records;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  return watch.rate(records.load());
}

std::vector<double> RocksFloor::single_us(double seconds, std::size_t record_bytes) {
  const std::string value = make_value(record_bytes);
  const std::int64_t end = now_ns() + static_cast<std::int64_t>(seconds * 1e9);
  std::vector<double> took_us;
  do {
    const std::int64_t begun = now_ns();
    check(impl_->db->Put(synced(), make_key(++impl_->sequence), value), "a synced put");
    took_us.push_back(static_cast<double>(now_ns() - begun) / 1e3);
  } while (now_ns() < end);
  return took_us;
}

LogTotals read_log(const std::string& path, std::uint64_t from) {
  rocksdb::Options options;
  options.info_log_level = rocksdb::FATAL_LEVEL;
  std::vector<std::string> names;
  check(rocksdb::DB::ListColumnFamilies(options, path, &names), path.c_str());
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const std::string& name : names) families.emplace_back(name, options);
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* raw = nullptr;
  // The daemon may remove a file that has just been listed.
  rocksdb::Status opened = rocksdb::Status::Busy();
  for (int tries = 0; tries < 20 && !opened.ok(); ++tries) {
    opened = rocksdb::DB::OpenForReadOnly(options, path, families, &handles, &raw);
  }
  check(opened, path.c_str());
  const std::unique_ptr<rocksdb::DB> db(raw);

  LogTotals totals;
  totals.next = db->GetLatestSequenceNumber() + 1;
  if (totals.next > from) {
    std::unique_ptr<rocksdb::TransactionLogIterator> it;
    check(db->GetUpdatesSince(from, &it), "the store's log");
    for (; it->Valid(); it->Next()) {
      const rocksdb::BatchResult batch = it->GetBatch();
      ++totals.commits;
      totals.records += static_cast<std::uint64_t>(batch.writeBatchPtr->Count());
      totals.bytes += batch.writeBatchPtr->GetDataSize();
    }
  }
  for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
  return totals;
}

}  // namespace syncd::bench
