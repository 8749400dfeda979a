// What a worker's loop does about agreed checkpoints: it asks for one when it is time, saves its
// shard where a step says so, and lets a worker go that a signal ends. Where the board names no
// directory, nothing. Used by the worker's thread.
#pragma once

#include <cstdint>
#include <string>

#include "reference_trainer/model/workload.h"
#include "reference_trainer/run/clock.h"
#include "reference_trainer/run/coordinator.h"
#include "reference_trainer/run/run_board.h"

namespace syncd::trainer {

// How long a worker that a signal ends stays for its checkpoint.
inline constexpr std::int64_t kPreemptionWaitUs = 20'000'000;

// Gives the stepper what the worker saved, where the run goes on from a checkpoint. Throws
// CheckpointError.
void restore_shard(int worker, const RunBoard& board, Stepper& stepper);

// The order of the updates of one iteration. Where checkpoints are saved under bsp, it is fixed:
// all workers add theirs in the order of their numbers, once all have pulled, and the result is the
// same in every run, bit for bit. Otherwise, these do nothing. Used by the worker's thread.
class UpdateOrder {
 public:
  UpdateOrder(int worker, const RunBoard& board, Clock& clock);

  bool is_fixed() const { return is_fixed_; }
  void has_pulled(std::int64_t iteration) const;
  void has_added(std::int64_t iteration) const;

  // Until all have pulled for this iteration, and those before this worker have added.
  void await_turn(std::int64_t iteration) const;
  // Until what is to be in the parameters when this iteration begins is there.
  void await_updates(std::int64_t iteration) const;

 private:
  void await_others(std::atomic<std::int64_t> WorkerSlot::*moment, int workers,
                    std::int64_t iteration) const;

  int worker_;
  const RunBoard& board_;
  Clock& clock_;
  bool is_fixed_;
};

class WorkerCheckpoints {
 public:
  // All must outlive it.
  WorkerCheckpoints(int worker, const RunBoard& board, Stepper& stepper, Coordinator& coordinator);

  // Whether this worker is to ask for a checkpoint in this iteration. One worker asks for all,
  // while all are there: a checkpoint without a worker's shard is not complete.
  bool is_due(std::int64_t iteration) const;

  // Saves the stepper's parameters as they are, as those with which `iteration` begins. Throws
  // CheckpointError. What confirm() says is to be told to the daemon afterwards.
  void save(std::uint64_t number, std::int64_t iteration);
  void confirm();

  // True once this worker is to leave because of a signal. The first call after the signal asks
  // for a checkpoint; until that is saved, for kPreemptionWaitUs at most, the worker goes on.
  bool may_go(std::int64_t now_us);

  // What to say of it: "preempted by SIGTERM; checkpoint 3 is saved".
  bool is_going() const { return deadline_us_ != 0; }
  std::string text() const;

 private:
  bool is_told() const;

  int worker_;
  const RunBoard& board_;
  Stepper& stepper_;
  Coordinator& coordinator_;
  std::uint64_t saved_ = 0;  // the latest checkpoint
  std::string location_;     // of its shard
  std::uint64_t wanted_ = 0;
  std::int64_t deadline_us_ = 0;  // 0: no signal came
  std::string problem_;
};

}  // namespace syncd::trainer
