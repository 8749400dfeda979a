// Jobs with views: begins that carry data, what is known of a round, and lists of a view's members.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;

std::vector<std::uint8_t> bytes(std::string_view text) {
  return {text.begin(), text.end()};
}

wire::ViewGranted grant(std::uint64_t number, std::string_view data = "first") {
  wire::ViewGranted granted;
  granted.iteration = static_cast<std::int64_t>(number);
  granted.view = number;
  granted.rank = 1;
  granted.size = 2;
  granted.data = bytes(data);
  granted.reason = "node-c was lost";
  return granted;
}

// A member of a gather job that has joined while round `round` is on.
struct Gather : Script {
  explicit Gather(std::uint64_t round = 0) {
    welcome();
    JoinRequest asked = request();
    asked.policy = "gather:2-4";
    asked.signals = signals;
    const OpId op = start_join(std::move(asked));
    take<wire::Join>();
    answer(here(round));
    EXPECT_TRUE(result<JoinResult>(op).views);
    worker = result<JoinResult>(op).worker;
  }
  // What the daemon says of a member: it may enter the round after this one.
  static wire::Joined here(std::uint64_t round, std::uint64_t incarnation = 11) {
    wire::Joined message = joined(static_cast<std::int64_t>(round) + 1, incarnation);
    message.policy = "gather:2-4";
    message.views = true;
    message.round = round;
    message.heartbeat_timeout_ms = 2000;
    return message;
  }
  static wire::Joined kept(std::uint64_t round, std::uint32_t gone = 0, std::uint32_t room = 0) {
    wire::Joined message = here(round);
    message.resumed = true;
    message.round_gone = gone;
    message.round_room = room;
    return message;
  }
  void shows(std::string_view data) {
    EXPECT_EQ(status(about(&Session::set_data, 0, bytes(data))), Status::kOk);
  }
  OpId view(std::uint64_t number) { return about(&Session::view, 60 * kSecond, number); }
  // A begin that is answered by a round.
  void enters(std::uint64_t number) {
    const OpId op = begin();
    EXPECT_LE(take<wire::Arrive>().iteration, static_cast<std::int64_t>(number));
    answer(grant(number));
    EXPECT_EQ(step(op).view, number);
  }
  void told(std::uint64_t number, std::uint32_t gone, std::uint32_t room) {
    notify(wire::RoundNotice{joined().worker, number, gone, room});
  }
};

TEST(Views, BeginShowsDataAndBringsTheView) {
  Gather script;
  script.shows("10.0.0.1:5000");
  const OpId op = script.begin();
  const auto arrive = script.take<wire::Arrive>();
  EXPECT_EQ(arrive.worker, Script::joined().worker);
  EXPECT_EQ(arrive.iteration, 1);
  EXPECT_EQ(arrive.data, bytes("10.0.0.1:5000"));
  EXPECT_EQ(script.signals->round(), RoundState{});
  script.answer(grant(1));
  const Step step = script.step(op);
  EXPECT_EQ(step.view, 1U);
  EXPECT_EQ(step.rank, 1U);
  EXPECT_EQ(step.size, 2U);
  EXPECT_EQ(step.data, bytes("first"));
  EXPECT_EQ(step.reason, "node-c was lost");
  EXPECT_EQ(step.flags, 0U) << "rounds are no steps of a clock";
  EXPECT_EQ(script.signals->round(), (RoundState{1, 0, 0}));
}

TEST(Views, ABeginEndsTheRoundWithoutAPush) {
  Gather script;
  script.enters(1);
  script.enters(2);
  EXPECT_EQ(script.signals->round(), (RoundState{2, 0, 0}));
}

TEST(Views, OthersRoundsMayHavePassed) {
  Gather script(6);
  script.shows("x");
  const OpId op = script.begin();
  EXPECT_EQ(script.take<wire::Arrive>().iteration, 7);
  script.answer(grant(9));
  EXPECT_EQ(script.step(op).flags, 0U);
  script.enters(10);
}

TEST(Views, ABeginIsAskedAgainWithItsDataOverReconnects) {
  Gather script;
  script.shows("a");
  const OpId op = script.begin();
  script.take<wire::Arrive>();
  script.shows("b");
  script.cut();
  script.welcome();
  EXPECT_EQ(script.take<wire::Join>().incarnation, 11U);
  script.answer(Gather::kept(0));
  EXPECT_EQ(script.take<wire::Arrive>().data, bytes("a"))
      << "the data of the begin that is pending";
  script.answer(grant(1));
  EXPECT_EQ(script.step(op).view, 1U);
  script.begin();
  EXPECT_EQ(script.take<wire::Arrive>().data, bytes("b"));
}

