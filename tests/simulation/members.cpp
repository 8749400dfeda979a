// See members.h.
#include "members.h"

#include <algorithm>
#include <string>
#include <utility>

#include "daemon/edge/cluster/log_records.h"
#include "log_store.h"
#include "violation.h"

namespace syncd::simulation {

using namespace cluster;

namespace {

std::vector<Record> records_of(const std::string& bytes) {
  std::vector<Record> records;
  std::string error;
  require(decode_records(bytes, records, error), "an entry is damaged: " + error);
  return records;
}

bool fetch_snapshot(const Cluster& cluster, JobId job, const Pointer& pointer,
                    JobSnapshot& snapshot) {
  std::string bytes;
  std::string error;
  if (!simulation::fetch_snapshot(cluster, job, pointer, bytes)) return false;
  require(decode_snapshot(bytes, snapshot, error), "a snapshot is damaged: " + error);
  require(snapshot.created.job == job && snapshot.sequence == pointer.sequence,
          "a snapshot of another state than its pointer says");
  return true;
}

}  // namespace

class Members::Member final : public Replica, public DaemonWatcher {
 public:
  Member(Members& all, std::size_t place)
      : all_(all), place_(place), clock_is_off_(all.random_.between(-3'600, 3'600) * 1'000'000) {}

  const Disk& copy() const { return copy_; }
  Daemon* daemon() const { return daemon_.get(); }

  // Replica
  Tail stamp() const override {
    Tail tail;
    if (!copy_.stamp().empty()) require(decode(copy_.stamp(), tail), "a copy's stamp is damaged");
    return tail;
  }
  bool catch_up(const TakeOver& read) override;
  void lead(ShardLog& log, const TakeOver& read) override;
  void stop_leading() override;
  void settle() override { store_->settle(); }
  Index covered_before() override;
  void stop_serving() override { daemon_->stop(); }
  bool is_idle() const override { return daemon_->done() && store_->is_idle(); }
  void lose_copy(bool all) override {
    all_.checks_.count(all ? "fault copy lost" : "fault copy cut");
    if (all) {
      copy_ = {};
    } else {
      copy_.cut_power(all_.random_);
    }
  }
  void freeze(Micros until) override {
    if (daemon_ == nullptr) return;
    all_.checks_.count("fault leader frozen");
    daemon_->freeze(until);
  }
  void cut_off(Micros until) override {
    all_.checks_.count("fault member cut off from clients");
    all_.network_.cut_off_daemon(place_, until);
  }

 private:
  // DaemonWatcher: of a leader that another one has followed, nothing but the log lines counts.
  bool is_current() const { return all_.current_ == this; }
  void on_records(const std::vector<Record>& records) override {
    if (!is_current()) return all_.checks_.count("records of a stale leader", records.size());
    all_.checks_.on_records(records);
    for (const Record& record : records)
      all_.submitted_.push_back({record.job, record.sequence, record.kind});
  }
  void on_push(const wire::Push& push) override { all_.checks_.on_push(push); }
  void on_granted(const wire::WorkerRef& worker, const wire::Granted& granted) override {
    all_.checks_.on_granted(worker, granted);
  }
  void on_view_granted(const wire::WorkerRef& worker, const wire::ViewGranted& granted) override {
    all_.checks_.on_view_granted(worker, granted);
  }
  void on_advised(const wire::WorkerRef& worker, std::int64_t iteration) override {
    all_.checks_.on_advised(worker, iteration);
  }
  void on_waits(const wire::WorkerRef& worker, const Explanation& why) override {
    if (is_current()) all_.checks_.on_waits(worker, why);
  }
  void on_log(const LogLine& line) override { all_.checks_.on_log(line); }
  void on_sends() override {
    require(is_current() && all_.cluster_.holds_key(place_),
            "a daemon whose member does not hold the key answers a client");
  }

