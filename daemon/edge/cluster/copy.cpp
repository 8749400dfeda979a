// See copy.h.
#include "daemon/edge/cluster/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "daemon/edge/cluster/log_records.h"
#include "proto/base/clock.h"
#include "proto/base/file.h"

namespace syncd::cluster {
namespace {

// A member whose disk takes nothing for so long leaves leading to others.
constexpr Micros kDiskTimeout = 20'000'000;
constexpr Micros kProgressEvery = 1'000'000;
// Of snapshots that are handed to the disk at one time.
constexpr std::size_t kSnapshotsBytes = 8 << 20;

// Behind a copy's path, and before its generation and the time.
const std::string kSetAside = ".set_aside-";

// 0: there is none of the job.
Sequence sequence_of(const std::map<JobId, Sequence>& known, JobId job) {
  const auto found = known.find(job);
  return found == known.end() ? 0 : found->second;
}

// Of the files in a directory.
std::uint64_t bytes_of(const std::string& directory) {
  std::uint64_t bytes = 0;
  std::error_code ignored;
  std::filesystem::recursive_directory_iterator each(directory, ignored);
  for (; !ignored && each != std::filesystem::end(each); each.increment(ignored)) {
    std::error_code gone;
    const std::uint64_t size = each->is_regular_file(gone) ? each->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

std::vector<std::filesystem::path> set_aside_of(const std::string& path) {
  const std::string prefix = std::filesystem::path(path).filename().string() + kSetAside;
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  std::filesystem::directory_iterator beside(parent_of(path), ignored);
  for (; !ignored && beside != std::filesystem::end(beside); beside.increment(ignored)) {
    if (beside->path().filename().string().starts_with(prefix)) found.push_back(beside->path());
  }
  return found;
}

}  // namespace

std::uint64_t count_set_aside(const std::string& path) {
  return set_aside_of(path).size();
}

std::string to_text(const Stamp& stamp) {
  std::string text;
  for (const std::uint8_t byte : stamp.cluster) text += fmt::format("{:02x}", byte);
  text += fmt::format(" {} {} {:x} {}", stamp.generation, stamp.tail.index,
                      stamp.tail.nonce.process, stamp.tail.nonce.count);
  if (stamp.shards != 1) text += fmt::format(" {}", stamp.shards);
  return text;
}

bool parse_stamp(const std::string& text, Stamp& stamp) {
  stamp = {};
  for (std::size_t i = 0; i < stamp.cluster.size(); ++i) {
    unsigned byte = 0;
    if (text.size() < 2 * i + 2 || std::sscanf(text.c_str() + 2 * i, "%2x", &byte) != 1) {
      return false;
    }
    stamp.cluster[i] = static_cast<std::uint8_t>(byte);
  }
  unsigned long long generation = 0, index = 0, process = 0, count = 0;
  if (std::sscanf(text.c_str() + 2 * stamp.cluster.size(), " %llu %llu %llx %llu %u", &generation,
                  &index, &process, &count, &stamp.shards) < 4) {
    return false;
  }
  stamp.generation = generation;
  stamp.tail = {index, {process, count}};
  return to_text(stamp) == text;
}

Copy::Copy(store::Options options, Shard shard, Fetch fetch, std::function<void()> progress)
    : options_(std::move(options)),
      shard_(shard),
      fetch_(std::move(fetch)),
      progress_(std::move(progress)) {
  options_.is_copy = true;
}

Copy::~Copy() {
  std::string ignored;
  if (store_ != nullptr) store_->close(0, ignored);
}

bool Copy::open(std::string& error) {
  if (store_ != nullptr) return true;
  store_ = store::open_rocks_store(options_, error);
  if (store_ == nullptr) return false;
  if (load(error)) return true;
  store_.reset();
  return false;
}

bool Copy::load(std::string& error) {
  const std::string text = store_->stamp();
  stamp_ = {};
  if (!text.empty() && !parse_stamp(text, stamp_)) {
    error = "store " + options_.path + ": its cluster's stamp is damaged: '" + text + "'";
    return false;
  }
  last_.clear();
  snapshots_.clear();
  const auto look = [this](store::RecoveredJob&& job, std::string&) {
    const JobId id = job.snapshot ? job.snapshot->created.job
                                  : (job.records.empty() ? 0 : job.records.front().job);
    if (job.snapshot) snapshots_[id] = last_[id] = job.snapshot->sequence;
    if (!job.records.empty()) last_[id] = job.records.back().sequence;
    return true;
  };
  if (!store_->load_each(look, error)) return false;
  submitted_ = committed_ = 0;
  problem_.clear();
  failed_ = false;
  store_->start([this](const store::CommitReport& report) {
    const std::lock_guard lock(mutex_);
    committed_ = std::max(committed_, report.committed);
    problem_ = report.error;
    failed_ |= report.failure != nullptr;
    for (const store::Removed& removed : report.removed) {
      if (removed.first == 0) removed_.push_back(removed.job);
    }
    changed_.notify_all();
  });
  return true;
}

Copy::Took Copy::take_up(const Config& config, const TakeOver& read, std::string& error) {
  if (store_ == nullptr && !open(error)) return Took::kNotYet;
  forget_removed();
  if (stamp_.generation != 0 && stamp_.cluster != config.cluster) {
    error = "store " + options_.path +
            " is a copy of another cluster's history. If the cluster of this name was made anew, "
            "etcd has lost something: see \"etcd has lost something\" in cluster.md. Else name "
            "another directory for this member";
    return Took::kRefused;
  }
  for (const auto& [job, ignored] : last_) {
    if (job % config.shards == shard_) continue;
    error = fmt::format(
        "store {} is a copy of shard {}, and this member is for shard {}: correct "
        "store.path, or the place of the store",
        options_.path, job % config.shards, shard_);
    return Took::kRefused;
  }
  if (stamp_.generation > config.generation ||
      (stamp_.generation == config.generation &&
       how_to_catch_up(read, stamp_.tail) == CatchUp::kSetBack)) {
    error = fmt::format(
        "the copy {} has entries that the cluster's log has not (the log ends at {} of generation "
        "{}, the copy at {} of {}): etcd was set back, and acknowledged pushes would vanish. "
        "Nothing was changed: "
        "restore a later "
        "state of etcd, or stop all members and begin with this copy, `syncctl cluster init "
        "--from`",
        options_.path, read.last, config.generation, stamp_.tail.index, stamp_.generation);
    return Took::kSetBack;
  }
  if (take_all(config, read, error)) return Took::kAll;
  // What is known of the copy may be ahead of it now: the next open() loads what the disk has.
  std::string ignored;
  if (store_ != nullptr) store_->close(0, ignored);
  store_.reset();
  stamp_ = {};
  return Took::kNotYet;
}

bool Copy::take_all(const Config& config, const TakeOver& read, std::string& error) {
  const bool follows = stamp_.generation == config.generation
                           ? how_to_catch_up(read, stamp_.tail) == CatchUp::kFollow
                           : stamp_ == Stamp{} && read.first.index == 1;
  if (!follows && !begin_anew(config, read, error)) return false;
  stamp_.cluster = config.cluster;
  stamp_.generation = config.generation;
  stamp_.shards = config.shards;
  if (!follow(read, error) || !take_snapshots(read, false, error)) return false;
  fetched_.clear();
  return wait(submitted_, error);
}

void Copy::forget_removed() {
  const std::lock_guard lock(mutex_);
  for (const JobId job : std::exchange(removed_, {})) {
    last_.erase(job);
    snapshots_.erase(job);
  }
}

bool Copy::set_store_aside(std::string& error) {
  if (!store_->close(kDiskTimeout, error)) return false;
  store_.reset();
  const std::string prefix = fmt::format("{}{}{}-", options_.path, kSetAside, stamp_.generation);
  std::vector<std::string> earlier;
  for (const std::filesystem::path& other : set_aside_of(options_.path)) {
    if (other.string().starts_with(prefix)) earlier.push_back(other.string());
  }
  std::ranges::sort(earlier);
  set_aside_ = fmt::format("{}{}", prefix, wall_clock_us() / 1'000'000);
  std::error_code code;
  std::filesystem::rename(options_.path, set_aside_, code);
  if (!code) {
    // Of a generation's history the first has the beginning, this one the end, and the largest the
    // most.
    const auto largest = std::ranges::max_element(earlier, {}, bytes_of);
    for (auto other = earlier.begin(); other != earlier.end(); ++other) {
      if (other != earlier.begin() && other != largest) std::filesystem::remove_all(*other, code);
    }
    return true;
  }
  error = fmt::format(
      "the copy {} ends before the cluster's log begins, and cannot be set aside as {}: {}; move "
      "its files away",
      options_.path, set_aside_, code.message());
  set_aside_.clear();
  return false;
}

// What an attempt to make it has left: the jobs that it names may be gone since.
bool Copy::discard(std::string& error) {
  if (!store_->close(kDiskTimeout, error)) return false;
  store_.reset();
  std::error_code code;
  std::filesystem::remove_all(options_.path, code);
  if (code) {
    error =
        fmt::format("what an interrupted rebuild has left in {} cannot be removed: {}; remove it",
                    options_.path, code.message());
  }
  return !code;
}

// An empty store with all snapshots in it, as of the entry before the log's first.
bool Copy::begin_anew(const Config& config, const TakeOver& read, std::string& error) {
  const bool is_empty = stamp_ == Stamp{};
  if (!is_empty && !(stamp_.generation != 0 ? set_store_aside(error) : discard(error))) {
    return false;
  }
  // Until the last snapshot is there, it is no copy.
  if (!open(error) || !submit({{}, {}, to_text({config.cluster, 0, {}, config.shards})}, error) ||
      !take_snapshots(read, true, error)) {
    return false;
  }
  const Nonce nonce = read.log.empty() ? read.tail.nonce : read.log.front().previous;
  stamp_ = {config.cluster, config.generation, {read.first.index - 1, nonce}, config.shards};
  return submit({{}, {}, to_text(stamp_)}, error);
}

// Those that the copy lacks: `all`, or those of states that it has reached.
bool Copy::take_snapshots(const TakeOver& read, bool all, std::string& error) {
  store::Batch batch;
  std::size_t bytes_taken = 0;
  // One batch after the other: all of them at once would take far more memory.
  const auto hand_to_disk = [&] {
    bytes_taken = 0;
    return batch.snapshots.empty() ||
           (submit(std::exchange(batch, {}), error) && wait(submitted_, error));
  };
  for (const auto& [job, pointer] : read.pointers) {
    if (pointer.sequence <= sequence_of(snapshots_, job)) continue;
    if (!all && pointer.sequence > sequence_of(last_, job)) continue;
    if (progress_) progress_();
    auto& [known, bytes] = fetched_[job];
    if (known != pointer && !fetch_(job, pointer, bytes, error)) return false;
    known = pointer;
    JobSnapshot snapshot;
    if (!decode_snapshot(bytes, snapshot, error) || snapshot.created.job != job ||
        snapshot.sequence != pointer.sequence) {
      error = fmt::format("the snapshot of job #{} in etcd is damaged: {}", job, error);
      return false;
    }
    snapshots_[job] = pointer.sequence;
    last_[job] = std::max(last_[job], pointer.sequence);
    batch.snapshots.push_back(std::move(snapshot));
    bytes_taken += bytes.size();
    if (bytes_taken >= kSnapshotsBytes && !hand_to_disk()) return false;
  }
  return hand_to_disk();
}

bool Copy::follow(const TakeOver& read, std::string& error) {
  for (const Entry& entry : read.log) {
    if (progress_) progress_();
    const Index index = read.first.index + static_cast<Index>(&entry - read.log.data());
    if (index <= stamp_.tail.index) continue;
    std::vector<Record> records;
    if (!decode_records(entry.records, records, error)) {
      error = fmt::format("entry {} of the cluster's log: {}", index, error);
      return false;
    }
    store::Batch batch;
    for (Record& record : records) {
      // Of a job that is gone, and whose beginning is, too, there may be an end left.
      const bool begins = record.kind == RecordKind::kJobCreated;
      if (!begins && !last_.contains(record.job)) continue;
      Sequence& last = last_[record.job];
      if (record.sequence <= last) continue;
      last = record.sequence;
      batch.records.push_back(std::move(record));
    }
    stamp_.tail = {index, entry.nonce};
    batch.stamp = to_text(stamp_);
    if (!submit(std::move(batch), error)) return false;
  }
  return true;
}

bool Copy::submit(store::Batch&& batch, std::string& error) {
  // A queue that is full takes a batch when it is empty.
  while (!store_->submit(submitted_ + 1, std::move(batch))) {
    if (!wait(submitted_, error)) return false;
  }
  ++submitted_;
  return true;
}

bool Copy::wait(Ticket ticket, std::string& error) {
  std::unique_lock lock(mutex_);
  for (Micros waited = 0; waited < kDiskTimeout; waited += kProgressEvery) {
    const bool done = changed_.wait_for(lock, std::chrono::microseconds(kProgressEvery),
                                        [&] { return committed_ >= ticket || failed_; });
    if (done && !failed_) return true;
    if (done) break;
    if (progress_) progress_();
  }
  error = problem_.empty() ? "store " + options_.path + " does not write" : problem_;
  return false;
}

std::unique_ptr<store::Store> Copy::hand_over(std::string& error) {
  if (!store_->close(kDiskTimeout, error)) return nullptr;
  store_.reset();
  return store::open_rocks_store(options_, error);
}

}  // namespace syncd::cluster
