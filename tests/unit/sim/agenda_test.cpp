// The simulator's queue of messages and heap of computing workers.
#include "daemon/tools/sim/agenda.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/support/random.h"

namespace syncd::sim {
namespace {

TEST(Ring, KeepsItsOrderWhileItGrowsAndTurns) {
  test::Random random(7);
  Ring<int> ring;
  std::deque<int> model;
  for (int i = 0; i < 20'000; ++i) {
    // Tends to grow first, then to shrink.
    if (model.empty() || random.below(100) < (i < 10'000 ? 60U : 40U)) {
      ring.push(i);
      model.push_back(i);
    } else {
      ASSERT_EQ(ring.front(), model.front());
      ASSERT_EQ(ring.pop(), model.front());
      model.pop_front();
    }
    ASSERT_EQ(ring.empty(), model.empty());
  }
}

TEST(ComputeHeap, TakesTheEarliestAndOfEqualTimesTheFirstPlanned) {
  test::Random random(8);
  ComputeHeap heap;
  for (std::uint64_t order = 0; order < 1000; ++order) {
    heap.push({random.between(0, 20), order, 0, 0});
  }
  ComputeEnd before = heap.pop();
  while (!heap.empty()) {
    const ComputeEnd end = heap.pop();
    ASSERT_TRUE(before.at < end.at || (before.at == end.at && before.order < end.order));
    before = end;
  }
}

}  // namespace
}  // namespace syncd::sim
