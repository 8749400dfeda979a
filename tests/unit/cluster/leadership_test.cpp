// Who takes a shard's key, when, and what becomes of keys under which no member leads.
#include "daemon/core/cluster/leadership.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/support/model_etcd.h"
#include "tests/unit/cluster/names.h"

namespace syncd::cluster {
namespace {

using State = Leadership::State;

const std::vector<std::string> kMembers = {"a", "b", "c"};

TEST(ClusterPreference, EachMemberHasItsShare) {
  std::vector<std::string> members;
  for (const char* const name : {"a", "b", "c", "d", "e"}) {
    members.emplace_back(name);
    for (const Shard shards : {1u, 2u, 3u, 4u, 7u, 16u, 64u}) {
      std::map<std::string, std::size_t> has;
      for (Shard shard = 0; shard < shards; ++shard) {
        const std::string preferred = preferred_member(shard, shards, members);
        ++has[preferred];
        EXPECT_EQ(preferred_member(shard, shards, {members.rbegin(), members.rend()}), preferred);
      }
      const std::size_t share = shards / members.size();
      EXPECT_EQ(has.size(), std::min<std::size_t>(shards, members.size()));
      for (const auto& [member, count] : has) {
        EXPECT_GE(count, share) << member;
        EXPECT_LE(count, share + 1) << member;
      }
    }
  }
  EXPECT_EQ(preferred_member(0, 1, {}), "");
}

// Were they dealt out in turn, two thirds would move.
TEST(ClusterPreference, FewMoveThatNeedNot) {
  int moved = 0;
  for (const std::string& gone : kMembers) {
    std::vector<std::string> others = kMembers;
    std::erase(others, gone);
    for (Shard shard = 0; shard < 64; ++shard) {
      const std::string before = preferred_member(shard, 64, kMembers);
      moved += before != gone && before != preferred_member(shard, 64, others);
    }
  }
  EXPECT_LE(moved, 3 * 64 / 6);
}

TEST(ClusterPreference, AnOperatorsWishHoldsWhileThatMemberIsThere) {
  for (const std::string& wanted : kMembers) {
    EXPECT_EQ(preferred_member(0, 1, kMembers, wanted), wanted);
  }
  EXPECT_EQ(preferred_member(0, 1, kMembers, "d"), preferred_member(0, 1, kMembers));
}

class ClusterLeadership : public testing::Test {
 protected:
  ClusterLeadership() {
    etcd.apply({{}, seed(kKeys), {}});
    etcd.grant(1, 1000 * kSecond, 0);
  }

  Leadership member(const std::string& name, std::uint64_t process) {
    return Leadership(kKeys, 0, name, {process, 0}, 1);
  }
  std::string first() { return preferred_member(0, 1, kMembers); }
  std::string second() { return first() == "a" ? "b" : "a"; }

  // What a watch tells it now.
  void show(Leadership& of, Micros now, const std::vector<std::string>& members = kMembers) {
    Leadership::View view{etcd.revision(), {}, members};
    if (const auto* item = etcd.find(kKeys.leader())) {
      view.leader = KeyValue{kKeys.leader(), item->value, item->created};
    }
    if (const auto* item = etcd.find(kKeys.successor())) view.successor = item->value;
    of.on_view(view, now);
  }
  // Sends one thing and gives its answer.
  bool step(Leadership& of, Micros now) {
    const auto attempt = of.next(now);
    if (!attempt) return false;
    of.on_answer(attempt->number, etcd.apply(attempt->transaction, 1), now);
    return true;
  }
  void lead(Leadership& of, Micros now) {
    ASSERT_TRUE(step(of, now));  // creates
    ASSERT_TRUE(step(of, now));  // reads
    ASSERT_EQ(of.state(), State::kRecovers) << of.why_unfit();
    of.recovered(of.term(), true, now);
    ASSERT_EQ(of.state(), State::kLeads);
  }
  bool has_key() { return etcd.find(kKeys.leader()) != nullptr; }

