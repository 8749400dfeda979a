// What the trainer itself must know of policies and slowdowns. A list of policies is cut apart where
// a policy may hold commas itself, and each is judged before anything runs. A decentralized policy
// says in which order its workers compute and exchange, and how long an update must stay readable.
// The simulator parses --slowdown and draws the slow iterations (daemon/tools/sim/slowdown.h), so
// that a text and a seed mean the same with a clock and with --virtual-time. No thread; reads only
// the graph files that policies name.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tools/sim/slowdown.h"
#include "reference_trainer/model/workload.h"

namespace syncd::trainer {

// A policy text that cannot be used; what() says what is wrong and what is allowed.
class PolicyListError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Splits "bsp,bsp:2,backup=1,ssp:3" into bsp | bsp:2,backup=1 | ssp:3: a comma separates only where
// a policy's name follows. Throws PolicyListError for an empty list or item.
std::vector<std::string> split_policies(std::string_view list);

// Throws PolicyListError for the first policy under which a daemon of this version would make no
// job of so many workers: by the daemon's own rules, so that a mistake in the last one is not found
// after hours. `daemon_elsewhere`: a graph's file lies with the daemon, which alone can judge it.
void check_policies(const std::vector<std::string>& policies, int workers, bool daemon_elsewhere);

// What becomes of the updates of one barrier.
enum class Aggregate : std::int32_t {
  kSum,   // each is added in full, under every policy
  kMean,  // where a barrier of all workers comes every iteration or every few (bsp), their mean is
          // added: each worker's rate is divided by the number of workers. Others as with kSum.
};

// What a worker's rate is divided by; the two are the same, because updates are linear in the rate.
// Precondition: check_policies() finds nothing.
int rate_divisor(Aggregate aggregate, const std::string& policy, int workers);

// Throws PolicyListError for a mean of which nothing would be seen: for the first policy without a
// parameter server, whose workers average parameters, and if none of the policies is such a bsp.
void check_aggregate(Aggregate aggregate, const std::vector<std::string>& policies);

// "ssp:3" -> "ssp-3": letters, digits, '.', '_' and '-' stay, everything else becomes '-'. For file
// and job names.
std::string policy_slug(std::string_view policy);

// When a worker under Hop computes (Hop, section 3.2). NOTIFY-ACK always computes first.
enum class HopOrder : std::int32_t {
  kParallel,  // parameters are sent, and the gradient is computed at them while they travel
  kSerial,    // the gradient is computed and applied, and what is sent holds it already
};

struct PeerPolicy {
  bool compute_first = false;  // NOTIFY-ACK (ASAP, section 3.3), and Hop in serial order
  bool acknowledges = false;   // NOTIFY-ACK: readers tell when they have consumed
  std::int64_t slots = 1;      // of an update queue, per edge
  std::int64_t every = 1;      // minibatches between two exchanges
  bool unsafe = false;         // a baseline that loses updates: nobody waits for what it has sent
};

// Nothing for a policy whose workers share one store, or for none: that is refused elsewhere
// (check_policies).
std::optional<PeerPolicy> peer_policy(std::string_view policy,
                                      HopOrder order = HopOrder::kParallel);

// Whether workers may be advised to drop a minibatch and start over (SpecSync).
bool may_start_over(std::string_view policy);

// Whether HopOrder makes a difference to this policy.
bool has_hop_order(std::string_view policy);

// A --slowdown text that cannot be used; what() names the flag, the text, what is wrong and what is
// allowed.
class SlowdownError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

// Both throw SlowdownError.
sim::Slowdown parse_slowdown(std::string_view text, int workers);
sim::SlowFactors slow_factors(std::string_view text, const WorkloadConfig& workload);

}  // namespace syncd::trainer
