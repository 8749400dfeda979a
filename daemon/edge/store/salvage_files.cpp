// See salvage_files.h.
#include "daemon/edge/store/salvage_files.h"

#include <rocksdb/sst_file_reader.h>
#include <rocksdb/table_properties.h>
#include <rocksdb/write_batch.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/rocks_log.h"

namespace syncd::store {
namespace {

constexpr Sequence kExactSteps = 4096;
constexpr std::size_t kCollectedBytes = 1024 * 1024;

class Collection {
 public:
  Collection(const std::string& path, const Database& to, std::vector<std::string>& lost,
             const std::function<void()>& go_on)
      : path_(path), to_(to), lost_(lost), go_on_(go_on) {}

  bool run(std::string& error) {
    rocksdb::Env* env = rocksdb::Env::Default();
    for (const std::string& name : table_files(env, path_)) {
      if (!take_table(name)) {
        error = problem_;
        return false;
      }
    }
    read_log(
        env, path_, [this](const LoggedWrite& write) { take(write); }, lost_);
    for (const auto& [key, value] : snapshots_) {
      batch_.Put(to_.families[kSnapshots], key, value.second);
    }
    for (const auto& [key, value] : removed_) batch_.Put(to_.families[kMeta], key, value);
    for (const auto& [key, value] : kept_) batch_.Put(to_.families[kMeta], key, value.second);
    write();
    error = problem_;
    return problem_.empty();
  }

 private:
  bool take_table(const std::string& name) {
    rocksdb::SstFileReader reader{rocksdb::Options()};
    if (const auto status = reader.Open(path_ + "/" + name); !status.ok()) {
      lost_.push_back(name + ": " + status.ToString());
      return true;
    }
    const auto properties = reader.GetTableProperties();
    if (properties == nullptr || properties->column_family_name.empty()) {
      lost_.push_back(name + ": it does not say what it holds");
      return true;
    }
    const auto family = family_called(properties->column_family_name);
    if (!family) {
      problem_ =
          newer_store(path_, "has the column family '" + properties->column_family_name + "'");
      return false;
    }
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    options.fill_cache = false;
    Searching it([&] { return std::unique_ptr<rocksdb::Iterator>(reader.NewIterator(options)); });
    std::string last;
    for (it->SeekToFirst();;) {
      if (!it->Valid()) {
        if (it->status().ok()) break;
        const std::string why = it->status().ToString();
        const bool found = seek_next(it, *family, last) && it->Valid();
        lost_.push_back(name + ": its " + properties->column_family_name + " from " +
                        (last.empty() ? "the first" : "the one after " + key_text(last)) + " to " +
                        (found ? "the one before " + first_text(it) : "the last") +
                        " cannot be read: " + why);
        if (!found) break;
      }
      last = it->key().ToString();
      put(*family, last, it->value().ToString());
      it->Next();
    }
    return problem_.empty();
  }

  static std::string key_text(const rocksdb::Slice& key) {
    const std::string job = "job #" + std::to_string(job_of(key));
    if (key.size() == 4) return job;
    if (key.size() == 12) return job + ", record " + std::to_string(sequence_of(key));
    return "'" + key.ToString(true) + "'";
  }

  // Of what a key stands for that holds several records.
  static std::string first_text(Searching& it) {
    if (it->key().size() != 12) return key_text(it->key());
    return key_text(record_key(job_of(it->key()), first_in(it->key(), it->value())));
  }

  void take(const LoggedWrite& write) {
    if (write.family >= kFamilies) return;
    const auto family = static_cast<ColumnFamily>(write.family);
    switch (write.kind) {
      case LoggedWrite::Kind::kPut:
        return put(family, write.key, write.value);
      case LoggedWrite::Kind::kDelete:
        snapshots_.erase(family == kSnapshots ? write.key : std::string());
        removed_.erase(family == kMeta ? write.key : std::string());
        kept_.erase(family == kMeta ? write.key : std::string());
        batch_.Delete(to_.families[family], write.key);
        break;
      case LoggedWrite::Kind::kDeleteRange:
        batch_.DeleteRange(to_.families[family], write.key, write.value);
        break;
    }
    write_if_large(kCollectedBytes);
  }

