// See checker.h.
#include "tests/unit/sim/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "daemon/core/policies/policy_text.h"
#include "daemon/core/policies/registry.h"
#include "tests/support/effects_text.h"

namespace syncd::test {
// The bounds are this checker's own, not the registry's.
std::optional<std::int64_t> staleness_bound(const std::string& policy) {
  // An overlay delays grants and advises workers; who may run ahead, its base says.
  const std::size_t plus = policy.rfind('+');
  const PolicyText text =
      split_policy_text(plus == std::string::npos ? policy : policy.substr(plus + 1));
  // While a grant is delayed, a worker may return with a lower clock.
  if (traits_or_none(policy).grant_delay_us > 0) return std::nullopt;
  std::string first = "1";
  bool backup = false;
  for (const PolicyArgument& argument : text.arguments) {
    if (argument.key.empty() && &argument == &text.arguments.front()) first = argument.value;
    backup |= argument.key == "backup" && argument.value != "0";
  }
  if (text.name == "ssp") return std::atoll(first.c_str());
  if (text.name == "bsp" && !backup) return std::atoll(first.c_str()) - 1;
  if (text.name == "dssp") return std::atoll(first.substr(first.find('-') + 1).c_str());
  if (text.name == "elastic_bsp") {
    const std::int64_t r = std::atoll(first.c_str());
    return std::max(r, 2 * r - 1);
  }
  return std::nullopt;
}

std::optional<Supersteps> supersteps_of(const std::string& policy) {
  const PolicyText text = split_policy_text(policy);
  if (text.name != "bsp") return std::nullopt;
  Supersteps result;
  for (const PolicyArgument& argument : text.arguments) {
    (argument.key.empty() ? result.every : result.backup) = std::atoll(argument.value.c_str());
  }
  return result;
}

std::optional<Speculation> speculation_of(const std::string& policy) {
  const PolicyText text = split_policy_text(policy.substr(0, policy.find('+')));
  if (text.name != "specsync") return std::nullopt;
  Speculation result;
  for (const PolicyArgument& argument : text.arguments) {
    if (argument.key == "max_restarts") result.max_restarts = std::atoll(argument.value.c_str());
  }
  if (!text.arguments.empty() && text.arguments[0].value == "fixed") {
    result.abort_time = std::llround(std::atof(text.arguments[1].value.c_str()) * 1000);
    result.abort_rate = std::atof(text.arguments[2].value.c_str());
  }
  return result;
}

Checker::Checker(const std::string& policy, std::uint64_t look_every)
    : policy_(policy),
      traits_(traits_or_none(policy)),
      bound_(staleness_bound(policy)),
      supersteps_(supersteps_of(policy)),
      speculation_(speculation_of(policy)),
      may_be_late_(traits_.jumps),
      look_every_(look_every) {}

void Checker::breach(sim::Simulation& simulation, const std::string& what) {
  if (breaches_.size() < 10) {
    breaches_.push_back("at " + std::to_string(simulation.now()) + " us: " + what);
  }
}

void Checker::check_grant(sim::Simulation& simulation, const Reply& reply,
                          const wire::Granted& granted) {
  if ((granted.flags & wire::kStepStop) != 0) return;
  ++totals_.grants;
  const Rank rank = static_cast<Rank>(reply.to.connection & UINT32_MAX) - 1;
  LastGrant& last = last_[rank];
  // A new process may be given again what the one before it did not finish.
  const bool repeat = granted.iteration == last.iteration && last.connection != reply.to.connection;
  if (granted.iteration <= last.iteration && !repeat) {
    breach(simulation, "worker " + std::to_string(rank) + " was granted " +
                           std::to_string(granted.iteration) + " after " +
                           std::to_string(last.iteration));
  }
  last = {reply.to.connection, granted.iteration};
  Place& place = places_[rank];
  place.computes = true;
  place.pulled_at = simulation.now();
  place.pushes_at_pull = pushes_;
  place.advices = 0;
  place.advised = false;
  if (std::exchange(places_[rank].owes_a_barrier, false) &&
      (granted.flags & wire::kStepBarrier) == 0) {
    breach(simulation, "worker " + std::to_string(rank) + " is not told of a barrier with " +
                           std::to_string(granted.iteration));
  }
  check_staleness(simulation, rank, granted);
  if (supersteps_ &&
      (granted.iteration - places_[rank].base) / supersteps_->every > supersteps_->open) {
    breach(simulation, "worker " + std::to_string(rank) + " was granted " +
                           std::to_string(granted.iteration) + ", but superstep " +
                           std::to_string(supersteps_->open) + " is not over");
  }
  totals_.at_bound += bound_ && granted.staleness == *bound_ ? 1 : 0;
  if (bound_ && !repeat && granted.staleness > *bound_) {
    breach(simulation, "worker " + std::to_string(rank) + " was granted " +
                           std::to_string(granted.iteration) + " with staleness " +
                           std::to_string(granted.staleness) + ", " + policy_ + " allows " +
                           std::to_string(*bound_));
  }
}

// What the engine says of a grant's staleness is q_i - q_min, as its own records have it.
void Checker::check_staleness(sim::Simulation& simulation, Rank rank,
                              const wire::Granted& granted) {
  Place& place = places_[rank];
  place.clock = std::max(place.clock, granted.iteration);
  // Backup workers are taken ahead without a record. And of several losses at once nobody can say
  // which grants each of them led to.
  const bool known = !traits_.jumps && exits_ <= 1;
  if (traits_.family == Family::kDecentralized || !known) return;
  ++totals_.known_staleness;
  const bool supersteps = traits_.tells_barriers;
  const Clock own = place.clock - place.base;
  Clock lowest = own;
  for (const auto& [other, at] : places_) {
    if (at.active && (at.takes_part || !supersteps)) lowest = std::min(lowest, at.clock - at.base);
  }
  if (own - lowest == granted.staleness) return;
  breach(simulation, "worker " + std::to_string(rank) + " was granted " +
                         std::to_string(granted.iteration) + " with staleness " +
                         std::to_string(granted.staleness) + ", but it is " +
                         std::to_string(own - lowest));
}

// Chen et al. 2016: when all but `backup` active workers are there, and at least one.
void Checker::open_superstep() {
  if (!supersteps_) return;
  std::vector<Clock> clocks;
  for (const auto& [rank, place] : places_) {
    if (place.active) clocks.push_back(place.clock - place.base);
  }
  if (clocks.empty()) return;
  std::sort(clocks.begin(), clocks.end(), std::greater<>());
  const auto all = static_cast<std::int64_t>(clocks.size());
  const std::int64_t needed = std::max<std::int64_t>(1, all - supersteps_->backup);
  const std::int64_t reached = clocks[static_cast<std::size_t>(needed - 1)] / supersteps_->every;
  if (reached <= supersteps_->open) return;
  supersteps_->open = reached;
  totals_.without_backups += clocks.back() < reached * supersteps_->every ? 1 : 0;
}

// Everybody who takes part learns of a barrier by its next grant, and therefore is between two
// iterations then.
void Checker::take_barrier(sim::Simulation& simulation) {
  for (auto& [rank, place] : places_) {
    if (!place.active || !place.takes_part) continue;
    place.owes_a_barrier = true;
    if (place.computes) {
      breach(simulation,
             "a barrier in the middle of an iteration of worker " + std::to_string(rank));
    }
  }
}

void Checker::take_advice(sim::Simulation& simulation, const wire::ResyncNotice& notice) {
  Place& place = places_[notice.worker.rank];
  ++totals_.advices;
  const auto wrong = [&](const std::string& why) {
    breach(simulation, "worker " + std::to_string(notice.worker.rank) + " is told to start " +
                           std::to_string(notice.iteration) + " over, " + why);
  };
  if (!place.computes || notice.iteration != last_[notice.worker.rank].iteration) {
    wrong("which it is not in");
  }
  if (std::exchange(place.advised, true)) wrong("as it was already");
  if (!speculation_) return wrong("without speculation");
  if (++place.advices > speculation_->max_restarts) wrong("too often");
  if (!speculation_->abort_time) return;
  if (simulation.now() < place.pulled_at + *speculation_->abort_time) wrong("too soon");
  const auto active = std::count_if(places_.begin(), places_.end(),
                                    [](const auto& entry) { return entry.second.active; });
  const auto others = static_cast<double>(pushes_ - place.pushes_at_pull);
  if (others <= static_cast<double>(active) * speculation_->abort_rate) {
    wrong("after " + std::to_string(pushes_ - place.pushes_at_pull) + " pushes by others");
  }
}

void Checker::take_record(sim::Simulation& simulation, const Record& record) {
  const auto rank = static_cast<Rank>(record.rank);
  switch (record.kind) {
    case RecordKind::kJobStarted:
      started_ = true;
      for (auto& [member, place] : places_) place.active = place.takes_part = true;
      break;
    case RecordKind::kWorkerJoined:
      gone_.erase(rank);
      // A newcomer waits for the next superstep; who takes its predecessor's place does not.
      places_[rank] = {started_, places_[rank].takes_part, record.clock, record.base};
      break;
    case RecordKind::kWorkerLeft:
    case RecordKind::kWorkerLost:
      gone_.insert(rank);
      places_[rank].computes = places_[rank].owes_a_barrier = false;
      places_[rank].active = places_[rank].takes_part = false;
      ++exits_;
      ++totals_.exits;
      break;
    case RecordKind::kPush:
      ++pushes_;
      if (record.late && !may_be_late_) {
        breach(simulation, "a late push of worker " + std::to_string(rank));
      }
      places_[rank].clock = record.clock;
      places_[rank].computes = false;
      break;
    case RecordKind::kPolicySwitched:
      ++totals_.switches;
      policy_ = record.policy;
      traits_ = traits_or_none(policy_);
      bound_ = staleness_bound(policy_);
      supersteps_ = supersteps_of(policy_);
      speculation_ = speculation_of(policy_);
      may_be_late_ = may_be_late_ || traits_.jumps;
      for (auto& [member, place] : places_) place.owes_a_barrier = false;
      [[fallthrough]];
    case RecordKind::kBarrier:
      if (record.kind == RecordKind::kBarrier) take_barrier(simulation);
      for (auto& [member, place] : places_) {
        place.base = place.clock;
        place.takes_part = place.active;
      }
      break;
    default:
      break;
  }
  open_superstep();
}

void Checker::check_waits(sim::Simulation& simulation) {
  const std::vector<sim::WaitReport> waits = simulation.waits();
  // Whoever waits for somebody that does not wait, or for nobody but the time, will get on.
  std::map<Rank, const sim::WaitReport*> stuck;
  for (const sim::WaitReport& wait : waits) {
    if (!wait.explanation.workers.empty()) stuck[wait.rank] = &wait;
  }
  while (std::erase_if(stuck, [&](const auto& wait) {
           const auto& others = wait.second->explanation.workers;
           return std::any_of(others.begin(), others.end(),
                              [&](const WaitedFor& other) { return !stuck.contains(other.rank); });
         }) > 0) {
  }
  for (const auto& [rank, wait] : stuck) breach(simulation, "deadlock: " + wait->text);
  for (const sim::WaitReport& wait : waits) {
    if (wait.explanation.text.empty()) breach(simulation, "no explanation: " + wait.text);
    if (supersteps_ && started_) {
      const std::int64_t superstep =
          (wait.explanation.iteration - places_[wait.rank].base) / supersteps_->every;
      if (superstep <= supersteps_->open) {
        breach(simulation, "superstep " + std::to_string(superstep) + " has begun: " + wait.text);
      }
    }
    for (const WaitedFor& other : wait.explanation.workers) {
      if (gone_.contains(other.rank))
        breach(simulation, "waits for one that is gone: " + wait.text);
      if (other.rank == wait.rank) breach(simulation, "waits for itself: " + wait.text);
    }
  }
}

void Checker::after_event(sim::Simulation& simulation, const Event* event, const Effects& effects) {
  const std::string said = to_text(effects, simulation.now(), "", [](const Caller& caller) {
    return std::to_string(caller.connection);
  });
  for (const char c : said) {
    digest_ = (digest_ ^ static_cast<unsigned char>(c)) * 1099511628211U;
  }
  bool look = ++events_ % look_every_ == 0;
  exits_ = 0;
  const auto* request = event == nullptr ? nullptr : std::get_if<Request>(event);
  if (const auto* restarted =
          request == nullptr ? nullptr : std::get_if<wire::Restarted>(&request->body)) {
    Place& place = places_[restarted->worker.rank];
    if (restarted->iteration == last_[restarted->worker.rank].iteration &&
        std::exchange(place.advised, false)) {
      place.pulled_at = simulation.now();
      place.pushes_at_pull = pushes_;
    }
  }
  for (const Record& record : effects.records) {
    take_record(simulation, record);
    look = look || record.kind == RecordKind::kPolicySwitched;
  }
  look = look || exits_ > 0;
  for (const Reply& reply : effects.replies) {
    if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) {
      check_grant(simulation, reply, *granted);
    }
  }
  for (const Notification& notification : effects.notifications) {
    if (const auto* advice = std::get_if<wire::ResyncNotice>(&notification.body)) {
      take_advice(simulation, *advice);
    }
  }
  if (look) check_waits(simulation);
}

