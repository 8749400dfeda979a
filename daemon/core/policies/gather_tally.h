// What a job under gather must know of all its members and waiting workers at once, kept up to
// date: a begin among n of them costs O(log n), and nothing is counted anew. One thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/core/engine/policy.h"
#include "daemon/core/engine/types.h"

namespace syncd {

// What became of a member since its round began. The numbers are stored.
enum class Fate : std::uint8_t { kIn, kFinished, kLeft, kFailed, kPreempted, kLost };

// Of the last round.
struct GatherMember {
  Rank rank = 0;
  Incarnation incarnation = 0;
  Fate fate = Fate::kIn;
  bool spared = false;  // MAX was lowered, or its host excluded: it has no place in the next round
  bool anew = false;    // it has begun since
  bool waits = false;
  Micros since = 0;    // since when it waits, or no longer does
  Micros gone_at = 0;  // fate: since when
  std::string cause;
  // ---- set by the policy before the tally counts it
  bool excluded = false;  // its host is
  bool back = false;      // after a restart of the daemon: it is there again

  bool living() const { return fate == Fate::kIn; }
  // It has a place in the next round.
  bool placed() const { return living() && !spared; }
};

// A worker that waits and is no member of the last round.
struct GatherWaiter {
  Micros since = 0;
  std::uint64_t turn = 0;  // of a spare, which has seen a round begin without it; 0: a newcomer
  // ---- set by the policy before the tally counts it
  bool excluded = false;
  std::string name = {};  // where regroup_wait needs it
};

class GatherTally {
 public:
  using Place = std::size_t;  // in the last round

  // A member's facts as they are. `name`: where regroup_wait needs it.
  void add(Place place, const GatherMember& member, std::string_view name) {
    if (!member.living()) {
      gone_ += member.fate != Fate::kFinished ? 1 : 0;
      if (member.fate == Fate::kLost && !name.empty()) miss(place, member.gone_at, name);
      return;
    }
    count(member, 1);
    if (!member.waits) {
      late_.emplace(member.since, place);
      late_list_.reset();
      return;
    }
    begun_.emplace(member.since, place);
    if (!member.excluded) ready_.emplace(member.since, place);
  }
  // The same facts as when it was added; of a living one.
  void remove(Place place, const GatherMember& member) {
    count(member, -1);
    if (late_.erase({member.since, place}) > 0) late_list_.reset();
    begun_.erase({member.since, place});
    ready_.erase({member.since, place});
  }
  void add(Rank rank, const GatherWaiter& waiter) {
    if (waiter.excluded) return;
    arrivals_.emplace(waiter.since, rank);
    if (waiter.name.empty()) return;
    waiting_names_[waiter.name] = rank;
    if (const auto lost = lost_.find(waiter.name); lost != lost_.end()) {
      missed_.erase({lost->second.second, lost->second.first});
    }
  }
  void remove(Rank rank, const GatherWaiter& waiter) {
    arrivals_.erase({waiter.since, rank});
    const auto named = waiting_names_.find(waiter.name);
    if (named == waiting_names_.end() || named->second != rank) return;
    waiting_names_.erase(named);
    if (const auto lost = lost_.find(waiter.name); lost != lost_.end()) {
      missed_.emplace(lost->second.second, lost->second.first);
    }
  }

  // ---- members of the last round
  std::int64_t living() const { return living_; }
  std::int64_t placed() const { return placed_; }          // they keep others out of the next
  std::int64_t unfinished() const { return unfinished_; }  // and no host of theirs is excluded
  std::int64_t gone() const { return gone_; }              // as RoundState has it
  std::int64_t back() const { return back_; }              // of the living ones
  std::int64_t ready() const { return size(ready_); }      // they wait and may be taken
  std::int64_t ready_placed() const { return ready_placed_; }
  // Living ones that do not wait: how many, and since when the first of them.
  std::size_t late() const { return late_.size(); }
  Micros late_since() const { return late_.empty() ? kNever : late_.begin()->first; }
  // The first that waits, excluded or not.
  Micros first_since() const { return begun_.empty() ? kNever : begun_.begin()->first; }
  Place first() const { return begun_.begin()->second; }
  std::vector<Place> begun() const { return places(begun_); }

  // ---- workers that wait beside it, without excluded ones
  std::int64_t waiting() const { return size(arrivals_); }
  Micros latest_waiter() const { return latest(arrivals_); }
  Micros latest_ready() const { return latest(ready_); }

  // ---- regroup_wait: lost members whose names do not wait
  std::optional<Micros> latest_missed() const {
    return missed_.empty() ? std::nullopt : std::optional(latest(missed_));
  }
  std::optional<Rank> waiter_named(std::string_view name) const {
    const auto it = waiting_names_.find(name);
    return it == waiting_names_.end() ? std::nullopt : std::optional(it->second);
  }

  // The late ones, for people: made when somebody asks, and kept while they are the same, because
  // all who wait are told the same. `rank_of(place)`.
  struct Late {
    RankList ranks;
    std::vector<Place> first;  // a few, in the order of the round
  };
  template <class RankOf>
  const Late& late_list(std::size_t shown, RankOf rank_of) const {
    if (late_list_) return *late_list_;
    late_list_.emplace();
    late_list_->first = places(late_);
    std::vector<Rank> ranks;
    ranks.reserve(late_.size());
    for (const Place place : late_list_->first) ranks.push_back(rank_of(place));
    std::sort(ranks.begin(), ranks.end());
    late_list_->ranks = RankList(ranks);
    late_list_->first.resize(std::min(shown, late_list_->first.size()));
    return *late_list_;
  }

 private:
  using Times = std::set<std::pair<Micros, Place>>;

  static std::vector<Place> places(const Times& times) {
    std::vector<Place> out;
    out.reserve(times.size());
    for (const auto& [since, place] : times) out.push_back(place);
    std::sort(out.begin(), out.end());
    return out;
  }
  template <class Set>
  static Micros latest(const Set& set) {
    return set.empty() ? 0 : set.rbegin()->first;
  }
  template <class Set>
  static std::int64_t size(const Set& set) {
    return static_cast<std::int64_t>(set.size());
  }
  void count(const GatherMember& member, std::int64_t one) {
    living_ += one;
    placed_ += member.placed() ? one : 0;
    unfinished_ += member.placed() && !member.excluded ? one : 0;
    gone_ += member.anew || member.spared ? one : 0;
    back_ += member.back ? one : 0;
    ready_placed_ += member.waits && member.placed() && !member.excluded ? one : 0;
  }
  void miss(Place place, Micros gone_at, std::string_view name) {
    lost_[std::string(name)] = {place, gone_at};
    if (!waiting_names_.contains(name)) missed_.emplace(gone_at, place);
  }

  std::int64_t living_ = 0, placed_ = 0, unfinished_ = 0, gone_ = 0, back_ = 0, ready_placed_ = 0;
  Times late_, begun_, ready_;
  std::set<std::pair<Micros, Rank>> arrivals_;
  std::map<std::string, Rank, std::less<>> waiting_names_;
  std::map<std::string, std::pair<Place, Micros>, std::less<>> lost_;
  Times missed_;
  mutable std::optional<Late> late_list_;
};

}  // namespace syncd