// The daemon has formed round 2, and its grant was lost with the connection: it is given again.
TEST(Views, AGrantThatWasLostOnItsWayIsAskedForAgain) {
  Gather script;
  script.enters(1);
  const OpId op = script.begin();
  EXPECT_EQ(script.take<wire::Arrive>().iteration, 2);
  script.cut();
  script.welcome();
  EXPECT_EQ(script.take<wire::Join>().granted, 1);
  script.answer(Gather::kept(2, 1));
  EXPECT_EQ(script.take<wire::Arrive>().iteration, 2) << "of the same round";
  EXPECT_EQ(script.signals->round(), (RoundState{1, 0, 0})) << "that is said of a round to come";
  script.answer(grant(2));
  EXPECT_EQ(script.step(op).view, 2U);
  EXPECT_EQ(script.signals->round(), (RoundState{2, 1, 0})) << "what was said of it holds";
}

TEST(Rounds, AreToldWithoutAMessageOfOurs) {
  Gather script;
  script.enters(3);
  script.told(3, 1, 2);
  EXPECT_EQ(script.signals->round(), (RoundState{3, 1, 2}));
  script.told(3, 0, 0);
  EXPECT_EQ(script.signals->round(), (RoundState{3, 0, 0}));
  EXPECT_TRUE(script.quiet());
}

TEST(Rounds, WhatIsSaidOfAnotherIsNotBelieved) {
  Gather script;
  script.enters(5);
  script.enters(6);
  script.told(5, 1, 1);
  EXPECT_EQ(script.signals->round(), (RoundState{6, 0, 0}));
  script.told(7, 2, 0);
  EXPECT_EQ(script.signals->round(), (RoundState{6, 0, 0}));
  script.enters(7);
  EXPECT_EQ(script.signals->round(), (RoundState{7, 2, 0})) << "its grant was overtaken";
}

TEST(Rounds, JoinedRepeatsTheState) {
  Gather script;
  script.enters(1);
  script.cut();
  script.welcome();
  script.take<wire::Join>();
  script.answer(Gather::kept(1, 1, 0));
  EXPECT_EQ(script.signals->round(), (RoundState{1, 1, 0}));
  EXPECT_TRUE(script.quiet());
}

TEST(Rounds, OneThatWasGivenUpReadsItsRoundAsBrokenUntilItBegins) {
  Gather script;
  script.enters(1);
  script.cut();
  script.welcome();
  script.take<wire::Join>();
  script.answer(Gather::here(4, 12));  // a new life, in round 4 of the others
  EXPECT_EQ(script.signals->round(), (RoundState{1, 1, 0}));
  const OpId op = script.begin();
  EXPECT_EQ(script.take<wire::Arrive>().iteration, 5);
  script.answer(grant(5));
  EXPECT_EQ(script.step(op).view, 5U);
  EXPECT_EQ(script.signals->round(), (RoundState{5, 0, 0}));
}

// A daemon whose store was in memory counts from 1 again.
TEST(Rounds, NumbersMayBeginAnewWithANewLife) {
  Gather script(6);
  script.enters(7);
  script.cut();
  script.welcome();
  script.take<wire::Join>();
  script.answer(Gather::here(0, 12));
  EXPECT_EQ(script.signals->round(), (RoundState{7, 1, 0}));
  const OpId op = script.begin();
  EXPECT_EQ(script.take<wire::Arrive>().iteration, 1);
  script.answer(grant(1));
  EXPECT_EQ(script.step(op).view, 1U);
  EXPECT_EQ(script.signals->round(), (RoundState{1, 0, 0}));
}

TEST(Rounds, OneThatIsFencedReadsItsRoundAsBroken) {
  Gather script;
  script.enters(1);
  script.notify(wire::FencedNotice{Script::joined().worker, "it neither waited nor ended"});
  EXPECT_EQ(script.signals->round(), (RoundState{1, 1, 0}));
}

TEST(Rounds, OneWhoseJobIsStoppedReadsItsRoundAsBroken) {
  Gather script;
  script.enters(1);
  script.notify(wire::StopNotice{Script::joined().worker, "enough"});
  EXPECT_EQ(script.signals->round(), (RoundState{1, 1, 0}));
  const Step step = script.step(script.begin());
  EXPECT_EQ(step.flags, wire::kStepStop);
  EXPECT_EQ(step.reason, "job 'mf' has ended: enough");
}

TEST(Rounds, AStopSaysWhy) {
  Gather script;
  const OpId op = script.begin();
  script.take<wire::Arrive>();
  wire::ViewGranted stop;
  stop.flags = wire::kStepStop;
  stop.reason = "finished: node-a, node-b";
  script.answer(stop);
  EXPECT_EQ(script.step(op).flags, wire::kStepStop);
  EXPECT_EQ(script.step(op).reason, "finished: node-a, node-b");
}

TEST(Rounds, NewsAreAnEventForWhoListens) {
  std::vector<Event> heard;
  Gather script;
  JoinRequest asked = Script::request("other", 2);
  asked.policy = "gather:2-4";
  asked.signals =
      std::make_shared<WorkerSignals>(nullptr, [&](const Event& e) { heard.push_back(e); });
  script.start_join(std::move(asked));
  script.take<wire::Join>();
  wire::Joined joined = Gather::here(0);
  joined.worker.rank = 2;
  script.answer(joined);
  ASSERT_TRUE(heard.empty());
  script.worker = std::get<JoinResult>(script.completed.back().result).worker;
  script.begin();
  script.take<wire::Arrive>();
  script.answer(grant(1));
  EXPECT_TRUE(heard.empty()) << "a new round is no news of it";
  script.notify(wire::RoundNotice{joined.worker, 1, 0, 1});
  script.notify(wire::RoundNotice{joined.worker, 1, 0, 1});
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(heard[0].kind, Event::Kind::kRound);
  EXPECT_EQ(heard[0].version, 1U);
}

