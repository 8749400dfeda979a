// One worker's training loop: the four calls of <syncd/client.h> around pull, compute and apply.
// The loop is the same for every policy. Runs on the thread that calls run(); everything it touches
// beside the shared store and board is its own.
#pragma once

#include <cstdint>

#include "reference_trainer/clock.h"
#include "reference_trainer/coordinator.h"
#include "reference_trainer/parameter_store.h"
#include "reference_trainer/run_board.h"
#include "reference_trainer/slowdown.h"
#include "reference_trainer/workload.h"

namespace syncd::trainer {

// A begin is asked in slices of this length, so that a stop requested by the parent is noticed by a
// worker that waits.
inline constexpr std::int64_t kBeginSliceMs = 500;

// A worker that was declared lost joins again this often before it gives up.
inline constexpr int kRejoinsMax = 5;

// A call that may succeed later (CoordinatorError::Kind::kRetry) is made again after a pause, until
// it succeeds or the run is stopped. The pauses' upper bound starts and ends here and doubles.
inline constexpr std::int64_t kRetryPauseFirstUs = 50'000;
inline constexpr std::int64_t kRetryPauseMaxUs = 5'000'000;

// The pause after so many failures in a row (from 1): a random part of the upper half of its bound,
// so that workers that failed at the same moment do not come back at the same moment.
std::int64_t retry_pause_us(std::uint64_t seed, int worker, int failures);

class WorkerLoop {
 public:
  // The worker's settings are the board's. All arguments must outlive the loop.
  WorkerLoop(int worker, const RunBoard& board, ParameterStore& store, Stepper& stepper,
             Coordinator& coordinator, Clock& clock);

  // Joins, trains until the budget is used up, the parent asks to stop, or the job ends; then
  // leaves the job. Throws CoordinatorError or StoreError if it cannot go on; the caller reports
  // it.
  void run();

 private:
  enum class Outcome { kDone, kStop };

  bool iterate();
  bool begin(Step& step);
  void pull();
  Outcome compute(const Step& step);
  Outcome compute_once(const Step& step, bool may_restart, bool& restart);
  bool pad_until(std::int64_t due_us, bool may_restart);
  bool push(const Step& step);
  void take_back(const Update& update);
  void rejoin();
  void leave(bool job_has_ended);
  template <typename Call>
  void persist(StopLevel give_up, const Call& call);
  void pause(const CoordinatorError& error, int failures, StopLevel give_up);

  int worker_;
  const RunBoard& board_;
  ParameterStore& store_;
  Stepper& stepper_;
  Coordinator& coordinator_;
  Clock& clock_;
  WorkerSlot& slot_;
  Slowdown slowdown_;
  StoreReader reader_;
  bool must_pull_ = true;
  std::int64_t next_iteration_ = -1;  // what a begin without SKIP answers; -1: not known
  int rejoins_ = 0;
};

}  // namespace syncd::trainer
