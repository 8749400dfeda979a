// A session's connection itself: back-off, endpoints, heartbeats, daemons that are away, refuse, go
// away or do not talk sense.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;

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
  script.session.connect({1, script.deadline(0)});
  script.session.on_time(script.now);
  script.collect();
  EXPECT_THAT(script.text(1), HasSubstr("unix:/run/a: no connection within 5 s"));
  EXPECT_THAT(script.text(1), HasSubstr("tcp:b:7117: no Welcome within 5 s"));
}

// ---- Several daemons, of which one at a time takes connections ----------------------------------

SessionOptions three_daemons() {
  SessionOptions options = two_endpoints();
  options.link.endpoints = {"tls:a:7117", "tls:b:7117", "tls:c:7117"};
  options.link.several_daemons = true;
  return options;
}

// When the next attempt starts after one that fails at once, and at which endpoint.
std::pair<TimeUs, std::size_t> next_attempt(Script& script) {
  const TimeUs delay = delays(script, 1).front();
  return {delay, script.session.wish().endpoint};
}

using Attempt = std::pair<TimeUs, std::size_t>;

TEST(SeveralDaemons, TheFirstRoundTakesNoTime) {
  Script script(three_daemons());
  EXPECT_EQ(script.session.wish().endpoint, 0U);
  EXPECT_EQ(next_attempt(script), Attempt(0, 1U));
  EXPECT_EQ(next_attempt(script), Attempt(0, 2U));
  script.welcome();
  EXPECT_TRUE(script.session.connected());
}

TEST(SeveralDaemons, LaterRoundsAreSpacedWithAShortPauseBetween) {
  Script script(three_daemons());
  delays(script, 2);
  for (unsigned round = 0; round < kFirstRounds + 4; ++round) {
    const auto [pause_us, first] = next_attempt(script);
    const TimeUs max_us = round < kFirstRounds ? kFirstRoundsPauseMaxUs : kRoundPauseMaxUs;
    EXPECT_GT(pause_us, 0);
    EXPECT_LE(pause_us, max_us) << round;
    EXPECT_GE(pause_us, std::min(kBackoffMinUs << std::min(round, 8U), max_us) / 2) << round;
    EXPECT_EQ(first, 0U);
    EXPECT_EQ(next_attempt(script), Attempt(kEndpointSpacingUs, 1U));
    EXPECT_EQ(next_attempt(script), Attempt(kEndpointSpacingUs, 2U));
  }
}

TEST(SeveralDaemons, TheOneThatWasLostIsTriedLast) {
  Script script(three_daemons());
  script.cut("connection refused");
  script.join_one();
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  script.advance(3 * kSecond);
  EXPECT_EQ(next_attempt(script), Attempt(0, 2U)) << "the next one at once";
  EXPECT_EQ(next_attempt(script), Attempt(kEndpointSpacingUs, 0U));
  EXPECT_EQ(next_attempt(script), Attempt(kEndpointSpacingUs, 1U));
  script.resumed(0);
  script.granted(0);
}

TEST(SeveralDaemons, OneThatGoesAwayInGoodOrderIsLeftForTheNext) {
  JoinedScript script{three_daemons()};
  script.notify(wire::ShutdownNotice{"upgrade"});
  script.cut("the daemon closed the connection");
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  script.resumed(0);
  script.granted(0);
}

TEST(SeveralDaemons, OneThatSwallowsPacketsGetsASecondAtFirst) {
  Script script(three_daemons());
  for (const int seconds : {1, 2, 4, 5, 5}) {
    const int connect_seconds = std::min(seconds, 2);
    for (std::size_t endpoint : {0U, 1U, 2U}) {
      script.await_wish();
      EXPECT_EQ(script.session.wish().endpoint, endpoint);
      const std::uint64_t number = script.session.wish().number;
      const bool connects = endpoint == 1;
      if (connects) script.advance(kSecond / 2);
      if (connects) script.connect();
      const TimeUs left = (connects ? seconds : connect_seconds) * kSecond;
      script.advance(left - (connects ? kSecond / 2 : 0) - 1);
      EXPECT_EQ(script.session.wish().number, number) << seconds;
      script.advance(1);
      EXPECT_NE(script.session.wish().number, number) << seconds;
      EXPECT_EQ(script.session.wish().up, endpoint != 2) << "it took longer than the spacing";
    }
    const OpId op = script.next_op++;
    script.session.connect({op, script.deadline(0)});
    script.session.on_time(script.now);
    script.collect();
    const std::string connection = "no connection within " + std::to_string(connect_seconds);
    EXPECT_THAT(script.text(op),
                HasSubstr("tls:a:7117: " + connection +
                          " s; tls:b:7117: no "
                          "Welcome within " +
                          std::to_string(seconds) + " s; tls:c:7117: " + connection + " s"));
  }
}

