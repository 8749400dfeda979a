// A session on one good connection: the loop, framing, timeouts, what is refused at once.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(Session, HelloSaysWhoWeAreAndWhatWeSpeak) {
  SessionOptions options = one_endpoint();
  options.link.token = "secret";
  Script script(options);
  const wire::Hello hello = script.connect();
  EXPECT_EQ(hello.protocol_min, kProtocolMin);
  EXPECT_EQ(hello.protocol_max, kProtocolMax);
  EXPECT_EQ(hello.client_name, "tester");
  EXPECT_EQ(hello.client_version, "9.9");
  EXPECT_EQ(hello.token, "secret");
}

TEST(Session, ConnectCompletesWithTheWelcome) {
  Script script;
  script.session.connect({1, script.deadline(kSecond)});
  script.collect();
  EXPECT_FALSE(script.done(1));
  script.welcome();
  EXPECT_EQ(script.status(1), Status::kOk);
  script.session.connect({2, script.deadline(0)});
  script.collect();
  EXPECT_EQ(script.status(2), Status::kOk);
}

TEST(Session, JoinCarriesWhatWasAskedAndReturnsWhatWasGiven) {
  WelcomedScript script;
  const OpId op = script.start_join(Script::request("w", -1));
  const wire::Join join = script.take<wire::Join>();
  EXPECT_EQ(join.job, "mf");
  EXPECT_EQ(join.policy, "ssp:3");
  EXPECT_EQ(join.name, "w");
  EXPECT_EQ(join.host, "node-a");
  EXPECT_EQ(join.rank, -1);
  EXPECT_EQ(join.world_size, 4U);
  EXPECT_EQ(join.incarnation, 0U);
  EXPECT_EQ(join.granted, -1);
  EXPECT_EQ(join.pushed, -1);
  EXPECT_FALSE(script.done(op));
  script.answer(Script::joined(6));
  const auto result = std::get<JoinResult>(script.end(op).result);
  EXPECT_NE(result.worker, kNoWorker);
  EXPECT_EQ(result.rank, 3U);
  EXPECT_EQ(result.world_size, 4U);
  EXPECT_EQ(result.iteration, 6);
  EXPECT_EQ(result.policy, "ssp:3");
  EXPECT_TRUE(result.durable);
}

TEST(Session, TheLoopGoesRound) {
  JoinedScript script;
  for (std::int64_t k = 0; k < 5; ++k) {
    script.granted(k);
    script.info.loss = 0.5;
    script.info.samples = 10;
    script.info.bytes = 80;
    const OpId op = script.push(k);
    const wire::Push push = script.take<wire::Push>();
    EXPECT_EQ(push.worker, (wire::WorkerRef{5, 3, 1, 11}));
    EXPECT_EQ(push.iteration, k);
    EXPECT_EQ(push.loss, 0.5);
    EXPECT_EQ(push.samples, 10U);
    EXPECT_EQ(push.bytes, 80U);
    script.answer(wire::Pushed{k, false, false});
    EXPECT_FALSE(std::get<PushResult>(script.end(op).result).late);
  }
  const OpId op = script.leave();
  EXPECT_EQ(script.take<wire::Leave>().worker.incarnation, 11U);
  EXPECT_FALSE(script.done(op));
  script.confirmed(op);
  EXPECT_EQ(script.status(script.begin()), Status::kClosed);
  EXPECT_EQ(script.status(script.leave()), Status::kClosed);
}

TEST(Session, AGrantBringsItsFlagsAndStaleness) {
  JoinedScript script;
  const OpId op = script.ask_begin();
  script.answer(wire::Granted{0, wire::kStepPull | wire::kStepBarrier, 2});
  EXPECT_EQ(script.step(op).flags, wire::kStepPull | wire::kStepBarrier);
  EXPECT_EQ(script.step(op).staleness, 2);
}

TEST(Session, AfterALatePushTheNextIterationIsAskedForAndMayBeSkipped) {
  GrantedScript script;
  const OpId push = script.send_push(0);
  script.answer(wire::Pushed{0, true, false});
  EXPECT_TRUE(std::get<PushResult>(script.end(push).result).late);
  const OpId begin = script.begin();
  EXPECT_EQ(script.take<wire::Begin>().iteration, 1);
  script.answer(wire::Granted{7, wire::kStepSkip | wire::kStepPull, 0});
  EXPECT_EQ(script.step(begin).iteration, 7);
  script.pushed(7);
  script.granted(8);
}

