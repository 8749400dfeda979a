// The engine by direct calls: how much one event costs in effects, what restore() refuses, limits,
// and the small parts that the engine and its policies are made of. One thread.
#include "daemon/core/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "daemon/core/engine/lateness.h"
#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/policy.h"
#include "daemon/core/engine/relative_clocks.h"
#include "daemon/core/engine/timer_queue.h"
#include "daemon/core/policies/waiters.h"
#include "tests/support/effects_text.h"
#include "tests/support/random.h"

namespace syncd::test {
namespace {

using ::testing::HasSubstr;

// An engine with one job of `workers` workers, all of which have joined over one connection.
class Crowd {
 public:
  Crowd(const std::string& policy, std::uint32_t workers) : engine_({}) {
    JobSpec spec;
    spec.name = "train";
    spec.policy = policy;
    spec.expected_workers = workers;
    std::string error;
    EXPECT_TRUE(engine_.declare_job(spec, 0, effects_, error)) << error;
    keep();
    for (Rank rank = 0; rank < workers; ++rank) {
      wire::Join join;
      join.job = "train";
      join.name = "w" + std::to_string(rank);
      join.host = "h";
      refs_.push_back(std::get<wire::Joined>(ask(join).replies.at(0).body).worker);
    }
  }

  const Effects& ask(wire::Body body) {
    engine_.step(Request{{1, next_request_++}, std::move(body)}, now_, effects_);
    keep();
    return effects_;
  }
  const Effects& begin(Rank rank, Iteration k) { return ask(wire::Begin{refs_[rank], k}); }
  const Effects& push(Rank rank, Iteration k) { return ask(wire::Push{refs_[rank], k, {}, 0, 0}); }
  const Effects& push_marked(Rank rank, Iteration k, Micros computed_us) {
    return ask(wire::Push{refs_[rank], k, {}, 0, 0, computed_us});
  }
  Engine& engine() { return engine_; }
  const std::vector<Record>& records() const { return records_; }
  Micros now_ = 0;

 private:
  void keep() { records_.insert(records_.end(), effects_.records.begin(), effects_.records.end()); }

