// See rocks_world.h.
#include "rocks_world.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/edge/store/record_codec.h"
#include "daemon/edge/store/store.h"
#include "rocks_disk.h"
#include "violation.h"

namespace syncd::simulation {
namespace {

constexpr const char* kPath = "/store";
constexpr JobId kJobs = 3;
// Nothing here takes a second: who waits so long waits for ever.
constexpr auto kPatience = std::chrono::seconds(60);

// What was submitted, batch by batch; a job's records count up from 1.
struct Submitted {
  std::array<Sequence, kJobs> records{};    // of each job, up to and with this batch
  std::array<Sequence, kJobs> snapshots{};  // the latest one's number; 0: none
};

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed), disk_(random_.next(), [this] { on_cut(); }) {
    options_.path = kPath;
    options_.env = disk_.env();
    options_.mode = random_.one_in(4) ? store::Mode::kFast : store::Mode::kDurable;
    options_.retry_after_us = 200;
    options_.retry_after_max_us = 2000;
    large_ = random_.one_in(4);
  }

  RocksCounts run() {
    const std::uint64_t lives = 2 + random_.below(5);
    for (std::uint64_t life = 0; life < lives && !damaged_; ++life) live(draw_faults());
    if (!damaged_) live({});  // nothing goes wrong any more
    for (const auto& [what, count] : disk_.counts()) counts_[what] += count;
    return std::move(counts_);
  }

 private:
  RocksDisk::Faults draw_faults() {
    RocksDisk::Faults faults;
    constexpr std::array<std::uint64_t, 3> kSpans = {20, 100, 600};
    const std::uint64_t span = kSpans[random_.below(3)];
    if (!random_.one_in(4)) faults.cut_at = 1 + random_.below(span);
    if (random_.one_in(3)) {
      faults.fail_from = 1 + random_.below(span);
      faults.fail_until = faults.fail_from + 1 + random_.below(20);
      faults.fail_one_in = 1 + random_.below(4);
    }
    if (random_.one_in(5)) {
      faults.full_from = 1 + random_.below(span);
      faults.full_until = faults.full_from + 1 + random_.below(30);
    }
    return faults;
  }

  // ---- one life of the process, and its end

  void live(const RocksDisk::Faults& faults) {
    begin_life(faults);
    std::string error;
    auto store = store::open_rocks_store(options_, error);
    if (store != nullptr && check_leniently(*store, error)) {
      use(*store);
    } else {
      require(!error.empty(), "the store does not open, and says nothing");
      require(excused() || may_be_damaged_, "the store does not open: " + error);
      ++counts_["did not open, with a reason"];
      if (!excused()) {
        damaged_ = true;
        ++counts_["damaged in fast mode"];
      }
    }
    store.reset();
    end_life();
  }

  // Something was wrong with the disk in this life.
  bool excused() const { return disk_.is_cut() || disk_.errors() > 0; }

  void begin_life(const RocksDisk::Faults& faults) {
    {
      const std::lock_guard lock(mutex_);
      committed_ = 0;
      cut_ = false;
    }
    if (power_fails_) {
      disk_.power_on(faults);
    } else {
      disk_.restart(faults);
    }
  }

  void end_life() {
    // A process that is killed leaves what it has written; so does one whose disk is just slow.
    power_fails_ = disk_.is_cut() || random_.one_in(2);
    if (power_fails_ && options_.mode == store::Mode::kFast) may_be_damaged_ = true;
    ++counts_[power_fails_ ? "power cut" : "kill"];
    const std::lock_guard lock(mutex_);
    if (options_.mode == store::Mode::kDurable || !power_fails_) {
      if (committed_ > 0) sure_ = first_of_life_ + committed_;
    } else {
      sure_ = 0;
    }
  }

  void on_cut() {
    const std::lock_guard lock(mutex_);
    cut_ = true;
    changed_.notify_all();
  }

  // ---- what a life is spent with