TEST(Session, FramesMayComeInPiecesOrTogether) {
  JoinedScript script;
  const OpId first = script.ask_begin();
  std::vector<std::uint8_t> bytes = script.frame(script.last_id, wire::Granted{0, 0, 0});
  for (const std::uint8_t& byte : bytes) {
    EXPECT_FALSE(script.done(first));
    script.feed({&byte, 1});
  }
  EXPECT_EQ(script.step(first).iteration, 0);

  const OpId second = script.send_push(0);
  bytes = script.frame(0, wire::Heartbeat{});
  const auto more = script.frame(script.last_id, wire::Pushed{0, false, false});
  bytes.insert(bytes.end(), more.begin(), more.end());
  const auto third = script.frame(0, wire::Heartbeat{});
  bytes.insert(bytes.end(), third.begin(), third.begin() + 3);
  script.feed(bytes);
  EXPECT_EQ(script.status(second), Status::kOk);
}

TEST(Session, SeveralWorkersShareTheConnection) {
  WelcomedScript script;
  std::vector<WorkerId> workers;
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    const OpId op =
        script.start_join(Script::request("w" + std::to_string(rank), static_cast<int>(rank)));
    script.take<wire::Join>();
    script.answer(Script::joined(0, 20 + rank, rank));
    workers.push_back(std::get<JoinResult>(script.end(op).result).worker);
  }
  std::vector<OpId> ops;
  std::vector<std::uint64_t> ids;
  for (const WorkerId worker : workers) {
    script.worker = worker;
    ops.push_back(script.begin());
    EXPECT_EQ(script.take<wire::Begin>().worker.incarnation, 20 + ops.size() - 1);
    ids.push_back(script.last_id);
  }
  script.answer(ids[2], wire::Granted{0, 0, 2});
  script.answer(ids[0], wire::Granted{0, 0, 1});
  EXPECT_EQ(script.step(ops[2]).staleness, 2);
  EXPECT_EQ(script.step(ops[0]).staleness, 1);
  EXPECT_FALSE(script.done(ops[1]));
}

// ---- What is refused without asking the daemon --------------------------------------------------

TEST(Session, CallsOutOfOrderAreRefusedAtOnce) {
  JoinedScript script;
  OpId op = script.push(0);
  EXPECT_EQ(script.status(op), Status::kState);
  EXPECT_EQ(script.text(op),
            "push(0) of worker 3: no iteration was granted yet; begin comes first");

  script.granted(0);
  op = script.begin();
  EXPECT_EQ(script.status(op), Status::kState);
  EXPECT_EQ(script.text(op), "begin(0) of worker 3: iteration 0 was granted and is not pushed yet");
  op = script.push(4);
  EXPECT_EQ(script.status(op), Status::kWrongIteration);
  EXPECT_EQ(script.text(op), "push(4) of worker 3: iteration 0 is the one that is due");
  script.pushed(0);
  op = script.push(1);
  EXPECT_EQ(script.status(op), Status::kWrongIteration);
  EXPECT_THAT(script.text(op), HasSubstr("iteration 1 is the one that is due, after a begin"));
  EXPECT_TRUE(script.quiet());
}

TEST(Session, APushThatWasConfirmedIsConfirmedAgainWithoutAsking) {
  GrantedScript script;
  OpId op = script.send_push(0);
  script.answer(wire::Pushed{0, true, false});
  op = script.push(0);
  EXPECT_EQ(script.status(op), Status::kOk);
  EXPECT_TRUE(std::get<PushResult>(script.end(op).result).late);
  EXPECT_TRUE(script.quiet());
}

TEST(Session, TwoCallsOfAKindAtOnceAreRefused) {
  JoinedScript script;
  const OpId first = script.begin();
  const OpId second = script.begin();
  EXPECT_EQ(script.status(second), Status::kState);
  EXPECT_THAT(script.text(second), HasSubstr("another begin of this worker is under way"));
  script.take<wire::Begin>();
  script.answer(wire::Granted{0, 0, 0});
  EXPECT_EQ(script.status(first), Status::kOk);
  script.push(0);
  EXPECT_EQ(script.status(script.push(0)), Status::kState);
  script.leave();
  EXPECT_EQ(script.status(script.leave()), Status::kState);
}