  Engine engine_;
  Effects effects_;
  RequestId next_request_ = 1;
  std::vector<wire::WorkerRef> refs_;
  std::vector<Record> records_;
};

// ---- what an event costs

TEST(EngineCost, APushSaysNothingToWorkersThatItDoesNotRelease) {
  constexpr std::uint32_t kWorkers = 1000;
  for (const char* policy : {"asp", "ssp:3", "bsp"}) {
    Crowd crowd(policy, kWorkers);
    for (Rank rank = 0; rank < kWorkers; ++rank) crowd.begin(rank, 0);
    for (Rank rank = 0; rank + 1 < kWorkers; ++rank) {
      const Effects& effects = crowd.push(rank, 0);
      ASSERT_EQ(effects.records.size(), 1U) << policy;
      ASSERT_EQ(effects.replies.size(), 1U) << policy;
      ASSERT_TRUE(effects.notifications.empty() && effects.log.empty()) << policy;
    }
  }
}

TEST(EngineCost, ABarrierReleasesEverybodyOnceInTheOrderOfTheirWaiting) {
  constexpr std::uint32_t kWorkers = 1000;
  Crowd crowd("bsp", kWorkers);
  for (Rank rank = 0; rank < kWorkers; ++rank) crowd.begin(rank, 0);
  // The last rank comes first, so that the order is not the ranks'.
  for (Rank rank = kWorkers - 1; rank > 0; --rank) {
    crowd.now_ += 10;
    crowd.push(rank, 0);
    EXPECT_TRUE(crowd.begin(rank, 1).replies.empty());
  }
  const std::uint64_t before = crowd.engine().stats().grants;
  const Effects& effects = crowd.push(0, 0);
  ASSERT_EQ(effects.replies.size(), kWorkers);  // the push's own answer, and everybody else's grant
  EXPECT_EQ(crowd.engine().stats().grants - before, kWorkers - 1);
  for (std::size_t i = 2; i < effects.replies.size(); ++i) {
    EXPECT_LT(effects.replies[i - 1].to.request, effects.replies[i].to.request);
  }
}

TEST(EngineCost, AJobWithoutWorkersThatMoveAsksForNoTimer) {
  Crowd crowd("ssp:1", 3);
  EXPECT_EQ(crowd.engine().next_deadline(), kNever);
}

TEST(Engine, TimeNeverGoesBack) {
  Crowd crowd("asp", 1);
  crowd.now_ = 5'000'000;
  crowd.begin(0, 0);
  crowd.now_ = 2'000'000;
  const Effects& effects = crowd.push(0, 0);
  EXPECT_EQ(effects.records.at(0).time_us, 5'000'000);
  EXPECT_EQ(effects.records.at(0).span_us, 0);
  EXPECT_EQ(crowd.engine().last_time(), 5'000'000);
}

TEST(Engine, CountsWhatItDid) {
  Crowd crowd("asp", 2);
  crowd.begin(0, 0);
  crowd.begin(1, 0);
  crowd.push(0, 0);
  crowd.push(0, 0);  // a duplicate does not count
  const EngineStats stats = crowd.engine().stats();
  EXPECT_EQ(stats.jobs, 1U);
  EXPECT_EQ(stats.workers, 2U);
  EXPECT_EQ(stats.grants, 2U);
  EXPECT_EQ(stats.pushes, 1U);
  crowd.ask(wire::StopJobRequest{"train", ""});
  EXPECT_EQ(crowd.engine().stats().jobs, 0U);
  EXPECT_EQ(crowd.engine().stats().workers, 0U);
}

// A restart reads it instead of the job's whole history.
TEST(Engine, AStoppedJobLeavesASnapshotBehind) {
  Crowd crowd("asp", 1);
  crowd.begin(0, 0);
  crowd.push(0, 0);
  const Effects& effects = crowd.ask(wire::StopJobRequest{"train", ""});
  ASSERT_EQ(effects.snapshots.size(), 1U);
  EXPECT_EQ(effects.snapshots[0].state, JobState::kStopped);
  EXPECT_EQ(effects.snapshots[0].sequence, crowd.records().back().sequence);
  Engine restored({});
  std::string error;
  ASSERT_TRUE(restored.restore(&effects.snapshots[0], {}, error)) << error;
  JobSnapshot again;
  ASSERT_TRUE(restored.snapshot(1, again));
  EXPECT_EQ(again, effects.snapshots[0]);
}

TEST(Engine, AListOfTooManyJobsShowsTheRunningOnesAndCountsTheRest) {
  Crowd crowd("asp", 1);  // job #1 goes on
  const int others = 600;
  for (int i = 0; i < others; ++i) {
    const std::string name = "job-" + std::to_string(i);
    crowd.ask(wire::CreateJobRequest{name, "asp", 1, 0});
    crowd.ask(wire::StopJobRequest{name, ""});
  }
  const auto reply = std::get<wire::JobsReply>(crowd.ask(wire::JobsRequest{}).replies.at(0).body);
  EXPECT_GT(reply.omitted, 0U);
  EXPECT_EQ(reply.jobs.size() + reply.omitted, static_cast<std::size_t>(others) + 1);
  EXPECT_EQ(reply.jobs.front().name, "train");
  EXPECT_EQ(reply.jobs.back().name, "job-599");  // the latest of the stopped ones
}

TEST(Engine, AnswersAJobByItsNumberToo) {
  Crowd crowd("asp", 1);
  EXPECT_EQ(crowd.engine().find_job("train"), 1U);
  EXPECT_EQ(crowd.engine().find_job("#1"), 1U);
  EXPECT_EQ(crowd.engine().find_job("#2"), 0U);
  EXPECT_EQ(crowd.engine().find_job("#1x"), 0U);
  EXPECT_EQ(crowd.engine().find_job("#"), 0U);
  EXPECT_EQ(crowd.engine().find_job("other"), 0U);
}

// ---- limits

TEST(EngineLimits, TheOldestStoppedJobMakesRoomForANewOne) {
  Engine engine({});
  Effects effects;
  const auto create = [&](std::uint32_t number) {
    wire::CreateJobRequest request;
    request.name = "job-" + std::to_string(number);
    request.policy = "asp";
    engine.step(Request{{1, number}, request}, 0, effects);
    return to_text(effects.replies.at(0).body);
  };
  for (std::uint32_t i = 1; i <= limits::kJobsMax; ++i) ASSERT_EQ(create(i), "ok");
  EXPECT_EQ(create(limits::kJobsMax + 1),
            "error SYNCD_E_LIMIT \"this daemon runs 10000 jobs already, the most allowed: stop one "
            "first\"");
  engine.step(Request{{1, 1}, wire::StopJobRequest{"job-7", ""}}, 0, effects);
  EXPECT_EQ(create(limits::kJobsMax + 2), "ok");
  EXPECT_EQ(engine.find_job("job-7"), 0U);
  EXPECT_EQ(engine.find_job("job-8"), 8U);
  EXPECT_EQ(engine.find_job("job-10002"), limits::kJobsMax + 1);
  EXPECT_EQ(engine.job_ids().size(), limits::kJobsMax);
}

// What a restart has to replay is bounded for all jobs together, none of which has much by itself.
TEST(EngineLimits, ManyJobsWithFewRecordsEachGetSnapshotsToo) {
  EngineOptions options;
  options.snapshot_every_records = 10;
  Engine engine(options);
  std::map<JobId, Sequence> sequence, snapshot;
  std::size_t snapshots = 0;
  for (std::uint32_t i = 1; i <= 500; ++i) {
    wire::CreateJobRequest request;
    request.name = "job-" + std::to_string(i);
    request.policy = "asp";
    Effects effects;
    engine.step(Request{{1, i}, request}, 0, effects);
    for (const Record& record : effects.records) sequence[record.job] = record.sequence;
    for (const JobSnapshot& taken : effects.snapshots) {
      const JobId job = taken.created.job;
      EXPECT_EQ(taken.sequence, sequence[job]);
      EXPECT_GT(taken.sequence, snapshot[job]) << "a snapshot of what has one";
      snapshot[job] = taken.sequence;
    }
    EXPECT_LE(effects.snapshots.size(), static_cast<std::size_t>(limits::kSnapshotsAtOnce));
    snapshots += effects.snapshots.size();
    std::uint64_t tails = 0;
    for (const auto& [job, last] : sequence) tails += last - snapshot[job];
    ASSERT_LE(tails, limits::kReplayFactor * options.snapshot_every_records) << "after job " << i;
  }
  EXPECT_GT(snapshots, 400U);
}

// A store keeps jobs that have ended for long: what they have of workers is no more after a restart
// than before it.
TEST(EngineLimits, JobsThatHaveEndedAreRestoredAsFarAsThereIsRoom) {
  constexpr JobId kJobs = 9;
  EngineOptions options;
  options.workers_max = 7;
  options.keeps_log = true;
  Engine engine(options);
  std::string error;
  for (JobId id = 1; id <= kJobs; ++id) {
    Crowd crowd("asp", 3);
    if (id != 2) crowd.ask(wire::StopJobRequest{"train", ""});
    std::vector<Record> records = crowd.records();
    for (Record& record : records) record.job = id;
    records.front().name = "job-" + std::to_string(id);
    JobSnapshot snapshot;
    ASSERT_TRUE(crowd.engine().snapshot(1, snapshot));
    snapshot.created = records.front();
    // The latest one's last records are in no snapshot yet.
    const bool is_whole = id != kJobs;
    if (is_whole) records.clear();
    ASSERT_TRUE(engine.restore(is_whole ? &snapshot : nullptr, records, error)) << error;
    EXPECT_LE(engine.stats().workers, options.workers_max) << id;
  }
  engine.finish_restore(0);
  EXPECT_THAT(engine.job_ids(), testing::ElementsAre(2, kJobs)) << "one goes on, one is the latest";

  // Before that one is forgotten there is a snapshot of it.
  Effects effects;
  wire::Join join;
  join.job = "new";
  join.policy = "asp";
  join.host = "h";
  for (const char* name : {"a", "b"}) {
    join.name = name;
    engine.step(Request{{1, 1}, join}, 0, effects);
    EXPECT_TRUE(std::holds_alternative<wire::Joined>(effects.replies.at(0).body));
  }
  EXPECT_THAT(engine.job_ids(), testing::ElementsAre(2, kJobs + 1));
  ASSERT_EQ(effects.snapshots.size(), 1U);
  EXPECT_EQ(effects.snapshots[0].created.job, kJobs);
  EXPECT_EQ(effects.snapshots[0].state, JobState::kStopped);
}

TEST(EngineLimits, ANewJobIsAboveTheEpochsOfThoseThatAreForgotten) {
  Engine engine({});
  engine.forget_epochs(7);
  wire::CreateJobRequest request;
  request.name = "job";
  request.policy = "asp";
  Effects effects;
  engine.step(Request{{1, 1}, request}, 0, effects);
  EXPECT_EQ(effects.records.at(0).epoch, 8U);
}

// Of a store that others lead if this process does not.
TEST(Engine, AJobThatCannotBeReadStandsAlone) {
  Crowd crowd("asp", 3);
  std::vector<Record> records = crowd.records();
  records.back().sequence += 5;  // of its last join
  Engine engine({});
  std::string error;
  ASSERT_FALSE(engine.restore(nullptr, records, error));
  engine.stand_alone(records.front(), error);
  std::vector<Record> other = Crowd("asp", 1).records();
  for (Record& record : other) record.job = 3;
  other.front().name = "other";
  ASSERT_TRUE(engine.restore(nullptr, other, error)) << error;
  engine.finish_restore(0);
  EXPECT_EQ(engine.stats().jobs_unreadable, 1U);
  EXPECT_EQ(engine.stats().workers, 1U);
  for (const char* name : {"", "train"}) {
    const std::vector<wire::JobStatus> jobs =
        engine.jobs([](const std::string&) { return true; }, name).jobs;
    ASSERT_EQ(jobs.size(), *name == '\0' ? 2U : 1U);
    EXPECT_EQ(jobs.front().id, records.front().job);
    EXPECT_EQ(jobs.front().state, "unreadable");
    EXPECT_THAT(jobs.front().note, HasSubstr("job 'train' (#1)"));
    EXPECT_TRUE(
        engine.jobs([](const std::string& job) { return job != "train"; }, "train").jobs.empty());
  }

  Effects effects;
  const auto ask = [&](wire::Body body) {
    engine.step(Request{{1, 1}, std::move(body)}, 0, effects);
    return effects.replies.at(0).body;
  };
  wire::Join join;
  join.job = "train";
  join.name = "w0";
  join.host = "h";
  for (const wire::Body& body :
       {wire::Body(join), wire::Body(wire::CreateJobRequest{"train", "asp", 1, 0}),
        wire::Body(wire::StopJobRequest{"train", ""}),
        wire::Body(wire::LatestCheckpoint{"train"})}) {
    const wire::Body answer = ask(body);
    ASSERT_TRUE(std::holds_alternative<wire::Error>(answer)) << body.index();
    EXPECT_EQ(std::get<wire::Error>(answer).status, Status::kStore);
    EXPECT_THAT(std::get<wire::Error>(answer).message, HasSubstr("job 'train' (#1)"));
    EXPECT_TRUE(effects.records.empty());
  }
  JobSpec declared;
  declared.name = "train";
  ASSERT_TRUE(engine.declare_job(declared, 0, effects, error)) << error;
  EXPECT_TRUE(effects.records.empty()) << "it is there";
  join.job = "other";
  EXPECT_TRUE(std::holds_alternative<wire::Joined>(ask(join)));
  EXPECT_TRUE(std::holds_alternative<wire::Ok>(ask(wire::CreateJobRequest{"new", "asp", 1, 0})));
  EXPECT_EQ(effects.records.at(0).job, 4U);
}

// A job that is made, or that grows, keeps to the limit; one of the store has the graph that it
// had, and so has a worker of it that was lost.
TEST(EngineLimits, EdgesOfANewGraphAreBounded) {
  for (const char* policy : {"hop:complete", "notify_ack:clustered"}) {
    SCOPED_TRACE(policy);
    Crowd old(policy, 4);  // 12 edges, or 14 on one host
    for (Rank rank = 0; rank < 4; ++rank) old.begin(rank, 0);
    EngineOptions options;
    options.graph_edges_max = 8;
    Engine engine(options);
    std::string error;
    ASSERT_TRUE(engine.restore(nullptr, old.records(), error)) << error;
    engine.finish_restore(0);
    const auto ask = [&](wire::Body body) {
      Effects effects;
      engine.step(Request{{1, 1}, std::move(body)}, 0, effects);
      return effects.replies.empty() ? wire::Body() : effects.replies.back().body;
    };
    const auto join = [&](const std::string& job, const std::string& name) {
      wire::Join request;
      request.job = job;
      request.name = name;
      request.host = "h";
      return ask(request);
    };
    const auto expect_refused = [&](const wire::Body& body) {
      ASSERT_TRUE(std::holds_alternative<wire::Error>(body));
      const auto& refused = std::get<wire::Error>(body);
      EXPECT_EQ(refused.status, Status::kLimit);
      EXPECT_THAT(refused.message, HasSubstr("this daemon allows 8 (limits.graph_edges_max)"));
    };
    ask(wire::ManageWorkerRequest{"train", "w3", wire::WorkerAction::kKick, "", 0});
    EXPECT_TRUE(std::holds_alternative<wire::Joined>(join("train", "w3")));
    expect_refused(join("train", "w4"));

    EXPECT_TRUE(std::holds_alternative<wire::Ok>(ask(wire::CreateJobRequest{"new", policy, 3, 0})));
    for (const char* name : {"a", "b", "c"}) {
      EXPECT_TRUE(std::holds_alternative<wire::Joined>(join("new", name))) << name;
    }
    expect_refused(join("new", "d"));
  }
  EngineOptions options;
  options.graph_edges_max = 8;
  Engine engine(options);
  Effects effects;
  engine.step(Request{{1, 1}, wire::CreateJobRequest{"train", "hop:complete", 4, 0}}, 0, effects);
  const auto& refused = std::get<wire::Error>(effects.replies.at(0).body);
  EXPECT_THAT(refused.message, HasSubstr("is to have a graph of 12 edges: this daemon allows 8"));
}

// Whatever a client sends comes back in an error's text, which must fit a frame.
TEST(EngineLimits, AnswersStayShortWhateverTheNames) {
  Crowd crowd("asp", 1);
  const std::string huge(60'000, 'x');
  wire::Join join;
  join.job = "train";
  join.name = "n";
  std::vector<wire::Body> bodies;
  bodies.push_back(wire::StopJobRequest{huge, ""});
  bodies.push_back(wire::StopJobRequest{"train", huge});
  bodies.push_back(wire::WorkersRequest{huge, 0});
  bodies.push_back(wire::CreateJobRequest{huge, "asp", 1, 0});
  bodies.push_back(wire::CreateJobRequest{"other", huge, 1, 0});
  for (std::string wire::Join::*field :
       {&wire::Join::job, &wire::Join::policy, &wire::Join::name, &wire::Join::host}) {
    wire::Join long_join = join;
    long_join.*field = huge;
    bodies.push_back(long_join);
  }
  join.data.assign(limits::kMemberDataBytesMax + 1, 7);
  bodies.push_back(join);
  for (const wire::Body& body : bodies) {
    const Effects& effects = crowd.ask(body);
    ASSERT_EQ(effects.replies.size(), 1U);
    const auto* error = std::get_if<wire::Error>(&effects.replies[0].body);
    ASSERT_NE(error, nullptr) << wire::body_name(body);
    EXPECT_EQ(error->status, Status::kInvalid) << error->message.substr(0, 200);
    EXPECT_LT(error->message.size(), 2000U) << error->message.substr(0, 200);
    EXPECT_TRUE(effects.records.empty());
  }
}

// A list of workers comes in parts that fit a frame, each with where the next one begins.
TEST(EngineLimits, AListOfWorkersIsSentInParts) {
  constexpr std::uint32_t kWorkers = 2000;
  Crowd crowd("bsp", kWorkers);
  std::vector<bool> seen(kWorkers, false);
  std::int64_t next = 0;
  int parts = 0;
  while (next >= 0) {
    const Effects& effects =
        crowd.ask(wire::WorkersRequest{"train", static_cast<std::uint32_t>(next)});
    const auto& reply = std::get<wire::WorkersReply>(effects.replies.at(0).body);
    ASSERT_FALSE(reply.workers.empty());
    for (const wire::WorkerStatus& worker : reply.workers) seen.at(worker.rank) = true;
    next = reply.next_rank;
    ++parts;
  }
  EXPECT_GT(parts, 1);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), kWorkers);
}

// A joiner chooses its name and its host's, an operator a reason; others' terminals show them.
TEST(EngineLimits, WhatOthersAreShownIsPlainText) {
  Engine engine({});
  Effects effects;
  const auto refused = [&](wire::Body request) {
    engine.step(Request{{1, 1}, std::move(request)}, 1000, effects);
    const auto* error = std::get_if<wire::Error>(&effects.replies.at(0).body);
    if (error == nullptr) return std::string("taken");
    EXPECT_EQ(error->status, Status::kInvalid);
    return error->message;
  };
  const auto join = [](const std::string& name, const std::string& host) {
    wire::Join out;
    out.job = "train";
    out.name = name;
    out.host = host;
    return out;
  };
  EXPECT_EQ(
      refused(join("a\x1b[2J", "h")),
      "the worker's name 'a\\x1b[2J' has a character that cannot be shown (\\x1b): allowed is "
      "UTF-8 without control and invisible characters");
  EXPECT_THAT(refused(join("a", "h\xE2\x80\xA8")), HasSubstr("the host's name 'h\\u2028' has a"));
  EXPECT_EQ(refused(join("nœud", "機械")), "taken");
  EXPECT_THAT(refused(wire::StopJobRequest{"train", "so\nit was"}),
              HasSubstr("the reason 'so\\nit was' has a"));
  for (const auto action : {wire::WorkerAction::kDrain, wire::WorkerAction::kKick}) {
    EXPECT_THAT(refused(wire::ManageWorkerRequest{"train", "0", action, "\xff", 0}),
                HasSubstr("the reason '\\xff' has a"));
  }
  EXPECT_EQ(refused(wire::StopJobRequest{"train", "so it was"}), "taken");
}

// So does a list of members, whatever they show of themselves.
TEST(EngineLimits, AListOfMembersIsSentInParts) {
  constexpr std::uint32_t kWorkers = 200;
  Engine engine({});
  Effects effects;
  wire::MembersRequest request;
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
    wire::Join join;
    join.job = "train";
    join.name = std::string(limits::kWorkerNameBytesMax - 4, 'n') + std::to_string(rank);
    join.host = std::string(limits::kHostNameBytesMax, 'h');
    join.data.assign(limits::kMemberDataBytesMax, static_cast<std::uint8_t>(rank));
    join.world_size = kWorkers;
    engine.step(Request{{1, rank + 1}, join}, 1000, effects);
    request.worker = std::get<wire::Joined>(effects.replies.at(0).body).worker;
  }
  std::uint32_t next = 0;
  int parts = 0;
  std::uint64_t version = 0;
  do {
    engine.step(Request{{1, 1'000'000}, request}, 2000, effects);
    ASSERT_EQ(effects.replies.size(), 1U);
    const auto& reply = std::get<wire::MembersReply>(effects.replies[0].body);
    std::vector<std::uint8_t> frame;
    wire::Encoder().append({1, reply}, frame);
    EXPECT_LE(frame.size(), kDefaultMaxFrameBytes);
    for (const wire::MemberStatus& member : reply.members) {
      EXPECT_EQ(member.rank, next++);
      EXPECT_EQ(member.data.size(), limits::kMemberDataBytesMax);
      EXPECT_EQ(member.data[0], static_cast<std::uint8_t>(member.rank));
    }
    EXPECT_TRUE(version == 0 || version == reply.version);
    version = reply.version;
    request.first_rank = static_cast<std::uint32_t>(reply.next_rank);
    ++parts;
    ASSERT_TRUE(reply.next_rank == -1 || reply.next_rank == next);
    if (reply.next_rank == -1) break;
  } while (parts < 100);
  EXPECT_EQ(next, kWorkers);
  EXPECT_GT(parts, 4);

