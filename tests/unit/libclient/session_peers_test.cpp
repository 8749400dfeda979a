// A session's decentralized calls and re-sync restarts: what each sends and gives back, and what
// becomes of it when the connection, the worker's membership or the job ends meanwhile.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using Updates = std::vector<wire::PeerUpdate>;

// The parts of a call that targets and collect share.
struct Waiting {
  bool collects = false;

  OpId call(Script& script, std::int64_t iteration, TimeUs timeout_us = kNever) const {
    return collects ? script.collect(iteration, timeout_us) : script.targets(iteration, timeout_us);
  }
  std::int64_t taken(Script& script) const {
    return collects ? script.take<wire::Collect>().iteration
                    : script.take<wire::Targets>().iteration;
  }
  // A call of which the message is on its way.
  OpId sent(Script& script, std::int64_t iteration, TimeUs timeout_us = kNever) const {
    const OpId op = call(script, iteration, timeout_us);
    EXPECT_EQ(taken(script), iteration);
    return op;
  }
  wire::Body reply(std::int64_t iteration) const {
    if (collects) return Script::set(iteration);
    return wire::TargetsReply{iteration, {2, 0}};
  }
  void expect_answer(Script& script, OpId op, std::int64_t iteration) const {
    if (collects) {
      EXPECT_EQ(script.updates(op), Script::set(iteration).updates);
    } else {
      EXPECT_THAT(script.ranks(op), ElementsAre(2, 0));
    }
  }
  const char* name() const { return collects ? "collect" : "targets"; }
  // A worker that is where this call is due, in iteration 0.
  void prepare(Script& script) const {
    script.join_one();
    script.granted(0);
    if (collects) script.pushed(0);
  }
};

class Peers : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { waiting.prepare(script); }

  const Waiting waiting{GetParam()};
  Script script;
};
INSTANTIATE_TEST_SUITE_P(TargetsAndCollect, Peers, testing::Bool(), [](const auto& chosen) {
  return std::string(chosen.param ? "collect" : "targets");
});

TEST_P(Peers, AnAnswerReachesItsCaller) {
  const OpId op = waiting.call(script, 0);
  EXPECT_EQ(waiting.taken(script), 0);
  EXPECT_FALSE(script.done(op));
  script.answer(waiting.reply(0));
  waiting.expect_answer(script, op, 0);
}

TEST_P(Peers, ARepeatGetsTheSameAnswerWithoutAskingEvenWhileDisconnected) {
  waiting.sent(script, 0);
  script.answer(waiting.reply(0));
  waiting.expect_answer(script, waiting.call(script, 0), 0);
  EXPECT_TRUE(script.quiet());
  script.cut();
  waiting.expect_answer(script, waiting.call(script, 0), 0);
}

TEST_P(Peers, AnUnansweredOneIsSentAgainOncePerConnection) {
  const OpId op = waiting.sent(script, 0);
  for (int i = 0; i < 3; ++i) {
    script.cut();
    wire::Joined joined = Script::joined(0);  // still within iteration 0
    joined.resumed = true;
    script.welcome();
    const wire::Join join = script.take<wire::Join>();
    EXPECT_EQ(join.granted, 0);
    EXPECT_EQ(join.pushed, waiting.collects ? 0 : -1);
    EXPECT_EQ(join.collected, -1);
    EXPECT_TRUE(script.quiet());
    script.answer(joined);
    EXPECT_EQ(waiting.taken(script), 0);
    EXPECT_TRUE(script.quiet());
  }
  EXPECT_FALSE(script.done(op));
  script.answer(waiting.reply(0));
  waiting.expect_answer(script, op, 0);
}