TEST(SeveralDaemons, AfterAWelcomeTheLimitIsShortAgain) {
  Script script(three_daemons());
  script.advance(20 * kSecond);
  script.join_one();
  script.advance(3 * kSecond);
  script.cut();
  script.connect();
  const std::uint64_t number = script.session.wish().number;
  script.advance(kFirstHandshakeTimeoutUs);
  EXPECT_NE(script.session.wish().number, number);
}

// A machine that is off swallows packets. It must not keep the client from the member that leads
// meanwhile; only later is it taken into account that the network may be slow.
TEST(SeveralDaemons, AMachineThatIsOffHoldsUpNobodyThatWasServed) {
  Script script(three_daemons());
  script.cut("connection refused");
  script.join_one();
  script.advance(3 * kSecond);
  script.cut();
  const auto time_at_the_dead_one = [&] {
    while (script.session.wish().endpoint != 1) next_attempt(script);
    const TimeUs start = script.now;
    const std::uint64_t number = script.session.wish().number;
    while (script.session.wish().number == number && script.session.wish().up) script.advance(1000);
    return script.now - start;
  };
  for (unsigned round = 0; round < kFirstRounds; ++round) {
    EXPECT_EQ(time_at_the_dead_one(), kFailoverTimeoutUs) << round;
    script.await_wish();
  }
  EXPECT_EQ(time_at_the_dead_one(), kConnectTimeoutUs);
  const OpId op = script.next_op++;
  script.session.connect({op, script.deadline(0)});
  script.session.on_time(script.now);
  script.collect();
  EXPECT_THAT(script.text(op), HasSubstr("tls:b:7117: no connection within 2 s"));
}

// Its system accepts connections; the process does not answer.
TEST(SeveralDaemons, AnotherHasItsSecondForTheHelloAndOneThatHangsHasNot) {
  Script script(three_daemons());
  script.join_one();
  while (script.session.wish().endpoint == 0) script.advance(1000);  // nothing comes
  script.await_wish();
  const auto patience = [&] {
    script.connect();
    const TimeUs start = script.now;
    const std::uint64_t number = script.session.wish().number;
    while (script.session.wish().number == number && script.session.wish().up) script.advance(1000);
    script.await_wish();
    return script.now - start;
  };
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  EXPECT_GE(patience(), kFirstHandshakeTimeoutUs);
  EXPECT_EQ(script.session.wish().endpoint, 2U);
  EXPECT_GE(patience(), kFirstHandshakeTimeoutUs);
  EXPECT_EQ(script.session.wish().endpoint, 0U);
  EXPECT_LE(patience(), kFailoverTimeoutUs + kFirstRoundsPauseMaxUs);
  // It may only have been cut off, and its Hello take long.
  TimeUs last = 0;
  for (unsigned round = 1; round <= kSilentRounds; ++round) {
    patience();
    patience();
    EXPECT_EQ(script.session.wish().endpoint, 0U);
    last = patience();
  }
  EXPECT_GE(last, kFirstHandshakeTimeoutUs);
}

TEST(SeveralDaemons, OneRoundIsOverOnceEachHadItsFullTime) {
  SessionOptions options = three_daemons();
  options.one_round = true;
  Script script(options);
  script.session.connect({1, script.deadline(60 * kSecond)});
  const TimeUs start = script.now;
  for (const int round : {0, 1}) {
    script.await_wish();
    ASSERT_EQ(script.session.wish().endpoint, 0U);
    script.cut("connection refused");
    script.await_wish();
    script.advance_to(script.session.next_deadline());  // b swallows packets
    script.await_wish();
    script.cut("connection refused");
    EXPECT_EQ(script.done(1), round == 1) << "b may be slow";
  }
  EXPECT_EQ(script.text(1),
            "no daemon answered: tls:a:7117: connection refused; tls:b:7117: no connection within "
            "2 s; tls:c:7117: connection refused");
  EXPECT_LT(script.now - start, 4 * kSecond);
}

