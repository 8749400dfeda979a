// Cutting lists of policies apart, and what is refused.
#include "reference_trainer/policy_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error(std::string_view list) {
  return testing::error_of<PolicyListError>([&] { split_policies(list); });
}

TEST(PolicyList, SplitsAtCommasThatBeginAPolicy) {
  EXPECT_THAT(split_policies("bsp"), ElementsAre("bsp"));
  EXPECT_THAT(split_policies("bsp,asp,ssp:3"), ElementsAre("bsp", "asp", "ssp:3"));
  EXPECT_THAT(
      split_policies("bsp:2,backup=1,dssp:3-15,elastic_bsp:15,zipline,objective=rate,asp"),
      ElementsAre("bsp:2,backup=1", "dssp:3-15", "elastic_bsp:15,zipline,objective=rate", "asp"));
  EXPECT_THAT(split_policies("specsync:fixed,10,0.2+ssp:3,specsync+asp,naive_wait:5+bsp"),
              ElementsAre("specsync:fixed,10,0.2+ssp:3", "specsync+asp", "naive_wait:5+bsp"));
  EXPECT_THAT(split_policies("specsync:adaptive,scope=worker,cap=authors+dssp:1-2,bsp,bsp"),
              ElementsAre("specsync:adaptive,scope=worker,cap=authors+dssp:1-2", "bsp", "bsp"));
  EXPECT_THAT(
      split_policies("hop:ring_based,max_ig=5,backup=1,notify_ack:root_expander,every=2,hop:ring"),
      ElementsAre("hop:ring_based,max_ig=5,backup=1", "notify_ack:root_expander,every=2",
                  "hop:ring"));
}

TEST(PolicyList, RefusesWhatIsNoPolicy) {
  EXPECT_THAT(error(""), AllOf(HasSubstr("the first policy is missing"), HasSubstr("ssp:s"),
                               HasSubstr("hop:")));
  EXPECT_THAT(error(",bsp"), HasSubstr("the first policy is missing"));
  EXPECT_THAT(error("bsp,"), HasSubstr("nothing stands after a comma of 'bsp,'"));
  EXPECT_THAT(error("bsp,,asp"), HasSubstr("nothing stands after a comma"));
  EXPECT_THAT(error("fast"), HasSubstr("'fast' is not a policy; allowed: bsp[:k][,backup=b], asp"));
  EXPECT_THAT(error("bspx"), HasSubstr("'bspx' is not a policy"));
}

TEST(PolicyList, SlugsAreSafeInFileNames) {
  EXPECT_EQ(policy_slug("ssp:3"), "ssp-3");
  EXPECT_EQ(policy_slug("specsync:fixed,1,0.2+asp"), "specsync-fixed-1-0.2-asp");
  EXPECT_EQ(policy_slug("../x y"), "..-x-y");
}

}  // namespace
}  // namespace syncd::trainer
