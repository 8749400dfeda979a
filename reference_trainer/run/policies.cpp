// Policies and slowdowns: see policies.h. No thread of its own.
#include "reference_trainer/run/policies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>  // fmt::join, since fmt 11

#include <algorithm>
#include <cctype>

#include "daemon/core/engine/job_spec.h"
#include "daemon/core/engine/policy.h"
#include "daemon/core/policies/graph_file.h"
#include "daemon/core/policies/registry.h"
#include "libclient/update_queue.h"
#include "reference_trainer/data/data_file.h"

namespace syncd::trainer {

namespace {

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

void check_text(std::string_view policy) {
  if (policy.empty() || policy.front() == ',') {
    throw PolicyListError(
        fmt::format("the first policy is missing; allowed: {}", known_policies()));
  }
  if (policy.back() == ',' || policy.find(",,") != policy.npos) {
    throw PolicyListError(fmt::format("nothing stands after a comma of {}; allowed: {}",
                                      show_field(policy), known_policies()));
  }
}

// Whoever misspells a name behind a comma has written an argument of the policy before it.
std::string comma_hint(std::string_view policy) {
  if (policy.find(',') == policy.npos) return "";
  std::vector<std::string_view> names;
  for (const PolicyRow& row : all_policies()) names.push_back(row.name);
  return fmt::format("; a comma begins another policy only before one of the names {}",
                     fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> split_policies(std::string_view list) {
  std::vector<std::string> policies = split_policy_list(list);
  for (const std::string& policy : policies) check_text(policy);
  return policies;
}

void check_policies(const std::vector<std::string>& policies, int workers, bool daemon_elsewhere) {
  for (const std::string& policy : policies) {
    JobSpec job;
    job.name = "any";
    job.policy = policy;
    job.expected_workers = static_cast<std::uint32_t>(workers);
    if (const std::string wrong = validate_stored(job); !wrong.empty()) {
      throw PolicyListError(wrong + comma_hint(policy));
    }
    if (daemon_elsewhere && policy.find(":file:") != policy.npos) continue;
    job.graph_file = read_graph_file(policy);
    if (const std::string wrong = validate(job); !wrong.empty()) throw PolicyListError(wrong);
  }
}

int rate_divisor(Aggregate aggregate, const std::string& policy, int workers) {
  if (aggregate == Aggregate::kSum) return 1;
  std::string error;
  return make_policy(policy, error)->traits().barrier_every > 0 ? workers : 1;
}

void check_aggregate(Aggregate aggregate, const std::vector<std::string>& policies) {
  if (aggregate == Aggregate::kSum) return;
  for (const std::string& policy : policies) {
    std::string error;
    if (make_policy(policy, error)->family() == Family::kParameterServer) continue;
    throw PolicyListError(fmt::format(
        "mean is not allowed with {}, whose workers average parameters, not updates; allowed: sum",
        policy));
  }
  const auto is_bsp = [](const std::string& policy) {
    return rate_divisor(Aggregate::kMean, policy, 2) > 1;
  };
  if (std::none_of(policies.begin(), policies.end(), is_bsp)) {
    throw PolicyListError("mean changes bsp alone, which is not among the policies; allowed: sum");
  }
}

std::string policy_slug(std::string_view policy) {
  std::string slug(policy);
  for (char& c : slug) {
    if (!is_name_character(c) && c != '.' && c != '-') c = '-';
  }
  return slug;
}

std::optional<PeerPolicy> peer_policy(std::string_view policy, HopOrder order) {
  const PolicyTraits traits = traits_or_none(policy);
  if (traits.family != Family::kDecentralized) return std::nullopt;
  const syncd::PeerLoop& loop = traits.peer_loop;
  PeerPolicy peers;
  peers.compute_first = loop.push_follows_data || order == HopOrder::kSerial;
  peers.acknowledges = loop.push_follows_data && !loop.unsafe;
  // One that is acknowledged is read before the next is sent.
  if (!loop.push_follows_data) {
    peers.slots =
        client::update_queue_slots(traits.gap_bound.value_or(1), loop.staleness, traits.jumps);
  }
  peers.every = loop.batches;
  peers.unsafe = loop.unsafe;
  return peers;
}

bool may_start_over(std::string_view policy) {
  return traits_or_none(policy).may_resync;
}

bool has_hop_order(std::string_view policy) {
  const PolicyTraits traits = traits_or_none(policy);
  return traits.family == Family::kDecentralized && !traits.peer_loop.push_follows_data;
}

sim::Slowdown parse_slowdown(std::string_view text, int workers) {
  std::string error;
  const auto slowdown = sim::parse_slowdown(text, error);
  if (!slowdown) throw SlowdownError(error);
  const auto count = static_cast<std::uint32_t>(workers);
  error = sim::slowdown_problem(*slowdown, count, count);
  if (!error.empty()) throw SlowdownError(error);
  return *slowdown;
}

sim::SlowFactors slow_factors(std::string_view text, const WorkloadConfig& workload) {
  return {parse_slowdown(text, workload.workers), workload.seed,
          static_cast<std::uint32_t>(workload.workers)};
}

}  // namespace syncd::trainer
