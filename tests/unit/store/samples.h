// Records and a snapshot with every field set, for the codec and the stores.
#pragma once

#include <vector>

#include "daemon/core/engine/record.h"

namespace syncd::store {

inline Record sample_record(RecordKind kind, JobId job, Sequence sequence) {
  Record r;
  r.kind = kind;
  r.job = job;
  r.sequence = sequence;
  r.time_us = 1'700'000'000'000'000 + static_cast<Micros>(sequence);
  r.epoch = 2;
  r.rank = kind == RecordKind::kJobCreated ? kNoRank : 3;
  r.incarnation = 41;
  r.iteration = 12;
  r.name = "worker-3";
  r.host = "node-a";
  r.clock = 13;
  r.base = 5;
  r.resumed = true;
  r.late = true;
  r.span_us = 1234;
  r.waited_us = 567;
  r.staleness = 4;
  r.loss = 0.125;
  r.samples = 128;
  r.bytes = 4096;
  r.policy = "ssp:3";
  r.expected_workers = 16;
  r.min_workers = 12;
  r.config = "worker_grace_us=1\n";
  r.reason = "declared lost";
  r.superstep = 6;
  r.predicted_us = 1'700'000'000'000'999;
  r.wait_us = 77;
  r.predicted_wait_us = 78;
  r.restarts = 2;
  r.wasted_us = 99;
  r.declined = true;
  r.values = {1, -2, 3};
  return r;
}

inline Record creation(JobId job, const char* name = "cifar") {
  Record r;
  r.kind = RecordKind::kJobCreated;
  r.job = job;
  r.sequence = 1;
  r.time_us = 1'700'000'000'000'000;
  r.epoch = 1;
  r.name = name;
  r.policy = "bsp";
  r.expected_workers = 4;
  return r;
}

inline Record push(JobId job, Sequence sequence) {
  Record r;
  r.kind = RecordKind::kPush;
  r.job = job;
  r.sequence = sequence;
  r.time_us = 1'700'000'000'000'000 + static_cast<Micros>(sequence);
  r.epoch = 1;
  r.rank = static_cast<std::int64_t>(sequence % 4);
  r.incarnation = 1;
  r.iteration = static_cast<Iteration>(sequence);
  return r;
}

inline JobSnapshot sample_snapshot(JobId job, Sequence sequence) {
  JobSnapshot s;
  s.created = creation(job);
  s.sequence = sequence;
  s.time_us = 1'700'000'000'000'000 + static_cast<Micros>(sequence);
  s.state = JobState::kRunning;
  s.epoch = 1;
  s.next_incarnation = 9;
  s.pushes = 120;
  s.highest_clock = 33;
  s.workers = {{.rank = 0,
                .state = WorkerState::kRunning,
                .incarnation = 1,
                .clock = 30,
                .base = 2,
                .granted = 30,
                .pushed = 29,
                .late = 7,
                .own_pushes = 28,
                .last_push_us = 100,
                .previous_push_us = 90,
                .name = "w0",
                .host = "a"},
               {.rank = 1,
                .state = WorkerState::kLost,
                .incarnation = 2,
                .clock = 31,
                .granted = 31,
                .pushed = 30,
                .own_pushes = 31,
                .name = "w1",
                .host = "b"}};
  s.policy = "bsp:5";
  s.policy_state = {6, -1};
  s.stop_reason = "none";
  return s;
}

}  // namespace syncd::store
