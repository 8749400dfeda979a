// A session whose connection breaks: back-off, resending, heartbeats, fencing, daemons that go away
// or do not talk sense.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr TimeUs kSecond = Script::kSecond;

// ---- Resending ----------------------------------------------------------------------------------

TEST(Reconnect, AnUnconfirmedPushIsSentAgainOncePerConnection) {
  Script script;
  script.join_one();
  script.granted(0);
  script.pushed(0);
  script.granted(1);
  const OpId op = script.push(1);
  script.take<wire::Push>();
  for (int i = 0; i < 3; ++i) {
    script.cut();
    script.welcome();
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
  Script script;
  script.join_one();
  const OpId op = script.begin();
  script.take<wire::Begin>();
  for (int i = 0; i < 3; ++i) {
    script.cut();
    script.resumed(0);
    EXPECT_EQ(script.take<wire::Begin>().iteration, 0);
    EXPECT_TRUE(script.quiet());
  }
  script.answer(wire::Granted{0, 0, 0});
  EXPECT_EQ(script.step(op).iteration, 0);
}

TEST(Reconnect, AnAnswerOfTheLastConnectionIsVoid) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.push(0);
  script.take<wire::Push>();
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
  Script script;
  script.welcome();
  for (std::uint32_t rank : {2U, 0U, 1U}) {
    script.start_join(Script::request("w" + std::to_string(rank), static_cast<int>(rank)));
    script.take<wire::Join>();
    script.answer(Script::joined(0, 20 + rank, rank));
  }
  script.cut();
  script.welcome();
  EXPECT_EQ(script.take<wire::Join>().name, "w2");
  EXPECT_EQ(script.take<wire::Join>().name, "w0");
  EXPECT_EQ(script.take<wire::Join>().name, "w1");
}

TEST(Reconnect, ANewIdentityIsUsedFromThenOn) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.push(0);
  script.take<wire::Push>();
  script.cut();
  script.welcome();
  script.take<wire::Join>();
  wire::Joined joined = Script::joined(0, 42);
  joined.worker.epoch = 2;
  script.answer(joined);
  EXPECT_EQ(script.take<wire::Push>().worker, (wire::WorkerRef{5, 3, 2, 42}));
  script.answer(wire::Pushed{0, false, false});
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Reconnect, ABeginFollowsTheWorkerToWhereTheDaemonPutsIt) {
  Script script;
  script.join_one();
  const OpId op = script.begin();
  script.take<wire::Begin>();
  script.cut();
  script.resumed(9);
  EXPECT_EQ(script.take<wire::Begin>().iteration, 9);
  script.answer(wire::Granted{9, 0, 0});
  EXPECT_EQ(script.step(op).iteration, 9);
  EXPECT_EQ(script.step(op).flags, wire::kStepSkip | wire::kStepPull) << "the caller was due at 0";
}

TEST(Reconnect, AGrantThatWaitsForItsCallerSurvives) {
  Script script;
  script.join_one();
  script.begin(0);
  script.take<wire::Begin>();
  const std::uint64_t begin_id = script.last_id;
  script.advance(0);
  script.take<wire::Explain>();
  script.answer(Explanation{});
  script.answer(begin_id, wire::Granted{0, 0, 0});
  script.cut();
  EXPECT_EQ(script.resumed(0).granted, 0);
  EXPECT_TRUE(script.quiet());
  EXPECT_EQ(script.step(script.begin()).iteration, 0);
}

TEST(Reconnect, CallsMadeWhileDisconnectedWait) {
  Script script;
  script.join_one();
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
  Script script;
  script.welcome();
  const OpId op = script.start_join(Script::request());
  script.take<wire::Join>();
  script.cut();
  script.welcome();
  script.take<wire::Join>();
  script.refuse(Status::kRankTaken, "worker 3 is connected already");
  EXPECT_FALSE(script.done(op));
  script.advance(kRankRetryUs);
  script.take<wire::Join>();
  script.answer(Script::joined());
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Reconnect, APlaceThatSomebodyElseHoldsIsNotAskedForForEver) {
  Script script;
  script.welcome();
  const OpId op = script.start_join(Script::request());
  script.take<wire::Join>();
  script.cut();
  script.welcome();
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
    Script script;
    script.join_one();
    const OpId op = script.leave();
    script.take<wire::Leave>();
    script.cut();
    script.welcome();
    script.take<wire::Join>();
    script.refuse(refusal, "gone");
    EXPECT_EQ(script.status(op), Status::kOk);
  }
}

