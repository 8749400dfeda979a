// Random jobs with agreed checkpoints, seen from outside: workers that ask, save, say so late or
// never, are cut off or killed, and a daemon that dies and loses what was not committed. A small
// model of its own knows what each process has heard.
//
//  - With barriers all workers that are told to save a checkpoint save at the same one.
//  - All that are told of a checkpoint are told the same number of shards, each another shard.
//  - A worker that takes part is told at its first grant at or beyond its iteration, whatever dies.
//  - A checkpoint is complete if each of its shards was said to be saved by a worker, and then
//  only.
//  - Records, and a snapshot with the records after it, give the same.
//  - Once failures end, no checkpoint stays open.
//
//   SYNCD_PROPERTY_SEED=<n>  runs that one seed only    SYNCD_PROPERTY_RUNS=<n>  n times as many
//   runs
//
// One thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/engine.h"
#include "tests/support/effects_text.h"
#include "tests/support/property_runs.h"
#include "tests/support/random.h"

namespace syncd::test {
namespace {

struct Violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool holds, const std::string& text) {
  if (!holds) throw Violation(text);
}

struct Policies {
  const char* policy;
  bool has_one_iteration;  // at which all save
};
constexpr Policies kPolicies[] = {{"asp", false},      {"bsp", true},
                                  {"bsp:2", true},     {"bsp,backup=1", false},
                                  {"ssp:2", false},    {"elastic_bsp:3", false},
                                  {"dssp:1-3", false}, {"naive_wait:20+bsp", true}};

struct Process {
  std::string name;
  bool takes_part = true;
  ConnectionId connection = 0;
  bool joined = false, begun = false, gone = false;
  wire::WorkerRef ref;
  Iteration next = 0, granted = kNoIteration, pushed = kNoIteration;
  std::map<std::uint64_t, Iteration> told;  // by checkpoint: at which grant
  std::map<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>> shards;  // of how many
  std::set<std::uint64_t> said;                                             // that it has answered
};

class Checkpointing {
 public:
  explicit Checkpointing(std::uint64_t seed) : random_(seed) {
    rule_ = kPolicies[random_.below(std::size(kPolicies))];
    options_.defaults.policy = rule_.policy;
    options_.defaults.worker_grace_us = kGrace;
    options_.defaults.checkpoint_timeout_us = 60 * kGrace;
    options_.snapshot_every_records = static_cast<std::uint64_t>(random_.between(3, 60));
    if (random_.one_in(3)) options_.defaults.checkpoint_every = random_.between(2, 9);
    engine_ = std::make_unique<Engine>(options_);
    world_ = static_cast<std::uint32_t>(random_.between(2, 5));
    sharded_ = random_.one_in(2);
    for (std::uint32_t i = 0; i < world_; ++i) {
      auto p = std::make_unique<Process>();
      p->name = "w" + std::to_string(i);
      p->takes_part = i == 0 || !random_.one_in(8);
      processes_.push_back(std::move(p));
    }
  }

  std::string trace() const {
    std::string text = rule_.policy + std::string("\n");
    for (const std::string& one : trace_) text += one + "\n";
    return text;
  }
  const std::map<std::string, int>& counts() const { return counts_; }

