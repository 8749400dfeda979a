// One fixed message of every type, with every field set to something that is not its default, so
// that a field that is lost on the way shows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "proto/wire/wire.h"

namespace syncd::wire {

using Bytes = std::vector<std::uint8_t>;

// A frame, by an encoder of its own.
inline Bytes encode(const Message& message) {
  Encoder encoder;
  Bytes bytes;
  encoder.append(message, bytes);
  return bytes;
}

inline std::span<const std::uint8_t> payload_of(const Bytes& frame) {
  return std::span(frame).subspan(4);
}

inline std::vector<Message> sample_messages() {
  const WorkerRef ref{7, 3, 2, 41};
  const WaitedFor waited{7, "worker-7", "node-b", 8, 41'200'000, "running"};
  std::vector<Body> bodies = {
      Hello{1, 3, "trainer", "0.1.0", "s3cret"},
      Welcome{1, 0x1122334455667788, "0.1.0", 65536, 1500, 5000},
      Error{Status::kPolicyMismatch, "job 'a' runs policy 'bsp', not 'asp'"},
      Ok{},
      Join{"cifar",
           "ssp:3",
           "worker-3",
           "node-a",
           3,
           16,
           40,
           12,
           11,
           10,
           9,
           {},
           0,
           {},
           0,
           Resume::kAuto,
           0,
           {}},
      Joined{ref, 13, "ssp:3", 16, true, true},
      Leave{ref},
      Begin{ref, 12},
      Granted{12, kStepPull | kStepSkip, 4},
      Push{ref, 12, 0.125, 128, 4096},
      Pushed{12, true, true},
      Explain{ref},
      Explanation{"ssp:3",
                  "relative clock 12 is 4 ahead of the slowest (8), allowed 3",
                  12,
                  5'000'000,
                  2,
                  "7-8",
                  {waited, {8, "", "", 0, -1, "not joined"}}},
      CancelBegin{ref, 12},
      StopNotice{ref, "stopped by an operator"},
      FencedNotice{ref, "declared lost"},
      ResyncNotice{ref, 12},
      ShutdownNotice{"maintenance"},
      Heartbeat{},
      HeartbeatAck{},
      StatusRequest{},
      StatusReply{"0.1.0",
                  4711,
                  1'000'001,
                  2'000'002,
                  "/var/lib/syncd",
                  "durable",
                  17,
                  2,
                  16,
                  1234,
                  99,
                  98,
                  true,
                  {}},
      JobsRequest{},
      JobsReply{{{1, "cifar", "ssp:3", "running", 2, 16, 15, 8, 12, 160, 3, "note", 1'000'003},
                 {2, "movie", "bsp", "waiting", 1, 4, 0, 0, 0, 0, 0, "waiting for 4 of 4: 0-3", 5}},
                9},
      WorkersRequest{"cifar", 100},
      WorkersReply{{{3,
                     "worker-3",
                     "node-a",
                     "running",
                     41,
                     12,
                     13,
                     2'000'000,
                     true,
                     5'000'000,
                     "7-8",
                     "ssp:3: too far ahead",
                     -1,
                     -1,
                     {}}},
                   4,
                   2'000'001},
      HistoryRequest{"cifar", 77, 500},
      HistoryReply{{{77, {1, 2, 3, 250}}, {78, {}}}, 79},
      CreateJobRequest{"cifar", "bsp:5,backup=1", 16, 12},
      StopJobRequest{"cifar", "enough"},
      Restarted{ref, 12},
      Targets{ref, 12},
      TargetsReply{12, {1, 2, 7}},
      Collect{ref, 12},
      CollectReply{12, {{3, 12, 0.5}, {7, 11, 0.25}, {9, 10, 0.25}}},
      Consumed{ref, 12},
      SetPolicyRequest{"cifar", "dssp:3-15"},
      Phase{ref, "checkpoint", 60'000'000},
      MembersRequest{ref, 40},
      MembersReply{{{3, MemberState::kLost, 12, "worker-3", "node-a", {10, 0, 0, 7}},
                    {4, MemberState::kActive, 0, "", "", {}}},
                   5,
                   1'700'000'000'000'000},
      MembersNotice{ref, 1'700'000'000'000'001},
      PlanNotice{ref, 17, 40'000},
      CheckpointRequest{"/backup/syncd-1"},
      ManageWorkerRequest{"cifar", "worker-3", WorkerAction::kLease, "evaluation", 60'000'000},
      Arrive{ref, 5, {10, 0, 0, 7, 255}},
      ViewGranted{5, kStepBarrier, 0, 6, 1, 3, {10, 0, 0, 1, 255}, "'node-c' was lost"},
      ViewRequest{ref, 6, 1},
      ViewReply{6,
                3,
                "'node-c' was lost",
                {{1, "worker-3", "node-a", {10, 0, 0, 7, 255}}, {2, "worker-4", "node-b", {}}},
                3},
      RoundNotice{ref, 6, 1, 2},
      ExcludeRequest{"cifar", "node-c", true, true, "its memory has errors"},
      Exchanging{ref, 20, 1'000'000},
      HangNotice{ref, 3, 20, 31'000'000, "waiting for worker 3 (node-b)"},
      InspectNotice{ref, 5},
      Inspected{ref, 5, {'m', 'a', 'i', 'n', 255}},
      InspectRequest{"cifar", "worker-3", true},
      InspectReply{3, "worker-3", "node-b", "in iteration 20 for 31.0 s", "main", "no", 5},
      AskCheckpoint{ref, "SIGTERM", true},
      OrderCheckpoint{"cifar", "before the night"},
      CheckpointAsked{7},
      Checkpointed{ref, 7, 3, 16, "/scratch/cifar/7/3"},
      LatestCheckpoint{"cifar", 16},
      LatestCheckpointReply{7,
                            2,
                            300,
                            1'700'000'000'000'000,
                            16,
                            {{3, 4, 300, "/scratch/cifar/7/3"}, {4, 5, 301, "s3://a/4"}},
                            5,
                            8,
                            "3 of 16 shards are saved",
                            7,
                            "worker 3 went before it had saved"},
      StragglerNotice{ref, 5, "worker-5", "node-b", true, 2.125, 1'700'000'000'000'000,
                      "3 of 4 workers of host node-b are slow"},
      Redirect{5, "tls:node-b:7122,tcp:10.0.0.2:7122", 250},
  };
  std::vector<Message> messages;
  std::uint64_t id = 1000;
  for (Body& body : bodies) messages.push_back({++id, std::move(body)});
  return messages;
}

// Messages whose tables have grown since their sample was stored above, with the new fields too; by
// the name of their golden file.
inline std::vector<std::pair<std::string, Message>> grown_messages() {
  Join join{"cifar", "ssp:3", "worker-3", "node-a",      3, 16, 40, 12, 11, 10, 9, {},
            0,       {},      0,          Resume::kAuto, 0, {}};
  join.phase = "checkpoint";
  join.phase_left_us = 48'000'000;
  join.data = {10, 0, 0, 7, 255};
  join.notices = kNoticeMembers | kNoticePlan;
  Joined joined{{7, 3, 2, 41}, 13, "ssp:3", 16, true, true};
  joined.members_version = 1'700'000'000'000'000;
  HistoryRequest history{"cifar", 77, 500, 49'152};
  Join join_of_epoch = join;
  join_of_epoch.epoch = 2;
  Join join_of_launch = join_of_epoch;
  join_of_launch.launch = "llm";
  join_of_launch.launch_number = 3;
  join_of_launch.resume = Resume::kContinue;
  join_of_launch.resume_at = 300;
  Joined joined_with_grace = joined;
  joined_with_grace.worker_grace_us = 10'000'000;
  Join join_with_views = join_of_launch;
  join_with_views.views = true;
  Joined joined_with_views = joined_with_grace;
  joined_with_views.views = true;
  joined_with_views.round = 6;
  joined_with_views.round_gone = 1;
  joined_with_views.round_room = 2;
  joined_with_views.heartbeat_timeout_ms = 2'000;
  Join join_with_grace = join_of_launch;
  join_with_grace.exit_grace_us = 0;
  Joined joined_with_exit_grace = joined_with_grace;
  joined_with_exit_grace.exit_grace_us = 3'500'000;
  Join quick_join = join_of_launch;
  quick_join.heartbeat_timeout_ms = 1'000;
  Join observing_join = join_of_launch;
  observing_join.hang_after_us = 30'000'000;
  JobsReply hanging{{{1, "cifar", "ssp:3", "running", 2, 16, 15, 8, 12, 160, 3, "note", 1'000'003}},
                    0};
  hanging.jobs[0].hang = "waiting for worker 3 (node-b)";
  hanging.jobs[0].hang_ranks = "3";
  Joined observed = joined_with_grace;
  observed.hang_after_us = -1;
  WorkersReply workers{{{3,
                         "worker-3",
                         "node-a",
                         "running",
                         41,
                         12,
                         13,
                         2'000'000,
                         true,
                         5'000'000,
                         "7-8",
                         "ssp:3: too far ahead",
                         -1,
                         -1,
                         {}}},
                       4,
                       2'000'001};
  workers.workers[0].warn_after_us = 5'000'000;
  workers.workers[0].evict_after_us = 60'000'000;
  workers.workers[0].late_rule = "auto: 4 x median 20 ms + 8 x spread 1 ms";
  WorkersReply who = workers;
  who.workers[0].heard_us = 1'900'000;
  who.workers[0].data = {10, 0, 0, 7, 255};
  StatusReply status{"0.1.0",   4711, 1'000'001, 2'000'002, "/var/lib/syncd",
                     "durable", 17,   2,         16,        1234,
                     99,        98,   true,      {}};
  status.store_error = "store /var/lib/syncd cannot be written: No space left on device";
  status.store_error_since_us = 1'999'999;
  status.commit_failures = 12;
  status.records_removed = 200'000;
  ViewGranted view_of_checkpoint{5, kStepCheckpoint, 0, 6, 1, 3, {10, 0}, "'node-c' was lost"};
  view_of_checkpoint.checkpoint = 7;
  ViewGranted view_with_shard = view_of_checkpoint;
  view_with_shard.shard = 2;
  view_with_shard.shards = 3;
  WorkersReply slow = who;
  slow.workers[0].computed_us = 20'000;
  slow.workers[0].exchange_us = 5'000;
  slow.workers[0].straggler_since_us = 1'800'000;
  slow.workers[0].straggler_factor = 2.125;
  JobsReply with_stragglers{{{1, "cifar", "ssp:3", "running", 2, 16, 15, 8, 12, 160, 3,
                              "slow: 3 (2.1 times)", 1'000'003}},
                            0};
  with_stragglers.jobs[0].stragglers = 1;
  Push marked{{7, 3, 2, 41}, 12, 0.125, 128, 4096};
  marked.computed_us = 20'000;
  HistoryReply page{{{77, {1, 2, 3, 250}}, {78, {}}}, 79};
  page.first_sequence = 51;
  return {{"StatusReply.2", {2004, status}},
          {"HistoryReply.2", {2005, page}},
          {"Join.2", {2001, join}},
          {"Joined.2", {2002, joined}},
          {"HistoryRequest.2", {2003, history}},
          {"Join.3", {2006, join_of_epoch}},
          {"Joined.3", {2007, joined_with_grace}},
          {"WorkersReply.2", {2009, workers}},
          {"WorkersReply.3", {2010, who}},
          {"WorkersRequest.2", {2011, WorkersRequest{"cifar", 100, true}}},
          {"Join.4", {2012, join_of_launch}},
          {"Join.5", {2013, join_with_views}},
          {"Joined.4", {2014, joined_with_views}},
          {"Join.6", {2016, join_with_grace}},
          {"Joined.5", {2017, joined_with_exit_grace}},
          {"Leave.2",
           {2015, Leave{{7, 3, 2, 41}, LeaveKind::kFailed, "ValueError: loss is not finite"}}},
          {"Join.7", {2018, observing_join}},
          {"Join.8", {2029, quick_join}},
          {"Joined.6", {2019, observed}},
          {"JobsReply.2", {2020, hanging}},
          {"Granted.2", {2021, Granted{12, kStepCheckpoint, 4, 7}}},
          {"ViewGranted.2", {2022, view_of_checkpoint}},
          {"Push.2", {2023, marked}},
          {"WorkersReply.4", {2024, slow}},
          {"JobsReply.3", {2025, with_stragglers}},
          {"Granted.3", {2026, Granted{12, kStepCheckpoint, 4, 7, 2, 16}}},
          {"ViewGranted.3", {2027, view_with_shard}},
          {"LatestCheckpoint.2", {2028, LatestCheckpoint{"cifar", 16, 1}}},
          {"Hello.2", {2030, Hello{1, 3, "trainer", "0.1.0", "s3cret", 5}}},
          {"Welcome.2", {2031, Welcome{1, 0x1122334455667788, "0.1.0", 65536, 1500, 5000, 5, 16}}}};
}

}  // namespace syncd::wire
