// What becomes of workers and their calls when a session's connection breaks: resending, coming
// back, fencing.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;

// ---- Resending ----------------------------------------------------------------------------------

TEST(Reconnect, AnUnconfirmedPushIsSentAgainOncePerConnection) {
  IteratedScript script;
  script.granted(1);
  const OpId op = script.send_push(1);
  for (int i = 0; i < 3; ++i) {
    script.reconnect();
    const wire::Join join = script.take<wire::Join>();
    EXPECT_EQ(join.incarnation, 11U);
    EXPECT_EQ(join.granted, 1);
    EXPECT_EQ(join.pushed, 0);
    EXPECT_EQ(join.rank, 3);
    EXPECT_TRUE(script.quiet()) << "nothing before the worker is taken back";
    script.answer(Script::joined(1));
    EXPECT_EQ(script.take<wire::Push>().iteration, 1);
    EXPECT_TRUE(script.quiet());
  }
  EXPECT_FALSE(script.done(op));
  script.answer(wire::Pushed{1, false, true});
  EXPECT_EQ(script.status(op), Status::kOk) << "a duplicate is a success";
  script.granted(2);
}

TEST(Reconnect, AStandingBeginIsSentAgainOncePerConnection) {
  JoinedScript script;
  const OpId op = script.ask_begin();
  for (int i = 0; i < 3; ++i) {
    script.cut();
    script.resumed(0);
    EXPECT_EQ(script.take<wire::Begin>().iteration, 0);
    EXPECT_TRUE(script.quiet());
  }
  script.begin_granted(op, 0);
}

TEST(Reconnect, AnAnswerOfTheLastConnectionIsVoid) {
  GrantedScript script;
  const OpId op = script.send_push(0);
  const std::uint64_t old_id = script.last_id;
  const std::uint64_t old_number = script.session.wish().number;
  const auto bytes = script.frame(old_id, wire::Pushed{0, false, false});
  script.cut();
  script.session.on_bytes(old_number, bytes, script.now);  // was on its way in the transport
  script.collect();
  EXPECT_FALSE(script.done(op));
  script.resumed(0);
  script.take<wire::Push>();
  EXPECT_NE(script.last_id, old_id);
  script.answer(old_id, wire::Pushed{0, false, false});
  EXPECT_FALSE(script.done(op));
}

TEST(Reconnect, WorkersComeBackInTheOrderInWhichTheyJoined) {
  WelcomedScript script;
  for (std::uint32_t rank : {2U, 0U, 1U}) {
    script.start_join(Script::request("w" + std::to_string(rank), static_cast<int>(rank)));
    script.take<wire::Join>();
    script.answer(Script::joined(0, 20 + rank, rank));
  }
  script.reconnect();
  EXPECT_EQ(script.take<wire::Join>().name, "w2");
  EXPECT_EQ(script.take<wire::Join>().name, "w0");
  EXPECT_EQ(script.take<wire::Join>().name, "w1");
}

TEST(Reconnect, ANewIdentityIsUsedFromThenOn) {
  GrantedScript script;
  const OpId op = script.send_push(0);
  script.reconnect();
  script.take<wire::Join>();
  wire::Joined joined = Script::joined(0, 42);
  joined.worker.epoch = 2;
  script.answer(joined);
  EXPECT_EQ(script.take<wire::Push>().worker, (wire::WorkerRef{5, 3, 2, 42}));
  script.push_counted(op, 0);
}

TEST(Reconnect, ABeginFollowsTheWorkerToWhereTheDaemonPutsIt) {
  JoinedScript script;
  const OpId op = script.ask_begin();
  script.cut();
  script.resumed(9);
  EXPECT_EQ(script.take<wire::Begin>().iteration, 9);
  script.begin_granted(op, 9);
  EXPECT_EQ(script.step(op).flags, wire::kStepSkip | wire::kStepPull) << "the caller was due at 0";
}

TEST(Reconnect, AGrantThatWaitsForItsCallerSurvives) {
  JoinedScript script;
  script.ask_begin(0);
  const std::uint64_t begin_id = script.last_id;
  script.explained_after(0);
  script.answer(begin_id, wire::Granted{0, 0, 0});
  script.cut();
  EXPECT_EQ(script.resumed(0).granted, 0);
  EXPECT_TRUE(script.quiet());
  EXPECT_EQ(script.step(script.begin()).iteration, 0);
}

TEST(Reconnect, CallsMadeWhileDisconnectedWait) {
  JoinedScript script;
  script.cut();
  const OpId op = script.begin();
  const OpId other = script.start_join(Script::request("other", -1));
  EXPECT_FALSE(script.done(op));
  script.resumed(0);
  EXPECT_EQ(script.take<wire::Join>().name, "other");
  script.answer(Script::joined(0, 77, 1));
  EXPECT_EQ(script.status(other), Status::kOk);
  EXPECT_EQ(script.take<wire::Begin>().iteration, 0);
}