TEST(Session, TwoLiveWorkersOfOneIdentityAreRefused) {
  JoinedScript script;
  OpId op = script.start_join(Script::request());
  EXPECT_EQ(script.status(op), Status::kRankTaken);
  EXPECT_THAT(script.text(op), HasSubstr("this client has a live worker 3 ('w') of this name"));
  op = script.start_join(Script::request("other", 3));
  EXPECT_THAT(script.text(op), HasSubstr("of this rank already"));
  JoinRequest elsewhere = Script::request();
  elsewhere.job = "svm";
  script.start_join(elsewhere);
  EXPECT_EQ(script.take<wire::Join>().job, "svm");
}

TEST(Session, TheDaemonsErrorsReachTheCaller) {
  WelcomedScript script;
  OpId op = script.start_join(Script::request());
  script.take<wire::Join>();
  script.refuse(Status::kPolicyMismatch, "job 'mf' runs policy 'bsp', not 'ssp:3'");
  EXPECT_EQ(script.status(op), Status::kPolicyMismatch);
  EXPECT_EQ(script.text(op),
            "join of worker 'w' to job 'mf': job 'mf' runs policy 'bsp', not 'ssp:3'");
  // The place is free again, also for the same name.
  op = script.start_join(Script::request());
  script.take<wire::Join>();
  script.answer(Script::joined());
  script.worker = std::get<JoinResult>(script.end(op).result).worker;

  script.granted(0);
  op = script.send_push(0);
  script.refuse(Status::kStore, "disk full");
  EXPECT_EQ(script.status(op), Status::kStore);
  EXPECT_EQ(script.text(op), "push(0) of worker 3: disk full");
  script.pushed(0);  // the same iteration may be tried again
}

TEST(Session, AfterAWrongIterationTheWayIsFreeForTheNextBegin) {
  GrantedScript script;
  const OpId push = script.send_push(0);
  script.refuse(Status::kWrongIteration, "the iteration granted to it is 5");
  EXPECT_EQ(script.status(push), Status::kWrongIteration);
  const OpId first = script.ask_begin();
  script.refuse(Status::kWrongIteration, "the iteration that is due is 5");
  EXPECT_EQ(script.status(first), Status::kWrongIteration);
  // The two sides disagree: the daemon is asked where this worker is.
  const OpId second = script.begin();
  script.take<wire::Join>();
  script.answer(Script::joined(5));
  EXPECT_EQ(script.take<wire::Begin>().iteration, 5);
  script.begin_granted(second, 5);
  EXPECT_EQ(script.step(second).flags, wire::kStepSkip | wire::kStepPull);
}

TEST(Session, AnAnswerOfTheWrongTypeFailsTheCallAndNotTheConnection) {
  GrantedScript script;
  OpId op = script.send_push(0);
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kProtocol);
  EXPECT_THAT(script.text(op), HasSubstr("answered with Ok, which does not belong"));
  EXPECT_TRUE(script.session.connected());
  script.pushed(0);
}

TEST(Session, AnErrorWithoutAStatusIsStillAFailure) {
  GrantedScript script;
  const OpId op = script.send_push(0);
  script.refuse(Status::kOk, "what");
  EXPECT_EQ(script.status(op), Status::kProtocol);
  const OpId explain = script.explain();
  script.take<wire::Explain>();
  script.refuse(static_cast<Status>(7), "what");
  EXPECT_EQ(script.status(explain), Status::kProtocol);
}

TEST(Session, AWorkerThatWasFreedWithoutLeavingGoesOnUnderANewHandle) {
  IteratedScript script;
  script.session.release(script.worker, script.now);
  const OpId op = script.start_join(Script::request());
  const wire::Join join = script.take<wire::Join>();
  EXPECT_EQ(join.incarnation, 11U);
  EXPECT_EQ(join.pushed, 0);
  wire::Joined joined = Script::joined(1);
  joined.resumed = true;
  script.answer(joined);
  const auto result = std::get<JoinResult>(script.end(op).result);
  EXPECT_EQ(result.iteration, 1);
  EXPECT_TRUE(result.resumed);
  script.worker = result.worker;
  script.granted(1);
}

TEST(Session, ALifeThatHasEndedMeanwhileIsFollowedByAnother) {
  for (const Status status : {Status::kFenced, Status::kStopped}) {
    JoinedScript script;
    script.session.release(script.worker, script.now);
    const OpId op = script.start_join(Script::request());
    EXPECT_EQ(script.take<wire::Join>().incarnation, 11U);
    script.refuse(status, "over");
    EXPECT_EQ(script.take<wire::Join>().incarnation, 0U);
    script.answer(Script::joined(0, 12));
    EXPECT_EQ(script.status(op), Status::kOk);
  }
}

