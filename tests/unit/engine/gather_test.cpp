// Random rounds of a job under gather, seen from outside: agents that begin, leave, die, are cut
// off and come back, operators who change MAX and exclude hosts, and a daemon that dies at any
// moment. A small model of its own knows what each agent has said and heard.
//
//  - Every member of a round gets the same view, and finds itself in it at its place.
//  - A round has MIN to MAX members. No round begins while a member of the last one has neither
//    begun anew nor ended: no two train at once.
//  - A worker that waits is taken exactly if there is room, members of the last round first.
//  - Once a member has finished, no newcomer is taken.
//  - A joiner's MIN and MAX count only where no agent is a member.
//  - Rounds are numbered without repeats, whatever the daemon has forgotten.
//  - Once failures end, every agent that begins gets a round, is a spare, or hears of the end.
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

struct WrongRound : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require_round(bool holds, const std::string& text) {
  if (!holds) throw WrongRound(text);
}

struct Agent {
  std::string name, host;
  bool ended = false;  // it has left, or heard of the end
  ConnectionId connection = 0;
  bool joined = false;
  wire::WorkerRef ref;
  std::int64_t next = 1;   // the round to ask for
  std::int64_t seen = -1;  // the latest one granted
  bool waits = false;      // a begin is pending, as far as it knows
  bool leaves = false;     // likewise a leave
  std::string data;
};

class Rounds {
 public:
  explicit Rounds(std::uint64_t seed) : random_(seed) {
    min_ = random_.between(1, 3);
    max_ = min_ + random_.between(0, 3);
    first_min_ = min_;
    first_max_ = max_;
    options_.snapshot_every_records = static_cast<std::uint64_t>(random_.between(4, 60));
    engine_ = std::make_unique<Engine>(options_);
    const std::int64_t agents = random_.between(2, 7);
    for (std::int64_t i = 0; i < agents; ++i) {
      agents_.push_back({.name = "n" + std::to_string(i),
                         .host = "h" + std::to_string(i % 5),
                         .ref = {},
                         .data = {}});
    }
  }

  std::string trace() const {
    std::string text;
    for (const std::string& one : trace_) text += one + "\n";
    return text;
  }
  std::size_t rounds() const { return views_.size(); }
  std::size_t switched() const { return switched_; }