  Members& all_;
  const std::size_t place_;
  const Micros clock_is_off_;  // the wall clock, from that of other members
  Disk copy_;
  std::unique_ptr<Daemon> daemon_;
  LogStore* store_ = nullptr;  // the daemon's
};

// As Copy (daemon/edge/cluster) does: entries, and snapshots that cover what is gone, or of states
// that the copy has reached.
bool Members::Member::catch_up(const TakeOver& read) {
  const Tail stamp = this->stamp();
  const CatchUp how = how_to_catch_up(read, stamp);
  require(how != CatchUp::kSetBack, "a copy is off the log");
  const bool anew = how == CatchUp::kRebuild;
  Disk fresh;
  const Disk& before = anew ? fresh : copy_;
  std::map<JobId, Sequence> last;
  for (const JobId job : before.jobs()) last[job] = before.last(job);
  store::Batch batch;
  const auto take_snapshots = [&] {
    for (const auto& [job, pointer] : read.pointers) {
      JobSnapshot snapshot;
      if (before.snapshot(job, snapshot) && pointer.sequence <= snapshot.sequence) continue;
      if (!anew && pointer.sequence > last[job]) continue;
      if (!fetch_snapshot(all_.cluster_, job, pointer, snapshot)) return false;
      last[job] = std::max(last[job], pointer.sequence);
      batch.snapshots.push_back(std::move(snapshot));
    }
    return true;
  };
  if (anew && !take_snapshots()) return false;
  for (const Entry& entry : read.log) {
    const Index index = read.first.index + static_cast<Index>(&entry - read.log.data());
    if (!anew && index <= stamp.index) continue;
    for (Record& record : records_of(entry.records)) {
      Sequence& latest = last[record.job];
      if (record.sequence <= latest) continue;
      latest = record.sequence;
      batch.records.push_back(std::move(record));
    }
  }
  if (!anew && !take_snapshots()) return false;
  batch.stamp = encode(read.tail);
  store::RecordEncoder encoder;
  if (anew) copy_ = {};
  copy_.write(to_write(batch, encoder), true);
  if (anew) all_.checks_.count("copy rebuilt");
  if (anew) all_.check_copy(copy_, read.tail);
  return true;
}

void Members::Member::lead(ShardLog& log, const TakeOver& read) {
  all_.check_copy(copy_, read.tail);
  all_.take_over(*this);
  Daemon::Options options = all_.options_;
  options.address = place_;
  options.wall_clock_offset_us += clock_is_off_;
  options.may_answer = [this] { return all_.cluster_.may_answer(place_); };
  options.on_deposed = [this](bool has_answers) {
    all_.checks_.count("lease over");
    if (has_answers && !is_current()) all_.checks_.count("answers of a stale leader");
    all_.cluster_.depose(place_);
  };
  const auto open = [&](std::function<void()> awake) {
    LogStore::Options of_store;
    if (all_.random_.one_in(4)) of_store.queue_max = 4;
    of_store.to_append = [this] { all_.cluster_.append(place_); };
    of_store.awake = std::move(awake);
    auto store = std::make_unique<LogStore>(std::move(of_store), copy_, log, read);
    store_ = store.get();
    return store;
  };
  daemon_ = std::make_unique<Daemon>(all_.agenda_, all_.random_, all_.network_, open,
                                     std::move(options), *this);
}

void Members::Member::stop_leading() {
  if (all_.random_.one_in(4)) daemon_->lose_power();
  store_ = nullptr;
  daemon_.reset();
}

Index Members::Member::covered_before() {
  Index before = store_->first();
  for (; before <= store_->settled(); ++before) {
    const bool is_covered = std::ranges::all_of(all_.ends_[before - 1], [this](const auto& end) {
      const auto covered = all_.snapshots_.find(end.first);
      return covered != all_.snapshots_.end() && end.second <= covered->second;
    });
    if (!is_covered) break;
  }
  return before;
}

Members::Members(Agenda& agenda, test::Random& random, Network& network, Disk& log, Checks& checks,
                 ClusterMistake mistake)
    : agenda_(agenda),
      random_(random),
      network_(network),
      log_(log),
      checks_(checks),
      cluster_(agenda, random, mistake) {
  cluster_.on_entry = [this](const Link& link) { on_entry(link); };
}

Members::~Members() = default;

void Members::start(std::size_t count, const Daemon::Options& options) {
  options_ = options;
  std::vector<std::unique_ptr<Replica>> replicas;
  for (std::size_t i = 0; i < count; ++i) {
    auto member = std::make_unique<Member>(*this, i);
    members_.push_back(member.get());
    replicas.push_back(std::move(member));
  }
  cluster_.start(std::move(replicas));
}

void Members::become_calm() {
  cluster_.become_calm();
  for (std::size_t i = 0; i < members_.size(); ++i) network_.cut_off_daemon(i, agenda_.now());
}

Daemon* Members::leader() const {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (cluster_.serves(i)) return members_[i]->daemon();
  }
  return nullptr;
}

