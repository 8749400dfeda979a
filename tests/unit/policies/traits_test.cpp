// What the registry says of a policy whose text is all that one has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "daemon/core/policies/registry.h"

namespace syncd {
namespace {

PolicyTraits traits(std::string_view policy) {
  std::string error;
  const auto found = traits_of(policy, error);
  EXPECT_TRUE(found) << error;
  return found.value_or(PolicyTraits{});
}

TEST(PolicyTraits, OfParameterServers) {
  EXPECT_EQ(traits("asp"), (PolicyTraits{.waits = false}));
  EXPECT_EQ(traits("ssp:3"), (PolicyTraits{.gap_bound = 3}));
  EXPECT_EQ(traits("dssp:3-15"), (PolicyTraits{.gap_bound = 15}));
  EXPECT_EQ(traits("bsp"), (PolicyTraits{.gap_bound = 0, .barrier_every = 1, .all_meet = true}));
  EXPECT_EQ(traits("bsp:5,backup=0"), traits("bsp:5"));
  EXPECT_EQ(traits("bsp:5,backup=2"),
            (PolicyTraits{.gap_bound = 4, .barrier_every = 5, .jumps = true}));
  EXPECT_EQ(traits("elastic_bsp:15"),
            (PolicyTraits{.gap_bound = 29, .tells_barriers = true, .all_meet = true}));
  EXPECT_EQ(traits("elastic_bsp:1").gap_bound, 1);
}

TEST(PolicyTraits, OfPeers) {
  PolicyTraits expected;
  expected.family = Family::kDecentralized;
  expected.gap_bound = 4;
  EXPECT_EQ(traits("hop:ring"), expected);
  EXPECT_EQ(traits("hop:file:/no/such/file"), expected) << "no file is read";
  expected.gap_bound = 2;
  expected.jumps = true;
  expected.peer_loop.staleness = 5;
  EXPECT_EQ(traits("hop:ring,max_ig=2,staleness=5,skip=10"), expected);
  expected = {};
  expected.family = Family::kDecentralized;
  expected.gap_bound = 1;
  expected.peer_loop = {.push_follows_data = true, .batches = 3};
  EXPECT_EQ(traits("notify_ack:ring,every=3"), expected);
  expected.peer_loop = {.push_follows_data = true, .unsafe = true};
  EXPECT_EQ(traits("barrier:ring"), expected);
  expected.peer_loop.any_iteration = true;
  expected.gap_bound = {};
  expected.waits = false;
  EXPECT_EQ(traits("async:ring"), expected);
}

// A name says nothing of what lies under an overlay, or over it.
TEST(PolicyTraits, OfOverlaysAreTheirBasesToo) {
  PolicyTraits expected = traits("ssp:3");
  expected.may_resync = true;
  EXPECT_EQ(traits("specsync:fixed,20,0.5+ssp:3"), expected);
  expected.grant_delay_us = 50'000;
  EXPECT_EQ(traits("naive_wait:50+specsync+ssp:3"), expected);
  EXPECT_TRUE(traits("naive_wait:50+specsync+asp").may_resync);
  EXPECT_TRUE(traits("naive_wait:50+asp").waits);
  EXPECT_FALSE(traits("naive_wait:0+specsync+asp").waits);
  EXPECT_EQ(traits("naive_wait:5+naive_wait:7+bsp:4").grant_delay_us, 12'000);
  EXPECT_EQ(traits("naive_wait:5+bsp:4").barrier_every, 4);
  EXPECT_TRUE(traits("naive_wait:5+elastic_bsp:4").tells_barriers);
}

TEST(PolicyTraits, OfNoPolicyAreNone) {
  std::string error;
  EXPECT_FALSE(traits_of("wonder:7", error));
  EXPECT_THAT(error, testing::HasSubstr("policy 'wonder:7' is unknown: allowed are asp, bsp"));
  for (const auto& [wrong, meant] : {std::pair{"spp:3", "ssp:3"},
                                     {"SSP:3", "ssp:3"},
                                     {"elastic-bsp:8,max", "elastic_bsp:8,max"},
                                     {"naive_wiat:5+asp", "naive_wait:5+asp"},
                                     {"ssp3", "ssp:S"},
                                     {"naive_wait:5+spp:3", "ssp:3"}}) {
    EXPECT_FALSE(traits_of(wrong, error));
    EXPECT_THAT(error, testing::HasSubstr(std::string("is unknown (did you mean ") + meant + "?)"));
  }
  EXPECT_FALSE(traits_of("bsp:zero", error));
  EXPECT_EQ(traits_or_none("wonder:7"), PolicyTraits{});
  EXPECT_EQ(traits_or_none("ssp:3"), traits("ssp:3"));
}

// The names in messages are the registry's.
TEST(PolicyTraits, EveryNameIsKnownOnce) {
  std::set<std::string_view> names;
  for (const PolicyRow& row : all_policies()) {
    EXPECT_NE(row.make != nullptr, row.lay_over != nullptr) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(find_policy(row.name), &row);
    EXPECT_THAT(known_policies(), testing::HasSubstr(std::string(row.form)));
  }
  EXPECT_EQ(find_policy("wonder"), nullptr);
  EXPECT_EQ(find_policy(""), nullptr);
}

// The Python package has a policy's text alone, and reads the same of it (test_torch.py).
TEST(PolicyTraits, AreThoseThatThePythonPackageReads) {
  std::ifstream table(std::string(SYNCD_TEST_SOURCE_DIR) + "/golden/policies/barriers.txt");
  int checked = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string policy, told;
    std::int64_t every = -1;
    ASSERT_TRUE(words >> policy >> told >> every) << line;
    const PolicyTraits found = traits(policy);
    EXPECT_EQ(told, found.tells_barriers && found.all_meet ? "told" : "untold") << policy;
    EXPECT_EQ(every, found.all_meet ? found.barrier_every : 0) << policy;
    ++checked;
  }
  EXPECT_GE(checked, 12);
}

}  // namespace
}  // namespace syncd