TEST_P(Peers, ATimeoutSaysWhoIsWaitedForAndTheNextCallWaitsOn) {
  OpId op = waiting.sent(script, 0, kSecond / 2);
  const std::uint64_t request = script.last_id;
  script.advance(kSecond / 2);
  script.take<wire::Explain>();
  Explanation why;
  why.rule = "hop:ring";
  why.text = "an update is missing";
  why.iteration = 0;
  why.waited_for_count = 1;
  why.ranks = "7";
  why.workers = {{7, "w7", "node-b", 0, 41'200'000, ""}};
  script.answer(why);
  EXPECT_EQ(script.status(op), Status::kTimeout);
  EXPECT_THAT(script.text(op), StartsWith(std::string(waiting.name()) +
                                          "(0) of worker 3 not answered after 500 ms: hop:ring: "));
  EXPECT_THAT(script.text(op), HasSubstr("worker 7 (node-b"));
  op = waiting.call(script, 0);
  EXPECT_TRUE(script.quiet()) << "it stands already";
  script.answer(request, waiting.reply(0));
  waiting.expect_answer(script, op, 0);
}

TEST_P(Peers, AnAnswerThatComesBetweenTwoCallsIsKept) {
  waiting.sent(script, 0, 0);
  const std::uint64_t request = script.last_id;
  script.explained_after(0);
  script.answer(request, waiting.reply(0));
  script.cut();
  waiting.expect_answer(script, waiting.call(script, 0, 0), 0);
}

TEST_P(Peers, CancelWithdrawsIt) {
  const OpId op = waiting.sent(script, 0);
  const std::uint64_t request = script.last_id;
  const OpId cancel = script.cancel_begin();
  EXPECT_EQ(script.status(op), Status::kCancelled);
  EXPECT_THAT(script.text(op), HasSubstr(waiting.name()));
  EXPECT_EQ(script.take<wire::CancelBegin>().iteration, 0);
  script.answer(request, wire::Error{Status::kCancelled, "cancelled by the caller"});
  script.confirmed(cancel);
  const OpId again = waiting.call(script, 0);
  EXPECT_EQ(waiting.taken(script), 0);
  script.answer(waiting.reply(0));
  waiting.expect_answer(script, again, 0);
}

TEST_P(Peers, AFreedHandleWithdrawsIt) {
  const OpId op = waiting.sent(script, 0);
  script.session.release(script.worker, script.now);
  script.collect();
  EXPECT_EQ(script.status(op), Status::kClosed);
  EXPECT_EQ(script.take<wire::CancelBegin>().iteration, 0);
}

TEST_P(Peers, ClosingAndALostDaemonEndIt) {
  OpId op = waiting.call(script, 0);
  script.cut();
  script.advance(61 * kSecond);
  EXPECT_EQ(script.status(op), Status::kUnreachable);
  EXPECT_EQ(script.status(waiting.call(script, 0)), Status::kUnreachable) << "told at once";
  script.connect();
  script.session.close();
  script.collect();
  EXPECT_EQ(script.status(waiting.call(script, 0)), Status::kClosed);
}

TEST_P(Peers, TheEndOfTheJobEndsIt) {
  for (const int way : {0, 1, 2}) {
    Script each;
    waiting.prepare(each);
    const OpId op = waiting.sent(each, 0);
    if (way == 0) each.answer(wire::Granted{0, wire::kStepStop, 0});
    if (way == 1) each.refuse(Status::kStopped, "stopped by an operator");
    if (way == 2) each.notify(wire::StopNotice{Script::joined().worker, "stopped"});
    EXPECT_EQ(each.status(op), Status::kStopped);
    const char* const why[] = {"the job has ended", "stopped by an operator", "has ended: stopped"};
    EXPECT_THAT(each.text(op), HasSubstr(why[way]));
    EXPECT_EQ(each.status(waiting.call(each, 0)), Status::kStopped);
    EXPECT_TRUE(each.quiet());
    EXPECT_EQ(each.step(each.begin()).flags, wire::kStepStop);
  }
}

TEST_P(Peers, ARefusalReachesTheCallerAndTheWorkerGoesOn) {
  for (const Status status : {Status::kUnsupported, Status::kWrongIteration, Status::kState}) {
    const OpId op = waiting.sent(script, 0);
    script.refuse(status, "not so");
    EXPECT_EQ(script.status(op), status);
    EXPECT_EQ(script.text(op), std::string(waiting.name()) + "(0) of worker 3: not so");
  }
  const OpId wrong = waiting.sent(script, 0);
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(wrong), Status::kProtocol);
}

