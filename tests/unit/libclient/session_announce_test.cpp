// What a worker announces of itself beside the loop, and what it learns of the others: long phases,
// data and lists of members, events.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;

wire::Joined taken_back(std::int64_t iteration) {
  wire::Joined joined = Script::joined(iteration);
  joined.resumed = true;
  return joined;
}

// ---- Phases
// --------------------------------------------------------------------------------------

TEST(Phase, IsToldAndConfirmed) {
  GrantedScript script;
  const OpId op = script.phase("checkpoint", 60 * kSecond);
  const auto phase = script.take<wire::Phase>();
  EXPECT_EQ(phase.worker, Script::joined().worker);
  EXPECT_EQ(phase.name, "checkpoint");
  EXPECT_EQ(phase.lease_us, 60 * kSecond);
  EXPECT_FALSE(script.done(op));
  script.confirmed(op);
  const OpId end = script.phase("", 0);
  EXPECT_EQ(script.take<wire::Phase>().name, "");
  script.confirmed(end);
}

TEST(Phase, IsToldOnReconnectingWithWhatIsLeftOfItsLease) {
  GrantedScript script;
  const OpId op = script.phase("checkpoint", 60 * kSecond, 0);
  EXPECT_EQ(script.status(op), Status::kOk) << "not waited for";
  script.take<wire::Phase>();
  script.advance(kSecond);
  script.reconnect();
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
  GrantedScript script;
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
  script.confirmed(op);
}

TEST(Phase, EndsWithTheNextPushOfWhichTheDaemonHearsAnyway) {
  GrantedScript script;
  const OpId op = script.phase("evaluation", 60 * kSecond);
  script.take<wire::Phase>();
  const OpId push = script.push(0);
  EXPECT_EQ(script.status(op), Status::kOk) << "nobody needs the confirmation any more";
  script.take<wire::Push>();
  script.reconnect();
  EXPECT_EQ(script.take<wire::Join>().phase, "");
  script.answer(taken_back(0));
  script.take<wire::Push>();
  script.push_counted(push, 0);
  EXPECT_TRUE(script.quiet());
}

TEST(Phase, EndsWithTheNextBegin) {
  JoinedScript script;
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
  JoinedScript script;
  script.ask_begin();
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
  JoinedScript script;
  const OpId late = script.ask_begin(kSecond / 2);
  script.explained_after(kSecond / 2);
  EXPECT_EQ(script.status(late), Status::kTimeout);
  script.phase("evaluation", 60 * kSecond, 0);
  EXPECT_EQ(script.take<wire::Phase>().name, "evaluation");
  script.begin();
  EXPECT_EQ(script.take<wire::Phase>().name, "");
  EXPECT_TRUE(script.quiet());
}

TEST(Phase, TheLatestCounts) {
  JoinedScript script;
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
  JoinedScript script;
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
  JoinedScript script;
  script.notify(wire::StopNotice{Script::joined().worker, "enough"});
  EXPECT_EQ(script.status(script.phase("last", kSecond)), Status::kOk);
  EXPECT_TRUE(script.quiet());
}

// A worker that was given up, and that nobody calls for, comes back with its next call.
TEST(Phase, OfOneThatWasGivenUpTakesItBack) {
  JoinedScript script;
  script.notify(wire::FencedNotice{Script::joined().worker, "declared lost"});
  EXPECT_TRUE(script.quiet());
  const OpId op = script.phase("checkpoint", 60 * kSecond);
  EXPECT_EQ(script.take<wire::Join>().phase, "checkpoint");
  script.answer(Script::joined(4, 12));
  EXPECT_EQ(script.take<wire::Phase>().worker.incarnation, 12U);
  script.confirmed(op);
}

TEST(Phase, ANewHandleOfTheWorkerIsInNone) {
  JoinedScript script;
  script.phase("checkpoint", 60 * kSecond, 0);
  script.take<wire::Phase>();
  script.session.release(script.worker, script.now);
  script.start_join(Script::request());
  EXPECT_EQ(script.take<wire::Join>().phase, "");
}

// ---- Members
// --------------------------------------------------------------------------------------

wire::MemberStatus member(std::uint32_t rank) {
  return {rank, wire::MemberState::kActive, 4, "w" + std::to_string(rank), "node", {1, 2}};
}

TEST(Members, WhatAWorkerShowsIsToldAtEveryJoin) {
  Script script;
  JoinRequest request = Script::request();
  request.data = {10, 0, 0, 7};
  script.welcome();
  const OpId op = script.start_join(request);
  EXPECT_EQ(script.take<wire::Join>().data, request.data);
  script.answer(Script::joined());
  EXPECT_EQ(script.status(op), Status::kOk);
  script.cut();
  EXPECT_EQ(script.resumed(0).data, request.data);
}

