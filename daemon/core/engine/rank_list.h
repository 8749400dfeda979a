// Ranks as an answer shows them: how many they are, and the first ranges of them. Small however
// many they are. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/types.h"
#include "proto/wire/explanation.h"

namespace syncd {

class RankList {
 public:
  RankList() = default;
  // In rank order, each once.
  explicit RankList(const std::vector<Rank>& ranks) {
    for (const Rank rank : ranks) push_back(rank);
  }
  // The first of `size` ranks, in ranges that do not touch.
  RankList(std::vector<RankRange> shown, std::size_t size)
      : shown_(std::move(shown)), size_(size) {}

  // Precondition: above all that are in it.
  void push_back(Rank rank) {
    ++size_;
    if (!shown_.empty() && shown_.back().last + 1 == rank) {
      shown_.back().last = rank;
    } else if (shown_.size() < kRangesShownMax) {
      shown_.push_back({rank, rank});
    }
  }

  std::size_t size() const { return size_; }
  const std::vector<RankRange>& shown() const { return shown_; }
  std::string text() const { return compress_ranges(shown_, size_); }

 private:
  std::vector<RankRange> shown_;  // at most kRangesShownMax
  std::size_t size_ = 0;
};

// The latest lists of a job by the clock that they are made for: a list of workers that wait for
// each other needs the same for each of them. One thread at a time.
class KnownLists {
 public:
  // `version`: of what lists are made from. fill(list) makes one that is not known.
  template <class Fill>
  const RankList& get(Clock clock, std::uint64_t version, Fill fill) {
    if (version != version_ || lists_.size() == kKept) lists_.clear();
    version_ = version;
    const auto [it, fresh] = lists_.try_emplace(clock);
    if (fresh) fill(it->second);
    return it->second;
  }

 private:
  static constexpr std::size_t kKept = 16;  // more than policies have thresholds at a time
  std::map<Clock, RankList> lists_;
  std::uint64_t version_ = 0;
};

}  // namespace syncd
