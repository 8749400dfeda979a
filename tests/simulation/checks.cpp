// See checks.h.
#include "checks.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "daemon/core/policies/registry.h"
#include "tests/support/effects_text.h"
#include "violation.h"

namespace syncd::simulation {
namespace {

std::string text(const Record& record) {
  return std::string(to_string(record.kind)) + " of rank " + std::to_string(record.rank) +
         ", iteration " + std::to_string(record.iteration) + ", incarnation " +
         std::to_string(record.incarnation);
}

}  // namespace

void Checks::on_log(const LogLine& line) {
  ++counts_["log " + line.event];
  if (!trace_) return;
  std::string said = line.event;
  for (const auto& [key, value] : line.fields) {
    said += " ";
    said += key;
    said += "=";
    said += value;
  }
  trace_(said);
}

void Checks::count(const std::string& what, std::uint64_t times) {
  counts_[what] += times;
  if (trace_) trace_(what);
}

void Checks::on_records(const std::vector<Record>& records) {
  for (const Record& record : records) {
    ++counts_[to_string(record.kind)];
    if (trace_) trace_("  " + text(record) + " of job " + std::to_string(record.job));
    apply(record);
  }
}

void Checks::on_push(const wire::Push& push) {
  const wire::WorkerRef& worker = push.worker;
  const bool is_new =
      sent_.insert({worker.job, worker.rank, worker.incarnation, push.iteration}).second;
  if (!is_new) count("push sent again");
}

void Checks::apply(const Record& record) {
  if (record.kind == RecordKind::kJobReassembling) {
    require(record.epoch > epochs_[record.job], "an epoch is given twice");
    epochs_[record.job] = record.epoch;
    started_.erase(record.job);
    started_again_.insert(record.job);
    for (const auto& [key, member] : members_) {
      require(key.first != record.job || !member.takes_part,
              "a job waits for another start although rank " + std::to_string(key.second) +
                  " takes part");
    }
  }
  if (record.kind == RecordKind::kJobStarted) {
    started_.insert(record.job);
    if (started_again_.contains(record.job)) begin_again(record);
  }
  const bool switched = record.kind == RecordKind::kPolicySwitched;
  if (switched) policies_[record.job] = record.policy;
  if (switched || (record.kind == RecordKind::kBarrier && rule_of(record.job).renews)) {
    for (auto& [key, member] : members_) {
      if (key.first == record.job) member.base = member.clock;
    }
  }
  if (record.kind == RecordKind::kView) {
    rounds_[static_cast<std::uint64_t>(record.iteration)] = record.members;
  }
  if (record.kind == RecordKind::kJobStopped) {
    for (const auto& [key, name] : names_) {
      if (key.first == record.job) note_gone(name);
    }
  }
  if (record.rank == kNoRank) return;
  Member& member = members_[{record.job, static_cast<Rank>(record.rank)}];
  switch (record.kind) {
    case RecordKind::kWorkerJoined:
      names_[{record.job, static_cast<Rank>(record.rank)}] = record.name;
      if (record.incarnation != member.incarnation) {
        require(record.incarnation > member.incarnation, "an incarnation is given twice");
        member = {};
        member.incarnation = record.incarnation;
      }
      member.clock = record.clock;
      member.base = record.base;
      member.gone = false;
      if (!record.resumed) member.returned = record.returned;
      return;
    case RecordKind::kWorkerLeft:
    case RecordKind::kWorkerLost:
      if (is_shared_ && member.takes_part) {
        leaving_[{record.job, static_cast<Rank>(record.rank), record.incarnation}] = member;
      }
      member.takes_part = false;
      member.gone = true;
      note_gone(names_[{record.job, static_cast<Rank>(record.rank)}]);
      leaves_outside_ = leaves_outside_ || (record.kind == RecordKind::kWorkerLeft &&
                                            !rounds_.empty() && !is_in_latest_round(record));
      return;
    case RecordKind::kPush:
      require(record.incarnation == member.incarnation, "pushed in another life: " + text(record));
      require(record.clock >= member.clock, "a clock goes down: " + text(record));
      member.clock = record.clock;
      return;
    default:
      return;
  }
}

void Checks::on_committed(const std::vector<Record>& records) {
  for (const Record& record : records) {
    const std::pair key(record.job, static_cast<Rank>(record.rank));
    if (record.kind == RecordKind::kJobStopped) {
      for (const auto& [other, life] : lives_) {
        if (other.first == record.job) ++ends_[life.first];
      }
      std::erase_if(lives_, [&](const auto& item) { return item.first.first == record.job; });
    }
    const bool joins = record.kind == RecordKind::kWorkerJoined;
    const bool goes =
        record.kind == RecordKind::kWorkerLeft || record.kind == RecordKind::kWorkerLost;
    const auto life = lives_.find(key);
    if (life != lives_.end() && (goes || (joins && life->second.second != record.incarnation))) {
      ++ends_[life->second.first];
      lives_.erase(life);
    }
    if (joins) lives_[key] = {record.name, record.incarnation};
    if (goes) leaving_.erase({key.first, key.second, record.incarnation});
  }
}

void Checks::on_outcome(const std::string& name, const std::string& call, Status status) {
  ++counts_[call + " " + std::string(status_name(status))];
  if (trace_) trace_(name + ": " + call + " " + std::string(status_name(status)));
  if (!is_shared_ || status != Status::kFenced) return;
  require(++told_of_end_[name] <= ends_[name],
          name + " is told of its end, which is not committed");
}

bool Checks::is_in_latest_round(const Record& record) const {
  return std::ranges::any_of(rounds_.rbegin()->second, [&](const ViewMember& member) {
    return static_cast<std::int64_t>(member.rank) == record.rank &&
           member.incarnation == record.incarnation;
  });
}

void Checks::note_gone(const std::string& name) {
  gone_in_[name] = rounds_.empty() ? 0 : rounds_.rbegin()->first;
}

// The group goes on where those are that have come back, or all begin anew.
void Checks::begin_again(const Record& record) {
  for (auto& [key, member] : members_) {
    if (key.first != record.job || member.gone) continue;
    if (!record.resumed) member.clock = record.clock;
    if (record.resumed && !member.returned) member.clock = std::max(member.clock, record.clock);
    require(record.resumed || !member.returned,
            "rank " + std::to_string(key.second) + " has come back, and the job begins anew");
    member.base = member.clock;
    member.returned = false;
  }
}

void Checks::on_granted(const wire::WorkerRef& worker, const wire::Granted& granted) {
  ++counts_["granted"];
  if (trace_) {
    trace_("rank " + std::to_string(worker.rank) + " of life " +
           std::to_string(worker.incarnation) + " is granted " + std::to_string(granted.iteration));
  }
  if ((granted.flags & wire::kStepSkip) != 0) ++counts_["skip"];
  Member& member = members_[{worker.job, worker.rank}];
  if ((granted.flags & wire::kStepStop) != 0) return;
  // A life that has gone on elsewhere may be told of its end only.
  if (worker.incarnation != member.incarnation) return;
  // One that waited for a commit may come after its life's end.
  if (is_shared_ && member.gone) return;
  require(started_.contains(worker.job),
          "rank " + std::to_string(worker.rank) + " is granted an iteration of a job that waits");
  require(granted.iteration >= member.granted,
          "rank " + std::to_string(worker.rank) + " is granted " +
              std::to_string(granted.iteration) + " after " + std::to_string(member.granted));
  member.granted = granted.iteration;
  member.takes_part = true;
  granted_[{worker.job, worker.rank, worker.incarnation}] = granted.iteration;
  // One that was left behind by a superstep, or a whole graph of them, goes on with a later one.
  if ((granted.flags & wire::kStepSkip) != 0) {
    member.clock = std::max(member.clock, granted.iteration);
  }
  require(repeats_ || granted.iteration >= member.clock,
          "rank " + std::to_string(worker.rank) + " is granted " +
              std::to_string(granted.iteration) + ", which it has pushed");
  check_staleness(worker.job, worker.rank, member);
}

void Checks::on_view_granted(const wire::WorkerRef& worker, const wire::ViewGranted& granted) {
  ++counts_["view granted"];
  const std::string what =
      "round " + std::to_string(granted.view) + " of rank " + std::to_string(worker.rank);
  if (trace_) trace_(what + " is granted");
  const auto round = rounds_.find(granted.view);
  require(round != rounds_.end(), what + " is granted and not recorded");
  const std::vector<ViewMember>& members = round->second;
  require(granted.size == members.size() && granted.rank < members.size() &&
              members[granted.rank].rank == worker.rank,
          what + " is granted with another place than it is recorded with");
  const Rule& rule = rule_of(worker.job);
  require(members.size() >= rule.members_min && members.size() <= rule.members_max,
          what + " has " + std::to_string(members.size()) + " members");
  const bool is_new = granted_rounds_.emplace(granted.view, members).second;
  require(is_new || granted_rounds_.at(granted.view) == members,
          what + " was granted before, with other members");
  for (const auto& [name, trains_in] : training_) {
    if (trains_in == 0 || trains_in >= granted.view) continue;
    const auto gone = gone_in_.find(name);
    require(gone != gone_in_.end() && gone->second >= trains_in,
            what + " begins while " + name + " trains in round " + std::to_string(trains_in));
  }
}

void Checks::on_members(const std::string& name, const wire::ViewReply& view) {
  const auto granted = granted_rounds_.find(view.view);
  require(granted != granted_rounds_.end() && granted->second.size() == view.members.size(),
          name + " is told of other members than its round has");
  for (std::size_t i = 0; i < view.members.size(); ++i) {
    require(view.members[i].name == granted->second[i].name &&
                view.members[i].data == granted->second[i].data,
            name + " is told of another member than its round has");
  }
  ++counts_["members"];
}

void Checks::on_trains(const std::string& name, std::uint64_t round) {
  training_[name] = round;
}

const Rule& Checks::rule_of(JobId job) const {
  const auto changed = policies_.find(job);
  if (changed == policies_.end()) return rules_.front();
  for (const Rule& rule : rules_) {
    if (rule.policy == changed->second) return rule;
  }
  throw Violation("nobody has asked for policy '" + changed->second + "'");
}

void Checks::check_staleness(JobId job, Rank rank, const Member& member) const {
  const Rule& rule = rule_of(job);
  if (!rule.bound) return;
  const Clock ahead = member.granted - member.base;
  std::size_t behind = 0;
  const auto look_at = [&](Rank other_rank, const Member& other) {
    if (ahead - (other.clock - other.base) <= *rule.bound || ++behind <= rule.backup) return;
    throw Violation("under " + rule.policy + " rank " + std::to_string(rank) +
                    " is granted iteration " + std::to_string(member.granted) + " while rank " +
                    std::to_string(other_rank) + " has completed " + std::to_string(other.clock) +
                    ": more than " + std::to_string(*rule.bound) + " behind" +
                    (rule.backup > 0 ? ", and not the only one" : ""));
  };
  for (const auto& [key, other] : members_) {
    if (key.first == job && other.takes_part) look_at(key.second, other);
  }
  for (const auto& [key, other] : leaving_) {
    if (std::get<0>(key) == job) look_at(std::get<1>(key), other);
  }
}

void Checks::on_advised(const wire::WorkerRef& worker, std::int64_t iteration) {
  ++counts_["advised"];
  const auto granted = granted_.find({worker.job, worker.rank, worker.incarnation});
  const bool is_ahead = granted == granted_.end() || granted->second < iteration;
  // A grant that waits for a commit may be overtaken (effects.h). The client ignores the advice.
  if (is_shared_ && is_ahead) return count("advice overtakes its grant");
  require(!is_ahead && granted->second == iteration,
          "rank " + std::to_string(worker.rank) + " is to drop iteration " +
              std::to_string(iteration) + ", which it is not in");
  advised_.insert({worker.rank, iteration});
}

void Checks::on_dropped(std::uint32_t rank, std::int64_t iteration) {
  ++counts_["dropped"];
  require(advised_.contains({rank, iteration}),
          "rank " + std::to_string(rank) + " drops iteration " + std::to_string(iteration) +
              ", which nobody has advised");
}

void Checks::on_waits(const wire::WorkerRef& worker, const Explanation& why) {
  ++counts_["waits"];
  const std::string who = "rank " + std::to_string(worker.rank);
  require(why.iteration >= 0 && !why.rule.empty() && !why.text.empty(),
          who + " waits and is not told why: " + why.rule + ", " + why.text);
  for (const WaitedFor& other : why.workers) {
    require(other.rank != worker.rank, who + " waits for itself: " + why.text);
    const auto member = members_.find({worker.job, other.rank});
    // A job that has not started waits for whoever takes the place.
    const bool gone = member != members_.end() && member->second.gone;
    require(
        !gone || !started_.contains(worker.job),
        who + " waits for rank " + std::to_string(other.rank) + ", which has gone: " + why.text);
  }
}

void Checks::on_acknowledged(std::uint32_t rank, std::int64_t iteration) {
  ++counts_["acknowledged"];
  acknowledged_.insert({rank, iteration});
}

void Checks::on_published(std::uint32_t rank, std::int64_t iteration,
                          const std::vector<std::uint32_t>& targets) {
  published_.insert({rank, iteration, rank});
  for (const std::uint32_t target : targets) published_.insert({rank, iteration, target});
}

void Checks::on_collected(std::uint32_t rank, std::int64_t iteration,
                          const std::vector<wire::PeerUpdate>& updates) {
  ++counts_["collected"];
  double sum = 0;
  std::set<std::uint32_t> named;
  for (const wire::PeerUpdate& update : updates) {
    sum += update.weight;
    require(update.weight >= 0 && named.insert(update.rank).second,
            "a reduce of rank " + std::to_string(rank) + " weighs rank " +
                std::to_string(update.rank) + " twice or below zero");
    if (update.rank == rank) continue;
    const std::uint32_t target = loses_ends_ ? update.rank : rank;
    require(published_.contains({update.rank, update.iteration, target}),
            "rank " + std::to_string(rank) + " is to reduce in iteration " +
                std::to_string(iteration) + " what rank " + std::to_string(update.rank) +
                " has not sent it of iteration " + std::to_string(update.iteration));
  }
  require(named.contains(rank) && std::abs(sum - 1) < 1e-9,
          "the weights in a reduce of rank " + std::to_string(rank) +
              " lack its own, or do not sum to 1");
}

void Checks::on_restart(const Disk& disk) {
  members_.clear();
  leaving_.clear();
  started_.clear();
  started_again_.clear();
  epochs_.clear();
  policies_.clear();
  rounds_.clear();
  names_.clear();
  gone_in_.clear();
  for (const JobId job : disk.jobs()) {
    for (const Record& record : disk.history(job)) apply(record);
  }
}

void Checks::check_history(const Disk& disk) const {
  std::multiset<std::pair<std::uint32_t, std::int64_t>> pushes;
  for (const JobId job : disk.jobs()) {
    std::set<std::tuple<std::int64_t, Incarnation, Iteration>> seen;
    for (const Record& record : disk.history(job)) {
      if (record.kind != RecordKind::kPush) continue;
      require(seen.insert({record.rank, record.incarnation, record.iteration}).second,
              "counted twice: " + text(record));
      if (!record.late) pushes.insert({static_cast<std::uint32_t>(record.rank), record.iteration});
    }
  }
  if (!promised_) return;
  for (const auto& one : acknowledged_) {
    // A decentralized worker that comes back in the middle of an iteration does it once more, and
    // its update, which its neighbours have already, does not count again.
    const std::size_t due = repeats_ ? 1 : acknowledged_.count(one);
    require(due <= pushes.count(one),
            "rank " + std::to_string(one.first) + "'s push of iteration " +
                std::to_string(one.second) + " was acknowledged " +
                std::to_string(acknowledged_.count(one)) + " times and is recorded " +
                std::to_string(pushes.count(one)) + " times");
  }
}

void Checks::check_recovery(const Disk& disk, const EngineOptions& options) {
  for (const JobId id : disk.jobs()) {
    const std::vector<Record> records = disk.history(id);
    JobSnapshot stored;
    if (!disk.snapshot(id, stored)) continue;
    require(stored.sequence <= records.size(), "a snapshot is ahead of its job's records");
    Engine from_all(options);
    Engine from_snapshot(options);
    std::string error;
    require(from_all.restore(nullptr, records, error), "the records do not restore: " + error);
    const auto rest = std::span(records).subspan(stored.sequence);
    require(from_snapshot.restore(&stored, rest, error), "the snapshot does not restore: " + error);
    JobSnapshot one, other;
    require(from_all.snapshot(id, one) && from_snapshot.snapshot(id, other), "the job is gone");
    // Grants, and what follows from them alone, are in a snapshot and in no record: the jumps of
    // who was left behind, also under an earlier policy, and without a parameter server the clocks.
    const auto may_jump = [](const std::string& policy) {
      const PolicyTraits traits = traits_or_none(policy);
      return traits.jumps || traits.family == Family::kDecentralized;
    };
    const bool jumps =
        may_jump(one.policy) || std::ranges::any_of(records, [&](const Record& record) {
          return !record.policy.empty() && may_jump(record.policy);
        });
    for (JobSnapshot* job : {&one, &other}) {
      job->noise = 0;  // sums on their way to a verdict on a straggler begin anew after a snapshot
      if (jumps) job->policy_state.clear();
      if (jumps) job->highest_clock = 0;
      for (WorkerSnapshot& worker : job->workers) {
        worker.granted = worker.pushed;
        worker.usual.reset();
        if (jumps) worker.clock = worker.base = 0;
        if (worker.state == WorkerState::kReady) worker.state = WorkerState::kRegistered;
        // A lease ends when it ends, whatever came between: a worker that rejoins says what is
        // left.
        worker.phase_lease_us += std::exchange(worker.phase_us, 0);
      }
    }
    // Nor is there a record of the begin that has ended an operator's lease.
    for (std::size_t i = 0; i < std::min(one.workers.size(), other.workers.size()); ++i) {
      if (!other.workers[i].leased_phase.empty()) continue;
      one.workers[i].leased_phase.clear();
      one.workers[i].phase_us = one.workers[i].phase_lease_us = 0;
    }
    require(one == other, "snapshot and later records restore another job than all records:\n" +
                              test::to_text(other, 0) + "\n" + test::to_text(one, 0));
  }
}

}  // namespace syncd::simulation
