// Timers by key: at most one per key, O(log n) to set, move, cancel and fire. Fires in order of
// (time, key), so that equal times have one order. One thread at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "daemon/core/engine/record.h"
#include "daemon/core/engine/types.h"

namespace syncd {

struct TimerKey {
  JobId job = 0;
  std::int64_t rank = kNoRank;  // kNoRank: the job's own
  std::uint32_t kind = 0;       // below kPolicyTimerKinds the engine's, from there the policy's
  auto operator<=>(const TimerKey&) const = default;
};

inline constexpr std::uint32_t kTimerLiveness = 0;
inline constexpr std::uint32_t kTimerStart = 1;
inline constexpr std::uint32_t kTimerRestored = 2;
inline constexpr std::uint32_t kPolicyTimerKinds = 16;

class TimerQueue {
 public:
  void set(const TimerKey& key, Micros at) {
    auto [it, fresh] = at_.try_emplace(key, at);
    if (!fresh) {
      if (it->second == at) return;
      order_.erase({it->second, key});
      it->second = at;
    }
    order_.insert({at, key});
  }

  void cancel(const TimerKey& key) {
    const auto it = at_.find(key);
    if (it == at_.end()) return;
    order_.erase({it->second, key});
    at_.erase(it);
  }

  bool is_set(const TimerKey& key) const { return at_.contains(key); }

  Micros next() const { return order_.empty() ? kNever : order_.begin()->first; }

  // Takes the first timer that is due at `now`. False: none is.
  bool pop(Micros now, TimerKey& key) {
    if (next() > now || order_.empty()) return false;
    key = order_.begin()->second;
    order_.erase(order_.begin());
    at_.erase(key);
    return true;
  }

  // Those of one job, of this kind and above.
  void cancel_job(JobId job, std::uint32_t first_kind = 0) {
    auto it = at_.lower_bound(TimerKey{job, kNoRank, 0});
    while (it != at_.end() && it->first.job == job) {
      if (it->first.kind < first_kind) {
        ++it;
        continue;
      }
      order_.erase({it->second, it->first});
      it = at_.erase(it);
    }
  }

 private:
  std::map<TimerKey, Micros> at_;
  std::set<std::pair<Micros, TimerKey>> order_;
};

}  // namespace syncd