// ---- Timeouts -----------------------------------------------------------------------------------

TEST(Session, ABeginThatTimesOutSaysWhoIsWaitedFor) {
  JoinedScript script;
  for (std::int64_t k = 0; k < 12; ++k) {
    script.iterated(k);
  }
  const OpId op = script.ask_begin(5 * kSecond);
  for (int i = 0; i < 4; ++i) {
    script.advance(kSecond);
    script.take<wire::Heartbeat>();
    script.answer(0, wire::HeartbeatAck{});
  }
  script.advance(kSecond - 1);
  EXPECT_TRUE(script.quiet());
  script.advance(1);
  script.take<wire::Heartbeat>();
  EXPECT_EQ(script.take<wire::Explain>().worker.rank, 3U);
  EXPECT_FALSE(script.done(op));
  Explanation explanation;
  explanation.rule = "ssp:3";
  explanation.text = "relative clock 12 is 4 ahead of the slowest (8), allowed 3";
  explanation.iteration = 12;
  explanation.waited_for_count = 1;
  explanation.ranks = "7";
  explanation.workers = {{7, "w7", "node-b", 8, 41'200'000, ""}};
  script.answer(explanation);
  EXPECT_EQ(script.status(op), Status::kTimeout);
  // The sentence that <syncd/client.h> shows.
  EXPECT_EQ(script.text(op),
            "begin(12) of worker 3 not granted after 5.0 s: ssp:3: relative clock 12 is 4 ahead of "
            "the slowest (8), allowed 3; waiting for worker 7 (node-b, clock 8, last push 41.2 s "
            "ago)");
}

TEST(Session, AGrantThatComesWhileTheDaemonIsAskedWhyWins) {
  JoinedScript script;
  const OpId op = script.ask_begin(kSecond / 2);
  const std::uint64_t begin_id = script.last_id;
  script.advance(kSecond / 2);
  script.take<wire::Explain>();
  const std::uint64_t explain_id = script.last_id;
  script.answer(begin_id, wire::Granted{0, 0, 0});
  EXPECT_EQ(script.step(op).iteration, 0);
  script.answer(explain_id, Explanation{});  // ignored
}

TEST(Session, ADaemonThatDoesNotSayWhyIsNotWaitedForLong) {
  JoinedScript script;
  const OpId op = script.ask_begin(kSecond / 2);
  script.advance(kSecond / 2);
  script.take<wire::Explain>();
  script.advance(kExplainTimeoutUs - 1);
  EXPECT_FALSE(script.done(op));
  script.advance(1);
  EXPECT_EQ(script.status(op), Status::kTimeout);
  EXPECT_EQ(
      script.text(op),
      "begin(0) of worker 3 not granted after 500 ms: the daemon did not say why within 1.0 s");
}

TEST(Session, ADaemonThatCannotSayWhyIsQuoted) {
  JoinedScript script;
  const OpId op = script.ask_begin(0);
  script.advance(0);
  script.take<wire::Explain>();
  script.refuse(Status::kUnsupported, "no such request");
  EXPECT_THAT(script.text(op), HasSubstr("the daemon does not say why: no such request"));
}

TEST(Session, ATimeoutOfZeroStillTakesAGrantThatIsThere) {
  JoinedScript script;
  const OpId op = script.ask_begin(0);
  const std::uint64_t begin_id = script.last_id;
  script.advance(0);
  script.take<wire::Explain>();
  script.answer(begin_id, wire::Granted{0, 0, 0});
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Session, ABeginThatTimedOutStandsAndTheNextWaitsOn) {
  JoinedScript script;
  const OpId first = script.ask_begin(0);
  const std::uint64_t begin_id = script.last_id;
  script.explained_after(0);
  EXPECT_EQ(script.status(first), Status::kTimeout);
  const OpId second = script.begin();
  EXPECT_TRUE(script.quiet()) << "the request stands already";
  script.answer(begin_id, wire::Granted{0, wire::kStepPull, 0});
  EXPECT_EQ(script.step(second).flags, wire::kStepPull);
}