TEST(Reconnect, AWorkerOfASwitchedJobComesBackUnderTheNewPolicy) {
  Script script;
  script.join_one();
  script.cut();
  script.welcome();
  EXPECT_EQ(script.take<wire::Join>().policy, "ssp:3");
  script.refuse(Status::kPolicyMismatch, "job 'mf' runs policy 'asp'");
  EXPECT_EQ(script.take<wire::Join>().policy, "");
  script.answer(Script::joined());
  script.granted(0);
}

TEST(Reconnect, ARefusalThatMayPassFailsTheCallAndTheNextAsksAgain) {
  Script script;
  script.join_one();
  script.granted(0);
  OpId op = script.push(0);
  script.take<wire::Push>();
  script.cut();
  script.welcome();
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
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.push(0);
  script.take<wire::Push>();
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
  Script script;
  script.join_one();
  const OpId op = script.begin();
  script.take<wire::Begin>();
  script.refuse(Status::kFenced, "declared lost");
  script.notify(wire::FencedNotice{{5, 3, 1, 11}, "declared lost"});
  script.take<wire::Join>();
  EXPECT_TRUE(script.quiet()) << "refusal and notice ask for one Join";
  script.answer(Script::joined(6, 12));
  EXPECT_EQ(script.take<wire::Begin>().iteration, 6);
  script.answer(wire::Granted{6, 0, 0});
  EXPECT_EQ(script.step(op).iteration, 6);
  EXPECT_EQ(script.step(op).flags, wire::kStepSkip | wire::kStepPull);
}

TEST(Fencing, ARefusedJoinIsFatalForEveryCallOfThisWorker) {
  Script script;
  script.join_one();
  const OpId begin = script.begin();
  script.take<wire::Begin>();
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
  script.cut();
  script.welcome();
  EXPECT_TRUE(script.quiet()) << "it does not try to come back";
  // Another one may take its name.
  script.start_join(Script::request());
  EXPECT_EQ(script.take<wire::Join>().incarnation, 0U);
}

TEST(Fencing, TakenBackAndThrownOutWithNothingBetweenIsTheEnd) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.push(0);
  script.take<wire::Push>();
  script.refuse(Status::kFenced, "lost");
  script.take<wire::Join>();
  script.answer(Script::joined(0, 12));
  script.take<wire::Push>();
  script.refuse(Status::kFenced, "lost again");
  EXPECT_EQ(script.status(op), Status::kFenced);
  EXPECT_TRUE(script.quiet());
}

TEST(Fencing, AWorkerThatNobodyCallsForComesBackWithItsNextCall) {
  Script script;
  script.join_one();
  script.granted(0);
  script.notify(wire::FencedNotice{{5, 3, 1, 10}, "an earlier life"});
  script.notify(wire::FencedNotice{{5, 3, 1, 11}, "lost"});
  EXPECT_TRUE(script.quiet()) << "it may hang: the others must not wait for it again";
  script.cut();
  script.welcome();
  EXPECT_TRUE(script.quiet());
  const OpId op = script.push(0);
  EXPECT_EQ(script.take<wire::Join>().granted, 0);
  script.answer(Script::joined(0, 12));
  EXPECT_EQ(script.take<wire::Push>().worker.incarnation, 12U);
  script.answer(wire::Pushed{0, false, false});
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Fencing, ALeaveIsMadeUnderTheNewIncarnation) {
  Script script;
  script.join_one();
  const OpId op = script.leave();
  script.take<wire::Leave>();
  script.refuse(Status::kFenced, "lost");
  script.take<wire::Join>();
  script.answer(Script::joined(0, 12));
  EXPECT_EQ(script.take<wire::Leave>().worker.incarnation, 12U);
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kOk);
}

// ---- Back-off and endpoints ---------------------------------------------------------------------

// The delays before the next `count` attempts, each of which fails at once.
std::vector<TimeUs> delays(Script& script, int count) {
  std::vector<TimeUs> out;
  for (int i = 0; i < count; ++i) {
    script.cut("connection refused");
    const TimeUs before = script.now;
    script.await_wish();
    out.push_back(script.now - before);
  }
  return out;
}

TEST(Backoff, GrowsFromFiftyMillisecondsToTwoSecondsWithAHalfOfJitter) {
  Script script;
  const std::vector<TimeUs> all = delays(script, 12);
  TimeUs base = kBackoffMinUs;
  for (const TimeUs delay : all) {
    EXPECT_GE(delay, base / 2);
    EXPECT_LE(delay, base);
    base = std::min(base * 2, kBackoffMaxUs);
  }
  EXPECT_EQ(base, kBackoffMaxUs);
}

