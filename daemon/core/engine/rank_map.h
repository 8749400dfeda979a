// Values by rank. Memory follows the number of values, not the largest rank: a job of a million
// places may have one worker, of the last rank. Ranks that lie close together from 0 on, as those
// of nearly every job, are slots of an array; only stray ones are in a tree. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/core/engine/types.h"

namespace syncd {

template <class T>
class RankMap {
 public:
  // Null: the rank has no value. A pointer is valid until the next get() of a rank without one.
  // O(1) in the array, O(log n) for a stray rank.
  T* find(Rank rank) { return find_in(*this, rank); }
  const T* find(Rank rank) const { return find_in(*this, rank); }

  // The same of a rank that has one.
  T& at(Rank rank) { return known(*this, rank); }
  const T& at(Rank rank) const { return known(*this, rank); }

  // The rank's value, made from `arguments` if there is none. O(log n), amortized.
  template <class... Arguments>
  T& get(Rank rank, Arguments&&... arguments) {
    if (T* value = find(rank)) return *value;
    return make(rank, std::forward<Arguments>(arguments)...);
  }

  void clear() { *this = {}; }
  std::size_t size() const { return size_; }
  // One more than the largest rank that has a value; 0 without any.
  Rank limit() const {
    return strays_.empty() ? static_cast<Rank>(slots_.size()) : strays_.rbegin()->first + 1;
  }

  // f(rank, value) for all in rank order.
  template <class F>
  void for_each(F f) {
    walk(*this, 0, [&](Rank rank, T& value) { return f(rank, value), true; });
  }
  template <class F>
  void for_each(F f) const {
    walk(*this, 0, [&](Rank rank, const T& value) { return f(rank, value), true; });
  }
  // The same from `first` on, until f returns false. O(values looked at).
  template <class F>
  void walk_from(Rank first, F f) const {
    walk(*this, first, f);
  }

  // What the array may cost: so many slots for each value.
  static constexpr std::size_t kSlotsPerValue = 4;

 private:
  template <class Self>
  static auto find_in(Self& self, Rank rank) -> decltype(self.find(rank)) {
    if (rank < self.slots_.size()) return self.slots_[rank] ? &*self.slots_[rank] : nullptr;
    return find_stray(self, rank);
  }
  template <class Self>
  static auto known(Self& self, Rank rank) -> decltype(*self.find(rank)) {
    if (rank < self.slots_.size()) return *self.slots_[rank];
    return *find_stray(self, rank);
  }
  // These are never inlined, so that the way through the array is short.
  template <class Self>
  [[gnu::noinline]] static auto find_stray(Self& self, Rank rank) -> decltype(self.find(rank)) {
    const auto it = self.strays_.find(rank);
    return it == self.strays_.end() ? nullptr : &it->second;
  }
  template <class... Arguments>
  [[gnu::noinline]] T& make(Rank rank, Arguments&&... arguments) {
    ++size_;
    if (rank < slots_.size()) return slots_[rank].emplace(std::forward<Arguments>(arguments)...);
    if (rank == slots_.size()) {
      slots_.emplace_back(std::in_place, std::forward<Arguments>(arguments)...);
      while (!strays_.empty() && strays_.begin()->first == slots_.size()) take_first_stray();
      return *slots_[rank];
    }
    T& value = strays_.try_emplace(rank, std::forward<Arguments>(arguments)...).first->second;
    if (strays_.size() < next_look_) return value;
    take_strays();
    return *find(rank);
  }
  template <class Self, class F>
  static void walk(Self& self, Rank first, F f) {
    for (std::size_t rank = first; rank < self.slots_.size(); ++rank) {
      if (self.slots_[rank] && !f(static_cast<Rank>(rank), *self.slots_[rank])) return;
    }
    for (auto it = self.strays_.lower_bound(first); it != self.strays_.end(); ++it) {
      if (!f(it->first, it->second)) return;
    }
  }

  void take_first_stray() {
    slots_.resize(strays_.begin()->first);
    slots_.emplace_back(std::move(strays_.begin()->second));
    strays_.erase(strays_.begin());
  }
  // Moves those into the array that have become dense enough. Done at each doubling of their
  // number, so that it costs O(1) a value.
  void take_strays() {
    std::size_t seen = 0, taken = 0;
    for (const auto& [rank, value] : strays_) {
      if (rank + std::size_t{1} - slots_.size() <= kSlotsPerValue * ++seen) taken = seen;
    }
    for (; taken > 0; --taken) take_first_stray();
    next_look_ = std::max<std::size_t>(1, 2 * strays_.size());
  }

  std::vector<std::optional<T>> slots_;  // the last one has a value
  std::map<Rank, T> strays_;             // all behind the array
  std::size_t next_look_ = 1;            // take_strays() at so many
  std::size_t size_ = 0;
};

}  // namespace syncd
