// Ranks as an answer shows them: how many they are, and the first ranges of them. Small however
// many they are. Plain data.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "daemon/engine/types.h"
#include "proto/explanation.h"

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

}  // namespace syncd
