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

class KeptCheckpoints {
 public:
  // As the index does.
  void add(const std::string& job, const CheckpointSnapshot& checkpoint,
           std::vector<std::string>& gone);
  // Null: none of this name is kept.
  const CheckpointSnapshot* find(std::string_view job) const {
    const auto at = kept_.find(job);
    return at == kept_.end() ? nullptr : &at->second;
  }
  const KeptIndex& index() const { return index_; }

 private:
  KeptIndex index_;
  std::map<std::string, CheckpointSnapshot, std::less<>> kept_;
};

// Puts a complete one into an answer about it, from this shard on, as far as that fits a frame.
void list_shards(const CheckpointSnapshot& complete, std::uint32_t first_shard,
                 wire::LatestCheckpointReply& out);

}  // namespace syncd
