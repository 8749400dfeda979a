// What operators do to a cluster, and see of it.
#include "daemon/edge/cluster/administration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/membership/fixture.h"

namespace syncd::cluster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr Micros kTimeout = 1'000'000;

class AdministrationTest : public testing::Test {
 protected:
  void make(Shard shards) {
    ASSERT_TRUE(create_cluster(etcd_, "lab", shards, kTimeout, error_)) << error_;
  }
  void put(const std::string& key, const std::string& value) {
    etcd_.apply({{}, {{Op::Kind::kPut, key, value}}, {}});
  }
  ClusterStatus status() {
    ClusterStatus status;
    EXPECT_TRUE(read_status(etcd_, "lab", kTimeout, status, error_)) << error_;
    return status;
  }

  ModelCalls etcd_;
  std::string error_;
};

TEST_F(AdministrationTest, EachShardOfANewClusterCanBeLed) {
  make(3);
  for (Shard shard = 0; shard < 3; ++shard) {
    const ShardKeys keys("lab", shard);
    TakeOver read;
    EXPECT_TRUE(parse_take_over(keys, etcd_.apply(take_over_read(keys)), read, error_)) << error_;
    EXPECT_EQ(read.tail.index, 0U);
  }
  const ClusterStatus now = status();
  EXPECT_EQ(now.shards.size(), 3U);
  EXPECT_EQ(now.generation, 1U);
}

TEST_F(AdministrationTest, AClusterIsMadeOnceAndWhatItHasStays) {
  make(2);
  put(ShardKeys("lab", 1).tail(), encode(Tail{7, {1, 2}}));
  for (const Shard shards : {1u, 2u, 3u}) {
    EXPECT_FALSE(create_cluster(etcd_, "lab", shards, kTimeout, error_));
    EXPECT_THAT(error_, HasSubstr("exists already"));
  }
  EXPECT_EQ(status().shards.at(1).last, 7U);
}

// A version that came later, once all members had it.
TEST_F(AdministrationTest, RecordsThatThisVersionCannotReadAreRefused) {
  make(1);
  const std::string key = config_key("lab");
  Config config;
  ASSERT_TRUE(parse_config(etcd_.apply({{}, {{Op::Kind::kGet, key}}, {}}), "lab", config, error_));
  config.format = kFormat + 1;
  put(key, encode(config));
  ClusterStatus status;
  EXPECT_FALSE(read_status(etcd_, "lab", kTimeout, status, error_));
  EXPECT_EQ(error_,
            "members of cluster 'lab' write records of format 2, and this version reads formats up "
            "to 1: install the version that they have");
}

// The first attempt has seeded a shard, and its end is not known.
TEST_F(AdministrationTest, AnAttemptThatWasCutOffMayBeRepeated) {
  int calls = 0;
  etcd_.set_fault([&](const Transaction& transaction) {
    Answer answer = etcd_.apply(transaction);
    if (++calls == 2) answer = {Answer::Kind::kUnknown, 0, {}, 0, "no answer"};
    return answer;
  });
  EXPECT_FALSE(create_cluster(etcd_, "lab", 3, kTimeout, error_));
  EXPECT_EQ(error_, "no answer");
  make(3);
  EXPECT_EQ(status().shards.size(), 3U);
}

TEST_F(AdministrationTest, StatusIsOfEachShard) {
  make(2);
  const ShardKeys keys("lab", 1);
  put(keys.leader(), encode(Leader{{1, 0}, "node-b"}));
  Member member;
  member.version = "0.1.0";
  member.addresses = {"tls:node-b:7118"};
  member.copies = {5};
  put(keys.member("node-b"), encode(member));
  const ClusterStatus now = status();
  EXPECT_EQ(now.shards.at(0).leader, "");
  EXPECT_THAT(now.shards.at(0).members, IsEmpty());
  EXPECT_EQ(now.shards.at(1).leader, "node-b");
  EXPECT_GT(now.shards.at(1).term, 0);
  ASSERT_EQ(now.shards.at(1).members.size(), 1U);
  EXPECT_EQ(now.shards.at(1).members[0].copy, 5U);
  EXPECT_THAT(now.shards.at(1).members[0].addresses, ElementsAre("tls:node-b:7118"));
}