TEST(Members, AListInPartsIsOneList) {
  JoinedScript script;
  const OpId op = script.members();
  EXPECT_EQ(script.take<wire::MembersRequest>().first_rank, 0U);
  script.answer(wire::MembersReply{{member(0), member(3)}, 5, 70});
  EXPECT_FALSE(script.done(op));
  EXPECT_EQ(script.take<wire::MembersRequest>().first_rank, 5U);
  script.answer(wire::MembersReply{{member(5)}, -1, 71});
  const MembersResult list = script.list(op);
  EXPECT_EQ(list.version, 70U) << "what came later may be in it, or may not";
  EXPECT_EQ(list.members, (std::vector{member(0), member(3), member(5)}));
}

TEST(Members, AListThatWasCutOffBeginsAnew) {
  JoinedScript script;
  const OpId op = script.members();
  script.take<wire::MembersRequest>();
  script.answer(wire::MembersReply{{member(0)}, 5, 70});
  script.take<wire::MembersRequest>();
  script.cut();
  script.resumed(0);
  EXPECT_EQ(script.take<wire::MembersRequest>().first_rank, 0U);
  script.answer(wire::MembersReply{{member(1)}, -1, 80});
  EXPECT_EQ(script.list(op).version, 80U);
  EXPECT_EQ(script.list(op).members.size(), 1U);
}

TEST(Members, AListThatNeverEndsIsNoList) {
  JoinedScript script;
  const OpId op = script.members();
  script.take<wire::MembersRequest>();
  script.answer(wire::MembersReply{{member(0)}, 5, 70});
  script.take<wire::MembersRequest>();
  script.answer(wire::MembersReply{{member(5)}, 5, 70});
  EXPECT_EQ(script.status(op), Status::kProtocol);
  EXPECT_EQ(script.text(op),
            "members of worker 3: the daemon's list goes on at rank 5 after rank 5");
}

TEST(Members, FailuresAreTold) {
  JoinedScript script;
  const OpId slow = script.members(kSecond / 2);
  script.take<wire::MembersRequest>();
  script.advance(kSecond / 2);
  EXPECT_EQ(script.status(slow), Status::kTimeout);
  EXPECT_THAT(script.text(slow), HasSubstr("members of worker 3 not answered after 500 ms: "));
  const OpId old = script.members();
  script.take<wire::MembersRequest>();
  script.refuse(Status::kUnsupported, "this daemon does not serve requests of type Unknown");
  EXPECT_EQ(script.status(old), Status::kUnsupported);
  const OpId odd = script.members();
  script.take<wire::MembersRequest>();
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(odd), Status::kProtocol);
}

// ---- Events
// ---------------------------------------------------------------------------------------

using Kind = Event::Kind;
constexpr std::uint32_t kAll =
    wire::kNoticeMembers | wire::kNoticePlan | wire::kNoticeStragglers | wire::kNoticeHang;

// A worker that listens.
struct ListeningScript : Script {
  ListeningScript() {
    signals = std::make_shared<WorkerSignals>(
        nullptr, [this](const Event& event) { events.push_back(event); });
  }
  // What came since the last look.
  std::vector<Event> heard() { return std::exchange(events, {}); }
  // The one event that came since then.
  Event heard_once() {
    const std::vector<Event> all = heard();
    EXPECT_EQ(all.size(), 1U);
    return all.empty() ? Event{} : all[0];
  }
  void start_listening() {
    welcome();
    JoinRequest given = request();
    given.signals = signals;
    start_join(given);
  }
  void members_changed(std::uint64_t version) {
    notify(wire::MembersNotice{joined().worker, version});
  }

  std::vector<Event> events;
};

struct JoinedListeningScript : ListeningScript {
  JoinedListeningScript() { join_one(); }
};

TEST(Events, OnlyOneThatListensAsksForNotices) {
  Script silent;
  silent.welcome();
  silent.start_join(Script::request());
  EXPECT_EQ(silent.take<wire::Join>().notices, 0U);

  ListeningScript script;
  script.start_listening();
  EXPECT_EQ(script.take<wire::Join>().notices, kAll);
  script.answer(Script::joined());
  script.cut();
  EXPECT_EQ(script.resumed(0).notices, kAll);
}

