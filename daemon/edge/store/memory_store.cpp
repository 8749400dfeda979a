// A store that lives as long as the process: for tests and `--store memory`. Commits at once,
// within submit(), on the caller's thread; a mutex lets read() come from another.
//
// It keeps what fits kMemoryStoreBytesMax. Beyond that it drops records that a restart would not
// need: those before a job's latest snapshot, the oldest first, of the jobs that have most of them.
// Where that is not enough, jobs that have ended go wholly, and then it asks for snapshots. Of all
// others creation and latest snapshot stay.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"
#include "proto/base/fields.h"

namespace syncd::store {
namespace {

// Some of a record's fields.
template <auto... Members>
class Fields {
 public:
  explicit Fields(const Record& from) : values_(from.*Members...) {}
  void put(Record& to) const {
    std::apply([&](const auto&... values) { ((to.*Members = values), ...); }, values_);
  }

 private:
  std::tuple<MemberType<Members>...> values_;
};

// A push as it is kept: without the fields that a push does not use, which are most of a Record.
struct KeptPush {
  explicit KeptPush(const Record& r) : sequence(r.sequence), fields(r) {}

  Record record(JobId job) const {
    Record r;
    r.kind = RecordKind::kPush;
    r.job = job;
    r.sequence = sequence;
    fields.put(r);
    return r;
  }

  Sequence sequence;
  Fields<&Record::time_us, &Record::epoch, &Record::rank, &Record::incarnation, &Record::iteration,
         &Record::clock, &Record::base, &Record::span_us, &Record::waited_us, &Record::staleness,
         &Record::loss, &Record::samples, &Record::bytes, &Record::wasted_us, &Record::restarts,
         &Record::late, &Record::declined, &Record::computed_us, &Record::in_phase>
      fields;
};

// A history that has grown to a million pushes must not be moved as it grows on, and a deque's
// pieces hold three of them. Larger pieces than these would cost what 10,000 jobs may take. The
// first piece grows: most jobs of very many have few.
class Pushes {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  const KeptPush& operator[](std::size_t i) const {
    return pieces_[(dropped_ + i) / kPiece][(dropped_ + i) % kPiece];
  }

  void add(const Record& record) {
    if (pieces_.empty() || pieces_.back().size() == kPiece) add_piece();
    pieces_.back().emplace_back(record);
    ++size_;
  }
  void drop_first() {
    --size_;
    if (++dropped_ < kPiece) return;
    dropped_ = 0;
    pieces_.pop_front();
  }
  // The place of the first one from a sequence on; size(): there is none.
  std::size_t find(Sequence from) const {
    std::size_t place = 0;
    for (std::size_t end = size_; place < end;) {
      const std::size_t middle = place + (end - place) / 2;
      if ((*this)[middle].sequence < from) {
        place = middle + 1;
      } else {
        end = middle;
      }
    }
    return place;
  }

 private:
  static constexpr std::size_t kPiece = 8;

  void add_piece() {
    const bool is_first = pieces_.empty();
    pieces_.emplace_back();
    if (!is_first) pieces_.back().reserve(kPiece);
  }

  std::deque<std::vector<KeptPush>> pieces_;  // all but the last one are full
  std::size_t dropped_ = 0;                   // of the first piece
  std::size_t size_ = 0;
};

// The records of one job: pushes, and all others, both in sequence.
class History {
 public:
  void add(Record&& record) {
    if (record.kind == RecordKind::kPush) {
      pushes_.add(record);
      bytes_ += sizeof(KeptPush);
      return;
    }
    if (record.kind == RecordKind::kJobCreated && created_.kind == RecordKind::kNone) {
      created_ = record;
      bytes_ += weight(record);
    }
    bytes_ += weight(record);
    others_.push_back(std::move(record));
  }

  const Record& created() const { return created_; }
  std::size_t bytes() const { return bytes_; }
  Sequence first() const { return first_; }