TEST_F(AdministrationTest, DrainsAndPinsAreSeenAndTakenBack) {
  make(2);
  ASSERT_TRUE(set_draining(etcd_, "lab", "node-a", true, kTimeout, error_)) << error_;
  ASSERT_TRUE(set_pin(etcd_, "lab", 1, "node-b", kTimeout, error_)) << error_;
  EXPECT_THAT(status().draining, ElementsAre("node-a"));
  EXPECT_EQ(status().shards.at(0).pin, "");
  EXPECT_EQ(status().shards.at(1).pin, "node-b");
  ASSERT_TRUE(set_draining(etcd_, "lab", "node-a", false, kTimeout, error_)) << error_;
  ASSERT_TRUE(set_pin(etcd_, "lab", 1, "", kTimeout, error_)) << error_;
  EXPECT_THAT(status().draining, IsEmpty());
  EXPECT_EQ(status().shards.at(1).pin, "");
}

TEST_F(AdministrationTest, WhatIsNotThereIsNamed) {
  EXPECT_FALSE(set_draining(etcd_, "lab", "node-a", true, kTimeout, error_));
  EXPECT_THAT(error_, HasSubstr("etcd knows no cluster 'lab'"));
  ClusterStatus none;
  EXPECT_FALSE(read_status(etcd_, "lab", kTimeout, none, error_));
  EXPECT_THAT(error_, HasSubstr("etcd knows no cluster 'lab'"));
  make(2);
  EXPECT_FALSE(set_pin(etcd_, "lab", 2, "node-a", kTimeout, error_));
  EXPECT_THAT(error_, HasSubstr("has no shard 2: it has 2 shards: 0 to 1"));
}

TEST_F(AdministrationTest, TheFormatRisesOnceAndOnlyFromWhatWasSeen) {
  make(1);
  EXPECT_EQ(status().format, kFormat);
  // A later one than this version reads cannot be made here.
  Config older;
  older.format = 0;
  put(config_key("lab"), encode(older));
  EXPECT_FALSE(raise_format(etcd_, "lab", 5, kFormat, kTimeout, error_));
  EXPECT_THAT(error_, HasSubstr("somebody else"));
  EXPECT_EQ(status().format, 0U);
  ASSERT_TRUE(raise_format(etcd_, "lab", 0, kFormat, kTimeout, error_)) << error_;
  EXPECT_EQ(status().format, kFormat);
  EXPECT_TRUE(raise_format(etcd_, "lab", 0, kFormat, kTimeout, error_)) << "it has happened";
}

TEST_F(AdministrationTest, RulesOrTokensThatDifferHaveOtherHashes) {
  store::TempDir dir;
  const auto write = [&](const std::string& name, const std::string& tokens) {
    const std::string path = dir.path() + "/" + name;
    std::ofstream(path) << tokens;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return path;
  };
  config::Config open;
  config::Config one;
  one.auth.token_file = write("one", "[a] 0123456789abcdef\n");
  config::Config same = one;
  same.auth.token_file = write("same", "[a] 0123456789abcdef\n");
  same.auth.unix_users = {1000};  // of this machine
  config::Config two = one;
  two.auth.token_file = write("two", "[a] 0123456789abcdef\n[b] fedcba9876543210\n");
  config::Config other_order = one;
  other_order.auth.token_file =
      write("order", "# b first\n[b] fedcba9876543210\r\n\n[a] 0123456789abcdef");
  config::Config other = one;
  other.auth.token_file = write("other", "[a] 0123456789abcdeF\n");
  config::Config ruled = one;
  ruled.auth.admin = {"token:a"};
  config::Config unreadable = one;
  unreadable.auth.token_file = dir.path() + "/absent";
  EXPECT_EQ(auth_hash(one), auth_hash(same));
  EXPECT_EQ(auth_hash(two), auth_hash(other_order));
  EXPECT_NE(auth_hash(one), auth_hash(two));
  EXPECT_NE(auth_hash(one), auth_hash(other));
  EXPECT_NE(auth_hash(one), auth_hash(ruled));
  EXPECT_NE(auth_hash(one), auth_hash(open));
  EXPECT_NE(auth_hash(open), 0U);
  EXPECT_EQ(auth_hash(unreadable), 0U);
}

// What was read is of a cluster that is no longer there.
TEST_F(AdministrationTest, AClusterThatIsSetUpAnewMeanwhileIsNotMarked) {
  make(1);
  int calls = 0;
  etcd_.set_fault([&](const Transaction& transaction) {
    if (++calls == 2) {
      etcd_.apply({{}, {{Op::Kind::kDelete, config_key("lab")}}, {}});
      put(config_key("lab"), encode(Config{}));
    }
    return etcd_.apply(transaction);
  });
  EXPECT_FALSE(set_draining(etcd_, "lab", "node-b", true, kTimeout, error_));
  EXPECT_THAT(error_, HasSubstr("set up anew meanwhile"));
}

}  // namespace
}  // namespace syncd::cluster
