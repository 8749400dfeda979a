// See rocks_database.h. Runs on whichever thread opens the store, and on the writer's when it opens
// the database again after an error.
#include "daemon/edge/store/rocks_database.h"

#include <fcntl.h>
#include <rocksdb/cache.h>
#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/write_batch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <utility>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/rocks_log.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"
#include "proto/base/number.h"

#if defined(__SANITIZE_THREAD__)
// RocksDB as distributed is not built with ThreadSanitizer, which therefore does not see how its
// threads hand values to each other and reports those, and only those, that it had a hand in.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:rocksdb::\n";
}
#endif

namespace syncd::store {
namespace {

// 1: each record has a value of its own (record_groups.h). All up to the latest are read.
constexpr std::uint32_t kFormatVersion = 2;
constexpr const char* kFormatKey = "format_version";
constexpr const char* kCreatedByKey = "created_by";

constexpr std::array<const char*, kFamilies> kFamilyNames = {"default", "jobs", "records",
                                                             "snapshots", "meta"};

// Errors in the background, and every change of the list of files. RocksDB's threads call it.
class Listener final : public rocksdb::EventListener {
 public:
  Listener(rocksdb::Env* env, std::string path, std::shared_ptr<std::atomic<bool>> failed)
      : env_(env), path_(std::move(path)), failed_(std::move(failed)) {}
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status*) override {
    *failed_ = true;
  }
  void OnFlushCompleted(rocksdb::DB*, const rocksdb::FlushJobInfo&) override { note(); }
  void OnCompactionCompleted(rocksdb::DB*, const rocksdb::CompactionJobInfo&) override { note(); }

  void note() {
    const std::lock_guard lock(mutex_);
    note_while_open(env_, path_);
  }

 private:
  rocksdb::Env* const env_;
  const std::string path_;
  const std::shared_ptr<std::atomic<bool>> failed_;
  std::mutex mutex_;
};

// RocksDB's own log: warnings and errors only, in the file LOG of the store, of bounded size. Not
// RocksDB's logger, whose next line after one that the disk refused ends the process where the
// library was built with assertions, as distributions do. Of a store that is only read, and on a
// test's disk, it writes nothing.
class InfoLog final : public rocksdb::Logger {
 public:
  explicit InfoLog(const Options& store) : rocksdb::Logger(rocksdb::WARN_LEVEL) {
    if (store.read_only || store.env != nullptr) return;
    const std::string path = store.path + "/LOG";
    struct stat info {};
    if (stat(path.c_str(), &info) == 0 && info.st_size > kBytesMax / 2) {
      std::rename(path.c_str(), (path + ".old").c_str());
    }
    fd_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  }

  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override {
    if (!fd_) return;
    char line[1024];
    std::size_t length = utc_text(wall_clock_us()).append(" ").copy(line, sizeof line);
    const int wanted = std::vsnprintf(line + length, sizeof line - length, format, arguments);
    if (wanted < 0) return;
    length = std::min(length + static_cast<std::size_t>(wanted), sizeof line - 2);
    line[length++] = '\n';
    if (written_.fetch_add(static_cast<long>(length)) > kBytesMax / 2) return;
    // A log that cannot be written is no reason to fail.
    if (::write(fd_.get(), line, length) < 0) return;
  }

