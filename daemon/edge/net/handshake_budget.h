// How many TLS handshakes each machine may still begin: a token bucket for each. A handshake costs
// the loop about a millisecond and the client, who need not finish it, next to nothing. One thread
// at a time; knows no clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace syncd::net {

class HandshakeBudget {
 public:
  // What may come at once: a machine's clients reconnect together when the daemon has restarted.
  static constexpr std::uint64_t kBurstSeconds = 5;
  // Beyond so many machines in kBurstSeconds, those that are new share one bucket.
  static constexpr std::size_t kMachinesMax = 4096;

  // Takes one. False: this machine has none left. `per_s` 0: there is no limit.
  bool take(const std::string& machine, std::uint32_t per_s, std::uint64_t now_ms) {
    if (per_s == 0) return true;
    Bucket& bucket = bucket_of(machine, now_ms);
    const std::uint64_t full = kBurstSeconds * 1000 * per_s;
    const std::uint64_t gained = std::min(now_ms - bucket.at_ms, kFullMs) * per_s;
    bucket.spent -= std::min(bucket.spent, gained);
    bucket.at_ms = now_ms;
    if (bucket.spent + 1000 > full) return false;
    bucket.spent += 1000;
    return true;
  }
  std::size_t machines() const { return buckets_.size(); }

 private:
  static constexpr std::uint64_t kFullMs = kBurstSeconds * 1000;
  struct Bucket {
    std::uint64_t spent = 0;  // thousandths of a handshake
    std::uint64_t at_ms = 0;
  };

  Bucket& bucket_of(const std::string& machine, std::uint64_t now_ms) {
    const auto found = buckets_.find(machine);
    if (found != buckets_.end()) return found->second;
    if (buckets_.size() >= kMachinesMax && now_ms >= swept_ms_ + 1000) {
      swept_ms_ = now_ms;
      // A machine that was silent for so long has a full bucket, like a new one.
      std::erase_if(buckets_,
                    [&](const auto& entry) { return now_ms - entry.second.at_ms >= kFullMs; });
    }
    if (buckets_.size() >= kMachinesMax) return shared_;
    return buckets_.emplace(machine, Bucket{0, now_ms}).first->second;
  }

  std::unordered_map<std::string, Bucket> buckets_;
  Bucket shared_;
  std::uint64_t swept_ms_ = 0;
};

}  // namespace syncd::net