TEST(SeveralDaemons, CallsFailOnceNoneHasAnsweredForTooLong) {
  SessionOptions options = three_daemons();
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
            "begin(0) of worker 3: no connection to a daemon for 30.0 s (tls:a:7117: connection "
            "refused; tls:b:7117: connection refused; tls:c:7117: connection refused)");
}

TEST(SeveralDaemons, ARefusalIsGivenOnceAllHaveRefused) {
  Script lucky(three_daemons());
  lucky.start_connecting();
  lucky.refuse(Status::kAuth, "wrong token");
  EXPECT_FALSE(lucky.done(1));
  lucky.welcome();
  EXPECT_EQ(lucky.session.wish().endpoint, 1U);
  EXPECT_EQ(lucky.status(1), Status::kOk);

  Script unlucky(three_daemons());
  unlucky.start_connecting();
  unlucky.refuse(Status::kAuth, "wrong token");
  unlucky.cut("connection refused");
  EXPECT_FALSE(unlucky.done(1));
  unlucky.connect();
  unlucky.refuse(Status::kAuth, "unknown token");
  EXPECT_EQ(unlucky.status(1), Status::kAuth);
  EXPECT_EQ(unlucky.text(1),
            "tls:a:7117: the daemon refused the connection: wrong token; tls:b:7117: connection "
            "refused; tls:c:7117: the daemon refused the connection: unknown token");
}

TEST(SeveralDaemons, TheSentenceAboutAllIsBounded) {
  SessionOptions options = three_daemons();
  options.link.endpoints.resize(16, "tls:z:7117");
  Script script(options);
  script.session.connect({1});
  std::string long_text;
  for (int i = 0; i < 5000; ++i) long_text += "\u00e4";
  for (int i = 0; i < 16; ++i) {
    script.connect();
    script.refuse(Status::kAuth, long_text);
  }
  EXPECT_EQ(script.status(1), Status::kAuth);
  const std::string text = script.text(1);
  EXPECT_LT(text.size(), 16U * 220U);
  EXPECT_THAT(text, testing::EndsWith("\u00e4")) << "no half a character";
}

// ---- A daemon that is away ----------------------------------------------------------------------

