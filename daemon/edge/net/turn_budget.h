// How much of one turn of the loop a client may have. The loop that answers a client serves
// everybody, and a few hundred kilobytes of small requests may keep it busy for seconds. A client
// that has had its part waits until the others have been looked at. Plain arithmetic; knows no
// clock (cost_meter.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace syncd::net {

class TurnBudget {
 public:
  // Of one connection: some hundred requests of the usual kind.
  static constexpr std::uint64_t kConnectionNs = 5'000'000;
  // Of all connections of one client, or it would only have to open more of them.
  static constexpr std::uint64_t kClientNs = 20'000'000;

  // What somebody has had. The last request of a turn may take more than is left: the rest is a
  // debt, of which each turn pays one part.
  struct Share {
    std::uint64_t turn = 0;
    std::uint64_t spent_ns = 0;
  };

  void next_turn() { ++turn_; }
  void spend(Share& connection, Share& client, std::uint64_t ns) const {
    connection = {turn_, spent(connection, kConnectionNs) + ns};
    client = {turn_, spent(client, kClientNs) + ns};
  }
  bool is_spent(const Share& connection, const Share& client) const {
    return spent(connection, kConnectionNs) >= kConnectionNs ||
           spent(client, kClientNs) >= kClientNs;
  }

 private:
  std::uint64_t spent(const Share& share, std::uint64_t part_ns) const {
    if (share.turn == turn_ || share.spent_ns == 0) return share.spent_ns;
    const std::uint64_t paid_ns = (turn_ - share.turn) * part_ns;
    return share.spent_ns - std::min(share.spent_ns, paid_ns);
  }

  std::uint64_t turn_ = 1;
};

}  // namespace syncd::net