  void run() {
    for (int i = 0; i < 300; ++i) {
      if (random_.one_in(8)) {
        disturb();
      } else {
        act(random_.pick(agents_));
      }
      advance(random_.one_in(10) ? random_.between(0, 20'000'000) : random_.between(0, 800'000));
    }
    // Failures end: whoever is in a round ends its part, and all begin anew.
    failures_end_ = true;
    for (int i = 0; i < 12; ++i) {
      for (Agent& agent : agents_) {
        for (int k = 0; k < 3; ++k) act(agent, true);
      }
      advance(10'000'000);
    }
    std::size_t unserved = 0;
    for (const Agent& agent : agents_) unserved += !agent.ended && agent.seen < 0 ? 1 : 0;
    const auto living = static_cast<std::int64_t>(std::count_if(
        agents_.begin(), agents_.end(), [](const Agent& agent) { return !agent.ended; }));
    const bool enough = living >= min_ && excluded_.empty() && !finished_;
    if (enough && living <= max_) require_round(unserved == 0, "an agent waits for ever");
  }

 private:
  static std::string policy(std::int64_t min, std::int64_t max) {
    return "gather:" + std::to_string(min) + "-" + std::to_string(max) +
           ",last_call=1s,straggle_wait=15s";
  }

  // ---- what happens

  void act(Agent& agent, bool heal = false) {
    if (agent.ended) {
      if (!heal && !random_.one_in(6)) return;
      if (heal && finished_) return;
      restart_process(agent);
    }
    if (!agent.joined) return join(agent);
    if (!agent.waits) {
      // It trains, or has just joined.
      if (!heal && agent.seen > 0 && agent.next > agent.seen && !random_.one_in(3)) return;
      agent.data = agent.name + ":" + std::to_string(++data_);
      agent.waits = true;
      return request(agent,
                     wire::Arrive{agent.ref, agent.next, {agent.data.begin(), agent.data.end()}});
    }
    if (!heal && random_.one_in(10)) {
      agent.waits = false;
      request(agent, wire::CancelBegin{agent.ref, agent.next});
    }
  }

  void join(Agent& agent) {
    wire::Join join;
    join.job = "train";
    // Of which the numbers count only where no member is left.
    const std::int64_t more = random_.one_in(4) ? random_.between(0, 2) : 0;
    join.policy = policy(first_min_, first_max_ + more);
    join.name = agent.name;
    join.host = agent.host;
    join.granted = agent.seen;
    if (agent.ref.incarnation != 0) {
      join.rank = static_cast<std::int32_t>(agent.ref.rank);
      join.incarnation = agent.ref.incarnation;
      join.epoch = agent.ref.epoch;
    } else {
      join.granted = -1;
    }
    request(agent, join);
  }

  void restart_process(Agent& agent) {
    cut(agent, true);
    agent.ended = agent.joined = agent.waits = agent.leaves = false;
    agent.ref = {};
    agent.seen = -1;
  }

  void cut(Agent& agent, bool by_peer) {
    if (agent.connection == 0) return;
    const ConnectionId connection = std::exchange(agent.connection, 0);
    agent.joined = agent.waits = agent.leaves = false;
    note(agent.name + " is cut off");
    step(Disconnected{connection, {}, by_peer});
  }

  void disturb() {
    Agent& agent = random_.pick(agents_);
    switch (random_.below(10)) {
      case 0:
      case 1:
        return cut(agent, random_.one_in(2));
      case 2:
      case 3:
        return restart_process(agent);
      case 4: {
        if (!agent.joined || agent.ended) return;
        const bool finishes = random_.one_in(4);
        wire::Leave leave{agent.ref};
        leave.kind = finishes ? wire::LeaveKind::kFinished
                              : static_cast<wire::LeaveKind>(random_.one_in(2) ? 0 : 2);
        agent.leaves = true;
        agent.waits = false;  // a leave withdraws it
        return request(agent, leave);
      }
      case 5: {
        if (engine_->find_job("train") == 0) return;
        const std::int64_t min = random_.between(1, 3);
        return ask_operator(
            wire::SetPolicyRequest{"train", policy(min, min + random_.between(0, 3))});
      }
      case 6: {
        const std::string host = "h" + std::to_string(random_.below(5));
        return ask_operator(
            wire::ExcludeRequest{"train", host, excluded_.contains(host), true, ""});
      }
      default:
        return crash();
    }
  }

  // The daemon dies, perhaps before the records of its last event were stored, of which nobody has
  // heard then.
  void crash() {
    note("the daemon dies");
    engine_ = std::make_unique<Engine>(options_);
    for (Agent& agent : agents_) {
      agent.connection = 0;
      agent.joined = agent.waits = agent.leaves = false;
    }
    for (auto& [job, records] : stored_) {
      const auto at = snapshots_.find(job);
      const JobSnapshot* snapshot =
          at != snapshots_.end() && random_.one_in(2) ? &at->second : nullptr;
      const std::size_t skip = snapshot == nullptr ? 0 : snapshot->sequence;
      std::string error;
      require_round(engine_->restore(snapshot, std::span(records).subspan(skip), error),
                    "not restored: " + error);
    }
    engine_->finish_restore(now_);
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

  template <class Body>
  void ask_operator(Body body) {
    note("operator: " + to_text(wire::Body{body}));
    operator_asks_ = true;
    step(Request{{kOperator, next_request_++}, std::move(body)});
    operator_asks_ = false;
  }
  template <class Body>
  void request(Agent& agent, Body body) {
    advance(0);
    note(agent.name + ": " + to_text(wire::Body{body}));
    if (agent.connection == 0) agent.connection = next_connection_++;
    step(Request{{agent.connection, next_request_++}, std::move(body)});
  }
  void step(Event event) {
    engine_->step(std::move(event), now_, effects_);
    // The daemon dies before what it has just done is on the disk.
    if (!failures_end_ && random_.one_in(60)) return crash();
    absorb();
  }

  // ---- what comes of it

  void absorb() {
    note(to_text(effects_, now_));
    for (const Record& record : effects_.records) {
      stored_[record.job].push_back(record);
      see(record);
    }
    for (const JobSnapshot& snapshot : effects_.snapshots) {
      snapshots_[snapshot.created.job] = snapshot;
    }
    const Effects heard = effects_;
    for (const Reply& reply : heard.replies) {
      if (reply.to.connection == kOperator) continue;
      for (Agent& agent : agents_) {
        if (agent.connection == reply.to.connection) hear(agent, reply.body);
      }
    }
    for (const Notification& notice : heard.notifications) {
      for (Agent& agent : agents_) {
        if (agent.connection != notice.connection) continue;
        if (const auto* stop = std::get_if<wire::StopNotice>(&notice.body)) {
          if (stop->worker == agent.ref) agent.ended = true;
        } else if (const auto* fenced = std::get_if<wire::FencedNotice>(&notice.body)) {
          if (fenced->worker == agent.ref) agent.joined = agent.waits = false;
        } else if (const auto* round = std::get_if<wire::RoundNotice>(&notice.body)) {
          require_round(round->round == last_, "a notice of round " + std::to_string(round->round));
          require_round(round->worker == agent.ref, "a notice for another worker");
        }
      }
    }
  }

  Agent* agent_of(const std::string& name) {
    for (Agent& agent : agents_) {
      if (agent.name == name) return &agent;
    }
    return nullptr;
  }

  // By the records alone: whose part in the last round is over.
  void see(const Record& record) {
    switch (record.kind) {
      case RecordKind::kJobCreated:
        finished_ = false;
        members_.clear();
        excluded_.clear();
        return take_sizes(record.policy);
      case RecordKind::kPolicySwitched:
        require_round(operator_asks_ || !has_members(record.job),
                      "a joiner changes the policy of a job with members");
        switched_ += operator_asks_ ? 0 : 1;
        return take_sizes(record.policy);
      case RecordKind::kWorkerJoined:
        for (auto& [name, member] : members_) {
          if (member.rank == record.rank && member.incarnation != record.incarnation) {
            member.ended = true;
          }
        }
        return;
      case RecordKind::kWorkerLeft:
      case RecordKind::kWorkerLost:
        for (auto& [name, member] : members_) {
          if (member.rank != record.rank || member.incarnation != record.incarnation) continue;
          member.ended = true;
          if (record.reason.starts_with("finished")) finished_ = true;
        }
        return;
      case RecordKind::kPolicyNote:
        if (record.name == "exclude") {
          excluded_.insert(record.host);
        } else {
          excluded_.erase(record.host);
        }
        return;
      case RecordKind::kView:
        return see_view(record);
      default:
        return;
    }
  }

  // As far as the agents know.
  bool has_members(JobId job) const {
    return std::any_of(agents_.begin(), agents_.end(), [&](const Agent& agent) {
      return agent.joined && !agent.ended && agent.ref.job == job;
    });
  }

  void take_sizes(const std::string& policy) {
    min_ = max_ = std::stoll(policy.substr(policy.find(':') + 1));
    const std::size_t dash = policy.find('-');
    if (dash != std::string::npos) max_ = std::stoll(policy.substr(dash + 1));
  }

  void see_view(const Record& record) {
    const auto number = static_cast<std::uint64_t>(record.iteration);
    const std::string round = "round " + std::to_string(number);
    require_round(number > last_, round + " comes after round " + std::to_string(last_));
    last_ = number;
    const auto size = static_cast<std::int64_t>(record.members.size());
    require_round(size >= min_ && size <= max_,
                  round + " has " + std::to_string(size) + " members");
    std::set<std::string> taken;
    for (const ViewMember& member : record.members) {
      require_round(taken.insert(member.name).second, round + " has " + member.name + " twice");
      require_round(!excluded_.contains(member.host), round + " has an excluded host");
      const Agent* agent = agent_of(member.name);
      require_round(agent->waits, round + " has " + member.name + ", which does not wait");
      require_round(agent->data == std::string(member.data.begin(), member.data.end()),
                    round + " has old data of " + member.name);
      if (finished_) {
        require_round(members_.contains(member.name) && !members_.at(member.name).ended,
                      round + " takes " + member.name + " after others have finished");
      }
    }
    // Nobody of the last round trains on.
    std::size_t waiting = 0;
    for (const auto& [name, member] : members_) {
      const Agent* agent = agent_of(name);
      const bool waits = agent->waits && agent->ref.incarnation == member.incarnation;
      require_round(member.ended || waits, round + " begins while " + name + " trains");
    }
    for (const Agent& agent : agents_) {
      if (!agent.waits || !agent.joined || excluded_.contains(agent.host)) continue;
      if (finished_ && (!members_.contains(agent.name) || members_.at(agent.name).ended)) continue;
      ++waiting;
    }
    if (!finished_) {
      require_round(
          static_cast<std::int64_t>(std::min<std::size_t>(waiting, max_)) == size,
          round + " has " + std::to_string(size) + " of " + std::to_string(waiting) + " that wait");
    }
    members_.clear();
    for (const ViewMember& member : record.members) {
      members_[member.name] = {member.rank, member.incarnation, false};
    }
    views_[number] = record.members;
    reasons_[number] = record.reason;
  }

  void hear(Agent& agent, const wire::Body& body) {
    if (const auto* joined = std::get_if<wire::Joined>(&body)) {
      agent.joined = true;
      agent.ref = joined->worker;
      agent.next = joined->iteration;
      agent.waits = false;
      if (!joined->resumed) agent.seen = -1;
      require_round(joined->views && joined->round <= last_, "a join to a later round");
    } else if (const auto* granted = std::get_if<wire::ViewGranted>(&body)) {
      agent.waits = false;
      if ((granted->flags & wire::kStepStop) != 0) {
        require_round(granted->size == 0 && !granted->reason.empty(), "a stop with a view");
        agent.ended = random_.one_in(2);
        return;
      }
      on_granted(agent, *granted);
    } else if (const auto* error = std::get_if<wire::Error>(&body)) {
      on_error(agent, *error);
    } else if (const auto* page = std::get_if<wire::ViewReply>(&body)) {
      require_round(page->members.size() == views_.at(page->view).size(), "another view is read");
    } else if (std::holds_alternative<wire::Ok>(body)) {
      // Of a leave, or a cancelled begin.
      if (std::exchange(agent.leaves, false)) {
        agent.ended = true;
        agent.joined = agent.waits = false;
        agent.ref = {};
      }
    }
  }

  void on_granted(Agent& agent, const wire::ViewGranted& granted) {
    const std::string who = agent.name + " in round " + std::to_string(granted.view);
    const auto view = views_.find(granted.view);
    require_round(view != views_.end(), who + ", which no record has");
    require_round(granted.view == last_, who + ", which is over");
    require_round(granted.iteration == static_cast<std::int64_t>(granted.view),
                  who + ": its clock");
    require_round(granted.size == view->second.size() && granted.rank < granted.size,
                  who + ": its size");
    const ViewMember& own = view->second[granted.rank];
    require_round(own.name == agent.name && own.incarnation == agent.ref.incarnation,
                  who + ": its place is " + own.name + "'s");
    require_round(granted.data == view->second.front().data, who + ": the data of the first");
    require_round(granted.reason == reasons_.at(granted.view), who + ": the reason");
    agent.seen = granted.iteration;
    agent.next = granted.iteration + 1;
  }

  void on_error(Agent& agent, const wire::Error& error) {
    switch (error.status) {
      case Status::kCancelled:
      case Status::kClosed:
        return;
      case Status::kFenced:
        agent.joined = agent.waits = false;
        agent.ref = {};
        agent.seen = -1;
        return;
      case Status::kStopped:
      case Status::kUnknownJob:
        agent.joined = agent.waits = false;
        agent.ref = {};
        agent.seen = -1;
        return;
      case Status::kRankTaken:  // its old connection is not known to be gone yet
      case Status::kUnknownWorker:
        return;
      default:
        throw WrongRound(agent.name + " is refused: " + error.message);
    }
  }

  void note(std::string text) {
    if (text.empty()) return;
    trace_.push_back(std::to_string(now_) + " " + std::move(text));
    if (trace_.size() > 120) trace_.erase(trace_.begin());
  }

  static constexpr ConnectionId kOperator = 1'000'000;
  struct MemberSeen {
    std::int64_t rank = 0;
    Incarnation incarnation = 0;
    bool ended = false;
  };

  Random random_;
  EngineOptions options_;
  std::unique_ptr<Engine> engine_;
  Effects effects_;
  Micros now_ = 1'000'000;
  std::int64_t min_ = 1, max_ = 1;
  std::int64_t first_min_ = 1, first_max_ = 1;
  std::vector<Agent> agents_;
  std::uint64_t data_ = 0;
  ConnectionId next_connection_ = 1;
  RequestId next_request_ = 1;
  std::vector<std::string> trace_;
  std::map<JobId, std::vector<Record>> stored_;
  std::map<JobId, JobSnapshot> snapshots_;

  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::vector<ViewMember>> views_;
  std::map<std::uint64_t, std::string> reasons_;
  std::map<std::string, MemberSeen> members_;  // of the last round
  std::set<std::string> excluded_;
  bool finished_ = false;
  bool operator_asks_ = false;
  bool failures_end_ = false;
  std::size_t switched_ = 0;  // by joiners
};

TEST(Gather, RoundsNeverOverlapAndNobodyIsForgotten) {
  std::uint64_t first = 1, runs = 400 * property_runs();
  if (const char* only = std::getenv("SYNCD_PROPERTY_SEED")) {
    first = std::strtoull(only, nullptr, 10);
    runs = 1;
  }
  std::size_t formed = 0, switched = 0;
  for (std::uint64_t seed = first; seed < first + runs; ++seed) {
    Rounds rounds(seed);
    try {
      rounds.run();
    } catch (const WrongRound& wrong) {
      FAIL() << wrong.what() << "\nseed " << seed << " (SYNCD_PROPERTY_SEED=" << seed << ")\n"
             << rounds.trace();
    }
    formed += rounds.rounds();
    switched += rounds.switched();
  }
  EXPECT_GE(formed, 3 * runs) << "too few rounds form to show anything";
  EXPECT_TRUE(switched > 0 || runs == 1) << "no joiner found a job that others had left";
}

TEST(Gather, AJoinerThatFindsNobodyMayNotMakeRoundsTooLarge) {
  EngineOptions options;
  options.workers_per_job_max = 4;
  Engine engine(options);
  Effects effects;
  const auto ask = [&](ConnectionId from, wire::Body body) {
    engine.step(Request{{from, from}, std::move(body)}, 0, effects);
    return to_text(effects.replies.at(0).body);
  };
  wire::Join join;
  join.job = "train";
  join.name = join.host = "a";
  join.policy = "gather:1-4";
  ask(1, join);
  wire::Leave leave{std::get<wire::Joined>(effects.replies.at(0).body).worker};
  leave.kind = wire::LeaveKind::kFailed;
  EXPECT_EQ(ask(1, leave), "ok");
  join.policy = "gather:1-5";
  EXPECT_EQ(
      ask(2, join),
      "error SYNCD_E_LIMIT \"job 'train' is to have rounds of 5 workers: this daemon allows 4 "
      "per job (limits.workers_per_job_max)\"");
  join.policy = "gather:2-3";
  ask(3, join);
  EXPECT_EQ(std::get<wire::Joined>(effects.replies.at(0).body).policy, "gather:2-3");
}

}  // namespace
}  // namespace syncd::test