// What earlier leaders had in mind, and did not commit, is gone.
void Members::take_over(const Member& member) {
  checks_.check_history(log_);
  Checks::check_recovery(log_, options_.engine);
  checks_.on_restart(log_);
  checks_.count("take-over");
  if (is_awaited && is_awaited()) checks_.count("take-over while workers wait");
  for (const Submitted& one : std::exchange(submitted_, {})) {
    checks_.count("never committed: " + std::string(to_string(one.kind)));
  }
  current_ = &member;
}

void Members::on_entry(const Link& link) {
  store::Batch batch;
  batch.records = records_of(link.records);
  checks_.on_committed(batch.records);
  ends_.push_back(ends_.empty() ? std::map<JobId, Sequence>() : ends_.back());
  for (const Record& record : batch.records) ends_.back()[record.job] = record.sequence;
  std::erase_if(submitted_, [this](const Submitted& one) {
    const auto end = ends_.back().find(one.job);
    return end != ends_.back().end() && one.sequence <= end->second;
  });
  for (const auto& [job, end] : ends_.back()) {
    Pointer pointer;
    const auto* item = cluster_.etcd().find(cluster_.keys().pointer(job));
    if (item == nullptr) continue;
    require(decode(item->value, pointer), "a pointer is damaged");
    require(pointer.sequence <= end, "a pointer comes before its last record");
    if (std::exchange(snapshots_[job], pointer.sequence) == pointer.sequence) continue;
    JobSnapshot snapshot;
    require(fetch_snapshot(cluster_, job, pointer, snapshot), "a pointer's snapshot is gone");
    batch.snapshots.push_back(std::move(snapshot));
  }
  store::RecordEncoder encoder;
  log_.write(to_write(batch, encoder), true);
}

void Members::check_copy(const Disk& copy, const Tail& stamp) const {
  if (stamp.index == 0) return;
  for (const auto& [job, end] : ends_[stamp.index - 1]) {
    const std::string name = "a copy of job " + std::to_string(job);
    require(copy.last(job) == end, name + " does not end at its stamp");
    const auto& records = copy.job(job).records;
    const auto& all = log_.job(job).records;
    require(records.empty() || std::ranges::includes(all, records), name + " is not in the log");
    copy.history(job, records.empty() ? 0 : records.begin()->first - 1);
  }
}

void Members::count_figures() {
  const ClusterFigures& figures = cluster_.figures();
  checks_.count("cluster terms", figures.terms);
  checks_.count("cluster entries", figures.entries);
  checks_.count("cluster removals", figures.removals);
  checks_.count("cluster unknown", figures.unknown);
  checks_.count("cluster late", figures.late);
  checks_.count("cluster failed", figures.failed);
  checks_.count("cluster given", figures.given);
}

void Members::check_copies() const {
  for (const Member* member : members_) check_copy(member->copy(), member->stamp());
}

}  // namespace syncd::simulation
