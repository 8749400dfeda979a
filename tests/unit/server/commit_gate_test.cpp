#include "daemon/edge/server/commit_gate.h"

#include <gtest/gtest.h>

#include <exception>

#include "proto/base/check.h"
#include "tests/unit/server/fake_store.h"

namespace syncd::server {
namespace {

class CommitGateTest : public ::testing::Test {
 protected:
  CommitGateTest()
      : gate_(store_, [this](const Caller& to, wire::Body&& answer) {
          sent_.push_back({to, false, std::move(answer)});
        }) {
    store_.callback = [this](const store::CommitReport& report) { gate_.report(report); };
  }
  void take_record(RecordKind kind = RecordKind::kPush) {
    Record record;
    record.kind = kind;
    record.sequence = ++sequence_;
    effects_.records.push_back(record);
    gate_.take(effects_);
  }
  void pass(RequestId id, bool after_records) { gate_.pass({{1, id}, after_records, wire::Ok{}}); }
  void pass_push(RequestId id) { gate_.pass({{1, id}, true, wire::Pushed{}}); }
  std::vector<RequestId> sent() const {
    std::vector<RequestId> ids;
    for (const Reply& reply : sent_) ids.push_back(reply.to.request);
    return ids;
  }

  FakeStore store_;
  std::vector<Reply> sent_;
  CommitGate gate_;
  Effects effects_;
  Sequence sequence_ = 0;
};
using Ids = std::vector<RequestId>;

TEST_F(CommitGateTest, WithoutRecordsNothingIsHeld) {
  pass(1, true);
  pass(2, false);
  EXPECT_EQ(sent(), (Ids{1, 2}));
  gate_.submit(effects_);
  EXPECT_TRUE(store_.submitted.empty());
  EXPECT_TRUE(gate_.idle());
}

TEST_F(CommitGateTest, AnAnswerWaitsForItsRecordsAndOthersOvertakeIt) {
  take_record();
  pass(1, true);
  pass(2, false);
  EXPECT_EQ(sent(), (Ids{2}));
  gate_.submit(effects_);
  gate_.settle();
  EXPECT_EQ(sent(), (Ids{2}));
  EXPECT_FALSE(gate_.idle());
  store_.commit_all();
  gate_.settle();
  EXPECT_EQ(sent(), (Ids{2, 1}));
  EXPECT_TRUE(gate_.idle());
}

// A push that is sent twice has its record in an earlier turn.
TEST_F(CommitGateTest, AnAnswerWithoutARecordWaitsForEarlierOnes) {
  take_record();
  gate_.submit(effects_);
  pass(7, true);
  EXPECT_TRUE(sent_.empty());
  store_.commit_all();
  gate_.settle();
  EXPECT_EQ(sent(), (Ids{7}));
}

TEST_F(CommitGateTest, OneTurnIsOneBatchAndACommitReleasesOnlyWhatItCovers) {
  take_record();
  take_record();
  pass(1, true);
  gate_.submit(effects_);
  take_record();
  pass(2, true);
  gate_.submit(effects_);
  ASSERT_EQ(store_.submitted.size(), 2U);
  EXPECT_EQ(store_.submitted[0].second.records.size(), 2U);
  store_.report({store_.submitted[0].first, "", 1, 2, 0});
  gate_.settle();
  EXPECT_EQ(sent(), (Ids{1}));
  store_.commit_all();
  gate_.settle();
  EXPECT_EQ(sent(), (Ids{1, 2}));
}

// After a standstill of the disk a commit may cover very many.
TEST_F(CommitGateTest, ManyAnswersAreReleasedInSlices) {
  constexpr RequestId kSlice = CommitGate::kReleasedAtOnce;
  take_record();
  for (RequestId id = 1; id <= 2 * kSlice; ++id) pass(id, true);
  gate_.submit(effects_);
  store_.commit_all();
  gate_.settle();
  EXPECT_EQ(sent_.size(), kSlice);
  EXPECT_TRUE(gate_.must_settle_again());
  EXPECT_FALSE(gate_.idle());
  // What is committed already takes its place behind them, and what need not wait does not.
  pass(2 * kSlice + 1, true);
  pass(2 * kSlice + 2, false);
  EXPECT_EQ(sent().back(), 2 * kSlice + 2);
  EXPECT_EQ(sent_.size(), kSlice + 1);
  // The store fails: what is committed is no push to make again.
  pass_push(2 * kSlice + 3);
  store_.fail("no space left");
  gate_.settle();
  gate_.settle();
  ASSERT_EQ(sent_.size(), 2 * kSlice + 3);
  EXPECT_FALSE(gate_.must_settle_again());
  EXPECT_EQ(sent().back(), 2 * kSlice + 3);
  EXPECT_TRUE(std::holds_alternative<wire::Pushed>(sent_.back().body));
  EXPECT_EQ(sent()[kSlice - 1], kSlice);
  EXPECT_EQ(sent()[kSlice + 1], kSlice + 1);
}

TEST_F(CommitGateTest, AFullQueueLosesNothingAndKeepsTheOrder) {
  take_record();
  gate_.submit(effects_);
  store_.full = true;
  take_record();
  pass(1, true);
  gate_.submit(effects_);
  EXPECT_FALSE(gate_.writable());
  EXPECT_NE(gate_.reason().find("full"), std::string::npos);
  // The store has room again, but what waits goes first.
  store_.full = false;
  take_record();
  pass(2, true);
  gate_.submit(effects_);
  EXPECT_EQ(store_.submitted.size(), 1U);
  store_.commit_all();
  gate_.settle();
  EXPECT_TRUE(gate_.writable());
  ASSERT_EQ(store_.submitted.size(), 3U);
  Sequence expected = 0;
  for (const auto& [ticket, batch] : store_.submitted) {
    ASSERT_EQ(batch.records.size(), 1U);
    EXPECT_EQ(batch.records[0].sequence, ++expected);
  }
  EXPECT_TRUE(sent_.empty());
  store_.commit_all();
  gate_.settle();
  EXPECT_EQ(sent(), (Ids{1, 2}));
}

TEST_F(CommitGateTest, AnErrorHoldsAnswersUntilTheStoreHasRecovered) {
  take_record();
  pass(1, true);
  gate_.submit(effects_);
  store_.fail("no space left");
  gate_.settle();
  EXPECT_FALSE(gate_.writable());
  EXPECT_EQ(gate_.reason(), "no space left");
  EXPECT_TRUE(sent_.empty());
  store_.commit_all();
  gate_.settle();
  EXPECT_TRUE(gate_.writable());
  EXPECT_EQ(sent(), (Ids{1}));
}

// It counts, so that it need not wait to hear that: the next one is answered when it is on the
// disk.
TEST_F(CommitGateTest, APushThatWaitsIsToldOfAnErrorAndMayBeMadeAgain) {
  take_record();
  pass(1, true);
  pass_push(2);
  gate_.submit(effects_);
  EXPECT_TRUE(sent_.empty());
  store_.fail("no space left");
  gate_.settle();
  pass_push(3);
  ASSERT_EQ(sent(), (Ids{2, 3}));
  for (const Reply& reply : sent_) {
    const auto& error = std::get<wire::Error>(reply.body);
    EXPECT_EQ(error.status, Status::kStore);
    EXPECT_EQ(error.message,
              "the daemon cannot write its history now: its log says why; the push counts once it "
              "is on the disk: push again");
  }
  EXPECT_NE(gate_.waits_since(), kNever) << "of the one that is no push";
  store_.commit_all();
  gate_.settle();
  pass_push(4);
  EXPECT_EQ(sent(), (Ids{2, 3, 1, 4}));
  EXPECT_TRUE(std::holds_alternative<wire::Pushed>(sent_.back().body));
}

class SharedGateTest : public CommitGateTest {
 protected:
  SharedGateTest()
      : shared_gate_(set_shared(store_),
                     [this](const Caller& to, wire::Body&&) { released_.push_back(to.request); }) {
    store_.callback = [this](const store::CommitReport& report) { shared_gate_.report(report); };
  }
  static FakeStore& set_shared(FakeStore& store) {
    store.shared = true;
    return store;
  }
  void take(RecordKind kind) {
    Record record;
    record.kind = kind;
    effects_.records.push_back(record);
    shared_gate_.take(effects_);
  }
  void pass_grant(RequestId id) { shared_gate_.pass({{1, id}, false, wire::Granted{}}); }