  void run() {
    const bool calm = random_.one_in(4);
    for (int i = 0; i < 500; ++i) {
      if (!calm && random_.one_in(25)) {
        disturb();
      } else if (random_.one_in(40)) {
        ask();
      } else {
        act(*random_.pick(processes_), true);
      }
      if (random_.one_in(3)) commit();
      advance(random_.between(0, 20'000));
    }
    // Failures end, and all that is open closes.
    for (int round = 0; round < 60; ++round) {
      commit();
      for (const auto& p : processes_) act(*p, false);
      plan();
      advance(30'000);
    }
    commit();
    if (std::none_of(processes_.begin(), processes_.end(), [](auto& p) { return !p->gone; })) {
      return;
    }
    const wire::LatestCheckpointReply reply = latest();
    if (options_.defaults.checkpoint_every == 0) {
      require(reply.open == 0, "a checkpoint stays open: " + reply.open_text);
    }
    check_replay();
  }

 private:
  static constexpr Micros kGrace = 1'000'000;
  static constexpr ConnectionId kOperator = 1'000'000;

  void disturb() {
    Process& p = *random_.pick(processes_);
    switch (random_.below(4)) {
      case 0:
        return cut(p);
      case 1: {
        const auto alive = std::ranges::count_if(processes_, [](auto& q) { return !q->gone; });
        if (alive < 2 || !random_.one_in(3)) return cut(p);
        cut(p);
        p.gone = true;
        return advance(random_.between(0, 2 * kGrace));
      }
      default:
        return restart();
    }
  }

  void cut(Process& p) {
    const ConnectionId connection = std::exchange(p.connection, 0);
    p.joined = p.begun = false;
    if (connection != 0) step(Disconnected{connection});
  }

  // What was not committed may be lost, from some record on; nobody has heard of what waited for
  // it.
  void restart() {
    const auto keep = static_cast<std::size_t>(random_.between(
        static_cast<std::int64_t>(committed_), static_cast<std::int64_t>(stored_.size())));
    if (keep == 0) return;
    stored_.resize(keep);
    if (snapshot_ && snapshot_->sequence > keep) snapshot_.reset();
    for (Reply& held : held_) {
      if (held_at_.front() <= keep && random_.one_in(2)) deliver(held);
      held_at_.pop_front();
    }
    held_.clear();
    held_at_.clear();
    committed_ = keep;
    engine_ = std::make_unique<Engine>(options_);
    restore(*engine_, random_.one_in(2));
    engine_->finish_restore(now_);
    plans_.clear();
    for (auto& p : processes_) {
      p->connection = 0;
      p->joined = p->begun = false;
    }
    rebuild();
    note("restarted from " + std::to_string(keep) + " records");
    ++counts_["restart"];
  }

  void restore(Engine& engine, bool use_snapshot) {
    std::string error;
    use_snapshot = use_snapshot && snapshot_;
    const std::size_t skip = use_snapshot ? snapshot_->sequence : 0;
    require(engine.restore(use_snapshot ? snapshot_.get() : nullptr,
                           std::span(stored_).subspan(skip), error),
            error);
  }

  // Both ways back, and the engine that lives: but for what no record says.
  void check_replay() {
    const auto of = [](Engine& engine) {
      JobSnapshot snapshot;
      engine.snapshot(1, snapshot);
      for (CheckpointSnapshot& checkpoint : snapshot.checkpoints) {
        for (std::size_t i = 2; i < checkpoint.members.size(); i += kCheckpointMemberValues) {
          checkpoint.members[i] = kNoIteration;  // whether the worker was told
        }
      }
      return std::tuple(snapshot.checkpoints, snapshot.checkpoints_asked,
                        snapshot.checkpoint_closed, snapshot.checkpoint_closed_reason);
    };
    Engine from_records(options_), from_snapshot(options_);
    restore(from_records, false);
    restore(from_snapshot, true);
    require(of(from_records) == of(from_snapshot), "a snapshot gives another checkpoint");
    require(of(from_records) == of(*engine_), "the records give another checkpoint");
  }

  void ask() {
    if (random_.one_in(3)) {
      return step(Request{{kOperator, next_request_++}, wire::OrderCheckpoint{"train", "night"}});
    }
    Process& p = *random_.pick(processes_);
    if (p.joined) request(p, wire::AskCheckpoint{p.ref, "notice", random_.one_in(4)});
  }

  void act(Process& p, bool may_wait) {
    if (p.gone) return;
    if (!p.joined) {
      wire::Join join;
      join.job = "train";
      join.name = p.name;
      join.host = "host";
      join.world_size = world_;
      join.notices = p.takes_part ? wire::kNoticeCheckpoint : 0;
      if (p.ref.incarnation != 0) {
        join.rank = static_cast<std::int32_t>(p.ref.rank);
        join.incarnation = p.ref.incarnation;
        join.epoch = p.ref.epoch;
        join.granted = p.granted;
        join.pushed = p.pushed;
      }
      return request(p, join);
    }
    // It saves at once, or goes on and says so later.
    for (const auto& [number, iteration] : p.told) {
      if (p.said.contains(number) || (may_wait && random_.one_in(2))) continue;
      wire::Checkpointed saved;
      saved.worker = p.ref;
      saved.number = number;
      if (sharded_) {
        std::tie(saved.shard, saved.shards) = p.shards.at(number);
      } else {
        saved.shards = p.shards.at(number).first == 0 ? 1 : 0;
      }
      if (saved.shards > 0) {
        saved.location =
            "/" + p.name + "/" + std::to_string(number) + "/" + std::to_string(iteration);
        locations_[number].insert(saved.location);
      }
      saying_ = {&p, number};
      return request(p, saved);
    }
    if (p.granted > p.pushed) return request(p, wire::Push{p.ref, p.granted, {}, 0, 0});
    if (!p.begun) {
      p.begun = true;
      request(p, wire::Begin{p.ref, p.next});
    }
  }

  template <class Body>
  void request(Process& p, Body body) {
    if (p.connection == 0) p.connection = next_connection_++;
    step(Request{{p.connection, next_request_++}, std::move(body)});
  }

  void step(Event event) {
    advance(0);
    if (const auto* asked = std::get_if<Request>(&event)) note(to_text(asked->body));
    engine_->step(std::move(event), now_, effects_);
    absorb();
    if (random_.one_in(4)) plan();
  }

  void plan() {
    while (!plans_.empty()) {
      const Plan plan = plans_.front();
      plans_.pop_front();
      engine_->step(PlanReady{plan.job, plan.id, plan.work->run()}, now_, effects_);
      absorb();
    }
  }

  void advance(Micros span) {
    const Micros until = now_ + span;
    while (engine_->next_deadline() <= until) {
      now_ = std::max(now_, engine_->next_deadline());
      engine_->tick(now_, effects_);
      absorb();
    }
    now_ = until;
  }

  void absorb() {
    note(to_text(effects_, now_));
    for (const Record& record : effects_.records) {
      stored_.push_back(record);
      ++counts_[to_string(record.kind)];
      learn(record);
      if (record.kind == RecordKind::kCheckpointFixed && rule_.has_one_iteration)
        check_fixed(record);
    }
    for (const JobSnapshot& snapshot : effects_.snapshots) {
      snapshot_ = std::make_unique<JobSnapshot>(snapshot);
    }
    for (const Plan& plan : effects_.plans) plans_.push_back(plan);
    for (Reply& reply : effects_.replies) {
      if (reply.after_records && committed_ < stored_.size()) {
        held_at_.push_back(stored_.size());
        held_.push_back(reply);
      } else {
        deliver(reply);
      }
    }
    for (const Notification& notice : effects_.notifications) {
      for (auto& p : processes_) {
        if (p->connection != notice.connection) continue;
        if (std::holds_alternative<wire::FencedNotice>(notice.body)) p->joined = p->begun = false;
      }
    }
  }

  // All save at one barrier: as far from where each entered.
  void check_fixed(const Record& record) {
    JobSnapshot now;
    engine_->snapshot(1, now);
    std::set<Clock> relative;
    for (std::size_t i = 0; i + 1 < record.values.size(); i += 2) {
      const auto worker = std::ranges::find(now.workers, static_cast<Rank>(record.values[i]),
                                            &WorkerSnapshot::rank);
      relative.insert(record.values[i + 1] - worker->base);
    }
    require(relative.size() == 1, "they save at different barriers");
  }

  void commit() {
    committed_ = stored_.size();
    std::vector<Reply> held;
    held.swap(held_);
    held_at_.clear();
    for (Reply& reply : held) deliver(reply);
  }

  // ---- what the history says of checkpoints

  void rebuild() {
    members_.clear();
    owners_.clear();
    fixed_ = 0;
    for (const Record& record : stored_) learn(record);
  }

  void learn(const Record& record) {
    if (record.kind == RecordKind::kCheckpointFixed) {
      for (std::size_t i = 0; i + 1 < record.values.size(); i += 2) {
        members_[record.checkpoint][static_cast<Rank>(record.values[i])] = record.values[i + 1];
        owners_[record.checkpoint].insert(static_cast<Rank>(record.values[i]));
      }
      fixed_ = record.checkpoint;
    } else if (record.kind == RecordKind::kCheckpointComplete ||
               record.kind == RecordKind::kCheckpointIncomplete) {
      if (fixed_ == record.checkpoint) fixed_ = 0;
      ended_.insert(record.checkpoint);
    } else if (record.kind == RecordKind::kWorkerLost || record.kind == RecordKind::kWorkerLeft ||
               (record.kind == RecordKind::kWorkerJoined && !record.resumed)) {
      if (fixed_ != 0) members_[fixed_].erase(static_cast<Rank>(record.rank));
    }
  }

  wire::LatestCheckpointReply latest() {
    step(Request{{kOperator, next_request_++}, wire::LatestCheckpoint{"train", 0}});
    return latest_;
  }

  void check_latest(const wire::LatestCheckpointReply& reply) {
    latest_ = reply;
    if (reply.number == 0) return;
    ++counts_["complete seen"];
    require(reply.saved.size() == reply.shards, "a complete checkpoint lacks a shard");
    for (std::size_t i = 0; i < reply.saved.size(); ++i) {
      const wire::CheckpointShard& shard = reply.saved[i];
      require(shard.shard == i, "a shard twice");
      require(locations_[reply.number].contains(shard.location),
              "shard " + std::to_string(i) + " lies where nobody saved it");
      // Of one that jumped there, a daemon that was started again knows where it was to save.
      const bool jumps = std::string(rule_.policy).find("backup") != std::string::npos;
      require(jumps || shard.location.ends_with("/" + std::to_string(shard.iteration)),
              "a shard is of another iteration");
    }
  }

  // ---- what a process hears

  void deliver(Reply& reply) {
    if (const auto* found = std::get_if<wire::LatestCheckpointReply>(&reply.body)) {
      return check_latest(*found);
    }
    for (auto& p : processes_) {
      if (p->connection != 0 && p->connection == reply.to.connection && !p->gone) {
        hear(*p, reply.body);
      }
    }
  }

  void hear(Process& p, const wire::Body& body) {
    if (const auto* joined = std::get_if<wire::Joined>(&body)) {
      p.joined = true;
      if (joined->worker.epoch != p.ref.epoch || joined->worker.incarnation != p.ref.incarnation) {
        if (joined->worker.incarnation != p.ref.incarnation) p.told.clear();
      }
      p.ref = joined->worker;
      if (p.granted <= p.pushed) p.next = std::max(joined->iteration, p.pushed + 1);
    } else if (const auto* granted = std::get_if<wire::Granted>(&body)) {
      on_granted(p, *granted);
    } else if (const auto* pushed = std::get_if<wire::Pushed>(&body)) {
      p.pushed = pushed->iteration;
      p.next = p.pushed + 1;
    } else if (const auto* error = std::get_if<wire::Error>(&body)) {
      on_error(p, *error);
    } else if (std::holds_alternative<wire::Ok>(body) && saying_.first == &p) {
      p.said.insert(saying_.second);
    }
  }

  void on_granted(Process& p, const wire::Granted& granted) {
    p.begun = false;
    if ((granted.flags & wire::kStepStop) != 0) {
      p.gone = true;
      return;
    }
    p.granted = granted.iteration;
    p.next = granted.iteration;
    const bool told = (granted.flags & wire::kStepCheckpoint) != 0;
    require(told == (granted.checkpoint != 0), "a flag without a number");
    if (told) {
      ++counts_["told"];
      p.told.emplace(granted.checkpoint, granted.iteration);
      p.shards[granted.checkpoint] = {granted.shard, granted.shards};
      // One that lost records brought back may be fixed anew, with others.
      const auto& owners = owners_[granted.checkpoint];
      if (owners.contains(p.ref.rank)) {
        const auto place = std::distance(owners.begin(), owners.find(p.ref.rank));
        require(granted.shards == owners.size() && granted.shard == place,
                p.name + " is told another shard than its place among all that save");
      }
      const auto& members = members_[granted.checkpoint];
      const auto member = members.find(p.ref.rank);
      require(p.takes_part, p.name + " is told to save and takes no part");
      if (member == members.end()) return;
      require(granted.iteration >= member->second, p.name + " is told too early");
      require(!rule_.has_one_iteration || granted.iteration == member->second,
              p.name + " is told too late");
    } else if (fixed_ != 0) {
      const auto& members = members_[fixed_];
      const auto member = members.find(p.ref.rank);
      const bool is_due = member != members.end() && granted.iteration >= member->second;
      // One that had ended, which a lost end of the history has brought back, is told of no more.
      require(!is_due || p.told.contains(fixed_) || ended_.contains(fixed_),
              p.name + " is not told to save");
    }
  }

  void on_error(Process& p, const wire::Error& error) {
    switch (error.status) {
      case Status::kFenced:
        p.joined = p.begun = false;
        return;
      case Status::kStopped:
        p.gone = true;
        return;
      case Status::kRankTaken:
      case Status::kCancelled:
        p.begun = false;
        return;
      case Status::kWrongIteration:
        p.joined = p.begun = false;  // as the library does: it joins again
        p.connection = 0;
        if (p.granted > p.pushed) p.granted = p.pushed;
        return;
      case Status::kBroken:
      case Status::kState:
      case Status::kInvalid:
        // Closed meanwhile, or given up; the others' shards are other ones since a loss.
        if (saying_.first == &p) p.said.insert(saying_.second);
        return;
      default:
        throw Violation("refused: " + error.message);
    }
  }

  void note(const std::string& text) {
    if (text.empty()) return;
    trace_.push_back(seconds_text(now_) + "\n" + text);
    if (trace_.size() > 60) trace_.pop_front();
  }

  Random random_;
  Policies rule_{};
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  Effects effects_;
  Micros now_ = 1'000'000;
  std::uint32_t world_ = 0;
  bool sharded_ = false;
  std::vector<std::unique_ptr<Process>> processes_;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  std::deque<std::string> trace_;
  std::map<std::string, int> counts_;
  std::vector<Record> stored_;
  std::size_t committed_ = 0;
  std::vector<Reply> held_;
  std::deque<std::size_t> held_at_;
  std::deque<Plan> plans_;
  std::unique_ptr<JobSnapshot> snapshot_;

  std::map<std::uint64_t, std::map<Rank, Iteration>> members_;  // of each checkpoint, with its K
  std::map<std::uint64_t, std::set<Rank>> owners_;              // of its shards
  std::set<std::uint64_t> ended_;                               // also in records that were lost
  std::uint64_t fixed_ = 0;                                     // the open one that is fixed
  std::map<std::uint64_t, std::set<std::string>> locations_;
  std::pair<Process*, std::uint64_t> saying_{nullptr, 0};
  wire::LatestCheckpointReply latest_;
};

TEST(Checkpoints, AreSavedAtOnePlaceAndCompleteOrGivenUp) {
  std::uint64_t first = 1, runs = 1'000 * property_runs();
  if (const char* only = std::getenv("SYNCD_PROPERTY_SEED")) {
    first = std::strtoull(only, nullptr, 10);
    runs = 1;
  }
  std::map<std::string, int> counts;
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    Checkpointing job(seed);
    try {
      job.run();
    } catch (const Violation& violation) {
      FAIL() << "seed " << seed << ": " << violation.what() << "\n" << job.trace();
    }
    for (const auto& [what, count] : job.counts()) counts[what] += count;
  }
  if (runs == 1) return;
  for (const char* what :
       {"checkpoint_asked", "checkpoint_fixed", "checkpoint_saved", "checkpoint_complete",
        "checkpoint_incomplete", "restart", "told", "complete seen"}) {
    EXPECT_GE(counts[what], 100) << what << " is too seldom";
  }
}

}  // namespace
}  // namespace syncd::test