  void use(store::Store& store) {
    first_of_life_ = submitted_.size();
    store.start([this](const store::CommitReport& report) {
      const std::lock_guard lock(mutex_);
      if (!report.error.empty()) ++counts_["commit failed"];
      committed_ = report.committed;
      changed_.notify_all();
    });
    Ticket ticket = 0;
    const std::uint64_t bursts = 1 + random_.below(6);
    for (std::uint64_t i = 0; i < bursts; ++i) {
      const bool slow = random_.one_in(3);
      disk_.hold_syncs(slow);
      for (std::uint64_t left = 1 + random_.below(5); left > 0; --left) {
        require(store.submit(++ticket, make_batch()), "the store's queue is full");
      }
      disk_.hold_syncs(false);
      // Sometimes the end comes while something is on its way.
      if (i + 1 == bursts && random_.one_in(3)) return;
      if (!committed_all(ticket)) return;
    }
    if (random_.one_in(2)) return;
    std::string error;
    const bool closed = store.close(std::chrono::microseconds(kPatience).count(), error);
    require(closed || excused(), "the store does not close in good order: " + error);
    ++counts_["closed in good order"];
  }

  // False: the power is gone.
  bool committed_all(Ticket ticket) {
    std::unique_lock lock(mutex_);
    const bool in_time =
        changed_.wait_for(lock, kPatience, [&] { return cut_ || committed_ >= ticket; });
    require(in_time, "the store neither commits nor gives up");
    require(committed_ <= ticket, "more is committed than was submitted");
    return !cut_;
  }

  store::Batch make_batch() {
    store::Batch batch;
    Submitted after = submitted_.empty() ? Submitted{} : submitted_.back();
    for (std::uint64_t left = 1 + random_.below(4); left > 0; --left) {
      const std::size_t job = random_.below(kJobs);
      const Sequence sequence = ++after.records[job];
      batch.records.push_back(make_record(job, sequence));
      records_[job].resize(sequence - 1);
      records_[job].push_back(batch.records.back());
    }
    if (random_.one_in(5)) {
      const std::size_t job = random_.below(kJobs);
      if (after.records[job] > 0) {
        batch.snapshots.push_back(make_snapshot(job, after.records[job]));
        after.snapshots[job] = snapshots_.size();
      }
    }
    submitted_.push_back(after);
    return batch;
  }

