// What a worker announces of itself beside the loop: long phases.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;

constexpr TimeUs kSecond = Script::kSecond;

wire::Joined taken_back(std::int64_t iteration) {
  wire::Joined joined = Script::joined(iteration);
  joined.resumed = true;
  return joined;
}

// ---- Phases
// --------------------------------------------------------------------------------------

TEST(Phase, IsToldAndConfirmed) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.phase("checkpoint", 60 * kSecond);
  const auto phase = script.take<wire::Phase>();
  EXPECT_EQ(phase.worker, Script::joined().worker);
  EXPECT_EQ(phase.name, "checkpoint");
  EXPECT_EQ(phase.lease_us, 60 * kSecond);
  EXPECT_FALSE(script.done(op));
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kOk);
  const OpId end = script.phase("", 0);
  EXPECT_EQ(script.take<wire::Phase>().name, "");
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(end), Status::kOk);
}

TEST(Phase, IsToldOnReconnectingWithWhatIsLeftOfItsLease) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.phase("checkpoint", 60 * kSecond, 0);
  EXPECT_EQ(script.status(op), Status::kOk) << "not waited for";
  script.take<wire::Phase>();
  script.advance(kSecond);
  script.cut();
  script.welcome();
  const auto join = script.take<wire::Join>();
  EXPECT_EQ(join.phase, "checkpoint");
  EXPECT_EQ(join.phase_left_us, 160 * kSecond - script.now);
  script.answer(taken_back(0));
  EXPECT_EQ(script.take<wire::Phase>().name, "checkpoint") << "not confirmed yet";
  script.answer(wire::Ok{});
  script.cut();
  EXPECT_EQ(script.resumed(0).phase, "checkpoint");
  EXPECT_TRUE(script.quiet()) << "confirmed already";
}

TEST(Phase, WhoseLeaseIsOverIsNotToldOnReconnecting) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.phase("checkpoint", kSecond);
  script.take<wire::Phase>();
  script.cut();
  script.advance(2 * kSecond);
  script.welcome();
  const auto join = script.take<wire::Join>();
  EXPECT_EQ(join.phase, "");
  EXPECT_EQ(join.phase_left_us, 0);
  script.answer(taken_back(0));
  EXPECT_EQ(script.take<wire::Phase>().name, "") << "whoever waits is to have an answer";
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Phase, EndsWithTheNextPushOfWhichTheDaemonHearsAnyway) {
  Script script;
  script.join_one();
  script.granted(0);
  const OpId op = script.phase("evaluation", 60 * kSecond);
  script.take<wire::Phase>();
  const OpId push = script.push(0);
  EXPECT_EQ(script.status(op), Status::kOk) << "nobody needs the confirmation any more";
  script.take<wire::Push>();
  script.cut();
  script.welcome();
  EXPECT_EQ(script.take<wire::Join>().phase, "");
  script.answer(taken_back(0));
  script.take<wire::Push>();
  script.answer(wire::Pushed{0, false, false});
  EXPECT_EQ(script.status(push), Status::kOk);
  EXPECT_TRUE(script.quiet());
}

TEST(Phase, EndsWithTheNextBegin) {
  Script script;
  script.join_one();
  script.phase("warm-up", 60 * kSecond, 0);
  script.take<wire::Phase>();
  script.answer(wire::Ok{});
  script.granted(0);
  script.cut();
  EXPECT_EQ(script.resumed(0).phase, "");
  EXPECT_TRUE(script.quiet());
}

// A begin that was asked for before the phase comes before it again, and so does not end it.
TEST(Phase, AnnouncedWhileABeginStandsOutlivesIt) {
  Script script;
  script.join_one();
  script.begin();
  script.take<wire::Begin>();
  script.phase("evaluation", 60 * kSecond, 0);
  script.take<wire::Phase>();
  script.answer(wire::Ok{});
  script.cut();
  EXPECT_EQ(script.resumed(0).phase, "evaluation");
  EXPECT_EQ(script.take<wire::Begin>().iteration, 0);
  EXPECT_EQ(script.take<wire::Phase>().name, "evaluation");
}

