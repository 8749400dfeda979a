// See maintenance.h.
#include "daemon/edge/store/maintenance.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/record_groups.h"
#include "daemon/edge/store/rocks_database.h"
#include "proto/base/file.h"

namespace syncd::store {
namespace {

constexpr std::size_t kCopyBytes = 1024 * 1024;

namespace fs = std::filesystem;

class Checker {
 public:
  Checker(const std::string& path, const Database& database, const std::function<void()>& progress)
      : path_(path), database_(database), progress_(progress) {}

  bool run(StoreCheck& check, std::string& error) {
    if (!read_extents(database_, path_, extents_, error)) return false;
    const bool read =
        each(kJobs, [this](auto key, auto value) { look_at_creation(key, value); }) &&
        each(kSnapshots, [this](auto key, auto value) { look_at_snapshot(key, value); }) &&
        each_record();
    if (!read) {
      error = "store " + path_ + " cannot be read to its end: " + problem_ + ": restore a backup";
      return false;
    }
    const auto take_kept = [&](KeptCheckpoint&& kept, const std::string& why) {
      ++check.kept_checkpoints;
      if (why.empty() || check.problems.size() == kProblemsMax) return;
      check.problems.push_back("the checkpoint of removed job '" + kept.job + "': " + why);
    };
    if (!read_kept(database_, path_, take_kept, error)) return false;
    for (auto& [id, job] : jobs_) {
      if (job.name.empty()) blame(job, "its creation record is missing or damaged");
      const Sequence first = extents_[id].first;
      if (job.records == 0) job.last = first - 1;
      if (job.records == 0 && job.snapshot == 0) blame(job, "all its records are missing");
      if (first > 1 && first > job.snapshot + 1) {
        blame(job, "records up to " + std::to_string(first - 1) +
                       " were removed, but its snapshot stands at record " +
                       std::to_string(job.snapshot));
      }
      if (job.snapshot > job.last) {
        blame(job, "its snapshot stands at record " + std::to_string(job.snapshot) +
                       ", its last record is " + std::to_string(job.last));
      }
      if (omitted_[id] > 0) {
        job.problems.push_back("and " + std::to_string(omitted_[id]) + " more");
      }
      check.jobs.push_back(std::move(job));
    }
    return true;
  }

 private:
  template <class Look>
  bool each(ColumnFamily family, const Look& look) {
    const std::unique_ptr<rocksdb::Iterator> it(
        database_.db->NewIterator({}, database_.families[family]));
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      look(it->key(), it->value());
      go_on();
    }
    problem_ = it->status().ToString();
    return it->status().ok();
  }
  bool each_record() {
    RecordIterator it(database_);
    for (it.seek(0, 0); it.valid(); it.next()) {
      look_at_record(it);
      go_on();
    }
    problem_ = it.status().ToString();
    return it.status().ok();
  }
  void go_on() {
    if (progress_ && ++seen_ % kProgressEvery == 0) progress_();
  }

  JobCheck& job(JobId id) {
    JobCheck& job = jobs_[id];
    job.id = id;
    return job;
  }
  void blame(JobCheck& job, std::string problem) {
    if (job.problems.size() < kProblemsMax) {
      job.problems.push_back(std::move(problem));
    } else {
      ++omitted_[job.id];
    }
  }

  void look_at_creation(const rocksdb::Slice& key, const rocksdb::Slice& value) {
    Record record;
    std::string why;
    JobCheck& of = job(job_of(key));
    if (!decode_creation(bytes_of(value), of.id, record, why)) {
      return blame(of, "creation record: " + why);
    }
    of.name = record.name;
  }

  void look_at_snapshot(const rocksdb::Slice& key, const rocksdb::Slice& value) {
    JobSnapshot snapshot;
    std::string why;
    JobCheck& of = job(job_of(key));
    if (!decode_snapshot(bytes_of(value), of.id, snapshot, why)) {
      return blame(of, "snapshot: " + why);
    }
    of.snapshot = snapshot.sequence;
  }

  void look_at_record(const RecordIterator& it) {
    const Sequence sequence = it.sequence();
    const Sequence first = extents_[it.job()].first;
    // What a cut has left of the value that it went through.
    if (sequence < first && first <= it.group_last()) return;
    JobCheck& of = job(it.job());
    if (of.records == 0) of.first = sequence;
    const Sequence due = of.records == 0 ? first : of.last + 1;
    if (sequence < due) {
      blame(of, "record " + std::to_string(sequence) + " was removed and is there");
    } else if (sequence != due) {
      blame(of, due + 1 == sequence ? "record " + std::to_string(due) + " is missing"
                                    : "records " + std::to_string(due) + " to " +
                                          std::to_string(sequence - 1) + " are missing");
    }
    ++of.records;
    of.last = sequence;
    of.bytes += it.bytes().size();
    Record record;
    std::string why;
    if (!decode_record(it.bytes(), of.id, sequence, record, why)) {
      blame(of, "record " + std::to_string(sequence) + ": " + why);
    }
  }

  const std::string& path_;
  const Database& database_;
  const std::function<void()>& progress_;
  std::uint64_t seen_ = 0;
  std::map<JobId, Extent> extents_;  // of those that retention has cut
  std::map<JobId, JobCheck> jobs_;
  std::map<JobId, std::uint64_t> omitted_;
  std::string problem_;
};

std::uint64_t bytes_in(const std::string& path) {
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored)) {
    if (entry.is_regular_file(ignored)) bytes += entry.file_size(ignored);
  }
  return bytes;
}