  std::vector<RequestId> released_;
  CommitGate shared_gate_;
};

// Another daemon may go on without the eviction: nobody may have been granted because of it.
TEST_F(SharedGateTest, EveryAnswerWaitsForTheFactsBeforeItAndAGrantNotForAPush) {
  take(RecordKind::kPush);
  pass_grant(1);
  EXPECT_EQ(released_, (Ids{1}));
  take(RecordKind::kWorkerLost);
  pass_grant(2);
  shared_gate_.submit(effects_);
  take(RecordKind::kPush);
  pass_grant(3);
  shared_gate_.submit(effects_);
  EXPECT_EQ(released_, (Ids{1}));
  ASSERT_EQ(store_.submitted.size(), 2U);
  store_.report({store_.submitted[0].first, "", 1, 2, 0});
  shared_gate_.settle();
  pass_grant(4);
  EXPECT_EQ(released_, (Ids{1, 2, 4})) << "the third came behind the push of its turn";
  store_.commit_all();
  shared_gate_.settle();
  EXPECT_EQ(released_, (Ids{1, 2, 4, 3}));
}

TEST_F(CommitGateTest, WithAStoreOfItsOwnAGrantWaitsForNothing) {
  take_record(RecordKind::kWorkerLost);
  pass(1, false);
  EXPECT_EQ(sent(), (Ids{1}));
}

// A store that is nearly full commits what it has, and wants no more pushes.
TEST_F(CommitGateTest, ACommitCountsAlsoIfNoMorePushesAreWanted) {
  take_record();
  pass(1, true);
  gate_.submit(effects_);
  store_.report({store_.submitted[0].first, "nearly full", 1, 1, 0});
  gate_.settle();
  EXPECT_EQ(sent(), (Ids{1}));
  EXPECT_FALSE(gate_.writable());
  EXPECT_EQ(gate_.figures().records_waiting, 0U);
  EXPECT_EQ(gate_.figures().failures, 0U);
  EXPECT_TRUE(gate_.idle());
  store_.report({});
  gate_.settle();
  EXPECT_TRUE(gate_.writable());
}

TEST_F(CommitGateTest, WhatHasEndedTheWriterIsThrownOnTheLoop) {
  store::CommitReport report;
  report.failure = std::make_exception_ptr(InternalError("a check has failed"));
  store_.report(report);
  EXPECT_THROW(gate_.settle(), InternalError);
}

}  // namespace
}  // namespace syncd::server
