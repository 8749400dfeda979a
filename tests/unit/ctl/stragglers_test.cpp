// Cluster-seconds lost, against numbers worked out by hand.
#include "daemon/tools/ctl/stragglers.h"

#include <gtest/gtest.h>

namespace syncd::ctl {
namespace {

Record worker_record(RecordKind kind, Micros time_us, std::int64_t rank) {
  Record r;
  r.kind = kind;
  r.time_us = time_us;
  r.rank = rank;
  return r;
}

Record joined(std::int64_t rank, const std::string& host) {
  Record r = worker_record(RecordKind::kWorkerJoined, 0, rank);
  r.name = "w" + std::to_string(rank);
  r.host = host;
  return r;
}

// A push at `time_us` of an iteration that was granted at `granted_us`, after a wait.
Record push(std::int64_t rank, Micros time_us, Micros granted_us, Micros waited_us) {
  Record r = worker_record(RecordKind::kPush, time_us, rank);
  r.span_us = time_us - granted_us;
  r.waited_us = waited_us;
  return r;
}

Stragglers counted(const std::vector<Record>& records, Micros since_us = 0) {
  Stragglers stragglers(since_us);
  for (const Record& r : records) stragglers.add(r);
  return stragglers;
}

// Three workers under bsp. Barrier 1: pushes at 100, 130, 200; barrier 2: 300, 350, 310.
// Everybody begins again at once.
std::vector<Record> two_barriers() {
  return {joined(0, "a"),         joined(1, "b"),       joined(2, "b"),
          push(0, 100, 0, 0),     push(1, 130, 0, 0),   push(2, 200, 0, 0),
          push(0, 300, 200, 100), push(2, 310, 200, 0), push(1, 350, 200, 70),
          push(0, 400, 350, 50),  push(1, 420, 350, 0), push(2, 430, 350, 40)};
}

TEST(Stragglers, TheLastOfABarrierIsChargedWithAllThatTheOthersWaited) {
  const Stragglers s = counted(two_barriers());
  const auto workers = s.by_worker();
  ASSERT_EQ(workers.size(), 2U);
  EXPECT_EQ(workers[0].rank, 2);
  EXPECT_EQ(workers[0].lost_us, 100 + 70);
  EXPECT_EQ(workers[0].alone_us, 70 + 70);  // after the push of 1, at 130
  EXPECT_EQ(workers[0].longest_us, 100);
  EXPECT_EQ(workers[0].waits, 2U);
  EXPECT_EQ(workers[0].moments, 1U);
  EXPECT_EQ(workers[1].rank, 1);
  EXPECT_EQ(workers[1].name, "w1");
  EXPECT_EQ(workers[1].lost_us, 50 + 40);
  EXPECT_EQ(workers[1].alone_us, 40 + 40);  // after the push of 2, at 310
  EXPECT_EQ(s.lost_us(), 260);
  EXPECT_EQ(s.elsewhere_us(), 0);
  EXPECT_EQ(s.computed_us(), 100 + 130 + 200 + 100 + 110 + 150 + 50 + 70 + 80);
}

// An all-reduce between begin and push: all end together, when the last has come to it.
Record exchanged(std::int64_t rank, Iteration k, Micros computed_us) {
  Record r = push(rank, (k + 1) * 1000, k * 1000, 0);
  r.iteration = k;
  r.computed_us = computed_us;
  return r;
}

TEST(Stragglers, TheLastOfAnExchangeIsChargedWithAllThatTheOthersWaited) {
  std::vector<Record> records = {joined(0, "a"), joined(1, "b"), joined(2, "b")};
  for (Iteration k = 0; k < 2; ++k) {
    records.push_back(exchanged(0, k, 300));
    records.push_back(exchanged(1, k, 700));
    records.push_back(exchanged(2, k, 900));
  }
  for (const bool is_whole : {true, false}) {
    if (!is_whole) records.pop_back();
    const Stragglers s = counted(records);
    const auto workers = s.by_worker();
    // Of the last iteration the push of 2 is not there yet: by what is known, 1 was the last.
    ASSERT_EQ(workers.size(), is_whole ? 1U : 2U);
    EXPECT_EQ(workers[0].rank, 2);
    EXPECT_EQ(workers[0].lost_us, (is_whole ? 2 : 1) * (600 + 200));
    EXPECT_EQ(workers[0].alone_us, (is_whole ? 2 : 1) * (200 + 200));
    EXPECT_EQ(workers[0].longest_us, 600);
    EXPECT_EQ(workers[0].waits, is_whole ? 4U : 2U);
    EXPECT_EQ(workers[0].moments, is_whole ? 2U : 1U);
    if (!is_whole) {
      EXPECT_EQ(workers[1].lost_us, 400);
    }
    EXPECT_EQ(s.lost_us() + s.computed_us() + s.exchange_us(), is_whole ? 6000 : 5000);
    EXPECT_EQ(s.by_host()[0].host, "b");
  }
}

TEST(Stragglers, WithoutMarksAnExchangeNamesNobody) {
  std::vector<Record> records = {joined(0, "a"), joined(1, "b")};
  for (Iteration k = 0; k < 2; ++k) {
    for (const std::int64_t rank : {0, 1}) records.push_back(exchanged(rank, k, -1));
  }
  EXPECT_TRUE(counted(records).by_worker().empty());
}

TEST(Stragglers, AHostHasTheSumOfItsWorkers) {
  const auto hosts = counted(two_barriers()).by_host();
  ASSERT_EQ(hosts.size(), 1U);
  EXPECT_EQ(hosts[0].host, "b");
  EXPECT_EQ(hosts[0].rank, kNoRank);
  EXPECT_EQ(hosts[0].lost_us, 260);
  EXPECT_EQ(hosts[0].waits, 4U);
  EXPECT_EQ(hosts[0].moments, 2U);
  EXPECT_EQ(hosts[0].longest_us, 100);
}

TEST(Stragglers, SinceLeavesOutWaitsThatEndedBefore) {
  const Stragglers s = counted(two_barriers(), 201);
  const auto workers = s.by_worker();
  ASSERT_EQ(workers.size(), 1U);
  EXPECT_EQ(workers[0].rank, 1);
  EXPECT_EQ(s.lost_us(), 90);
  EXPECT_EQ(s.computed_us(), 99 + 109 + 149 + 50 + 70 + 80);
  EXPECT_EQ(counted(two_barriers(), 200).lost_us(), 260) << "a wait that ended then counts";
}

TEST(Stragglers, AWorkerThatWasLostIsChargedWithTheWaitUntilThen) {
  const Stragglers s =
      counted({joined(0, "a"), joined(1, "b"), push(0, 100, 0, 0),
               worker_record(RecordKind::kWorkerLost, 900, 1), push(0, 1000, 900, 800)});
  ASSERT_EQ(s.by_worker().size(), 1U);
  EXPECT_EQ(s.by_worker()[0].rank, 1);
  EXPECT_EQ(s.by_worker()[0].lost_us, 800);
}

TEST(Stragglers, WaitsThatNoWorkerEndedAreChargedToNobody) {
  // The start of the job at 50, and a planner's time at 170.
  const Stragglers s = counted({joined(0, "a"), joined(1, "a"), push(0, 100, 50, 50),
                                push(1, 120, 50, 0), push(0, 200, 170, 60)});
  EXPECT_TRUE(s.by_worker().empty());
  EXPECT_EQ(s.lost_us(), 0);
  EXPECT_EQ(s.elsewhere_us(), 110);
}

TEST(Stragglers, ALatePushLetsNobodyGo) {
  Record late = push(1, 150, 0, 0);
  late.late = true;
  const Stragglers s = counted({joined(0, "a"), joined(1, "a"), late, push(0, 200, 150, 10)});
  EXPECT_TRUE(s.by_worker().empty());
  EXPECT_EQ(s.elsewhere_us(), 10);
}

TEST(Stragglers, OfSeveralPushesAtOneTimeTheLastIsTaken) {
  const Stragglers s = counted({joined(0, "a"), joined(1, "a"), joined(2, "a"), push(0, 10, 0, 0),
                                push(1, 50, 0, 0), push(2, 50, 0, 0), push(0, 80, 50, 40)});
  ASSERT_EQ(s.by_worker().size(), 1U);
  EXPECT_EQ(s.by_worker()[0].rank, 2);
  EXPECT_EQ(s.by_worker()[0].alone_us, 0);
}

TEST(Stragglers, APushWhoseGrantIsNotKnownCountsNowhere) {
  Record unknown = push(0, 200, 100, 100);
  unknown.span_us = -1;
  const Stragglers s = counted({joined(0, "a"), unknown});
  EXPECT_EQ(s.lost_us() + s.elsewhere_us() + s.computed_us(), 0);
}

// Long enough for what is old to be forgotten; worker 2 is always last, by 10.
TEST(Stragglers, ForgetsNothingThatIsStillNeeded) {
  Stragglers s;
  for (int rank = 0; rank < 3; ++rank) s.add(joined(rank, "a"));
  constexpr int kBarriers = 20'000;
  for (int i = 0; i < kBarriers; ++i) {
    const Micros granted = 100 * i;
    s.add(push(0, granted + 80, granted, i == 0 ? 0 : 20));
    s.add(push(1, granted + 90, granted, i == 0 ? 0 : 10));
    s.add(push(2, granted + 100, granted, 0));
  }
  ASSERT_EQ(s.by_worker().size(), 1U);
  EXPECT_EQ(s.by_worker()[0].rank, 2);
  EXPECT_EQ(s.by_worker()[0].lost_us, 30 * (kBarriers - 1));
  EXPECT_EQ(s.by_worker()[0].alone_us, 20 * (kBarriers - 1));
  EXPECT_EQ(s.elsewhere_us(), 0);
}

TEST(SlowEpisodes, AreNamedWithTheirIterationsAndFactor) {
  SlowEpisodes episodes;
  for (Iteration k = 0; k < 80; ++k) {
    for (std::int64_t rank = 0; rank < 6; ++rank) {
      const bool slow = (rank == 2 && k >= 30 && k < 50) || (rank == 4 && k >= 70);
      episodes.add(rank, k, slow ? 300'000 : 100'000);
    }
  }
  ASSERT_EQ(episodes.found().size(), 2U);
  const SlowEpisode& first = episodes.found()[0];
  EXPECT_EQ(first.rank, 2);
  EXPECT_EQ(first.from, 30);
  EXPECT_EQ(first.to, 49);
  EXPECT_NEAR(first.factor, 3, 0.01);
  EXPECT_EQ(episodes.found()[1].rank, 4);
  EXPECT_EQ(episodes.found()[1].from, 70);
  EXPECT_FALSE(episodes.found()[1].to);
}

}  // namespace
}  // namespace syncd::ctl
