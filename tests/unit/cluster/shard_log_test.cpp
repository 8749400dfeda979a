// The end of a shard's log, against a model of etcd: one attempt at a time, each landing when the
// test says so. The interleavings are those that broke earlier versions of the design.
#include "daemon/core/cluster/shard_log.h"

#include <gtest/gtest.h>

#include <string>

#include "daemon/core/cluster/take_over.h"
#include "tests/support/model_etcd.h"
#include "tests/unit/cluster/names.h"

namespace syncd::cluster {
namespace {

using test::ModelEtcd;

constexpr Answer kNoAnswer{};

class ClusterLog : public testing::Test {
 protected:
  ClusterLog() { seed_shard(kKeys); }

  void seed_shard(const ShardKeys& keys) { etcd.apply({{}, seed(keys), {}}); }

  // Deletes the former leader's key, as a lease's end does, and leads.
  ShardLog lead(Nonce& process, const ShardKeys& keys = kKeys) {
    etcd.apply({{}, {{Op::Kind::kDelete, keys.leader()}}, {}});
    const Answer created =
        etcd.apply({{}, {{Op::Kind::kPut, keys.leader(), encode(Leader{process, "m"})}}, {}});
    const TakeOver read = take_over(keys);
    return ShardLog(keys, {1, created.revision}, process, read.tail, read.first);
  }

  TakeOver take_over(const ShardKeys& keys = kKeys) {
    TakeOver read;
    std::string error;
    EXPECT_TRUE(parse_take_over(keys, etcd.apply(take_over_read(keys)), read, error)) << error;
    return read;
  }

  // Sends what there is to send, until there is nothing.
  void settle(ShardLog& log) {
    while (const auto attempt = log.next())
      log.on_answer(attempt->number, etcd.apply(attempt->transaction));
  }

  std::string all_records() {
    std::string records;
    for (const Entry& entry : take_over().log) records += entry.records;
    return records;
  }

