// Marks: what a push says of the worker's own computing.
#include "script.h"

namespace syncd::client {
namespace {

TEST(Mark, IsCountedFromTheGrantsArrivalAndTheLastOneCounts) {
  JoinedScript script;
  script.granted(0);
  script.advance(20'000);
  EXPECT_TRUE(script.signals->mark_computed(script.now));
  script.advance(10'000);
  EXPECT_TRUE(script.signals->mark_computed(script.now));
  script.advance(70'000);
  const OpId op = script.push(0);
  EXPECT_EQ(script.take<wire::Push>().computed_us, 30'000);
  script.push_counted(op, 0);
}

TEST(Mark, IsOfOneIteration) {
  JoinedScript script;
  script.granted(0);
  script.signals->mark_computed(script.now + 5);
  script.pushed(0);
  script.granted(1);
  const OpId op = script.push(1);
  EXPECT_EQ(script.take<wire::Push>().computed_us, -1);
  script.push_counted(op, 1);
}

TEST(Mark, HasNoPlaceBeforeAGrantAndAfterAPush) {
  JoinedScript script;
  EXPECT_FALSE(script.signals->mark_computed(script.now));
  const OpId op = script.ask_begin();
  EXPECT_FALSE(script.signals->mark_computed(script.now));
  script.begin_granted(op, 0);
  EXPECT_TRUE(script.signals->mark_computed(script.now));
  script.pushed(0);
  EXPECT_FALSE(script.signals->mark_computed(script.now));
}

TEST(Mark, CountsFromTheArrivalOfAGrantThatIsTakenLater) {
  JoinedScript script;
  script.ask_begin(300'000);
  const std::uint64_t begin = script.last_id;
  script.advance(300'000);
  script.take<wire::Explain>();
  script.answer(Explanation{});
  script.answer(begin, wire::Granted{0, 0, 0});
  script.advance(300'000);
  EXPECT_FALSE(script.signals->mark_computed(script.now)) << "it is not handed out yet";
  EXPECT_EQ(script.step(script.begin()).iteration, 0);
  script.advance(40'000);
  script.signals->mark_computed(script.now);
  script.push(0);
  EXPECT_EQ(script.take<wire::Push>().computed_us, 300'000 + 40'000);
}

TEST(Mark, CountsAnewFromARestart) {
  GrantedScript script;
  script.advance(300'000);
  script.signals->mark_computed(script.now);
  script.restarted(0);
  EXPECT_EQ(script.signals->computed_us(), -1);
  script.advance(30'000);
  script.signals->mark_computed(script.now);
  script.take<wire::Restarted>();
  script.push(0);
  EXPECT_EQ(script.take<wire::Push>().computed_us, 30'000);
}

// The push is the same, over however many connections it is made.
TEST(Mark, SurvivesACutAndARefusedPush) {
  GrantedScript script;
  script.advance(30'000);
  script.signals->mark_computed(script.now);
  script.send_push(0);
  script.cut();
  script.resumed(0);
  EXPECT_EQ(script.take<wire::Push>().computed_us, 30'000);
  script.answer(wire::Error{Status::kStore, "the disk is full"});
  script.push(0);
  EXPECT_EQ(script.take<wire::Push>().computed_us, 30'000);
}

}  // namespace
}  // namespace syncd::client
