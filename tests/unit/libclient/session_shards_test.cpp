// A session in a cluster with shards: daemons that send it to each other, to nobody, in circles, or
// to addresses that it must not use.
#include <gmock/gmock.h>

#include "proto/base/shard.h"
#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;
using testing::Not;

SessionOptions for_shard(std::int32_t shard, std::vector<std::string> endpoints = {"tcp:a:7117"}) {
  SessionOptions options;
  options.link.endpoints = std::move(endpoints);
  options.link.seed = 1;
  options.link.shard = shard;
  return options;
}

struct Shards : Script {
  using Script::Script;

  // Connects, and is welcomed by the daemon of a shard.
  wire::Hello welcomed_by(std::uint32_t shard, std::uint32_t shards) {
    const wire::Hello hello = connect();
    wire::Welcome message;
    message.protocol = kProtocolMax;
    message.heartbeat_interval_ms = 1000;
    message.heartbeat_timeout_ms = 5000;
    message.shard = shard;
    message.shards = shards;
    answer(message);
    return hello;
  }
  // Connects, and is sent on.
  wire::Hello sent_to(std::string addresses, std::uint32_t retry_after_ms = 0) {
    const wire::Hello hello = connect();
    answer(wire::Redirect{5, std::move(addresses), retry_after_ms});
    return hello;
  }
  // The endpoint that it wishes for; empty: none now.
  std::string wished() const {
    return session.wish().up ? session.endpoint(session.wish().endpoint) : std::string();
  }
  // What a connect says of all endpoints now.
  std::string errors() {
    const OpId op = next_op++;
    session.connect({op, deadline(0), now});
    session.on_time(now);
    collect();
    return text(op);
  }
};

TEST(Shard, TheHelloNamesTheOneThatIsWanted) {
  Shards any{for_shard(-1)};
  EXPECT_EQ(any.connect().shard, -1);
  Shards fifth{for_shard(5)};
  EXPECT_EQ(fifth.connect().shard, 5);
}

TEST(Shard, ConnectingSaysWhichOneWasMet) {
  Shards script{for_shard(-1)};
  script.session.connect({1, script.deadline(kSecond), script.now});
  script.welcomed_by(3, 8);
  const auto result = script.result<ConnectResult>(1);
  EXPECT_EQ(result.endpoint, "tcp:a:7117");
  EXPECT_EQ(result.shard, 3U);
  EXPECT_EQ(result.shards, 8U);
}

TEST(Shard, SeveralThreadsMayWaitForTheConnection) {
  Shards script{for_shard(5)};
  script.session.connect({1, script.deadline(kSecond), script.now});
  script.session.connect({2, script.deadline(3 * kSecond), script.now});
  script.session.connect({3, script.deadline(3 * kSecond), script.now});
  script.cut();
  script.advance(kSecond);
  EXPECT_EQ(script.status(1), Status::kUnreachable);
  EXPECT_THAT(script.text(1), HasSubstr("within 1.0 s"));
  script.session.abandon(3);
  script.welcomed_by(5, 8);
  EXPECT_EQ(script.status(2), Status::kOk);
  EXPECT_FALSE(script.done(3));
}

TEST(Shard, TheOneThatWasMetIsWantedFromThenOn) {
  Shards script{for_shard(-1, {"tcp:a:7117", "tcp:b:7117"})};
  script.welcomed_by(3, 8);
  script.cut();
  EXPECT_EQ(script.welcomed_by(3, 8).shard, 3);
}

TEST(Shard, OfASingleDaemonNoneIsWanted) {
  Shards script{for_shard(-1)};
  script.welcomed_by(0, 1);
  script.cut();
  EXPECT_EQ(script.connect().shard, -1);
}

TEST(Shard, WhoServesAnotherOneIsNotTaken) {
  Shards script{for_shard(5)};
  script.welcomed_by(3, 8);
  EXPECT_FALSE(script.session.connected());
  EXPECT_THAT(script.errors(), HasSubstr("the daemon serves shard 3 of 8, not shard 5"));
}

