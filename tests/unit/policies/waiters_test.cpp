// Waiters against the plainest model of them: an array that is searched from end to end.
#include "daemon/core/policies/waiters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace syncd {
namespace {

using Ranks = std::vector<Rank>;

class Model {
 public:
  void add(Rank rank, std::int64_t threshold, Micros since) {
    remove(rank);
    waiting_.push_back({rank, threshold, since});
  }
  void remove(Rank rank) {
    std::erase_if(waiting_, [&](const Waiting& w) { return w.rank == rank; });
  }
  Ranks take_due(std::int64_t reached) {
    std::vector<std::pair<Micros, Rank>> due;
    for (const Waiting& w : waiting_) {
      if (w.threshold <= reached) due.emplace_back(w.since, w.rank);
    }
    std::sort(due.begin(), due.end());
    Ranks ranks;
    for (const auto& [since, rank] : due) {
      ranks.push_back(rank);
      remove(rank);
    }
    return ranks;
  }
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    Rank rank;
    std::int64_t threshold;
    Micros since;
  };
  std::vector<Waiting> waiting_;
};

TEST(Waiters, ReleasesInOrderOfSinceThenRank) {
  Waiters waiters;
  waiters.add(5, 1, 20);
  waiters.add(2, 1, 10);
  waiters.add(9, 0, 20);
  waiters.add(1, 2, 0);
  EXPECT_EQ(waiters.take_due(1), (Ranks{2, 5, 9}));
  EXPECT_FALSE(waiters.empty());
  EXPECT_EQ(waiters.take_due(1), Ranks{});
  EXPECT_EQ(waiters.take_due(2), (Ranks{1}));
  EXPECT_TRUE(waiters.empty());
}

TEST(Waiters, OneThatIsAddedAgainWaitsForItsNewThresholdOnly) {
  Waiters waiters;
  waiters.add(3, 1, 10);
  waiters.add(3, 7, 11);
  EXPECT_EQ(waiters.take_due(6), Ranks{});
  EXPECT_EQ(waiters.take_due(7), (Ranks{3}));
}

TEST(Waiters, RemovingLeavesTheOthersAndToleratesStrangers) {
  Waiters waiters;
  waiters.remove(1'000);
  waiters.add(0, 4, 1);
  waiters.add(1, 4, 2);
  waiters.add(2, 4, 3);
  waiters.remove(0);
  waiters.remove(0);
  EXPECT_EQ(waiters.take_due(4), (Ranks{1, 2}));
  waiters.remove(1);
  EXPECT_TRUE(waiters.empty());
}

TEST(Waiters, AgreesWithTheModel) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t n) { return static_cast<std::int64_t>(random() % n); };
    Waiters waiters;
    Model model;
    std::int64_t reached = 0;
    for (int i = 0; i < 2'000; ++i) {
      const auto rank = static_cast<Rank>(below(40));
      const std::int64_t what = below(10);
      if (what < 7) {
        const std::int64_t threshold = reached + below(6);
        const Micros since = below(50);
        waiters.add(rank, threshold, since);
        model.add(rank, threshold, since);
      } else if (what < 9) {
        waiters.remove(rank);
        model.remove(rank);
      } else {
        reached += below(3);
        ASSERT_EQ(waiters.take_due(reached), model.take_due(reached));
      }
      ASSERT_EQ(waiters.empty(), model.empty());
    }
  }
}

}  // namespace
}  // namespace syncd