  // An operator may ask for the same.
  std::int64_t from = 0;
  std::uint32_t shown = 0;
  while (from >= 0) {
    const wire::WorkersRequest with_data{"train", static_cast<std::uint32_t>(from), true};
    engine.step(Request{{1, 1'000'001}, with_data}, 3000, effects);
    const auto& reply = std::get<wire::WorkersReply>(effects.replies.at(0).body);
    std::vector<std::uint8_t> frame;
    wire::Encoder().append({1, reply}, frame);
    EXPECT_LE(frame.size(), kDefaultMaxFrameBytes);
    for (const wire::WorkerStatus& worker : reply.workers) {
      shown += worker.data.size() == limits::kMemberDataBytesMax ? 1 : 0;
      EXPECT_EQ(worker.heard_us, 1000);
    }
    from = reply.next_rank;
  }
  EXPECT_EQ(shown, kWorkers);
  engine.step(Request{{1, 1'000'002}, wire::WorkersRequest{"train", 0}}, 3000, effects);
  EXPECT_TRUE(std::get<wire::WorkersReply>(effects.replies.at(0).body).workers[0].data.empty());
}

// A thousand joins in a row cost a listener one notice, and so many listeners one each.
TEST(Members, ABurstOfJoinsIsToldOnce) {
  constexpr std::uint32_t kWorkers = 1000;
  Engine engine({});
  Effects effects;
  std::size_t notices = 0;
  wire::MembersRequest request;
  for (std::uint32_t rank = 0; rank < kWorkers; ++rank) {
    wire::Join join;
    join.job = "train";
    join.name = "w" + std::to_string(rank);
    join.world_size = kWorkers;
    join.notices = wire::kNoticeMembers;
    engine.step(Request{{rank + 1, 1}, join}, 1000 + rank, effects);
    notices += effects.notifications.size();
    if (rank == 0) request.worker = std::get<wire::Joined>(effects.replies.at(0).body).worker;
  }
  EXPECT_EQ(notices, kWorkers - 1) << "each heard of the one after it";
  engine.step(Request{{1, 2}, request}, 5000, effects);
  engine.step(Disconnected{kWorkers}, 6000, effects);
  ASSERT_EQ(effects.notifications.size(), 1U);
  EXPECT_EQ(effects.notifications[0].connection, 1U);
  engine.step(Disconnected{kWorkers - 1}, 7000, effects);
  EXPECT_TRUE(effects.notifications.empty());
}