  // f(record) for all from a sequence on, in order, until it returns false.
  template <class F>
  void walk(JobId job, Sequence from, F f) const {
    const auto before = [](const Record& one, Sequence sequence) {
      return one.sequence < sequence;
    };
    std::size_t push = pushes_.find(from);
    auto other = std::lower_bound(others_.begin(), others_.end(), from, before);
    while (push < pushes_.size() || other != others_.end()) {
      const bool is_push = other == others_.end() ||
                           (push < pushes_.size() && pushes_[push].sequence < other->sequence);
      if (!(is_push ? f(pushes_[push++].record(job)) : f(*other++))) return;
    }
  }

  // How many records there are before this one.
  std::uint64_t count_before(Sequence sequence) const {
    return sequence > first_ ? sequence - first_ : 0;
  }
  // The oldest of these, until so many bytes are free.
  void drop_before(Sequence sequence, std::size_t bytes) {
    const std::size_t enough = bytes_ - std::min(bytes_, bytes);
    while (first_ < sequence && bytes_ > enough) {
      if (!pushes_.empty() && pushes_[0].sequence == first_) {
        pushes_.drop_first();
        bytes_ -= sizeof(KeptPush);
      } else if (!others_.empty() && others_.front().sequence == first_) {
        bytes_ -= weight(others_.front());
        others_.pop_front();
      }
      ++first_;
    }
  }

