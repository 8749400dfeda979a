// See kept_checkpoints.h.
#include "daemon/core/engine/kept_checkpoints.h"

#include <algorithm>

#include "daemon/core/engine/limits.h"

namespace syncd {

void KeptCheckpoints::add(const std::string& job, const CheckpointSnapshot& checkpoint,
                          std::vector<std::string>& gone) {
  const std::size_t before = gone.size();
  if (!index_.add(job, checkpoint, gone)) return;
  CheckpointSnapshot& kept = kept_[job] = checkpoint;
  kept.reason = {};
  kept.members = {};
  for (std::size_t i = before; i < gone.size(); ++i) kept_.erase(gone[i]);
}

void list_shards(const CheckpointSnapshot& complete, std::uint32_t first_shard,
                 wire::LatestCheckpointReply& out) {
  out.number = complete.number;
  out.epoch = complete.epoch;
  out.completed_us = complete.since_us;
  out.shards = complete.shards;
  if (!complete.saved.empty()) {
    out.iteration = std::ranges::min(complete.saved, {}, &SavedShard::iteration).iteration;
  }
  std::size_t bytes = out.open_text.size() + out.closed_reason.size();
  auto at = std::ranges::lower_bound(complete.saved, first_shard, {}, &SavedShard::shard);
  for (; at != complete.saved.end(); ++at) {
    bytes += 64 + at->location.size();
    if (bytes > limits::kHistoryReplyBytesMax && !out.saved.empty()) {
      out.next_shard = at->shard;
      break;
    }
    out.saved.push_back({at->shard, at->rank, at->iteration, at->location});
  }
}

}  // namespace syncd
