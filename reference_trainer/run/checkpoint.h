// Agreed checkpoints on disk: each worker saves its part, a shard, when a step says so, and a later
// start with the same directory loads the newest checkpoint that has the shards of all workers.
//
// A shard is a file START-NUMBER-ITERATION-RANKofWORKERS.ckpt: START counts the trainer's starts
// in this directory, NUMBER is the daemon's of the checkpoint within that start. It gets its name
// when it is whole and on disk. The directory alone says what is complete, so that a start needs no
// daemon that remembers. Used on the thread that calls; several processes save at once.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "libclient/shared_memory.h"  // UniqueFd
#include "reference_trainer/run/run_board.h"

namespace syncd::trainer {

// A checkpoint that cannot be saved or used. what() names the file, what is wrong, and what to do.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What is trained, as names and values: a checkpoint goes on only with the same. In the order in
// which a difference is told.
using TrainingIdentity = std::vector<std::pair<std::string, std::string>>;
TrainingIdentity identity_of(const WorkloadConfig& config, std::string_view policy,
                             HopOrder hop_order, std::size_t parameters);

// Which checkpoint: later ones are greater.
struct CheckpointId {
  std::uint64_t start = 0;
  std::uint64_t number = 0;
  auto operator<=>(const CheckpointId&) const = default;
};

// What one worker saves.
struct Shard {
  std::int32_t rank = 0;
  std::int64_t iteration = 0;     // the one that it was about to begin
  std::int64_t iterations = 0;    // pushed and counted so far, over all starts
  std::vector<float> parameters;  // as that iteration begins
  std::vector<float> state;       // the stepper's own, such as a velocity
};

// Writes the shard, and removes this worker's shards of checkpoints that are older than the two
// newest complete ones. Returns the file.
std::filesystem::path save_shard(const std::filesystem::path& directory,
                                 const TrainingIdentity& identity, CheckpointId id,
                                 const Shard& shard);

// A shard of a file. Throws CheckpointError if the file is damaged.
struct StoredShard {
  TrainingIdentity identity;
  Shard shard;
};
StoredShard read_shard(const std::filesystem::path& file);

// Where a worker's shard is. Throws CheckpointError if it is gone.
std::filesystem::path find_shard(const std::filesystem::path& directory, CheckpointId id, int rank);

// A complete checkpoint.
struct Checkpoint {
  CheckpointId id;
  std::int64_t iteration = 0;                // where all go on: the lowest of its shards
  std::vector<std::filesystem::path> files;  // by rank
  std::vector<std::int64_t> iterations;      // pushed, by rank
  std::vector<float> parameters;             // of the first shard

  std::int64_t all_iterations() const;
};

// What a run is told: where to save, how often, and what to go on from.
struct CheckpointPlan {
  std::filesystem::path directory;
  std::int64_t every = 0;  // iterations; 0: only when somebody asks
  std::uint64_t start = 1;
  std::uint64_t launch = 0;  // as in JoinRequest
  std::optional<Checkpoint> resume;
};

// The directory of one training, for as long as its trainer runs: no other one may use it.
class CheckpointDirectory {
 public:
  // Makes the directory. Throws CheckpointError if it cannot be used, or another trainer uses it.
  explicit CheckpointDirectory(const std::filesystem::path& directory);

  // The newest complete checkpoint; nothing if there is none. If it is damaged, the one before it
  // is used and `tell` is told. Throws CheckpointError if it is of another training, or if all
  // complete ones are damaged.
  std::optional<Checkpoint> newest(const TrainingIdentity& identity, int workers,
                                   const std::function<void(const std::string&)>& tell) const;

  // The number of a start that saves here from now on.
  std::uint64_t next_start() const;

  const std::filesystem::path& path() const { return directory_; }

 private:
  std::filesystem::path directory_;  // absolute
  UniqueFd lock_;
};

}  // namespace syncd::trainer
