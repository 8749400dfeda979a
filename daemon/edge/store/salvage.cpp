// See salvage.h.
#include "daemon/edge/store/salvage.h"

#include <fcntl.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <system_error>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/rocks_database.h"
#include "daemon/edge/store/rocks_log.h"
#include "daemon/edge/store/salvage_files.h"
#include "proto/base/file.h"

namespace syncd::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatchBytes = 1024 * 1024;

std::string range_text(Sequence first, Sequence last) {
  return first == last ? "record " + std::to_string(first)
                       : "records " + std::to_string(first) + " to " + std::to_string(last);
}

// Records without a gap, all of them good.
struct Run {
  Sequence first = 0;
  Sequence last = 0;
};

class Salvage {
 public:
  Salvage(const Database& from, const LogReport& log, const Database& to, Salvaged& out,
          const std::function<void()>& progress)
      : from_(from), log_(log), to_(to), out_(out), progress_(progress) {}

  bool run(std::string& error) {
    std::string unreadable;
    if (!read_extents(from_, "", extents_, unreadable)) extents_.clear();
    if (!read_removed_epoch(from_, "", lost_epoch_, unreadable)) lost_epoch_ = 0;
    for (const JobId job : all_jobs()) {
      if (!salvage(job)) {
        error = problem_;
        return false;
      }
    }
    if (!salvage_kept()) {
      error = problem_;
      return false;
    }
    if (lost_epoch_ == 0) return true;
    rocksdb::WriteBatch batch;
    batch.Put(to_.families[kMeta], kRemovedEpochKey, std::to_string(lost_epoch_));
    const bool written = write(batch);
    error = problem_;
    return written;
  }