TEST(Backoff, IsTheSameForASeedAndDifferentForAnother) {
  SessionOptions options = one_endpoint();
  Script first(options);
  Script same(options);
  options.link.seed = 2;
  Script other(options);
  const auto expected = delays(first, 10);
  EXPECT_EQ(delays(same, 10), expected);
  EXPECT_NE(delays(other, 10), expected);
}

TEST(Backoff, CountsAHandshakeThatFailsLikeAConnectionThatFails) {
  Script script;
  delays(script, 8);
  script.connect();
  script.cut();
  const TimeUs before = script.now;
  script.await_wish();
  EXPECT_GE(script.now - before, kBackoffMaxUs / 2);
}

TEST(Backoff, GoesOnWhereAConnectionWasOfNoUseAndStartsAfreshWhereItWas) {
  Script script;
  delays(script, 8);
  script.welcome();
  script.cut();
  TimeUs before = script.now;
  script.await_wish();
  EXPECT_GE(script.now - before, kBackoffMaxUs / 2);

  script.join_one();  // an answer: of use
  script.cut();
  before = script.now;
  script.await_wish();
  EXPECT_LE(script.now - before, kBackoffMinUs);
}

TEST(Backoff, GoesThroughTheEndpointsOfARoundWithoutDelay) {
  Script script(two_endpoints());
  EXPECT_EQ(script.session.wish().endpoint, 0U);
  const TimeUs start = script.now;
  script.cut("no such file");
  EXPECT_TRUE(script.session.wish().up);
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  script.cut("connection refused");
  EXPECT_FALSE(script.session.wish().up);
  script.await_wish();
  EXPECT_EQ(script.session.wish().endpoint, 0U);
  EXPECT_GT(script.now, start);
}

TEST(Backoff, TriesTheDaemonThatItLostFirst) {
  Script script(two_endpoints());
  script.cut("no such file");
  script.join_one();
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  script.cut();
  script.await_wish();
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  script.cut("connection refused");
  EXPECT_EQ(script.session.wish().endpoint, 0U);
}

TEST(Backoff, AnAttemptThatTakesTooLongIsGivenUp) {
  Script script(two_endpoints());
  script.advance(kHandshakeTimeoutUs);
  EXPECT_EQ(script.session.wish().endpoint, 1U) << "no connection";
  script.connect();
  script.advance(kHandshakeTimeoutUs);
  EXPECT_NE(script.session.wish().number, 2U) << "no Welcome";
  script.session.connect(1, script.deadline(0));
  script.session.on_time(script.now);
  script.collect();
  EXPECT_THAT(script.text(1), HasSubstr("unix:/run/a: no connection within 5 s"));
  EXPECT_THAT(script.text(1), HasSubstr("tcp:b:7117: no Welcome within 5 s"));
}

// ---- A daemon that is away ----------------------------------------------------------------------

TEST(Unreachable, TheFirstConnectionFailsWithEveryEndpointsReason) {
  Script script(two_endpoints());
  script.session.connect(1, script.deadline(10 * kSecond));
  while (!script.done(1)) {
    script.await_wish();
    script.cut(script.session.wish().endpoint == 0 ? "no such file" : "connection refused");
    if (!script.session.wish().up) script.advance_to(script.session.next_deadline());
  }
  EXPECT_EQ(script.status(1), Status::kUnreachable);
  EXPECT_EQ(script.text(1),
            "no daemon answered within 10.0 s: unix:/run/a: no such file; tcp:b:7117: connection "
            "refused");
}

TEST(Unreachable, CallsFailOnceTheDaemonIsLostForTooLong) {
  SessionOptions options = one_endpoint();
  options.reconnect_timeout_us = 30 * kSecond;
  Script script(options);
  script.join_one();
  script.advance(3 * kSecond);
  const OpId begin = script.begin();
  script.cut("connection reset by peer");
  const TimeUs lost = script.now;
  while (script.now < lost + 30 * kSecond - 1) {
    script.advance_to(std::min(script.session.next_deadline(), lost + 30 * kSecond - 1));
    script.cut("connection refused");
  }
  EXPECT_FALSE(script.done(begin));
  script.advance(1);
  EXPECT_EQ(script.status(begin), Status::kUnreachable);
  EXPECT_EQ(script.text(begin),
            "begin(0) of worker 3: no connection to a daemon for 30.0 s (unix:/run/a: connection "
            "refused)");
  EXPECT_EQ(script.status(script.begin()), Status::kUnreachable) << "at once";
  EXPECT_EQ(script.status(script.start_join(Script::request("x", -1))), Status::kUnreachable);

  // It is tried on, and what stood still stands.
  script.resumed(0);
  EXPECT_EQ(script.take<wire::Begin>().iteration, 0);
  script.answer(wire::Granted{0, 0, 0});
  EXPECT_EQ(script.step(script.begin()).iteration, 0);
}

