// The fields of what record.fbs stores, in the schema's order.
#pragma once

#include "daemon/core/engine/record.h"
#include "proto/base/fields.h"

namespace syncd {

SYNCD_FIELDS(ViewMember, rank, incarnation, flags, name, host, data)
SYNCD_FIELDS(View, number, reason, members)
SYNCD_FIELDS(Record, kind, job, sequence, time_us, epoch, rank, incarnation, iteration, name, host,
             clock, base, resumed, late, span_us, waited_us, staleness, loss, samples, bytes,
             policy, expected_workers, min_workers, config, reason, superstep, predicted_us,
             wait_us, values, restarts, wasted_us, declined, predicted_wait_us, data, returned,
             checkpoint, shard, shards, location, members, computed_us, in_phase, factor)
SYNCD_FIELDS(WorkerSnapshot, rank, name, host, state, incarnation, clock, base, granted, pushed,
             late, own_pushes, last_push_us, previous_push_us, data, dismissal, leased_phase,
             phase_us, phase_lease_us, entered, returned, exchange_us, slow_since_us, slow_factor,
             usual)
SYNCD_FIELDS(SavedShard, shard, rank, iteration, location)
SYNCD_FIELDS(CheckpointSnapshot, number, state, epoch, since_us, reason, fixed, members, shards,
             saved)
SYNCD_FIELDS(JobSnapshot, created, sequence, time_us, state, epoch, next_incarnation, pushes,
             highest_clock, workers, policy, policy_state, stop_reason, expected_workers,
             reassembling, left, group_epoch, launch, launch_number, failure, checkpoints,
             checkpoints_asked, checkpoint_clock, checkpoint_closed, checkpoint_closed_reason,
             views, policy_text, noise, policy_set)

template <>
inline constexpr Layout kLayout<Record> = Layout::kInOrder;
template <>
struct StoredAs<&Record::rank> {
  using type = std::int32_t;
};
template <>
inline constexpr bool kWrittenEmpty<&Record::values> = false;
template <>
inline constexpr bool kWrittenEmpty<&Record::members> = false;
template <>
inline constexpr bool kWrittenEmpty<&JobSnapshot::views> = false;
template <>
inline constexpr bool kContentsLast<&Record::values> = true;
template <>
inline constexpr bool kWrittenEmpty<&JobSnapshot::checkpoints> = false;
template <>
inline constexpr bool kWrittenEmpty<&CheckpointSnapshot::members> = false;
template <>
inline constexpr bool kWrittenEmpty<&CheckpointSnapshot::saved> = false;
template <>
inline constexpr auto kAbsent<&JobSnapshot::next_incarnation> = Incarnation{0};

}  // namespace syncd
