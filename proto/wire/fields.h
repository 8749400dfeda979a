// The fields of each message of wire.fbs and of what lies in them, in the schema's order.
#pragma once

#include "proto/base/fields.h"
#include "proto/wire/wire.h"

namespace syncd {

SYNCD_FIELDS(WaitedFor, rank, name, host, clock, last_push_age_us, state)
SYNCD_FIELDS(Explanation, rule, text, iteration, waiting_us, waited_for_count, ranks, workers)

namespace wire {

SYNCD_FIELDS(WorkerRef, job, rank, epoch, incarnation)
SYNCD_FIELDS(Hello, protocol_min, protocol_max, client_name, client_version, token, shard)
SYNCD_FIELDS(Welcome, protocol, session, server_version, max_frame_bytes, heartbeat_interval_ms,
             heartbeat_timeout_ms, shard, shards)
SYNCD_FIELDS(Redirect, shard, addresses, retry_after_ms)
SYNCD_FIELDS(Error, status, message)
SYNCD_FIELDS(Ok)
SYNCD_FIELDS(Join, job, policy, name, host, rank, world_size, incarnation, granted, pushed,
             collected, consumed, phase, phase_left_us, data, notices, epoch, launch, launch_number,
             resume, resume_at, views, exit_grace_us, hang_after_us, heartbeat_timeout_ms)
SYNCD_FIELDS(Joined, worker, iteration, policy, world_size, durable, resumed, members_version,
             worker_grace_us, views, round, round_gone, round_room, heartbeat_timeout_ms,
             exit_grace_us, hang_after_us)
SYNCD_FIELDS(Leave, worker, kind, reason)
SYNCD_FIELDS(Begin, worker, iteration)
SYNCD_FIELDS(Granted, iteration, flags, staleness, checkpoint, shard, shards)
SYNCD_FIELDS(Push, worker, iteration, loss, samples, bytes, computed_us)
SYNCD_FIELDS(Pushed, iteration, late, duplicate)
SYNCD_FIELDS(Explain, worker)
SYNCD_FIELDS(CancelBegin, worker, iteration)
SYNCD_FIELDS(StopNotice, worker, message)
SYNCD_FIELDS(FencedNotice, worker, message)
SYNCD_FIELDS(ResyncNotice, worker, iteration)
SYNCD_FIELDS(ShutdownNotice, message)
SYNCD_FIELDS(Heartbeat)
SYNCD_FIELDS(HeartbeatAck)
SYNCD_FIELDS(StatusRequest)
SYNCD_FIELDS(StatusReply, server_version, pid, started_us, now_us, store, mode, sessions, jobs,
             workers, pushes, frames_in, frames_out, read_only, store_error, store_error_since_us,
             commit_failures, records_removed)
SYNCD_FIELDS(JobsRequest, job)
SYNCD_FIELDS(JobStatus, id, name, policy, state, epoch, expected_workers, active_workers, clock_min,
             clock_max, pushes, waiting, note, created_us, hang, hang_ranks, stragglers, round,
             round_gone)
SYNCD_FIELDS(JobsReply, jobs, omitted)
SYNCD_FIELDS(WorkersRequest, job, first_rank, with_data)
SYNCD_FIELDS(WorkerStatus, rank, name, host, state, incarnation, clock, granted, last_push_us,
             connected, waiting_us, waiting_for, reason, warn_after_us, evict_after_us, late_rule,
             heard_us, data, computed_us, exchange_us, straggler_since_us, straggler_factor)
SYNCD_FIELDS(WorkersReply, workers, next_rank, now_us)
SYNCD_FIELDS(HistoryRequest, job, from_sequence, records_max, from_byte)
SYNCD_FIELDS(StoredRecord, sequence, bytes)
SYNCD_FIELDS(HistoryReply, records, next_sequence, bytes_left, first_sequence)
SYNCD_FIELDS(CreateJobRequest, name, policy, expected_workers, min_workers)
SYNCD_FIELDS(StopJobRequest, job, reason)
SYNCD_FIELDS(Restarted, worker, iteration)
SYNCD_FIELDS(Targets, worker, iteration)
SYNCD_FIELDS(TargetsReply, iteration, ranks)
SYNCD_FIELDS(Collect, worker, iteration)
SYNCD_FIELDS(PeerUpdate, rank, iteration, weight)
SYNCD_FIELDS(CollectReply, iteration, updates)
SYNCD_FIELDS(Consumed, worker, iteration)
SYNCD_FIELDS(SetPolicyRequest, job, policy)
SYNCD_FIELDS(Phase, worker, name, lease_us)
SYNCD_FIELDS(MembersRequest, worker, first_rank)
SYNCD_FIELDS(MemberStatus, rank, state, clock, name, host, data)
SYNCD_FIELDS(MembersReply, members, next_rank, version)
SYNCD_FIELDS(MembersNotice, worker, version)
SYNCD_FIELDS(PlanNotice, worker, iteration, wait_us)
SYNCD_FIELDS(ManageWorkerRequest, job, worker, action, text, lease_us)
SYNCD_FIELDS(CheckpointRequest, path)
SYNCD_FIELDS(Arrive, worker, iteration, data)
SYNCD_FIELDS(ViewGranted, iteration, flags, staleness, view, rank, size, data, reason, checkpoint,
             shard, shards)
SYNCD_FIELDS(ViewRequest, worker, view, first_rank)
SYNCD_FIELDS(ViewMember, rank, name, host, data)
SYNCD_FIELDS(ViewReply, view, size, reason, members, next_rank)
SYNCD_FIELDS(RoundNotice, worker, round, gone, room)
SYNCD_FIELDS(ExcludeRequest, job, host, undo, force, reason)
SYNCD_FIELDS(Exchanging, worker, iteration, for_us)
SYNCD_FIELDS(HangNotice, worker, rank, iteration, waiting_us, text)
SYNCD_FIELDS(InspectNotice, worker, number)
SYNCD_FIELDS(Inspected, worker, number, text)
SYNCD_FIELDS(InspectRequest, job, worker, stored)
SYNCD_FIELDS(InspectReply, rank, name, host, state, stacks, failure, at_us)
SYNCD_FIELDS(AskCheckpoint, worker, reason, unless_broken)
SYNCD_FIELDS(OrderCheckpoint, job, reason)
SYNCD_FIELDS(CheckpointAsked, number)
SYNCD_FIELDS(Checkpointed, worker, number, shard, shards, location)
SYNCD_FIELDS(LatestCheckpoint, job, first_shard, shards_max)
SYNCD_FIELDS(CheckpointShard, shard, rank, iteration, location)
SYNCD_FIELDS(LatestCheckpointReply, number, epoch, iteration, completed_us, shards, saved,
             next_shard, open, open_text, closed, closed_reason)
SYNCD_FIELDS(StragglerNotice, worker, rank, name, host, recovered, factor, since_us, host_note)

}  // namespace wire

template <>
inline constexpr Layout kLayout<wire::WorkerRef> = Layout::kInline;
template <>
inline constexpr Layout kLayout<wire::PeerUpdate> = Layout::kInline;
template <>
inline constexpr auto kAbsent<&wire::Error::status> = Status::kOk;
template <>
inline constexpr bool kWrittenEmpty<&wire::StoredRecord::bytes> = true;

}  // namespace syncd