TEST(Unreachable, APushThatFailedSoStillCountsOnce) {
  SessionOptions options = one_endpoint();
  options.reconnect_timeout_us = kSecond;
  Script script(options);
  script.join_one();
  script.granted(0);
  const OpId op = script.push(0);
  script.take<wire::Push>();
  script.cut();
  const TimeUs lost = script.now;
  while (script.now < lost + kSecond) {
    script.advance_to(std::min(script.session.next_deadline(), lost + kSecond));
    script.cut("connection refused");
  }
  EXPECT_EQ(script.status(op), Status::kUnreachable);
  script.resumed(0);
  EXPECT_EQ(script.take<wire::Push>().iteration, 0);
  const OpId retry = script.push(0);
  EXPECT_TRUE(script.quiet());
  script.answer(wire::Pushed{0, false, false});
  EXPECT_EQ(script.status(retry), Status::kOk);
}

TEST(Unreachable, ADaemonThatAcceptsAndDropsIsNoDaemon) {
  SessionOptions options = one_endpoint();
  options.reconnect_timeout_us = 20 * kSecond;
  Script script(options);
  script.join_one();
  script.cut();
  const OpId op = script.begin();
  const TimeUs lost = script.now;
  for (int i = 0; i < 100 && !script.done(op); ++i) {
    script.welcome();
    script.cut();
    script.advance_to(script.session.next_deadline());
  }
  EXPECT_EQ(script.status(op), Status::kUnreachable);
  EXPECT_GE(script.now - lost, 20 * kSecond);
  EXPECT_LT(script.now - lost, 25 * kSecond);
}

TEST(Unreachable, ABeginThatTimesOutMeanwhileSaysSo) {
  Script script;
  script.join_one();
  script.advance(3 * kSecond);
  script.cut("connection reset by peer");
  const OpId op = script.begin(kSecond / 4);
  const TimeUs start = script.now;
  while (!script.done(op)) {
    script.advance_to(std::min(script.session.next_deadline(), start + kSecond / 4));
    if (!script.done(op)) script.cut("connection refused");
  }
  EXPECT_EQ(script.status(op), Status::kTimeout);
  EXPECT_EQ(script.text(op),
            "begin(0) of worker 3 not granted after 250 ms: no connection to a daemon for 250 ms "
            "(unix:/run/a: connection refused)");
}

TEST(Unreachable, ALinkLostWhileTheDaemonIsAskedWhyEndsTheTimeout) {
  Script script;
  script.join_one();
  const OpId op = script.begin(kSecond / 2);
  script.take<wire::Begin>();
  script.advance(kSecond / 2);
  script.take<wire::Explain>();
  script.cut("connection reset by peer");
  EXPECT_EQ(script.status(op), Status::kTimeout);
  EXPECT_THAT(script.text(op), HasSubstr("the connection was lost just now (unix:/run/a: "
                                         "connection reset by peer)"));
}

// ---- Heartbeats ---------------------------------------------------------------------------------

TEST(Heartbeat, IsSentWhenNothingElseWas) {
  Script script;
  script.join_one();
  const TimeUs start = script.now;
  script.advance(kSecond - 1);
  EXPECT_TRUE(script.quiet());
  script.advance(1);
  script.take<wire::Heartbeat>();
  EXPECT_EQ(script.last_id, 0U);
  script.answer(0, wire::HeartbeatAck{});
  script.advance_to(start + kSecond * 3 / 2);
  script.explain();
  script.take<wire::Explain>();
  script.advance_to(start + kSecond * 5 / 2 - 1);
  EXPECT_TRUE(script.quiet()) << "the request counts as one";
  script.advance(1);
  script.take<wire::Heartbeat>();
}