// ---- restore() makes every job as it was

TEST(EngineRestore, AJobsTimesAreItsOwnWhateverJobCameBefore) {
  Engine engine({});
  Effects effects;
  std::map<JobId, std::vector<Record>> stored;
  RequestId next = 1;
  const auto at = [&](Micros now, wire::Body body) {
    engine.step(Request{{1, next++}, std::move(body)}, now, effects);
    for (const Record& record : effects.records) stored[record.job].push_back(record);
  };
  constexpr Micros kSecond = 1'000'000;
  for (const char* job : {"first", "second"}) {
    wire::Join join;
    join.job = job;
    join.name = "w";
    join.policy = "asp";
    at(kSecond, join);
  }
  // Half a minute after its beginning, a phase is to go on for another minute.
  for (const Micros now : {10 * kSecond, 40 * kSecond}) {
    at(now, wire::ManageWorkerRequest{"second", "w", wire::WorkerAction::kLease, "evaluation",
                                      60 * kSecond});
  }
  at(3600 * kSecond, wire::StopJobRequest{"first", ""});

  Engine restored({});
  for (const auto& [job, records] : stored) {
    std::string error;
    ASSERT_TRUE(restored.restore(nullptr, records, error)) << error;
  }
  EXPECT_EQ(restored.last_time(), 3600 * kSecond);
  JobSnapshot live;
  JobSnapshot again;
  ASSERT_TRUE(engine.snapshot(2, live));
  ASSERT_TRUE(restored.snapshot(2, again));
  EXPECT_EQ(again.workers, live.workers);
  EXPECT_EQ(again.workers.at(0).phase_us, 10 * kSecond);
  EXPECT_EQ(again.workers.at(0).phase_lease_us, 90 * kSecond);
}