TEST(Reconnect, AJoinWhoseOwnFormerSelfHoldsThePlaceAsksAgain) {
  WelcomedScript script;
  const OpId op = script.start_join(Script::request());
  script.take<wire::Join>();
  script.reconnect();
  script.take<wire::Join>();
  script.refuse(Status::kRankTaken, "worker 3 is connected already");
  EXPECT_FALSE(script.done(op));
  script.advance(kRankRetryUs);
  script.take<wire::Join>();
  script.answer(Script::joined());
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Reconnect, APlaceThatSomebodyElseHoldsIsNotAskedForForEver) {
  WelcomedScript script;
  const OpId op = script.start_join(Script::request());
  script.take<wire::Join>();
  script.reconnect();
  int asked = 0;
  while (!script.done(op) && asked < 1000) {
    const auto body = std::move(script.sent.front());
    script.sent.pop_front();
    if (std::holds_alternative<wire::Join>(body.body)) {
      ++asked;
      script.answer(body.id, wire::Error{Status::kRankTaken, "worker 3 is connected already"});
      script.feed(script.frame(0, wire::HeartbeatAck{}));
    }
    script.advance(kRankRetryUs);
  }
  EXPECT_EQ(script.status(op), Status::kRankTaken);
  EXPECT_GT(asked, 5);
  EXPECT_LT(asked, 100);
}

TEST(Reconnect, ALeaveWhoseAnswerWasLostHasHappened) {
  for (const Status refusal : {Status::kFenced, Status::kStopped}) {
    JoinedScript script;
    const OpId op = script.leave();
    script.take<wire::Leave>();
    script.reconnect();
    script.take<wire::Join>();
    script.refuse(refusal, "gone");
    EXPECT_EQ(script.status(op), Status::kOk);
  }
}

TEST(Reconnect, AWorkerOfASwitchedJobComesBackUnderTheNewPolicy) {
  JoinedScript script;
  script.reconnect();
  EXPECT_EQ(script.take<wire::Join>().policy, "ssp:3");
  script.refuse(Status::kPolicyMismatch, "job 'mf' runs policy 'asp'");
  EXPECT_EQ(script.take<wire::Join>().policy, "");
  script.answer(Script::joined());
  script.granted(0);
}

// A daemon that lost in a crash that it was sent away would have the others wait for it.
TEST(Reconnect, AWorkerWhoseLoopHasEndedComesBackWithItsNextCallOnly) {
  for (const bool pushes : {false, true}) {
    JoinedScript script;
    if (pushes) {
      script.granted(0);
      script.notify(wire::StopNotice{Script::joined().worker, "enough"});
    } else {
      script.ask_begin();
      script.answer(wire::Granted{0, wire::kStepStop, 0});
    }
    script.reconnect();
    EXPECT_TRUE(script.quiet());
    EXPECT_EQ(script.step(script.begin()).flags, wire::kStepStop);
    EXPECT_TRUE(script.quiet());
    const OpId op = pushes ? script.push(0) : script.leave();
    EXPECT_EQ(script.take<wire::Join>().incarnation, 11U);
    script.refuse(Status::kStopped, "drained by an operator");
    EXPECT_EQ(script.status(op), pushes ? Status::kStopped : Status::kOk);
  }
}

// What it has not been told the outcome of, it still asks for.
TEST(Reconnect, AWorkerWhoseLoopHasEndedComesBackForAPushThatStands) {
  GrantedScript script;
  const OpId op = script.send_push(0);
  script.notify(wire::StopNotice{Script::joined().worker, "enough"});
  script.cut();
  script.resumed(0);
  script.take<wire::Push>();
  script.answer(wire::Pushed{0, false, true});
  EXPECT_EQ(script.status(op), Status::kOk);
}

// A daemon that has said that it goes away takes no request any more: the end of the connection
// says as much as a leave.
TEST(Reconnect, AWorkerWhoseLoopHasEndedAsksNothingOfADaemonThatGoesAway) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.push(0);
  script.take<wire::Push>();
  script.notify(wire::StopNotice{Script::joined().worker, "enough"});
  script.cut();
  script.resumed(0);
  script.take<wire::Push>();
  script.notify(wire::ShutdownNotice{"upgrade"});
  script.answer(wire::Pushed{0, false, true});
  EXPECT_EQ(script.status(op), Status::kOk);
  EXPECT_TRUE(script.quiet());
  script.cut();
  script.welcome();
  EXPECT_TRUE(script.quiet()) << "it takes part no more";
}

