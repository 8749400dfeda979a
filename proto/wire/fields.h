// The fields of each message of wire.fbs and of what lies in them, in the schema's order.
#pragma once

#include "proto/base/fields.h"
#include "proto/wire/wire.h"

namespace syncd {

SYNCD_FIELDS(WaitedFor, kBySize, rank, name, host, clock, last_push_age_us, state)
SYNCD_FIELDS(Explanation, kBySize, rule, text, iteration, waiting_us, waited_for_count, ranks,
             workers)

namespace wire {

SYNCD_FIELDS(WorkerRef, kInline, job, rank, epoch, incarnation)
SYNCD_FIELDS(Hello, kBySize, protocol_min, protocol_max, client_name, client_version, token)
SYNCD_FIELDS(Welcome, kBySize, protocol, session, server_version, max_frame_bytes,
             heartbeat_interval_ms, heartbeat_timeout_ms)
SYNCD_FIELDS(Error, kBySize, status, message)
SYNCD_FIELDS(Ok, kBySize)
SYNCD_FIELDS(Join, kBySize, job, policy, name, host, rank, world_size, incarnation, granted, pushed,
             collected, consumed, phase, phase_left_us, data, notices, epoch)
SYNCD_FIELDS(Joined, kBySize, worker, iteration, policy, world_size, durable, resumed,
             members_version, worker_grace_us)
SYNCD_FIELDS(Leave, kBySize, worker)
SYNCD_FIELDS(Begin, kBySize, worker, iteration)
SYNCD_FIELDS(Granted, kBySize, iteration, flags, staleness)
SYNCD_FIELDS(Push, kBySize, worker, iteration, loss, samples, bytes)
SYNCD_FIELDS(Pushed, kBySize, iteration, late, duplicate)
SYNCD_FIELDS(Explain, kBySize, worker)
SYNCD_FIELDS(CancelBegin, kBySize, worker, iteration)
SYNCD_FIELDS(StopNotice, kBySize, worker, message)
SYNCD_FIELDS(FencedNotice, kBySize, worker, message)
SYNCD_FIELDS(ResyncNotice, kBySize, worker, iteration)
SYNCD_FIELDS(ShutdownNotice, kBySize, message)
SYNCD_FIELDS(Heartbeat, kBySize)
SYNCD_FIELDS(HeartbeatAck, kBySize)
SYNCD_FIELDS(StatusRequest, kBySize)
SYNCD_FIELDS(StatusReply, kBySize, server_version, pid, started_us, now_us, store, mode, sessions,
             jobs, workers, pushes, frames_in, frames_out, read_only, store_error,
             store_error_since_us, commit_failures, records_removed)
SYNCD_FIELDS(JobsRequest, kBySize)
SYNCD_FIELDS(JobStatus, kBySize, id, name, policy, state, epoch, expected_workers, active_workers,
             clock_min, clock_max, pushes, waiting, note, created_us)
SYNCD_FIELDS(JobsReply, kBySize, jobs, omitted)
SYNCD_FIELDS(WorkersRequest, kBySize, job, first_rank, with_data)
SYNCD_FIELDS(WorkerStatus, kBySize, rank, name, host, state, incarnation, clock, granted,
             last_push_us, connected, waiting_us, waiting_for, reason, warn_after_us,
             evict_after_us, late_rule, heard_us, data)
SYNCD_FIELDS(WorkersReply, kBySize, workers, next_rank, now_us)
SYNCD_FIELDS(HistoryRequest, kBySize, job, from_sequence, records_max, from_byte)
SYNCD_FIELDS(StoredRecord, kBySize, sequence, bytes)
SYNCD_FIELDS(HistoryReply, kBySize, records, next_sequence, bytes_left, first_sequence)
SYNCD_FIELDS(CreateJobRequest, kBySize, name, policy, expected_workers, min_workers)
SYNCD_FIELDS(StopJobRequest, kBySize, job, reason)
SYNCD_FIELDS(Restarted, kBySize, worker, iteration)
SYNCD_FIELDS(Targets, kBySize, worker, iteration)
SYNCD_FIELDS(TargetsReply, kBySize, iteration, ranks)
SYNCD_FIELDS(Collect, kBySize, worker, iteration)
SYNCD_FIELDS(PeerUpdate, kInline, rank, iteration, weight)
SYNCD_FIELDS(CollectReply, kBySize, iteration, updates)
SYNCD_FIELDS(Consumed, kBySize, worker, iteration)
SYNCD_FIELDS(SetPolicyRequest, kBySize, job, policy)
SYNCD_FIELDS(Phase, kBySize, worker, name, lease_us)
SYNCD_FIELDS(MembersRequest, kBySize, worker, first_rank)
SYNCD_FIELDS(MemberStatus, kBySize, rank, state, clock, name, host, data)
SYNCD_FIELDS(MembersReply, kBySize, members, next_rank, version)
SYNCD_FIELDS(MembersNotice, kBySize, worker, version)
SYNCD_FIELDS(PlanNotice, kBySize, worker, iteration, wait_us)
SYNCD_FIELDS(ManageWorkerRequest, kBySize, job, worker, action, text, lease_us)
SYNCD_FIELDS(CheckpointRequest, kBySize, path)

}  // namespace wire

template <>
inline constexpr auto kAbsent<&wire::Error::status> = Status::kOk;
template <>
inline constexpr bool kWrittenEmpty<&wire::StoredRecord::bytes> = true;

}  // namespace syncd
