// Cutting a list of policies apart where a policy may hold commas itself, and judging each of them
// before anything runs. No thread; only the graph files that policies name are read.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace syncd::trainer
