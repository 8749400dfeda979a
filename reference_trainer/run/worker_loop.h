// One worker's training loop: the calls of <syncd/client.h> around computing. What all workers do
// is here; StoreLoop (store_loop.h) is a worker that pulls parameters from a store which all share
// and adds its updates there, PeerLoop (peer_loop.h) one that exchanges parameters with its
// neighbours. Runs on the thread that calls run(); everything it touches beside the shared memory
// is its own.
#pragma once

#include <cstdint>
#include <functional>

#include "reference_trainer/model/workload.h"
#include "reference_trainer/run/clock.h"
#include "reference_trainer/run/coordinator.h"
#include "reference_trainer/run/policies.h"
#include "reference_trainer/run/run_board.h"
#include "reference_trainer/run/worker_checkpoints.h"

namespace syncd::trainer {

// A call that may wait is asked in slices of this length, so that a stop requested by the parent is
// noticed by a worker that waits.
inline constexpr std::int64_t kWaitSliceMs = 500;

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
  WorkerLoop(int worker, const RunBoard& board, Stepper& stepper, Coordinator& coordinator,
             Clock& clock);
  virtual ~WorkerLoop() = default;
  WorkerLoop(const WorkerLoop&) = delete;
  WorkerLoop& operator=(const WorkerLoop&) = delete;

  // Joins, trains until the budget is used up, the parent asks to stop, or the job ends; then
  // leaves the job, with the reason where it has failed. Throws CoordinatorError, StoreError or
  // SharedMemoryError if it cannot go on; the caller reports it.
  void run();

 protected:
  // Brings the parameters to where the iteration that was granted begins. False: the run is to be
  // abandoned.
  virtual bool refresh(const Step& step) = 0;

  // Makes the iteration that was granted. False: it does not count.
  virtual bool train(const Step& step) = 0;

  // The worker was given up by the daemon and takes part again, from another iteration on.
  virtual void start_over() = 0;

  // Renews the parameters, in the middle of an iteration.
  virtual void renew() = 0;

  // Waits until what is to be in the parameters when `iteration` begins is there.
  virtual void await_updates(std::int64_t /*iteration*/) {}

  // Computes a minibatch on the stepper's replica, starting over on renewed parameters whenever the
  // daemon advises it. `batch` says which one. False: the run is to be abandoned.
  bool compute(const Step& step, std::int64_t batch);

  // Makes a call that may wait again and again, until it is answered (true) or the run's stop has
  // reached `give_up` (false).
  bool wait(StopLevel give_up, const std::function<bool()>& answered);

  // Remembers for the report what this worker did from a moment until now.
  void note(SpanKind kind, std::int64_t start_us, std::uint8_t flags = 0);

  // Does something, and counts and remembers for the report how long it took.
  template <typename Action>
  void timed(std::atomic<std::int64_t>& counter, SpanKind kind, const Action& action) {
    const std::int64_t start_us = clock_.now_us();
    action();
    count(counter, clock_.now_us() - start_us);
    note(kind, start_us);
  }

  // Makes a call, again and again while its failure is one that may pass. Throws what it cannot
  // help, and a failure that may pass only when the run's stop has reached `give_up`.
  void persist(StopLevel give_up, const std::function<void()>& call);

  // Reports the iteration; true if the others have gone on without it.
  bool push(const Step& step, const PushReport& report);

  int worker_;
  const RunBoard& board_;
  Stepper& stepper_;
  Clock& clock_;
  WorkerSlot& slot_;
  std::int64_t spent_us_ = 0;  // by the latest compute() on what was not thrown away

 private:
  bool iterate();
  bool begin(Step& step);
  bool ask(StopLevel give_up, const std::function<bool()>& answered);
  bool compute_once(const Step& step, std::int64_t batch, bool& restart);
  bool await_device(bool all);
  bool pad_until(std::int64_t due_us);
  void train_to_the_end();
  bool take_checkpoint(const Step& step);
  void save(std::uint64_t number, std::int64_t iteration);
  void rejoin();
  void leave(bool job_has_ended);
  void leave_failed(const std::string& reason);
  void pause(const CoordinatorError& error, int failures, StopLevel give_up);

  Coordinator& coordinator_;
  WorkerCheckpoints checkpoints_;
  sim::SlowFactors slow_;
  std::int64_t iteration_ = 0;        // the one that was granted last
  std::int64_t next_iteration_ = -1;  // what a begin without SKIP answers; -1: not known
  int rejoins_ = 0;
};

}  // namespace syncd::trainer