TEST_P(Peers, ANewLifeEndsItAndTheNextBeginGoesOn) {
  const OpId op = waiting.sent(script, 0);
  script.refuse(Status::kFenced, "declared lost");
  EXPECT_EQ(script.take<wire::Join>().incarnation, 11U);
  script.answer(Script::joined(8, 12));
  EXPECT_EQ(script.status(op), Status::kWrongIteration);
  EXPECT_THAT(script.text(op), HasSubstr("had given this worker up"));
  const OpId begin = script.begin();
  EXPECT_EQ(script.take<wire::Begin>().iteration, 8);
  script.answer(wire::Granted{8, wire::kStepPull, 0});
  EXPECT_EQ(script.step(begin).iteration, 8);
  EXPECT_EQ(script.step(begin).flags, wire::kStepSkip | wire::kStepPull);
}

// The same where a jump has just been granted, and the set before it is to be collected.
TEST(PeerCalls, ARefusedSetBeforeAJumpLeavesTheWayFree) {
  JoinedScript script;
  script.exchanged_and_collected(0);
  OpId begin = script.ask_begin();
  script.answer(wire::Granted{5, wire::kStepSkip | wire::kStepPull, 0});
  EXPECT_EQ(script.step(begin).iteration, 5);
  const OpId op = script.collect(4, kNever);
  script.take<wire::Collect>();
  script.refuse(Status::kWrongIteration, "no iteration was granted yet in this life");
  EXPECT_EQ(script.status(op), Status::kWrongIteration);
  begin = script.ask_begin();
  script.answer(wire::Granted{8, wire::kStepPull, 0});
  EXPECT_EQ(script.step(begin).iteration, 8);
}

// It began while targets stood and nobody waited for it. Its caller did nothing out of order, so it
// hears that the iteration is not due any more, not that it has never begun.
TEST(PeerCalls, AfterANewLifeThatNobodyHeardOfAPushIsNotDue) {
  GrantedScript script;
  script.targets(0, 0);
  script.take<wire::Targets>();
  script.refuse(Status::kFenced, "declared lost");
  script.take<wire::Join>();
  script.answer(Script::joined(8, 12));
  const OpId op = script.push(0);
  EXPECT_EQ(script.status(op), Status::kWrongIteration);
  EXPECT_THAT(script.text(op), HasSubstr("after a begin"));
}

// The new life began before the call was made: the daemon refuses what was granted in the old one.
TEST(PeerCalls, OnesThatTheDaemonDoesNotKnowTheIterationOfLeaveTheWayFree) {
  for (const Status status : {Status::kWrongIteration, Status::kState}) {
    GrantedScript script;
    const OpId op = script.targets(0, kNever);
    script.take<wire::Targets>();
    script.refuse(status, "it is in iteration 8");
    EXPECT_EQ(script.status(op), Status::kWrongIteration);
    const OpId begin = script.ask_begin();
    script.answer(wire::Granted{8, wire::kStepPull, 0});
    EXPECT_EQ(script.step(begin).iteration, 8);
  }
}

TEST_P(Peers, OneOfTheThreeStandsAtATime) {
  waiting.sent(script, 0);
  const Waiting other{!waiting.collects};
  EXPECT_EQ(script.status(waiting.call(script, 0)), Status::kState);
  EXPECT_EQ(script.status(other.call(script, 0)), Status::kState);
  const OpId begin = script.begin();
  EXPECT_EQ(script.status(begin), Status::kState);
  EXPECT_THAT(script.text(begin), HasSubstr(std::string("another ") + waiting.name()));
  EXPECT_TRUE(script.quiet());
}

// ---- The order of calls
// --------------------------------------------------------------------------

TEST(PeerLoop, GoesRound) {
  JoinedScript script;
  for (std::int64_t k = 0; k < 3; ++k) {
    script.exchanged_and_collected(k);
    const OpId op = script.consumed(k);
    EXPECT_EQ(script.take<wire::Consumed>().iteration, k);
    script.confirmed(op);
  }
  script.reconnect();
  const wire::Join join = script.take<wire::Join>();
  EXPECT_EQ(join.granted, 2);
  EXPECT_EQ(join.pushed, 2);
  EXPECT_EQ(join.collected, 2);
  EXPECT_EQ(join.consumed, 2);
}

