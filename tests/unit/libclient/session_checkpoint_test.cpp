// Agreed checkpoints as a worker's session has them: it takes part, is told, answers, and leaves.
#include <gmock/gmock.h>

#include "script.h"

namespace syncd::client {
namespace {

using testing::HasSubstr;

JoinRequest taking_part() {
  JoinRequest request = Script::request();
  request.notices = wire::kNoticeCheckpoint;
  return request;
}

wire::Granted told_at(std::int64_t iteration) {
  return {iteration, wire::kStepCheckpoint, 0, 7, 1, 2};
}

OpId checkpointed(Script& script, TimeUs timeout_us = 60 * kSecond) {
  wire::Checkpointed body;
  body.number = 7;
  body.shard = 1;
  body.shards = 2;
  body.location = "/c/7";
  return script.about(&Session::request, timeout_us, "checkpointed", wire::Body(body));
}

TEST(Checkpoint, TakingPartIsSaidAtEachJoin) {
  Script script;
  script.welcome();
  script.start_join(taking_part());
  EXPECT_EQ(script.take<wire::Join>().notices, wire::kNoticeCheckpoint);
  script.answer(Script::joined());
  script.cut();
  EXPECT_EQ(script.resumed(0).notices, wire::kNoticeCheckpoint);
}

TEST(Checkpoint, AStepNamesIt) {
  JoinedScript script;
  const OpId op = script.begin();
  script.take<wire::Begin>();
  script.answer(told_at(0));
  EXPECT_EQ(script.step(op).flags, wire::kStepCheckpoint);
  EXPECT_EQ(script.step(op).checkpoint, 7U);
  EXPECT_EQ(script.step(op).shard, 1U);
  EXPECT_EQ(script.step(op).shards, 2U);
}

TEST(Checkpoint, AnAnswerIsSentAgainUntilItIsConfirmed) {
  GrantedScript script;
  const OpId op = checkpointed(script);
  const auto sent = script.take<wire::Checkpointed>();
  EXPECT_EQ(sent.worker, Script::joined().worker);
  EXPECT_EQ(sent.location, "/c/7");
  script.cut();
  EXPECT_FALSE(script.done(op));
  script.resumed(0, 12);
  EXPECT_EQ(script.take<wire::Checkpointed>().worker.incarnation, 12U) << "of its life there";
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(op), Status::kOk);
  EXPECT_TRUE(std::holds_alternative<AskResult>(script.end(op).result));
}

TEST(Checkpoint, WhatIsRefusedIsNamed) {
  GrantedScript script;
  const OpId op = checkpointed(script);
  script.take<wire::Checkpointed>();
  script.refuse(Status::kState, "it was given up");
  EXPECT_EQ(script.status(op), Status::kState);
  EXPECT_EQ(script.text(op), "checkpointed of worker 3: it was given up");
  const OpId late = checkpointed(script, kSecond);
  script.take<wire::Checkpointed>();
  script.advance(kSecond);
  EXPECT_EQ(script.status(late), Status::kTimeout);
  EXPECT_THAT(script.text(late), HasSubstr("checkpointed of worker 3 not answered after 1.0 s"));
}

TEST(Checkpoint, ALeaveIsAnsweredOnceThatTheWorkerMustSaveFirst) {
  IteratedScript script;
  const OpId first = script.leave();
  script.take<wire::Leave>();
  script.answer(told_at(1));
  EXPECT_EQ(script.status(first), Status::kCheckpoint);
  EXPECT_EQ(
      script.text(first),
      "leave of worker 3: checkpoint 7 is wanted of this worker first: save, say so, and leave "
      "again");
  EXPECT_EQ(std::get<Step>(script.end(first).result).checkpoint, 7U);
  EXPECT_EQ(std::get<Step>(script.end(first).result).shards, 2U);
  const OpId saved = checkpointed(script);
  script.take<wire::Checkpointed>();
  script.answer(wire::Ok{});
  EXPECT_EQ(script.status(saved), Status::kOk);
  const OpId again = script.leave();
  script.take<wire::Leave>();
  script.confirmed(again);
}

TEST(Checkpoint, ALeaveThatNobodyWaitsForAnyMoreTellsTheNextOne) {
  IteratedScript script;
  const OpId first = script.leave(kSecond);
  script.take<wire::Leave>();
  const std::uint64_t asked = script.last_id;
  script.advance(kSecond);
  EXPECT_EQ(script.status(first), Status::kTimeout);
  script.answer(asked, told_at(1));
  script.sent.clear();  // a heartbeat
  const OpId second = script.leave();
  EXPECT_EQ(script.status(second), Status::kCheckpoint);
  EXPECT_TRUE(script.quiet());
  const OpId third = script.leave();
  script.take<wire::Leave>();
  script.confirmed(third);
}

TEST(Checkpoint, AFreedHandleLeavesWithoutSaving) {
  IteratedScript script;
  script.leave(0);
  script.take<wire::Leave>();
  script.session.release(script.worker, script.now);
  script.collect();
  script.answer(told_at(1));
  script.take<wire::Leave>();
}

}  // namespace
}  // namespace syncd::client