TEST(Reconnect, ARefusalThatMayPassFailsTheCallAndTheNextAsksAgain) {
  GrantedScript script;
  OpId op = script.send_push(0);
  script.reconnect();
  script.take<wire::Join>();
  script.refuse(Status::kStore, "disk full");
  EXPECT_EQ(script.status(op), Status::kStore);
  EXPECT_THAT(script.text(op), HasSubstr("did not let it resume: disk full"));
  op = script.push(0);
  EXPECT_EQ(script.take<wire::Join>().incarnation, 11U);
  script.answer(Script::joined(0));
  EXPECT_EQ(script.take<wire::Push>().iteration, 0);
  script.answer(wire::Pushed{0, false, true});
  EXPECT_EQ(script.status(op), Status::kOk);
}

// ---- Fencing ------------------------------------------------------------------------------------

TEST(Fencing, ARefusedPushIsSentAgainUnderTheNewIncarnation) {
  GrantedScript script;
  const OpId op = script.send_push(0);
  script.refuse(Status::kFenced, "declared lost");
  const wire::Join join = script.take<wire::Join>();
  EXPECT_EQ(join.incarnation, 11U);
  EXPECT_EQ(join.granted, 0);
  script.answer(Script::joined(4, 12));
  EXPECT_EQ(script.take<wire::Push>().worker.incarnation, 12U);
  script.answer(wire::Pushed{0, true, false});
  EXPECT_TRUE(std::get<PushResult>(script.end(op).result).late);
  const OpId begin = script.begin();
  EXPECT_EQ(script.take<wire::Begin>().iteration, 1) << "the daemon says where to";
  script.answer(wire::Granted{4, wire::kStepSkip, 0});
  EXPECT_EQ(script.step(begin).iteration, 4);
}

TEST(Fencing, ARefusedBeginIsAskedWhereTheDaemonSays) {
  JoinedScript script;
  const OpId op = script.ask_begin();
  script.refuse(Status::kFenced, "declared lost");
  script.notify(wire::FencedNotice{{5, 3, 1, 11}, "declared lost"});
  script.take<wire::Join>();
  EXPECT_TRUE(script.quiet()) << "refusal and notice ask for one Join";
  script.answer(Script::joined(6, 12));
  EXPECT_EQ(script.take<wire::Begin>().iteration, 6);
  script.begin_granted(op, 6);
  EXPECT_EQ(script.step(op).flags, wire::kStepSkip | wire::kStepPull);
}

TEST(Fencing, ARefusedJoinIsFatalForEveryCallOfThisWorker) {
  JoinedScript script;
  const OpId begin = script.ask_begin();
  const OpId explain = script.explain();
  script.take<wire::Explain>();
  script.notify(wire::FencedNotice{{5, 3, 1, 11}, "replaced"});
  script.take<wire::Join>();
  script.refuse(Status::kFenced, "incarnation 11 was replaced by incarnation 12");
  for (const OpId op : {begin, explain, script.begin(), script.push(0), script.leave()}) {
    EXPECT_EQ(script.status(op), Status::kFenced);
    EXPECT_THAT(script.text(op), HasSubstr("worker 3 of job 'mf' is no longer a member: "
                                           "incarnation 11 was replaced by incarnation 12"));
  }
  EXPECT_TRUE(script.quiet());
  script.reconnect();
  EXPECT_TRUE(script.quiet()) << "it does not try to come back";
  // Another one may take its name.
  script.start_join(Script::request());
  EXPECT_EQ(script.take<wire::Join>().incarnation, 0U);
}

TEST(Fencing, TakenBackAndThrownOutWithNothingBetweenIsTheEnd) {
  GrantedScript script;
  const OpId op = script.send_push(0);
  script.refuse(Status::kFenced, "lost");
  script.take<wire::Join>();
  script.answer(Script::joined(0, 12));
  script.take<wire::Push>();
  script.refuse(Status::kFenced, "lost again");
  EXPECT_EQ(script.status(op), Status::kFenced);
  EXPECT_TRUE(script.quiet());
}

TEST(Fencing, AWorkerThatNobodyCallsForComesBackWithItsNextCall) {
  GrantedScript script;
  script.notify(wire::FencedNotice{{5, 3, 1, 10}, "an earlier life"});
  script.notify(wire::FencedNotice{{5, 3, 1, 11}, "lost"});
  EXPECT_TRUE(script.quiet()) << "it may hang: the others must not wait for it again";
  script.reconnect();
  EXPECT_TRUE(script.quiet());
  const OpId op = script.push(0);
  EXPECT_EQ(script.take<wire::Join>().granted, 0);
  script.answer(Script::joined(0, 12));
  EXPECT_EQ(script.take<wire::Push>().worker.incarnation, 12U);
  script.push_counted(op, 0);
}

TEST(Fencing, ALeaveIsMadeUnderTheNewIncarnation) {
  JoinedScript script;
  const OpId op = script.leave();
  script.take<wire::Leave>();
  script.refuse(Status::kFenced, "lost");
  script.take<wire::Join>();
  script.answer(Script::joined(0, 12));
  EXPECT_EQ(script.take<wire::Leave>().worker.incarnation, 12U);
  script.confirmed(op);
}

}  // namespace
}  // namespace syncd::client