// A store that is there, to be changed. Null: `error` says why not.
std::unique_ptr<Database> open_existing(const std::string& path, std::string& error) {
  struct stat info {};
  if (stat((path + "/CURRENT").c_str(), &info) == 0) return open_database({.path = path}, error);
  error = "there is no store in " + path + ": " + std::strerror(errno);
  return nullptr;
}

// Copies a file's bytes, and returns when the disk has them. False: errno says why.
// (std::filesystem's copy says EIO for a disk that is full.)
bool copy_synced(const fs::path& from, const fs::path& to, std::error_code& code) {
  const UniqueFd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  UniqueFd out;
  if (in && fstat(in.get(), &info) == 0) {
    out.reset(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, info.st_mode));
  }
  ssize_t sent = out ? 1 : -1;
  while (sent > 0) sent = ::sendfile(out.get(), in.get(), nullptr, kCopyBytes);
  if (sent == 0 && ::fsync(out.get()) == 0) return true;
  code.assign(errno, std::generic_category());
  return false;
}

// All regular files but RocksDB's lock and logs, each on the disk when this returns.
bool copy_files(const fs::path& from, const fs::path& to, std::string& error) {
  std::error_code code;
  bool good = true;
  fs::directory_iterator entry(from, code);
  for (; good && !code && entry != fs::directory_iterator(); entry.increment(code)) {
    const std::string name = entry->path().filename();
    const bool wanted = entry->is_regular_file(code) && name != "LOCK" && !name.starts_with("LOG");
    good = !code && (!wanted || copy_synced(entry->path(), to / name, code));
    if (!good) break;
  }
  if (good && !code && sync_to_disk(to, code)) return true;
  error = "the files of " + from.string() + " cannot be copied to " + to.string() + ": " +
          code.message();
  return false;
}

bool check_copy(const std::string& backup, const std::string& copy, std::string& error) {
  StoreCheck check;
  if (!check_store(copy, check, error)) return false;
  if (check.sound()) return true;
  error = "what was copied from the backup " + backup + " to " + copy +
          " does not read as it was written: try again, on another disk if it fails again";
  return false;
}

}  // namespace

bool check_store(const std::string& path, StoreCheck& check, std::string& error,
                 const std::function<void()>& progress) {
  check = {};
  const auto database = open_database({.path = path, .read_only = true}, error);
  return database != nullptr && Checker(path, *database, progress).run(check, error);
}

bool backup_store(const std::string& path, const std::string& to, std::string& error) {
  auto database = open_existing(path, error);
  if (database == nullptr) return false;
  const bool made = checkpoint(*database, path, to, error);
  close_in_order(std::move(database), {.path = path});
  return made;
}

bool restore_store(const std::string& backup, const std::string& given, std::string& error) {
  std::error_code resolving;
  const fs::path resolved = fs::canonical(given, resolving);
  const std::string path = resolving ? given : resolved.string();
  if (resolving && fs::is_symlink(directory_name(given))) {
    error = given + " is a link to nothing: make what it is to lead to, or name another directory";
    return false;
  }
  StoreCheck check;
  if (!check_store(backup, check, error)) return false;
  if (!check.sound()) {
    error = "the backup " + backup + " is damaged (syncctl store check " + backup +
            " says where): use another one";
    return false;
  }
  std::error_code code;
  if (fs::exists(path, code) && !fs::is_empty(path, code)) {
    error = path + " is there already and is not empty: move it away, or name another directory";
    return false;
  }
  if (is_mount_point(path)) {
    error = path +
            " is where a file system is mounted, and nothing can be put in its place: name a "
            "directory within it that is not there yet";
    return false;
  }
  // Under another name until all of it is there.
  const fs::path target(directory_name(path));
  const fs::path partial = target.string() + kRestoring;
  fs::remove_all(partial, code);
  if (mkdir(partial.c_str(), 0700) != 0) {
    error = partial.string() + " cannot be made: " + std::strerror(errno);
    return false;
  }
  if (!copy_files(backup, partial, error) || !check_copy(backup, partial, error)) {
    fs::remove_all(partial, code);
    return false;
  }
  fs::rename(partial, target, code);
  if (code) {
    error = partial.string() + " cannot be renamed to " + target.string() + ": " + code.message();
    fs::remove_all(partial, code);
    return false;
  }
  if (sync_to_disk(parent_of(target), code)) return true;
  error = target.string() + " is restored, but not yet safe from a power cut: " + code.message();
  return false;
}

bool compact_store(const std::string& path, std::uint64_t& before, std::uint64_t& after,
                   std::string& error) {
  before = bytes_in(path);
  auto database = open_existing(path, error);
  if (database == nullptr) return false;
  for (auto* family : database->families) {
    rocksdb::CompactRangeOptions options;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    const rocksdb::Status status = database->db->CompactRange(options, family, nullptr, nullptr);
    if (status.ok()) continue;
    error = "store " + path + " cannot be compacted: " + status.ToString();
    return false;
  }
  close_in_order(std::move(database), {.path = path});
  after = bytes_in(path);
  return true;
}

}  // namespace syncd::store
