// A trainer, which has only a policy's text, must follow the loop that the policy itself names, as
// the simulated workers do.
#include <gtest/gtest.h>

#include <string>

#include "daemon/core/engine/policy.h"
#include "reference_trainer/run/policies.h"

namespace syncd {
namespace {

TEST(PeerLoop, TheReferenceTrainerReadsTheSameFromThePolicysText) {
  for (const char* text :
       {"hop:ring", "hop:ring_based,max_ig=5,backup=1", "hop:complete,staleness=3,skip=4",
        "notify_ack:ring", "notify_ack:root_expander,every=7", "notify_ack:complete,force=1",
        "barrier:complete", "async:ring"}) {
    std::string error;
    const auto policy = make_policy(text, error);
    ASSERT_TRUE(policy) << error;
    const auto read = trainer::peer_policy(text);
    ASSERT_TRUE(read) << text;
    const PeerLoop& loop = policy->traits().peer_loop;
    EXPECT_EQ(read->acknowledges, loop.push_follows_data && !loop.unsafe) << text;
    EXPECT_EQ(read->unsafe, loop.unsafe) << text;
    EXPECT_EQ(read->every, policy->traits().peer_loop.batches) << text;
  }
}

TEST(PeerLoop, ParameterServersHaveNone) {
  for (const char* text : {"asp", "bsp:3", "ssp:2", "naive_wait:50+bsp", "specsync+asp"}) {
    std::string error;
    const auto policy = make_policy(text, error);
    ASSERT_TRUE(policy) << error;
    EXPECT_EQ(policy->family(), Family::kParameterServer);
    EXPECT_FALSE(trainer::peer_policy(text)) << text;
  }
}

}  // namespace
}  // namespace syncd
