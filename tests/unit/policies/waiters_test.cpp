// Waiters, one by one. Many of them at once, in any order, run in the policies' own tests.
#include "daemon/core/policies/waiters.h"

#include <gtest/gtest.h>

#include <vector>

namespace syncd {
namespace {

using Ranks = std::vector<Rank>;

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

}  // namespace
}  // namespace syncd
