// Keys, values and numbers of a cluster: bytes that stay, and bytes that are refused.
#include "daemon/core/cluster/format.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/random.h"

namespace syncd::cluster {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    text += "0123456789abcdef"[static_cast<std::uint8_t>(c) >> 4];
    text += "0123456789abcdef"[c & 15];
  }
  return text;
}

const Entry kEntry{{2, 7}, {0xA1, 3}, {0xB2, 4}, 0, "records"};
const Member kMember{{0xA1, 0}, "1.2.3", 1, {"tls:a:1", "b:2"}, 9, {5, 6}, {3}, true};

// Calls test(value, hex of its bytes) for one of each kind.
void for_each_sample(const auto& test) {
  test(Config{{1, 2, 3}, 2, 16, 1},
       "025988ad01010102030000000000000000000000000002000000000000001000000001000000");
  test(Leader{{0xA1, 0}, "node-a"},
       "1b5158be0102a1000000000000000000000000000000060000006e6f64652d61");
  test(kMember,
       "450db8050103a100000000000000000000000000000005000000312e322e330100000002000000070000"
       "00746c733a613a3103000000623a32090000000000000002000000050000000000000006000000000000"
       "00010000000300000001");
  test(Tail{500, {0xA1, 3}}, "a57f64ab0104f401000000000000a1000000000000000300000000000000");
  test(First{7}, "1fdbe6d701050700000000000000");
  test(Meta{3, 4}, "f6ce2cbe0106030000000400000000000000");
  test(kEntry,
       "3db8a228010702000000000000000700000000000000a1000000000000000300000000000000b2000000"
       "00000000040000000000000000000000070000007265636f726473");
  test(Part{{0xA1, 3}, "part"}, "fd04a76c0108a10000000000000003000000000000000400000070617274");
  test(Pointer{{2, 7}, 40, 2, 0xC0FFEE},
       "7d817617010902000000000000000700000000000000280000000000000002000000eeffc000");
}

TEST(ClusterFormat, BytesStay) {
  for_each_sample(
      [](const auto& value, const char* bytes) { EXPECT_EQ(hex(encode(value)), bytes); });
}

TEST(ClusterFormat, ReadsWhatItWrote) {
  for_each_sample([](const auto& value, const char*) {
    std::remove_cvref_t<decltype(value)> again;
    ASSERT_TRUE(decode(encode(value), again));
    EXPECT_EQ(again, value);
  });
}

TEST(ClusterFormat, RefusesEveryOtherByte) {
  for_each_sample([](const auto& value, const char*) {
    std::remove_cvref_t<decltype(value)> again;
    const std::string bytes = encode(value);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      std::string damaged = bytes;
      damaged[i] ^= 0x10;
      EXPECT_FALSE(decode(damaged, again)) << i;
      EXPECT_FALSE(decode(bytes.substr(0, i), again)) << i;
    }
    EXPECT_FALSE(decode(bytes + '\0', again));
  });
  Tail tail;
  EXPECT_FALSE(decode(encode(First{7}), tail)) << "another kind";
}

// With a checksum that is right: what is accepted is written as the same bytes, so there is one
// form.
TEST(ClusterFormat, TakesNoSecondFormOfAThing) {
  test::Random random(1);
  int taken = 0;
  for (int run = 0; run < 20'000; ++run) {
    for_each_sample([&](const auto& value, const char*) {
      std::string bytes = encode(value).substr(4);
      for (int i = 0; i < 2; ++i)
        bytes[random.below(bytes.size())] = static_cast<char>(random.next());
      if (random.one_in(4)) bytes.resize(random.below(bytes.size() + 8));
      std::remove_cvref_t<decltype(value)> again;
      const std::string whole = with_checksum(bytes);
      if (!decode(whole, again)) return;
      ++taken;
      ASSERT_EQ(hex(encode(again)), hex(whole));
    });
  }
  EXPECT_GT(taken, 10'000);
}

TEST(ClusterFormat, KeysSortAsTheirNumbersDo) {
  const ShardKeys keys("lab", 3);
  EXPECT_EQ(keys.leader(), "/syncd/lab/v1/shards/3/leader");
  EXPECT_EQ(keys.entry(500), "/syncd/lab/v1/shards/3/log/00000000000001f4");
  EXPECT_EQ(keys.part(500, 11), "/syncd/lab/v1/shards/3/log/00000000000001f4/0000000b");
  EXPECT_EQ(keys.pointer(42), "/syncd/lab/v1/shards/3/snapshot/0000002a");
  EXPECT_EQ(keys.snapshot_part(42, {2, 7}, 9, 1),
            "/syncd/lab/v1/shards/3/parts/0000002a/00000000000000020000000000000007-"
            "0000000000000009/00000001");
  EXPECT_EQ(config_key("lab"), "/syncd/lab/v1/config");
  EXPECT_EQ(ShardKeys("lab", 3).member("node-a"), ShardKeys("lab", 3).members() + "node-a");
  EXPECT_EQ(draining_key("lab", "node-a"), "/syncd/lab/v1/draining/node-a");
  EXPECT_LT(keys.entry(9), keys.entry(10));
  EXPECT_LT(keys.entry(9), keys.part(9, 0));
  EXPECT_LT(keys.part(9, 99), keys.entry(10));
  EXPECT_LT(keys.snapshot_parts(42, {1, 900}, 9), keys.snapshot_parts(42, {2, 7}, 1));
  EXPECT_EQ(end_of("log/"), "log0");
}

TEST(ClusterFormat, ReadsItsOwnKeysOnly) {
  const ShardKeys keys("lab", 3);
  const auto entry = keys.parse_log(keys.entry(500));
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->index, 500u);
  EXPECT_FALSE(entry->part);
  const auto part = keys.parse_log(keys.part(500, 11));
  ASSERT_TRUE(part && part->part);
  EXPECT_EQ(*part->part, 11u);
  EXPECT_EQ(keys.parse_pointer(keys.pointer(42)), 42u);
  for (const std::string& other :
       {keys.log(), keys.log() + "1", keys.entry(1) + "/", keys.entry(1) + "/1",
        keys.entry(1) + "x", keys.log() + "000000000000000g", ShardKeys("lab", 30).entry(1),
        keys.pointer(1)}) {
    EXPECT_FALSE(keys.parse_log(other)) << other;
  }
  EXPECT_FALSE(keys.parse_pointer(keys.snapshots() + "2a"));
  EXPECT_FALSE(keys.parse_pointer(keys.snapshots() + "-000002a"));
}

// Stored ids and keys depend on these numbers.
TEST(ClusterFormat, HashStays) {
  EXPECT_EQ(hash_of(""), 17665956581633026203u);
  EXPECT_EQ(hash_of("resnet50"), 8281221968382939240u);
  EXPECT_EQ(shard_of("resnet50", 16), 8u);
  EXPECT_EQ(shard_of("job-1", 16), 0u);
  EXPECT_EQ(shard_of("job-2", 16), 2u);
  EXPECT_EQ(shard_of("#35", 16), 3u);
  std::vector<int> jobs(16);
  for (int i = 0; i < 16'000; ++i) ++jobs[shard_of("job-" + std::to_string(i), 16)];
  for (const int n : jobs) EXPECT_NEAR(n, 1000, 150);
}

}  // namespace
}  // namespace syncd::cluster