// The daemon is not asked once more, so that it must be told.
TEST(Phase, EndsWithABeginThatStandsAlready) {
  Script script;
  script.join_one();
  const OpId late = script.begin(kSecond / 2);
  script.take<wire::Begin>();
  script.advance(kSecond / 2);
  script.take<wire::Explain>();
  script.answer(Explanation{});
  EXPECT_EQ(script.status(late), Status::kTimeout);
  script.phase("evaluation", 60 * kSecond, 0);
  EXPECT_EQ(script.take<wire::Phase>().name, "evaluation");
  script.begin();
  EXPECT_EQ(script.take<wire::Phase>().name, "");
  EXPECT_TRUE(script.quiet());
}

TEST(Phase, TheLatestCounts) {
  Script script;
  script.join_one();
  script.phase("a", 60 * kSecond, 0);
  script.take<wire::Phase>();
  const std::uint64_t first = script.last_id;
  const OpId op = script.phase("b", 30 * kSecond);
  EXPECT_EQ(script.take<wire::Phase>().name, "b");
  const std::uint64_t second = script.last_id;
  script.answer(first, wire::Ok{});
  EXPECT_FALSE(script.done(op));
  script.answer(second, wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Phase, FailuresAreToldToWhoeverWaits) {
  Script script;
  script.join_one();
  const OpId slow = script.phase("a", 60 * kSecond, kSecond / 2);
  script.take<wire::Phase>();
  const OpId second = script.phase("b", 60 * kSecond);
  EXPECT_EQ(script.status(second), Status::kState);
  EXPECT_EQ(script.text(second), "phase of worker 3: another phase of this worker is under way");
  script.advance(kSecond / 2);
  EXPECT_EQ(script.status(slow), Status::kTimeout);
  EXPECT_THAT(script.text(slow), HasSubstr("phase of worker 3 not confirmed after 500 ms: "));

  const OpId old = script.phase("a", 60 * kSecond);
  script.take<wire::Phase>();
  script.refuse(Status::kUnsupported, "this daemon does not serve requests of type Unknown");
  EXPECT_EQ(script.status(old), Status::kUnsupported);
  script.cut();
  EXPECT_EQ(script.resumed(0).phase, "") << "it was refused";

  script.leave();
  EXPECT_EQ(script.status(script.phase("a", kSecond)), Status::kState);
}

TEST(Phase, OfAJobThatHasEndedNeedsNoDaemon) {
  Script script;
  script.join_one();
  script.notify(wire::StopNotice{Script::joined().worker, "enough"});
  EXPECT_EQ(script.status(script.phase("last", kSecond)), Status::kOk);
  EXPECT_TRUE(script.quiet());
}

// A worker that was given up, and that nobody calls for, comes back with its next call.
TEST(Phase, OfOneThatWasGivenUpTakesItBack) {
  Script script;
  script.join_one();
  script.notify(wire::FencedNotice{Script::joined().worker, "declared lost"});
  EXPECT_TRUE(script.quiet());
  const OpId op = script.phase("checkpoint", 60 * kSecond);
  EXPECT_EQ(script.take<wire::Join>().phase, "checkpoint");
  script.answer(Script::joined(4, 12));
  EXPECT_EQ(script.take<wire::Phase>().worker.incarnation, 12U);
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kOk);
}

TEST(Phase, ANewHandleOfTheWorkerIsInNone) {
  Script script;
  script.join_one();
  script.phase("checkpoint", 60 * kSecond, 0);
  script.take<wire::Phase>();
  script.session.release(script.worker, script.now);
  script.start_join(Script::request());
  EXPECT_EQ(script.take<wire::Join>().phase, "");
}

}  // namespace
}  // namespace syncd::client