  test::ModelEtcd etcd;
};

TEST_F(ClusterLeadership, ThePreferredOneTakesAFreeKeyAtOnce) {
  Leadership preferred = member(first(), 1);
  Leadership other = member(second(), 2);
  EXPECT_FALSE(preferred.next(0)) << "it has not seen the cluster";
  show(preferred, 0);
  show(other, 0);
  EXPECT_EQ(preferred.wakes_at(), 0);
  EXPECT_GE(other.wakes_at(), kSecond);
  EXPECT_LT(other.wakes_at(), 2 * kSecond);
  EXPECT_FALSE(other.next(kSecond - 1));
  lead(preferred, 0);
  show(other, kSecond / 2);
  EXPECT_EQ(other.wakes_at(), kNever) << "it is taken";
  EXPECT_EQ(preferred.term().revision, etcd.find(kKeys.leader())->created);
}

TEST_F(ClusterLeadership, OthersTakeWhatStaysFree) {
  Leadership other = member(second(), 2);
  show(other, 0);
  lead(other, other.wakes_at());
}

TEST_F(ClusterLeadership, WhoDrainsOrIsUnfitTakesNone) {
  Leadership preferred = member(first(), 1);
  std::vector<std::string> others = kMembers;
  std::erase(others, first());
  show(preferred, 0, others);
  EXPECT_EQ(preferred.wakes_at(), kNever);
  Leadership next = member(preferred_member(0, 1, others), 2);
  show(next, 0, others);
  EXPECT_EQ(next.wakes_at(), 0) << "now it is preferred";
}

TEST_F(ClusterLeadership, WhomTheLastLeaderGaveItToTakesItAtOnce) {
  Leadership preferred = member(first(), 1);
  Leadership heir = member(second(), 2);
  const auto see = [&](Leadership& of, std::vector<std::string> members) {
    Leadership::View view{etcd.revision(), {}, std::move(members)};
    view.successor = second();
    of.on_view(std::move(view), 0);
  };
  see(preferred, kMembers);
  see(heir, kMembers);
  EXPECT_EQ(heir.wakes_at(), 0);
  EXPECT_GE(preferred.wakes_at(), kSecond);
  see(preferred, {first()});
  EXPECT_EQ(preferred.wakes_at(), 0) << "the other one is not there any more";
}

TEST_F(ClusterLeadership, WhoIsNextKnowsItBeforeTheKeyIsFree) {
  Leadership leader = member(first(), 1);
  Leadership heir = member(second(), 2);
  show(leader, 0);
  lead(leader, 0);
  show(heir, 0);
  EXPECT_FALSE(heir.is_next());
  etcd.apply(leader.announce(second()));
  EXPECT_TRUE(has_key()) << "it serves on";
  show(heir, 0);
  EXPECT_TRUE(heir.is_next());
  EXPECT_EQ(heir.wakes_at(), kNever);
}

TEST_F(ClusterLeadership, AShardIsGivenOnce) {
  Leadership leader = member(first(), 1);
  show(leader, 0);
  lead(leader, 0);
  etcd.apply(leader.hand_over(second()));
  EXPECT_FALSE(has_key());
  ASSERT_NE(etcd.find(kKeys.successor()), nullptr);
  EXPECT_EQ(etcd.find(kKeys.successor())->value, second());
  Leadership heir = member(second(), 2);
  show(heir, 0);
  lead(heir, heir.wakes_at());
  EXPECT_EQ(etcd.find(kKeys.successor()), nullptr) << "it says nothing of the next time";
  etcd.apply(leader.hand_over("c"));
  EXPECT_TRUE(has_key()) << "who leads no longer gives nothing away";
}

class ClusterHandOver : public ClusterLeadership {
 protected:
  explicit ClusterHandOver(Shard shards = 16) : leader(kKeys, 0, second(), {1, 0}, 1, shards) {
    show(leader, 0);
    lead(leader, leader.wakes_at());
    now = 10 * kSecond;
  }
  // Of the shards that the test's members are preferred for.
  std::string first() { return preferred_member(0, 16, kMembers); }
  std::string second() { return first() == "a" ? "b" : "a"; }
  // Shows it the cluster, and says to whom it hands over.
  std::string look(std::vector<std::string> members, std::vector<std::string> ready,
                   const std::string& pin = {}, bool fails = false) {
    const auto* item = etcd.find(kKeys.leader());
    Leadership::View view{etcd.revision(), KeyValue{kKeys.leader(), item->value, item->created},
                          std::move(members), std::move(ready), pin};
    leader.on_view(std::move(view), now);
    return leader.hands_over_to(fails, now);
  }
  static constexpr Micros kWaitMax = 2 * Leadership::kSettledAfter;

