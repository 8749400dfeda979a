// Coarse deadlines of many connections on one timer. Each connection is entered once; a deadline
// that has moved on meanwhile is entered again when its old slot comes up, so that receiving a byte
// costs nothing here. One thread at a time; knows no clock.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace syncd::net {

class DeadlineWheel {
 public:
  // Deadlines are rounded up to a multiple of `resolution_ms` (at least 1).
  explicit DeadlineWheel(std::uint64_t resolution_ms) : resolution_ms_(resolution_ms) {}

  // Returns the moment at which the entry will come up: pop() hands it out again.
  std::uint64_t add(std::uint64_t id, std::uint64_t at_ms) {
    const std::uint64_t slot_ms = (at_ms / resolution_ms_ + 1) * resolution_ms_;
    slots_[slot_ms].push_back(id);
    return slot_ms;
  }

  static constexpr std::uint64_t kNone = UINT64_MAX;
  // The first moment at which something comes up; kNone: nothing is entered.
  std::uint64_t next_ms() const { return slots_.empty() ? kNone : slots_.begin()->first; }

  // Takes everything of the first slot if it is due at `now_ms`. False: nothing is.
  bool pop(std::uint64_t now_ms, std::uint64_t& slot_ms, std::vector<std::uint64_t>& ids) {
    if (next_ms() > now_ms) return false;
    const auto first = slots_.begin();
    slot_ms = first->first;
    ids = std::move(first->second);
    slots_.erase(first);
    return true;
  }

 private:
  std::uint64_t resolution_ms_;
  // A slot exists only while it holds something: at most the longest timeout / resolution of them.
  std::map<std::uint64_t, std::vector<std::uint64_t>> slots_;
};

}  // namespace syncd::net