TEST(Unreachable, TheFirstConnectionFailsWithEveryEndpointsReason) {
  Script script(two_endpoints());
  script.session.connect({1, script.deadline(10 * kSecond)});
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

TEST(Unreachable, AfterOneRoundIfThatIsAskedFor) {
  SessionOptions options = two_endpoints();
  options.one_round = true;
  Script script(options);
  script.session.connect({1, script.deadline(10 * kSecond)});
  script.cut("no such file");
  EXPECT_FALSE(script.done(1));
  script.cut("connection refused");
  EXPECT_EQ(script.status(1), Status::kUnreachable);
  EXPECT_EQ(script.text(1),
            "no daemon answered: unix:/run/a: no such file; tcp:b:7117: connection refused");
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
  const OpId op = script.send_push(0);
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
  script.push_counted(retry, 0);
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
  JoinedScript script;
  script.advance(3 * kSecond);
  script.cut("connection reset by peer");
  script.cut("connection refused");  // the first attempt follows at once
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
  JoinedScript script;
  const OpId op = script.ask_begin(kSecond / 2);
  script.advance(kSecond / 2);
  script.take<wire::Explain>();
  script.cut("connection reset by peer");
  EXPECT_EQ(script.status(op), Status::kTimeout);
  EXPECT_THAT(script.text(op), HasSubstr("the connection was lost just now (unix:/run/a: "
                                         "connection reset by peer)"));
}

// ---- Heartbeats ---------------------------------------------------------------------------------

TEST(Heartbeat, IsSentWhenNothingElseWas) {
  JoinedScript script;
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
  WelcomedScript script;
  script.answer(17, wire::Heartbeat{});
  script.take<wire::HeartbeatAck>();
  EXPECT_EQ(script.last_id, 17U);
}

TEST(Heartbeat, SilenceMeansThatTheConnectionIsDead) {
  JoinedScript script;
  const std::uint64_t number = script.session.wish().number;
  script.advance(3 * kSecond);
  const std::vector<std::uint8_t> bytes = script.frame(0, wire::HeartbeatAck{});
  script.feed({bytes.data(), 1});  // any byte is a sign of life
  script.advance(5 * kSecond - 1);
  EXPECT_EQ(script.session.wish().number, number);
  script.advance(1);
  EXPECT_NE(script.session.wish().number, number);
  EXPECT_FALSE(script.session.connected());
  EXPECT_THAT(script.text_now(script.begin(0)),
              HasSubstr("nothing received for 5.0 s: the connection is dead"));
}

TEST(Heartbeat, WhatAWorkerAsksForConcernsItsOwnSilence) {
  WelcomedScript script;
  JoinRequest request = Script::request();
  request.heartbeat_timeout_ms = 800;
  script.start_join(request);
  script.take<wire::Join>();
  wire::Joined joined = Script::joined();
  joined.heartbeat_timeout_ms = 800;
  script.answer(joined);
  script.advance(kSecond / 5 - 1);
  EXPECT_TRUE(script.quiet());
  script.advance(1);
  script.take<wire::Heartbeat>();
  script.advance(5 * kSecond - kSecond / 5 - 1);
  EXPECT_TRUE(script.session.connected()) << "a slow daemon gets its usual time";
  script.advance(1);
  EXPECT_FALSE(script.session.connected());
}

// ---- Daemons that refuse, or talk nonsense ------------------------------------------------------

TEST(Handshake, AProtocolThatWeDoNotSpeakIsNamedWithOurs) {
  Script script;
  script.start_connecting();
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
  script.start_connecting();
  script.refuse(Status::kProtocol, "this daemon speaks protocol versions 7 to 8");
  EXPECT_EQ(script.status(1), Status::kProtocol);
  EXPECT_THAT(script.text(1), HasSubstr("this daemon speaks protocol versions 7 to 8"));
  EXPECT_THAT(script.text(1), HasSubstr("this library speaks protocol versions 1 to 1"));
}

TEST(Handshake, ARefusalFailsTheFirstConnectionOnlyWhenNobodyElseIsLeftToAsk) {
  Script script(two_endpoints());
  script.start_connecting();
  script.refuse(Status::kAuth, "wrong token");
  EXPECT_FALSE(script.done(1));
  EXPECT_EQ(script.session.wish().endpoint, 1U);
  script.welcome();
  EXPECT_EQ(script.status(1), Status::kOk);

  Script unlucky(two_endpoints());
  unlucky.session.connect({1});
  unlucky.connect();
  unlucky.refuse(Status::kAuth, "wrong token");
  unlucky.cut("connection refused");
  EXPECT_EQ(unlucky.status(1), Status::kAuth);
  EXPECT_EQ(unlucky.text(1), "unix:/run/a: the daemon refused the connection: wrong token");
}

TEST(Handshake, ARefusalThatMayPassIsWaitedOut) {
  Script script;
  script.start_connecting();
  script.refuse(Status::kShutdown, "shutting down");
  EXPECT_FALSE(script.done(1));
  script.welcome();
  EXPECT_EQ(script.status(1), Status::kOk);
}

TEST(Handshake, ADaemonThatIsFullIsAskedAgainUntilTheTimeIsOver) {
  Script script;
  script.session.connect({1, script.deadline(kSecond)});
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
  script.start_connecting();
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
    GrantedScript script;
    const OpId op = script.send_push(0, kSecond);
    const std::uint64_t number = script.session.wish().number;
    script.feed(bytes);
    EXPECT_NE(script.session.wish().number, number);
    EXPECT_THAT(script.text_now(script.explain(0)),
                HasSubstr("the daemon sent something that is not a message"));
    script.resumed(0);
    EXPECT_EQ(script.take<wire::Push>().iteration, 0);
    script.push_counted(op, 0);
  }
}

TEST(Garbage, WhatFollowsItIsNotRead) {
  JoinedScript script;
  const OpId op = script.ask_begin();
  std::vector<std::uint8_t> bytes = {0, 0, 0, 0};
  const auto grant = script.frame(script.last_id, wire::Granted{0, 0, 0});
  bytes.insert(bytes.end(), grant.begin(), grant.end());
  script.feed(bytes);
  EXPECT_FALSE(script.done(op));
}

TEST(Garbage, AnErrorAboutTheConnectionItselfIsRemembered) {
  JoinedScript script;
  script.notify(wire::Error{Status::kLimit, "too many workers on one connection"});
  EXPECT_FALSE(script.session.connected());
  EXPECT_THAT(script.text_now(script.begin(0)), HasSubstr("too many workers on one connection"));
}

