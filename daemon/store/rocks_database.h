// One open RocksDB database of ours: how it is opened and checked, its column families, its keys.
// Only the .cpp files of rocks_store and rocks_database include this header: RocksDB's are heavy.
//
// Column families: jobs (job id -> creation record), records (job id, sequence -> record),
// snapshots (job id -> latest snapshot), meta (format_version, created_by). Keys are big-endian, so
// that they sort by number, and one job's records are one range.
#pragma once

#include <rocksdb/db.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "daemon/store/store.h"

namespace syncd::store {

enum ColumnFamily : std::size_t { kDefault, kJobs, kRecords, kSnapshots, kMeta, kFamilies };

// Thread-safe as RocksDB is. The last one closes the database and so gives back its lock.
struct Database {
  std::unique_ptr<rocksdb::DB> db;
  std::array<rocksdb::ColumnFamilyHandle*, kFamilies> families{};

  Database() = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();
};

// Opens, and unless options.read_only creates, the database in options.path. Null on failure, with
// a sentence in `error` that names the path, the cause, and what can be done.
std::unique_ptr<Database> open_database(const Options& options, std::string& error);

// Whether a file can be made, written and synced in the directory; if not, why.
bool probe_directory(const std::string& path, std::string& error);

std::string job_key(JobId job);
std::string record_key(JobId job, Sequence sequence);
// The key that is greater than all of a job's records' keys.
std::string records_end(JobId job);
JobId job_of(const rocksdb::Slice& key);
Sequence sequence_of(const rocksdb::Slice& record_key);

}  // namespace syncd::store