TEST(Session, AGrantThatComesBetweenTwoBeginsIsKept) {
  JoinedScript script;
  script.ask_begin(0);
  const std::uint64_t begin_id = script.last_id;
  script.explained_after(0);
  script.answer(begin_id, wire::Granted{0, wire::kStepPull, 1});
  EXPECT_EQ(script.status(script.push(0)), Status::kState) << "the caller knows of no grant yet";
  const OpId op = script.begin(0);
  EXPECT_EQ(script.step(op).staleness, 1);
  EXPECT_TRUE(script.quiet());
  script.pushed(0);
}

TEST(Session, ALateAckAfterATimeoutAnswersTheRetry) {
  GrantedScript script;
  const OpId first = script.send_push(0, kSecond / 2);
  const std::uint64_t push_id = script.last_id;
  script.advance(kSecond / 2);
  EXPECT_EQ(script.status(first), Status::kTimeout);
  EXPECT_EQ(script.text(first),
            "push(0) of worker 3 not confirmed after 500 ms: connected to unix:/run/a, which has "
            "not answered yet");
  EXPECT_EQ(script.status(script.begin()), Status::kState) << "it is not confirmed yet";
  EXPECT_EQ(script.status(script.push(1)), Status::kWrongIteration);
  const OpId second = script.push(0);
  EXPECT_TRUE(script.quiet()) << "it was sent already";
  script.answer(push_id, wire::Pushed{0, false, false});
  EXPECT_EQ(script.status(second), Status::kOk);
  script.granted(1);
}

TEST(Session, AnAckThatComesBetweenTwoPushesIsKept) {
  GrantedScript script;
  script.send_push(0, 0);
  script.advance(0);
  script.answer(wire::Pushed{0, true, true});
  const OpId op = script.push(0);
  EXPECT_TRUE(std::get<PushResult>(script.end(op).result).late);
  EXPECT_TRUE(script.quiet());
  script.granted(1);
}

TEST(Session, AJoinThatTimedOutIsTakenBackByLeaving) {
  WelcomedScript script;
  const OpId op = script.start_join(Script::request(), kSecond / 2);
  script.take<wire::Join>();
  const std::uint64_t join_id = script.last_id;
  script.advance(kSecond / 2);
  EXPECT_EQ(script.status(op), Status::kTimeout);
  EXPECT_THAT(script.text(op),
              StartsWith("join of worker 'w' to job 'mf' not answered after 500 ms: connected to"));
  script.answer(join_id, Script::joined());
  EXPECT_EQ(script.take<wire::Leave>().worker.incarnation, 11U);
  script.answer(wire::Ok{});
  EXPECT_TRUE(script.quiet());
}

TEST(Session, AJoinThatTimedOutIsTakenOverByTheSameJoin) {
  WelcomedScript script;
  script.start_join(Script::request(), 0);
  script.take<wire::Join>();
  script.advance(0);
  const OpId op = script.start_join(Script::request());
  EXPECT_TRUE(script.quiet());
  script.answer(Script::joined());
  EXPECT_EQ(script.status(op), Status::kOk);
  EXPECT_TRUE(script.quiet()) << "nobody leaves";
}

// ---- Stop, re-sync, explain, cancel, release, close ---------------------------------------------

TEST(Session, StopEndsBeginsNowAndLater) {
  JoinedScript script;
  const OpId waiting = script.ask_begin();
  const std::uint64_t begin_id = script.last_id;
  script.notify(wire::StopNotice{{5, 3, 1, 11}, "enough"});
  EXPECT_EQ(script.step(waiting).flags, wire::kStepStop);
  script.answer(begin_id, wire::Granted{0, wire::kStepStop, 0});  // its own answer comes too
  EXPECT_EQ(script.step(script.begin()).flags, wire::kStepStop);
  const OpId op = script.leave();
  script.take<wire::Leave>();
  script.refuse(Status::kStopped, "the job has ended");
  EXPECT_EQ(script.status(op), Status::kOk) << "nobody waits for it, which is what was asked";
}

TEST(Session, StopInAGrantOrInAnErrorIsAStopToo) {
  JoinedScript script;
  OpId op = script.ask_begin();
  script.answer(wire::Granted{0, wire::kStepStop, 0});
  EXPECT_EQ(script.step(op).flags, wire::kStepStop);

  Script other;
  other.join_one();
  op = other.begin();
  other.take<wire::Begin>();
  other.refuse(Status::kStopped, "the job has ended");
  EXPECT_EQ(other.step(op).flags, wire::kStepStop);
}