// ---- A daemon that goes away in good order ------------------------------------------------------

TEST(Shutdown, NothingNewIsSentAndAnswersAreStillRead) {
  GrantedScript script;
  const OpId push = script.send_push(0);
  const std::uint64_t push_id = script.last_id;
  script.notify(wire::ShutdownNotice{"upgrade"});
  script.answer(push_id, wire::Pushed{0, false, false});
  EXPECT_EQ(script.status(push), Status::kOk);
  const OpId begin = script.begin();
  EXPECT_TRUE(script.quiet());
  EXPECT_THAT(script.text_now(script.explain(0)),
              HasSubstr("the daemon at unix:/run/a is shutting down"));
  script.cut("the daemon closed the connection");
  EXPECT_THAT(script.text_now(script.explain(0)),
              HasSubstr("the daemon is shutting down: upgrade"));
  script.resumed(1);
  script.take<wire::Begin>();
  script.begin_granted(begin, 1);
}

TEST(Shutdown, ARequestThatIsRefusedForItIsSentAgainElsewhere) {
  for (const bool announced : {false, true}) {
    JoinedScript script;
    const OpId op = script.ask_begin();
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
  JoinedScript script;
  script.notify(wire::ShutdownNotice{"upgrade"});
  for (int i = 0; i < 49; ++i) {
    script.advance(kSecond / 10);
    script.feed(script.frame(0, wire::HeartbeatAck{}));
  }
  EXPECT_TRUE(script.session.connected());
  script.advance(kSecond / 10);
  EXPECT_FALSE(script.session.connected());
}

// ---- Requests that are no worker's --------------------------------------------------------------

TEST(Ask, GivesTheAnswerOrTheError) {
  Script script;
  script.welcome();
  script.session.ask({2, script.deadline(kSecond), script.now}, wire::JobsRequest{});
  script.take<wire::JobsRequest>();
  wire::JobsReply reply;
  reply.omitted = 3;
  script.answer(reply);
  const auto answer = script.result<AskResult>(2).answer;
  ASSERT_TRUE(answer != nullptr && std::holds_alternative<wire::JobsReply>(*answer));
  EXPECT_EQ(std::get<wire::JobsReply>(*answer).omitted, 3U);
  script.session.ask({3, script.deadline(kSecond), script.now}, wire::StopJobRequest{"j", ""});
  script.take<wire::StopJobRequest>();
  script.answer(wire::Error{Status::kUnknownJob, "there is no job 'j'"});
  EXPECT_EQ(script.status(3), Status::kUnknownJob);
  EXPECT_EQ(script.text(3), "there is no job 'j'");
  script.session.ask({4, script.deadline(kSecond), script.now}, wire::StatusRequest{});
  script.take<wire::StatusRequest>();
  script.answer(wire::Error{Status::kOk, "an error that says it is none"});
  EXPECT_EQ(script.status(4), Status::kProtocol);
}

TEST(Ask, IsSentOnceAndFailsWithItsConnection) {
  Script script;
  script.session.ask({2, script.deadline(kSecond), script.now}, wire::StatusRequest{});
  script.collect();
  EXPECT_EQ(script.status(2), Status::kUnreachable);
  script.welcome();
  script.session.ask({3, script.deadline(kSecond), script.now}, wire::StatusRequest{});
  script.take<wire::StatusRequest>();
  script.cut();
  EXPECT_EQ(script.status(3), Status::kUnreachable);
  script.welcome();
  EXPECT_TRUE(script.quiet());
}

TEST(Ask, EndsAtItsDeadlineAndALateAnswerIsIgnored) {
  Script script;
  script.welcome();
  script.session.ask({2, script.deadline(kSecond), script.now}, wire::StatusRequest{});
  script.take<wire::StatusRequest>();
  script.advance(kSecond);
  EXPECT_EQ(script.status(2), Status::kTimeout);
  EXPECT_EQ(script.text(2), "unix:/run/a did not answer within 1.0 s");
  script.answer(wire::StatusReply{});
  EXPECT_FALSE(script.done(3));
}

TEST(Ask, EndsWithTheSession) {
  Script script;
  script.welcome();
  script.session.ask({2, script.deadline(kSecond), script.now}, wire::StatusRequest{});
  script.session.close();
  script.collect();
  EXPECT_EQ(script.status(2), Status::kCancelled);
}

}  // namespace
}  // namespace syncd::client
