// The server's link against the same in small steps: who ends when, whatever starts and stops
// between.
#include "daemon/tools/sim/shared_link.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/support/random.h"

namespace syncd::sim {
namespace {

TEST(SharedLink, EndsWhenEachHasHadItsShare) {
  for (std::uint64_t run = 0; run < 300; ++run) {
    test::Random random(run);
    const Micros alone = random.between(1, 400);
    SharedLink link(alone);
    std::map<Rank, double> left;  // of each worker's transfer, alone
    Micros now = 0;
    std::uint64_t order = 0;
    Rank next_worker = 0;
    for (int event = 0; event < 200; ++event) {
      // The next thing that is asked of it, or an end before that.
      const Micros asked = now + random.between(0, 60);
      while (!link.idle() && link.next().at <= asked) {
        const SharedLink::Next end = link.next();
        ASSERT_GE(end.at, now) << "time does not run backwards";
        const double share = static_cast<double>(end.at - now) / static_cast<double>(left.size());
        for (auto& [worker, rest] : left) rest -= share;
        now = end.at;
        // It has ended by now, and had not a microsecond before.
        EXPECT_LE(left.at(end.worker), 1e-6);
        EXPECT_GE(left.at(end.worker), -1.0 - 1e-6);
        left.erase(end.worker);
        link.end(now);
      }
      const double share =
          left.empty() ? 0 : static_cast<double>(asked - now) / static_cast<double>(left.size());
      for (auto& [worker, rest] : left) rest -= share;
      now = asked;
      if (left.empty() || !random.one_in(3)) {
        // Several at once: the clock must not go back for them.
        for (std::int64_t i = random.between(1, 5); i > 0; --i) {
          link.start(now, ++order, next_worker);
          left[next_worker++] = static_cast<double>(alone);
        }
      } else {
        const Rank stopped = left.begin()->first;
        link.cancel(now, stopped);
        left.erase(stopped);
      }
    }
  }
}

}  // namespace
}  // namespace syncd::sim