std::vector<std::string> Checker::breaches(const sim::Result& result) const {
  std::vector<std::string> all = breaches_;
  if (result.stalled) {
    all.push_back("stalled at " + std::to_string(result.stalled_at) + " us");
    for (const sim::WaitReport& wait : result.waits) all.push_back(wait.text);
  }
  for (const std::string& refused : result.refused) all.push_back("refused " + refused);
  if (result.missing_updates > 0) {
    all.push_back(std::to_string(result.missing_updates) + " collected updates had not arrived");
  }
  if (result.iterations == 0) all.push_back("not one iteration");
  return all;
}

sim::Result run_checked(sim::Options options, CheckerTotals* totals) {
  Checker checker(options.policy);
  options.observer = &checker;
  const std::string error = sim::check_options(options);
  if (!error.empty()) {
    ADD_FAILURE() << error;
    return {};
  }
  sim::Result result = sim::Simulation(options).run();
  const std::vector<std::string> breaches = checker.breaches(result);
  for (const std::string& breach : breaches) ADD_FAILURE() << options.policy << ": " << breach;
  if (totals != nullptr) {
    totals->grants += checker.totals().grants;
    totals->at_bound += checker.totals().at_bound;
    totals->known_staleness += checker.totals().known_staleness;
    totals->exits += checker.totals().exits;
    totals->switches += checker.totals().switches;
    totals->without_backups += checker.totals().without_backups;
    totals->advices += checker.totals().advices;
  }
  return result;
}

}  // namespace syncd::test
