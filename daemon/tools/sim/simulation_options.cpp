// See simulation.h and world.h: what a simulation is to do, checked and told to the daemon.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/policy.h"
#include "daemon/tools/sim/world.h"
#include "proto/base/number.h"

namespace syncd::sim {
namespace {

std::string text_of(const TimedEvent& event) {
  const char* names[] = {"fail", "leave", "join", "switch"};
  return fmt::format("{} at {}", names[static_cast<std::size_t>(event.kind)],
                     format_duration(event.at));
}

}  // namespace

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

std::optional<std::vector<std::uint32_t>> parse_hosts(std::string_view text, std::uint32_t workers,
                                                      std::string& error) {
  const auto wrong = [&](const std::string& what) {
    error = fmt::format(
        "--hosts '{}': {}; allowed: a number of hosts from 1 to {}, or how many of the {} workers "
        "each host has, such as 4,2,2",
        text, what, workers, workers);
    return std::nullopt;
  };
  if (workers > limits::kWorkersPerJobMax) {
    return wrong(fmt::format("a job has at most {} workers", limits::kWorkersPerJobMax));
  }
  std::vector<std::uint32_t> sizes;
  std::uint64_t sum = 0;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    std::uint32_t size = 0;
    if (!parse_number(rest.substr(0, comma), size) || size == 0) {
      return wrong(fmt::format("'{}' is not a whole number from 1", rest.substr(0, comma)));
    }
    sizes.push_back(size);
    sum += size;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (sizes.size() > 1) {
    return sum == workers ? std::optional(sizes)
                          : wrong(fmt::format("the hosts have {} workers", sum));
  }
  const std::uint64_t hosts = sizes[0];
  if (hosts > workers) return wrong("more hosts than workers");
  // Rank r on host r * hosts / workers: blocks that differ by at most one in size.
  sizes.assign(hosts, 0);
  for (std::uint64_t rank = 0; rank < workers; ++rank) ++sizes[rank * hosts / workers];
  return sizes;
}

std::optional<Micros> transfer_time(double link_mbps, double parameters_mb, std::string& error) {
  constexpr double kMost = 1e9;
  const auto check = [&](const char* flag, double value, const char* unit) {
    if (value > 0 && value <= kMost) return true;
    error = fmt::format("{} is {:g}, allowed is more than 0, to {:g} {}", flag, value, kMost, unit);
    return false;
  };
  if (!check("--link-mbps", link_mbps, "Mbit/s") ||
      !check("--parameters-mb", parameters_mb, "MB")) {
    return std::nullopt;
  }
  const double us = std::round(parameters_mb * 8e6 / link_mbps);
  if (us < 1 || us > static_cast<double>(limits::kSpanMax)) {
    error = fmt::format(
        "--link-mbps {:g} and --parameters-mb {:g}: a transfer takes {:g} s, allowed are 1 us to "
        "{}",
        link_mbps, parameters_mb, parameters_mb * 8 / link_mbps, format_duration(limits::kSpanMax));
    return std::nullopt;
  }
  return static_cast<Micros>(us);
}

std::string check_options(const Options& options) {
  if (options.workers < 1 || options.workers > limits::kWorkersPerJobMax) {
    return fmt::format("the number of workers is {}, allowed are 1 to {}", options.workers,
                       limits::kWorkersPerJobMax);
  }
  if (!options.host_sizes.empty() &&
      std::reduce(options.host_sizes.begin(), options.host_sizes.end(), std::uint64_t{0}) !=
          options.workers) {
    return fmt::format("the hosts have {} workers in all, and the job has {}",
                       fmt::join(options.host_sizes, " + "), options.workers);
  }
  const auto check_span = [](const char* what, Micros us, Micros lowest) -> std::string {
    if (us >= lowest && us <= limits::kSpanMax) return {};
    return fmt::format("{} is {}, allowed is {} to {}", what, format_duration(us),
                       lowest > 0 ? "more than 0," : "from 0", format_duration(limits::kSpanMax));
  };
  for (const std::string& wrong : {check_span("the duration", options.duration_us, 1),
                                   check_span("the delay", options.delay_us, 0),
                                   check_span("a transfer", options.transfer_us, 0),
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