 private:
  Pushes pushes_;
  std::deque<Record> others_;
  Record created_;
  std::size_t bytes_ = 0;
  Sequence first_ = 1;
};

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  bool load_each(const TakeJob& take, std::string& error) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, kept] : jobs_) {
      RecoveredJob job;
      Sequence after = 0;
      if (kept.snapshot.sequence > 0) {
        job.snapshot = kept.snapshot;
        after = kept.snapshot.sequence;
      }
      kept.history.walk(id, after + 1, [&](const Record& record) {
        job.records.push_back(record);
        return true;
      });
      if (!take(std::move(job), error)) return false;
    }
    return true;
  }

  Epoch removed_epoch() const override { return removed_epoch_; }

  void start(CommitCallback callback) override { callback_ = std::move(callback); }

  bool submit(Ticket ticket, Batch&& batch) override {
    CommitReport report;
    report.committed = ticket;
    report.batches = 1;
    report.records = batch.records.size();
    std::vector<Removed> removed;
    {
      const std::lock_guard lock(mutex_);
      Kept* kept = nullptr;
      JobId of = 0;
      for (Record& record : batch.records) {
        if (kept == nullptr || record.job != of) kept = &jobs_[of = record.job];
        bytes_ -= kept->history.bytes();
        kept->history.add(std::move(record));
        bytes_ += kept->history.bytes();
      }
      for (JobSnapshot& snapshot : batch.snapshots) {
        Kept& job = jobs_[snapshot.created.job];
        bytes_ += weight(snapshot) - (job.snapshot.sequence > 0 ? weight(job.snapshot) : 0);
        job.snapshot = std::move(snapshot);
      }
      // Whoever submits may use the memory again.
      batch.records.clear();
      if (bytes_ > next_look_) make_room(removed, report.wants_snapshot);
    }
    if (callback_) {
      callback_(report);
      if (!removed.empty()) {
        CommitReport about;
        about.committed = ticket;
        about.removed = std::move(removed);
        callback_(about);
      }
    }
    return true;
  }

  bool close(std::int64_t, std::string&) override { return true; }

  bool read(JobId job, Sequence from, std::size_t records_max, std::size_t bytes_max,
            ReadResult& result, std::string&) override {
    const std::lock_guard lock(mutex_);
    result = {};
    const auto found = jobs_.find(job);
    if (found == jobs_.end()) {
      result.first_sequence = 0;
      return true;
    }
    const History& history = found->second.history;
    result.first_sequence = history.first();
    RecordEncoder encoder;
    std::size_t bytes = 0;
    history.walk(job, from, [&](const Record& record) {
      const auto encoded = encoder.encode(record);
      const bool full = result.records.size() >= records_max || bytes + encoded.size() > bytes_max;
      if (full && !result.records.empty()) {
        result.next_sequence = record.sequence;
        return false;
      }
      bytes += encoded.size();
      result.records.push_back({record.sequence, {encoded.begin(), encoded.end()}});
      return true;
    });
    return true;
  }

  bool jobs(std::vector<Record>& created, std::string&) override {
    const std::lock_guard lock(mutex_);
    created.clear();
    for (const auto& [id, kept] : jobs_) {
      if (kept.history.created().kind != RecordKind::kNone) {
        created.push_back(kept.history.created());
      }
    }
    return true;
  }

  Mode mode() const override { return Mode::kFast; }
  std::string describe() const override { return "memory"; }

 private:
  struct Kept {
    History history;
    JobSnapshot snapshot;  // with sequence 0: there is none yet
  };

  // Down to three quarters, so that it is seldom done; where that cannot be reached, it is tried
  // again after a sixteenth more. O(jobs).
  void make_room(std::vector<Removed>& removed, std::vector<JobId>& wants_snapshot) {
    drop_what_can_be(removed, wants_snapshot);
    next_look_ = std::max(bytes_max_, bytes_ + bytes_max_ / 16);
  }
  void drop_what_can_be(std::vector<Removed>& removed, std::vector<JobId>& wants_snapshot) {
    const std::size_t enough = bytes_max_ / 4 * 3;
    std::vector<std::pair<std::uint64_t, JobId>> most;
    for (const auto& [id, kept] : jobs_) {
      const std::uint64_t count = kept.history.count_before(kept.snapshot.sequence + 1);
      if (kept.snapshot.sequence > 0 && count > 0) most.emplace_back(count, id);
    }
    std::sort(most.rbegin(), most.rend());
    for (const auto& [count, id] : most) {
      if (bytes_ <= enough) return;
      Kept& kept = jobs_.at(id);
      const Sequence first = kept.history.first();
      const std::size_t before = kept.history.bytes();
      kept.history.drop_before(kept.snapshot.sequence + 1, bytes_ - enough);
      bytes_ -= before - kept.history.bytes();
      removed.push_back({id, kept.history.first() - first, kept.history.first(), {}});
    }
    forget_ended(enough, removed);
    if (bytes_ <= enough) return;
    // What is left are the tails.
    most.clear();
    for (const auto& [id, kept] : jobs_) most.emplace_back(kept.history.bytes(), id);
    const std::size_t asked = std::min<std::size_t>(most.size(), kSnapshotsAtOnce);
    std::partial_sort(most.begin(), most.begin() + static_cast<std::ptrdiff_t>(asked), most.end(),
                      std::greater<>());
    for (std::size_t i = 0; i < asked; ++i) wants_snapshot.push_back(most[i].second);
  }
  static constexpr std::size_t kSnapshotsAtOnce = 64;

  // Jobs that have ended, the oldest first. The latest job stays, so that its id is not given
  // again.
  void forget_ended(std::size_t enough, std::vector<Removed>& removed) {
    for (auto it = jobs_.begin();
         bytes_ > enough && it != jobs_.end() && std::next(it) != jobs_.end();) {
      const auto& [id, kept] = *it;
      if (kept.snapshot.sequence == 0 || kept.snapshot.state != JobState::kStopped) {
        ++it;
        continue;
      }
      bytes_ -= kept.history.bytes() + weight(kept.snapshot);
      removed_epoch_ = std::max(removed_epoch_, kept.snapshot.epoch);
      removed.push_back({id, kept.history.count_before(kept.snapshot.sequence + 1), 0,
                         kept.history.created().name});
      it = jobs_.erase(it);
    }
  }

  const std::size_t bytes_max_;
  std::mutex mutex_;
  std::map<JobId, Kept> jobs_;
  std::size_t bytes_ = 0;  // of all of them
  std::size_t next_look_ = bytes_max_;
  Epoch removed_epoch_ = 0;
  CommitCallback callback_;
};

}  // namespace

std::unique_ptr<Store> make_memory_store(std::size_t bytes_max) {
  return std::make_unique<MemoryStore>(bytes_max);
}

}  // namespace syncd::store
