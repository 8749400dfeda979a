// One open RocksDB database of ours: how it is opened and checked, its column families, its keys.
// Only the .cpp files of rocks_store and rocks_database include this header: RocksDB's are heavy.
//
// Column families: jobs (job id -> creation record), records (record_groups.h),
// snapshots (job id -> latest snapshot), meta (format_version, created_by; what retention has left
// of a job; the marks where it may cut; the checkpoints of jobs that it has removed). Keys are
// big-endian, so that they sort by number, and one job's records are one range.
#pragma once

#include <rocksdb/db.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "daemon/edge/store/retention.h"
#include "daemon/edge/store/store.h"

namespace syncd::store {

enum ColumnFamily : std::size_t { kDefault, kJobs, kRecords, kSnapshots, kMeta, kFamilies };

// Thread-safe as RocksDB is. The last one closes the database and so gives back its lock.
struct Database {
  std::unique_ptr<rocksdb::DB> db;
  std::array<rocksdb::ColumnFamilyHandle*, kFamilies> families{};
  std::optional<CutTail> cut_tail;  // what opening has dropped
  std::uint32_t format = 0;         // its version; 0: it cannot be read
  // An error in RocksDB's own threads: its log must not be synced any more, which ends the process
  // where RocksDB was built with assertions.
  std::shared_ptr<std::atomic<bool>> failed = std::make_shared<std::atomic<bool>>(false);

  Database() = default;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database();
};

// Opens, and unless options.read_only creates, the database in options.path. Null on failure, with
// a sentence in `error` that names the path, the cause, and what can be done.
std::unique_ptr<Database> open_database(const Options& options, std::string& error);

// Closes a store all of which is committed: what it lacks from then on, and damage to its log, is
// told from what a crash may do. Only closes it after an error in RocksDB's own threads.
void close_in_order(std::unique_ptr<Database> database, const Options& options);

// False, with a sentence in `error`: the store is of a format that this version does not read.
bool check_format(Database& database, const Options& options, std::string& error);
// From now on the store may hold what earlier formats have not. False: it cannot be written.
bool upgrade_format(Database& database, const std::string& path, std::string& error);
// The sentence for a store that `has` something that this version does not know.
std::string newer_store(const std::string& path, const std::string& has);
std::string_view family_name(ColumnFamily family);
std::optional<ColumnFamily> family_called(std::string_view name);

// Whether a file can be made, written and synced in the store's directory; if not, why.
bool probe_directory(const Options& options, std::string& error);

// Completes an error about damage: what can be done.
inline std::string after_damage() {
  return "; restore a backup, start syncd with --store-salvage, which keeps what is whole and says "
         "what it drops, or name another directory";
}

// A directory's name without slashes at its end: what is added to it then names a neighbour.
std::string directory_name(const std::string& path);
// Whether something is mounted there: such a directory cannot be put in another's place, nor
// another in its.
bool is_mount_point(const std::string& path);
// Returns once the disk has a file, or the names in a directory.
bool sync_to_disk(const std::string& path, std::error_code& code);

// Neighbours of a store, by what is added to its name: what salvage.h and maintenance.h make until
// it is whole, and what a salvage leaves of the damaged store.
inline constexpr const char* kSalvaging = ".salvaging";
inline constexpr const char* kRestoring = ".restoring";
inline constexpr const char* kDamaged = ".damaged";

std::string job_key(JobId job);
std::string record_key(JobId job, Sequence sequence);
// The key that is greater than all of a job's records' keys.
std::string records_end(JobId job);
JobId job_of(const rocksdb::Slice& key);

// In meta: the first record that retention has left of a job, and the marks of retention.h.
std::string first_key(JobId job);
std::string first_value(const Extent& extent);
std::string mark_key(JobId job, Sequence sequence);
std::string mark_value(const Mark& mark);
// What meta has of all jobs: first, removed_bytes and marks. False: it cannot be read, or what is
// there is damaged; `error` says what and where.
bool read_extents(const Database& database, const std::string& path,
                  std::map<JobId, Extent>& extents, std::string& error);
// Also there: the highest epoch of the jobs that were removed; 0 if none was.
inline constexpr const char* kRemovedEpochKey = "removed_epoch";
bool read_removed_epoch(const Database& database, const std::string& path, Epoch& epoch,
                        std::string& error);
// Also there: Store::stamp().
inline constexpr const char* kStampKey = "cluster_stamp";
bool read_stamp(const Database& database, const std::string& path, std::string& stamp,
                std::string& error);
// Also there: the latest complete checkpoint of each job that was removed. `take` is called for
// each; `why` is empty, or says what is wrong with it, and then only its job's name is known.
// False: it cannot be read.
std::string kept_key(std::string_view job);
bool is_kept_key(std::string_view key);
using TakeKept = std::function<void(KeptCheckpoint&& kept, const std::string& why)>;
bool read_kept(const Database& database, const std::string& path, const TakeKept& take,
               std::string& error);
// Whether a key of meta says what retention has removed: of two values the larger one is the later.
bool says_what_was_removed(std::string_view key);
// The first record that retention has left of a job; 1 if it has removed none.
bool read_first(const Database& database, JobId job, Sequence& first, std::string& error);

// Copies the open database to a directory that is not there yet, which nobody but this user can
// look into, not even while it is made.
bool checkpoint(const Database& database, const std::string& path, const std::string& to,
                std::string& error);
Sequence sequence_of(const rocksdb::Slice& record_key);

inline std::span<const std::uint8_t> bytes_of(const rocksdb::Slice& value) {
  return {reinterpret_cast<const std::uint8_t*>(value.data()), value.size()};
}

}  // namespace syncd::store
