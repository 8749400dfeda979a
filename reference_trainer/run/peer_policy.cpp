// See peer_policy.h.
#include "reference_trainer/run/peer_policy.h"

#include "daemon/core/policies/registry.h"
#include "libclient/update_queue.h"

namespace syncd::trainer {

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

}  // namespace syncd::trainer