TEST(Shard, AWelcomeThatMakesNoSenseIsRefused) {
  for (const auto& [shard, shards] : {std::pair{0U, 0U}, {8U, 8U}, {0U, kShardsMax + 1}}) {
    Shards script{for_shard(-1)};
    script.session.connect({1, script.deadline(kSecond), script.now});
    script.welcomed_by(shard, shards);
    EXPECT_EQ(script.status(1), Status::kProtocol) << shard << " of " << shards;
  }
}

// ---- Redirects ----------------------------------------------------------------------------------

TEST(Redirect, IsFollowedAtOnce) {
  Shards script{for_shard(5)};
  const TimeUs start = script.now;
  EXPECT_EQ(script.sent_to("tcp:b:7117").shard, 5);
  EXPECT_EQ(script.wished(), "tcp:b:7117");
  EXPECT_EQ(script.now, start);
  EXPECT_EQ(script.welcomed_by(5, 8).shard, 5);
  EXPECT_TRUE(script.session.connected());
}

TEST(Redirect, EachAddressIsTriedAtOnce) {
  Shards script{for_shard(5, {"tcp:a:7117", "tcp:z:7117"})};
  const TimeUs start = script.now;
  script.sent_to("tcp:b:7117, c,tcp:[::1]:9");
  for (const char* const expected : {"tcp:b:7117", "tcp:c:7117", "tcp:[::1]:9"}) {
    EXPECT_EQ(script.wished(), expected);
    EXPECT_EQ(script.now, start);
    script.cut("connection refused");
  }
  script.await_wish();
  EXPECT_EQ(script.wished(), "tcp:z:7117") << "whose turn it is next";
}

TEST(Redirect, OneThatLeadsToADeadDaemonHoldsUpNoOther) {
  Shards script{for_shard(5, {"tcp:a:7117", "tcp:b:7117"})};
  for (int round = 0; round < 3; ++round) {
    script.await_wish();
    EXPECT_EQ(script.wished(), "tcp:a:7117");
    script.sent_to("tcp:dead:7117");
    EXPECT_EQ(script.wished(), "tcp:dead:7117");
    script.cut("connection refused");
    script.await_wish();
    EXPECT_EQ(script.wished(), "tcp:b:7117");
    script.cut("connection refused");
    script.await_wish();
    EXPECT_EQ(script.wished(), "tcp:dead:7117") << "it was learned, and has its own turn";
    script.cut("connection refused");
    EXPECT_EQ(script.wished(), "");
  }
}

TEST(Redirect, AWorkerSeesNothingOfIt) {
  Shards script{for_shard(-1, {"tcp:a:7117", "tcp:b:7117"})};
  script.welcomed_by(5, 8);
  const OpId join = script.start_join(Script::request());
  script.take<wire::Join>();
  script.answer(Script::joined());
  script.worker = std::get<JoinResult>(script.end(join).result).worker;
  const OpId begin = script.ask_begin();
  // Its daemon dies; another one takes over, of which a member knows after a while.
  script.advance(3 * kSecond);
  script.cut("connection reset by peer");
  EXPECT_EQ(script.wished(), "tcp:b:7117");
  script.sent_to("", 500);
  for (int i = 0; i < 20; ++i) {
    script.await_wish();
    script.sent_to("", 500);
  }
  EXPECT_FALSE(script.done(begin));
  script.sent_to("tcp:c:7117");
  EXPECT_EQ(script.wished(), "tcp:c:7117");
  EXPECT_EQ(script.welcomed_by(5, 8).shard, 5);
  script.take<wire::Join>();
  script.answer(Script::joined());
  script.take<wire::Begin>();
  script.begin_granted(begin, 0);
}

