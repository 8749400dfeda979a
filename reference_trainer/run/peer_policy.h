// What the trainer itself must know of a decentralized policy: in which order its workers compute
// and exchange, and how long an update must stay readable. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace syncd::trainer {

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

}  // namespace syncd::trainer