  void put(ColumnFamily family, const std::string& key, const std::string& value) {
    if (go_on_) go_on_();
    if (family == kSnapshots) {
      JobSnapshot snapshot;
      std::string ignored;
      if (!decode_snapshot(bytes_of(value), snapshot, ignored)) return;
      auto& [sequence, kept] = snapshots_[key];
      if (kept.empty() || snapshot.sequence > sequence) {
        sequence = snapshot.sequence;
        kept = value;
      }
      return;
    }
    if (family == kMeta && is_kept_key(key)) {
      KeptCheckpoint kept;
      std::string ignored;
      if (!decode_kept(bytes_of(value), kept, ignored)) return;
      const auto at = std::pair(kept.checkpoint.epoch, kept.checkpoint.number);
      auto& [latest, bytes] = kept_[key];
      if (bytes.empty() || at >= latest) {
        latest = at;
        bytes = value;
      }
      return;
    }
    if (family == kMeta && says_what_was_removed(key)) {
      // Big-endian numbers of one length, or decimal ones, which rise.
      std::string& kept = removed_[key];
      if (std::pair(value.size(), value) > std::pair(kept.size(), kept)) kept = value;
      return;
    }
    batch_.Put(to_.families[family], key, value);
    write_if_large(kCollectedBytes);
  }

  void write_if_large(std::size_t bytes) {
    if (batch_.GetDataSize() > bytes) write();
  }

  void write() {
    rocksdb::WriteOptions options;
    options.disableWAL = true;  // it is there for the time of a salvage
    const rocksdb::Status status = to_.db->Write(options, &batch_);
    batch_.Clear();
    if (!status.ok() && problem_.empty()) {
      problem_ = "what is good in store " + path_ + " cannot be collected: " + status.ToString();
    }
  }

  const std::string& path_;
  const Database& to_;
  std::vector<std::string>& lost_;
  const std::function<void()>& go_on_;
  rocksdb::WriteBatch batch_;
  std::map<std::string, std::pair<Sequence, std::string>> snapshots_;  // by key
  std::map<std::string, std::string> removed_;                         // of meta, by key
  // Likewise the checkpoints of removed jobs.
  std::map<std::string, std::pair<std::pair<Epoch, std::uint64_t>, std::string>> kept_;
  std::string problem_;
};

}  // namespace

bool seek_beyond(const std::function<bool(Sequence)>& seek, Sequence& n, Sequence most) {
  Sequence damaged = 0;
  for (n = 1; n <= std::min(kExactSteps, most); ++n) {
    if (seek(n)) return true;
    damaged = n;
  }
  for (n = std::min(2 * kExactSteps, most); !seek(n); n = std::min(2 * n, most)) {
    if (n == most) return false;
    damaged = n;
  }
  while (n - damaged > 1) {
    const Sequence middle = damaged + (n - damaged) / 2;
    (seek(middle) ? n : damaged) = middle;
  }
  return seek(n);
}

bool seek_next(Searching& it, ColumnFamily family, const std::string& last) {
  const bool by_record = family == kRecords && (last.empty() || last.size() == 12);
  const bool by_job =
      (family == kJobs || family == kSnapshots) && (last.empty() || last.size() == 4);
  if (!by_record && !by_job) return false;
  Sequence n = 0;
  const auto of_job = [&](JobId job, Sequence after) {
    const auto seek = [&](Sequence step) { return it.seek(record_key(job, after + step)); };
    return seek_beyond(seek, n, std::min(kStepMax, UINT64_MAX - after));
  };
  const JobId after = last.empty() ? 0 : job_of(last);
  if (by_record && !last.empty() && of_job(after, sequence_of(last))) return true;
  // Some of a job's records may lie where they can be read.
  const auto seek_job = [&](Sequence step) {
    const auto job = static_cast<JobId>(after + step);
    if (by_job) return it.seek(job_key(job));
    for (Sequence from = 1; from < kStepMax; from *= 2) {
      if (it.seek(record_key(job, from))) return true;
    }
    return it.seek(records_end(job));
  };
  if (!seek_beyond(seek_job, n, UINT32_MAX - after)) return false;
  return by_job || of_job(static_cast<JobId>(after + n), 0) || it.seek(records_end(after + n));
}

bool shows_all(const Database& from, const std::string& path, std::string& why) {
  std::vector<rocksdb::LiveFileMetaData> live;
  from.db->GetLiveFilesMetaData(&live);
  std::set<std::string> names;
  for (const rocksdb::LiveFileMetaData& file : live) {
    const std::string name = file.name.substr(file.name.find_first_not_of('/'));
    names.insert(name);
    rocksdb::SstFileReader reader{rocksdb::Options()};
    if (const auto status = reader.Open(path + "/" + name); !status.ok()) {
      why = name + ": " + status.ToString();
      return false;
    }
  }
  for (const std::string& name : table_files(rocksdb::Env::Default(), path)) {
    if (names.contains(name)) continue;
    why = name + " is in no list of files: what can be read of it is taken in";
    return false;
  }
  return true;
}

bool collect_files(const std::string& path, const Database& to, std::vector<std::string>& lost,
                   const std::function<void()>& go_on, std::string& error) {
  return Collection(path, to, lost, go_on).run(error);
}

}  // namespace syncd::store