TEST(Events, AChangeOfMembershipIsToldOnceUntilTheListIsAskedFor) {
  JoinedListeningScript script;
  script.members_changed(7);
  script.members_changed(8);
  const Event event = script.heard_once();
  EXPECT_EQ(event.kind, Kind::kMembers);
  EXPECT_EQ(event.version, 7U);
  script.members();
  script.members_changed(9);
  EXPECT_EQ(script.heard_once().version, 9U);
}

// The daemon tells again from the request on; the notice of an earlier change was on its way then.
TEST(Events, AChangeToldWhileTheListIsOnItsWayHidesNoLaterOne) {
  JoinedListeningScript script;
  script.members();
  script.take<wire::MembersRequest>();
  script.members_changed(7);
  script.answer(wire::MembersReply{{}, -1, 7});
  script.heard();
  script.members_changed(8);
  EXPECT_EQ(script.heard_once().version, 8U);
}

TEST(Events, OfAnotherLifeAreIgnored) {
  JoinedListeningScript script;
  const wire::WorkerRef before = Script::joined(0, 10).worker;
  script.notify(wire::MembersNotice{before, 7});
  script.notify(wire::PlanNotice{before, 7, 7});
  EXPECT_TRUE(script.heard().empty());
}

// The daemon's Joined waits for its disk; what it tells the new member meanwhile does not.
TEST(Events, AChangeThatIsToldBeforeTheJoinIsAnsweredIsNotLost) {
  ListeningScript script;
  script.start_listening();
  script.take<wire::Join>();
  script.members_changed(7);
  script.notify(wire::MembersNotice{{5, 99, 1, 1}, 7});
  EXPECT_TRUE(script.heard().empty());
  script.answer(Script::joined());
  EXPECT_EQ(script.heard_once().version, 7U);
}

TEST(Events, WhoComesBackIsToldThatMuchMayHaveChanged) {
  JoinedListeningScript script;
  script.reconnect();
  script.take<wire::Join>();
  wire::Joined joined = taken_back(0);
  joined.members_version = 90;
  script.answer(joined);
  const Event event = script.heard_once();
  EXPECT_EQ(event.kind, Kind::kMembers);
  EXPECT_EQ(event.version, 90U);
}

TEST(Events, APlanAndAnAdviceNameTheirIteration) {
  JoinedListeningScript script;
  script.granted(0);
  script.notify(wire::PlanNotice{Script::joined().worker, 17, 40'000});
  script.notify(wire::ResyncNotice{Script::joined().worker, 0});
  script.notify(wire::ResyncNotice{Script::joined().worker, 5});  // not the one that it computes
  const auto events = script.heard();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, Kind::kPlan);
  EXPECT_EQ(events[0].iteration, 17);
  EXPECT_EQ(events[0].wait_us, 40'000);
  EXPECT_EQ(events[1].kind, Kind::kResync);
  EXPECT_EQ(events[1].iteration, 0);
  EXPECT_EQ(*script.signals->flag(), 1U);
}

TEST(Events, AStragglerIsToldAsTheDaemonSaysIt) {
  JoinedListeningScript script;
  const wire::StragglerNotice notice{
      Script::joined().worker, 5, "w5", "h", false, 2.5, 7, "1 of 2"};
  script.notify(notice);
  const Event event = script.heard_once();
  EXPECT_EQ(event.kind, Kind::kStraggler);
  EXPECT_EQ(event.straggler, notice);
  wire::StragglerNotice other = notice;
  ++other.worker.incarnation;
  script.notify(other);
  EXPECT_TRUE(script.heard().empty()) << "of an earlier life";
}

TEST(Events, TheEndOfTheJobIsToldOnce) {
  JoinedListeningScript script;
  script.ask_begin();
  script.answer(wire::Granted{0, wire::kStepStop, 0});
  script.notify(wire::StopNotice{Script::joined().worker, "enough"});
  EXPECT_EQ(script.heard_once().kind, Kind::kStop);
}

TEST(Events, NoneComeAfterTheHandleIsGone) {
  JoinedListeningScript script;
  script.session.release(script.worker, script.now);
  script.members_changed(7);
  EXPECT_TRUE(script.heard().empty());
  script.signals->disown();
  script.signals->deliver({});  // it was on its way
  EXPECT_TRUE(script.heard().empty());
}

// The handle may be freed in the very function that is being called.
TEST(Events, TheHandleMayGoWhileOneIsDelivered) {
  int calls = 0;
  std::shared_ptr<WorkerSignals> signals;
  signals = std::make_shared<WorkerSignals>(nullptr, [&](const Event&) {
    ++calls;
    signals->disown();
  });
  signals->deliver({});
  signals->deliver({});
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace syncd::client