  ModelEtcd etcd;
  Nonce a{0xA, 0};
  Nonce b{0xB, 0};
};

TEST_F(ClusterLog, WhatComesMeanwhileGoesIntoTheNext) {
  ShardLog log = lead(a);
  EXPECT_FALSE(log.next());
  EXPECT_EQ(log.add({"one,"}), 1u);
  const auto first = log.next();
  ASSERT_TRUE(first);
  log.add({"two,"});
  log.add({"three,"});
  EXPECT_FALSE(log.next()) << "one at a time";
  EXPECT_EQ(log.committed(), 0u);
  log.on_answer(first->number, etcd.apply(first->transaction));
  EXPECT_EQ(log.committed(), 1u);
  settle(log);
  EXPECT_EQ(log.committed(), 3u);
  const TakeOver read = take_over();
  ASSERT_EQ(read.log.size(), 2u);
  EXPECT_EQ(read.log[1].records, "two,three,");
  EXPECT_EQ(read.tail, log.tail());
}

TEST_F(ClusterLog, AnAnswerThatWasLostIsFoundAgain) {
  ShardLog log = lead(a);
  log.add({"one,"});
  const auto first = log.next();
  etcd.apply(first->transaction);
  log.on_answer(first->number, kNoAnswer);
  EXPECT_EQ(log.committed(), 0u);
  const auto again = log.next();
  ASSERT_TRUE(again);
  log.on_answer(first->number, {Answer::Kind::kThen, 9});
  EXPECT_EQ(log.committed(), 0u) << "only the last attempt's answer decides";
  log.on_answer(again->number, etcd.apply(again->transaction));
  EXPECT_EQ(log.committed(), 1u);
  log.on_answer(again->number, {Answer::Kind::kThen, 9});
  log.add({"two,"});
  settle(log);
  EXPECT_EQ(all_records(), "one,two,");
}

TEST_F(ClusterLog, AnotherLeaderDeposes) {
  ShardLog old = lead(a);
  old.add({"old,"});
  const auto attempt = old.next();
  ShardLog fresh = lead(b);
  old.on_answer(attempt->number, etcd.apply(attempt->transaction));
  EXPECT_TRUE(old.deposed());
  EXPECT_EQ(old.committed(), 0u);
  EXPECT_FALSE(old.next());
  fresh.add({"new,"});
  settle(fresh);
  EXPECT_EQ(all_records(), "new,");
}

// The index is the same, and so is nothing else.
TEST_F(ClusterLog, AnotherLeadersEntryIsNotMistakenForItsOwn) {
  ShardLog old = lead(a);
  old.add({"old,"});
  const auto lost = old.next();
  ShardLog fresh = lead(b);
  fresh.add({"new,"});
  settle(fresh);
  old.on_answer(lost->number, kNoAnswer);
  const auto again = old.next();
  old.on_answer(again->number, etcd.apply(again->transaction));
  EXPECT_EQ(old.committed(), 0u);
  EXPECT_TRUE(old.deposed());
}

TEST_F(ClusterLog, WhatLandedBeforeAnotherLedIsCommitted) {
  ShardLog old = lead(a);
  old.add({"old,"});
  const auto lost = old.next();
  etcd.apply(lost->transaction);
  old.on_answer(lost->number, kNoAnswer);
  ShardLog fresh = lead(b);
  fresh.add({"new,"});
  settle(fresh);
  const auto again = old.next();
  old.on_answer(again->number, etcd.apply(again->transaction));
  EXPECT_EQ(old.committed(), 1u);
  EXPECT_TRUE(old.deposed());
  EXPECT_EQ(all_records(), "old,new,");
}

TEST_F(ClusterLog, WhatEtcdRefusesForGoodIsNotAcknowledged) {
  ShardLog log = lead(a);
  log.add({"one,"});
  log.on_answer(log.next()->number, {Answer::Kind::kRefused, 9});
  EXPECT_TRUE(log.unfit());
  EXPECT_FALSE(log.next());
  EXPECT_EQ(log.committed(), 0u);
}

// Section 9, 1: a log that forgets its end.
TEST_F(ClusterLog, AnEmptyLogRemembersItsEnd) {
  ShardLog log = lead(a);
  for (int i = 0; i < 5; ++i) {
    log.add({"a" + std::to_string(i) + ","});
    settle(log);
  }
  const Tail copy_of_c = log.tail();
  log.remove_before(6);
  settle(log);
  EXPECT_EQ(all_records(), "");
  EXPECT_EQ(log.first(), 6u);

  ShardLog of_b = lead(b);  // whose disk is empty
  EXPECT_EQ(how_to_catch_up(take_over(), {}), CatchUp::kRebuild);
  of_b.add({"b,"});
  settle(of_b);
  const TakeOver read = take_over();
  EXPECT_EQ(read.tail.index, 6u);
  EXPECT_EQ(how_to_catch_up(read, copy_of_c), CatchUp::kFollow);
  ASSERT_EQ(read.log.size(), 1u);
  EXPECT_EQ(read.log[0].records, "b,") << "what C applies";
}

// Section 9, 2: a late transaction.
TEST_F(ClusterLog, AnAttemptThatLandsLateChangesNothing) {
  ShardLog log = lead(a);
  log.add({"one,"});
  const auto hangs = log.next();
  log.on_answer(hangs->number, kNoAnswer);
  settle(log);
  EXPECT_EQ(log.committed(), 1u);
  log.remove_before(2);
  const auto removal = log.next();
  etcd.apply(removal->transaction);
  log.on_answer(removal->number, kNoAnswer);
  settle(log);
  log.add({"two,"});
  settle(log);
  log.remove_before(3);
  settle(log);
  const auto before = etcd.revision();
  EXPECT_EQ(etcd.apply(hangs->transaction).kind, Answer::Kind::kElse);
  EXPECT_EQ(etcd.apply(removal->transaction).kind, Answer::Kind::kElse)
      << "`first` would be set back, behind entries that are gone";
  EXPECT_EQ(etcd.revision(), before);
}

// Section 9, 3: a batch that grew.
TEST_F(ClusterLog, ABatchThatWasSentNeverGrows) {
  ShardLog log = lead(a);
  log.add({"one,"});
  const auto first = log.next();
  log.on_answer(first->number, kNoAnswer);
  log.add({"two,"});
  const auto second = log.next();
  ASSERT_TRUE(second);
  ASSERT_EQ(second->transaction.then.size(), first->transaction.then.size());
  for (std::size_t i = 0; i < first->transaction.then.size(); ++i) {
    EXPECT_EQ(second->transaction.then[i].value, first->transaction.then[i].value);
  }
  log.on_answer(second->number, kNoAnswer);
  etcd.apply(first->transaction);
  const auto third = log.next();
  log.on_answer(third->number, etcd.apply(third->transaction));
  EXPECT_EQ(log.committed(), 1u);
  settle(log);
  EXPECT_EQ(log.committed(), 2u);
  EXPECT_EQ(all_records(), "one,two,");
}

// Section 9, 9: epochs and ids that retention removed are not given again.
TEST_F(ClusterLog, ARemovedJobLeavesItsNumbersBehind) {
  ShardLog log = lead(a);
  log.add({"created,", {}, Meta{2, 0}});
  log.add_snapshot(16, 1, "state");
  settle(log);
  ASSERT_EQ(take_over().pointers.size(), 1u);
  log.add({"removed,", {16}, Meta{2, 7}});
  const auto attempt = log.next();
  etcd.apply(attempt->transaction);  // its answer never comes
  const TakeOver read = take_over();
  EXPECT_EQ(read.meta, (Meta{2, 7}));
  EXPECT_TRUE(read.pointers.empty());
  for (const auto& [key, item] : etcd.items()) {
    EXPECT_FALSE(key.starts_with(kKeys.snapshot_parts(16))) << key;
  }
}

// Section 9, 14: etcd refuses a key that is put twice, for ever.
TEST_F(ClusterLog, AJobHasOnePointerInABatch) {
  Transaction twice{{}, {{Op::Kind::kPut, "k", "1"}, {Op::Kind::kPut, "k", "2"}}, {}};
  ASSERT_EQ(etcd.apply(twice).kind, Answer::Kind::kRefused) << "the model is as strict as etcd";
  ShardLog log = lead(a);
  log.add({"one,"});
  log.add_snapshot(16, 1, "first");
  log.add({"two,"});
  log.add_snapshot(16, 2, "second");
  settle(log);
  EXPECT_FALSE(log.unfit());
  const TakeOver read = take_over();
  ASSERT_EQ(read.pointers.size(), 1u);
  EXPECT_EQ(read.pointers[0].second.sequence, 2u);
  // And none beside its removal.
  log.add({"three,"});
  log.add_snapshot(16, 3, "third");
  log.add({"removed,", {16}});
  settle(log);
  EXPECT_EQ(log.committed(), 4u);
  EXPECT_TRUE(take_over().pointers.empty());
}

// Section 9, 15: terms are of a shard.
TEST_F(ClusterLog, AHighTermOfAnotherShardHidesNothing) {
  const ShardKeys other("lab", 1);
  seed_shard(other);
  ShardLog low = lead(a);
  for (int i = 0; i < 10; ++i) lead(b, other);
  ShardLog high = lead(b, other);
  low.add({"low,"});
  settle(low);
  high.add({"high,"});
  settle(high);
  EXPECT_EQ(low.committed(), 1u);
  EXPECT_EQ(high.committed(), 1u);
  EXPECT_GT(take_over(other).log[0].term, take_over().log[0].term);
}

TEST_F(ClusterLog, ALargeChangeLiesInParts) {
  ShardLog log = lead(a);
  std::string large(3 * kPartBytes + 5, 'x');
  large.front() = '<';
  large.back() = '>';
  log.add({"before,"});
  log.add({large});
  log.add({"behind,"});
  settle(log);
  EXPECT_EQ(log.committed(), 3u);
  const TakeOver read = take_over();
  ASSERT_EQ(read.log.size(), 3u) << "a change is not divided, nor grouped with a larger one";
  EXPECT_EQ(read.log[1].parts, 4u);
  EXPECT_EQ(read.log[1].records, large);
}

// Parts that a deposed leader left behind are not those of the entry that came instead.
TEST_F(ClusterLog, PartsThatWereLeftBehindBelongToNothing) {
  ShardLog old = lead(a);
  old.add({std::string(4 * kPartBytes, 'o')});
  for (int i = 0; i < 3; ++i) {
    const auto part = old.next();
    old.on_answer(part->number, etcd.apply(part->transaction));
  }
  EXPECT_EQ(take_over().log.size(), 0u);
  const auto late = old.next();
  ShardLog fresh = lead(b);
  fresh.add({std::string(2 * kPartBytes + 1, 'n')});
  settle(fresh);
  EXPECT_EQ(etcd.apply(late->transaction).kind, Answer::Kind::kElse);
  EXPECT_EQ(all_records(), std::string(2 * kPartBytes + 1, 'n'));
}

TEST_F(ClusterLog, GroupsUpToAMebibyte) {
  ShardLog log = lead(a);
  log.add({"one,"});
  const auto first = log.next();
  for (int i = 0; i < 5; ++i) log.add({std::string(400'000, 'x')});
  log.on_answer(first->number, etcd.apply(first->transaction));
  settle(log);
  EXPECT_EQ(log.committed(), 6u);
  EXPECT_EQ(take_over().log.size(), 4u) << "1, 2, 2 and 1 changes";
}

// The entry that comes between its parts has none.
TEST_F(ClusterLog, APointerFollowsItsParts) {
  ShardLog log = lead(a);
  log.add({"in the snapshot,"});
  log.add_snapshot(16, 2, std::string(2 * kPartBytes, 's'));
  while (const auto attempt = log.next()) {
    log.on_answer(attempt->number, etcd.apply(attempt->transaction));
    const TakeOver read = take_over();
    if (read.pointers.empty()) continue;
    const Pointer& pointer = read.pointers[0].second;
    ASSERT_EQ(pointer.parts, 2u);
    for (std::uint32_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(etcd.find(kKeys.snapshot_part(16, pointer.term, 2, i)));
    }
  }
  EXPECT_EQ(take_over().pointers.size(), 1u);
  EXPECT_EQ(take_over().log.size(), 2u);
  // The next one's pointer takes the old parts along.
  log.add_snapshot(16, 3, "small");
  settle(log);
  EXPECT_EQ(take_over().pointers[0].second.sequence, 3u) << "without records, too";
  EXPECT_FALSE(etcd.find(kKeys.snapshot_part(16, take_over().pointers[0].second.term, 2, 0)));
}

TEST_F(ClusterLog, APointerWaitsForItsLastRecord) {
  ShardLog log = lead(a);
  log.add({std::string(kGroupBytesMax, 'x')});
  log.add({"in the snapshot,"});
  log.add_snapshot(16, 2, "all of it is put before the first entry");
  while (log.committed() < 1) {
    const auto attempt = log.next();
    log.on_answer(attempt->number, etcd.apply(attempt->transaction));
  }
  const TakeOver read = take_over();
  EXPECT_TRUE(etcd.find(kKeys.snapshot_part(16, read.log[0].term, 2, 0)));
  EXPECT_TRUE(read.pointers.empty());
  settle(log);
  EXPECT_EQ(take_over().pointers.size(), 1u);
}

// Of two snapshots, the first one's part under way does not count for the second.
TEST_F(ClusterLog, PartsOfTwoSnapshotsAreNotMixed) {
  ShardLog log = lead(a);
  log.add_snapshot(16, 1, std::string(2 * kPartBytes, '1'));
  const auto part = log.next();
  log.add_snapshot(16, 2, std::string(2 * kPartBytes, '2'));
  log.on_answer(part->number, etcd.apply(part->transaction));
  settle(log);
  const Pointer pointer = take_over().pointers.at(0).second;
  EXPECT_EQ(pointer.sequence, 2u);
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(etcd.find(kKeys.snapshot_part(16, pointer.term, 2, i))) << i;
  }
}

TEST_F(ClusterLog, ATransactionStaysWithinEtcdsLimits) {
  ShardLog log = lead(a);
  for (JobId job = 1; job <= 100; ++job) log.add_snapshot(job, 1, "s");
  std::size_t most = 0;
  for (int sent = 0; const auto attempt = log.next(); ++sent) {
    most = std::max(most, attempt->transaction.then.size());
    log.on_answer(attempt->number, etcd.apply(attempt->transaction));
    if (sent != 99) continue;  // all parts are there
    for (JobId job = 101; job <= 140; ++job) log.add({"removed,", {job}, Meta{1, job}});
  }
  EXPECT_FALSE(log.unfit());
  EXPECT_LE(most, kOpsMax);
  EXPECT_GT(most, kOpsMax - 5) << "the limit was never near";
  EXPECT_EQ(take_over().pointers.size(), 100u);
}

}  // namespace
}  // namespace syncd::cluster