  // The jobs of a store have ids from 1, in the order in which they were made.
  Record make_record(std::size_t job, Sequence sequence) {
    Record record;
    record.kind = sequence == 1 ? RecordKind::kJobCreated : RecordKind::kPush;
    record.job = static_cast<JobId>(job + 1);
    record.sequence = sequence;
    record.epoch = 1;
    record.time_us = static_cast<Micros>(random_.next() >> 8);
    record.iteration = static_cast<Iteration>(sequence);
    record.name = "job " + std::to_string(job);
    const std::size_t bytes =
        large_ && random_.one_in(3) ? 200'000 + random_.below(200'000) : random_.below(300);
    record.reason.assign(bytes, static_cast<char>('a' + random_.below(26)));
    return record;
  }

  JobSnapshot make_snapshot(std::size_t job, Sequence sequence) {
    JobSnapshot snapshot;
    snapshot.created = records_[job].front();
    snapshot.sequence = sequence;
    snapshot.policy = "ssp:3";
    snapshot.policy_state.assign(random_.below(50), static_cast<std::int64_t>(sequence));
    snapshot.pushes = snapshots_.size() + 1;
    snapshots_.push_back(snapshot);
    return snapshot;
  }

  // ---- what an opening finds

  // Fast mode promises nothing of a power cut: where two logs lose their ends independently of each
  // other, there may be a gap, which an opening then complains about.
  bool check_leniently(store::Store& store, std::string& error) {
    try {
      return check(store, error);
    } catch (const Violation& violation) {
      if (!may_be_damaged_) throw;
      error = violation.what();
      return false;
    }
  }

  // False: what is there cannot be read.
  bool check(store::Store& store, std::string& error) {
    std::vector<store::RecoveredJob> jobs;
    if (!store.load(jobs, error)) return false;
    Submitted found;
    for (const store::RecoveredJob& recovered : jobs) {
      const JobId id =
          recovered.snapshot ? recovered.snapshot->created.job : recovered.records.front().job;
      require(id >= 1 && id <= kJobs, "a job that never was");
      const std::size_t job = id - 1;
      if (recovered.snapshot) {
        const std::uint64_t number = recovered.snapshot->pushes;
        require(number >= 1 && number <= snapshots_.size() &&
                    snapshots_[number - 1] == *recovered.snapshot,
                "a snapshot that was never submitted");
        found.snapshots[job] = number;
      }
      if (!read_all(store, job, found.records[job], error)) return false;
      require(!recovered.records.empty() || recovered.snapshot->sequence == found.records[job],
              "records are not handed over");
      if (!recovered.records.empty()) {
        require(recovered.records.back().sequence == found.records[job],
                "other records than are stored are handed over");
      }
    }
    const std::size_t there = prefix_of(found);
    require(there >= sure_, "batch " + std::to_string(sure_) + " was committed, and only " +
                                std::to_string(there) + " are there");
    if (there > sure_) ++counts_["more than was reported"];
    if (there < submitted_.size()) ++counts_["lost what was not committed"];
    submitted_.resize(there);
    for (std::size_t job = 0; job < kJobs; ++job) records_[job].resize(found.records[job]);
    // The daemon answers as if what it finds were committed, and so it must stay.
    if (options_.mode == store::Mode::kDurable) sure_ = there;
    ++counts_["opened"];
    return true;
  }

  // Every record of a job, also those that its snapshot stands for.
  bool read_all(store::Store& store, std::size_t job, Sequence& count, std::string& error) {
    const JobId id = static_cast<JobId>(job + 1);
    for (Sequence from = 1; from != 0;) {
      store::ReadResult part;
      if (!store.read(id, from, 1000, 1 << 20, part, error)) return false;
      for (const store::RawRecord& raw : part.records) {
        Record record;
        std::string wrong;
        require(store::decode_record(raw.bytes, record, wrong), "a stored record: " + wrong);
        ++count;
        require(raw.sequence == count, "record " + std::to_string(count) + " of job " +
                                           std::to_string(id) + " is missing, next is " +
                                           std::to_string(raw.sequence));
        require(count <= records_[job].size() && record == records_[job][count - 1],
                "record " + std::to_string(count) + " of job " + std::to_string(id) +
                    " is not what was submitted");
      }
      from = part.next_sequence;
    }
    return true;
  }

  // How many batches lead to what was found. Batches that change nothing there do not exist.
  std::size_t prefix_of(const Submitted& found) const {
    const auto is_found = [&](const Submitted& batch) {
      return batch.records == found.records && batch.snapshots == found.snapshots;
    };
    if (is_found({})) return 0;
    for (std::size_t i = submitted_.size(); i > 0; --i) {
      if (is_found(submitted_[i - 1])) return i;
    }
    std::string text = "a part of a batch is there, or one without those before it:";
    for (std::size_t job = 0; job < kJobs; ++job) {
      text += " " + std::to_string(found.records[job]) + "/" + std::to_string(found.snapshots[job]);
    }
    throw Violation(text);
  }

  test::Random random_;
  RocksDisk disk_;
  store::Options options_;
  bool large_ = false;
  RocksCounts counts_;

  std::vector<Submitted> submitted_;
  std::array<std::vector<Record>, kJobs> records_;
  std::vector<JobSnapshot> snapshots_;  // each has its number, from 1, as its count of pushes
  std::size_t sure_ = 0;                // so many batches must be there
  bool may_be_damaged_ = false;         // fast mode, and the power was cut
  bool damaged_ = false;                // and so it is
  bool power_fails_ = false;            // at the end of the life before

  std::mutex mutex_;  // guards what follows; and counts_ while a store runs
  std::condition_variable changed_;
  Ticket committed_ = 0;  // of this life
  bool cut_ = false;
  std::size_t first_of_life_ = 0;  // batches before this life
};

}  // namespace

RocksCounts run_rocks_world(std::uint64_t seed) {
  return World(seed).run();
}

}  // namespace syncd::simulation
