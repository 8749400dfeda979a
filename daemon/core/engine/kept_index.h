// Which checkpoints of forgotten jobs are kept: see kept_checkpoints.h. The engine and the store
// keep to the same bounds.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/core/engine/limits.h"
#include "daemon/core/engine/record.h"

namespace syncd {

struct KeptCheckpoint {
  std::string job;  // its name
  CheckpointSnapshot checkpoint;

  bool operator==(const KeptCheckpoint&) const = default;
};

// The store has them on its disk, and needs no more of them than this.
class KeptIndex {
 public:
  // False: a later one of that name is there. `gone` receives the names of those that had to go,
  // which may be this one's own.
  bool add(const std::string& job, const CheckpointSnapshot& checkpoint,
           std::vector<std::string>& gone);
  std::size_t size() const { return facts_.size(); }
  std::size_t bytes() const { return bytes_; }
  // What one takes in memory, rounded up.
  static std::size_t bytes_of(const CheckpointSnapshot& checkpoint);

 private:
  struct Facts {
    Epoch epoch = 0;
    std::uint64_t number = 0;
    Micros since_us = 0;
    std::size_t bytes = 0;
  };
  void erase(std::map<std::string, Facts, std::less<>>::iterator at);

  std::map<std::string, Facts, std::less<>> facts_;  // by the job's name
  std::set<std::pair<Micros, std::string>> by_age_;  // since when each is complete
  std::size_t bytes_ = 0;
};

inline std::size_t KeptIndex::bytes_of(const CheckpointSnapshot& checkpoint) {
  std::size_t bytes = limits::kKeptCheckpointBytes;
  for (const SavedShard& shard : checkpoint.saved) {
    bytes += limits::kKeptShardBytes + shard.location.size();
  }
  return bytes;
}

inline void KeptIndex::erase(std::map<std::string, Facts, std::less<>>::iterator at) {
  bytes_ -= at->second.bytes;
  by_age_.erase({at->second.since_us, at->first});
  facts_.erase(at);
}

inline bool KeptIndex::add(const std::string& job, const CheckpointSnapshot& checkpoint,
                           std::vector<std::string>& gone) {
  if (const auto at = facts_.find(job); at != facts_.end()) {
    const Facts& facts = at->second;
    if (std::pair(facts.epoch, facts.number) > std::pair(checkpoint.epoch, checkpoint.number)) {
      return false;
    }
    erase(at);
  }
  const Facts facts{checkpoint.epoch, checkpoint.number, checkpoint.since_us, bytes_of(checkpoint)};
  facts_.emplace(job, facts);
  by_age_.emplace(facts.since_us, job);
  bytes_ += facts.bytes;
  while (facts_.size() > limits::kKeptCheckpointsMax || bytes_ > limits::kKeptCheckpointsBytesMax) {
    gone.push_back(by_age_.begin()->second);
    erase(facts_.find(gone.back()));
  }
  return true;
}

}  // namespace syncd
