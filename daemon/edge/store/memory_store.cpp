// A store that lives as long as the process: for tests and `--store memory`. Commits at once,
// within submit(), on the caller's thread; a mutex lets read() come from another.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"

namespace syncd::store {
namespace {

class MemoryStore final : public Store {
 public:
  bool load_each(const TakeJob& take, std::string& error) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, history] : histories_) {
      RecoveredJob job;
      const auto snapshot = snapshots_.find(id);
      Sequence after = 0;
      if (snapshot != snapshots_.end()) {
        job.snapshot = snapshot->second;
        after = snapshot->second.sequence;
      }
      for (const Record& record : history) {
        if (record.sequence > after) job.records.push_back(record);
      }
      if (!take(std::move(job), error)) return false;
    }
    return true;
  }

  void start(CommitCallback callback) override { callback_ = std::move(callback); }

  bool submit(Ticket ticket, Batch&& batch) override {
    const std::uint64_t count = batch.records.size();
    {
      const std::lock_guard lock(mutex_);
      for (Record& record : batch.records) {
        histories_[record.job].push_back(std::move(record));
      }
      for (JobSnapshot& snapshot : batch.snapshots) {
        const JobId id = snapshot.created.job;
        snapshots_[id] = std::move(snapshot);
      }
    }
    if (callback_) callback_(CommitReport{ticket, {}, 1, count, 0});
    return true;
  }

  bool close(std::int64_t, std::string&) override { return true; }

  bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
            ReadResult& result, std::string&) override {
    const std::lock_guard lock(mutex_);
    result = {};
    const auto history = histories_.find(job);
    if (history == histories_.end()) {
      result.first_sequence = 0;
      return true;
    }
    RecordEncoder encoder;
    std::size_t bytes = 0;
    auto it = std::lower_bound(
        history->second.begin(), history->second.end(), from,
        [](const Record& record, Sequence sequence) { return record.sequence < sequence; });
    for (; it != history->second.end(); ++it) {
      const auto encoded = encoder.encode(*it);
      const bool full = result.records.size() >= records_max || bytes + encoded.size() > bytes_max;
      if (full && !result.records.empty()) {
        result.next_sequence = it->sequence;
        break;
      }
      bytes += encoded.size();
      result.records.push_back({it->sequence, {encoded.begin(), encoded.end()}});
    }
    return true;
  }

  bool jobs(std::vector<Record>& created, std::string&) override {
    const std::lock_guard lock(mutex_);
    created.clear();
    for (const auto& [id, history] : histories_) {
      if (!history.empty()) created.push_back(history.front());
    }
    return true;
  }

  Mode mode() const override { return Mode::kFast; }
  std::string describe() const override { return "memory"; }

 private:
  std::mutex mutex_;
  // A deque, because a history that has grown to a million records must not be moved as it grows
  // on.
  std::map<JobId, std::deque<Record>> histories_;
  std::map<JobId, JobSnapshot> snapshots_;
  CommitCallback callback_;
};

}  // namespace

std::unique_ptr<Store> make_memory_store() {
  return std::make_unique<MemoryStore>();
}

}  // namespace syncd::store