// ---- restore() guards itself against a history that does not fit itself

class Restore : public testing::Test {
 protected:
  Restore() : crowd_("bsp:2,backup=1", 2) {
    crowd_.begin(0, 0);
    crowd_.begin(1, 0);
    crowd_.push(0, 0);
    records_ = crowd_.records();  // created, joined, joined, started, push
    crowd_.engine().snapshot(1, snapshot_);
  }

  // What is wrong with the history; empty: nothing.
  std::string refused(const JobSnapshot* snapshot, std::span<const Record> records) {
    Engine engine({});
    std::string error;
    if (engine.restore(snapshot, records, error)) return {};
    EXPECT_EQ(engine.find_job("train"), 0U);
    EXPECT_FALSE(error.empty());
    return error;
  }
  std::string refused() { return refused(nullptr, records_); }
  void append(Record record) {
    record.job = 1;
    record.sequence = records_.size() + 1;
    records_.push_back(std::move(record));
  }

  Crowd crowd_;
  std::vector<Record> records_;
  JobSnapshot snapshot_;
};

TEST_F(Restore, TakesWhatTheEngineMade) {
  EXPECT_EQ(refused(), "");
  EXPECT_EQ(refused(&snapshot_, {}), "");
}

TEST_F(Restore, RefusesAGapAndNamesIt) {
  records_.erase(records_.begin() + 2);
  EXPECT_EQ(refused(), "job 'train' (#1), record 4 (job_started): sequence 4 follows 2");
  EXPECT_EQ(refused(&snapshot_, std::span(records_).last(1)),
            "job 'train' (#1), record 5 (push): sequence 5 follows 5");
}

TEST_F(Restore, RefusesAHistoryWithoutABeginning) {
  EXPECT_EQ(refused(nullptr, {}), "a job's history does not begin with its creation");
  EXPECT_EQ(refused(nullptr, std::span(records_).subspan(1)),
            "a job's history does not begin with its creation");
}

TEST_F(Restore, ForgetsTheOldestStoppedJobsBeyondTheLimit) {
  Engine engine({});
  std::string error;
  for (std::uint32_t id = 1; id <= limits::kJobsMax + 3; ++id) {
    std::vector<Record> records = {records_.front()};
    records[0].job = id;
    records[0].name = "job-" + std::to_string(id);
    if (id == 5 || id == 9) {
      Record stopped;
      stopped.kind = RecordKind::kJobStopped;
      stopped.job = id;
      stopped.sequence = 2;
      stopped.time_us = records[0].time_us;
      stopped.reason = "enough";
      records.push_back(stopped);
    }
    ASSERT_TRUE(engine.restore(nullptr, records, error)) << error;
  }
  EXPECT_EQ(engine.job_ids().size(), limits::kJobsMax + 1U) << "one that goes on is never dropped";
  EXPECT_EQ(engine.find_job("job-5"), 0U);
  EXPECT_EQ(engine.find_job("#9"), 0U);
  EXPECT_EQ(engine.find_job("job-1"), 1U);
}

TEST_F(Restore, RefusesJobsOutOfOrder) {
  Engine engine({});
  std::string error;
  ASSERT_TRUE(engine.restore(nullptr, records_, error)) << error;
  EXPECT_FALSE(engine.restore(nullptr, records_, error));
  EXPECT_EQ(error, "job 'train' (#1) is stored out of order");
}

TEST_F(Restore, RefusesRecordsThatCannotFollow) {
  const std::vector<Record> good = records_;
  const auto after = [&](Record record) {
    records_ = good;
    append(std::move(record));
    const std::string error = refused();
    return error.substr(std::min(error.size(), error.find("): ") + 3));
  };
  Record record;
  record.rank = 0;
  EXPECT_EQ(after(record), "it has no kind");
  for (Micros Record::*time :
       {&Record::time_us, &Record::span_us, &Record::waited_us, &Record::wasted_us}) {
    for (const Micros impossible : {Micros{-2}, limits::kStoredMax + 1, kNever}) {
      record.*time = impossible;
      EXPECT_THAT(after(record), HasSubstr("its time " + std::to_string(impossible) + " is"));
    }
    record.*time = 0;
  }
  for (const Clock impossible : {limits::kStoredMax + 1, -limits::kStoredMax - 1}) {
    Record wrong = record;
    wrong.clock = impossible;
    EXPECT_THAT(after(wrong), HasSubstr("its clock " + std::to_string(impossible) + " is"));
    wrong = record;
    wrong.base = impossible;
    EXPECT_THAT(after(wrong), HasSubstr("its clock " + std::to_string(impossible) + " is"));
    wrong = record;
    wrong.iteration = impossible;
    EXPECT_THAT(after(wrong), HasSubstr("its clock " + std::to_string(impossible) + " is"));
  }
  record.kind = RecordKind::kJobCreated;
  EXPECT_EQ(after(record), "the job was created before");
  record.kind = RecordKind::kJobStarted;
  EXPECT_EQ(after(record), "the job was started before");
  record.kind = RecordKind::kPush;
  record.iteration = 1;
  record.clock = 0;
  EXPECT_EQ(after(record), "it would turn back the clock of worker 0");
  record.rank = 9;
  EXPECT_EQ(after(record), "its worker 9 never joined");
  record.kind = RecordKind::kWorkerLost;
  EXPECT_EQ(after(record), "its worker 9 never joined");
  record.kind = RecordKind::kWorkerJoined;
  record.rank = limits::kWorkersPerJobMax;
  EXPECT_EQ(after(record), "its rank is impossible");
  record.kind = RecordKind::kPolicySwitched;
  record.policy = "none";
  EXPECT_NE(after(record).find("is unknown"), std::string::npos);

  records_ = good;
  record.kind = RecordKind::kJobStopped;
  append(record);
  EXPECT_EQ(refused(), "");
  record.kind = RecordKind::kWorkerLeft;
  record.rank = 0;
  append(record);
  EXPECT_NE(refused().find("it comes after the job's end"), std::string::npos);
}

