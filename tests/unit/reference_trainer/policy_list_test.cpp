// Cutting lists of policies apart, and which are refused.
#include "reference_trainer/run/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/unit/reference_trainer/support.h"

namespace syncd::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(PolicyList, RefusesGapsInAList) {
  EXPECT_THAT(error(""), AllOf(HasSubstr("the first policy is missing"), HasSubstr("ssp:S"),
                               HasSubstr("hop:")));
  EXPECT_THAT(error(",bsp"), HasSubstr("the first policy is missing"));
  EXPECT_THAT(error("bsp,"), HasSubstr("nothing stands after a comma of 'bsp,'"));
  EXPECT_THAT(error("bsp,,asp"), HasSubstr("nothing stands after a comma"));
}

// What is wrong with the list for so many workers; "" if nothing is.
std::string wrong(std::string_view list, int workers, bool daemon_elsewhere = false) {
  const std::vector<std::string> policies = split_policies(list);
  try {
    check_policies(policies, workers, daemon_elsewhere);
  } catch (const PolicyListError& error) {
    return error.what();
  }
  return "";
}

TEST(PolicyList, JudgesEveryPolicyByTheDaemonsRules) {
  EXPECT_EQ(wrong("bsp,asp,ssp:3,dssp:3-15,elastic_bsp:150,specsync+asp,naive_wait:5+bsp,"
                  "hop:ring_based,max_ig=5,backup=1,notify_ack:root_expander",
                  4),
            "");
  EXPECT_THAT(wrong("fast", 4), AllOf(HasSubstr("policy 'fast' is unknown"), HasSubstr("ssp:S")));
  EXPECT_THAT(wrong("asp,bspx", 4), HasSubstr("policy 'asp,bspx'"));
  EXPECT_THAT(wrong("asp,bsp,ssp:many", 4),
              AllOf(HasSubstr("policy 'ssp:many'"), HasSubstr("allowed are whole numbers")));
  EXPECT_THAT(wrong("asp,specsync+bsp", 4), HasSubstr("specsync"));
}

TEST(PolicyList, JudgesTheNumberOfWorkersOfEveryPolicy) {
  EXPECT_THAT(wrong("asp,hop:ring_based,max_ig=2", 5),
              AllOf(HasSubstr("policy 'hop:ring_based"), HasSubstr("not 5"),
                    HasSubstr("the nearest are 4 and 6"), Not(HasSubstr("comma"))));
  EXPECT_THAT(wrong("asp,notify_ack:double_ring", 6), HasSubstr("the nearest are 4 and 8"));
  EXPECT_THAT(wrong("bsp:1,backup=4", 4), HasSubstr("backup is 4"));
}

TEST(PolicyList, SaysWhatAMisspelledNameBehindACommaWasTakenFor) {
  EXPECT_THAT(
      wrong("bsp,hopp:ring", 4),
      AllOf(HasSubstr("policy 'bsp,hopp:ring'"),
            HasSubstr("a comma begins another policy only before one of the names asp, bsp")));
}

TEST(PolicyList, LeavesAGraphsFileToADaemonElsewhere) {
  EXPECT_THAT(wrong("hop:file:/no/such/graph", 4),
              HasSubstr("graph file /no/such/graph cannot be read"));
  EXPECT_EQ(wrong("hop:file:/no/such/graph", 4, true), "");
  EXPECT_THAT(wrong("hop:file:/no/such/graph,max_ig=0", 4, true), HasSubstr("max_ig"));
}

TEST(PolicyList, AGraphNeedsEdges) {
  const std::string file = ::testing::TempDir() + "edges_to_itself";
  std::ofstream(file) << "0 0\n1 1\n2 2\n3 3\n";
  for (const std::string policy : {"hop:file:", "notify_ack:file:", "barrier:file:"}) {
    EXPECT_THAT(wrong(policy + file, 4), AllOf(HasSubstr("the graph has no edges"),
                                               HasSubstr("each needs one to it and one from it")));
  }
}

TEST(PolicyList, SlugsAreSafeInFileNames) {
  EXPECT_EQ(policy_slug("ssp:3"), "ssp-3");
  EXPECT_EQ(policy_slug("specsync:fixed,1,0.2+asp"), "specsync-fixed-1-0.2-asp");
  EXPECT_EQ(policy_slug("../x y"), "..-x-y");
}

}  // namespace
}  // namespace syncd::trainer
