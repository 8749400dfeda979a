// See checker.h.
#include "tests/unit/sim/checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "daemon/policies/policy_text.h"
#include "tests/support/effects_text.h"

namespace syncd::test {

std::optional<std::int64_t> staleness_bound(const std::string& policy) {
  // An overlay delays grants and advises workers; who may run ahead, its base says.
  const std::size_t plus = policy.rfind('+');
  const PolicyText text =
      split_policy_text(plus == std::string::npos ? policy : policy.substr(plus + 1));
  // While a grant is delayed, a worker may return with a lower clock.
  if (text.name.starts_with("naive") || policy.starts_with("naive")) return std::nullopt;
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

Checker::Checker(const std::string& policy, std::uint64_t look_every)
    : policy_(policy), bound_(staleness_bound(policy)), look_every_(look_every) {}

void Checker::breach(sim::Simulation& simulation, const std::string& what) {
  if (breaches_.size() < 10) {
    breaches_.push_back("at " + std::to_string(simulation.now()) + " us: " + what);
  }
}

void Checker::check_grant(sim::Simulation& simulation, const Reply& reply,
                          const wire::Granted& granted) {
  if ((granted.flags & wire::kStepStop) != 0) return;
  ++grants_;
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
  if (bound_ && !repeat && granted.staleness > *bound_) {
    breach(simulation, "worker " + std::to_string(rank) + " was granted " +
                           std::to_string(granted.iteration) + " with staleness " +
                           std::to_string(granted.staleness) + ", " + policy_ + " allows " +
                           std::to_string(*bound_));
  }
}

void Checker::check_waits(sim::Simulation& simulation) {
  for (const sim::WaitReport& wait : simulation.waits()) {
    if (wait.explanation.text.empty()) breach(simulation, "no explanation: " + wait.text);
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
  for (const Record& record : effects.records) {
    if (record.kind == RecordKind::kWorkerLeft || record.kind == RecordKind::kWorkerLost) {
      gone_.insert(static_cast<Rank>(record.rank));
      look = true;
    } else if (record.kind == RecordKind::kWorkerJoined) {
      gone_.erase(static_cast<Rank>(record.rank));
    } else if (record.kind == RecordKind::kPolicySwitched) {
      policy_ = record.policy;
      bound_ = staleness_bound(policy_);
      look = true;
    }
  }
  for (const Reply& reply : effects.replies) {
    if (const auto* granted = std::get_if<wire::Granted>(&reply.body)) {
      check_grant(simulation, reply, *granted);
    }
  }
  if (look) check_waits(simulation);
  (void)event;
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

sim::Result run_checked(sim::Options options) {
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
  return result;
}

}  // namespace syncd::test