TEST_F(Restore, RefusesSettingsAndSnapshotsThatMakeNoSense) {
  const JobSnapshot good = snapshot_;
  snapshot_.policy_state = {1, 2, 3};
  EXPECT_NE(refused(&snapshot_, {}).find("policy state"), std::string::npos);
  snapshot_ = good;
  snapshot_.workers[0].rank = limits::kWorkersPerJobMax;
  EXPECT_NE(refused(&snapshot_, {}).find("impossible rank"), std::string::npos);
  snapshot_ = good;
  snapshot_.workers.push_back(snapshot_.workers[0]);
  EXPECT_NE(refused(&snapshot_, {}).find("rank 0 twice"), std::string::npos);
  for (Micros WorkerSnapshot::*time :
       {&WorkerSnapshot::last_push_us, &WorkerSnapshot::previous_push_us, &WorkerSnapshot::phase_us,
        &WorkerSnapshot::phase_lease_us}) {
    snapshot_ = good;
    snapshot_.workers[0].*time = limits::kStoredMax + 1;
    EXPECT_NE(refused(&snapshot_, {}).find("its snapshot of worker 0: its time "),
              std::string::npos);
  }
  snapshot_ = good;
  snapshot_.workers[0].base = -limits::kStoredMax - 1;
  EXPECT_NE(refused(&snapshot_, {}).find("its snapshot of worker 0: its clock "),
            std::string::npos);
  snapshot_ = good;
  snapshot_.time_us = kNever;
  EXPECT_NE(refused(&snapshot_, {}).find("its snapshot: its time "), std::string::npos);
  snapshot_ = good;
  snapshot_.policy = "bsp:0";
  EXPECT_NE(refused(&snapshot_, {}).find("K is '0'"), std::string::npos);
  records_[0].config = "worker_grace_us=soon\n";
  EXPECT_NE(refused().find("malformed"), std::string::npos);
}

// ---- lateness

constexpr Micros kMs = 1000;
constexpr Micros kSecond = 1'000'000;

RecentSpans spans_of(std::initializer_list<Micros> spans) {
  RecentSpans out;
  for (const Micros span : spans) out.add(span);
  return out;
}

TEST(Lateness, IsUnknownUntilEnoughIterationsAre) {
  const JobSpec spec;
  RecentSpans spans;
  for (int i = 1; i < 8; ++i) spans.add(kSecond);
  EXPECT_EQ(spans.usual().spans, 0U);
  EXPECT_EQ(lateness(spec, spans).warn_after_us, 60 * kSecond);
  EXPECT_EQ(lateness(spec, spans).evict_after_us, 3600 * kSecond);
  spans.add(kSecond);
  EXPECT_EQ(spans.usual().spans, 8U);
  EXPECT_EQ(lateness(spec, spans).warn_after_us, 5 * kSecond);    // 4 s, less than the floor
  EXPECT_EQ(lateness(spec, spans).evict_after_us, 60 * kSecond);  // 20 s, likewise
}

TEST(Lateness, IsFourMediansAndEightSpreads) {
  const RecentSpans spans = spans_of({4 * kSecond, 5 * kSecond, 6 * kSecond, 4 * kSecond,
                                      5 * kSecond, 6 * kSecond, 5 * kSecond, 900 * kSecond});
  EXPECT_EQ(spans.usual().median_us, 5 * kSecond);
  EXPECT_EQ(spans.usual().spread_us, 1 * kSecond);
  const Lateness late = lateness({}, spans);
  EXPECT_EQ(late.warn_after_us, (4 * 5 + 8 * 1) * kSecond);
  EXPECT_EQ(late.evict_after_us, 5 * (4 * 5 + 8 * 1) * kSecond);
  EXPECT_EQ(lateness_rule({}, spans),
            "auto: 4 x median 5.0 s + 8 x spread 1.0 s of its last 8 iterations, evict at 5 times "
            "that");
}

TEST(Lateness, ForgetsWhatIsLongAgo) {
  RecentSpans spans;
  for (int i = 0; i < 100; ++i) spans.add(10 * kMs);
  for (int i = 0; i < 20; ++i) spans.add(20 * kSecond);
  EXPECT_EQ(spans.usual().median_us, 20 * kSecond);
  EXPECT_EQ(spans.usual().spans, 16U);
}

// What is usual changes only with a look, every four iterations.
TEST(Lateness, CountsFromOneLookToTheNext) {
  RecentSpans spans;
  for (int i = 0; i < 20; ++i) spans.add(10 * kMs);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(spans.usual().median_us, 10 * kMs) << i;
    spans.add(kSecond);
  }
  EXPECT_EQ(spans.usual().spans, 16U);  // the second look: eight of its sixteen spans are long
  EXPECT_EQ(spans.usual().median_us, kSecond);
}

