// How many handshakes a machine may begin, by a clock that the test sets.
#include "daemon/edge/net/handshake_budget.h"

#include <gtest/gtest.h>

namespace syncd::net {
namespace {

constexpr std::uint64_t kStart = 1'000'000;

int taken(HandshakeBudget& budget, const std::string& machine, std::uint64_t now_ms,
          std::uint32_t per_s = 10) {
  int count = 0;
  while (count < 1000 && budget.take(machine, per_s, now_ms)) ++count;
  return count;
}

TEST(HandshakeBudget, GivesEachMachineABurstAndThenSoManyASecond) {
  HandshakeBudget budget;
  EXPECT_EQ(taken(budget, "a", kStart), 50);
  EXPECT_EQ(taken(budget, "b", kStart), 50) << "what others do costs it nothing";
  EXPECT_EQ(taken(budget, "a", kStart + 99), 0);
  EXPECT_EQ(taken(budget, "a", kStart + 100), 1);
  EXPECT_EQ(taken(budget, "a", kStart + 1100), 10);
  EXPECT_EQ(taken(budget, "a", kStart + 1'000'000), 50) << "no more for having waited longer";
}

TEST(HandshakeBudget, NoLimitIsNone) {
  HandshakeBudget budget;
  EXPECT_EQ(taken(budget, "a", kStart, 0), 1000);
  EXPECT_EQ(budget.machines(), 0U);
}

TEST(HandshakeBudget, KeepsAsManyMachinesAsItMayAndForgetsThoseThatAreSilent) {
  HandshakeBudget budget;
  for (std::size_t i = 0; i < 2 * HandshakeBudget::kMachinesMax; ++i) {
    budget.take(std::to_string(i), 10, kStart);
  }
  EXPECT_EQ(budget.machines(), HandshakeBudget::kMachinesMax);
  EXPECT_EQ(taken(budget, "0", kStart), 49) << "its own, whoever comes after it";
  EXPECT_EQ(taken(budget, "late", kStart), 0) << "those that are too many share one";
  EXPECT_EQ(taken(budget, "late", kStart + 5000), 50);
  EXPECT_EQ(budget.machines(), 1U);
}

}  // namespace
}  // namespace syncd::net