TEST(Session, AStopWhileComputingLetsThePushGoOut) {
  GrantedScript script;
  script.notify(wire::StopNotice{{5, 3, 1, 11}, "enough"});
  const OpId op = script.send_push(0);
  script.refuse(Status::kStopped, "job 'mf' has ended");
  EXPECT_EQ(script.status(op), Status::kStopped);
  EXPECT_EQ(script.step(script.begin()).flags, wire::kStepStop);
}

TEST(Session, AResyncRaisesTheFlagForThisIterationOnly) {
  JoinedScript script;
  const wire::WorkerRef ref{5, 3, 1, 11};
  script.notify(wire::ResyncNotice{ref, 0});
  EXPECT_EQ(*script.signals->flag(), 0U) << "nothing is computed yet";
  script.granted(0);
  script.notify(wire::ResyncNotice{ref, 1});
  script.notify(wire::ResyncNotice{{5, 3, 1, 10}, 0});
  script.notify(wire::ResyncNotice{{5, 2, 1, 11}, 0});
  EXPECT_EQ(*script.signals->flag(), 0U) << "of another iteration, incarnation or worker";
  script.notify(wire::ResyncNotice{ref, 0});
  EXPECT_EQ(*script.signals->flag(), 1U);
  script.pushed(0);
  script.granted(1);
  EXPECT_EQ(*script.signals->flag(), 0U) << "a grant clears it";
  script.notify(wire::ResyncNotice{ref, 0});
  EXPECT_EQ(*script.signals->flag(), 0U) << "late";
}

TEST(Session, NotificationsOfUnknownWorkersOrTypesAreSkipped) {
  JoinedScript script;
  script.notify(wire::StopNotice{{9, 9, 9, 9}, ""});
  script.notify(wire::StatusReply{});  // stands for a notification that only a newer peer sends
  script.answer(99999, wire::Ok{});    // of a call that was given up
  EXPECT_TRUE(script.session.connected());
  script.granted(0);
}

TEST(Session, ExplainIsAnOperationOfItsOwn) {
  JoinedScript script;
  const OpId op = script.explain();
  script.take<wire::Explain>();
  Explanation explanation;
  explanation.rule = "bsp";
  script.answer(explanation);
  EXPECT_EQ(std::get<Explanation>(script.end(op).result), explanation);
  const OpId slow = script.explain(0);
  script.take<wire::Explain>();
  script.advance(0);
  EXPECT_EQ(script.status(slow), Status::kTimeout);
}

TEST(Session, CancelWithdrawsAStandingBegin) {
  JoinedScript script;
  const OpId nothing = script.cancel_begin();
  EXPECT_EQ(script.status(nothing), Status::kOk);
  EXPECT_TRUE(script.quiet());
  const OpId begin = script.ask_begin();
  const std::uint64_t begin_id = script.last_id;
  const OpId cancel = script.cancel_begin();
  EXPECT_EQ(script.status(begin), Status::kCancelled);
  EXPECT_EQ(script.take<wire::CancelBegin>().iteration, 0);
  script.answer(begin_id, wire::Error{Status::kCancelled, "cancelled by the caller"});
  script.confirmed(cancel);
  script.granted(0);  // asked for anew
}

TEST(Session, AReleasedWorkerGivesUpItsBeginAndKeepsItsPlace) {
  JoinedScript script;
  script.ask_begin(0);
  script.explained_after(0);
  script.session.release(script.worker, script.now);
  EXPECT_EQ(script.take<wire::CancelBegin>().iteration, 0);
  script.answer(wire::Ok{});
  script.reconnect();
  EXPECT_EQ(script.take<wire::Join>().incarnation, 11U);
}

TEST(Session, CloseCancelsEverythingAndSaysNothingMore) {
  JoinedScript script;
  const OpId begin = script.ask_begin();
  const OpId explain = script.explain();
  const OpId join = script.start_join(Script::request("other", -1));
  script.session.close();
  script.collect();
  EXPECT_EQ(script.status(begin), Status::kCancelled);
  EXPECT_EQ(script.status(explain), Status::kCancelled);
  EXPECT_EQ(script.status(join), Status::kCancelled);
  EXPECT_FALSE(script.session.wish().up);
  EXPECT_EQ(script.session.next_deadline(), kNever);
  EXPECT_EQ(script.status(script.begin()), Status::kClosed);
  EXPECT_EQ(script.status(script.start_join(Script::request())), Status::kClosed);
}

}  // namespace
}  // namespace syncd::client
