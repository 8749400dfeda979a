// See peer_policy.h.
#include "reference_trainer/peer_policy.h"

#include <string>

#include "daemon/core/policies/policy_text.h"
#include "libclient/update_queue.h"

namespace syncd::trainer {
namespace {

constexpr std::int64_t kArgumentMax = 1'000'000'000;  // as the daemon has it
constexpr std::int64_t kMaxIgDefault = 4;

std::int64_t argument(const PolicyText& text, std::string_view key, std::int64_t otherwise) {
  for (const PolicyArgument& given : text.arguments) {
    std::string error;
    if (given.key != key) continue;
    return parse_policy_integer(text, key, given.value, 0, kArgumentMax, error).value_or(otherwise);
  }
  return otherwise;
}

}  // namespace

std::optional<PeerPolicy> peer_policy(std::string_view policy, HopOrder order) {
  const PolicyText text = split_policy_text(policy);
  if (text.name == "notify_ack") {
    return PeerPolicy{.compute_first = true,
                      .acknowledges = true,
                      .slots = 1,
                      .every = argument(text, "every", 1)};
  }
  if (text.name != "hop") return std::nullopt;
  return PeerPolicy{.compute_first = order == HopOrder::kSerial,
                    .acknowledges = false,
                    .slots = client::update_queue_slots(argument(text, "max_ig", kMaxIgDefault),
                                                        argument(text, "staleness", 0),
                                                        argument(text, "skip", 0) > 0),
                    .every = 1};
}

bool may_start_over(std::string_view policy) {
  // An overlay may stand behind another one.
  return policy.find("specsync") != std::string_view::npos;
}

bool has_hop_order(std::string_view policy) {
  return split_policy_text(policy).name == "hop";
}

}  // namespace syncd::trainer
