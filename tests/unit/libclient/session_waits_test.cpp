// What a waiting worker is told, how long it waits for its job's start, what it says of its launch and
// how it leaves.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Told {
  TimeUs waited_us;
  std::string text;
};

class WaitScript : public Script {
 public:
  explicit WaitScript(TimeUs join_timeout_us = kNever, bool hears = true) {
    std::function<void(const Event&)> on_wait;
    if (hears) {
      on_wait = [this](const Event& event) { told.push_back({event.wait_us, event.text}); };
    }
    signals = std::make_shared<WorkerSignals>(nullptr, nullptr, std::move(on_wait));
    JoinRequest given = request();
    given.join_timeout_us = join_timeout_us;
    join_one(std::move(given));
  }
  // With a daemon that answers heartbeats, and explains what it is asked for.
  void live(TimeUs span_us, const Explanation& why) {
    for (const TimeUs end = now + span_us; now < end;) {
      advance(std::min(kSecond / 2, end - now));
      while (!sent.empty()) {
        if (std::holds_alternative<wire::Heartbeat>(sent.front().body)) {
          take<wire::Heartbeat>();
          notify(wire::HeartbeatAck{});
        } else {
          take<wire::Explain>();
          ++asked;
          answer(why);
        }
      }
    }
  }

  std::vector<Told> told;
  int asked = 0;
};

Explanation at_start() {
  Explanation why;
  why.rule = "start";
  why.text = "3 of 4 expected workers are ready";
  why.iteration = 0;
  why.waited_for_count = 1;
  why.ranks = "3";
  return why;
}

TEST(Wait, IsToldEveryTenSeconds) {
  WaitScript script;
  const OpId op = script.ask_begin();
  script.live(9 * kSecond, at_start());
  EXPECT_TRUE(script.told.empty());
  script.live(25 * kSecond, at_start());
  ASSERT_EQ(script.told.size(), 3U);
  EXPECT_EQ(script.told[0].waited_us, 10 * kSecond);
  EXPECT_EQ(script.told[2].waited_us, 30 * kSecond);
  EXPECT_EQ(script.told[0].text,
            "waiting for 1 of 4 workers: 3 (3 of 4 expected workers are ready)");
  EXPECT_FALSE(script.done(op));
  // A later iteration is not in the start.
  Explanation why = at_start();
  why.rule = "ssp:3";
  why.text = "too far ahead";
  script.live(10 * kSecond, why);
  EXPECT_THAT(script.told.back().text, StartsWith("ssp:3: too far ahead"));
}

TEST(Wait, IsCountedOverCallsThatTimeOut) {
  WaitScript script;
  const OpId first = script.begin(4 * kSecond);
  script.take<wire::Begin>();
  script.live(4 * kSecond, at_start());
  EXPECT_EQ(script.status(first), Status::kTimeout);
  script.begin();
  EXPECT_TRUE(script.quiet()) << "it is pending already";
  script.live(6 * kSecond, at_start());
  ASSERT_EQ(script.told.size(), 1U);
  EXPECT_EQ(script.told[0].waited_us, 10 * kSecond);
}

TEST(Wait, IsNotToldWhereNobodyWaitsAnyMore) {
  WaitScript script;
  const OpId op = script.ask_begin();
  const std::uint64_t id = script.last_id;
  script.live(5 * kSecond, at_start());
  script.answer(id, wire::Granted{0, 0, 0});
  EXPECT_EQ(script.step(op).iteration, 0);
  script.live(30 * kSecond, at_start());
  EXPECT_TRUE(script.told.empty());
  EXPECT_EQ(script.asked, 0);
}

TEST(Wait, WithoutADaemonSaysSo) {
  WaitScript script;
  script.ask_begin();
  script.live(5 * kSecond, at_start());
  script.cut();
  for (const TimeUs end = script.now + 6 * kSecond; script.now < end;) {
    script.advance(kSecond / 10);
    if (script.session.wish().up) script.cut("connection refused");
  }
  ASSERT_EQ(script.told.size(), 1U);
  EXPECT_THAT(script.told[0].text, HasSubstr("no connection to a daemon for 5.0 s"));
}

// Its own timeout does not matter; the request stays pending, and the next call waits as long again.
TEST(JoinTimeout, EndsABeginThatWaitsForTheStart) {
  WaitScript script(60 * kSecond, false);
  const OpId op = script.ask_begin();
  script.live(59 * kSecond, at_start());
  EXPECT_EQ(script.asked, 0) << "nobody wants to know";
  script.live(kSecond, at_start());
  EXPECT_EQ(script.status(op), Status::kTimeout);
  EXPECT_EQ(script.text(op),
            "begin(0) of worker 3 not granted after 60.0 s (join_timeout): waiting for 1 of 4 "
            "workers: 3 (3 of 4 expected workers are ready)");
  const OpId again = script.begin();
  EXPECT_TRUE(script.quiet());
  script.live(59 * kSecond, at_start());
  EXPECT_FALSE(script.done(again));
  script.live(kSecond, at_start());
  EXPECT_EQ(script.status(again), Status::kTimeout);
}

TEST(JoinTimeout, EndsNoOtherWait) {
  WaitScript script(20 * kSecond, false);
  const OpId op = script.ask_begin();
  Explanation why = at_start();
  why.rule = "bsp";
  script.live(100 * kSecond, why);
  EXPECT_FALSE(script.done(op));
  EXPECT_EQ(script.asked, 1) << "once, where nobody wants to know";
}

TEST(Launch, IsToldAtEveryJoin) {
  Script script;
  JoinRequest given = Script::request();
  given.launch = "llm";
  given.launch_number = 3;
  given.resume = wire::Resume::kContinue;
  given.resume_at = 300;
  given.exit_grace_us = 0;
  given.heartbeat_timeout_ms = 1'000;
  script.join_one(given);
  script.cut();
  script.welcome();
  const wire::Join join = script.take<wire::Join>();
  EXPECT_EQ(join.incarnation, 11U);
  EXPECT_EQ(join.launch, "llm");
  EXPECT_EQ(join.launch_number, 3U);
  EXPECT_EQ(join.resume_at, 300);
  EXPECT_EQ(join.exit_grace_us, 0);
  EXPECT_EQ(join.heartbeat_timeout_ms, 1'000U);
}

TEST(LeaveAs, SaysHowAndWhyOverAsManyConnectionsAsItTakes) {
  JoinedScript script;
  const OpId op = script.about(&Session::leave_as, 60 * kSecond, wire::LeaveKind::kFailed,
                               std::string("ValueError: no loss"));
  EXPECT_EQ(script.take<wire::Leave>().reason, "ValueError: no loss");
  script.cut();
  script.resumed(0);
  const wire::Leave leave = script.take<wire::Leave>();
  EXPECT_EQ(leave.kind, wire::LeaveKind::kFailed);
  EXPECT_EQ(leave.reason, "ValueError: no loss");
  script.confirmed(op);
}

TEST(FirstReconnect, IsWithoutDelayOnceInAWhile) {
  JoinedScript script;
  script.advance(3 * kSecond);
  script.cut();
  EXPECT_TRUE(script.session.wish().up) << "at once";
  script.resumed(0);
  script.cut();
  EXPECT_FALSE(script.session.wish().up) << "a daemon that takes us and drops us is not asked at once";
  script.await_wish();
  script.resumed(0);
  script.advance(3 * kSecond);
  script.cut();
  EXPECT_TRUE(script.session.wish().up);
  script.cut("connection refused");
  EXPECT_FALSE(script.session.wish().up) << "only the first attempt";
}

}  // namespace
}  // namespace syncd::client