TEST(Redirect, WithoutAnAddressTheOnlyEndpointIsAskedAgainAfterTheTimeThatItSays) {
  Shards script{for_shard(5)};
  script.sent_to("", 700);
  EXPECT_THAT(script.errors(), HasSubstr("tcp:a:7117: no daemon serves shard 5 at the moment"));
  const TimeUs start = script.now;
  script.await_wish();
  EXPECT_GE(script.now - start, 700'000);
  script.sent_to("", UINT32_MAX);
  const TimeUs second = script.now;
  script.await_wish();
  EXPECT_EQ(script.now - second, kRetryAfterMaxUs) << "whatever it says";
  script.cut("connection refused");
  const TimeUs third = script.now;
  script.await_wish();
  EXPECT_LT(script.now - third, kRoundPauseMaxUs) << "it holds for one pause";
}

TEST(Redirect, MakesTheDaemonOneOfSeveral) {
  Shards script{for_shard(-1)};
  EXPECT_FALSE([&] {
    Shards single{for_shard(-1)};
    single.advance(kFirstHandshakeTimeoutUs);
    return single.session.wish().number != 1;
  }()) << "a single daemon gets its time";
  script.sent_to("tcp:b:7117");
  const std::uint64_t number = script.session.wish().number;
  script.advance(kFirstHandshakeTimeoutUs - 1);
  EXPECT_EQ(script.session.wish().number, number);
  script.advance(1);
  EXPECT_NE(script.session.wish().number, number);
}

// ---- Daemons that mean harm, or are broken ------------------------------------------------------

// Each attempt is sent on. How many were made until there is a pause.
int attempts_until_pause(Shards& script, const std::function<std::string(int)>& addresses) {
  script.await_wish();
  const TimeUs start = script.now;
  int attempts = 0;
  while (script.session.wish().up && script.now == start && attempts < 1000) {
    script.sent_to(addresses(attempts++));
  }
  return attempts;
}

TEST(RedirectLoop, EndsAfterEightWithAPause) {
  Shards script{for_shard(5)};
  const auto other = [&](int) {
    return std::string(script.wished() == "tcp:b:7117" ? "tcp:a:7117" : "tcp:b:7117");
  };
  EXPECT_EQ(attempts_until_pause(script, other), 1 + static_cast<int>(kFollowsMax));
  EXPECT_THAT(script.errors(), HasSubstr("we were sent on 8 times in a row"));
  for (int i = 0; i < 100; ++i) {
    EXPECT_LE(attempts_until_pause(script, other), 1 + static_cast<int>(kFollowsMax));
  }
  // Whoever is of use at last is taken.
  script.await_wish();
  script.welcomed_by(5, 8);
  EXPECT_TRUE(script.session.connected());
}

TEST(RedirectLoop, ToItselfIsNotFollowed) {
  Shards script{for_shard(5)};
  EXPECT_EQ(attempts_until_pause(script, [](int) { return "tcp:a:7117"; }), 1);
  EXPECT_THAT(
      script.errors(),
      HasSubstr("it names no address of shard 5 that we can use: 'tcp:a:7117' is that daemon "
                "itself"));
}

TEST(RedirectLoop, LearnsSixteenEndpointsAndForgetsTheOldest) {
  Shards script{for_shard(5)};
  int next = 0;
  const auto fresh = [&](int) { return "tcp:h" + std::to_string(next++) + ":1"; };
  for (int i = 0; i < 50; ++i) {
    EXPECT_LE(attempts_until_pause(script, fresh), 1 + static_cast<int>(kFollowsMax));
  }
  EXPECT_GT(next, 50);
  const std::string text = script.errors();
  std::size_t learned = 0;
  for (std::size_t at = 0; (at = text.find("; tcp:h", at)) != std::string::npos; ++at) ++learned;
  EXPECT_EQ(learned, kLearnedEndpointsMax) << text;
  EXPECT_THAT(text, HasSubstr("tcp:a:7117: ")) << "the caller's own stays";
  EXPECT_THAT(text, HasSubstr("tcp:h" + std::to_string(next - 1) + ":1: "));
  EXPECT_THAT(text, Not(HasSubstr("tcp:h0:1")));
}

TEST(RedirectLoop, ALongListIsCut) {
  Shards script{for_shard(5)};
  std::string list;
  while (list.size() < 60'000) list += "tcp:h" + std::to_string(list.size()) + ":1,";
  script.sent_to(list);
  int followed = 0;
  while (script.session.wish().up && followed < 1000) {
    script.cut("connection refused");
    ++followed;
  }
  EXPECT_EQ(followed, static_cast<int>(kFollowsMax));

  Shards commas{for_shard(5)};
  commas.sent_to(std::string(60'000, ','));
  EXPECT_EQ(commas.wished(), "");
  EXPECT_LT(commas.errors().size(), 1000U);
  Shards nothing{for_shard(5)};
  nothing.sent_to(std::string(60'000, 'x'));
  EXPECT_EQ(nothing.wished(), "");
  EXPECT_LT(nothing.errors().size(), 1000U);
}

TEST(RedirectTo, TlsOnlyWhereTheClientsOwnHaveIt) {
  Shards script{for_shard(5, {"tls:a:7117"})};
  script.sent_to("tcp:b:7117,tls:c:7117,unix:/run/s");
  EXPECT_EQ(script.wished(), "tls:c:7117");
  script.cut("connection refused");
  const std::string text = script.errors();
  EXPECT_THAT(text, HasSubstr("it sent us to tls:c:7117 for shard 5 (but 'tcp:b:7117' has no TLS; "
                              "'unix:/run/s' is a socket of another machine)"));
  EXPECT_THAT(text, HasSubstr("tls:c:7117: connection refused"));
  EXPECT_THAT(text, Not(HasSubstr("; tcp:b")));
}

TEST(RedirectTo, TlsNeedsAnAuthority) {
  Shards without{for_shard(5)};
  without.sent_to("tls:b:7117");
  EXPECT_EQ(without.wished(), "");
  EXPECT_THAT(without.errors(), HasSubstr("'tls:b:7117' needs TLS"));
  SessionOptions options = for_shard(5);
  options.link.has_tls = true;
  Shards with{options};
  with.sent_to("tls:b:7117,tcp:b:7118");
  EXPECT_EQ(with.wished(), "tls:b:7117");
}

TEST(RedirectTo, WhatIsNoAddressIsNamed) {
  Shards script{for_shard(5)};
  script.sent_to("ftp:b:1:2,\x1b[2J,tcp:c:7117");
  EXPECT_EQ(script.wished(), "tcp:c:7117");
  script.cut("connection refused");
  const std::string text = script.errors();
  EXPECT_THAT(text, HasSubstr("'ftp:b:1:2' is no address; '\\x1b[2J' is no address"));
}

// ---- One round, as tools ask for it -------------------------------------------------------------

TEST(OneRound, OfSeveralDaemonsOneMayBeTakingOver) {
  SessionOptions options = for_shard(-1, {"tcp:a:7117", "tcp:b:7117"});
  options.link.several_daemons = true;
  options.one_round = true;
  options.take_over_us = 4 * kSecond;
  Shards script{options};
  script.session.connect({1, script.deadline(60 * kSecond), script.now});
  const TimeUs start = script.now;
  while (script.now < start + 4 * kSecond - 1) {
    ASSERT_FALSE(script.done(1));
    if (script.session.wish().up) script.cut("connection refused");
    script.advance_to(std::min(script.session.next_deadline(), start + 4 * kSecond - 1));
  }
  EXPECT_FALSE(script.done(1));
  script.advance(1);
  EXPECT_EQ(script.status(1), Status::kUnreachable);
  EXPECT_EQ(script.text(1),
            "no daemon answered: tcp:a:7117: connection refused; tcp:b:7117: connection refused");
}

TEST(OneRound, OfOneDaemonIsOverAtOnce) {
  SessionOptions options = for_shard(-1);
  options.one_round = true;
  options.take_over_us = 4 * kSecond;
  Shards script{options};
  script.session.connect({1, script.deadline(60 * kSecond), script.now});
  script.cut("connection refused");
  EXPECT_EQ(script.status(1), Status::kUnreachable);
}

}  // namespace
}  // namespace syncd::client
