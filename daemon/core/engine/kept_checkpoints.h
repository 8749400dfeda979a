// The latest complete checkpoint of each job that the engine, or the store, has forgotten: a launch
// that comes later finds where to go on. It outlives the job's history, whatever retention says.
//
// Bounded in number and bytes (limits.h). Beyond either the one goes first that has been complete
// for longest.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/core/engine/kept_index.h"
#include "proto/wire/wire.h"

namespace syncd {

// One that is complete, as it is asked for.
struct CompleteCheckpoint : CheckpointSnapshot {
  CompleteCheckpoint() = default;
  explicit CompleteCheckpoint(CheckpointSnapshot&& facts);

  void add(SavedShard&& shard);
  // Puts it into the answer, as far as it was asked for and fits a frame. O(shards in it).
  void put(const wire::LatestCheckpoint& asked, wire::LatestCheckpointReply& out) const;

  Iteration iteration = kNoIteration;  // the lowest of its shards'
};

class KeptCheckpoints {
 public:
  // As the index does.
  void add(const std::string& job, const CheckpointSnapshot& checkpoint,
           std::vector<std::string>& gone);
  // Null: none of this name is kept.
  const CompleteCheckpoint* find(std::string_view job) const {
    const auto at = kept_.find(job);
    return at == kept_.end() ? nullptr : &at->second;
  }
  const KeptIndex& index() const { return index_; }

 private:
  KeptIndex index_;
  std::map<std::string, CompleteCheckpoint, std::less<>> kept_;
};

}  // namespace syncd