 private:
  static constexpr long kBytesMax = 1024 * 1024;
  UniqueFd fd_;
  std::atomic<long> written_{0};
};

rocksdb::Env* env_of(const Options& options) {
  return options.env != nullptr ? options.env : rocksdb::Env::Default();
}

rocksdb::Options make_options(const Options& store) {
  rocksdb::Options options;
  options.env = env_of(store);
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  // What a crash may leave is a last entry that is cut off. Anything else that is wrong in the log
  // is damage: the default would drop what comes after it, acknowledged or not, without a word.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  // The daemon keeps nothing to look up often: small buffers hold its memory down.
  options.write_buffer_size = 4 * 1024 * 1024;
  options.db_write_buffer_size = 16 * 1024 * 1024;
  options.arena_block_size = 64 * 1024;
  options.max_write_buffer_number = 3;
  options.max_total_wal_size = 32 * 1024 * 1024;
  // A flush writes what compaction soon writes again, and compresses then.
  options.compression_per_level = {rocksdb::kNoCompression, options.compression};
  // Read whole after each flush (note_while_open()).
  options.max_manifest_file_size = 1024 * 1024;
  options.max_open_files = 256;
  options.max_background_jobs = 2;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.info_log = std::make_shared<InfoLog>(store);
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(2 * 1024 * 1024);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

// ---- what can be wrong
// ------------------------------------------------------------------------------

std::string called(const std::string& path) {
  return "store " + path;
}

bool is_there(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0;
}

// A store that was being put in its place when something broke off lies beside `path`: to begin
// with an empty one would forget it.
bool refuse_unfinished(const std::string& path, std::string& error) {
  const std::string salvaging = path + kSalvaging;
  const std::string restoring = path + kRestoring;
  std::string damaged = path + kDamaged;
  for (int i = 2; is_there(path + kDamaged + "-" + std::to_string(i)); ++i) {
    damaged = path + kDamaged + "-" + std::to_string(i);
  }
  const std::string empty =
      ", or, to begin with an empty store, move what is there to another directory";
  if (is_there(damaged)) {
    error = called(path) + " is missing, but " + damaged +
            ", which a salvage has moved away, is there: " + "to salvage again, rename " + damaged +
            " to " + path + " and start with --store-salvage" + empty;
    return false;
  }
  if (is_there(salvaging) || is_there(restoring)) {
    const bool restore = !is_there(salvaging);
    error = called(path) + " is missing, but " + (restore ? restoring : salvaging) +
            " is there: " + (restore ? "a restore" : "a salvage") +
            " was cut off: restore a backup with syncctl store restore" + empty;
    return false;
  }
  return true;
}

bool make_directory(const std::string& path, std::string& error) {
  if (path.empty()) {
    error = "the store's path is empty: name a directory";
    return false;
  }
  if (!is_there(path) && !refuse_unfinished(directory_name(path), error)) return false;
  if (mkdir(path.c_str(), 0700) == 0) {
    std::error_code ignored;
    sync_to_disk(parent_of(path), ignored);  // else a power cut could take the whole store
    return true;
  }
  const int why = errno;
  struct stat info {};
  if (why == EEXIST && stat(path.c_str(), &info) == 0) {
    if (!S_ISDIR(info.st_mode)) {
      error = called(path) + " is not a directory: name a directory, or one to be made";
      return false;
    }
    if (access(path.c_str(), R_OK | W_OK | X_OK) == 0) return true;
    error = called(path) + " cannot be written: " + std::strerror(errno) +
            ": give this user the right to write there, or name another directory";
    return false;
  }
  error = called(path) + " cannot be made: " + std::strerror(why) +
          ": its parent must be an existing, writable directory";
  return false;
}

std::string describe_open_error(const std::string& path, const rocksdb::Status& status) {
  const std::string text = status.ToString();
  const auto says = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  if (says("While lock file") || says("lock hold by current process")) {
    return called(path) +
           " is in use by another process: stop that one, or name another directory (" + text + ")";
  }
  if (says("olumn families not opened")) {
    return newer_store(path, "has column families that this version does not know (" + text + ")");
  }
  // A file of the store's own: the directory is there.
  const bool missing = status.IsPathNotFound() || says("No such file or directory");
  if (status.IsCorruption() || missing) {
    return called(path) + " is damaged: " + text + after_damage();
  }
  return called(path) + " cannot be opened: " + text;
}

template <class Number>
void append_big_endian(std::string& out, Number number) {
  char bytes[sizeof(Number)];
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    bytes[i] = static_cast<char>(number >> (8 * (sizeof bytes - 1 - i)));
  }
  out.append(bytes, sizeof bytes);
}
std::uint64_t read_big_endian(const char* at, std::size_t bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    number = number << 8 | static_cast<std::uint8_t>(at[i]);
  }
  return number;
}

}  // namespace