TEST(Heartbeat, OfTheDaemonIsAnswered) {
  Script script;
  script.welcome();
  script.answer(17, wire::Heartbeat{});
  script.take<wire::HeartbeatAck>();
  EXPECT_EQ(script.last_id, 17U);
}

TEST(Heartbeat, SilenceMeansThatTheConnectionIsDead) {
  Script script;
  script.join_one();
  const std::uint64_t number = script.session.wish().number;
  script.advance(3 * kSecond);
  const std::vector<std::uint8_t> bytes = script.frame(0, wire::HeartbeatAck{});
  script.feed({bytes.data(), 1});  // any byte is a sign of life
  script.advance(5 * kSecond - 1);
  EXPECT_EQ(script.session.wish().number, number);
  script.advance(1);
  EXPECT_NE(script.session.wish().number, number);
  EXPECT_FALSE(script.session.connected());
  const OpId op = script.begin(0);
  script.advance(0);
  EXPECT_THAT(script.text(op), HasSubstr("nothing received for 5.0 s: the connection is dead"));
}

// ---- Daemons that refuse, or talk nonsense ------------------------------------------------------

TEST(Handshake, AProtocolThatWeDoNotSpeakIsNamedWithOurs) {
  Script script;
  script.session.connect(1, {});
  script.connect();
  wire::Welcome welcome;
  welcome.protocol = 9;
  welcome.server_version = "4.5.6";
  script.answer(welcome);
  EXPECT_EQ(script.status(1), Status::kProtocol);
  EXPECT_EQ(script.text(1),
            "unix:/run/a: the daemon (version 4.5.6) speaks protocol version 9, this library "
            "speaks versions 1 to 1");
}

TEST(Handshake, ADaemonsOwnRefusalIsQuotedWithOurRange) {
  Script script;
  script.session.connect(1, {});
  script.connect();
  script.refuse(Status::kProtocol, "this daemon speaks protocol versions 7 to 8");
  EXPECT_EQ(script.status(1), Status::kProtocol);
  EXPECT_THAT(script.text(1), HasSubstr("this daemon speaks protocol versions 7 to 8"));
  EXPECT_THAT(script.text(1), HasSubstr("this library speaks protocol versions 1 to 1"));
}

TEST(Handshake, ARefusalFailsTheFirstConnectionOnlyWhenNobodyElseIsLeftToAsk) {
  Script script(two_endpoints());
  script.session.connect(1, {});
  script.connect();
  script.refuse(Status::kAuth, "wrong token");
  EXPECT_FALSE(script.done(1));
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  script.welcome();
  EXPECT_EQ(script.status(1), Status::kOk);

  Script unlucky(two_endpoints());
  unlucky.session.connect(1, {});
  unlucky.connect();
  unlucky.refuse(Status::kAuth, "wrong token");
  unlucky.cut("connection refused");
  EXPECT_EQ(unlucky.status(1), Status::kAuth);
  EXPECT_EQ(unlucky.text(1), "unix:/run/a: the daemon refused the connection: wrong token");
}

TEST(Handshake, ARefusalThatMayPassIsWaitedOut) {
  Script script;
  script.session.connect(1, {});
  script.connect();
  script.refuse(Status::kShutdown, "shutting down");
  EXPECT_FALSE(script.done(1));
  script.welcome();
  EXPECT_EQ(script.status(1), Status::kOk);
}

TEST(Handshake, ADaemonThatIsFullIsAskedAgainUntilTheTimeIsOver) {
  Script script;
  script.session.connect(1, script.deadline(kSecond));
  const TimeUs start = script.now;
  int asked = 0;
  while (!script.done(1)) {
    script.connect();
    script.refuse(Status::kLimit, "16384 connections are open, the most allowed");
    ++asked;
    script.advance_to(std::min(script.session.next_deadline(), start + kSecond));
  }
  EXPECT_EQ(script.status(1), Status::kLimit);
  EXPECT_EQ(script.now, start + kSecond);
  EXPECT_GT(asked, 2);
  EXPECT_EQ(script.text(1),
            "no daemon took us within 1.0 s: unix:/run/a: the daemon refused the connection: 16384 "
            "connections are open, the most allowed");
}

TEST(Handshake, AnotherFirstMessageIsRefused) {
  Script script;
  script.session.connect(1, {});
  script.connect();
  script.answer(wire::Granted{});
  EXPECT_EQ(script.status(1), Status::kProtocol);
  EXPECT_THAT(script.text(1), HasSubstr("first message was Granted, not Welcome"));
}

