// A worker as a thread of the trainer's own process, with a connection to the daemon of its own.
#pragma once

#include <memory>

#include "reference_trainer/run/worker.h"

namespace syncd::trainer {

// Starts it. It attaches to the run's memory by itself, so that nothing of the run need stay but
// `shares`, which may be null (run_worker). Signals are left to the other threads. A thread cannot
// be killed: end() asks it to drop what it does and leaves it behind if it does not. Throws
// std::system_error or SharedMemoryError.
//
// The client library prefers SYNCD_ADDR and SYNCD_JOB to what it is told: they must not be set.
std::unique_ptr<RunningWorker> start_worker_thread(int worker, const RunBoard& board,
                                                   std::shared_ptr<DeviceShares> shares);

// Whether a thread was left behind by this process, which then must not end by returning from
// main().
bool threads_left_behind();

}  // namespace syncd::trainer