// Whoever takes longer than the ceiling for every iteration is not late in each of them.
TEST(Lateness, IsNeverWithinTwoMedians) {
  RecentSpans spans;
  for (int i = 0; i < 8; ++i) spans.add(7200 * kSecond);
  EXPECT_EQ(lateness({}, spans).warn_after_us, 14'400 * kSecond);
  EXPECT_EQ(lateness({}, spans).evict_after_us, 14'400 * kSecond);
  // The longest span that may be kept overflows nothing.
  for (int i = 0; i < 16; ++i) spans.add(INT64_MAX);
  EXPECT_EQ(lateness({}, spans).evict_after_us, 2 * limits::kSpanMax);
}

TEST(Lateness, TakesNumbersAsTheyAreAndKeepsTheTwoInOrder) {
  JobSpec spec;
  spec.warn_after_us = 2 * kSecond;
  spec.evict_after_us = 3 * kSecond;
  EXPECT_EQ(lateness(spec, {}).warn_after_us, 2 * kSecond);
  EXPECT_EQ(lateness(spec, {}).evict_after_us, 3 * kSecond);
  EXPECT_EQ(lateness_rule(spec, {}), "");
  spec.warn_after_us = kAutoSpan;
  EXPECT_EQ(lateness(spec, {}).warn_after_us, 3 * kSecond);
  spec.evict_after_us = 0;
  EXPECT_EQ(lateness(spec, {}).warn_after_us, 60 * kSecond);
  EXPECT_EQ(lateness(spec, {}).evict_after_us, 0);
  spec.evict_after_us = kAutoSpan;
  spec.warn_after_us = 2 * 3600 * kSecond;
  EXPECT_EQ(lateness(spec, {}).evict_after_us, 2 * 3600 * kSecond);
  spec.warn_after_us = 0;
  EXPECT_EQ(lateness(spec, {}).warn_after_us, 0);
}

TEST(Lateness, OfASpecIsStoredAndReadBack) {
  JobSpec spec;
  spec.evict_after_us = 7 * kSecond;
  JobSpec read;
  read.warn_after_us = 1;
  ASSERT_TRUE(parse_config_text(config_text(spec), read));
  EXPECT_EQ(read, spec);
  EXPECT_NE(config_text(spec).find("warn_after_us=auto"), std::string::npos);
  EXPECT_FALSE(parse_config_text("worker_grace_us=auto\n", read));
}

// ---- settings

TEST(JobSpec, NamesTheSettingThatIsWrongAndWhatIsAllowed) {
  const auto wrong = [](auto change) {
    JobSpec spec;
    spec.name = "train";
    change(spec);
    return validate(spec);
  };
  EXPECT_EQ(wrong([](JobSpec&) {}), "");
  EXPECT_EQ(wrong([](JobSpec& s) { s.name = ""; }),
            "job name '': allowed are 1 to 64 of A-Z a-z 0-9 . _ -");
  EXPECT_EQ(wrong([](JobSpec& s) { s.name = "a b"; }),
            "job name 'a b': allowed are 1 to 64 of A-Z a-z 0-9 . _ -");
  EXPECT_EQ(wrong([](JobSpec& s) { s.expected_workers = 0; }),
            "expected_workers 0: allowed are 1 to 1000000");
  EXPECT_EQ(wrong([](JobSpec& s) { s.min_workers = 2; }),
            "min_workers 2 is more than expected_workers 1");
  EXPECT_EQ(wrong([](JobSpec& s) { s.worker_grace_us = -1; }),
            "worker_grace_us -1: allowed are 0 to 2592000000000");
  EXPECT_EQ(wrong([](JobSpec& s) { s.evict_after_us = -2; }),
            "evict_after_us -2: allowed are 0 to 2592000000000");
  EXPECT_EQ(wrong([](JobSpec& s) { s.start_timeout_us = kAutoSpan; }),
            "start_timeout_us -1: allowed are 0 to 2592000000000");
  EXPECT_EQ(wrong([](JobSpec& s) {
              s.evict_after_us = 600'000'000;
              s.warn_after_us = s.evict_after_us + 1;
            }),
            "warn_after (600000001 us) is later than evict_after (600000000 us): a worker would be "
            "evicted before anybody was warned");
  EXPECT_EQ(wrong([](JobSpec& s) { s.warn_after_us = s.evict_after_us = 0; }), "");
  EXPECT_EQ(
      wrong([](JobSpec& s) {
        s.policy = "bsp,backup=2";
        s.expected_workers = 8;
        s.min_workers = 2;
      }),
      "policy 'bsp,backup=2': backup is 2, which must be less than the 2 workers that the job "
      "may have");
}

TEST(JobSpec, ComesBackFromItsText) {
  JobSpec spec;
  spec.start_timeout_us = 1;
  spec.worker_grace_us = 2;
  spec.warn_after_us = 3;
  spec.evict_after_us = 4;
  JobSpec back;
  ASSERT_TRUE(parse_config_text(config_text(spec), back));
  EXPECT_EQ(back, spec);
  EXPECT_TRUE(parse_config_text("of_a_newer_version=7\n", back));
  EXPECT_FALSE(parse_config_text("worker_grace_us\n", back));
  EXPECT_FALSE(parse_config_text("worker_grace_us=\n", back));
  EXPECT_FALSE(parse_config_text("worker_grace_us=12x\n", back));
}

// ---- policies' names

TEST(PolicyText, EachPolicySaysItsShortestName) {
  const std::pair<const char*, const char*> kNames[] = {
      {"asp", "asp"},
      {"ssp:0", "ssp:0"},
      {"ssp:3", "ssp:3"},
      {"bsp", "bsp"},
      {"bsp:1", "bsp"},
      {"bsp:5", "bsp:5"},
      {"bsp,backup=0", "bsp"},
      {"bsp:1,backup=2", "bsp,backup=2"},
      {"bsp:4,backup=1", "bsp:4,backup=1"},
      {"naive_wait:50+asp", "naive_wait:50+asp"},
      {"naive_wait:0+bsp:1", "naive_wait:0+bsp"},
      {"naive_wait:1+naive_wait:2+ssp:1", "naive_wait:1+naive_wait:2+ssp:1"},
      {"dssp:3-15", "dssp:3-15"},
      {"elastic_bsp:15,auto,last,objective=max", "elastic_bsp:15"},
      {"elastic_bsp:9,median,zipline_opt,beta=0,objective=rate",
       "elastic_bsp:9,zipline_opt,median,objective=rate,beta=0"},
      {"specsync:adaptive,scope=job,cap=authors,max_restarts=1,auto_off=on+asp", "specsync+asp"},
      {"specsync:auto_off=off+ssp:1", "specsync:adaptive,auto_off=off+ssp:1"},
      {"hop:ring,max_ig=4,backup=0", "hop:ring,backup=0"},
      {"hop:complete,backup.9=2,backup.3=2,backup=1,backup.4-8=2,backup.12=1,backup.11=0",
       "hop:complete,backup=1,backup.3-9=2,backup.11=0"},
      {"hop:complete,backup.5=0", "hop:complete,backup=0"},
      {"hop:complete,backup.5=1,backup=0", "hop:complete,backup.5=1"},
      {"specsync:fixed,0.5,0.250,auto_off=off,max_restarts=2+dssp:0-1",
       "specsync:fixed,0.5,0.25,max_restarts=2+dssp:0-1"},
  };
  for (const auto& [text, name] : kNames) {
    std::string error;
    const auto policy = make_policy(text, error);
    ASSERT_TRUE(policy) << text << ": " << error;
    EXPECT_EQ(policy->name(), name);
    const auto again = make_policy(policy->name(), error);
    ASSERT_TRUE(again) << error;
    EXPECT_EQ(again->name(), name);
  }
}

TEST(PolicyText, RefusalsSayWhatIsWrongAndWhatIsAllowed) {
  const std::pair<const char*, const char*> kRefusals[] = {
      {"", "policy '' is unknown: allowed are asp, bsp[:K][,backup=B], ssp:S, "},
      {"ASP", "is unknown"},
      {"asp:1", "asp takes no parameters"},
      {"ssp", "ssp takes one parameter"},
      {"ssp:1,2", "ssp takes one parameter"},
      {"ssp:-1", "S is '-1', allowed are whole numbers from 0 to 1000000000"},
      {"ssp:1000000001", "S is '1000000001'"},
      {"ssp:99999999999999999999", "S is '99999999999999999999'"},
      {"ssp: 1", "S is ' 1'"},
      {"ssp:=1", "S is '=1'"},
      {"hop:=ring", "graph '=ring' is unknown"},
      {"bsp:0", "K is '0', allowed are whole numbers from 1 to 1000000000"},
      {"bsp:", "K is ''"},
      {"bsp:2,3", "unknown parameter '3'"},
      {"bsp:2,backup=x", "backup is 'x'"},
      {"bsp:2,slack=1", "unknown parameter 'slack'"},
      {"naive_wait:5", "naive_wait is laid over another policy"},
      {"naive_wait+asp", "naive_wait takes one parameter"},
      {"naive_wait:-1+asp", "MS is '-1'"},
      {"naive_wait:1+", "policy '' is unknown"},
      {"naive_wait:1+bsp:0", "K is '0'"},
      {"asp+ssp:1", "nothing can be laid under asp"},
      {"specsync2+asp", "is unknown"},
      {"bsp:1,backup=1,backup=2", "': backup is given twice"},
      {"bsp:1,backup=1,backup=1", "': backup is given twice"},
      {"hop:ring,max_ig=2,skip=0,max_ig=7", "': max_ig is given twice"},
      {"hop:ring,backup.1=1,backup.1=1", "': backup.1 is given twice"},
      {"notify_ack:ring,every=1,every=2", "': every is given twice"},
      {"elastic_bsp:5,beta=1,objective=rate,beta=2", "': beta is given twice"},
      {"elastic_bsp:5,zipline,zipline_opt", "': ALGORITHM is given twice"},
      {"elastic_bsp:5,auto,last,auto", "': ALGORITHM is given twice"},
      {"elastic_bsp:5,last,median", "': PREDICTOR is given twice"},
      {"specsync:scope=job,scope=worker+asp", "': scope is given twice"},
      {"specsync:fixed,5,0.5,auto_off=on,auto_off=off+asp", "': auto_off is given twice"},
      {"naive_wait:1+bsp:2,backup=0,backup=1", "': backup is given twice"},
  };
  for (const auto& [text, part] : kRefusals) {
    std::string error;
    EXPECT_EQ(make_policy(text, error), nullptr) << text;
    EXPECT_NE(error.find(part), std::string::npos) << text << ": " << error;
  }
  std::string error;
  EXPECT_EQ(make_policy(std::string(513, 'a'), error), nullptr);
  EXPECT_EQ(error, "the policy is 513 bytes long: at most 512 are allowed");
}

// ---- small parts

TEST(TimerQueue, FiresInOrderOfTimeThenKeyAndEachOnce) {
  TimerQueue timers;
  EXPECT_EQ(timers.next(), kNever);
  timers.set({1, 5, 0}, 30);
  timers.set({1, 4, 0}, 20);
  timers.set({2, 0, 0}, 20);
  timers.set({1, 4, 1}, 20);
  timers.set({1, 5, 0}, 10);  // moved
  EXPECT_EQ(timers.next(), 10);
  std::vector<TimerKey> fired;
  for (TimerKey key; timers.pop(20, key);) fired.push_back(key);
  EXPECT_EQ(fired, (std::vector<TimerKey>{{1, 5, 0}, {1, 4, 0}, {1, 4, 1}, {2, 0, 0}}));
  EXPECT_EQ(timers.next(), kNever);
}

TEST(TimerQueue, CancelsOneOrAllOfAJob) {
  TimerQueue timers;
  timers.set({1, kNoRank, 0}, 1);
  timers.set({1, 0, 0}, 2);
  timers.set({1, 7, 3}, 3);
  timers.set({2, 0, 0}, 4);
  timers.cancel({1, 0, 0});
  timers.cancel({1, 0, 9});  // not set: nothing happens
  timers.cancel_job(1);
  EXPECT_EQ(timers.next(), 4);
  TimerKey key;
  EXPECT_FALSE(timers.pop(3, key));
  EXPECT_TRUE(timers.pop(4, key));
  EXPECT_EQ(key, (TimerKey{2, 0, 0}));
}

TEST(TimerQueue, IsASetInOrderOfTimeAndKey) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    TimerQueue timers;
    std::map<TimerKey, Micros> at;
    for (int step = 0; step < 300; ++step) {
      const TimerKey key{static_cast<JobId>(1 + random.below(3)), random.between(kNoRank, 6),
                         static_cast<std::uint32_t>(16 * random.below(2))};
      const Micros time = random.between(0, 20);
      switch (random.below(8)) {
        case 0:
          timers.cancel(key);
          at.erase(key);
          break;
        case 1: {
          TimerKey fired;
          const auto first =
              std::min_element(at.begin(), at.end(), [](const auto& a, const auto& b) {
                return std::tie(a.second, a.first) < std::tie(b.second, b.first);
              });
          ASSERT_EQ(timers.pop(time, fired), first != at.end() && first->second <= time);
          if (first == at.end() || first->second > time) break;
          ASSERT_EQ(fired, first->first) << "seed " << seed << ", step " << step;
          at.erase(first);
          break;
        }
        case 2:
          if (!random.one_in(4)) break;
          timers.cancel_job(key.job, key.kind);
          std::erase_if(at, [&](const auto& timer) {
            return timer.first.job == key.job && timer.first.kind >= key.kind;
          });
          break;
        default:
          timers.set(key, time);
          at[key] = time;
      }
      Micros next = kNever;
      for (const auto& [other, when] : at) next = std::min(next, when);
      ASSERT_EQ(timers.next(), next) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(TimerQueue, NeverIsNotDue) {
  TimerQueue timers;
  TimerKey key;
  EXPECT_FALSE(timers.pop(kNever, key));
}

TEST(RelativeClocks, KnowsWhatSoManyHaveReached) {
  RelativeClocks clocks;
  EXPECT_TRUE(clocks.empty());
  for (const Clock q : {5, 3, 9, 5, -1}) clocks.add(q);
  EXPECT_EQ(clocks.size(), 5U);
  EXPECT_EQ(clocks.min(), -1);
  EXPECT_EQ(clocks.max(), 9);
  const Clock expected[] = {9, 5, 5, 3, -1};
  for (std::uint32_t n = 1; n <= 5; ++n) EXPECT_EQ(clocks.nth_largest(n), expected[n - 1]);
  clocks.move(-1, 4);
  clocks.remove(9);
  EXPECT_EQ(clocks.min(), 3);
  EXPECT_EQ(clocks.max(), 5);
  EXPECT_EQ(clocks.size(), 4U);
}

TEST(Waiters, LeaveInTheOrderOfTheirWaiting) {
  Waiters waiters;
  waiters.add(3, 10, 100);
  waiters.add(1, 12, 50);
  waiters.add(2, 11, 100);
  waiters.add(9, 13, 1);
  waiters.add(8, 5, 1);
  waiters.remove(8);
  waiters.remove(77);  // waits for nothing: nothing happens
  EXPECT_TRUE(waiters.take_due(9).empty());
  EXPECT_EQ(waiters.take_due(12), (std::vector<Rank>{1, 2, 3}));
  waiters.add(9, 20, 2);  // asks anew
  EXPECT_TRUE(waiters.take_due(19).empty());
  EXPECT_EQ(waiters.take_due(20), (std::vector<Rank>{9}));
  EXPECT_TRUE(waiters.empty());
}

}  // namespace
}  // namespace syncd::test