TEST(Garbage, EndsTheConnectionAndIsRemembered) {
  const std::vector<std::vector<std::uint8_t>> all = {
      {'H', 'T', 'T', 'P', '/', '1', '.', '1', ' ', '4', '0', '0'},
      {4, 0, 0, 0, 1, 2, 3, 4},
      {0, 0, 0, 0},
      {1, 0, 1, 0},  // 65537 bytes: over what we take
  };
  for (const auto& bytes : all) {
    Script script;
    script.join_one();
    script.granted(0);
    const OpId op = script.push(0, kSecond);
    script.take<wire::Push>();
    const std::uint64_t number = script.session.wish().number;
    script.feed(bytes);
    EXPECT_NE(script.session.wish().number, number);
    const OpId failed = script.explain(0);
    script.advance(0);
    EXPECT_THAT(script.text(failed), HasSubstr("the daemon sent something that is not a message"));
    script.resumed(0);
    EXPECT_EQ(script.take<wire::Push>().iteration, 0);
    script.answer(wire::Pushed{0, false, false});
    EXPECT_EQ(script.status(op), Status::kOk);
  }
}

TEST(Garbage, WhatFollowsItIsNotRead) {
  Script script;
  script.join_one();
  const OpId op = script.begin();
  script.take<wire::Begin>();
  std::vector<std::uint8_t> bytes = {0, 0, 0, 0};
  const auto grant = script.frame(script.last_id, wire::Granted{0, 0, 0});
  bytes.insert(bytes.end(), grant.begin(), grant.end());
  script.feed(bytes);
  EXPECT_FALSE(script.done(op));
}

TEST(Garbage, AnErrorAboutTheConnectionItselfIsRemembered) {
  Script script;
  script.join_one();
  script.notify(wire::Error{Status::kLimit, "too many workers on one connection"});
  EXPECT_FALSE(script.session.connected());
  const OpId op = script.begin(0);
  script.advance(0);
  EXPECT_THAT(script.text(op), HasSubstr("too many workers on one connection"));
}

// ---- A daemon that goes away in good order ------------------------------------------------------

TEST(Shutdown, NothingNewIsSentAndAnswersAreStillRead) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId push = script.push(0);
  script.take<wire::Push>();
  const std::uint64_t push_id = script.last_id;
  script.notify(wire::ShutdownNotice{"upgrade"});
  script.answer(push_id, wire::Pushed{0, false, false});
  EXPECT_EQ(script.status(push), Status::kOk);
  const OpId begin = script.begin();
  EXPECT_TRUE(script.quiet());
  const OpId why = script.explain(0);
  script.advance(0);
  EXPECT_THAT(script.text(why), HasSubstr("the daemon at unix:/run/a is shutting down"));
  script.cut("the daemon closed the connection");
  const OpId again = script.explain(0);
  script.advance(0);
  EXPECT_THAT(script.text(again), HasSubstr("the daemon is shutting down: upgrade"));
  script.resumed(1);
  script.take<wire::Begin>();
  script.answer(wire::Granted{1, 0, 0});
  EXPECT_EQ(script.step(begin).iteration, 1);
}

TEST(Shutdown, ARequestThatIsRefusedForItIsSentAgainElsewhere) {
  for (const bool announced : {false, true}) {
    Script script;
    script.join_one();
    const OpId op = script.begin();
    script.take<wire::Begin>();
    const std::uint64_t begin_id = script.last_id;
    if (announced) script.notify(wire::ShutdownNotice{""});
    script.answer(begin_id, wire::Error{Status::kShutdown, "bye"});
    EXPECT_FALSE(script.done(op));
    EXPECT_EQ(script.session.connected(), announced);
    if (announced) script.cut("the daemon closed the connection");
    script.resumed(0);
    script.take<wire::Begin>();
    script.answer(wire::Granted{0, 0, 0});
    EXPECT_EQ(script.status(op), Status::kOk);
  }
}

TEST(Shutdown, AConnectionThatIsNotClosedInTimeIsLeft) {
  Script script;
  script.join_one();
  script.notify(wire::ShutdownNotice{"upgrade"});
  for (int i = 0; i < 49; ++i) {
    script.advance(kSecond / 10);
    script.feed(script.frame(0, wire::HeartbeatAck{}));
  }
  EXPECT_TRUE(script.session.connected());
  script.advance(kSecond / 10);
  EXPECT_FALSE(script.session.connected());
}

}  // namespace
}  // namespace syncd::client
