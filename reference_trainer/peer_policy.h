// What the trainer itself must know of a decentralized policy: in which order its workers compute
// and exchange, and how long an update must stay readable. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace syncd::trainer {

struct PeerPolicy {
  // False: Hop's parallel order, parameters are sent and then the gradient computed while they
  // travel (Hop, section 3.2). True: NOTIFY-ACK's, where what is sent holds the own update already
  // (ASAP, section 3.3).
  bool notify_ack = false;
  std::int64_t slots = 1;  // of an update queue, per edge
  std::int64_t every = 1;  // minibatches between two exchanges
};

// Nothing for a policy whose workers share one store. Arguments that cannot be read count as not
// given: they are refused elsewhere (check_policies).
std::optional<PeerPolicy> peer_policy(std::string_view policy);

}  // namespace syncd::trainer
