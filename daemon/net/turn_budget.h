// How much of one turn of the loop a client may have: what one asks for is answered by the loop
// that serves everybody, and a few hundred kilobytes of small requests may keep it busy for
// seconds. Who has had their part waits until the others have been looked at. Plain arithmetic;
// knows no clock.
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

  // What one request counts for at most: this process may have been interrupted meanwhile, for
  // which nobody is to wait.
  static constexpr std::uint64_t kRequestNsMax = 2'000'000;

  // What somebody has had; of an earlier turn it counts as nothing.
  struct Share {
    std::uint64_t turn = 0;
    std::uint64_t spent_ns = 0;
  };

  void next_turn() { ++turn_; }
  void spend(Share& share, std::uint64_t ns) const {
    if (share.turn != turn_) share = {turn_, 0};
    share.spent_ns += std::min(ns, kRequestNsMax);
  }
  bool is_spent(const Share& connection, const Share& client) const {
    return (connection.turn == turn_ && connection.spent_ns >= kConnectionNs) ||
           (client.turn == turn_ && client.spent_ns >= kClientNs);
  }

 private:
  std::uint64_t turn_ = 1;
};

}  // namespace syncd::net
