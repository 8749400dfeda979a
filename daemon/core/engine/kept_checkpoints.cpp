// See kept_checkpoints.h.
#include "daemon/core/engine/kept_checkpoints.h"

#include <algorithm>

#include "daemon/core/engine/limits.h"

namespace syncd {

CompleteCheckpoint::CompleteCheckpoint(CheckpointSnapshot&& facts)
    : CheckpointSnapshot(std::move(facts)) {
  if (!saved.empty()) {
    iteration = std::ranges::min(saved, {}, &SavedShard::iteration).iteration;
  }
}

void CompleteCheckpoint::add(SavedShard&& shard) {
  iteration = saved.empty() ? shard.iteration : std::min(iteration, shard.iteration);
  const auto at = std::ranges::lower_bound(saved, shard.shard, {}, &SavedShard::shard);
  saved.insert(at, std::move(shard));
}

void CompleteCheckpoint::put(const wire::LatestCheckpoint& asked,
                             wire::LatestCheckpointReply& out) const {
  out.number = number;
  out.epoch = epoch;
  out.completed_us = since_us;
  out.shards = shards;
  if (!saved.empty()) out.iteration = iteration;
  if (asked.shards_max == 0) return;
  std::size_t bytes = out.open_text.size() + out.closed_reason.size();
  const auto most = static_cast<std::uint64_t>(asked.shards_max);  // of -1: no bound
  auto at = std::ranges::lower_bound(saved, asked.first_shard, {}, &SavedShard::shard);
  for (; at != saved.end(); ++at) {
    bytes += 64 + at->location.size();
    const bool is_full = bytes > limits::kHistoryReplyBytesMax && !out.saved.empty();
    if (is_full || out.saved.size() >= most) {
      out.next_shard = at->shard;
      break;
    }
    out.saved.push_back({at->shard, at->rank, at->iteration, at->location});
  }
}

void KeptCheckpoints::add(const std::string& job, const CheckpointSnapshot& checkpoint,
                          std::vector<std::string>& gone) {
  const std::size_t before = gone.size();
  if (!index_.add(job, checkpoint, gone)) return;
  CheckpointSnapshot kept = checkpoint;
  kept.reason = {};
  kept.members = {};
  kept_.insert_or_assign(job, CompleteCheckpoint(std::move(kept)));
  for (std::size_t i = before; i < gone.size(); ++i) kept_.erase(gone[i]);
}

}  // namespace syncd