  Leadership leader;
  Micros now = 0;
};

class ClusterHandOverOfOneShard : public ClusterHandOver {
 protected:
  ClusterHandOverOfOneShard() : ClusterHandOver(1) {}
};

TEST_F(ClusterHandOver, GoesToThePreferredOneOnceThatHasBeenThereForAWhile) {
  EXPECT_EQ(look(kMembers, kMembers), "");
  now += Leadership::kSettledAfter - 1;
  EXPECT_EQ(look(kMembers, kMembers), "") << "too early";
  now += kWaitMax;
  EXPECT_EQ(look(kMembers, kMembers), first());
}

TEST_F(ClusterHandOverOfOneShard, ItStaysWhereItIs) {
  EXPECT_EQ(look(kMembers, kMembers), "");
  now += kWaitMax;
  EXPECT_EQ(look(kMembers, kMembers), "");
}

TEST_F(ClusterHandOver, TheTimeBeginsAnewWhenTheOtherGoes) {
  std::vector<std::string> others = kMembers;
  std::erase(others, first());
  EXPECT_EQ(look(kMembers, kMembers), "");
  now += Leadership::kSettledAfter;
  EXPECT_EQ(look({second()}, {second()}), "");
  now += Leadership::kSettledAfter;
  EXPECT_EQ(look(kMembers, kMembers), "");
  now += Leadership::kSettledAfter - 1;
  EXPECT_EQ(look(kMembers, kMembers), "");
  now += kWaitMax;
  EXPECT_EQ(look(kMembers, {second()}), "") << "the others' copies are behind";
}

TEST_F(ClusterHandOver, AnOperatorsNewWishIsFollowedAtOnce) {
  for (const std::string& wanted : kMembers) {
    EXPECT_EQ(look(kMembers, kMembers, wanted), wanted == second() ? "" : wanted);
  }
  EXPECT_EQ(look(kMembers, {second()}, first()), "") << "its copy is behind";
  now += kWaitMax;
  EXPECT_EQ(look(kMembers, kMembers, second()), "") << "though it is not the preferred one";
}

// A member that fails again and again must not get it back each time at once.
TEST_F(ClusterHandOverOfOneShard, AnEarlierWishIsFollowedAfterAWhile) {
  leader.depose();
  const auto wish = [&] {
    Leadership::View view{etcd.revision(), KeyValue{kKeys.leader(), "another", 1}, kMembers};
    view.pin = "c";
    return view;
  };
  leader.on_view(wish(), now);
  etcd.apply({{}, {{Op::Kind::kDelete, kKeys.leader()}}, {}});
  Leadership::View free = wish();
  free.revision = etcd.revision();
  free.leader.reset();
  free.members = {"a", "b"};
  leader.on_view(std::move(free), now);
  lead(leader, leader.wakes_at());
  EXPECT_EQ(look(kMembers, kMembers, "c"), "");
  now += kWaitMax;
  EXPECT_EQ(look(kMembers, kMembers, "c"), "c");
}

TEST_F(ClusterHandOver, WhoDrainsHandsOverToWhoCanLead) {
  std::vector<std::string> others = kMembers;
  std::erase(others, second());
  EXPECT_EQ(look(others, {}), "") << "nobody can";
  EXPECT_EQ(look(others, {others.back()}), others.back());
  EXPECT_EQ(look(others, others), preferred_member(0, 16, others));
  leader.depose();
  EXPECT_EQ(look(others, others), "") << "it leads no longer";
}

TEST_F(ClusterHandOver, WhoFailsHandsOverToWhoDoesNot) {
  EXPECT_EQ(look(kMembers, {second()}, {}, true), "") << "nobody else can";
  EXPECT_EQ(look(kMembers, kMembers, second(), true), first()) << "whatever an operator wants";
}

TEST_F(ClusterLeadership, TermsRise) {
  Leadership a = member(first(), 1);
  Leadership b = member(second(), 2);
  show(a, 0);
  lead(a, 0);
  const Term before = a.term();
  a.give_up();
  ASSERT_TRUE(step(a, kSecond));
  EXPECT_FALSE(has_key());
  show(b, kSecond);
  lead(b, b.wakes_at());
  EXPECT_GT(b.term(), before);
}

TEST_F(ClusterLeadership, AnotherKeyDeposes) {
  Leadership a = member(first(), 1);
  show(a, 0);
  lead(a, 0);
  Leadership::View old{a.term().revision - 1, {}, kMembers};
  a.on_view(old, kSecond);
  EXPECT_EQ(a.state(), State::kLeads) << "a watch that lags says nothing";
  etcd.revoke(1);
  show(a, kSecond);
  EXPECT_EQ(a.state(), State::kFollows);
}

// Of an etcd that was restored from a backup all revisions are lower than what it has seen.
TEST_F(ClusterLeadership, AFollowerBelievesAnEtcdThatWasSetBack) {
  Leadership a = member(first(), 1);
  Leadership::View later{etcd.revision() + 1'000, KeyValue{kKeys.leader(), "b's", 5}, kMembers};
  a.on_view(later, 0);
  EXPECT_EQ(a.wakes_at(), kNever);
  show(a, kSecond);
  EXPECT_EQ(a.wakes_at(), kSecond) << "nobody leads there";
}

// Its create landed, and its answer did not come: the key is not led under.
TEST_F(ClusterLeadership, AKeyWhoseCreateWasNotAnsweredIsDeleted) {
  Leadership a = member(first(), 1);
  show(a, 0);
  const auto create = a.next(0);
  a.on_answer(create->number, {}, kSecond);
  EXPECT_EQ(a.state(), State::kFollows);
  EXPECT_EQ(a.wakes_at(), kSecond + Leadership::kRetryAfter);
  etcd.apply(create->transaction, 1);  // it hung in a follower that was stopped
  show(a, 2 * kSecond);
  EXPECT_EQ(a.state(), State::kFollows);
  a.on_answer(create->number, {Answer::Kind::kThen, etcd.revision()}, 2 * kSecond);
  EXPECT_EQ(a.state(), State::kFollows) << "too late";
  ASSERT_TRUE(step(a, 2 * kSecond));
  EXPECT_FALSE(has_key());
  lead(a, 2 * kSecond);
}

TEST_F(ClusterLeadership, AnothersKeyIsLeftAlone) {
  Leadership a = member(first(), 1);
  Leadership again = member(first(), 3);  // after a restart: the same name, another nonce
  show(a, 0);
  lead(a, 0);
  show(again, kSecond);
  EXPECT_EQ(again.wakes_at(), kNever);
  // A delete that hangs finds the next leader's key.
  a.give_up();
  const auto removal = a.next(kSecond);
  etcd.revoke(1);
  etcd.grant(1, 1000 * kSecond, 0);
  show(again, kSecond);
  lead(again, kSecond);
  EXPECT_EQ(etcd.apply(removal->transaction, 1).kind, Answer::Kind::kElse);
  EXPECT_TRUE(has_key());
}

TEST_F(ClusterLeadership, ReadsAtOrAfterItsKey) {
  Leadership a = member(first(), 1);
  show(a, 0);
  const Answer stale = etcd.apply(take_over_read(kKeys));
  ASSERT_TRUE(step(a, 0));
  const auto read = a.next(0);
  a.on_answer(read->number, stale, 0);
  EXPECT_EQ(a.state(), State::kReads);
  EXPECT_FALSE(a.next(0));
  ASSERT_TRUE(step(a, Leadership::kRetryAfter));
  EXPECT_EQ(a.state(), State::kRecovers);
}

// Another member may read the log faster.
TEST_F(ClusterLeadership, WhoCannotReadTheLogFreesTheKey) {
  Leadership a = member(first(), 1);
  show(a, 0);
  ASSERT_TRUE(step(a, 0));
  Micros now = 0;
  while (a.state() == State::kReads) {
    const auto read = a.next(now);
    ASSERT_TRUE(read) << now;
    now += 50 * kSecond;
    a.on_answer(read->number, {}, now);
    if (a.state() == State::kReads) now = a.wakes_at();
  }
  EXPECT_GE(now, Leadership::kReadsFor);
  EXPECT_LE(now, Leadership::kReadsFor + 50 * kSecond);
  EXPECT_EQ(a.state(), State::kGivesUp);
  EXPECT_TRUE(a.is_unfit(now));
  ASSERT_TRUE(step(a, std::max(now, a.wakes_at())));
  EXPECT_FALSE(has_key());
}

TEST_F(ClusterLeadership, WhoFailedInAnEarlierProcessWaits) {
  Leadership a = member(first(), 1);
  a.wait_for(4 * kSecond, 0);
  show(a, 0);
  EXPECT_FALSE(step(a, 4 * kSecond - 1));
  EXPECT_TRUE(step(a, 4 * kSecond));
  EXPECT_TRUE(has_key());
}

// Section 9, 11: a take-over that fails while its lease lives.
TEST_F(ClusterLeadership, AFailedTakeOverFreesTheKey) {
  Leadership a = member(first(), 1);
  Leadership b = member(second(), 2);
  show(a, 0);
  Micros now = 0;
  Micros last = 0;
  for (int failures = 0; failures < 10; ++failures) {
    ASSERT_TRUE(step(a, now));
    ASSERT_TRUE(step(a, now));
    a.recovered({1, a.term().revision - 1}, false, now);
    ASSERT_EQ(a.state(), State::kRecovers) << "of an earlier term";
    a.recovered(a.term(), false, now);
    EXPECT_EQ(a.state(), State::kGivesUp);
    EXPECT_TRUE(a.is_unfit(now));
    const auto lost = a.next(now);  // the delete is made again until its outcome is known
    a.on_answer(lost->number, {}, now);
    EXPECT_TRUE(has_key());
    now += Leadership::kRetryAfter;
    ASSERT_TRUE(step(a, now));
    EXPECT_FALSE(has_key());
    const Micros wait = a.wakes_at() - now;
    EXPECT_GE(wait, last);
    last = wait;
    EXPECT_FALSE(a.next(a.wakes_at() - 1));
    if (failures == 0) {
      EXPECT_LE(wait, kSecond);
    }
    now = a.wakes_at();
  }
  EXPECT_LE(last, Leadership::kBackOffMax);
  EXPECT_GT(last, Leadership::kBackOffMax - kSecond);
  // Another one that does not fail needs not wait for it.
  show(b, now);
  lead(b, b.wakes_at());
}

TEST_F(ClusterLeadership, ALogThatCannotBeReadMakesUnfit) {
  Leadership a = member(first(), 1);
  show(a, 0);
  etcd.apply({{}, {{Op::Kind::kDelete, kKeys.tail()}}, {}});
  ASSERT_TRUE(step(a, 0));
  ASSERT_TRUE(step(a, 0));
  EXPECT_EQ(a.state(), State::kGivesUp);
  EXPECT_EQ(a.why_unfit(), kKeys.tail() + " is missing");
}

TEST_F(ClusterLeadership, ALeaseThatIsOverEndsEverything) {
  Leadership a = member(first(), 1);
  show(a, 0);
  ASSERT_TRUE(step(a, 0));
  const auto read = a.next(0);
  a.depose();
  a.on_answer(read->number, etcd.apply(read->transaction), 0);
  EXPECT_EQ(a.state(), State::kFollows);
}

TEST_F(ClusterLeadership, TakesNoKeyOfAClusterThatWasBegunAnew) {
  const std::string config = config_key("lab");
  const Revision seen = etcd.apply({{}, {{Op::Kind::kPut, config, "1"}}, {}}).revision;
  Leadership of = member(first(), 1);
  show(of, 0);
  of.require({config, seen});
  etcd.apply({{}, {{Op::Kind::kDelete, config}}, {}});
  etcd.apply({{}, {{Op::Kind::kPut, config, "2"}}, {}});
  ASSERT_TRUE(step(of, 0));
  EXPECT_EQ(of.state(), State::kFollows);
  EXPECT_EQ(etcd.find(kKeys.leader()), nullptr);
}

TEST_F(ClusterLeadership, ReadsWhatItsCopyLacks) {
  Leadership of = member(first(), 1);
  show(of, 0);
  of.set_copied(41);
  ASSERT_TRUE(step(of, 0));  // creates
  const auto attempt = of.next(0);
  ASSERT_TRUE(attempt);
  EXPECT_EQ(attempt->transaction.then.back().key, kKeys.entry(42));
  // And that is what the answer is read as: without the entries before.
  of.set_copied(0);
  const Nonce n41{1, 41}, n42{1, 42};
  etcd.apply({{},
              {{Op::Kind::kPut, kKeys.tail(), encode(Tail{42, n42})},
               {Op::Kind::kPut, kKeys.entry(42), encode(Entry{{1, 1}, n42, n41, 0, "last"})}},
              {}});
  of.on_answer(attempt->number, etcd.apply(attempt->transaction, 1), 0);
  ASSERT_EQ(of.state(), State::kRecovers) << of.why_unfit();
  EXPECT_EQ(of.read().there.index, 1u);
  EXPECT_EQ(of.read().first.index, 42u);
  EXPECT_EQ(of.read().log.size(), 1u);
}

}  // namespace
}  // namespace syncd::cluster
