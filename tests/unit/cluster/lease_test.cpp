// Until when a member may grant.
#include "daemon/core/cluster/lease.h"

#include <gtest/gtest.h>

#include "tests/unit/cluster/names.h"

namespace syncd::cluster {
namespace {

Clocks at(double seconds) {
  const auto micros = static_cast<Micros>(seconds * 1e6);
  return {100 * kSecond + micros, 5000 * kSecond + micros};
}

// A lease of 5 s, kept alive once, at 0.
Lease kept_alive(Micros ttl = 5 * kSecond) {
  Lease lease(5 * kSecond);
  lease.on_answer(*lease.send(at(0)), ttl);
  return lease;
}

TEST(ClusterLease, CountsFromTheSendingLessATenth) {
  Lease lease(5 * kSecond);
  EXPECT_FALSE(lease.may_grant(at(0))) << "not granted yet";
  const auto number = lease.send(at(0));
  ASSERT_TRUE(number);
  EXPECT_FALSE(lease.may_grant(at(0)));
  lease.on_answer(*number, 5 * kSecond);  // at whatever time it comes
  EXPECT_EQ(lease.left(at(4)), kSecond / 2);
  EXPECT_TRUE(lease.may_grant(at(4.499999)));
  EXPECT_FALSE(lease.may_grant(at(4.5)));
  EXPECT_EQ(lease.left(at(60)), 0);
}

TEST(ClusterLease, TakesTheShorterOfTtlAndLease) {
  EXPECT_FALSE(kept_alive(2 * kSecond).may_grant(at(1.8)));
  EXPECT_TRUE(kept_alive(2 * kSecond).may_grant(at(1.79)));
  EXPECT_FALSE(kept_alive(60 * kSecond).may_grant(at(4.5)));
}

TEST(ClusterLease, TheClockThatAdvancedMoreCounts) {
  const Lease lease = kept_alive();
  Clocks paused = at(1);  // a virtual machine that was paused for a minute
  paused.real += 60 * kSecond;
  EXPECT_FALSE(lease.may_grant(paused));
  Clocks set_back = at(5);
  set_back.real -= 3600 * kSecond;
  EXPECT_FALSE(lease.may_grant(set_back));
  set_back = at(4);
  set_back.real -= 3600 * kSecond;
  EXPECT_TRUE(lease.may_grant(set_back));
}

TEST(ClusterLease, OneKeepAliveIsOutstanding) {
  Lease lease = kept_alive();
  EXPECT_FALSE(lease.is_due(at(1.6)));
  EXPECT_TRUE(lease.is_due(at(1.7)));
  ASSERT_TRUE(lease.send(at(1.7)));
  EXPECT_FALSE(lease.is_due(at(3)));
  EXPECT_FALSE(lease.send(at(3)));
}

TEST(ClusterLease, AnswersOfAnAbandonedStreamAreDropped) {
  Lease lease = kept_alive();
  const auto first = lease.send(at(2));
  lease.abandon();
  lease.on_answer(*first, 5 * kSecond);
  EXPECT_FALSE(lease.may_grant(at(4.5)));
  const auto second = lease.send(at(3));
  ASSERT_TRUE(second);
  lease.on_answer(*first, 5 * kSecond);
  EXPECT_FALSE(lease.may_grant(at(4.5))) << "the first one's answer is not the second one's";
  EXPECT_TRUE(lease.may_grant(at(4.4)));
  lease.on_answer(*second, 5 * kSecond);
  EXPECT_TRUE(lease.may_grant(at(7.4)));
  lease.on_answer(*second, 0);
  EXPECT_TRUE(lease.may_grant(at(7.4))) << "an answer counts once";
}

TEST(ClusterLease, ALeaseThatEtcdDoesNotKnowIsLost) {
  Lease lease = kept_alive();
  lease.on_answer(*lease.send(at(2)), 0);
  EXPECT_TRUE(lease.is_lost());
  EXPECT_FALSE(lease.may_grant(at(2)));
  lease.on_answer(*lease.send(at(3)), 5 * kSecond);
  EXPECT_FALSE(lease.may_grant(at(3))) << "its keys are gone";
}

}  // namespace
}  // namespace syncd::cluster