TEST(PeerLoop, AConnectionLostBetweenPushAndCollectDoesNotRepeatTheIteration) {
  JoinedScript script;
  script.exchanged(0);
  script.reconnect();
  script.take<wire::Join>();
  wire::Joined joined = Script::joined(0);  // the daemon has it in iteration 0 until collect
  joined.resumed = true;
  script.answer(joined);
  script.collected(0);
  script.granted(1);
}

TEST(PeerLoop, AfterASkipTheSetOfTheIterationBeforeIsCollected) {
  JoinedScript script;
  script.exchanged_and_collected(0);
  const OpId op = script.ask_begin();
  script.answer(wire::Granted{5, wire::kStepSkip | wire::kStepPull, 0});
  EXPECT_EQ(script.step(op).iteration, 5);
  script.collected(4);
  script.reconnect();
  const wire::Join join = script.take<wire::Join>();
  EXPECT_EQ(join.granted, 5);
  EXPECT_EQ(join.collected, 4);
}

// ---- Consumed
// ------------------------------------------------------------------------------------

TEST(Consumed, IsSentAgainUntilItIsConfirmed) {
  JoinedScript script;
  script.exchanged_and_collected(0);
  const OpId op = script.consumed(0, 0);
  EXPECT_EQ(script.status(op), Status::kOk) << "not waited for";
  script.take<wire::Consumed>();
  for (int i = 0; i < 2; ++i) {
    script.reconnect();
    EXPECT_EQ(script.take<wire::Join>().consumed, -1) << "the policy hears it from the message";
    wire::Joined joined = Script::joined(1);
    joined.resumed = true;
    script.answer(joined);
    EXPECT_EQ(script.take<wire::Consumed>().iteration, 0);
  }
  script.answer(wire::Ok{});
  script.cut();
  EXPECT_EQ(script.resumed(1).consumed, 0);
  EXPECT_TRUE(script.quiet());
  EXPECT_EQ(script.status(script.consumed(0)), Status::kOk);
  EXPECT_TRUE(script.quiet()) << "confirmed already";
}

