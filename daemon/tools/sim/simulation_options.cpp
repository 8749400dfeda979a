// See simulation.h and world.h: what a simulation is to do, checked and told to the daemon.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/policy.h"
#include "daemon/tools/sim/world.h"

namespace syncd::sim {
namespace {

std::string text_of(const TimedEvent& event) {
  const char* names[] = {"fail", "leave", "join", "switch"};
  return fmt::format("{} at {}", names[static_cast<std::size_t>(event.kind)],
                     format_duration(event.at));
}

}  // namespace

std::uint64_t host_of(Rank rank, const Options& options) {
  if (options.hosts == 0) return rank;
  if (rank >= options.workers) return rank % options.hosts;
  return std::uint64_t{rank} * options.hosts / options.workers;
}

JobSpec job_spec(const Options& options) {
  JobSpec spec;
  spec.name = kJobName;
  spec.policy = options.policy;
  spec.graph_file = options.graph_file;
  spec.expected_workers = options.workers;
  spec.worker_grace_us = options.worker_grace_us;
  // An iteration takes as long as it is drawn: no worker is evicted for being slow.
  spec.warn_after_us = 0;
  spec.evict_after_us = 0;
  return spec;
}

std::string check_options(const Options& options) {
  if (options.workers < 1 || options.workers > limits::kWorkersPerJobMax) {
    return fmt::format("the number of workers is {}, allowed are 1 to {}", options.workers,
                       limits::kWorkersPerJobMax);
  }
  if (options.hosts > options.workers) {
    return fmt::format("the number of hosts is {}, allowed are 1 to {}, one per worker",
                       options.hosts, options.workers);
  }
  const auto check_span = [](const char* what, Micros us, Micros lowest) -> std::string {
    if (us >= lowest && us <= limits::kSpanMax) return {};
    return fmt::format("{} is {}, allowed is {} to {}", what, format_duration(us),
                       lowest > 0 ? "more than 0," : "from 0", format_duration(limits::kSpanMax));
  };
  for (const std::string& wrong : {check_span("the duration", options.duration_us, 1),
                                   check_span("the delay", options.delay_us, 0),
                                   check_span("the plan's delay", options.plan_delay_us, 0),
                                   check_span("worker_grace", options.worker_grace_us, 0),
                                   check_span("the time to a stall", options.stall_us, 1)}) {
    if (!wrong.empty()) return wrong;
  }
  if (std::string wrong = validate(job_spec(options)); !wrong.empty()) return wrong;
  std::string error;
  const auto policy = make_policy(options.policy, error);
  if (policy->family() == Family::kGather) {
    return "policy '" + options.policy +
           "': rounds of members have no iterations that could be simulated";
  }
  if (options.serial && policy->family() == Family::kParameterServer) {
    return "policy '" + options.policy +
           "': only decentralized policies have an order of sending and computing";
  }

  std::set<Rank> present;
  for (Rank rank = 0; rank < options.workers; ++rank) present.insert(rank);
  Rank ranks = options.workers;  // there ever were
  std::vector<TimedEvent> events = options.events;
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.at < b.at; });
  for (const TimedEvent& event : events) {
    if (std::string wrong = check_span("the time of an event", event.at, 0); !wrong.empty()) {
      return wrong;
    }
    if (event.kind == TimedEvent::Kind::kSwitch) {
      const auto next = make_policy(event.policy, error);
      if (!next) return text_of(event) + ": " + error;
      continue;
    }
    const std::string worker = fmt::format("{}: worker {}", text_of(event), event.rank);
    if (event.kind == TimedEvent::Kind::kJoin) {
      if (event.rank > ranks) {
        return fmt::format(
            "{} cannot join before worker {}: new ranks follow the others without a gap", worker,
            ranks);
      }
      ranks = std::max(ranks, event.rank + 1);
      if (!present.insert(event.rank).second) return worker + " is there already";
    } else if (present.erase(event.rank) == 0) {
      return worker + " is not there";
    }
  }
  return slowdown_problem(options.slowdown, options.workers, ranks);
}

}  // namespace syncd::sim
