// Random launches of one job, seen from outside: groups of processes that are killed, cut off and
// started again while orphans of earlier launches go on, with a daemon that dies. A small model of
// its own knows what each process has heard, and nothing of the engine.
//
//  - No process is granted its group's first iteration before the whole group asks to begin.
//  - An iteration of an epoch is granted to processes of one launch only, and there is one job.
//  - A process of a launch that was started again is granted nothing more.
//  - A group in which no process has come back begins where its processes say, one and all.
//  - Once failures end, every process of the latest launch is granted iterations.
//
//   SYNCD_PROPERTY_SEED=<n>  runs that one seed only    SYNCD_PROPERTY_RUNS=<n>  n times as many
//   runs
//
// One thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
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

struct Process {
  std::string name;
  std::uint64_t launch = 0;
  std::uint32_t world = 0;
  Iteration loaded = 0;  // of its checkpoint
  bool dead = false, ended = false;
  ConnectionId connection = 0;
  bool joined = false, begun = false;
  wire::WorkerRef ref;
  Iteration next = 0, granted = kNoIteration, pushed = kNoIteration;
  bool alive() const { return !dead && !ended; }
};

class Launches {
 public:
  explicit Launches(std::uint64_t seed) : random_(seed) {
    constexpr const char* kPolicies[] = {"asp", "bsp", "ssp:1", "bsp:2,backup=1", "dssp:1-3"};
    options_.defaults.policy = kPolicies[random_.below(5)];
    options_.defaults.worker_grace_us = kGrace;
    options_.snapshot_every_records = static_cast<std::uint64_t>(random_.between(3, 40));
    engine_ = std::make_unique<Engine>(options_);
  }

  // What came last.
  std::string trace() const {
    std::string text;
    for (const std::string& one : trace_) text += one + "\n";
    return text;
  }