std::string newer_store(const std::string& path, const std::string& has) {
  return called(path) + " " + has + ", written by a newer version; this one reads format " +
         std::to_string(kFormatVersion) + ": use the version that wrote it, or a newer one";
}

std::string_view family_name(ColumnFamily family) {
  return kFamilyNames[family];
}

std::optional<ColumnFamily> family_called(std::string_view name) {
  const auto found = std::find(kFamilyNames.begin(), kFamilyNames.end(), name);
  if (found == kFamilyNames.end()) return {};
  return static_cast<ColumnFamily>(found - kFamilyNames.begin());
}

bool upgrade_format(Database& database, const std::string& path, std::string& error) {
  if (database.format == kFormatVersion) return true;
  rocksdb::WriteBatch batch;
  batch.Put(database.families[kMeta], kFormatKey, std::to_string(kFormatVersion));
  if (database.format == 0) {
    batch.Put(database.families[kMeta], kCreatedByKey, "syncd " SYNCD_VERSION);
  }
  rocksdb::WriteOptions write;
  write.sync = true;
  const rocksdb::Status status = database.db->Write(write, &batch);
  if (!status.ok()) error = called(path) + " cannot be written: " + status.ToString();
  database.format = kFormatVersion;
  return status.ok();
}

bool check_format(Database& database, const Options& options, std::string& error) {
  std::string value;
  const rocksdb::Status status = database.db->Get({}, database.families[kMeta], kFormatKey, &value);
  // Who salvages looks at each record by itself, and the damaged store is kept.
  const bool may_be_unknown = options.skip_damage;
  if (!status.ok() && may_be_unknown) return true;
  if (status.IsNotFound()) {
    // A first start that was cut off has left nothing yet.
    for (const ColumnFamily family : {kJobs, kRecords, kSnapshots}) {
      const std::unique_ptr<rocksdb::Iterator> it(
          database.db->NewIterator({}, database.families[family]));
      it->SeekToFirst();
      if (!it->Valid() && it->status().ok()) continue;
      error =
          called(options.path) + " is damaged: it has no format version, but jobs" + after_damage();
      return false;
    }
    if (!options.read_only) return upgrade_format(database, options.path, error);
    error = called(options.path) +
            " holds no format version: it was never used, or is no store "
            "of syncd";
    return false;
  }
  if (!status.ok()) {
    error = called(options.path) + ": its format version cannot be read: " + status.ToString() +
            (status.IsCorruption() ? after_damage() : "");
    return false;
  }
  std::uint32_t version = 0;
  if (!parse_number(value, version) || version == 0) {
    if (may_be_unknown) return true;
    error = called(options.path) + " has the unreadable format version '" + value +
            "': it is damaged" + after_damage();
    return false;
  }
  database.format = version;
  if (version <= kFormatVersion) return true;
  error = newer_store(options.path, "has format " + value);
  return false;
}

std::string directory_name(const std::string& path) {
  const std::size_t end = path.find_last_not_of('/');
  return end == std::string::npos ? path.substr(0, 1) : path.substr(0, end + 1);
}

