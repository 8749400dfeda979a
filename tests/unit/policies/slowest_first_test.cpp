// SlowestFirst against an ordered set of its keys.
#include "daemon/core/policies/slowest_first.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

namespace syncd {
namespace {

using Key = std::tuple<Clock, Micros, Rank>;

TEST(SlowestFirst, PutsClockBeforeTimeBeforeRank) {
  SlowestFirst order;
  EXPECT_TRUE(order.empty());
  order.put(4, 1, 10);
  order.put(3, 1, 20);
  EXPECT_EQ(order.slowest(), 4U);
  order.put(9, 1, -1);
  EXPECT_EQ(order.slowest(), 9U);
  order.put(7, 1, -1);
  EXPECT_EQ(order.slowest(), 7U);
  order.put(5, 0, 30);
  EXPECT_EQ(order.slowest(), 5U);
  order.remove(5);
  order.remove(5);
  EXPECT_EQ(order.slowest(), 7U);
  order.clear();
  EXPECT_TRUE(order.empty());
}

TEST(SlowestFirst, AgreesWithASet) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    SlowestFirst order;
    std::set<Key> keys;
    std::map<Rank, Key> key_of;
    for (int i = 0; i < 3'000; ++i) {
      const Rank rank = random() % 24;
      if (const auto it = key_of.find(rank); it != key_of.end()) {
        keys.erase(it->second);
        key_of.erase(it);
        if (random() % 4 == 0) {
          order.remove(rank);
          continue;
        }
      }
      // Mostly the latest, often as another's, sometimes anything.
      const Clock clock = random() % 4;
      const Micros time = random() % 4 == 0 ? static_cast<Micros>(random() % 1'500) - 1 : i / 2;
      order.put(rank, clock, time);
      keys.insert(key_of[rank] = {clock, time, rank});
      ASSERT_EQ(order.slowest(), std::get<Rank>(*keys.begin())) << round << ", " << i;
    }
    // All of it, from one end to the other.
    while (!keys.empty()) {
      const Rank rank = std::get<Rank>(*keys.begin());
      ASSERT_EQ(order.slowest(), rank);
      order.remove(rank);
      keys.erase(keys.begin());
    }
    EXPECT_TRUE(order.empty());
  }
}

}  // namespace
}  // namespace syncd