 private:
  // Checkpoints of jobs that retention has removed.
  bool salvage_kept() {
    bool good = true;
    RecordEncoder encoder;
    const auto take = [&](KeptCheckpoint&& kept, const std::string& why) {
      if (!why.empty()) {
        out_.files.push_back("the checkpoint of removed job '" + kept.job + "': " + why);
        return;
      }
      const auto bytes = encoder.encode(kept);
      rocksdb::WriteBatch batch;
      batch.Put(to_.families[kMeta], kept_key(kept.job),
                rocksdb::Slice(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      good = good && write(batch);
    };
    std::string unreadable;
    if (!read_kept(from_, "", take, unreadable)) out_.files.push_back(unreadable);
    return good;
  }

  Searching iterate(ColumnFamily family) {
    return Searching([this, family] {
      return std::unique_ptr<rocksdb::Iterator>(from_.db->NewIterator({}, from_.families[family]));
    });
  }

  std::set<JobId> all_jobs() {
    std::set<JobId> jobs;
    for (const auto& [job, latest] : log_.latest) jobs.insert(job);
    for (const ColumnFamily family : {kJobs, kSnapshots, kRecords}) {
      Searching it = iterate(family);
      JobId next = 0;
      it.seek(job_key(next));
      while (it->Valid() || seek_a_job(it, family, next)) {
        jobs.insert(job_of(it->key()));
        next = job_of(it->key()) + 1;
        it.seek(job_key(next));
      }
    }
    return jobs;
  }

  // To anything that can be read of the next job, from `next` on. False: there is none, or what
  // cannot be read goes on for too long.
  bool seek_a_job(Searching& it, ColumnFamily family, JobId next) {
    if (it->status().ok()) return false;
    out_.files.push_back("the " + std::string(family_name(family)) + " from job #" +
                         std::to_string(next) + " on: " + it->status().ToString());
    std::string last;
    if (next > 0) last = family == kRecords ? record_key(next - 1, UINT64_MAX) : job_key(next - 1);
    return seek_next(it, family, last) && it->Valid();
  }

  bool salvage(JobId id) {
    SalvagedJob job;
    job.id = id;
    const std::optional<JobSnapshot> snapshot = read_snapshot(id, job);
    const std::optional<Record> creation = read_creation(id, snapshot, job);
    find_runs(id);
    if (creation) job.name = creation->name;
    Run keep;
    const bool recovered = creation && choose(snapshot, keep);
    if (!recovered) {
      job.what.emplace_back("the whole job: neither a snapshot nor its first record is left");
    }
    // What was collected of single files may be older than what retention has left.
    const auto extent = extents_.find(id);
    if (extent != extents_.end() && extent->second.first <= keep.last) {
      keep.first = std::max(keep.first, extent->second.first);
    }
    account(recovered ? keep : Run{}, job);
    if (creation) epoch_ = std::max(epoch_, creation->epoch);
    if (snapshot) epoch_ = std::max(epoch_, snapshot->epoch);
    // No later job may take up an epoch that this one had reached.
    if (!job.what.empty()) lost_epoch_ = std::max(lost_epoch_, epoch_);
    if (!job.what.empty()) out_.jobs.push_back(job);
    return !recovered || copy(*creation, snapshot, keep);
  }

  std::optional<JobSnapshot> read_snapshot(JobId id, SalvagedJob& job) {
    std::string value;
    std::string why;
    const rocksdb::Status status =
        from_.db->Get({}, from_.families[kSnapshots], job_key(id), &value);
    if (status.IsNotFound()) return {};
    JobSnapshot snapshot;
    if (!status.ok()) {
      why = status.ToString();
    } else if (decode_snapshot(bytes_of(value), id, snapshot, why)) {
      return snapshot;
    }
    job.what.push_back("the snapshot: " + why);
    return {};
  }

  std::optional<Record> read_creation(JobId id, const std::optional<JobSnapshot>& snapshot,
                                      SalvagedJob& job) {
    std::string value;
    std::string ignored;
    Record record;
    if (from_.db->Get({}, from_.families[kJobs], job_key(id), &value).ok() &&
        decode_creation(bytes_of(value), id, record, ignored)) {
      return record;
    }
    job.what.emplace_back("the creation record among the jobs");
    RecordIterator it(from_, id);
    if (it.seek(id, 1) && it.valid() && decode_creation(it.bytes(), id, record, ignored)) {
      return record;
    }
    if (snapshot) return snapshot->created;
    return {};
  }

  // Fills runs_ and why_, which says of the record after each run (of the first, at 0) why it is
  // not good.
  void find_runs(JobId id) {
    runs_.clear();
    why_.clear();
    epoch_ = 0;
    const auto logged = log_.latest.find(id);
    highest_ = logged == log_.latest.end() ? 0 : logged->second;
    RecordIterator it(from_, id);
    Sequence due = 1;
    for (it.seek(id, 0);;) {
      if (!it.valid()) {
        if (it.status().ok() || !skip(it, id, due)) return;
        continue;
      }
      go_on();
      const Sequence sequence = it.sequence();
      highest_ = std::max(highest_, sequence);
      Record record;
      std::string why;
      if (decode_record(it.bytes(), id, sequence, record, why)) {
        epoch_ = std::max(epoch_, record.epoch);
        if (runs_.empty() || sequence != runs_.back().last + 1) runs_.push_back({sequence, 0});
        runs_.back().last = sequence;
      } else {
        note(sequence, "record " + std::to_string(sequence) + ": " + why);
      }
      due = sequence + 1;
      it.next();
    }
  }

  // To the first record from `due` on that can be read.
  bool skip(RecordIterator& it, JobId id, Sequence& due) {
    note(due, it.status().ToString());
    highest_ = std::max(highest_, due);
    Sequence n = 0;
    // The first value that can be read may begin with records before its key: all of it counts.
    const auto seek = [&](Sequence step) { return it.seek(id, due + step, due); };
    if (!seek_beyond(seek, n)) return false;
    due += n;
    return true;
  }

  void note(Sequence sequence, std::string why) { why_.emplace_back(sequence, std::move(why)); }

  // The run that a daemon can start with.
  bool choose(const std::optional<JobSnapshot>& snapshot, Run& keep) const {
    if (!snapshot) {
      if (runs_.empty() || runs_.front().first != 1) return false;
      keep = runs_.front();
      return true;
    }
    const Sequence at = snapshot->sequence;
    keep = {at + 1, at};
    for (const Run& run : runs_) {
      if (run.first <= at + 1 && run.last >= at) keep = run;
    }
    return true;
  }

  void account(const Run& keep, SalvagedJob& job) {
    const auto extent = extents_.find(job.id);
    const Sequence due = extent == extents_.end() ? 1 : extent->second.first;
    const bool any = keep.first != 0 && keep.first <= keep.last;
    if (any) {
      job.first = keep.first;
      job.last = keep.last;
    }
    const auto dropped = [&](Sequence first, Sequence last) {
      if (first > last) return;
      job.dropped += last - first + 1;
      std::string text = range_text(first, last);
      const auto why = std::find_if(why_.begin(), why_.end(), [&](const auto& one) {
        return one.first >= first && one.first <= last;
      });
      if (why != why_.end()) {
        text += ": " + why->second;
      } else if (log_.state == LogState::kDamaged && log_.latest.contains(job.id)) {
        text += ": the log " + log_.cut.file + " is damaged at byte " + std::to_string(log_.cut.at);
      } else {
        text += ": not all of them are there";
      }
      job.what.push_back(std::move(text));
    };
    if (keep.first == 0) return dropped(due, highest_);
    if (keep.first > due) dropped(due, keep.first - 1);
    dropped(keep.last + 1, highest_);
  }

  bool copy(const Record& creation, const std::optional<JobSnapshot>& snapshot, const Run& keep) {
    rocksdb::WriteBatch batch;
    RecordEncoder encoder;
    const auto slice = [](std::span<const std::uint8_t> bytes) {
      return rocksdb::Slice(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    const JobId id = creation.job;
    batch.Put(to_.families[kJobs], job_key(id), slice(encoder.encode(creation)));
    Extent extent;
    extent.first = keep.first;
    RecordIterator it(from_, id);
    GroupWriter groups(to_, batch);
    Sequence copied = keep.first - 1;
    for (it.seek(id, keep.first); copied < keep.last && it.valid(); it.next()) {
      go_on();
      copied = it.sequence();
      groups.add(id, copied, it.bytes());
      extent.bytes += it.bytes().size();
      if (snapshot && copied == snapshot->sequence) {
        extent.marks.push_back({snapshot->sequence, snapshot->time_us, extent.bytes});
      }
      if (batch.GetDataSize() > kBatchBytes && !write(batch)) return false;
    }
    groups.finish();
    // What could be read a moment ago.
    if (copied < keep.last) {
      problem_ = it.status().ToString();
      return false;
    }
    if (keep.first > 1) batch.Put(to_.families[kMeta], first_key(id), first_value(extent));
    for (const Mark& mark : extent.marks) {
      batch.Put(to_.families[kMeta], mark_key(id, mark.sequence), mark_value(mark));
    }
    if (snapshot) {
      batch.Put(to_.families[kSnapshots], job_key(id), slice(encoder.encode(*snapshot)));
    }
    return write(batch);
  }

  void go_on() {
    if (progress_ && ++seen_ % kProgressEvery == 0) progress_();
  }

  bool write(rocksdb::WriteBatch& batch) {
    rocksdb::WriteOptions options;
    options.sync = true;
    const rocksdb::Status status = to_.db->Write(options, &batch);
    batch.Clear();
    if (!status.ok()) problem_ = status.ToString();
    return status.ok();
  }

  const Database& from_;
  const LogReport& log_;
  const Database& to_;
  Salvaged& out_;
  const std::function<void()>& progress_;
  std::uint64_t seen_ = 0;
  std::map<JobId, Extent> extents_;
  std::vector<Run> runs_;                              // of the job at hand
  std::vector<std::pair<Sequence, std::string>> why_;  // records that are not good
  Sequence highest_ = 0;
  Epoch epoch_ = 0;       // the highest of the job that is looked at
  Epoch lost_epoch_ = 0;  // of jobs that were removed, or of which something is lost
  std::string problem_;
};

// The store as far as it can be read: as RocksDB shows it or, where that hides files that can be
// read, collected in `room`. Null, with a sentence in `error`: a newer version wrote it, or there
// is no room.
std::unique_ptr<Database> open_damaged(const std::string& path, const std::string& room,
                                       const LogReport& log,
                                       const std::vector<std::string>& missing, Salvaged& salvaged,
                                       const std::function<void()>& progress, std::string& error) {
  Options options{.path = path, .read_only = true};
  options.skip_damage = true;
  std::string why;
  auto shown = open_database(options, why);
  // Of a damaged log RocksDB leaves out what is whole in the rest of the block.
  const bool log_is_damaged = log.state == LogState::kDamaged;
  if (shown != nullptr && shows_all(*shown, path, why) && !log_is_damaged) return shown;
  std::vector<std::string> families;
  if (shown == nullptr && rocksdb::DB::ListColumnFamilies({}, path, &families).ok()) {
    for (const std::string& family : families) {
      if (family_called(family)) continue;
      error = newer_store(path, "has the column family '" + family + "'");
      return nullptr;
    }
  }
  shown.reset();
  auto collected = open_database({.path = room}, error);
  if (collected == nullptr) return nullptr;
  std::uint64_t seen = 0;
  const auto go_on = [&] {
    if (progress && ++seen % kProgressEvery == 0) progress();
  };
  if (!collect_files(path, *collected, salvaged.files, go_on, error)) return nullptr;
  options.path = path;
  if (!check_format(*collected, options, error)) return nullptr;
  if (salvaged.files.empty() && missing.empty() && !log_is_damaged) {
    if (why.ends_with(after_damage())) why.resize(why.size() - after_damage().size());
    salvaged.files.push_back(why);
  }
  return collected;
}

bool is_sound(const std::string& path, const std::function<void()>& progress) {
  StoreCheck check;
  std::string ignored;
  return check_store(path, check, ignored, progress) && check.sound();
}

std::string unused_name(const std::string& path) {
  std::error_code code;
  std::string name = path + kDamaged;
  for (int i = 2; fs::exists(name, code); ++i) name = path + kDamaged + "-" + std::to_string(i);
  return name;
}

int exchange(const std::string& one, const std::string& other) {
  return renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0 ? 0
                                                                                         : errno;
}

// Puts the store that was made in the damaged one's place, and that one under the name `damaged`.
// There is a store at `path` at any time, but on the few file systems that cannot exchange two
// names: between two renames there is none there, which open_database() refuses to pass over.
bool put_in_place(const std::string& made, const std::string& path, const std::string& damaged,
                  std::error_code& code) {
  const std::string parent = parent_of(path);
  // Under `damaged` first, so that nothing takes the damaged store for one that was half made.
  fs::rename(made, damaged, code);
  if (code || !sync_to_disk(parent, code)) return false;
  const int why = exchange(damaged, path);
  if (why == EINVAL || why == ENOSYS || why == EOPNOTSUPP) {
    fs::rename(damaged, made, code);
    if (!code) fs::rename(path, damaged, code);
    if (!code) fs::rename(made, path, code);
  } else {
    code.assign(why, std::generic_category());
    std::error_code ignored;
    if (why != 0) fs::rename(damaged, made, ignored);  // which is not the damaged one
  }
  return !code && sync_to_disk(parent, code);
}

}  // namespace

bool salvage_store(const std::string& directory, Salvaged& salvaged, std::string& error,
                   const std::function<void()>& progress) {
  salvaged = {};
  std::error_code code;
  // What a link leads to is put in order where it lies: its file system may be the one with room.
  const fs::path resolved = fs::canonical(directory, code);
  const std::string path = code ? directory_name(directory) : resolved.string();
  // A store that is not there, or of which nothing was written, opens as ever.
  rocksdb::Env* env = rocksdb::Env::Default();
  const std::vector<std::string> missing = missing_files(env, path);
  const bool is_store = fs::exists(path + "/CURRENT", code) || !missing.empty();
  if (!is_store || is_sound(path, progress)) return true;
  salvaged.needed = true;
  if (is_mount_point(path)) {
    error = "store " + path +
            " is where a file system is mounted, and nothing can be put in its place: move its "
            "files to a directory within it, and name that one";
    return false;
  }
  rocksdb::FileLock* lock = nullptr;
  if (const auto status = env->LockFile(path + "/LOCK", &lock); !status.ok()) {
    error = "store " + path + " is in use by another process: stop that one (" + status.ToString() +
            ")";
    return false;
  }
  const auto finish = [&](bool good) {
    env->UnlockFile(lock).PermitUncheckedError();
    std::error_code ignored;
    fs::remove_all(path + kSalvaging + "-files", ignored);
    if (!good) fs::remove_all(path + kSalvaging, ignored);
    return good;
  };
  const std::string target = path + kSalvaging;
  // What is collected of single files: nothing of it is left at the end.
  const std::string room = target + "-files";
  fs::remove_all(target, code);
  fs::remove_all(room, code);
  {
    LogReport log;
    if (!examine_log(env, path, log, error)) return finish(false);
    const auto from = open_damaged(path, room, log, missing, salvaged, progress, error);
    if (from == nullptr) return finish(false);
    auto to = open_database({.path = target}, error);
    if (to == nullptr) return finish(false);
    for (const std::string& one : missing) {
      const auto names_it = [&](const std::string& told) {
        return one.find(told.substr(0, told.find(':'))) != std::string::npos;
      };
      if (std::none_of(salvaged.files.begin(), salvaged.files.end(), names_it)) {
        salvaged.files.push_back(one);
      }
    }
    if (log.state == LogState::kDamaged) {
      for (const Stretch& lost : log.unreadable) {
        salvaged.files.push_back(lost.file + ": of its log the " + std::to_string(lost.bytes) +
                                 " bytes from byte " + std::to_string(lost.at) +
                                 " on cannot be read");
      }
    }
    if (!Salvage(*from, log, *to, salvaged, progress).run(error)) {
      error = "what is good in store " + path + " cannot be copied to " + target + ": " + error;
      return finish(false);
    }
    close_in_order(std::move(to), {.path = target});
  }
  salvaged.damaged_path = unused_name(path);
  if (!put_in_place(target, path, salvaged.damaged_path, code)) {
    error = "what is good in store " + path + " cannot be put in its place by way of " + target +
            " and " + salvaged.damaged_path + ": " + code.message();
    return finish(false);
  }
  return finish(true);
}

}  // namespace syncd::store