// ---- Lists

TEST(Views, AListComesInParts) {
  Gather script;
  script.enters(4);
  const OpId op = script.view(0);
  const auto first = script.take<wire::ViewRequest>();
  EXPECT_EQ(first.view, 4U);
  EXPECT_EQ(first.first_rank, 0U);
  script.answer(wire::ViewReply{4, 2, "because", {{0, "a", "node-a", bytes("x")}}, 1});
  const auto second = script.take<wire::ViewRequest>();
  EXPECT_EQ(second.view, 4U);
  EXPECT_EQ(second.first_rank, 1U);
  script.answer(wire::ViewReply{4, 2, "because", {{1, "b", "node-b", {}}}, -1});
  const auto view = script.result<ViewResult>(op);
  EXPECT_EQ(view.view, 4U);
  EXPECT_EQ(view.reason, "because");
  ASSERT_EQ(view.members.size(), 2U);
  EXPECT_EQ(view.members[0].data, bytes("x"));
  EXPECT_EQ(view.members[1].host, "node-b");
}

TEST(Views, AListStartsAnewOverAReconnect) {
  Gather script;
  script.enters(4);
  const OpId op = script.view(3);
  script.take<wire::ViewRequest>();
  script.answer(wire::ViewReply{3, 2, "", {{0, "a", "node-a", {}}}, 1});
  script.take<wire::ViewRequest>();
  script.cut();
  script.welcome();
  script.take<wire::Join>();
  script.answer(Gather::kept(4));
  const auto again = script.take<wire::ViewRequest>();
  EXPECT_EQ(again.view, 3U);
  EXPECT_EQ(again.first_rank, 0U);
  script.answer(wire::ViewReply{3, 1, "", {{0, "a", "node-a", {}}}, -1});
  EXPECT_EQ(script.result<ViewResult>(op).members.size(), 1U);
}

TEST(Views, AListThatDoesNotGoOnIsRefused) {
  Gather script;
  script.enters(4);
  const OpId op = script.view(4);
  script.take<wire::ViewRequest>();
  script.answer(wire::ViewReply{4, 2, "", {}, 0});
  EXPECT_EQ(script.status(op), Status::kProtocol);
}

TEST(Views, BeforeAGrantThereIsNone) {
  Gather script;
  const OpId op = script.view(0);
  EXPECT_EQ(script.status(op), Status::kState);
  EXPECT_EQ(script.text(op), "view of worker 3: no view was granted yet; begin comes first");
}

TEST(Views, AJobWithoutThemSaysSo) {
  GrantedScript script;
  const OpId view = script.about(&Session::view, kSecond, std::uint64_t{0});
  EXPECT_EQ(script.status(view), Status::kUnsupported);
  EXPECT_EQ(script.text(view), "view of worker 3: job 'mf' has no views");
  const OpId data = script.about(&Session::set_data, kSecond, bytes("x"));
  EXPECT_EQ(script.status(data), Status::kUnsupported);
  EXPECT_EQ(script.text(data), "set_data of worker 3: job 'mf' has no views");
}

// Under bsp with views an iteration is pushed as ever.
TEST(Views, WithABarrierTheWorkerPushes) {
  Script script;
  script.welcome();
  JoinRequest asked = Script::request();
  asked.policy = "bsp";
  asked.views = true;
  asked.signals = script.signals;
  const OpId join = script.start_join(std::move(asked));
  EXPECT_TRUE(script.take<wire::Join>().views);
  wire::Joined joined = Script::joined();
  joined.policy = "bsp";
  joined.views = true;
  script.answer(joined);
  script.worker = script.result<JoinResult>(join).worker;
  const OpId begin = script.begin();
  EXPECT_EQ(script.take<wire::Arrive>().iteration, 0);
  wire::ViewGranted granted = grant(1);
  granted.iteration = 0;
  script.answer(granted);
  EXPECT_EQ(script.step(begin).size, 2U);
  EXPECT_EQ(script.status(script.begin()), Status::kState) << "not pushed yet";
  script.pushed(0);
}

// ---- Heartbeats

TEST(Views, TheConnectionKeepsTheLeastThatItsWorkersAskFor) {
  Gather script;
  script.sent.clear();
  script.advance(kSecond / 2);
  script.take<wire::Heartbeat>();
  script.advance(3 * kSecond / 2 - 1);
  EXPECT_TRUE(script.session.connected());
  script.advance(1);
  EXPECT_FALSE(script.session.connected()) << "silent for 2 s";
  script.welcome();
  script.take<wire::Join>();
  script.advance(3 * kSecond);
  EXPECT_TRUE(script.session.connected()) << "nobody has asked for less on this connection yet";
}

}  // namespace
}  // namespace syncd::client
