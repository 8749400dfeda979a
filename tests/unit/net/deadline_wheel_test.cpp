#include "daemon/edge/net/deadline_wheel.h"

#include <gtest/gtest.h>

namespace syncd::net {
namespace {

TEST(DeadlineWheel, NeverComesUpEarlyAndAtMostOneSlotLate) {
  DeadlineWheel wheel(10);
  for (std::uint64_t at = 0; at < 100; ++at) {
    const std::uint64_t slot = wheel.add(at, at);
    EXPECT_GT(slot, at);
    EXPECT_LE(slot, at + 10);
  }
}

TEST(DeadlineWheel, HandsOutSlotsInOrder) {
  DeadlineWheel wheel(10);
  wheel.add(1, 25);
  wheel.add(2, 5);
  wheel.add(3, 27);
  EXPECT_EQ(wheel.next_ms(), 10U);
  std::uint64_t slot = 0;
  std::vector<std::uint64_t> ids;
  EXPECT_FALSE(wheel.pop(9, slot, ids));
  ASSERT_TRUE(wheel.pop(100, slot, ids));
  EXPECT_EQ(slot, 10U);
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{2}));
  ASSERT_TRUE(wheel.pop(100, slot, ids));
  EXPECT_EQ(slot, 30U);
  EXPECT_EQ(ids, (std::vector<std::uint64_t>{1, 3}));
  EXPECT_FALSE(wheel.pop(100, slot, ids));
  EXPECT_EQ(wheel.next_ms(), DeadlineWheel::kNone);
}

}  // namespace
}  // namespace syncd::net