bool is_mount_point(const std::string& path) {
  struct statx info {};
  return statx(AT_FDCWD, path.c_str(), 0, 0, &info) == 0 &&
         (info.stx_attributes & info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
}

bool sync_to_disk(const std::string& path, std::error_code& code) {
  if (syncd::sync_to_disk(path)) return true;
  code.assign(errno, std::generic_category());
  return false;
}

Database::~Database() {
  if (!db) return;
  for (auto* family : families) {
    if (family != nullptr) db->DestroyColumnFamilyHandle(family);
  }
  db->Close();
}

// Before anything is written: a database of another program, or of a later version. What cannot be
// read is for RocksDB to tell.
bool is_ours(const rocksdb::Options& rocks, const Options& options, std::string& error) {
  std::vector<std::string> names;
  if (!rocksdb::DB::ListColumnFamilies(rocks, options.path, &names).ok()) return true;
  for (const std::string& name : names) {
    if (family_called(name)) continue;
    error = newer_store(options.path,
                        "has column families that this version does not know (" + name + ")");
    return false;
  }
  if (names.size() > 1) return true;
  // A first start that was cut off leaves no more than that one, and nothing in it.
  rocksdb::DB* opened = nullptr;
  if (!rocksdb::DB::OpenForReadOnly(rocks, options.path, &opened).ok()) return true;
  const std::unique_ptr<rocksdb::DB> db(opened);
  const std::unique_ptr<rocksdb::Iterator> it(db->NewIterator({}));
  it->SeekToFirst();
  if (!it->Valid()) return true;
  error = called(options.path) +
          " is a RocksDB database of another program: name a directory of its own";
  return false;
}

std::unique_ptr<Database> open_database(const Options& options, std::string& error) {
  struct stat info {};
  if (options.read_only && stat((options.path + "/CURRENT").c_str(), &info) != 0) {
    const int why = errno;
    if (missing_files(env_of(options), options.path).empty()) {
      error = "there is no store in " + options.path + ": " + std::strerror(why);
      return nullptr;
    }
  }
  // RocksDB makes the directory on a disk that was handed in.
  const bool make = !options.read_only && options.env == nullptr;
  if (make && !make_directory(options.path, error)) return nullptr;
  rocksdb::Options rocks = make_options(options);
  LogReport log;
  if (!options.skip_damage) {
    if (const auto missing = missing_files(env_of(options), options.path); !missing.empty()) {
      error = called(options.path) + " is damaged: " + missing.front() + after_damage();
      return nullptr;
    }
    if (!options.read_only) clear_for_first_start(env_of(options), options.path);
  }
  if (options.skip_damage) {
    rocks.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
    rocks.paranoid_checks = false;
  } else {
    if (!examine_log(env_of(options), options.path, log, error)) return nullptr;
    if (log.state == LogState::kDamaged) {
      error = called(options.path) + " is damaged: its log " + log.cut.file +
              " cannot be read at byte " + std::to_string(log.cut.at) +
              (log.cut.what.empty() ? "" : " (" + log.cut.what + ")") +
              (log.entries_after > 0
                   ? ", and " + std::to_string(log.entries_after) + " commits come after it"
                   : ", and it was whole when the store was closed in good order") +
              after_damage();
      return nullptr;
    }
    // The mode above refuses an entry whose end is there with a hole in its midst, as a power cut
    // leaves it; this one ends there, where nothing follows.
    if (log.state == LogState::kCutOff) {
      rocks.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
    }
  }
  if (!is_ours(rocks, options, error)) return nullptr;
  auto database = std::make_unique<Database>();
  const auto listener = std::make_shared<Listener>(env_of(options), options.path, database->failed);
  rocks.listeners.push_back(listener);
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
  database->db.reset(db);
  if (!options.read_only) listener->note();
  std::copy(families.begin(), families.end(), database->families.begin());
  if (log.state == LogState::kCutOff) database->cut_tail = log.cut;
  if (!check_format(*database, options, error)) return nullptr;
  return database;
}

void close_in_order(std::unique_ptr<Database> database, const Options& options) {
  // In fast mode the last commits may still be in the system's cache alone. Without the note the
  // store looks like one that a crash has left.
  const bool whole = !*database->failed && database->db->SyncWAL().ok();
  database.reset();
  if (whole) note_files(env_of(options), options.path);
}

bool probe_directory(const Options& options, std::string& error) {
  rocksdb::Env* env = env_of(options);
  const std::string file = options.path + "/probe";
  // About what opening the database again writes at least.
  const std::string zeros(64 * 1024, '\0');
  const rocksdb::Status status = rocksdb::WriteStringToFile(env, zeros, file, true);
  if (!status.ok()) error = status.ToString();
  env->DeleteFile(file).PermitUncheckedError();
  return status.ok();
}

namespace {

constexpr std::string_view kFirstPrefix = "first";
constexpr std::string_view kMarkPrefix = "mark";
constexpr std::string_view kKeptPrefix = "kept";

Sequence sequence_at(const rocksdb::Slice& key, std::size_t offset) {
  return read_big_endian(key.data() + offset, 8);
}

}  // namespace

std::string first_key(JobId job) {
  return std::string(kFirstPrefix) + job_key(job);
}

std::string first_value(const Extent& extent) {
  std::string value;
  append_big_endian(value, extent.first);
  append_big_endian(value, extent.removed_bytes);
  return value;
}

std::string mark_key(JobId job, Sequence sequence) {
  return std::string(kMarkPrefix) + record_key(job, sequence);
}

std::string mark_value(const Mark& mark) {
  std::string value;
  append_big_endian(value, static_cast<std::uint64_t>(mark.time_us));
  append_big_endian(value, mark.bytes);
  return value;
}

bool read_extents(const Database& database, const std::string& path,
                  std::map<JobId, Extent>& extents, std::string& error) {
  extents.clear();
  const std::unique_ptr<rocksdb::Iterator> it(
      database.db->NewIterator({}, database.families[kMeta]));
  const auto all = [&](std::string_view prefix, std::size_t key_bytes, const auto& take) {
    const rocksdb::Slice start(prefix.data(), prefix.size());
    for (it->Seek(start); it->Valid() && it->key().starts_with(start); it->Next()) {
      if (it->key().size() != prefix.size() + key_bytes || it->value().size() != 16) {
        error = called(path) + ": what it says of the history that retention has left is damaged";
        return false;
      }
      const char* key = it->key().data() + prefix.size();
      take(extents[static_cast<JobId>(read_big_endian(key, 4))], it->key(), it->value());
    }
    if (it->status().ok()) return true;
    error = called(path) + ": what retention has left cannot be read: " + it->status().ToString();
    return false;
  };
  const auto take_first = [](Extent& extent, const auto&, const auto& value) {
    extent.first = read_big_endian(value.data(), 8);
    extent.removed_bytes = read_big_endian(value.data() + 8, 8);
    extent.bytes = extent.removed_bytes;
  };
  const auto take_mark = [](Extent& extent, const auto& key, const auto& value) {
    extent.marks.push_back({sequence_at(key, kMarkPrefix.size() + 4),
                            static_cast<Micros>(read_big_endian(value.data(), 8)),
                            read_big_endian(value.data() + 8, 8)});
  };
  return all(kFirstPrefix, 4, take_first) && all(kMarkPrefix, 12, take_mark);
}

bool read_removed_epoch(const Database& database, const std::string& path, Epoch& epoch,
                        std::string& error) {
  std::string value;
  epoch = 0;
  const rocksdb::Status status =
      database.db->Get({}, database.families[kMeta], kRemovedEpochKey, &value);
  if (status.IsNotFound()) return true;
  if (status.ok() && parse_number(value, epoch)) return true;
  error = called(path) + ": the last epoch of removed jobs cannot be read: " +
          (status.ok() ? "it is '" + value + "'" : status.ToString());
  return false;
}

bool read_stamp(const Database& database, const std::string& path, std::string& stamp,
                std::string& error) {
  const rocksdb::Status status = database.db->Get({}, database.families[kMeta], kStampKey, &stamp);
  if (status.IsNotFound()) stamp.clear();
  if (status.ok() || status.IsNotFound()) return true;
  error = called(path) + ": its cluster's stamp cannot be read: " + status.ToString();
  return false;
}

std::string kept_key(std::string_view job) {
  return std::string(kKeptPrefix).append(job);
}

bool is_kept_key(std::string_view key) {
  return key.starts_with(kKeptPrefix);
}

bool read_kept(const Database& database, const std::string& path, const TakeKept& take,
               std::string& error) {
  const rocksdb::Slice start(kKeptPrefix.data(), kKeptPrefix.size());
  const std::unique_ptr<rocksdb::Iterator> it(
      database.db->NewIterator({}, database.families[kMeta]));
  for (it->Seek(start); it->Valid() && it->key().starts_with(start); it->Next()) {
    const std::string job = it->key().ToString().substr(start.size());
    KeptCheckpoint kept;
    std::string why;
    if (decode_kept(bytes_of(it->value()), kept, why) && kept.job != job) {
      why = "it is one of job '" + kept.job + "'";
    }
    kept.job = job;
    take(std::move(kept), why);
  }
  if (it->status().ok()) return true;
  error =
      called(path) + ": the checkpoints of removed jobs cannot be read: " + it->status().ToString();
  return false;
}

bool says_what_was_removed(std::string_view key) {
  return key.starts_with(kFirstPrefix) || key == kRemovedEpochKey;
}

bool read_first(const Database& database, JobId job, Sequence& first, std::string& error) {
  std::string value;
  first = 1;
  const rocksdb::Status status =
      database.db->Get({}, database.families[kMeta], first_key(job), &value);
  if (status.IsNotFound()) return true;
  if (status.ok() && value.size() == 16) {
    first = read_big_endian(value.data(), 8);
    return true;
  }
  error = "what retention has left of job #" + std::to_string(job) +
          " cannot be read: " + (status.ok() ? "it is damaged" : status.ToString());
  return false;
}

bool checkpoint(const Database& database, const std::string& path, const std::string& to,
                std::string& error) {
  const std::string target = directory_name(to);
  const auto fail = [&](const std::string& why) {
    error = called(path) + " cannot be copied to " + to + ": " + why +
            ": name a directory that is not there yet, in one that can be written";
    return false;
  };
  struct stat info {};
  if (lstat(target.c_str(), &info) == 0) return fail(std::strerror(EEXIST));
  std::error_code unknown;
  if (std::filesystem::equivalent(parent_of(target), path, unknown)) {
    return fail("that is within the store itself, and would go with it");
  }
  // RocksDB makes directories that others may look into: so within one that they may not.
  std::string room = target + ".copying-XXXXXX";
  if (mkdtemp(room.data()) == nullptr) return fail(std::strerror(errno));
  const std::string copy = room + "/copy";
  rocksdb::Checkpoint* made = nullptr;
  rocksdb::Status status = rocksdb::Checkpoint::Create(database.db.get(), &made);
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  if (status.ok()) status = checkpoint->CreateCheckpoint(copy);
  if (status.ok() && !note_files(rocksdb::Env::Default(), copy)) {
    status = rocksdb::Status::IOError("the list of its files cannot be written");
  }
  std::error_code code;
  bool good = status.ok();
  if (good && (chmod(copy.c_str(), 0700) != 0 || std::rename(copy.c_str(), target.c_str()) != 0)) {
    code.assign(errno, std::generic_category());
    good = false;
  }
  good = good && sync_to_disk(parent_of(target), code);
  std::error_code ignored;
  std::filesystem::remove_all(room, ignored);
  if (good) return true;
  const std::string why = status.ok() ? code.message() : status.ToString();
  // What is in memory goes to the store's own disk first.
  if (status.ok() || why.find(room) != std::string::npos) return fail(why);
  error =
      called(path) + " cannot be copied to " + to + ": " + why + ": this is the store's own disk";
  return false;
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

std::string records_end(JobId job) {
  return record_key(job, UINT64_MAX) + '\0';
}

JobId job_of(const rocksdb::Slice& key) {
  return key.size() < 4 ? 0 : static_cast<JobId>(read_big_endian(key.data(), 4));
}

Sequence sequence_of(const rocksdb::Slice& record_key) {
  return record_key.size() != 12 ? 0 : read_big_endian(record_key.data() + 4, 8);
}

}  // namespace syncd::store