  void run() {
    start_launch();
    for (int i = 0; i < 400; ++i) {
      if (random_.one_in(12)) {
        disturb();
      } else {
        act(*random_.pick(processes_));
      }
      advance(random_.between(0, 100'000));
    }
    // Failures end. Orphans stay.
    for (int round = 0; round < 400; ++round) {
      for (std::size_t i = 0; i < processes_.size(); ++i) {
        if (processes_[i]->dead && processes_[i]->launch == number_ && !processes_[i]->ended) {
          revive(i);
        }
        act(*processes_[i]);
      }
      advance(50'000);
    }
    for (const auto& p : processes_) {
      if (p->launch != number_ || p->dead) continue;
      require(p->pushed != kNoIteration, p->name + " of the latest launch goes nowhere");
    }
    // And it ends when all have left in good order.
    for (auto& p : processes_) {
      if (p->alive() && p->joined) request(*p, wire::Leave{p->ref});
    }
    advance(20 * kGrace);
  }

 private:
  static constexpr Micros kGrace = 1'000'000;

  // ---- what happens

  void start_launch() {
    ++number_;
    const auto world = static_cast<std::uint32_t>(random_.between(2, 4));
    const Iteration loaded = random_.one_in(2) ? 0 : random_.between(1, 50);
    for (std::uint32_t i = 0; i < world; ++i) {
      auto p = std::make_unique<Process>();
      p->name = "w" + std::to_string(i);
      p->launch = number_;
      p->world = world;
      p->loaded = loaded;
      processes_.push_back(std::move(p));
    }
  }

  // The same process of its launch, started once more by itself.
  void revive(std::size_t index) {
    Process& before = *processes_[index];
    auto p = std::make_unique<Process>();
    p->name = before.name;
    p->launch = before.launch;
    p->world = before.world;
    p->loaded = before.loaded;
    before.ended = true;
    processes_.push_back(std::move(p));
  }

  void disturb() {
    Process& p = *random_.pick(processes_);
    switch (random_.below(8)) {
      case 0:  // the launcher starts all of them again, and may leave orphans
        for (auto& other : processes_) {
          if (!random_.one_in(4)) kill(*other);
        }
        return start_launch();
      case 1:
      case 2:
        return kill(p);
      case 3:
        return cut(p);
      case 4:  // the network of all of them, for longer than the grace perhaps
        for (auto& other : processes_) cut(*other);
        return advance(random_.between(0, 4 * kGrace));
      case 5:
        return restart();
      default:
        for (std::size_t i = 0; i < processes_.size(); ++i) {
          if (processes_[i]->dead && !processes_[i]->ended && processes_[i]->launch == number_) {
            return revive(i);
          }
        }
        return advance(random_.between(0, 2 * kGrace));
    }
  }

  void kill(Process& p) {
    if (p.dead) return;
    cut(p);
    p.dead = true;
  }

  void cut(Process& p) {
    const ConnectionId connection = std::exchange(p.connection, 0);
    p.joined = p.begun = false;
    if (connection == 0) return;
    engine_->step(Disconnected{connection, {}, random_.one_in(2)}, now_, effects_);
    absorb();
  }

  void restart() {
    if (stored_.empty()) return;
    engine_ = std::make_unique<Engine>(options_);
    std::string error;
    const bool use_snapshot = snapshot_ && random_.one_in(2);
    const std::size_t skip = use_snapshot ? snapshot_->sequence : 0;
    const bool restored = engine_->restore(use_snapshot ? snapshot_.get() : nullptr,
                                           std::span(stored_).subspan(skip), error);
    require(restored, error);
    engine_->finish_restore(now_);
    for (auto& p : processes_) {
      p->connection = 0;
      p->joined = p->begun = false;
    }
  }

  void note(const std::string& text) {
    if (text.empty()) return;
    trace_.push_back(seconds_text(now_) + "\n" + text);
    if (trace_.size() > 40) trace_.erase(trace_.begin());
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

  // ---- a process

  void act(Process& p) {
    if (!p.alive()) return;
    if (!p.joined) {
      wire::Join join;
      join.job = "train";
      join.name = p.name;
      join.host = "host";
      join.world_size = p.world;
      join.launch = "llm";
      join.launch_number = p.launch;
      if (p.loaded > 0) {
        join.resume = wire::Resume::kContinue;
        join.resume_at = p.loaded;
      }
      if (p.ref.incarnation != 0) {
        join.rank = static_cast<std::int32_t>(p.ref.rank);
        join.incarnation = p.ref.incarnation;
        join.epoch = p.ref.epoch;
        join.granted = p.granted;
        join.pushed = p.pushed;
      }
      return request(p, join);
    }
    if (p.granted > p.pushed) return request(p, wire::Push{p.ref, p.granted, {}, 0, 0});
    if (!p.begun) {
      p.begun = true;
      request(p, wire::Begin{p.ref, p.next});
    }
  }

  template <class Body>
  void request(Process& p, Body body) {
    advance(0);
    note(p.name + " of launch " + std::to_string(p.launch) + ": " + to_text(wire::Body{body}));
    if (p.connection == 0) p.connection = next_connection_++;
    engine_->step(Request{{p.connection, next_request_++}, std::move(body)}, now_, effects_);
    absorb();
  }

  void absorb() {
    note(to_text(effects_, now_));
    for (const Record& record : effects_.records) {
      require(record.job == 1, "the launches split into two jobs");
      stored_.push_back(record);
      if (record.kind == RecordKind::kJobReassembling) returned_.clear();
      if (record.kind == RecordKind::kJobStarted) goes_on_ = !returned_.empty();
      if (record.kind == RecordKind::kWorkerJoined && record.returned) {
        returned_.insert(record.rank);
      } else if (record.kind != RecordKind::kPush && !record.resumed) {
        returned_.erase(record.rank);
      }
    }
    for (const JobSnapshot& snapshot : effects_.snapshots) {
      snapshot_ = std::make_unique<JobSnapshot>(snapshot);
    }
    for (const Reply& reply : effects_.replies) {
      for (auto& p : processes_) {
        if (p->connection == reply.to.connection && p->alive()) hear(*p, reply.body);
      }
    }
    for (const Notification& notice : effects_.notifications) {
      for (auto& p : processes_) {
        if (p->connection != notice.connection || !p->alive()) continue;
        if (std::holds_alternative<wire::StopNotice>(notice.body)) p->ended = true;
        if (std::holds_alternative<wire::FencedNotice>(notice.body)) p->joined = p->begun = false;
      }
    }
  }

  void hear(Process& p, const wire::Body& body) {
    if (const auto* joined = std::get_if<wire::Joined>(&body)) {
      latest_joined_ = std::max(latest_joined_, p.launch);
      require(p.launch == latest_joined_, "an orphan is taken in");
      p.joined = true;
      p.ref = joined->worker;
      if (p.granted <= p.pushed) p.next = std::max(joined->iteration, p.pushed + 1);
    } else if (const auto* granted = std::get_if<wire::Granted>(&body)) {
      on_granted(p, *granted);
    } else if (const auto* pushed = std::get_if<wire::Pushed>(&body)) {
      p.pushed = pushed->iteration;
      p.next = p.pushed + 1;
    } else if (const auto* error = std::get_if<wire::Error>(&body)) {
      on_error(p, *error);
    } else if (std::holds_alternative<wire::Ok>(body)) {
      p.ended = true;  // it has left
    }
  }

  void on_granted(Process& p, const wire::Granted& granted) {
    if ((granted.flags & wire::kStepStop) != 0) {
      p.ended = true;
      return;
    }
    const std::string who = p.name + " of launch " + std::to_string(p.launch);
    require(p.launch == latest_joined_, who + " is granted an iteration and was superseded");
    const auto [owner, first] = launches_.emplace(p.ref.epoch, p.launch);
    require(owner->second == p.launch, who + " shares an epoch with another launch");
    if (first) check_first(p, granted, who);
    p.begun = false;
    p.granted = granted.iteration;
  }

  // The first grant of an epoch: as many as the launch has ask to begin, or have been granted more
  // in this very event.
  void check_first(const Process& p, const wire::Granted& granted, const std::string& who) const {
    const auto asking = std::count_if(processes_.begin(), processes_.end(), [&](const auto& other) {
      return other->alive() && other->launch == p.launch && other->begun;
    });
    require(asking >= p.world, who + " is granted alone");
    const bool resumed = (granted.flags & wire::kStepResumed) != 0;
    if (!goes_on_) {
      require(granted.iteration == p.loaded, who + " begins with another model than it has loaded");
      require(resumed == (p.loaded > 0), who + " is told wrongly whether the job goes on");
    } else {
      require(resumed, who + " is not told that the job goes on");
    }
  }

  void on_error(Process& p, const wire::Error& error) {
    switch (error.status) {
      case Status::kStopped:
        p.ended = true;
        return;
      case Status::kFenced:  // another process has its place, or it is lost: it comes back once
        if (!p.joined) p.ended = true;
        p.joined = p.begun = false;
        return;
      case Status::kRankTaken:
      case Status::kCancelled:
        p.begun = false;
        return;
      case Status::kClosed:
        return;
      case Status::kInvalid:
        // The sizes of two launches differ, and the later one is here.
        require(p.launch < latest_joined_, "refused: " + error.message);
        p.ended = true;
        return;
      default:
        throw Violation("refused: " + error.message);
    }
  }

  Random random_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  Effects effects_;
  Micros now_ = 1'000'000;
  std::vector<std::unique_ptr<Process>> processes_;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  std::vector<std::string> trace_;
  std::vector<Record> stored_;
  std::unique_ptr<JobSnapshot> snapshot_;

  std::uint64_t number_ = 0;                 // of the latest launch
  std::uint64_t latest_joined_ = 0;          // of which a process was taken in
  std::set<std::int64_t> returned_;          // ranks of the present group that have come back
  bool goes_on_ = false;                     // one of them was there at the start
  std::map<Epoch, std::uint64_t> launches_;  // that were granted iterations, by epoch
};

TEST(Launches, NeverSplitNorTrainAlone) {
  std::uint64_t first = 1, runs = 1'000 * property_runs();
  if (const char* only = std::getenv("SYNCD_PROPERTY_SEED")) {
    first = std::strtoull(only, nullptr, 10);
    runs = 1;
  }
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    Launches launches(seed);
    try {
      launches.run();
    } catch (const Violation& violation) {
      FAIL() << violation.what() << "\nseed " << seed << " (SYNCD_PROPERTY_SEED=" << seed << ")\n"
             << launches.trace();
    }
  }
}

}  // namespace
}  // namespace syncd::test