TEST(Consumed, DoesNotHoldUpTheNextIterationAndALaterOneTakesItsPlace) {
  JoinedScript script;
  script.exchanged_and_collected(0);
  script.consumed(0, 0);
  script.take<wire::Consumed>();
  const std::uint64_t first = script.last_id;
  script.exchanged_and_collected(1);
  const OpId op = script.consumed(1);
  EXPECT_EQ(script.take<wire::Consumed>().iteration, 1);
  const std::uint64_t second = script.last_id;
  script.answer(first, wire::Ok{});
  EXPECT_FALSE(script.done(op));
  script.answer(second, wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Consumed, GoesOutBeforeTheNextBegin) {
  JoinedScript script;
  script.exchanged_and_collected(0);
  script.cut();
  script.consumed(0, 0);
  script.begin();
  wire::Joined joined = Script::joined(1);
  joined.resumed = true;
  script.welcome();
  script.take<wire::Join>();
  script.answer(joined);
  script.take<wire::Consumed>();
  EXPECT_EQ(script.take<wire::Begin>().iteration, 1);
}

TEST(Consumed, OnlyWhatWasCollected) {
  JoinedScript script;
  const OpId early = script.consumed(0);
  EXPECT_EQ(script.status(early), Status::kState);
  script.exchanged_and_collected(0);
  const OpId wrong = script.consumed(1);
  EXPECT_EQ(script.status(wrong), Status::kWrongIteration);
  EXPECT_EQ(script.text(wrong), "consumed(1) of worker 3: the latest collected iteration is 0");
  const OpId slow = script.consumed(0, kSecond / 2);
  script.take<wire::Consumed>();
  EXPECT_EQ(script.status(script.consumed(0)), Status::kState) << "two at once";
  script.advance(kSecond / 2);
  EXPECT_EQ(script.status(slow), Status::kTimeout);
}

TEST(Consumed, ANewLifeHasNothingToConfirm) {
  JoinedScript script;
  script.exchanged_and_collected(0);
  const OpId op = script.consumed(0);
  script.take<wire::Consumed>();
  script.cut();
  script.resumed(4, 12);  // not resumed: taken in anew
  EXPECT_EQ(script.status(op), Status::kOk);
  EXPECT_TRUE(script.quiet());
}

// Said as unread for ever to a daemon that was started again, the set from before a jump would keep
// its senders waiting.
TEST(Consumed, WhatALaterPushFollowsHasBeenRead) {
  JoinedScript script;
  const OpId begin = script.ask_begin();
  script.answer(wire::Granted{5, wire::kStepSkip | wire::kStepPull, 0});
  EXPECT_EQ(script.step(begin).iteration, 5);
  script.collected(4);
  script.cut();
  EXPECT_EQ(script.resumed(5).consumed, -1) << "it may be read now";
  script.pushed(5);
  script.cut();
  EXPECT_EQ(script.resumed(5).consumed, 4);
}

// A daemon that was started again from a snapshot knows of neither and believes what it is told:
// its neighbours would wait for a place that is read for ever.
TEST(Consumed, InANewLifeNothingCountsAsStillRead) {
  JoinedScript script;
  script.exchanged_and_collected(0);
  script.reconnect();
  const wire::Join join = script.take<wire::Join>();
  EXPECT_EQ(join.collected, 0);
  EXPECT_EQ(join.consumed, -1) << "it is read now";
  script.answer(Script::joined(8, 12));
  EXPECT_EQ(script.status(script.consumed(0)), Status::kOk);
  EXPECT_TRUE(script.quiet()) << "nobody waits for it";
  script.reconnect();
  const wire::Join again = script.take<wire::Join>();
  EXPECT_EQ(again.collected, again.consumed);
}

// ---- Restarted
// -----------------------------------------------------------------------------------

TEST(Restarted, EndsTheAdviceAndIsSentBeforeThePush) {
  GrantedScript script;
  script.notify(wire::ResyncNotice{Script::joined().worker, 0});
  EXPECT_EQ(*script.signals->flag(), 1U);
  const OpId op = script.restarted(0);
  EXPECT_EQ(*script.signals->flag(), 0U);
  EXPECT_EQ(script.take<wire::Restarted>().iteration, 0);
  const OpId push = script.send_push(0);
  for (int i = 0; i < 2; ++i) {
    script.reconnect();
    script.take<wire::Join>();
    wire::Joined joined = Script::joined(0);
    joined.resumed = true;
    script.answer(joined);
    EXPECT_EQ(script.take<wire::Restarted>().iteration, 0);
    const std::uint64_t request = script.last_id;
    EXPECT_EQ(script.take<wire::Push>().iteration, 0);
    if (i == 1) {
      script.answer(request, wire::Ok{});
      EXPECT_EQ(script.status(op), Status::kOk);
      script.answer(script.last_id, wire::Pushed{0, false, false});
      EXPECT_EQ(script.status(push), Status::kOk);
    }
  }
}

TEST(Restarted, OnlyWhatIsComputed) {
  JoinedScript script;
  EXPECT_EQ(script.status(script.restarted(0)), Status::kState);
  script.granted(0);
  const OpId wrong = script.restarted(1);
  EXPECT_EQ(script.status(wrong), Status::kWrongIteration);
  EXPECT_EQ(script.text(wrong),
            "restarted(1) of worker 3: iteration 0 is the one that it computes");
  script.pushed(0);
  EXPECT_EQ(script.status(script.restarted(0)), Status::kWrongIteration);
  EXPECT_TRUE(script.quiet());
}

TEST(Resync, APushEndsTheAdviceAndOneThatComesAfterItIsNone) {
  GrantedScript script;
  script.notify(wire::ResyncNotice{Script::joined().worker, 0});
  EXPECT_EQ(*script.signals->flag(), 1U);
  script.push(0);
  EXPECT_EQ(*script.signals->flag(), 0U);
  script.notify(wire::ResyncNotice{Script::joined().worker, 0});
  EXPECT_EQ(*script.signals->flag(), 0U);
}

}  // namespace
}  // namespace syncd::client
